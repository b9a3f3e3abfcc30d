"""BLOOM: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor, by_head, linear, norm
from miron_jax.model.families.reading import alibi_slopes, layer_normed


def _bloom_config(fields: Fields) -> ModelConfig:
    """transformers has the activation and the MLP's width in its code."""
    fields.allow_only(
        "vocab_size hidden_size n_embed n_layer n_head num_hidden_layers num_attention_heads "
        "layer_norm_epsilon seq_length apply_residual_connection_post_layernorm slow_but_exact "
        "tie_word_embeddings skip_bias_add skip_bias_add_qkv attention_softmax_in_fp32 "
        "masked_softmax_fusion bias_dropout_fusion unk_token_id offset_alibi"
    )
    fields.require("apply_residual_connection_post_layernorm", False)
    if fields["slow_but_exact"] and (fields["pretraining_tp"] or 1) > 1:
        expected = (
            f"false beside pretraining_tp {fields['pretraining_tp']} (transformers then drops two "
            "biases of a layer)"
        )
        raise fields.refuse("slow_but_exact", True, expected)
    sizes = {"positions": fields.raw.get("seq_length") or 2048, "act": "gelu_new"}
    width = fields["hidden_size"]
    heads = fields["num_attention_heads"]
    config = layer_normed(
        fields, "hidden_size num_hidden_layers num_attention_heads positions act", 4 * width, sizes
    )
    return replace(
        config,
        num_positions=None,
        norm_eps=fields["layer_norm_epsilon"],
        embedding_norm=True,
        alibi_slopes=alibi_slopes(heads),
        qkv_bias=True,
        attn_out_bias=True,
        mlp_bias=True,
    )


def _bloom_names(config: ModelConfig) -> Table:
    return {
        "embedding_VD": Tensor("word_embeddings.weight"),
        **norm("embedding_norm", "word_embeddings_layernorm"),
        **norm("final_norm", "ln_f"),
        **norm("layers/attn_norm", "h.{}.input_layernorm"),
        **by_head("h.{}.self_attention.query_key_value", config),
        **linear("layers/attn/out", "h.{}.self_attention.dense"),
        **norm("layers/mlp_norm", "h.{}.post_attention_layernorm"),
        **linear("layers/mlp/up", "h.{}.mlp.dense_h_to_4h"),
        **linear("layers/mlp/down", "h.{}.mlp.dense_4h_to_h"),
    }


FAMILIES = {"bloom": Family(_bloom_config, _bloom_names)}
