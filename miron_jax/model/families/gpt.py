"""GPT-2, GPT-J, GPT-NeoX and Pythia: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor, by_head, fused, half_split, linear, norm
from miron_jax.model.families.reading import layer_normed, llama_like, rope_from


def _gpt_like(fields: Fields, used_fields: str) -> ModelConfig:
    """A decoder without attention biases, of the sizes that GPT-2 and GPT-J name in the same way.

    `used_fields` as in `llama_like`.
    """
    fields.allow_only(
        "vocab_size n_positions n_embd n_layer n_head n_inner activation_function "
        f"layer_norm_epsilon scale_attn_weights tie_word_embeddings {used_fields}"
    )
    d_ff = fields["n_inner"] or 4 * fields["n_embd"]
    config = layer_normed(fields, "n_embd n_layer n_head n_positions activation_function", d_ff)
    return replace(config, norm_eps=fields["layer_norm_epsilon"], mlp_bias=True)


def _gpt2_config(fields: Fields) -> ModelConfig:
    config = _gpt_like(fields, "scale_attn_by_inverse_layer_idx add_cross_attention")
    fields.require("add_cross_attention", False)
    attn_scale = config.attn_scale if fields["scale_attn_weights"] else 1.0
    inverse = tuple(1 / (layer + 1) for layer in range(config.num_layers))
    layer_scales = inverse if fields["scale_attn_by_inverse_layer_idx"] else ()
    return replace(
        config, attn_scale=attn_scale, layer_scales=layer_scales, qkv_bias=True, attn_out_bias=True
    )


def _gptj_config(fields: Fields) -> ModelConfig:
    config = _gpt_like(fields, "rotary rotary_dim")
    rotary_dim = fields["rotary_dim"]
    head_dim = config.head_dim
    fields.expect(
        "rotary_dim",
        isinstance(rotary_dim, int) and 0 < rotary_dim <= head_dim,
        f"at least 1 and at most the head size, {head_dim}",
    )
    rope = rope_from(fields, {"rope_theta": 10000.0}, rotary_dim)
    layer_ropes = (rope,) * config.num_layers
    return replace(
        config, num_positions=None, layer_ropes=layer_ropes, parallel="one_norm", head_bias=True
    )


def _gpt_neox_config(fields: Fields) -> ModelConfig:
    rotary = "rotary_pct rotary_emb_base partial_rotary_factor"
    return replace(
        llama_like(
            fields, f"attention_bias use_parallel_residual hidden_act layer_norm_eps {rotary}"
        ),
        norm="layer",
        parallel="own_norm" if fields["use_parallel_residual"] else None,
        gated_mlp=False,
        mlp_bias=True,
    )


def _gpt_neox_names(config: ModelConfig) -> Table:
    return {
        "embedding_VD": Tensor("embed_in.weight"),
        **norm("final_norm", "final_layer_norm"),
        **norm("layers/attn_norm", "layers.{}.input_layernorm"),
        **by_head("layers.{}.attention.query_key_value", config),
        **linear("layers/attn/out", "layers.{}.attention.dense"),
        **norm("layers/mlp_norm", "layers.{}.post_attention_layernorm"),
        **linear("layers/mlp/up", "layers.{}.mlp.dense_h_to_4h"),
        **linear("layers/mlp/down", "layers.{}.mlp.dense_4h_to_h"),
    }


def _gpt2_names(config: ModelConfig) -> Table:
    """Conv1D stores (in, out); one tensor holds queries, keys and values."""
    size = config.num_heads * config.head_dim
    qkv_widths = {"layers/attn/q": size, "layers/attn/k": size, "layers/attn/v": size}
    return {
        "embedding_VD": Tensor("wte.weight"),
        "position_PD": Tensor("wpe.weight"),
        **norm("final_norm", "ln_f"),
        **norm("layers/attn_norm", "h.{}.ln_1"),
        **fused("h.{}.attn.c_attn", qkv_widths, transposed=False),
        **linear("layers/attn/out", "h.{}.attn.c_proj", transposed=False),
        **norm("layers/mlp_norm", "h.{}.ln_2"),
        **linear("layers/mlp/up", "h.{}.mlp.c_fc", transposed=False),
        **linear("layers/mlp/down", "h.{}.mlp.c_proj", transposed=False),
    }


def _gptj_names(config: ModelConfig) -> Table:
    """GPT-J rotates neighbours."""
    order = half_split(config, config.num_heads)
    return {
        "embedding_VD": Tensor("wte.weight"),
        **norm("final_norm", "ln_f"),
        **norm("layers/attn_norm", "h.{}.ln_1"),
        **linear("layers/attn/q", "h.{}.attn.q_proj", columns=order, width=len(order)),
        **linear("layers/attn/k", "h.{}.attn.k_proj", columns=order, width=len(order)),
        **linear("layers/attn/v", "h.{}.attn.v_proj"),
        **linear("layers/attn/out", "h.{}.attn.out_proj"),
        **linear("layers/mlp/up", "h.{}.mlp.fc_in"),
        **linear("layers/mlp/down", "h.{}.mlp.fc_out"),
    }


FAMILIES = {
    "gpt2": Family(_gpt2_config, _gpt2_names),
    "gptj": Family(_gptj_config, _gptj_names),
    "gpt_neox": Family(_gpt_neox_config, _gpt_neox_names),
}
