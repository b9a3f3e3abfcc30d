"""Checkpoints of levanter and EasyDeL, as tensors with Hugging Face's names.

Arrives: the folder of a step.  Leaves: tensor name -> `Stored`, and what of any stored tensor can
be sliced.  It
deliberately does not know families or the decoder.

Both save one array for each leaf of a tree with tensorstore, and name the parts of a model as
transformers does.

    levanter  marin-levanter 0.2.20, tensorstore_serialization.py and models/: zarr 3 arrays in one
              OCDBT database (before 2025 a zarr folder for each); layers are stacked or numbered,
              heads are axes of their own, Linear is (out, in) but for GPT-2, the vocabulary may be
              padded
    EasyDeL   easydel 0.3.0, infra/mixins/bridge.py, and eformer's serialization: a zarr folder for
              each array of an nnx tree, listed in tensorstore_index.json
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, parse_json, shown
from miron_jax.files.regular import read_regular
from miron_jax.model.checkpoints.hf_files import (
    DTYPES,
    Sliceable,
    Stored,
    has_tensors,
    torch_name,
)
from miron_jax.model.checkpoints.plausible import check_one_copy
from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import KnownModel

LEVANTER = ("llama", "mistral", "qwen2", "qwen3", "olmo2", "gemma", "gemma2", "gemma3_text", "gpt2")
# EasyDeL's config.json lacks the fields that have its own default: of these families transformers'
# are the same.
EASYDEL = ("llama", "mistral", "qwen2", "qwen3")
MOST_SIZE = 1 << 40  # along an axis of an array
_INDEX = "tensorstore_index.json"  # of EasyDeL; the optimizer's comes before the model's
_STRUCTURE = "model_structure.json"  # of EasyDeL, which writes it after the model's arrays
_DATABASE = "manifest.ocdbt"
_FINISHED = "metadata.json"  # levanter writes it last
# File that describes an array -> tensorstore's name of its format
_FORMATS = {"/zarr.json": "zarr3", "/.zarray": "zarr"}
_TABLES = ("embed_tokens.weight", "wte.weight", "lm_head.weight")
_OUT_FIRST = ("o_proj", "c_attn")  # their first axis is a matrix's, and heads are the others


class _TreeArray(NamedTuple):
    key: str
    format: str
    shape: tuple[int, ...]
    dtype: str
    num_chunks: int
    num_missing: int


class _TensorPart(NamedTuple):
    """The part of an array that is a tensor."""

    array: _TreeArray
    layer: int | None  # index along the first axis; None: the whole array
    shape: tuple[int, ...]  # as which it is read
    transposed: bool = False


def is_array_tree(folder: Path) -> bool:
    """Whether this is a checkpoint that levanter or EasyDeL has finished, without Hugging Face's
    files beside it."""
    if has_tensors(folder):
        return False
    if (folder / _INDEX).is_file():
        return (folder / _STRUCTURE).is_file()
    is_database = (folder / _DATABASE).is_file() and not (folder / "_METADATA").is_file()
    return (folder / _FINISHED).is_file() and (
        is_database or (folder / "model" / "transformer").is_dir()
    )


def library_of(folder: Path) -> str:
    """Which library wrote such a checkpoint."""
    return "EasyDeL" if (folder / _INDEX).is_file() else "levanter"


def is_temporary(folder: Path) -> bool:
    """Whether levanter will delete this checkpoint once it has written the next one."""
    path = folder / _FINISHED
    try:
        return path.is_file() and bool(parse_json(read_regular(path)).get("is_temporary"))
    except (OSError, ValueError, AttributeError):
        return False


def tree_tensors(
    folder: Path, config: KnownModel, params_key: str | None = None
) -> dict[str, Stored]:
    """Tensor name -> its description, of the arrays below `params_key` ("model", or all of a tree
    without it).

    Tables are cut to the vocabulary's rows.  Raises InputError for a damaged checkpoint, one that
    holds nothing there, or a family that is not read.
    """
    library = library_of(folder)
    is_easydel = library == "EasyDeL"
    known = EASYDEL if is_easydel else LEVANTER
    if config.family not in known:
        raise InputError(
            f"{folder}: a checkpoint of {library} of a {config.family} model is not read, expected "
            f"one of {', '.join(known)}: export it in Hugging Face's format"
        )
    below = _below(folder, params_key)
    if any("embed" in key and len(array.shape) > 2 for key, array in below.items()):
        check_one_copy(folder, [array.shape for array in below.values()])
    _check_chunks(folder, below, config.family)
    if isinstance(config, ModelConfig) and not is_easydel:
        _check_head_size(folder, below, config)
    parts = _easydel_parts(below) if is_easydel else _levanter_parts(below)
    tensors = {name: _stored(folder, name, part, config.vocab_size) for name, part in parts}
    if is_easydel and config.tied_head:
        tensors.pop("lm_head.weight", None)  # is saved, and not used
    return tensors


def _below(folder: Path, params_key: str | None) -> dict[str, _TreeArray]:
    """The arrays below `params_key`, or the default, by the rest of their path.  Raises InputError
    if there are none."""
    arrays = _arrays(folder)
    root = "".join(f"{part}/" for part in (params_key or "model").split("/") if part)
    if params_key is None and not any(key.startswith(root) for key in arrays):
        root = ""
    below = {key.removeprefix(root): array for key, array in arrays.items() if key.startswith(root)}
    if not below:
        tops = ", ".join(sorted({key.partition("/")[0] for key in arrays})) or "none at all"
        named = f"{folder}: holds no arrays"
        if params_key:
            named = f"--params_key={params_key}: {folder} holds no arrays below it"
        raise InputError(
            f"{named}, only {tops}, expected the weights there; name the path of the weights with "
            "--params_key"
        )
    return below


def _check_chunks(folder: Path, arrays: Mapping[str, _TreeArray], family: str) -> None:
    """Raises InputError for an array that lacks some of its chunks."""
    for key, array in arrays.items():
        # tensorstore reads a chunk that is not there as zeros, and writes none of zeros, as some
        # weights are at first.
        may_be_zero = key.endswith("bias") or ("norm" in key and family.startswith("gemma"))
        is_zero = may_be_zero and array.num_missing == array.num_chunks
        if array.shape and array.num_missing and not is_zero:
            raise InputError(
                f"{folder / array.key}: lacks {array.num_missing} of its {array.num_chunks} "
                "chunks, expected all: the copy is not complete; copy it again"
            )


def _check_head_size(folder: Path, arrays: Mapping[str, _TreeArray], config: ModelConfig) -> None:
    """Raises InputError if the queries' heads (.., head, D) have another size than in config.json:
    levanter's Gemma 2 and 3 have hidden_size / num_attention_heads, whatever head_dim says."""
    for key, array in arrays.items():
        size = array.shape[-2] if len(array.shape) >= 4 else 0
        if key.endswith("/q_proj/weight") and size != config.head_dim:
            raise InputError(
                f"{folder}: the heads of {key} have {size} numbers, config.json says "
                f'{config.head_dim}, or its family where it has no line: write "head_dim": {size} '
                "into config.json"
            )


def sliceable(stored: Mapping[str, Stored]) -> Callable[[str], Sliceable]:
    """A function from tensor name to what can be sliced by rows.  Of a tree, the array that was
    read last stays on the host."""
    read = lru_cache(maxsize=1)(_read)

    def tensor(name: str) -> Sliceable:
        part = stored[name].array
        if not isinstance(part, _TensorPart):
            return part
        x = read(stored[name].file, part.array)
        if part.layer is not None:
            x = x[part.layer]
        x = x.reshape(part.shape)
        return (x.T if part.transposed else x)[: stored[name].shape[0]]

    return tensor


def sizes_fit(shape: Json, chunks: Json) -> bool:
    """Whether these are a shape and its chunks: tensorstore would abort the process or exhaust the
    memory at chunks that are larger than their array."""
    return len(shape) == len(chunks) and all(
        type(size) is type(chunk) is int and 0 <= size <= MOST_SIZE and 1 <= chunk <= max(size, 1)
        for size, chunk in zip(shape, chunks, strict=True)
    )


def _arrays(folder: Path) -> dict[str, _TreeArray]:
    """All arrays by their path in the tree.  Raises InputError for a damaged checkpoint."""
    import tensorstore  # imported here because most checkpoints do without

    arrays = {}
    try:
        store = tensorstore.KvStore.open(_store(folder)).result()
        names = sorted(map(bytes.decode, store.list().result()))
        num_files = Counter(name.rpartition("/")[0] for name in names)
        for name in names:
            for ending, kind in _FORMATS.items():
                if name.endswith(ending):
                    key = name.removesuffix(ending)
                    arrays[key] = _described(
                        folder, key, kind, store.read(name).result().value, num_files[key] - 1
                    )
    except (ValueError, OSError) as error:  # of every status of tensorstore
        raise _damaged(folder, error) from None
    return arrays


def _described(
    folder: Path, key: str, kind: str, description: bytes, num_chunks: int
) -> _TreeArray:
    """An array that is stored in so many chunks."""
    try:
        fields = parse_json(description)
        shape = fields["shape"]
        if kind == "zarr3":
            chunks = fields["chunk_grid"]["configuration"]["chunk_shape"]
            dtype = np.dtype(fields["data_type"]).name
        else:
            chunks = fields["chunks"]
            dtype = np.dtype(fields["dtype"]).name
        fits = sizes_fit(shape, chunks)
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(folder / key, error) from None
    if not fits:
        raise InputError(
            f"{folder / key}: shape is {shown(shape)} and chunks {shown(chunks)}, expected as many "
            "whole numbers, chunks no larger than the array; copy or save the checkpoint again"
        )
    wanted = math.prod(-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True))
    # a database is whole or not there
    is_counted = kind == "zarr" and fields.get("dimension_separator", ".") == "."
    return _TreeArray(
        key, kind, tuple(shape), dtype, wanted, max(0, wanted - num_chunks) if is_counted else 0
    )


def _read(folder: Path, array: _TreeArray) -> np.ndarray:
    """The array on the host.  Raises InputError if it is damaged."""
    import tensorstore

    spec = {"driver": array.format, "kvstore": _store(folder, f"{array.key}/")}
    try:
        whole = tensorstore.open(spec, open=True).result()
        return np.asarray(whole.read().result()).reshape(array.shape)
    except (ValueError, OSError) as error:
        raise _damaged(folder / array.key, error) from None


def _store(folder: Path, path: str = "") -> JsonObject:
    """tensorstore's description of the files, or of those below `path`."""
    if not (folder / _DATABASE).is_file():
        return {"driver": "file", "path": f"{folder.absolute()}/{path}"}
    return {
        "driver": "ocdbt",
        "base": {"driver": "file", "path": f"{folder.absolute()}/"},
        "path": path,
    }


def _damaged(where: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(
        f"{where}: tensorstore cannot read it ({reason:.200}), expected a whole checkpoint of "
        "levanter or EasyDeL; copy or save it again"
    )


def _stored(folder: Path, name: str, part: _TensorPart, vocab_size: int) -> Stored:
    shape = part.shape[::-1] if part.transposed else part.shape
    if name.endswith(_TABLES) and shape:
        shape = (min(shape[0], vocab_size), *shape[1:])
    return Stored(folder, shape, DTYPES.get(part.array.dtype, part.array.dtype), part)


def _easydel_parts(arrays: Mapping[str, _TreeArray]) -> Iterator[tuple[str, _TensorPart]]:
    for key, array in arrays.items():
        yield (
            torch_name(key),
            _TensorPart(array, None, array.shape, transposed=key.endswith("/kernel")),
        )


def _levanter_parts(arrays: Mapping[str, _TreeArray]) -> Iterator[tuple[str, _TensorPart]]:
    is_gpt2 = any(key.startswith("transformer/blocks/") for key in arrays)
    layers, embedding = ("h", "wte") if is_gpt2 else ("layers", "embed_tokens")
    names = {
        "embeddings/token_embeddings/": f"{embedding}.",
        "embeddings/position_embeddings/": "wpe.",
    }
    for key, array in arrays.items():
        if key.endswith("/dropout/inference"):  # a flag
            continue
        top = next(filter(key.startswith, names), None)
        parts = key.split("/")
        if top is not None:
            yield names[top] + key.removeprefix(top), _TensorPart(array, None, array.shape)
        elif parts[0] != "transformer":
            yield ".".join(parts), _TensorPart(array, None, array.shape)
        elif parts[1] not in ("layers", "blocks"):
            yield ".".join(parts[1:]), _TensorPart(array, None, array.shape)
        elif parts[2] == "stacked":
            shape = _merged(parts, array.shape[1:])
            for i in range(array.shape[0] if array.shape else 0):
                yield f"{layers}.{i}." + ".".join(parts[3:]), _TensorPart(array, i, shape)
        else:  # transformer/layers/blocks/7/...
            shape = _merged(parts, array.shape)
            yield f"{layers}." + ".".join(parts[3:]), _TensorPart(array, None, shape)


def _merged(parts: list[str], shape: tuple[int, ...]) -> tuple[int, ...]:
    """A layer's shape with heads and their dimensions as one axis."""
    module, last = parts[-2:]
    if last == "bias" or module.endswith("norm"):
        return (math.prod(shape),)
    if len(shape) <= 2:
        return shape
    if module in _OUT_FIRST:
        return (shape[0], math.prod(shape[1:]))
    return (math.prod(shape[:-1]), shape[-1])
