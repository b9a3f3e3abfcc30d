"""Phi 1, 1.5 and 2: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, linear, llama_names, norm
from miron_jax.model.families.reading import llama_like


def _phi_config(fields: Fields) -> ModelConfig:
    config = llama_like(
        fields, "num_key_value_heads hidden_act layer_norm_eps partial_rotary_factor qk_layernorm"
    )
    fields.require("qk_layernorm", False)
    biases = {"qkv_bias": True, "attn_out_bias": True, "mlp_bias": True, "head_bias": True}
    return replace(config, norm="layer", parallel="one_norm", gated_mlp=False, **biases)


def _phi_names(config: ModelConfig) -> Table:
    return llama_names(config) | {
        **norm("final_norm", "final_layernorm"),
        **linear("layers/attn/out", "layers.{}.self_attn.dense"),
        **linear("layers/mlp/up", "layers.{}.mlp.fc1"),
        **linear("layers/mlp/down", "layers.{}.mlp.fc2"),
    }


FAMILIES = {"phi": Family(_phi_config, _phi_names)}
