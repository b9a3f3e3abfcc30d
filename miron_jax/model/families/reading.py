"""Parts of config.json that many families share.

Arrives: `Fields` of a config.json.  Leaves: rotary frequencies, windows, activations, a ModelConfig
like Llama's.  It deliberately does not know any particular family.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from miron_jax.files.readers import Json
from miron_jax.model.config import Activation, Experts, ModelConfig, Rope
from miron_jax.model.decoder import rope
from miron_jax.model.families.fields import MOST_HEAD_SIZE, Fields

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "relu2": "relu2",
}  # fmt: skip
# Fields that every family built on `llama_like` uses, in transformers' current spelling and its
# older ones
_SIZES = (
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "max_position_embeddings tie_word_embeddings rope_parameters rope_theta rope_scaling "
)
LLAMA_FIELDS = "num_key_value_heads head_dim hidden_act rms_norm_eps "


def check_rescaling(fields: Fields) -> None:
    """Raises InputError for a Mamba whose weights transformers does not take as they are."""
    if fields["rescale_prenorm_residual"]:
        expected = (
            "false (transformers divides each out_proj by sqrt(num_hidden_layers) whenever it "
            "loads the weights)"
        )
        raise fields.refuse("rescale_prenorm_residual", True, expected)


def activation(fields: Fields, name: str) -> Activation:
    """The activation that the field `name` holds.  Raises InputError for one that the decoder does
    not have."""
    fields.expect(
        name,
        isinstance(fields[name], str) and fields[name] in _ACTIVATIONS,
        f"one of {', '.join(_ACTIVATIONS)}",
    )
    return _ACTIVATIONS[fields[name]]


def ropes(fields: Fields, head_dim: int, used: Sequence[str]) -> tuple[Rope, ...]:
    """Rotary frequencies of each layer.  Raises InputError for a field that is set but not in
    `used`."""
    parameters = fields["rope_parameters"]
    if "full_attention" in parameters:  # one rotation for each type of layer
        if "layer_types" not in used:
            raise fields.refuse("rope_parameters", parameters, "those of one rotation")
        if unread := [name for name, value in parameters.items() if not isinstance(value, dict)]:
            expected = (
                "an object for each type of layer (transformers reads nothing that stands beside "
                "them)"
            )
            raise fields.refuse(
                f"{unread[0]!r} of rope_parameters", parameters[unread[0]], expected
            )
        if any(of_type.get("truncate") is False for of_type in parameters.values()):
            # transformers looks for this field beside the types, does not find it there, and
            # truncates.
            raise fields.refuse(
                "truncate", False, "true where each type of layer has its own rotation"
            )
        return tuple(rope_from(fields, parameters[kind], head_dim) for kind in layer_types(fields))
    fraction = parameters.get("partial_rotary_factor") or 1.0
    if fraction != 1.0 and "partial_rotary_factor" not in used:
        raise fields.refuse("partial_rotary_factor", fraction, "1.0")
    return (rope_from(fields, parameters, int(head_dim * fraction)),) * fields["num_hidden_layers"]


def without_rope(layer_ropes: Sequence[Rope], without: Sequence[bool]) -> tuple[Rope, ...]:
    """The same, with angles of 0 in the layers that do not rotate."""
    pairs = zip(layer_ropes, without, strict=True)
    return tuple(Rope((0.0,) * len(each.frequencies)) if still else each for each, still in pairs)


def rope_from(fields: Fields, parameters: rope.Parameters, rotated_dim: int) -> Rope:
    """Rotary frequencies of the first `rotated_dim` dimensions of each head.  Raises InputError for
    unusable parameters."""
    kind = parameters.get("rope_type", "default")
    if not isinstance(kind, str) or kind not in rope.KINDS:
        raise fields.refuse("rope_type", kind, f"one of {', '.join(rope.KINDS)}")
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *rope.KINDS[kind]}
    for name, value in parameters.items():
        if (name not in known and value is not None) or (name == "type" and value != kind):
            raise fields.refuse(
                f"rope parameter {name!r}", value, f"none beside rope_type {kind!r}"
            )
    if kind not in ("default", "longrope") and not isinstance(
        parameters.get("factor"), int | float
    ):
        raise fields.refuse("rope parameter 'factor'", parameters.get("factor"), "a number")
    if rotated_dim < 2 or rotated_dim % 2 or rotated_dim > MOST_HEAD_SIZE:
        raise fields.refuse(
            "the rotated part of a head", rotated_dim, f"an even number from 2 to {MOST_HEAD_SIZE}"
        )
    # GPT-J names it differently, and never scales its rotation
    longest = fields.get("max_position_embeddings")
    original = parameters.get("original_max_position_embeddings") or longest
    lengths = {"max_position_embeddings": longest, "original_max_position_embeddings": original}
    try:
        with np.errstate(all="ignore"):
            layer_rope = rope.rope_of(kind, {**parameters, **lengths}, rotated_dim)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise fields.refuse(
            "rope_parameters", dict(parameters), f"those of {kind!r} ({error!r:.80})"
        ) from None
    if not np.isfinite([*layer_rope.frequencies, *(layer_rope.long or ()), layer_rope.scale]).all():
        raise fields.refuse("rope_parameters", dict(parameters), "those of finite frequencies")
    return layer_rope


def layer_types(fields: Fields) -> tuple[str, ...]:
    """The type of attention of each layer.  Raises InputError for a wrong number of entries or an
    unknown type."""
    kinds = tuple(fields["layer_types"])
    num_layers = fields["num_hidden_layers"]
    fields.expect(
        "layer_types",
        len(kinds) == num_layers and set(kinds) <= {"sliding_attention", "full_attention"},
        f"{num_layers} entries 'sliding_attention' or 'full_attention'",
    )
    return kinds


def windows(fields: Fields, used: Sequence[str]) -> tuple[int | None, ...]:
    """Attention window of each layer in tokens, None where attention is full: by layer_types if the
    family uses them, else the same for all layers.  Raises InputError for a window that is not a
    positive number."""
    is_sliding = [False] * fields["num_hidden_layers"]
    if "layer_types" in used:
        if fields.get("layer_types") is not None:
            is_sliding = [kind == "sliding_attention" for kind in layer_types(fields)]
    elif "sliding_window" in used:
        is_sliding = [fields["sliding_window"] is not None] * len(is_sliding)
    if not any(is_sliding):
        return (None,) * len(is_sliding)
    window = fields["sliding_window"]
    fields.expect(
        "sliding_window", isinstance(window, int) and window >= 1, "a positive number of tokens"
    )
    return tuple(window if sliding else None for sliding in is_sliding)


def llama_like(fields: Fields, used_fields: str) -> ModelConfig:
    """Llama's decoder with this config's sizes, biases, windows and final soft cap.

    `used_fields`: names of the fields, separated by spaces, that the family uses beside the sizes
    common to all.  Any other field is not read, because transformers does not read it, and is
    refused (InputError) unless it changes nothing.
    """
    fields.allow_only(_SIZES + used_fields)
    used = used_fields.split()

    def if_used(name: str, default: Json) -> Json:
        return fields[name] if name in used else default

    num_heads = fields["num_attention_heads"]
    num_layers = fields["num_hidden_layers"]
    head_dim = fields.get("head_dim") if "head_dim" in used else None
    head_dim = head_dim or head_size(fields, "hidden_size", "num_attention_heads")
    attention_bias = if_used("attention_bias", False)
    norm_eps = 1e-5  # OLMo 1 has it in its code
    for name in ("rms_norm_eps", "layer_norm_eps", "norm_epsilon"):
        norm_eps = if_used(name, norm_eps)
    return ModelConfig(
        family=fields.family,
        vocab_size=fields["vocab_size"],
        d_model=fields["hidden_size"],
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=if_used("num_key_value_heads", num_heads),
        head_dim=head_dim,
        d_ff=fields["intermediate_size"],
        trained_length=fields["max_position_embeddings"],
        num_positions=None,
        layer_ropes=ropes(fields, head_dim, used),
        layer_windows=windows(fields, used),
        norm_eps=norm_eps,
        attn_scale=head_dim**-0.5,
        activation=activation(
            fields, "hidden_act" if "hidden_act" in used else "hidden_activation"
        ),
        qkv_bias=attention_bias,
        attn_out_bias=attention_bias,
        mlp_bias=if_used("mlp_bias", False),
        tied_head=fields["tie_word_embeddings"],
        final_softcap=if_used("final_logit_softcapping", None),
    )


def layer_normed(
    fields: Fields, names: str, d_ff: int, known: Mapping[str, Json] = MappingProxyType({})
) -> ModelConfig:
    """GPT-2's decoder without biases: layer norms, an MLP without a gate, learned positions.

    `names`: of the fields that hold the width, the numbers of layers, heads and positions, and the
    activation, separated by spaces.  `known`: values of those of them that no field holds.
    """
    width, layers, heads, positions, activation_name = names.split()
    longest = known.get(positions) or fields[positions]
    act = _ACTIVATIONS.get(known.get(activation_name, "")) or activation(fields, activation_name)
    head_dim = head_size(fields, width, heads)
    return ModelConfig(
        family=fields.family,
        vocab_size=fields["vocab_size"],
        d_model=fields[width],
        num_layers=fields[layers],
        num_heads=fields[heads],
        num_kv_heads=fields[heads],
        head_dim=head_dim,
        d_ff=d_ff,
        trained_length=longest,
        num_positions=longest,
        layer_ropes=(),
        layer_windows=(None,) * fields[layers],
        norm="layer",
        norm_eps=1e-5,
        attn_scale=head_dim**-0.5,
        activation=act,
        gated_mlp=False,
        tied_head=fields["tie_word_embeddings"],
    )


def experts_of(fields: Fields, count: str, normalised: bool) -> Experts:
    """The mixture of as many experts as the field `count` says.  Raises InputError if a token takes
    more than there are."""
    active = fields["num_experts_per_tok"]
    for name in (count, "num_experts_per_tok"):
        fields.expect(name, fields[name] is not None, "a number")
    fields.expect(
        "num_experts_per_tok",
        active <= fields[count],
        f"at most {_written(fields, count)} = {fields[count]}",
    )
    return Experts(fields[count], active, normalised)


def _written(fields: Fields, count: str) -> str:
    """The name under which the file has this count of experts: transformers takes either for the
    other."""
    other = {"num_experts": "num_local_experts", "num_local_experts": "num_experts"}[count]
    return other if count not in fields.raw and other in fields.raw else count


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """ALiBi: powers of one base for a power of two of heads; the others take every second slope of
    twice as many."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    return tuple(slopes + [2.0 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)])


def head_size(fields: Fields, width: str, heads: str) -> int:
    """The field `width` divided by the field `heads`.  Raises InputError unless it is a whole
    number."""
    fields.expect(
        width,
        fields[heads] >= 1 and fields[width] % fields[heads] == 0,
        f"a multiple of {heads} = {fields[heads]}",
    )
    return fields[width] // fields[heads]
