"""StableLM: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor, llama_names
from miron_jax.model.families.reading import llama_like


def _stablelm_config(fields: Fields) -> ModelConfig:
    flags = "use_qkv_bias qk_layernorm use_parallel_residual"
    return replace(
        llama_like(
            fields, f"num_key_value_heads hidden_act layer_norm_eps partial_rotary_factor {flags}"
        ),
        norm="layer",
        parallel="one_norm" if fields["use_parallel_residual"] else None,
        qk_norm="each_head" if fields["qk_layernorm"] else None,
        qkv_bias=fields["use_qkv_bias"],
    )


def _stablelm_names(config: ModelConfig) -> Table:
    """Each head has a norm of its own, stored as a tensor of its own."""
    q_norm, k_norm = (f"layers.{{}}.self_attn.{x}_layernorm.norms.{{part}}.weight" for x in "qk")
    return llama_names(config) | {
        "layers/attn/q_norm/weight": Tensor(q_norm, parts=config.num_heads),
        "layers/attn/k_norm/weight": Tensor(k_norm, parts=config.num_kv_heads),
    }


FAMILIES = {"stablelm": Family(_stablelm_config, _stablelm_names)}
