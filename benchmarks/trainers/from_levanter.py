"""Saves tiny models of levanter in the states of its trainer, and what they compute.

Its config.json says what docs/checkpoints.md tells a user to change: the scale of Gemma's queries,
soft caps and windows that levanter does not have, and linear scaling, which it cannot write.
"""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import haliax  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import optax
from levanter.checkpoint import save_checkpoint  # pyright: ignore[reportMissingImports]
from levanter.layers import rotary  # pyright: ignore[reportMissingImports]
from levanter.layers.attention import AttentionMask  # pyright: ignore[reportMissingImports]
from levanter.models import gemma, gpt2, llama, mistral, olmo, olmo3, qwen  # pyright: ignore[reportMissingImports]
from levanter.optim.model_averaging import EmaModelAveragingConfig  # pyright: ignore[reportMissingImports]
from levanter.trainer_state import TrainerState  # pyright: ignore[reportMissingImports]
from saved import LENGTH, ORIGINAL, STEP, TOKEN_IDS, VOCAB, Cases, as_dtype, moved, rounded

SIZES = {"max_seq_len": 256, "hidden_dim": 32, "num_layers": 3, "num_heads": 4}
MORE = {**SIZES, "intermediate_dim": 40, "num_kv_heads": 2}
SCALE = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4096}
SCALED = {"factor": 4.0, "original_max_position_embeddings": ORIGINAL}


def models() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Each with what its config.json must say besides."""
    return {
        "Llama": (llama.LlamaConfig(**MORE), {}),
        "Llama, tied head": (llama.LlamaConfig(**MORE, tie_word_embeddings=True), {}),
        "Llama, llama3": (
            llama.LlamaConfig(**MORE, rope=rotary.Llama3RotaryEmbeddingsConfig(**SCALED)), {}
        ),
        "Llama, yarn": (
            llama.LlamaConfig(**MORE, rope=rotary.YarnRotaryEmbeddingsConfig(**SCALED)), {}
        ),
        "Llama, linear": (
            llama.LlamaConfig(**MORE, rope=rotary.DefaultRotaryEmbeddingsConfig(factor=4.0)),
            {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        ),
        "Llama, not scanned": (llama.LlamaConfig(**MORE, scan_layers=False), {}),
        "Mistral": (mistral.MistralConfig(**MORE), {"sliding_window": None}),
        "Qwen 2": (qwen.QwenConfig(**MORE), {}),
        "Qwen 3": (qwen.Qwen3Config(**MORE), {}),
        "OLMo 2": (olmo.Olmo2Config(**MORE), {}),
        "OLMo 3": (olmo3.Olmo3Config(**MORE, sliding_window=24), {}),
        "GPT-2": (gpt2.Gpt2Config(**SIZES), {}),
        "Gemma 1": (gemma.GemmaConfig(**MORE, head_dim=8), {"head_dim": 8}),
        "Gemma 2": (
            gemma.Gemma2Config(**MORE, head_dim=8), SCALE | {"final_logit_softcapping": None}
        ),
        "Gemma 3": (gemma.Gemma3Config(**MORE, head_dim=8), SCALE),
    }  # fmt: skip


def logits_of(config: Any, model: Any) -> jax.Array:
    """[rows, LENGTH, VOCAB]"""
    vocab, batch = haliax.Axis("vocab", VOCAB), haliax.Axis("batch", len(TOKEN_IDS))
    position = config.max_Pos.resize(LENGTH)
    token_ids = haliax.named(jnp.asarray(TOKEN_IDS), (batch, position))
    logits = model(token_ids, attn_mask=AttentionMask.causal())
    return logits.rearrange((batch, position, vocab)).array


def save(run: Path, tree: Any) -> None:
    save_checkpoint(tree, STEP, str(run / f"step-{STEP}"), is_temporary=False)


def main() -> None:
    cases = Cases("marin-levanter", "marin-haliax")
    for name, (config, fields) in models().items():
        vocab = haliax.Axis("vocab", VOCAB)
        first = config.model_type.init(vocab, config, key=jax.random.PRNGKey(0))
        model = rounded(moved(first))
        plain = config if "rope_scaling" not in fields else llama.LlamaConfig(**MORE)
        document = json.loads(plain.to_hf_config(VOCAB).to_json_string()) | fields
        add = partial(cases.add, name, logits=logits_of(config, model), config=document)
        begin = partial(TrainerState.init, optax.adam(1e-3), key=jax.random.PRNGKey(1))
        refused = "one of levanter's families without a mapping" if name == "OLMo 3" else ""
        state = begin(model).saveable_state
        add("TrainerState", save=partial(save, tree=state), refused=refused)
        if name not in ("Llama", "Llama, not scanned"):
            continue
        add("model alone", save=partial(save, tree={"model": model}))
        half = begin(as_dtype(model, jnp.bfloat16))
        add("TrainerState, bfloat16", save=partial(save, tree=half.saveable_state))
        averaged = begin(model, model_averaging=EmaModelAveragingConfig())
        other = dataclasses.replace(averaged, model=moved(model))
        add(
            "average, --params_key=model_averaging/model",
            save=partial(save, tree=other.saveable_state), params_key="model_averaging/model",
        )  # fmt: skip
        add("TrainerState with an average", save=partial(save, tree=averaged.saveable_state))


if __name__ == "__main__":
    main()
