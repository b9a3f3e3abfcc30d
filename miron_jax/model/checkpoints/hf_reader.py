"""Weights of a Hugging Face folder (or hub id), read without torch.

Arrives: a folder with config.json and safetensors or Flax msgpack, in one file or several, or a
step of levanter or EasyDeL.  Leaves: `LoadedModel`, the model's config and a state with the
structure of `shapes_of`.  It deliberately does not know tokenizers, meshes or what the model
computes.

All names and shapes are checked against config.json before the first weight is read.  Then the host
reads one leaf at a time, layer after layer, and copies it to the device: it holds at most one leaf
beyond the copies, and beside it the stored array of levanter that stacks its layers.  Pickles
(.bin) are never opened.
"""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import DTypeLike

from miron_jax.errors import InputError, some_of
from miron_jax.files.hub import parse_name
from miron_jax.files.places import local_path
from miron_jax.model.checkpoints.array_tree import is_array_tree, sliceable, tree_tensors
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_files import Sliceable, Stored, stored_tensors
from miron_jax.model.checkpoints.step_names import step_of
from miron_jax.model.decoder.decoder import abstract, leaf_name
from miron_jax.model.families import tensor_names
from miron_jax.model.families.family import AnyModel, KnownModel
from miron_jax.model.families.family_model import FamilyModel
from miron_jax.model.families.naming import HEADS, PREFIXES, Tensor
from miron_jax.runtime.devices import Tree

Put = Callable[[str, np.ndarray], jax.Array]  # leaf name, host array -> the array on its devices


def on_default_device(path: str, host: np.ndarray) -> jax.Array:
    """The `Put` that copies every leaf to JAX's default device."""
    return jax.device_put(host)


class LoadedModel(NamedTuple):
    config: AnyModel
    # jax.Arrays with the structure of `shapes_of`: an nnx.State as nnx.split(Decoder) returns, or
    # dicts
    state: Tree


# Tensors that the decoder recomputes
_BUFFERS = re.compile(
    r"(.*\.)?(rotary_emb\.inv_freq|attn\.(masked_)?bias|attention\.(bias|masked_bias))"
)
# Tensors of a multimodal Gemma 3 that take no part in text
_VISION = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\..*")
STRIP = 64  # rows read at a time
_FLOATS = ("F64", "F32", "F16", "BF16")


def load_hf(
    folder: Path | str,
    dtype: DTypeLike,
    put: Put = on_default_device,
    config: KnownModel | None = None,
    params_key: str | None = None,
) -> LoadedModel:
    """Read a Hugging Face folder, or a step of levanter or EasyDeL: matrices in `dtype`, norms and
    biases in float32.

    `put` copies each leaf to its devices.  `config` is for a folder without config.json,
    `params_key` the path of the weights in a step.  Raises InputError for weights that are damaged
    or do not fit the config.
    """
    folder = Path(folder)
    config = config or from_hf_config(folder)
    assert config is not None
    with ExitStack() as files:
        if is_array_tree(folder):
            stored = tree_tensors(folder, config, params_key)
        else:
            stored = stored_tensors(folder, files)
        leaves, treedef = _leaves(folder, config, dtype, stored)
        for leaf in leaves:
            leaf.check(folder, stored)
        _check_unused(
            folder, config, stored, {name for leaf in leaves for name in leaf.tensor_names}
        )
        # Waiting for each copy frees the host's array before the next leaf is read.
        arrays = [jax.block_until_ready(put(leaf.path, leaf.read(stored))) for leaf in leaves]
    return LoadedModel(config, jax.tree_util.tree_unflatten(treedef, arrays))


def resolve_model(name: str, weights: bool = True) -> Path:
    """The local folder, or the folder of owner/name or owner/name@revision in the hub's cache,
    downloaded if it is absent.

    Raises InputError for a name that is neither.
    """
    local = local_path(name)
    if local.is_dir():
        return local
    if local.exists():
        raise InputError(
            f"--model={name}: is a file, expected the folder that holds config.json; name the "
            "folder"
        )
    if Path(f"{name}.py").is_file():
        raise InputError(
            f"--model={name}: {name}.py is here, so name its function too, such as "
            f"--model={name}:make"
        )
    is_step = step_of(local.name) is not None
    if is_step and local.parent != Path() and local.parent.is_dir():
        raise InputError(
            f"--model={name}: no such folder, though {local.parent} is here, expected a checkpoint "
            "that a trainer has not removed: name a step that is there"
        )
    return from_hub(name, "--model", weights)


def from_hub(name: str, flag: str, weights: bool, otherwise: str = "*.msgpack") -> Path:
    """The folder of `owner/name` or `owner/name@revision` in the hub's cache, downloaded if it is
    absent.

    Without `weights` only the config and the tokenizer are downloaded.  `otherwise`: files of the
    weights where there are no safetensors.  Raises InputError, which names `flag`, for every error
    of the hub.
    """
    repository = parse_name(name)
    if repository is None:
        raise InputError(
            f"{flag}={name}: no such folder, and not a hub id like owner/name or "
            "owner/name@revision; check the path"
        )
    from huggingface_hub import errors, snapshot_download

    small_files = ["*.json", "*.model", "*.jinja", "merges.txt", "vocab.txt"]

    def fetch(*patterns: str) -> Path:
        folder = snapshot_download(
            repository.id,
            revision=repository.revision,
            allow_patterns=[*small_files, *patterns],
            ignore_patterns=["*/*", "consolidated*"],
        )
        return Path(folder)

    try:
        if not weights:
            return fetch()
        folder = fetch("*.safetensors")
        return folder if any(folder.glob("*.safetensors")) else fetch(otherwise)
    except errors.GatedRepoError:
        why = (
            "the hub wants its licence accepted; accept it on the model's page and log in with `hf "
            "auth login`"
        )
    except errors.RevisionNotFoundError:
        why = (
            "the hub has the model, but not this revision; name one of its commits, tags or "
            "branches"
        )
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        why = "no such model on the hub (or it is private), and no such folder here; check the name"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        why = (
            "no such folder here, not in the hub's cache, and the hub is out of reach; name a "
            "local folder or go online"
        )
    except errors.HfHubHTTPError as error:
        why = (
            f"the hub answers: {' '.join(str(error).split())}; try again later or name a local "
            "folder"
        )
    raise InputError(f"{flag}={name}: {why}")


class _Leaf(NamedTuple):
    """One leaf of the decoder and the tensors that hold it."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype
    source: Tensor

    @property
    def is_stacked(self) -> bool:
        """Whether the first axis is that of layers."""
        return self.path.startswith("layers/") or self.source.layers is not None

    @property
    def tensor_names(self) -> list[str]:
        """Names in the checkpoint, of the first layer, then the next one, and so on."""
        layers = self.source.layers or range(self.shape[0] if self.is_stacked else 1)
        return [*chain.from_iterable(map(self.source.names, layers))]

    def check(self, folder: Path, stored: Mapping[str, Stored]) -> None:
        """Raises InputError for a tensor that is missing, has another shape, or holds no floats."""
        expected = self.source.stored_shape(self.shape[1:] if self.is_stacked else self.shape)
        for name in self.tensor_names:
            if name not in stored:
                raise _missing(folder, name, stored)
            tensor = stored[name]
            if tensor.shape != expected:
                raise InputError(
                    f"{tensor.file}: tensor {name} has shape {list(tensor.shape)}, config.json "
                    f"expects {list(expected)}; use the config.json that belongs to these weights"
                )
            if tensor.dtype not in _FLOATS:
                raise InputError(
                    f"{tensor.file}: tensor {name} holds {tensor.dtype}, expected one of "
                    f"{', '.join(_FLOATS)}; quantized weights are not read: use the unquantized "
                    "checkpoint"
                )

    def read(self, stored: Mapping[str, Stored]) -> np.ndarray:
        """The leaf on the host."""
        host = _aligned(self.shape, self.dtype)
        slices = list(host) if self.is_stacked else [host]
        if self.source.parts:
            slices = [*chain.from_iterable(slices)]
        tensor = sliceable(stored)
        for name, target in zip(self.tensor_names, slices, strict=True):
            _fill(target, self.source, tensor(name), stored[name].shape)
        return host


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array at a multiple of 64 bytes, which JAX takes over on a CPU without a copy."""
    num_bytes = math.prod(shape) * dtype.itemsize
    array = np.empty(num_bytes + 64, np.uint8)
    start = -array.ctypes.data % 64
    return array[start : start + num_bytes].view(dtype).reshape(shape)


def _leaves(
    folder: Path, config: KnownModel, dtype: DTypeLike, stored: Mapping[str, Stored]
) -> tuple[list[_Leaf], Tree]:
    """All leaves of the decoder with their tensors, and the structure of its state.

    The tensor names have the prefix that this checkpoint uses.  Raises InputError if no known
    prefix fits.
    """
    table = tensor_names(config)
    embedding = table["embedding_VD"].name
    prefix = next((p for p in PREFIXES if p + embedding in stored), None)
    if prefix is None:
        raise _missing(folder, PREFIXES[0] + embedding, stored)
    table = {path: replace(source, name=prefix + source.name) for path, source in table.items()}
    table |= {
        "head_VD": Tensor(f"{_head(stored)}.weight"),
        "head_bias_V": Tensor(f"{_head(stored)}.bias"),
    }
    state, treedef = jax.tree_util.tree_flatten_with_path(shapes_of(config, dtype))
    leaves: list[_Leaf] = []
    for path, leaf in state:
        name = leaf_name(path)
        leaves.append(_Leaf(name, leaf.shape, leaf.dtype, table[name]))
    return leaves, treedef


def shapes_of(config: KnownModel, dtype: DTypeLike) -> Tree:
    """The model's weights as ShapeDtypeStructs, its matrices in `dtype`."""
    return config.shapes(dtype) if isinstance(config, FamilyModel) else abstract(config, dtype)[1]


def _head(stored: Mapping[str, Stored]) -> str:
    return next((name for name in HEADS if f"{name}.weight" in stored), HEADS[0])


def _missing(folder: Path, name: str, stored: Mapping[str, Stored]) -> InputError:
    close = difflib.get_close_matches(name, list(stored), n=3, cutoff=0.4) or sorted(stored)[:3]
    return InputError(
        f"{folder}: no tensor {name}, which config.json asks for, or the family's default for a "
        f"field it lacks (closest: {', '.join(close) or 'none'}); config and weights belong to "
        "different models, or a file is missing: download both again"
    )


def _check_unused(
    folder: Path, config: KnownModel, stored: Mapping[str, Stored], used: set[str]
) -> None:
    """Raises InputError for a tensor that no leaf uses and that may change scores."""
    ignored = [_BUFFERS, _VISION] if config.family == "gemma3_text" else [_BUFFERS]
    if isinstance(config, FamilyModel) and config.ignored:
        ignored.append(re.compile(config.ignored))
    unused = sorted(
        name
        for name in stored
        if name not in used and not any(pattern.fullmatch(name) for pattern in ignored)
    )
    head = f"{_head(stored)}.weight"
    if config.tied_head and head in unused:
        embedding = next(
            name for name in used if name.endswith(tensor_names(config)["embedding_VD"].name)
        )
        _check_tied(head, embedding, stored)
        unused.remove(head)
    if unused:
        raise InputError(
            f"{folder}: tensors that a {config.family} model of this config.json has no place for: "
            f"{some_of(unused, 3)}; they would change the result: use the config.json that belongs "
            "to these weights"
        )


def _check_tied(head_name: str, embedding_name: str, stored: Mapping[str, Stored]) -> None:
    """Raises InputError if a stored head differs from the embedding that it is tied to.

    transformers 4 ties the two and transformers 5 does not, so such a checkpoint has no single
    meaning.
    """
    head = stored[head_name]
    embedding = stored[embedding_name]
    same = (head.shape, head.dtype) == (embedding.shape, embedding.dtype)
    if same:
        tensor = sliceable(stored)
        a = tensor(head_name)
        b = tensor(embedding_name)
        starts = range(0, head.shape[0], STRIP)  # in strips: the host never holds a whole table
        spans = [slice(start, min(start + STRIP, head.shape[0])) for start in starts]
        same = all(a[span].tobytes() == b[span].tobytes() for span in spans)
    if not same:
        raise InputError(
            f"{head.file}: {head_name} differs from {embedding_name}, but config.json says "
            f"tie_word_embeddings; set it to false to score with {head_name}, or remove the tensor "
            "to score with the embedding"
        )


def _fill(target: np.ndarray, source: Tensor, stored: Sliceable, shape: tuple[int, ...]) -> None:
    """Copy one stored tensor of this shape into the host array `target`, transposed and reordered
    as `source` says.

    In strips of stored rows: the host never holds a second whole table, and a transposition stays
    in the cache (three times faster at 4096 x 4096 than all at once, measured).
    """
    if target.ndim == 3 and shape[1] > 1:  # experts
        for i, matrix in enumerate(target):
            _fill(matrix, source, stored[i], shape[1:])
        return
    rows = target.T if source.transposed else target
    columns = None if source.columns is None else np.asarray(source.columns)
    if rows.ndim == 1:  # the only axis is that of columns
        rows[:] = stored[:] if columns is None else stored[:][columns]
        return
    for start in range(0, shape[0], STRIP):
        stop = min(start + STRIP, shape[0])
        if columns is None:
            rows[start:stop] = stored[start:stop].astype(target.dtype, copy=False)
        elif not source.transposed:
            rows[start:stop] = stored[start:stop][:, columns].astype(target.dtype, copy=False)
        else:  # the columns are rows of the stored tensor
            in_strip = np.flatnonzero((columns >= start) & (columns < stop))
            if len(in_strip):
                rows[in_strip] = stored[start:stop][columns[in_strip] - start].astype(
                    target.dtype, copy=False
                )
