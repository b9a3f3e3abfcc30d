"""Llama, SmolLM, Mistral, Qwen 2 and 3: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace
from functools import partial

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like

QWEN_WINDOWS = "use_sliding_window sliding_window max_window_layers layer_types"
_llama_config = partial(llama_like, used_fields=LLAMA_FIELDS + "attention_bias mlp_bias")
_mistral_config = partial(llama_like, used_fields=LLAMA_FIELDS + "sliding_window")


def _qwen2_config(fields: Fields) -> ModelConfig:
    return replace(llama_like(fields, LLAMA_FIELDS + QWEN_WINDOWS), qkv_bias=True)


def _qwen3_config(fields: Fields) -> ModelConfig:
    return replace(
        llama_like(fields, f"{LLAMA_FIELDS} attention_bias {QWEN_WINDOWS}"), qk_norm="head"
    )


FAMILIES = {
    "llama": Family(_llama_config, llama_names),
    "mistral": Family(_mistral_config, llama_names),
    "qwen2": Family(_qwen2_config, llama_names),
    "qwen3": Family(_qwen3_config, llama_names),
}
