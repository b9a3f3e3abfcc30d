"""Saves tiny models of EasyDeL by save_pretrained and save_state, and what they compute.

Its table of rotations, which it rounds to bfloat16, is replaced by the unrounded one of its own
functions; a token sees one token more than sliding_window, which config.json then says.  Its table
of llama3 ends at original_max_position_embeddings: tokens beyond turn as the last one, and are not
compared.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import easydel  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import optax
from easydel.layers import get_frequencies  # pyright: ignore[reportMissingImports]
from flax import nnx
from saved import LENGTH, ORIGINAL, SIZES, STEP, TOKEN_IDS, WINDOW, Cases, moved, rounded

EXACT = {
    "dtype": jnp.float32,
    "param_dtype": jnp.float32,
    "precision": jax.lax.Precision.HIGHEST,
}
LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA = (easydel.LlamaConfig, easydel.LlamaForCausalLM)
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "Llama": (*LLAMA, {}),
    "Llama, tied head": (*LLAMA, {"tie_word_embeddings": True}),
    "Llama, llama3 until 64": (*LLAMA, {"rope_scaling": LLAMA3}),
    "Llama, yarn": (*LLAMA, {"rope_scaling": YARN}),
    "Llama, linear": (*LLAMA, {"rope_scaling": LINEAR}),
    "Mistral": (
        easydel.MistralConfig, easydel.MistralForCausalLM, {"sliding_window": WINDOW}
    ),
    "Qwen 2": (easydel.Qwen2Config, easydel.Qwen2ForCausalLM, {}),
    "Qwen 3": (easydel.Qwen3Config, easydel.Qwen3ForCausalLM, {}),
}  # fmt: skip


def unrounded(config: Any) -> jax.Array:
    """The table of rotations in float32."""
    return get_frequencies(
        head_size=config.head_dim,
        rotary_dim=config.head_dim,
        max_position=config.granted_freq_max_position_embedding,
        base=config.rope_theta,
        rope_scaling=config._get_rope_config().to_dict(),
        partial_rotary_factor=1.0,
    ).astype(jnp.float32)


def logits_of(config: Any, model: Any) -> jax.Array:
    with model.mesh:
        model(input_ids=jnp.asarray(TOKEN_IDS))  # makes the table
        table = unrounded(config)
        exact = jax.tree_util.tree_map_with_path(
            lambda path, x: table if "frequencies" in jax.tree_util.keystr(path) else x,
            nnx.state(model),
        )
        nnx.update(model, exact)
        return model(input_ids=jnp.asarray(TOKEN_IDS)).logits.astype(jnp.float32)


def save(run: Path, write: Any, fields: dict[str, Any], in_step: bool) -> None:
    """Write the run's folder, or a step below it, and change fields of its config.json."""
    folder = run / f"run-{STEP}" if in_step else run
    write(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def main() -> None:
    cases = Cases("easydel", "eformer", "flax")
    for name, (config_class, model_class, more) in MODELS.items():
        config = config_class(
            **SIZES, num_hidden_layers=3, **more, attn_mechanism="vanilla", attn_dtype=jnp.float32
        )
        model = model_class(config=config, **EXACT, rngs=nnx.Rngs(0))
        nnx.update(model, rounded(moved(nnx.state(model, nnx.Param))))
        logits = logits_of(config, model)
        fields = {"sliding_window": WINDOW + 1} if "sliding_window" in more else {}

        until = ORIGINAL if more.get("rope_scaling") is LLAMA3 else LENGTH

        def add(layout: str, write: Any, **options: Any) -> None:
            saved = partial(save, write=write, fields=fields, **options)  # noqa: B023
            cases.add(name, layout, logits, saved, until=until)  # noqa: B023

        add("save_pretrained", model.save_pretrained, in_step=False)
        if "," in name:
            continue
        state = model.to_state().init_tx(optax.adam(1e-3))
        add("save_state", state.save_state, in_step=False)
        if name != "Llama":
            continue
        alone = partial(state.save_state, save_optimizer=False)
        add("save_state, no optimizer", alone, in_step=False)
        half = partial(state.save_state, float_dtype=jnp.bfloat16)
        add("save_state, bfloat16", half, in_step=False)
        add("save_state of steps", state.save_state, in_step=True)


if __name__ == "__main__":
    main()
