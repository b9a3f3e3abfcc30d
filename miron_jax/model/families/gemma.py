"""Gemma 1 to 3: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, llama_names, norm
from miron_jax.model.families.reading import llama_like


def _gemma_like(fields: Fields, used_fields: str) -> ModelConfig:
    fields.expect("use_bidirectional_attention", not fields["use_bidirectional_attention"], "false")
    common = "num_key_value_heads head_dim rms_norm_eps attention_bias use_bidirectional_attention"
    return replace(
        llama_like(fields, f"{common} {used_fields}"),
        norm_offset=1.0,
        embedding_scale=fields["hidden_size"] ** 0.5,
        embedding_scale_rounded=True,
    )


def _gemma_config(fields: Fields) -> ModelConfig:
    fields.allow_same("hidden_activation", "hidden_act")
    return _gemma_like(fields, "hidden_act")


def _gemma2_config(fields: Fields) -> ModelConfig:
    fields.allow_same("hidden_act", "hidden_activation")
    used_fields = (
        "hidden_activation sliding_window layer_types sliding_window_pattern query_pre_attn_scalar "
        "final_logit_softcapping attn_logit_softcapping rope_local_base_freq"
    )
    return replace(
        _gemma_like(fields, used_fields),
        post_norms=True,
        attn_scale=fields["query_pre_attn_scalar"] ** -0.5,
        attn_softcap=fields["attn_logit_softcapping"],
    )


def _gemma3_text_config(fields: Fields) -> ModelConfig:
    # transformers' Gemma 3 reads this field and never applies it, so a value has no single meaning.
    fields.require("attn_logit_softcapping", None)
    fields.allow_value("use_qk_norm", True)  # of levanter
    return replace(_gemma2_config(fields), qk_norm="head")


def gemma_later_names(config: ModelConfig) -> Table:
    """Names of Gemma 2 and 3, which norm before and after; OLMo 2 and 3 norm only after, under the
    same names."""
    return llama_names(config) | {
        **norm("layers/attn_post_norm", "layers.{}.post_attention_layernorm"),
        **norm("layers/mlp_norm", "layers.{}.pre_feedforward_layernorm"),
        **norm("layers/mlp_post_norm", "layers.{}.post_feedforward_layernorm"),
    }


FAMILIES = {
    "gemma": Family(_gemma_config, llama_names),
    "gemma2": Family(_gemma2_config, gemma_later_names),
    "gemma3_text": Family(_gemma3_text_config, gemma_later_names),
}
