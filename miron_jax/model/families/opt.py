"""OPT: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor, linear, norm
from miron_jax.model.families.reading import layer_normed


def _opt_config(fields: Fields) -> ModelConfig:
    """GPT-2 with another position table.  OPT-350m, which norms after attention and MLP, is
    refused."""
    fields.allow_only(
        "vocab_size hidden_size num_hidden_layers num_attention_heads ffn_dim "
        "max_position_embeddings activation_function do_layer_norm_before word_embed_proj_dim "
        "enable_bias layer_norm_elementwise_affine tie_word_embeddings dropout layerdrop init_std "
        "learned_embeddings"
    )
    # Galactica's configs have it; transformers does not read it
    if fields.raw.get("learned_embeddings") is False:
        raise fields.refuse("learned_embeddings", False, "true")
    for name in ("do_layer_norm_before", "layer_norm_elementwise_affine"):
        fields.require(name, True)
    fields.require("_remove_final_layer_norm", False)
    fields.require("word_embed_proj_dim", fields["hidden_size"])
    names = (
        "hidden_size num_hidden_layers num_attention_heads max_position_embeddings "
        "activation_function"
    )
    biases = dict.fromkeys(("qkv_bias", "attn_out_bias", "mlp_bias"), fields["enable_bias"])
    return replace(layer_normed(fields, names, fields["ffn_dim"]), position_offset=2, **biases)


def _opt_names(config: ModelConfig) -> Table:
    return {
        "embedding_VD": Tensor("decoder.embed_tokens.weight"),
        "position_PD": Tensor("decoder.embed_positions.weight"),
        **norm("final_norm", "decoder.final_layer_norm"),
        **norm("layers/attn_norm", "decoder.layers.{}.self_attn_layer_norm"),
        **linear("layers/attn/q", "decoder.layers.{}.self_attn.q_proj"),
        **linear("layers/attn/k", "decoder.layers.{}.self_attn.k_proj"),
        **linear("layers/attn/v", "decoder.layers.{}.self_attn.v_proj"),
        **linear("layers/attn/out", "decoder.layers.{}.self_attn.out_proj"),
        **norm("layers/mlp_norm", "decoder.layers.{}.final_layer_norm"),
        **linear("layers/mlp/up", "decoder.layers.{}.fc1"),
        **linear("layers/mlp/down", "decoder.layers.{}.fc2"),
    }


FAMILIES = {"opt": Family(_opt_config, _opt_names)}
