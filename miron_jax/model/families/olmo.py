"""OLMo 1 to 3: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace
from functools import partial

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.gemma import gemma_later_names
from miron_jax.model.families.naming import llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like


def _olmo_config(fields: Fields) -> ModelConfig:
    """Layer norms without weights."""
    config = llama_like(fields, "num_key_value_heads hidden_act attention_bias clip_qkv")
    return replace(
        config, norm="layer", norm_weight=False, norm_bias=False, qkv_clip=fields["clip_qkv"]
    )


def _olmo2_config(fields: Fields, used_fields: str = "") -> ModelConfig:
    plain = llama_like(fields, f"{LLAMA_FIELDS} attention_bias {used_fields}")
    return replace(plain, pre_norms=False, post_norms=True, qk_norm="all_heads")


_olmo3_config = partial(_olmo2_config, used_fields="sliding_window layer_types")
FAMILIES = {
    "olmo": Family(_olmo_config, llama_names),
    "olmo2": Family(_olmo2_config, gemma_later_names),
    "olmo3": Family(_olmo3_config, gemma_later_names),
}
