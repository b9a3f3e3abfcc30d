"""SmolLM3: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like, without_rope


def _smollm3_config(fields: Fields) -> ModelConfig:
    """Llama with layers that do not rotate: every fourth one, or as `no_rope_layers` says (1: it
    rotates)."""
    windows = (
        "use_sliding_window sliding_window max_window_layers layer_types no_rope_layers "
        "no_rope_layer_interval"
    )
    config = llama_like(fields, f"{LLAMA_FIELDS} attention_bias mlp_bias {windows}")
    rotates = fields["no_rope_layers"]
    fields.expect(
        "no_rope_layers",
        isinstance(rotates, list) and len(rotates) >= config.num_layers and {0, 1} >= set(rotates),
        f"at least {config.num_layers} entries, 0 or 1",
    )
    still = [not rotated for rotated in rotates[: config.num_layers]]
    return replace(config, layer_ropes=without_rope(config.layer_ropes, still))


FAMILIES = {"smollm3": Family(_smollm3_config, llama_names)}
