"""Llama, SmolLM, Mistral, Qwen 2 and 3: how config.json is read, and where the weights lie.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.naming import llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like, window_of, windows
from miron_jax.model.hf_fields import Fields


def _llama_config(fields: Fields) -> ModelConfig:
    bias = fields["attention_bias"]
    plain = llama_like(fields, LLAMA_FIELDS + "attention_bias mlp_bias")
    return replace(plain, qkv_bias=bias, attn_out_bias=bias, mlp_bias=fields["mlp_bias"])


def _mistral_config(fields: Fields) -> ModelConfig:
    plain = llama_like(fields, LLAMA_FIELDS + "sliding_window")
    window = None if fields["sliding_window"] is None else window_of(fields, "sliding_attention")
    return replace(plain, layer_windows=(window,) * plain.num_layers)


def _qwen2_config(fields: Fields) -> ModelConfig:
    plain = llama_like(fields, LLAMA_FIELDS + "use_sliding_window sliding_window max_window_layers layer_types")
    return replace(plain, qkv_bias=True, layer_windows=windows(fields))


def _qwen3_config(fields: Fields) -> ModelConfig:
    plain = llama_like(
        fields, LLAMA_FIELDS + "attention_bias use_sliding_window sliding_window max_window_layers layer_types"
    )
    bias = fields["attention_bias"]
    return replace(plain, qkv_bias=bias, attn_out_bias=bias, qk_norm="head", layer_windows=windows(fields))


FAMILIES = {
    "llama": Family(_llama_config, llama_names),
    "mistral": Family(_mistral_config, llama_names),
    "qwen2": Family(_qwen2_config, llama_names),
    "qwen3": Family(_qwen3_config, llama_names),
}
