"""Phi-3: how config.json is read, and where the weights lie.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

import numpy as np

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.naming import Table, linear, llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like, window_of
from miron_jax.model.hf_fields import Fields


def _phi3_config(fields: Fields) -> ModelConfig:
    plain = llama_like(fields, LLAMA_FIELDS + "sliding_window original_max_position_embeddings partial_rotary_factor")
    window = None if fields["sliding_window"] is None else window_of(fields, "sliding_attention")
    return replace(plain, layer_windows=(window,) * plain.num_layers)


def _phi3_names(config: ModelConfig) -> Table:
    """Queries, keys and values are one tensor, one after the other; so are gate and up."""
    q, k = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    all_three, both = np.arange(q + 2 * k), np.arange(2 * config.d_ff)
    qkv, gate_up = "layers.{}.self_attn.qkv_proj", "layers.{}.mlp.gate_up_proj"
    return llama_names(config) | {
        **linear("layers/attn/q", qkv, columns=all_three[:q], width=q + 2 * k),
        **linear("layers/attn/k", qkv, columns=all_three[q : q + k], width=q + 2 * k),
        **linear("layers/attn/v", qkv, columns=all_three[q + k :], width=q + 2 * k),
        **linear("layers/mlp/gate", gate_up, columns=both[: config.d_ff], width=len(both)),
        **linear("layers/mlp/up", gate_up, columns=both[config.d_ff :], width=len(both)),
    }


FAMILIES = {
    "phi3": Family(_phi3_config, _phi3_names),
}
