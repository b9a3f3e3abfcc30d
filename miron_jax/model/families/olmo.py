"""OLMo 2 and 3: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.gemma import gemma_later_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like
from miron_jax.model.hf_fields import Fields


def _olmo2_config(fields: Fields, used_fields: str = "") -> ModelConfig:
    plain = llama_like(fields, f"{LLAMA_FIELDS} attention_bias {used_fields}")
    return replace(plain, pre_norms=False, post_norms=True, qk_norm="all_heads")


def _olmo3_config(fields: Fields) -> ModelConfig:
    return _olmo2_config(fields, "sliding_window layer_types")


FAMILIES = {
    "olmo2": Family(_olmo2_config, gemma_later_names),
    "olmo3": Family(_olmo3_config, gemma_later_names),
}
