"""MPT: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor, fused, linear, norm
from miron_jax.model.families.reading import alibi_slopes, layer_normed

WANTED = {"attn_type": "multihead_attention", "prefix_lm": False, "qk_ln": False, "alibi": True,
    "alibi_bias_max": 8,
          "attn_uses_sequence_id": False}  # fmt: skip


def _mpt_config(fields: Fields) -> ModelConfig:
    fields.allow_only(  # transformers does not read learned_pos_emb
        "vocab_size d_model n_heads n_layers expansion_ratio max_seq_len layer_norm_epsilon "
        "learned_pos_emb attn_config init_device logit_scale no_bias embedding_fraction norm_type "
        "tie_word_embeddings init_config tokenizer_name"
    )
    for name, wanted in (("expansion_ratio", 4), ("no_bias", True), ("logit_scale", None)):
        fields.require(name, wanted)
    fields.expect(
        "norm_type",
        fields["norm_type"] in ("low_precision_layernorm", "layernorm"),
        "low_precision_layernorm or layernorm",
    )
    fields.allow_only(
        " ".join(["attn_pdrop attn_impl clip_qkv softmax_scale", *WANTED]), "attn_config"
    )
    attention = fields["attn_config"]
    for name, value in WANTED.items():
        if getattr(attention, name) != value:
            raise fields.refuse(f"attn_config's {name}", getattr(attention, name), repr(value))
    if attention.clip_qkv is not None and attention.clip_qkv <= 0:
        raise fields.refuse("attn_config's clip_qkv", attention.clip_qkv, "a number above 0")
    config = layer_normed(
        fields, "d_model n_layers n_heads max_seq_len act", 4 * fields["d_model"], {"act": "gelu"}
    )
    return replace(
        config,
        num_positions=None,
        norm_eps=fields["layer_norm_epsilon"],
        norm_bias=False,
        attn_scale=attention.softmax_scale or config.attn_scale,
        alibi_slopes=alibi_slopes(config.num_heads),
        qkv_clip=attention.clip_qkv,
    )


def _mpt_names(config: ModelConfig) -> Table:
    return {
        "embedding_VD": Tensor("wte.weight"),
        **norm("final_norm", "norm_f"),
        **norm("layers/attn_norm", "blocks.{}.norm_1"),
        **fused(
            "blocks.{}.attn.Wqkv",
            {f"layers/attn/{x}": config.num_heads * config.head_dim for x in "qkv"},
        ),
        **linear("layers/attn/out", "blocks.{}.attn.out_proj"),
        **norm("layers/mlp_norm", "blocks.{}.norm_2"),
        **linear("layers/mlp/up", "blocks.{}.ffn.up_proj"),
        **linear("layers/mlp/down", "blocks.{}.ffn.down_proj"),
    }


FAMILIES = {"mpt": Family(_mpt_config, _mpt_names)}
