"""Falcon RW, 1 and 2: how config.json is read, and the names of the tensors.  (Falcon 3 is a
Llama.)

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor, linear, norm
from miron_jax.model.families.reading import alibi_slopes, layer_normed, ropes


def _falcon_config(fields: Fields) -> ModelConfig:
    """Falcon RW has ALiBi in place of a rotation."""
    fields.allow_only(
        "vocab_size hidden_size num_hidden_layers num_attention_heads num_kv_heads ffn_hidden_size "
        "activation bias alibi max_position_embeddings layer_norm_epsilon new_decoder_architecture "
        "multi_query parallel_attn num_ln_in_parallel_attn tie_word_embeddings rope_parameters "
        "rope_theta rope_scaling ff_factor"
    )
    factor = fields.raw.get("ff_factor")  # transformers does not read it
    if factor is not None and factor * fields["hidden_size"] != fields["ffn_hidden_size"]:
        raise fields.refuse(
            "ff_factor", factor, f"that of ffn_hidden_size = {fields['ffn_hidden_size']}"
        )
    fields.expect("layer_norm_epsilon", fields["layer_norm_epsilon"] is not None, "a number")
    names = "hidden_size num_hidden_layers num_attention_heads max_position_embeddings activation"
    config = layer_normed(fields, names, fields["ffn_hidden_size"])
    if fields["alibi"]:
        for grouped in ("multi_query", "new_decoder_architecture"):
            fields.expect(grouped, not fields[grouped], "false where alibi is true")
        slopes = alibi_slopes(config.num_heads)
        config = replace(config, alibi_slopes=slopes, alibi_rounded=True)
    else:
        config = replace(config, layer_ropes=ropes(fields, config.head_dim, ()))
    if fields["new_decoder_architecture"]:
        config = replace(config, num_kv_heads=fields["num_kv_heads"])
    elif fields["multi_query"]:
        config = replace(config, num_kv_heads=1)
    return replace(
        config,
        num_positions=None,
        norm_eps=fields["layer_norm_epsilon"],
        parallel=_parallel(fields),
        **dict.fromkeys(("qkv_bias", "attn_out_bias", "mlp_bias"), fields["bias"]),
    )


def _parallel(fields: Fields) -> Literal["own_norm", "one_norm"] | None:
    """What attention and MLP read: two norms only in the later architecture, whose attention and
    MLP are always parallel."""
    norms = fields["num_ln_in_parallel_attn"]
    if fields["new_decoder_architecture"]:
        fields.require("parallel_attn", True)
        return "one_norm" if norms == 1 else "own_norm"
    fields.expect("num_ln_in_parallel_attn", norms != 2, "1 without new_decoder_architecture")
    return "one_norm" if fields["parallel_attn"] else None


def _falcon_names(config: ModelConfig) -> Table:
    """One tensor holds, for each key/value head, its queries, its key and its value."""
    groups = config.num_kv_heads
    size = config.head_dim
    width = (config.num_heads + 2 * groups) * size
    stored = np.arange(width).reshape(groups, -1, size)
    qkv = "h.{}.self_attention.query_key_value"
    norms = "input_layernorm", "post_attention_layernorm"
    if config.parallel == "own_norm":
        norms = "ln_attn", "ln_mlp"
    return {
        "embedding_VD": Tensor("word_embeddings.weight"),
        **norm("final_norm", "ln_f"),
        **norm("layers/attn_norm", f"h.{{}}.{norms[0]}"),
        **linear("layers/attn/q", qkv, columns=stored[:, :-2].ravel(), width=width),
        **linear("layers/attn/k", qkv, columns=stored[:, -2].ravel(), width=width),
        **linear("layers/attn/v", qkv, columns=stored[:, -1].ravel(), width=width),
        **linear("layers/attn/out", "h.{}.self_attention.dense"),
        **norm("layers/mlp_norm", f"h.{{}}.{norms[1]}"),
        **linear("layers/mlp/up", "h.{}.mlp.dense_h_to_4h"),
        **linear("layers/mlp/down", "h.{}.mlp.dense_4h_to_h"),
    }


FAMILIES = {"falcon": Family(_falcon_config, _falcon_names)}
