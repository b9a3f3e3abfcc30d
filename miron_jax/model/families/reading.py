"""What config.json files of many families have in common.

Arrives: `Fields` of a config.json.  Leaves: rotations, windows, activations, Llama's decoder of these sizes.  It
deliberately does not know a family.
"""

from collections.abc import Mapping, Sequence
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


def activation(fields: Fields, name: str) -> Activation:
    if not isinstance(fields[name], str) or fields[name] not in _ACTIVATIONS:
        raise fields.refuse(name, fields[name], f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[fields[name]]


def ropes(fields: Fields, head_dim: int, used: Sequence[str]) -> tuple[Rope, ...]:
    """One a layer."""
    parameters = fields["rope_parameters"]
    if "full_attention" in parameters:  # one for each type of layer
        if "layer_types" not in used:
            raise fields.refuse("rope_parameters", parameters, "those of one rotation")
        if any(own.get("truncate") is False for own in parameters.values()):
            # transformers looks for it beside the types, where it is not, and truncates.
            raise fields.refuse("truncate", False, "true where each type of layer has its own rotation")
        return tuple(rope_from(fields, parameters[kind], head_dim) for kind in layer_types(fields))
    share = parameters.get("partial_rotary_factor") or 1.0
    if share != 1.0 and "partial_rotary_factor" not in used:
        raise fields.refuse("partial_rotary_factor", share, "1.0")
    return (rope_from(fields, parameters, int(head_dim * share)),) * fields["num_hidden_layers"]


def rope_from(fields: Fields, parameters: Mapping[str, Any], size: int) -> Rope:
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


def layer_types(fields: Fields) -> tuple[str, ...]:
    kinds = tuple(fields["layer_types"])
    if len(kinds) != fields["num_hidden_layers"] or not set(kinds) <= {"sliding_attention", "full_attention"}:
        raise fields.refuse(
            "layer_types",
            list(kinds),
            f"{fields['num_hidden_layers']} entries 'sliding_attention' or 'full_attention'",
        )
    return kinds


def window_of(fields: Fields, layer_type: str) -> int | None:
    if layer_type == "full_attention":
        return None
    if not isinstance(fields["sliding_window"], int) or fields["sliding_window"] < 1:
        raise fields.refuse("sliding_window", fields["sliding_window"], "a positive number of tokens")
    return fields["sliding_window"]


def windows(fields: Fields) -> tuple[int | None, ...]:
    """One a layer, from layer_types; none where there are no such types."""
    if fields.get("layer_types") is None:
        return (None,) * fields["num_hidden_layers"]
    return tuple(window_of(fields, kind) for kind in layer_types(fields))


# What every family here that is written like Llama uses, in transformers' usual spelling
_SIZES = (
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings "
    "tie_word_embeddings rope_parameters rope_theta rope_scaling "
)


LLAMA_FIELDS = "num_key_value_heads head_dim hidden_act rms_norm_eps "


def llama_like(fields: Fields, more: str) -> ModelConfig:
    """Llama's decoder of these sizes.  `more` is all that the family uses beside them: another field is refused, so
    that none is read here which transformers does not read."""
    fields.allow_only(_SIZES + more)
    used = more.split()
    num_heads, head_dim = fields["num_attention_heads"], fields.get("head_dim") if "head_dim" in used else None
    head_dim = head_dim or head_size(fields, "hidden_size", "num_attention_heads")
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
        layer_ropes=ropes(fields, head_dim, used),
        layer_windows=(None,) * fields["num_hidden_layers"],
        norm_eps=fields["rms_norm_eps" if "rms_norm_eps" in used else "layer_norm_eps"],
        attn_scale=head_dim**-0.5,
        activation=activation(fields, "hidden_act" if "hidden_act" in used else "hidden_activation"),
        tied_head=fields["tie_word_embeddings"],
    )


def head_size(fields: Fields, width: str, heads: str) -> int:
    if fields[heads] < 1 or fields[width] % fields[heads]:
        raise fields.refuse(width, fields[width], f"a multiple of {heads} = {fields[heads]}")
    return fields[width] // fields[heads]
