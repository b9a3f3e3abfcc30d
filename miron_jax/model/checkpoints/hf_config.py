"""config.json of a Hugging Face folder -> ModelConfig.

Arrives: a folder.  Leaves: a ModelConfig, or the token ids that end a text.  It deliberately does
not know weights or their names.

Every field of config.json is used, or known to change no score, or refused: an unknown field is
never ignored.
"""

import difflib
from pathlib import Path

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject, parse_json, shown
from miron_jax.files.regular import read_text
from miron_jax.model.config import ModelConfig
from miron_jax.model.families import families
from miron_jax.model.families.family import AnyModel
from miron_jax.model.families.fields import Fields, check_fields, with_whole_numbers

_MULTIMODAL = ("gemma3", "gemma3n")  # their text models are read


def from_hf_config(folder: Path | str) -> AnyModel:
    """What the model of this folder computes: a ModelConfig of the decoder, or a FamilyModel.

    Raises InputError for a config.json that is damaged or not supported.
    """
    path = Path(folder) / "config.json"
    raw = _text_part(path, read_fields(path))
    family = raw.get("model_type")
    supported = families()
    if family is None:
        raise InputError(
            f"{path}: model_type is None, expected the architecture's name, such as llama; "
            "download it again"
        )
    if not isinstance(family, str) or family not in supported:
        longer = [name for name in supported if name.startswith(str(family))]
        nearest = [*longer, *difflib.get_close_matches(str(family), supported, n=1, cutoff=0.0)][0]
        names = ", ".join(sorted([*supported, *_MULTIMODAL]))
        raise InputError(
            f"{path}: model_type is {family!r}, expected one of {names} (nearest: {nearest}); a "
            "model of another architecture is scored as a Flax model of your own "
            "(docs/own_model.md)"
        )
    raw = with_whole_numbers(raw)
    check_fields(path, raw)
    config = supported[family].config(Fields(path, family, raw))
    if isinstance(config, ModelConfig):
        _check_sizes(path, config)
    return config


def _text_part(path: Path, raw: JsonObject) -> JsonObject:
    """The fields of the text model.  A multimodal Gemma 3 or 3n nests them; its other towers take
    no part in text."""
    family = raw.get("model_type")
    if family not in _MULTIMODAL:
        return raw
    text = raw.get("text_config")
    if not isinstance(text, dict):
        raise InputError(
            f"{path}: text_config is {text!r}, expected that of a multimodal Gemma; download the "
            "file again"
        )
    fields = {**text, "model_type": f"{family}_text"}
    if raw.get("tie_word_embeddings") is not None:
        fields["tie_word_embeddings"] = raw["tie_word_embeddings"]
    return fields


def eos_token_ids(folder: Path | str) -> tuple[int, ...]:
    """Token ids that end a text, from generation_config.json, or from config.json if that file is
    absent or names none.

    Raises InputError for anything but an id or a list of ids.
    """
    for name in ("generation_config.json", "config.json"):
        path = Path(folder) / name
        field = read_fields(path).get("eos_token_id") if path.exists() else None
        if field is not None:
            ids = field if isinstance(field, list) else [field]
            if not all(type(i) is int and 0 <= i < 1 << 31 for i in ids):
                raise InputError(
                    f"{path}: eos_token_id is {shown(field)}, expected a token id or a list of them"
                )
            return tuple(ids)
    return ()


def read_fields(path: Path) -> JsonObject:
    """The JSON object of a config.json or the like.  Raises InputError."""
    if not path.is_file():
        raise InputError(
            f"{path}: no such file, expected a Hugging Face model folder, or a run's folder with "
            "config.json beside its steps (--steps=N takes one); check --model"
        )
    try:
        raw = parse_json(read_text(path))
    except ValueError as error:
        raise InputError(
            f"{path}: not JSON ({error}), expected a model config; download the file again"
        ) from None
    if not isinstance(raw, dict):
        raise InputError(
            f"{path}: holds a {type(raw).__name__}, expected a JSON object; download the file again"
        )
    return raw


def _check_sizes(path: Path, config: ModelConfig) -> None:
    """Raises InputError for a size below 1, or for heads that do not divide among key/value
    heads."""
    sizes = (
        "vocab_size", "d_model", "num_layers", "num_heads", "num_kv_heads", "head_dim", "d_ff",
        "trained_length",
    )  # fmt: skip
    for name in sizes:
        if getattr(config, name) < 1:
            raise InputError(
                f"{path}: {name} is {getattr(config, name)}, expected at least 1; mend config.json"
            )
    if config.num_heads % config.num_kv_heads:
        raise InputError(
            f"{path}: {config.num_heads} attention heads over {config.num_kv_heads} key/value "
            "heads, expected a multiple; mend config.json"
        )
