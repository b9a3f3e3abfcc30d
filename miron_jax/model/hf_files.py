"""A Hugging Face folder -> its tensors: safetensors or Flax msgpack, single or sharded.

Arrives: a folder.  Leaves: name -> `Stored`, and a way to read them.  It deliberately does not know families or the
decoder.  Pickles (.bin) are never opened.

Of safetensors only headers are read here.  A msgpack file cannot be read in part: its arrays stay on the host.  The Flax
classes of transformers 4 named them like torch's but for the last part: `kernel` is torch's `weight` transposed (GPT-2's
too, whose Conv1D both keep the other way round), `embedding` and `scale` are its `weight`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flax.serialization import msgpack_restore
from flax.traverse_util import flatten_dict
from safetensors import SafetensorError, safe_open

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json

_SAFETENSORS, _MSGPACK = "model.safetensors", "flax_model.msgpack"
_WORDS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as its file describes it."""

    file: Path
    shape: tuple[int, ...]
    dtype: str  # safetensors' own word: F32, BF16, ...
    array: np.ndarray | None = None  # where its file had to be read whole


def has_tensors(folder: Path) -> bool:
    """Whether weights lie there, of which nothing is read."""
    names = (name for single in (_SAFETENSORS, _MSGPACK) for name in (single, f"{single}.index.json"))
    return any((folder / name).is_file() for name in names)


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of the checkpoint; safetensors where both formats are there."""
    for single, read in ((_SAFETENSORS, _header), (_MSGPACK, _tree)):
        if (folder / single).is_file():
            return read(folder / single)
        if (folder / f"{single}.index.json").is_file():
            return _sharded(folder / f"{single}.index.json", read)
    pickles = sorted(path.name for path in folder.glob("*.bin"))
    seen = f" ({', '.join(pickles)} present, but pickles are never read)" if pickles else ""
    raise InputError(
        f"{folder}: no {_SAFETENSORS}, no {_MSGPACK} and no index of either{seen}; "
        "save the model with save_pretrained(safe_serialization=True)"
    )


@contextmanager
def opened(path: Path, stored: Mapping[str, Stored]) -> Iterator[Callable[[str], Any]]:
    """Tensor name -> what can be sliced by rows, while the file is open."""
    if path.suffix == ".msgpack":
        yield lambda name: stored[name].array
    else:
        with safe_open(path, framework="numpy") as file:
            yield file.get_slice


def _sharded(index: Path, read: Callable[[Path], dict[str, Stored]]) -> dict[str, Stored]:
    weight_map = {_torch_name(name): shard for name, shard in _weight_map(index).items()}
    shards = {name: read(_shard(index, name)) for name in sorted(set(weight_map.values()))}
    for tensor, name in weight_map.items():
        if tensor not in shards[name]:
            raise InputError(
                f"{index.parent / name}: no tensor {tensor}, which {index.name} places there; download both again"
            )
    return {tensor: shards[name][tensor] for tensor, name in weight_map.items()}


def _weight_map(index: Path) -> dict[str, str]:
    try:
        weight_map = parse_json(index.read_text(encoding="utf-8"))["weight_map"]
        if weight_map and all(isinstance(name, str) for name in weight_map.values()):
            return weight_map
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InputError(f"{index}: expected a JSON object with weight_map, tensor name to file; download the file again")


def _shard(index: Path, name: str) -> Path:
    path = index.parent / name
    if Path(name).name != name or not os.path.isfile(path):  # False of a name that no file can have
        raise InputError(f"{path!s:.300}: no such file, but {index.name} lists it; download the missing shard")
    return path


def _header(path: Path) -> dict[str, Stored]:
    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            return {name: Stored(path, tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
    except SafetensorError as error:
        raise InputError(
            f"{path}: truncated or corrupt ({path.stat().st_size} bytes; {error}), expected a whole safetensors file; "
            "download it again (a Git LFS pointer needs `git lfs pull`)"
        ) from None


def _tree(path: Path) -> dict[str, Stored]:
    """A msgpack file's arrays, under torch's names and the way torch keeps them."""
    try:
        flat: dict[str, Any] = flatten_dict(msgpack_restore(path.read_bytes()), sep="/")
    except Exception as error:  # msgpack's errors have no class in common, and a wrong byte may raise any of them
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: truncated or corrupt ({path.stat().st_size} bytes; {reason}), expected a whole Flax msgpack file; "
            "download it again (a Git LFS pointer needs `git lfs pull`)"
        ) from None
    return {_torch_name(key): _stored(path, key, array) for key, array in flat.items()}


def _stored(path: Path, key: str, array: Any) -> Stored:
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: {key} holds a {type(array).__name__}, expected an array; name another checkpoint")
    turned = array.T if key.endswith("/kernel") else array
    word = str(array.dtype)
    return Stored(path, turned.shape, _WORDS.get(word, word), turned)


def _torch_name(key: str) -> str:
    """Flax joins parts by "/"; a name without one is torch's already."""
    if "/" not in key:
        return key
    *above, last = key.split("/")
    return ".".join([*above, "weight" if last in ("kernel", "embedding", "scale") else last])
