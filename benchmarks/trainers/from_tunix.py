"""Saves tiny models of google-tunix by its own CheckpointManager, and what they compute.

Its Llama and Qwen 3 rotate with a theta of 1e6, whatever their config says.
"""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from flax import nnx
from saved import SIZES, STEP, VOCAB, WINDOW, Cases, as_dtype, moved, rounded, rows
from tunix.sft.checkpoint_manager import CheckpointManager  # pyright: ignore[reportMissingImports]

DIMENSIONS = {
    "embed_dim": 32, "hidden_dim": 40, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8,
}  # fmt: skip
GEMMA = {"model_type": "gemma", "rms_norm_eps": 1e-6, "rope_theta": 1e4}
LOCAL = {"sliding_window": WINDOW, "query_pre_attn_scalar": 8}


def llama_like(file: str, model_class: str, **fields: Any) -> nnx.Module:
    module = import_module(f"tunix.models.{file}.model")
    sizes = {**DIMENSIONS, "num_layers": 3, "vocab_size": VOCAB}
    config = module.ModelConfig(**sizes, rope_theta=1_000_000, norm_eps=1e-5, **fields)
    return getattr(module, model_class)(config, rngs=nnx.Rngs(0))


def gemma(is_second: bool) -> nnx.Module:
    module = import_module("tunix.models.gemma.model")
    kinds = module.AttentionType.LOCAL_SLIDING, module.AttentionType.GLOBAL
    config = module.ModelConfig(
        **DIMENSIONS, num_layers=4, num_embed=VOCAB, use_post_attn_norm=is_second,
        use_post_ffw_norm=is_second, attention_types=kinds * 2 if is_second else kinds[1:] * 4,
        sliding_window_size=WINDOW if is_second else None,
        final_logit_softcap=3.0 if is_second else None,
        attn_logits_soft_cap=5.0 if is_second else None,
    )  # fmt: skip
    return module.Gemma(config, rngs=nnx.Rngs(0))


def gemma3() -> nnx.Module:
    module = import_module("tunix.models.gemma3.model")
    config = module.ModelConfig(
        **DIMENSIONS, num_layers=7, num_embed=VOCAB, sliding_window_size=WINDOW,
        global_base_frequency=1_000_000, param_dtype=jnp.float32,
    )  # fmt: skip
    return module.Gemma3(config, rngs=nnx.Rngs(0))


def llama_config(model_type: str, is_tied: bool = False) -> dict[str, Any]:
    rules = {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": is_tied}
    return {**SIZES, **rules, "model_type": model_type, "num_hidden_layers": 3}


def models() -> dict[str, tuple[nnx.Module, dict[str, Any]]]:
    """Each with its config.json."""
    kinds = ["sliding_attention", "full_attention"]
    second = {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0, **LOCAL}
    return {
        "Llama": (llama_like("llama3", "Llama3"), llama_config("llama")),
        "Llama, tied head": (
            llama_like("llama3", "Llama3", weight_tying=True), llama_config("llama", is_tied=True)
        ),
        "Qwen 2": (llama_like("qwen2", "Qwen2"), llama_config("qwen2")),
        "Qwen 3": (llama_like("qwen3", "Qwen3"), llama_config("qwen3")),
        "Gemma 1": (gemma(is_second=False), {**SIZES, **GEMMA, "num_hidden_layers": 4}),
        "Gemma 2": (gemma(is_second=True), {
            **SIZES, **GEMMA, **second, "model_type": "gemma2", "num_hidden_layers": 4,
            "layer_types": kinds * 2,
        }),
        "Gemma 3": (gemma3(), {
            **SIZES, **GEMMA, **LOCAL, "model_type": "gemma3_text", "num_hidden_layers": 7,
            "rope_theta": 1e6, "rope_local_base_freq": 1e4,
            "layer_types": [kinds[0]] * 5 + kinds[1:] + kinds[:1],
        }),
    }  # fmt: skip


def manage(run: Path, model: nnx.Module, **what: Any) -> None:
    manager = CheckpointManager(str(run))
    manager.save(STEP, model, force=True, **what)
    manager.close()


def save_tree(run: Path, tree: Any) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(run / str(STEP), tree)


def main() -> None:
    cases = Cases("google-tunix", "flax", "orbax-checkpoint")
    for name, (model, config) in models().items():
        weights = rounded(moved(nnx.state(model)))
        nnx.update(model, weights)
        token_ids, position, mask = rows()
        logits = model(token_ids, position, None, mask)[0]  # pyright: ignore[reportCallIssue]
        add = partial(cases.add, name, logits=logits, config=config, param_map="tunix")
        optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
        add("CheckpointManager", save=lambda run, m=model: manage(run, m))
        add(
            "CheckpointManager, optimizer",
            save=lambda run, m=model, o=optimizer: manage(run, m, optimizer=o),
        )
        half = as_dtype(nnx.state(model), jnp.bfloat16)
        add("StandardCheckpointer, bfloat16", save=lambda run, half=half: save_tree(run, half))
    model = llama_like("llama3", "Llama3")
    nnx.update(model, moved(nnx.state(model)))
    add_lora(cases, model)


def add_lora(cases: Cases, model: nnx.Module) -> None:
    """Adapters beside the weights, which a score must not leave out."""
    import qwix  # pyright: ignore[reportMissingImports]

    token_ids, position, mask = rows()
    provider = qwix.LoraProvider(module_path=".*q_proj|.*gate_proj", rank=2, alpha=2.0)
    model = qwix.apply_lora_to_model(model, provider, token_ids, position, None, mask)
    nnx.update(model, moved(nnx.state(model, nnx.LoRAParam)))
    logits = model(token_ids, position, None, mask)[0]
    cases.add(
        "Llama, LoRA", "CheckpointManager", logits, lambda run: manage(run, model),
        llama_config("llama"), refused="adapters are no part of a model of config.json",
        param_map="tunix",
    )  # fmt: skip


if __name__ == "__main__":
    main()
