"""Fields of MaxText's own config that move a score (rotation, soft caps, a tied head), and which
neither config.json nor a tree says.

Arrives: the file that --param_map names, and config.json's ModelConfig.  Leaves: `MaxTextSettings`,
and the ModelConfig of what MaxText computes.  It deliberately does not know arrays.

The rules are those of AI-Hypercomputer/maxtext 0.2.5: layers/embeddings.py (rotations, the head of
a tied model), attentions.py, nnx_decoders.py, configs/base.yml, and five blocks of models/.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from miron_jax.errors import InputError
from miron_jax.files.places import local_path
from miron_jax.files.readers import Json, parse_yaml, shown
from miron_jax.files.regular import read_regular, read_text
from miron_jax.model.config import ModelConfig, Rope
from miron_jax.model.decoder.rope import Parameters, rope_of

# Of each family that is read: its decoder_block, and how a model_name of it begins
_BLOCKS = {
    "llama": ("llama2", "mistral"),  # the two differ in soft caps alone
    "mistral": ("llama2", "mistral"),
    "gemma": ("gemma",),
    "gemma2": ("gemma2",),
    "gemma3_text": ("gemma3",),
}
_NAMES = {
    "llama": ("default", "llama2", "llama3", "mistral"),
    "mistral": ("default", "llama2", "llama3", "mistral"),
    "gemma": ("default", "gemma-"),
    "gemma2": ("default", "gemma2"),
    "gemma3_text": ("gemma3",),
}
_ROPE_TYPES = ("default", "llama3.1", "yarn")
_CAPPED_BLOCKS = ("llama2", "gemma2", "gemma3")  # the others never read attn_logits_soft_cap
_CONFIG_SAYS = {"gemma2": ("attn", "final"), "gemma3_text": ("final",)}  # soft caps

_FIELDS: Json = json.loads(read_text(Path(__file__).with_name("maxtext_fields.json")))
# Fields whose absence means MaxText's default, with it; what is not fixed below, this file reads
_DEFAULTS: Mapping[str, Json] = _FIELDS["defaults"]
# Fields that move a score, and at other values than these, of which the first is MaxText's default,
# compute what is not read
_FIXED: Mapping[str, list[Json]] = _FIELDS["fixed"]
_NOT_READ = "such a model is not read"
_REMEDIES = {
    "quantization": "leave the line out to score the weights as they are, unquantized",
    "base_config": "write its fields into one file, as docs/checkpoints.md shows",
}
# Sizes: MaxText's name, after base_ or not -> that of ModelConfig
_SIZES = {
    "emb_dim": "d_model",
    "num_query_heads": "num_heads",
    "num_kv_heads": "num_kv_heads",
    "mlp_dim": "d_ff",
    "num_decoder_layers": "num_layers",
}
# Fields of which config.json says as much: absent, that holds; there, it must be the same
_SAID = (
    "rope_max_timescale", "local_rope_max_timescale", "normalization_layer_epsilon", "head_dim",
    "sliding_window_size", "mlp_activations", "decoder_block", "vocab_size",
    *_SIZES, *(f"base_{name}" for name in _SIZES),
)  # fmt: skip
_ASKED = ("model_name", "rope_type", "logits_via_embedding", "normalize_embedding_logits")
_KNOWN = {*_ASKED, *_SAID, *_DEFAULTS, *_FIXED}
_ROTATES_NO_TEXT = ("rope_pairwise", "rope_theta_for_vit")  # the order of pairs after the rotation
_LLAMA31: Parameters = {  # constants in MaxText's code
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu", "relu": "relu"}  # ours -> MaxText's
_SAME_FREQUENCY = 1e-5  # relative: float32 in other orders


class MaxTextSettings(NamedTuple):
    """How MaxText's arrays become the decoder's."""

    interleaved: bool  # the rotated pairs of q and k are neighbours, else halves
    tied: bool  # the head is the embedding, rounded to bfloat16
    divided: bool  # logits of a tied head are divided by sqrt(embed)
    layer_axis: int  # of arrays that hold all layers
    assumed: tuple[str, ...]  # fields that neither this file nor config.json says


def is_maxtext_config(param_map: str | None) -> bool:
    """Whether --param_map names a MaxText config file, which says what a MaxText tree does not."""
    return param_map is not None and Path(param_map).suffix in (".yml", ".yaml")


def check_family(source: object, family: str) -> None:
    """Raises InputError for a family that is not read from MaxText's trees."""
    if family not in _BLOCKS:
        raise InputError(
            f"{source}: a MaxText tree of a {family} model is not read, expected Llama, Mistral or "
            "Gemma: convert it with MaxText's to_huggingface.py, or name its arrays with "
            "--param_map"
        )


def maxtext_settings(param_map: str, family: str) -> MaxTextSettings:
    """The layout of a tree of this family.  Raises InputError as `_Fields.read` does."""
    fields = _Fields.read(param_map, family)
    is_tied = fields.is_true("logits_via_embedding")
    doubtful = {
        "attn_logits_soft_cap": fields.is_capped,
        "final_logits_soft_cap": is_tied,
        "rope_interleave": fields.rope == "yarn",
    }
    says = [f"{kind}_logits_soft_cap" for kind in _CONFIG_SAYS.get(family, ())]
    axis = fields.number("param_scan_axis")
    if axis not in (0, 1):
        raise fields.refuse("param_scan_axis", "0 or 1", "name its arrays in a JSON file")
    return MaxTextSettings(
        interleaved=fields.rope == "llama3.1"
        or (fields.rope == "yarn" and fields.is_true("rope_interleave")),
        tied=is_tied,
        divided=is_tied and fields.is_true("normalize_embedding_logits"),
        layer_axis=int(axis),
        assumed=tuple(
            name
            for name, matters in doubtful.items()
            if matters and name not in {*fields.raw, *says}
        ),
    )


def maxtext_config(config: ModelConfig, param_map: str, dtype: DTypeLike) -> ModelConfig:
    """What MaxText computes in `dtype`: config.json's decoder, with the soft caps that only the
    file says.

    MaxText rounds the table of a tied head to bfloat16, and not that of the embedding, so in
    float32 the two differ and the head has a table of its own.  Raises InputError for a file that
    contradicts config.json or is not read.
    """
    fields = _Fields.read(param_map, config.family)
    if fields.is_true("logits_via_embedding") != config.tied_head:
        raise fields.refuse(
            "logits_via_embedding",
            f"{config.tied_head} (tie_word_embeddings of config.json)",
            "name the file with which MaxText trained this model, with all its fields",
        )
    _check_sizes(fields, config)
    _check_said(fields, config)
    _check_ropes(fields, config)
    caps = {
        "attn": fields.cap("attn") if fields.is_capped else None,
        "final": fields.cap("final") if config.tied_head else None,
    }
    given = {"attn": config.attn_softcap, "final": config.final_softcap}
    for kind in _CONFIG_SAYS.get(config.family, ()):
        if f"{kind}_logits_soft_cap" in fields.raw and caps[kind] != given[kind]:
            raise fields.contradicts(f"{kind}_logits_soft_cap", given[kind])
        caps[kind] = given[kind]
    rounds_head = config.tied_head and jnp.dtype(dtype) != jnp.bfloat16
    return replace(
        config,
        attn_softcap=caps["attn"],
        final_softcap=caps["final"],
        tied_head=config.tied_head and not rounds_head,
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a MaxText config file, each checked where it is read."""

    file: str  # as --param_map names it
    family: str
    raw: Mapping[str, Json]

    @classmethod
    def read(cls, param_map: str, family: str) -> "_Fields":
        """Raises InputError for a file that cannot be read, has unknown fields or values, or lacks
        what it is asked for."""
        try:
            content = parse_yaml(read_regular(local_path(param_map)), without_tags=True)
        except (OSError, ValueError) as error:
            raise InputError(
                f"--param_map={param_map}: cannot be read ({error}), expected MaxText's config file"
            ) from None
        raw = content if isinstance(content, Mapping) else {}
        fields = cls(param_map, family, {name: _plain(value) for name, value in raw.items()})
        fields.check_names()
        for name, values in _FIXED.items():
            if name in fields.raw and not _is_one_of(fields.raw[name], values):
                raise fields.refuse(name, shown(values[0]), _REMEDIES.get(name, _NOT_READ))
        check_family(f"--param_map={param_map}", family)
        asked = _ASKED if fields.raw.get("logits_via_embedding") is True else _ASKED[:2]
        if family.startswith("gemma"):
            asked = (*_ASKED[:2], _ASKED[3])
        for name in asked:
            fields.check_asked(name)
        return fields

    def check_names(self) -> None:
        """Raises InputError for a field that may move a score and is not known.  A file with a
        run_name is MaxText's, whose other fields are its trainer's."""
        for name in self.raw:
            is_rotary = str(name).startswith("rope_") and name not in _ROTATES_NO_TEXT
            if name not in _KNOWN and (is_rotary or "run_name" not in self.raw):
                raise InputError(
                    f"--param_map={self.file}: has the field {shown(name)}, which is not known to "
                    f"move a score, expected some of {', '.join(sorted(_KNOWN))}: mend the name, "
                    "or leave it out"
                )

    def check_asked(self, name: str) -> None:
        """Raises InputError for a field that every file has to say, or that says what is not
        known."""
        value = self.raw.get(name)
        family = self.family
        if name == "model_name":
            names = _NAMES[family]
            if not isinstance(value, str) or not value.startswith(names):
                raise self.refuse(name, f"a name that begins with {' or '.join(names)}", _ALL)
        elif name == "rope_type":
            if value not in _ROPE_TYPES:
                raise self.refuse(name, f"one of {', '.join(_ROPE_TYPES)}", _ALL)
        elif not isinstance(value, bool):
            raise self.refuse(name, "True or False", _ALL)

    def number(self, name: str) -> float:
        """A number, or MaxText's default of it.  Raises InputError for another value."""
        value = self.raw.get(name)
        default = _DEFAULTS.get(name)
        if value is None and default is not None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_size(value):
            raise self.refuse(name, "a number", _ALL)
        return value

    def is_true(self, name: str) -> bool:
        """A bool, or MaxText's default of it.  Raises InputError for another value."""
        default = _DEFAULTS.get(name, name == "logits_via_embedding" and self.is_gemma)
        value = self.raw.get(name, default)
        if not isinstance(value, bool):
            raise self.refuse(name, "True or False", _ALL)
        return value

    def cap(self, kind: str) -> float | None:
        """A soft cap; None: there is none."""
        return float(self.number(f"{kind}_logits_soft_cap")) or None

    @property
    def is_gemma(self) -> bool:
        return self.family.startswith("gemma")

    @property
    def is_capped(self) -> bool:
        """Whether attn_logits_soft_cap is read."""
        block = _BLOCKS[self.family][0]
        if str(self.raw["model_name"]).startswith("mistral"):
            block = "mistral"
        return self.raw.get("decoder_block", block) in _CAPPED_BLOCKS

    @property
    def rope(self) -> str:
        """The rotation that runs, one of _ROPE_TYPES: a model_name may choose it."""
        if str(self.raw["model_name"]).startswith("llama3.1"):
            return "llama3.1"
        return str(self.raw["rope_type"])

    def refuse(self, name: str, expected: str, remedy: str) -> InputError:
        """The sentence about one field."""
        value = shown(self.raw.get(name, _DEFAULTS.get(name)))
        return InputError(
            f"--param_map={self.file}: {name} is {value}, expected {expected}: {remedy}"
        )

    def contradicts(self, name: str, said: Json) -> InputError:
        """The sentence about a field that config.json says otherwise."""
        return self.refuse(
            name,
            f"{shown(said)}, which config.json says",
            "mend the one that this model was not trained with",
        )


_ALL = "name the config file with which MaxText trained this model, or write the line as it ran"


def _plain(value: Json) -> Json:
    """A value as MaxText takes it: an enum is written as a tag and a list, None as a text, and a
    number may have underscores."""
    if isinstance(value, list) and len(value) == 1:
        [value] = value
    if value == "None":
        return None
    if isinstance(value, str) and "_" in value and len(value) < 99:
        digits = value.replace("_", "")
        return int(digits) if digits.isdecimal() else value
    return value


def _is_one_of(value: Json, values: Sequence[Json]) -> bool:
    return any(type(value) is type(each) and value == each for each in values)


def _is_size(value: float) -> bool:
    return math.isfinite(value) and 0 <= value < 1e12


def _check_sizes(fields: _Fields, config: ModelConfig) -> None:
    """Raises InputError for sizes of another model than config.json's."""
    for maxtext, ours in _SIZES.items():
        size = getattr(config, ours)
        if maxtext == "num_decoder_layers" and config.family == "gemma2":
            size //= 2  # MaxText counts pairs
        names = [maxtext]
        if fields.number("global_parameter_scale") == 1:
            names.append(f"base_{maxtext}")
        for name in names:
            if name in fields.raw and fields.number(name) != size:
                raise fields.contradicts(name, size)


def _check_said(fields: _Fields, config: ModelConfig) -> None:
    """Raises InputError for what config.json says otherwise, or computes and MaxText does not."""
    window = max((window for window in config.layer_windows if window is not None), default=None)
    activation = _ACTIVATIONS.get(config.activation, config.activation)
    said: dict[str, Json] = {
        "normalization_layer_epsilon": config.norm_eps,
        "head_dim": config.head_dim,
        "mlp_activations": [activation, "linear"],
    }
    if config.family in ("gemma2", "gemma3_text"):
        said["sliding_window_size"] = window
    for name, value in said.items():
        if name in fields.raw and fields.raw[name] != value:
            raise fields.contradicts(name, value)
    block = fields.raw.get("decoder_block", _BLOCKS[config.family][0])
    if block not in _BLOCKS[config.family]:
        raise fields.refuse(
            "decoder_block", " or ".join(_BLOCKS[config.family]), f"config.json: {config.family}"
        )
    where = f"--param_map={fields.file}: config.json says"
    if fields.is_gemma and config.norm_eps != 1e-6:
        raise InputError(
            f"{where} rms_norm_eps {config.norm_eps}, but the layers of MaxText's Gemma have "
            "1e-06: write that into config.json"
        )
    period = {"gemma2": 2, "gemma3_text": 6}.get(config.family, 1)
    for layer, of_layer in enumerate(config.layer_windows):
        is_local = (layer + 1) % period > 0
        if (of_layer is not None) != is_local:
            raise InputError(
                f"{where} a window of {of_layer} tokens in layer {layer}, where MaxText's "
                f"{config.family} has {'one' if is_local else 'none'}: write the windows that it "
                "trained with (layer_types, sliding_window) into config.json"
            )
    if config.family == "gemma3_text":
        width = config.head_dim
        if str(fields.raw["model_name"]).startswith("gemma3-27b"):
            width = config.d_model // config.num_heads
        if not math.isclose(config.attn_scale, width**-0.5, rel_tol=_SAME_FREQUENCY):
            raise InputError(
                f"{where} query_pre_attn_scalar {config.attn_scale**-2:.6g}, but MaxText's "
                f"{fields.raw['model_name']} has {width}: write that into config.json"
            )


def _check_ropes(fields: _Fields, config: ModelConfig) -> None:
    """Raises InputError where config.json rotates otherwise than MaxText."""
    for layer, of_json in enumerate(config.layer_ropes):
        kind, parameters = _rope_parameters(
            fields, config.family, config.layer_windows[layer] is not None, of_json
        )
        try:
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                of_maxtext = rope_of(kind, parameters, config.head_dim)
        except (ArithmeticError, ValueError):
            raise fields.refuse("rope_type", "usable numbers beside it", _ALL) from None
        if not _rotate_alike(of_json, of_maxtext):
            written = json.dumps({"rope_type": kind, **parameters})
            raise InputError(
                f"--param_map={fields.file}: MaxText's rope {fields.rope} rotates layer {layer} "
                f"otherwise than config.json: write {written} into its rope_parameters, or mend "
                "this file"
            )


def _rope_parameters(
    fields: _Fields, family: str, is_local: bool, of_json: Rope
) -> tuple[str, Parameters]:
    """The rotation of a layer in config.json's words.  With MaxText's plain rotation theta may be
    left to config.json."""
    if fields.rope == "default":
        theta = _theta_of(of_json)
        if "rope_max_timescale" in fields.raw:
            theta = fields.number("rope_max_timescale")
        if is_local and "local_rope_max_timescale" in fields.raw:
            local = fields.raw["local_rope_max_timescale"]
            if local not in (-1, 0):
                theta = fields.number("local_rope_max_timescale")
        elif is_local and family == "gemma3_text":
            theta = _theta_of(of_json)
        factor = fields.number("rope_linear_scaling_factor")
        if factor == 1 or (is_local and family == "gemma3_text"):
            return "default", {"rope_theta": theta}
        return "linear", {"rope_theta": theta, "factor": factor}
    theta = fields.number("rope_max_timescale")
    if fields.rope == "llama3.1":
        if not fields.is_true("rope_use_scale"):
            return "default", {"rope_theta": theta}
        return "llama3", {"rope_theta": theta, **_LLAMA31}
    factor = fields.number("rope_factor")
    scale = 1.0
    if fields.is_true("rope_attention_scaling") and factor > 1:
        scale = 0.1 * math.log(factor) + 1.0
    return "yarn", {
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": fields.number("original_max_position_embeddings"),
        "beta_fast": fields.number("beta_fast"),
        "beta_slow": fields.number("beta_slow"),
        "truncate": fields.is_true("rope_truncate"),
        "attention_factor": scale,
    }


def _theta_of(rope: Rope) -> float:
    """Theta of frequencies theta ** (-i / n) / factor, i < n, without float32's rounding."""
    pairs = len(rope.frequencies)
    theta = (rope.frequencies[0] / rope.frequencies[-1]) ** (pairs / max(pairs - 1, 1))
    return float(f"{theta:.6g}")


def _rotate_alike(one: Rope, other: Rope) -> bool:
    return (
        not one.varies_with_length
        and len(one.frequencies) == len(other.frequencies)
        and math.isclose(one.scale, other.scale, rel_tol=_SAME_FREQUENCY)
        and np.allclose(one.frequencies, other.frequencies, rtol=_SAME_FREQUENCY, atol=0)
    )
