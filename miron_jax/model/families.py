"""One function a model family: config.json's fields -> what the decoder computes.

Arrives: `Fields` of a config.json.  Leaves: a ModelConfig.  It deliberately does not know weights.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from miron_jax.model import rope
from miron_jax.model.config import Activation, ModelConfig, Rope
from miron_jax.model.hf_fields import MOST_HEAD_SIZE, Fields

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}


def _activation(fields: Fields, name: str) -> Activation:
    if not isinstance(fields[name], str) or fields[name] not in _ACTIVATIONS:
        raise fields.refuse(name, fields[name], f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[fields[name]]


def _ropes(fields: Fields, head_dim: int, has_layer_types: bool) -> tuple[Rope, ...]:
    """One a layer."""
    parameters = fields["rope_parameters"]
    if "full_attention" in parameters:  # one for each type of layer
        if not has_layer_types:
            raise fields.refuse("rope_parameters", parameters, "those of one rotation")
        if any(own.get("truncate") is False for own in parameters.values()):
            # transformers looks for it beside the types, where it is not, and truncates.
            raise fields.refuse("truncate", False, "true where each type of layer has its own rotation")
        return tuple(_rope(fields, parameters[kind], head_dim) for kind in _layer_types(fields))
    share = parameters.get("partial_rotary_factor") or 1.0
    if share != 1.0 and fields.family not in _PARTLY_ROTATED:
        raise fields.refuse("partial_rotary_factor", share, "1.0")
    return (_rope(fields, parameters, int(head_dim * share)),) * fields["num_hidden_layers"]


def _rope(fields: Fields, parameters: Mapping[str, Any], size: int) -> Rope:
    """The rotation of `size` numbers of each head."""
    kind = parameters.get("rope_type", "default")
    if not isinstance(kind, str) or kind not in rope.KINDS:
        raise fields.refuse("rope_type", kind, f"one of {', '.join(rope.KINDS)}")
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *rope.KINDS[kind]}
    for name, value in parameters.items():
        if (name not in known and value is not None) or (name == "type" and value != kind):
            raise fields.refuse(f"rope parameter {name!r}", value, f"none beside rope_type {kind!r}")
    if kind not in ("default", "longrope") and not isinstance(parameters.get("factor"), int | float):
        raise fields.refuse("rope parameter 'factor'", parameters.get("factor"), "a number")
    if size < 2 or size % 2 or size > MOST_HEAD_SIZE:
        raise fields.refuse("the rotated part of a head", size, f"an even number from 2 to {MOST_HEAD_SIZE}")
    longest = fields.get("max_position_embeddings")  # GPT-J has another name for it, and plain rotation alone
    original = parameters.get("original_max_position_embeddings") or longest
    known = {"max_position_embeddings": longest, "original_max_position_embeddings": original}
    try:
        with np.errstate(all="ignore"):
            one = rope.rope_of(kind, {**parameters, **known}, size)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise fields.refuse("rope_parameters", dict(parameters), f"those of {kind!r} ({error!r:.80})") from None
    if not np.isfinite([*one.frequencies, *(one.long or ()), one.scale]).all():
        raise fields.refuse("rope_parameters", dict(parameters), "those of finite frequencies")
    return one


def _layer_types(fields: Fields) -> tuple[str, ...]:
    kinds = tuple(fields["layer_types"])
    if len(kinds) != fields["num_hidden_layers"] or not set(kinds) <= {"sliding_attention", "full_attention"}:
        raise fields.refuse(
            "layer_types",
            list(kinds),
            f"{fields['num_hidden_layers']} entries 'sliding_attention' or 'full_attention'",
        )
    return kinds


def _window(fields: Fields, layer_type: str) -> int | None:
    if layer_type == "full_attention":
        return None
    if not isinstance(fields["sliding_window"], int) or fields["sliding_window"] < 1:
        raise fields.refuse("sliding_window", fields["sliding_window"], "a positive number of tokens")
    return fields["sliding_window"]


def _windows(fields: Fields) -> tuple[int | None, ...]:
    """One a layer, from layer_types; none where there are no such types."""
    if fields.get("layer_types") is None:
        return (None,) * fields["num_hidden_layers"]
    return tuple(_window(fields, kind) for kind in _layer_types(fields))


_PARTLY_ROTATED = ("gpt_neox", "phi3", "stablelm")

# What every family here that is written like Llama uses, in transformers' usual spelling
_SIZES = (
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings "
    "tie_word_embeddings rope_parameters rope_theta rope_scaling "
)
_LLAMA = "num_key_value_heads head_dim hidden_act rms_norm_eps "


def _llama_like(fields: Fields, more: str) -> ModelConfig:
    """Llama's decoder of these sizes.  `more` is all that the family uses beside them: another field is refused, so
    that none is read here which transformers does not read."""
    fields.allow_only(_SIZES + more)
    used = more.split()
    num_heads, head_dim = fields["num_attention_heads"], fields.get("head_dim") if "head_dim" in used else None
    head_dim = head_dim or _head_dim(fields, "hidden_size", "num_attention_heads")
    return ModelConfig(
        family=fields.family,
        vocab_size=fields["vocab_size"],
        d_model=fields["hidden_size"],
        num_layers=fields["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=fields["num_key_value_heads"] if "num_key_value_heads" in used else num_heads,
        head_dim=head_dim,
        d_ff=fields["intermediate_size"],
        trained_length=fields["max_position_embeddings"],
        num_positions=None,
        layer_ropes=_ropes(fields, head_dim, "layer_types" in used),
        layer_windows=(None,) * fields["num_hidden_layers"],
        norm_eps=fields["rms_norm_eps" if "rms_norm_eps" in used else "layer_norm_eps"],
        attn_scale=head_dim**-0.5,
        activation=_activation(fields, "hidden_act" if "hidden_act" in used else "hidden_activation"),
        tied_head=fields["tie_word_embeddings"],
    )


def _head_dim(fields: Fields, width: str, heads: str) -> int:
    if fields[heads] < 1 or fields[width] % fields[heads]:
        raise fields.refuse(width, fields[width], f"a multiple of {heads} = {fields[heads]}")
    return fields[width] // fields[heads]


def _llama(fields: Fields) -> ModelConfig:
    bias = fields["attention_bias"]
    plain = _llama_like(fields, _LLAMA + "attention_bias mlp_bias")
    return replace(plain, qkv_bias=bias, attn_out_bias=bias, mlp_bias=fields["mlp_bias"])


def _mistral(fields: Fields) -> ModelConfig:
    plain = _llama_like(fields, _LLAMA + "sliding_window")
    window = None if fields["sliding_window"] is None else _window(fields, "sliding_attention")
    return replace(plain, layer_windows=(window,) * plain.num_layers)


def _qwen2(fields: Fields) -> ModelConfig:
    plain = _llama_like(fields, _LLAMA + "use_sliding_window sliding_window max_window_layers layer_types")
    return replace(plain, qkv_bias=True, layer_windows=_windows(fields))


def _qwen3(fields: Fields) -> ModelConfig:
    plain = _llama_like(
        fields, _LLAMA + "attention_bias use_sliding_window sliding_window max_window_layers layer_types"
    )
    bias = fields["attention_bias"]
    return replace(plain, qkv_bias=bias, attn_out_bias=bias, qk_norm="head", layer_windows=_windows(fields))


def _gemma_like(fields: Fields, more: str) -> ModelConfig:
    if fields["use_bidirectional_attention"]:
        raise fields.refuse("use_bidirectional_attention", True, "false")
    bias = fields["attention_bias"]
    return replace(
        _llama_like(
            fields, f"num_key_value_heads head_dim rms_norm_eps attention_bias use_bidirectional_attention {more}"
        ),
        norm_offset=1.0,
        qkv_bias=bias,
        attn_out_bias=bias,
        embedding_scale=fields["hidden_size"] ** 0.5,
        embedding_scale_rounded=True,
    )


def _gemma(fields: Fields) -> ModelConfig:
    fields.allow_same("hidden_activation", "hidden_act")
    return _gemma_like(fields, "hidden_act")


_GEMMA_LATER = (
    "hidden_activation sliding_window layer_types sliding_window_pattern query_pre_attn_scalar "
    "final_logit_softcapping attn_logit_softcapping rope_local_base_freq"
)


def _gemma2(fields: Fields) -> ModelConfig:
    fields.allow_same("hidden_act", "hidden_activation")
    return replace(
        _gemma_like(fields, _GEMMA_LATER),
        post_norms=True,
        layer_windows=_windows(fields),
        attn_scale=fields["query_pre_attn_scalar"] ** -0.5,
        attn_softcap=fields["attn_logit_softcapping"],
        final_softcap=fields["final_logit_softcapping"],
    )


def _gemma3_text(fields: Fields) -> ModelConfig:
    # transformers' Gemma 3 reads this field and never applies it: with a value the two readings part.
    fields.require("attn_logit_softcapping", None)
    return replace(_gemma2(fields), qk_norm="head")


def _gpt2(fields: Fields) -> ModelConfig:
    fields.allow_only(
        "vocab_size n_positions n_embd n_layer n_head n_inner activation_function layer_norm_epsilon "
        "scale_attn_weights scale_attn_by_inverse_layer_idx add_cross_attention tie_word_embeddings"
    )
    fields.require("scale_attn_by_inverse_layer_idx", False)
    fields.require("add_cross_attention", False)
    head_dim = _head_dim(fields, "n_embd", "n_head")
    return ModelConfig(
        **_gpt_sizes(fields),
        head_dim=head_dim,
        num_positions=fields["n_positions"],
        layer_ropes=(),
        attn_scale=head_dim**-0.5 if fields["scale_attn_weights"] else 1.0,
        qkv_bias=True,
        attn_out_bias=True,
    )


def _gptj(fields: Fields) -> ModelConfig:
    fields.allow_only(
        "vocab_size n_positions n_embd n_layer n_head n_inner activation_function layer_norm_epsilon rotary rotary_dim "
        "scale_attn_weights tie_word_embeddings"
    )
    head_dim = _head_dim(fields, "n_embd", "n_head")
    if not isinstance(fields["rotary_dim"], int) or not 0 < fields["rotary_dim"] <= head_dim:
        raise fields.refuse("rotary_dim", fields["rotary_dim"], f"at least 1 and at most the head size, {head_dim}")
    one = _rope(fields, {"rope_theta": 10000.0}, fields["rotary_dim"])
    return ModelConfig(
        **_gpt_sizes(fields),
        head_dim=head_dim,
        num_positions=None,
        layer_ropes=(one,) * fields["n_layer"],
        attn_scale=head_dim**-0.5,
        parallel="one_norm",
        head_bias=True,
    )


def _gpt_sizes(fields: Fields) -> dict[str, Any]:
    return {
        "family": fields.family,
        "vocab_size": fields["vocab_size"],
        "d_model": fields["n_embd"],
        "num_layers": fields["n_layer"],
        "num_heads": fields["n_head"],
        "num_kv_heads": fields["n_head"],
        "d_ff": 4 * fields["n_embd"] if fields["n_inner"] is None else fields["n_inner"],
        "trained_length": fields["n_positions"],
        "layer_windows": (None,) * fields["n_layer"],
        "norm": "layer",
        "norm_eps": fields["layer_norm_epsilon"],
        "activation": _activation(fields, "activation_function"),
        "gated_mlp": False,
        "mlp_bias": True,
        "tied_head": fields["tie_word_embeddings"],
    }


def _gpt_neox(fields: Fields) -> ModelConfig:
    more = "attention_bias use_parallel_residual hidden_act layer_norm_eps rotary_pct rotary_emb_base partial_rotary_factor"
    bias = fields["attention_bias"]
    return replace(
        _llama_like(fields, more),
        norm="layer",
        parallel="own_norm" if fields["use_parallel_residual"] else None,
        gated_mlp=False,
        qkv_bias=bias,
        attn_out_bias=bias,
        mlp_bias=True,
    )


def _olmo2(fields: Fields, more: str = "") -> ModelConfig:
    bias = fields["attention_bias"]
    return replace(
        _llama_like(fields, f"{_LLAMA} attention_bias {more}"),
        pre_norms=False,
        post_norms=True,
        qk_norm="all_heads",
        qkv_bias=bias,
        attn_out_bias=bias,
    )


def _olmo3(fields: Fields) -> ModelConfig:
    return replace(_olmo2(fields, "sliding_window layer_types"), layer_windows=_windows(fields))


def _phi3(fields: Fields) -> ModelConfig:
    plain = _llama_like(fields, _LLAMA + "sliding_window original_max_position_embeddings partial_rotary_factor")
    window = None if fields["sliding_window"] is None else _window(fields, "sliding_attention")
    return replace(plain, layer_windows=(window,) * plain.num_layers)


def _stablelm(fields: Fields) -> ModelConfig:
    more = "use_qkv_bias qk_layernorm use_parallel_residual partial_rotary_factor"
    return replace(
        _llama_like(fields, f"num_key_value_heads hidden_act layer_norm_eps {more}"),
        norm="layer",
        parallel="one_norm" if fields["use_parallel_residual"] else None,
        qk_norm="each_head" if fields["qk_layernorm"] else None,
        qkv_bias=fields["use_qkv_bias"],
    )


def _granite(fields: Fields) -> ModelConfig:
    scales = "embedding_multiplier logits_scaling residual_multiplier attention_multiplier"
    bias = fields["attention_bias"]
    return replace(
        _llama_like(fields, f"{_LLAMA} attention_bias mlp_bias {scales}"),
        qkv_bias=bias,
        attn_out_bias=bias,
        mlp_bias=fields["mlp_bias"],
        attn_scale=float(fields["attention_multiplier"]),
        embedding_scale=float(fields["embedding_multiplier"]),
        residual_scale=float(fields["residual_multiplier"]),
        logit_scale=1.0 / fields["logits_scaling"],
    )


def _nanochat(fields: Fields) -> ModelConfig:
    plain, bias = _llama_like(fields, _LLAMA + "attention_bias final_logit_softcapping"), fields["attention_bias"]
    backwards = [replace(one, frequencies=tuple(-f for f in one.frequencies)) for one in plain.layer_ropes]
    return replace(
        plain,
        layer_ropes=tuple(backwards),
        norm_weight=False,
        embedding_norm=True,
        qk_norm="head",
        qk_norm_rotated=True,
        gated_mlp=False,
        qkv_bias=bias,
        attn_out_bias=bias,
        final_softcap=fields["final_logit_softcapping"],
    )


FAMILIES = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3_text,
    "gpt2": _gpt2,
    "gptj": _gptj,
    "gpt_neox": _gpt_neox,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "phi3": _phi3,
    "stablelm": _stablelm,
    "granite": _granite,
    "nanochat": _nanochat,
}
