"""StableLM: how config.json is read, and where the weights lie.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.naming import Source, Table, llama_names
from miron_jax.model.families.reading import llama_like
from miron_jax.model.hf_fields import Fields


def _stablelm_config(fields: Fields) -> ModelConfig:
    more = "use_qkv_bias qk_layernorm use_parallel_residual partial_rotary_factor"
    return replace(
        llama_like(fields, f"num_key_value_heads hidden_act layer_norm_eps {more}"),
        norm="layer",
        parallel="one_norm" if fields["use_parallel_residual"] else None,
        qk_norm="each_head" if fields["qk_layernorm"] else None,
        qkv_bias=fields["use_qkv_bias"],
    )


def _stablelm_names(config: ModelConfig) -> Table:
    """Each head's norm is a tensor of its own."""
    return llama_names(config) | {
        "layers/attn/q_norm/weight": Source(
            "layers.{}.self_attn.q_layernorm.norms.{part}.weight", parts=config.num_heads
        ),
        "layers/attn/k_norm/weight": Source(
            "layers.{}.self_attn.k_layernorm.norms.{part}.weight", parts=config.num_kv_heads
        ),
    }


FAMILIES = {
    "stablelm": Family(_stablelm_config, _stablelm_names),
}
