"""OLMo 2 and 3: how config.json is read, and where the weights lie.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.gemma import gemma_later_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like, windows
from miron_jax.model.hf_fields import Fields


def _olmo2_config(fields: Fields, more: str = "") -> ModelConfig:
    bias = fields["attention_bias"]
    return replace(
        llama_like(fields, f"{LLAMA_FIELDS} attention_bias {more}"),
        pre_norms=False,
        post_norms=True,
        qk_norm="all_heads",
        qkv_bias=bias,
        attn_out_bias=bias,
    )


def _olmo3_config(fields: Fields) -> ModelConfig:
    return replace(_olmo2_config(fields, "sliding_window layer_types"), layer_windows=windows(fields))


FAMILIES = {
    "olmo2": Family(_olmo2_config, gemma_later_names),
    "olmo3": Family(_olmo3_config, gemma_later_names),
}
