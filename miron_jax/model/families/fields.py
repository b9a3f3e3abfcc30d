"""Types and sizes of config.json's fields, before anything is built from them.

Arrives: the JSON object.  Leaves: `Fields`, or an InputError that names the wrong field.  It
deliberately does not know families: a field has the same type in each of them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, shown
from miron_jax.files.regular import read_text
from miron_jax.runtime.timeline import spent_on

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MOST_HEAD_SIZE = 1 << 14


class _Expected(NamedTuple):
    """What the value of a field may be, with words that say so."""

    allows: Callable[[Json], bool]
    words: str


def _whole(highest: int, lowest: int = 1) -> _Expected:
    return _Expected(
        lambda value: type(value) is int and lowest <= value <= highest,
        f"a whole number from {lowest} to {highest}",
    )


def _whole_or_one_a_layer(highest: int) -> _Expected:
    allows, words = _whole(highest)
    return _Expected(
        lambda value: all(map(allows, value if isinstance(value, list) else [value])), words
    )


def _is_finite(value: Json) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # False of NaN, and of an integer beyond the range of floats
    return is_number and abs(value) < 1e300


def _is_positive(value: Json) -> bool:
    return _is_finite(value) and value > 0


# Upper limits of counts, about ten times those of the largest published model: a damaged number
# must not allocate memory.
_COUNTS = {
    "num_hidden_layers n_layer n_layers max_window_layers sliding_window_pattern "
    "no_rope_layer_interval": 10_000,
    "num_attention_heads num_key_value_heads num_kv_heads n_head n_heads num_heads n_groups "
    "state_size conv_kernel conv1d_width num_experts num_local_experts num_experts_per_tok "
    "decoder_sparse_step altup_num_inputs laurel_rank hidden_size_per_layer_input": 1 << 14,
    "head_dim rotary_dim": MOST_HEAD_SIZE,
    "hidden_size n_embd n_embed d_model lru_width word_embed_proj_dim": 1 << 20,
    "intermediate_size n_inner moe_intermediate_size shared_expert_intermediate_size ffn_dim "
    "ffn_hidden_size": 1 << 24,
    "vocab_size vocab_size_per_layer_input": 1 << 26,
    "num_ln_in_parallel_attn": 2,
    "ff_factor": 1 << 10,
    "num_labels": 1 << 16,  # transformers creates a name for each
    "max_position_embeddings n_positions sliding_window original_max_position_embeddings "
    "max_seq_len seq_length attention_window_size": 1 << 31,
}
_MAY_BE_ZERO = ("max_window_layers", "sliding_window", "num_labels")  # 0: no window
_WHOLE_NUMBERS = {
    name: _whole(highest, lowest=0 if name in _MAY_BE_ZERO else 1)
    for names, highest in _COUNTS.items()
    for name in names.split()
}
_OTHERS = {
    "rope_theta rotary_emb_base rope_local_base_freq query_pre_attn_scalar attn_logit_softcapping "
    "final_logit_softcapping logits_scaling clip_qkv logit_scale swiglu_alpha swiglu_limit factor "
    "low_freq_factor high_freq_factor": _Expected(_is_positive, "a finite number above 0"),
    "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon embedding_multiplier "
    "residual_multiplier attention_multiplier rotary_pct partial_rotary_factor attention_factor "
    "mscale mscale_all_dim beta_fast beta_slow": _Expected(_is_finite, "a finite number"),
    "tie_word_embeddings attention_bias mlp_bias use_sliding_window use_bidirectional_attention "
    "scale_attn_weights scale_attn_by_inverse_layer_idx add_cross_attention use_parallel_residual "
    "use_qkv_bias qk_layernorm truncate use_bias use_qk_norm norm_topk_prob qkv_bias "
    "do_layer_norm_before enable_bias layer_norm_elementwise_affine _remove_final_layer_norm alibi "
    "bias new_decoder_architecture multi_query parallel_attn": _Expected(
        lambda value: isinstance(value, bool), "true or false"
    ),
    "short_factor long_factor": _Expected(
        lambda value: isinstance(value, list) and bool(value) and all(map(_is_positive, value)),
        "a list of finite numbers above 0",
    ),
    "layer_types": _Expected(
        lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
        "a list of texts, one a layer",
    ),
    "rope_scaling rope_parameters": _Expected(lambda value: isinstance(value, dict), "an object"),
}
_EXPECTED = {
    **_WHOLE_NUMBERS,
    **{name: expected for names, expected in _OTHERS.items() for name in names.split()},
}
_OF_MODEL_TYPE = {
    ("intermediate_size", "gemma3n_text"): _whole_or_one_a_layer(1 << 24),
    ("shared_expert_intermediate_size", "qwen3_moe"): _whole(1 << 24, lowest=0),  # is not read
}
_ROPES = ("rope_scaling", "rope_parameters")


def check_fields(path: Path, fields: Mapping[str, Json]) -> None:
    """Raises InputError for a count outside its limits, a number that is not finite, or a flag that
    is neither true nor false.  null is allowed everywhere: it means the family's default."""
    for name, value, expected in _wrong_fields(fields):
        raise InputError(
            f"{path}: {name} is {shown(value)}, expected {expected}; mend config.json or download "
            "it again"
        )


def _wrong_fields(fields: Mapping[str, Json], depth: int = 0) -> Iterator[tuple[str, Json, str]]:
    """(name, value, description of a right value) of each wrong field; `depth` counts the enclosing
    objects: rope_parameters may hold one for each type of layer."""
    for name, value in fields.items():
        usual = _EXPECTED.get(name)
        expected = _OF_MODEL_TYPE.get((name, str(fields.get("model_type"))), usual)
        if value is None:
            continue
        if expected is not None and not expected.allows(value):
            yield name, value, expected.words
        elif isinstance(value, dict) and (name in _ROPES or depth == 1) and depth < 2:
            yield from _wrong_fields(value, depth + 1)


def with_whole_numbers(fields: Mapping[str, Json]) -> dict[str, Json]:
    """The fields with the counts that are written as floats, such as 256.0, as whole numbers."""
    whole = dict(fields)
    for name, value in fields.items():
        if isinstance(value, dict):
            whole[name] = with_whole_numbers(value)
        elif isinstance(value, float) and (
            name in _WHOLE_NUMBERS or name == "query_pre_attn_scalar"  # levanter writes 256.0
        ):
            whole[name] = int(value) if value.is_integer() else value
    return whole


class Fields:
    """The fields of a config.json, with the family's defaults filled in by transformers."""

    def __init__(self, path: Path, family: str, raw: Mapping[str, Json]) -> None:
        self.path = path
        self.family = family
        self.raw = raw
        self.with_defaults = _with_transformers_defaults(path, raw)
        # fields that transformers does not read and that say nothing more
        self.duplicates: set[str] = set()

    def __getitem__(self, name: str) -> Json:
        return getattr(self.with_defaults, name)

    def get(self, name: str) -> Json:
        """The field's value, or None if the family has no such field."""
        return getattr(self.with_defaults, name, None)

    def refuse(self, name: str, value: object, expected: str) -> InputError:
        """The error to raise for a model that is not supported because of this field."""
        return InputError(
            f"{self.path}: {name} is {shown(value)}, expected {expected} for model_type "
            f"{self.family!r}; this model is not supported"
        )

    def expect(self, name: str, is_right: object, expected: str) -> None:
        """Raises InputError if the field's value is not right."""
        if not is_right:
            value = self[name]
            raise self.refuse(name, list(value) if isinstance(value, tuple) else value, expected)

    def require(self, name: str, expected: object) -> None:
        """Raises InputError if the field has another value."""
        self.expect(name, self[name] == expected, repr(expected))

    def allow_same(self, name: str, used: str) -> None:
        """Accept the field `name`, which transformers does not read, if it repeats the value of
        `used`, which it reads.

        Raises InputError for another value.
        """
        if self.raw.get(name) not in (None, self[used]):
            raise self.refuse(
                name, self.raw[name], f"{used}'s {self[used]!r}, which transformers reads instead,"
            )
        self.duplicates.add(name)

    def allow_value(self, name: str, value: object) -> None:
        """Accept the field `name`, which transformers does not read, if it says what the family
        always computes.

        Raises InputError for another value.
        """
        if self.raw.get(name) not in (None, value):
            raise self.refuse(
                name, self.raw[name], f"{value!r}, which transformers computes in any case,"
            )
        self.duplicates.add(name)

    def _names_library_code(self, name: str, value: Json) -> bool:
        """Whether this is the auto_map of published configs of Phi, Falcon or MPT, whose classes
        transformers now has."""
        prefix = {"phi": "Phi", "phi3": "Phi3", "falcon": "Falcon", "mpt": "MPT"}.get(self.family)
        if name != "auto_map" or prefix is None or not isinstance(value, Mapping):
            return False
        return all(str(code).rsplit(".")[-1].startswith(prefix) for code in value.values())

    def _repeats_windows(self, layer_types: Json, used: list[str]) -> bool:
        """Whether layer_types, which the family does not read, says of all layers what
        sliding_window does."""
        is_sliding = "sliding_window" in used and self["sliding_window"] is not None
        return set(layer_types or ()) == {"sliding_attention" if is_sliding else "full_attention"}

    def allow_only(self, used: str, within: str | None = None) -> None:
        """Raises InputError for a field that is not in `used` (separated by spaces), may change
        scores, and is not off.

        `within`: the field whose value holds the fields; None: they are those of the file.
        """
        for name, value in (self.raw if within is None else self.raw.get(within) or {}).items():
            known = name in used.split() or name in self.duplicates or _HARMLESS.fullmatch(name)
            known = known or self._names_library_code(name, value)
            known = known or (
                name == "layer_types"
                and within is None
                and self._repeats_windows(value, used.split())
            )
            if not known and value not in (None, False, 0, "", [], {}):
                raise InputError(
                    f"{self.path}: field {name!r} = {value!r} is not known for model_type "
                    f"{self.family!r} and may change the scores; remove it from config.json if it "
                    "does not, else this model is not supported"
                )


_HARMLESS_NAMES = read_text(Path(__file__).with_name("harmless_fields.txt"))
_HARMLESS = re.compile("|".join(re.sub("#.*", "", _HARMLESS_NAMES).split()))


def _with_transformers_defaults(path: Path, raw: Mapping[str, Json]) -> "PretrainedConfig":
    """transformers' config object, which resolves defaults, types and old spellings
    (rope_theta, rope_scaling, sliding_window_pattern).  Raises InputError where transformers
    refuses the file."""
    with spent_on("import"):
        from transformers import CONFIG_MAPPING  # here because the import takes a second

    values = {name: _with_floats(value) for name, value in raw.items()}
    try:
        with spent_on("import"):
            kind = CONFIG_MAPPING[raw["model_type"]]
        for field in fields(kind) if is_dataclass(kind) else ():  # since transformers 5.4
            if field.name in values:
                values[field.name] = _as_declared(values[field.name], str(field.type))
        return kind.from_dict(values)
    except Exception as error:  # the code that fills in defaults raises errors of any class
        reason = " ".join(str(error).split())
        remedy = "mend config.json or download it again"
        if "'head_dim'" in reason and raw["head_dim"] is None:
            size = (raw.get("hidden_size") or 0) // (raw.get("num_attention_heads") or 1)
            remedy = f'write the size of a head, "head_dim": {size}, or leave the line out'
        raise InputError(f"{path}: transformers refuses it: {reason:.300}; {remedy}") from None


def _as_declared(value: Json, declared: str) -> Json:
    """A whole float as an integer, or an integer as a float, where transformers takes that
    alone."""
    kinds = set(re.findall(r"\b(int|float)\b", declared))
    if isinstance(value, float) and kinds == {"int"} and value.is_integer():
        return int(value)
    if type(value) is int and kinds == {"float"}:
        return float(value)
    return value


def _with_floats(value: Json) -> Json:
    """The value with infinities as numbers: transformers 5 writes {"__float__": "Infinity"}."""
    if isinstance(value, list):
        return [*map(_with_floats, value)]
    if isinstance(value, dict) and set(value) == {"__float__"}:
        return _SPECIAL.get(value["__float__"], value)
    return value


_SPECIAL = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
