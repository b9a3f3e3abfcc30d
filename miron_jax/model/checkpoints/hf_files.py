"""Tensors of a Hugging Face folder: safetensors or Flax msgpack, in one file or several.

Arrives: a folder.  Leaves: tensor name -> `Stored`, whose array can be sliced by rows.  It
deliberately does not know families or the decoder.  Pickles (.bin) are never opened.

Of safetensors files (safetensors_file.py) only the headers are read here, and the files stay open.
A msgpack file cannot be read in part: its arrays stay on the host.  The Flax classes of
transformers 4 use torch's names except for the last part: `kernel` is torch's `weight` transposed
(also for GPT-2, whose Conv1D both store the other way round), `embedding` and `scale` are torch's
`weight`.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from flax.serialization import msgpack_restore
from flax.traverse_util import flatten_dict

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.files.regular import open_regular, read_regular, read_text
from miron_jax.model.checkpoints.plausible import check_one_copy
from miron_jax.model.checkpoints.safetensors_file import read_header

_SAFETENSORS, _MSGPACK = "model.safetensors", "flax_model.msgpack"
DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
Sliceable = Any  # an array, a `FileTensor`, or the part of a tree's array


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as its file describes it."""

    file: Path
    shape: tuple[int, ...]
    dtype: str  # as safetensors names it: F32, BF16, ...
    array: Sliceable


def has_tensors(folder: Path) -> bool:
    """Whether the folder holds weights in a format that is read here."""
    names = product((_SAFETENSORS, _MSGPACK), ("", ".index.json"))
    return any((folder / f"{single}{end}").is_file() for single, end in names)


def stored_tensors(folder: Path, files: ExitStack) -> dict[str, Stored]:
    """Tensor name -> its description, from safetensors if the folder holds both formats.

    Each file is opened once, and `files` closes it: a file that is renamed over it is not seen.
    Raises InputError for a folder without weights, a damaged file or a missing shard.
    """

    def safetensors(path: Path) -> dict[str, Stored]:
        tensors = read_header(path, files.enter_context(open_regular(path)))
        return {name: Stored(path, x.shape, x.stored_dtype, x) for name, x in tensors.items()}

    for single, read in ((_SAFETENSORS, safetensors), (_MSGPACK, _read_msgpack)):
        if (folder / single).is_file():
            return read(folder / single)
        if (folder / f"{single}.index.json").is_file():
            return _sharded(folder / f"{single}.index.json", read)
    pickles = sorted(path.name for path in folder.glob("*.bin"))
    note = f" ({', '.join(pickles)} present, but pickles are never read)" if pickles else ""
    raise InputError(
        f"{folder}: no {_SAFETENSORS}, no {_MSGPACK} and no index of either{note}; "
        "save the model with transformers' save_pretrained"
    )


def _sharded(index: Path, read: Callable[[Path], dict[str, Stored]]) -> dict[str, Stored]:
    """The tensors of all shards that an index file lists, each shard read by `read`."""
    weight_map = {torch_name(name): shard for name, shard in _weight_map(index).items()}
    shards = {name: read(_shard_path(index, name)) for name in sorted(set(weight_map.values()))}
    for tensor, name in weight_map.items():
        if tensor not in shards[name]:
            raise InputError(
                f"{index.parent / name}: no tensor {tensor}, which {index.name} places there; "
                "download both again"
            )
    return {tensor: shards[name][tensor] for tensor, name in weight_map.items()}


def _weight_map(index: Path) -> dict[str, str]:
    try:
        weight_map = parse_json(read_text(index))["weight_map"]
        if weight_map and all(isinstance(name, str) for name in weight_map.values()):
            return weight_map
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InputError(
        f"{index}: expected a JSON object with weight_map, tensor name to file; download the file "
        "again"
    )


def _shard_path(index: Path, name: str) -> Path:
    path = index.parent / name
    # False also for a name that no file can have
    if Path(name).name != name or not os.path.isfile(path):
        raise InputError(
            f"{path!s:.300}: no such file, but {index.name} lists it; download the missing shard"
        )
    return path


def _read_msgpack(path: Path) -> dict[str, Stored]:
    """The arrays of a msgpack file, with torch's names and layout."""
    try:
        content = read_regular(path)
        flat = flatten_dict(msgpack_restore(content), sep="/")
    except OSError:
        raise
    # msgpack's errors have no common class, and a wrong byte may raise any of them
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: truncated or corrupt ({path.stat().st_size} bytes; {reason}), expected a "
            "whole Flax msgpack file; download it again (a Git LFS pointer needs `git lfs pull`)"
        ) from None
    shapes = {key: x.shape for key, x in flat.items() if isinstance(x, np.ndarray)}
    if max(map(len, shapes.values()), default=0) > 2:  # no matrix has so many axes
        check_one_copy(path, shapes.values())
    return {torch_name(key): _stored(path, key, array) for key, array in flat.items()}


def _stored(path: Path, key: str, array: object) -> Stored:
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"{path}: {key} holds a {type(array).__name__}, expected an array; name another "
            "checkpoint"
        )
    if key.endswith("/kernel"):
        array = array.T
    dtype = str(array.dtype)
    return Stored(path, array.shape, DTYPES.get(dtype, dtype), array)


def torch_name(key: str) -> str:
    """torch's name for a Flax key, whose parts are joined by "/"; a name without "/" is torch's
    already."""
    if "/" not in key:
        return key
    *above, last = key.split("/")
    return ".".join([*above, "weight" if last in ("kernel", "embedding", "scale") else last])
