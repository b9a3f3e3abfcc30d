"""Phi-3: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from functools import partial

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.naming import Table, fused, llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like

USED = LLAMA_FIELDS + "sliding_window original_max_position_embeddings partial_rotary_factor"


def _phi3_names(config: ModelConfig) -> Table:
    """One tensor holds queries, keys and values, another one gate and up."""
    q = config.num_heads * config.head_dim
    kv = config.num_kv_heads * config.head_dim
    qkv_widths = {"layers/attn/q": q, "layers/attn/k": kv, "layers/attn/v": kv}
    mlp_widths = {"layers/mlp/gate": config.d_ff, "layers/mlp/up": config.d_ff}
    return llama_names(config) | {
        **fused("layers.{}.self_attn.qkv_proj", qkv_widths),
        **fused("layers.{}.mlp.gate_up_proj", mlp_widths),
    }


FAMILIES = {"phi3": Family(partial(llama_like, used_fields=USED), _phi3_names)}
