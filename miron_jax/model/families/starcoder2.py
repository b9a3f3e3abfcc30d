"""StarCoder2: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, linear, llama_names
from miron_jax.model.families.reading import llama_like


def _starcoder2_config(fields: Fields) -> ModelConfig:
    for name, value in (("mlp_type", "default"), ("norm_type", "layer_norm")):
        fields.allow_value(name, value)
    for name in (
        "scale_attn_weights",
        "attention_softmax_in_fp32",
        "scale_attention_softmax_in_fp32",
    ):
        fields.allow_value(name, True)
    for name, used in (
        ("activation_function", "hidden_act"),
        ("layer_norm_epsilon", "norm_epsilon"),
        ("rms_norm_eps", "norm_epsilon"),
    ):
        fields.allow_same(name, used)
    config = llama_like(
        fields, "num_key_value_heads hidden_act norm_epsilon use_bias sliding_window"
    )
    bias = fields["use_bias"]
    return replace(
        config, norm="layer", gated_mlp=False, qkv_bias=bias, attn_out_bias=bias, mlp_bias=bias
    )


def _starcoder2_names(config: ModelConfig) -> Table:
    return llama_names(config) | {
        **linear("layers/mlp/up", "layers.{}.mlp.c_fc"),
        **linear("layers/mlp/down", "layers.{}.mlp.c_proj"),
    }


FAMILIES = {"starcoder2": Family(_starcoder2_config, _starcoder2_names)}
