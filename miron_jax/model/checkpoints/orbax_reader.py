"""Weights of an Orbax checkpoint.

Arrives: a checkpoint folder and the ModelConfig of its model, or a tree of shapes.  Leaves: a state
with the structure of `decoder.abstract`, or of the tree.  It deliberately does not know
config.json, tokenizers, meshes or optimizers.

The tree on disk holds a Decoder's state as `nnx.to_pure_dict` returns it, or with nnx's level of
`value` below each name, anywhere in the tree (`orbax_weights.py`); the rest, such as an optimizer's
state, is never read.  A tree may also have MaxText's names (`maxtext_map.py`) or the user's own
(`param_map.py`).  Orbax silently returns a placeholder for a key that a checkpoint lacks, so keys,
shapes and dtypes are compared here before an array is read.  The format is JSON and arrays; nothing
is ever unpickled.
"""

import difflib
import gc
import math
import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.typing import DTypeLike

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.hf_reader import Put, on_default_device
from miron_jax.model.checkpoints.maxtext_map import is_maxtext, maxtext_map
from miron_jax.model.checkpoints.maxtext_settings import is_maxtext_config, maxtext_settings
from miron_jax.model.checkpoints.orbax_layout import (
    ITEMS,
    StoredArray,
    arrays_of,
    damaged,
    listed,
    named_items,
    path_of,
)
from miron_jax.model.checkpoints.orbax_weights import ROOTS, Weights, weights_of
from miron_jax.model.checkpoints.param_map import Mapped, users_map
from miron_jax.model.checkpoints.presets import IGNORED, PRESETS
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import abstract, leaf_name
from miron_jax.model.network import is_key
from miron_jax.runtime.devices import Tree, return_freed_memory
from miron_jax.runtime.progress import SILENT, Progress

_DATA_FOLDER, _MANIFEST = "d", "manifest.ocdbt"  # files that hold all arrays, and their index
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_INTEGERS = ("int32", "int64", "uint32", "uint64")  # smaller ones may be quantized weights
USE_ITS_CONFIG = "use the config.json of this checkpoint"
UNREAD_OF_MAXTEXT = (
    "its param_scan_axis is to stand in the file of --param_map, and a MaxText tree with fused "
    "kernels (fused_qkv, fused_mlp) is not read: convert it with MaxText's to_huggingface.py"
)

_Leaves = Mapping[str, jax.ShapeDtypeStruct]
_ReadLeaf = Callable[[ocp.Checkpointer, str], np.ndarray]  # name of a leaf -> the leaf on the host


def load_orbax(
    folder: Path,
    config: ModelConfig,
    dtype: DTypeLike,
    param_map: str | None = None,
    put: Put = on_default_device,
    params_key: str | None = None,
    progress: Progress = SILENT,
) -> Tree:
    """Weights of a Decoder as an nnx.State, matrices in `dtype`, norms and biases in float32.

    `param_map` names the arrays of a tree that is neither a Decoder's nor MaxText's, or MaxText's
    config, for which `config` is a `maxtext_config`.  `put` copies each leaf to its devices.
    Weights are looked for below the path `params_key` of the tree alone, if one is given.  Raises
    InputError for a checkpoint that is damaged or does not fit the config.
    """
    tree = abstract(config, dtype)[1]
    return _load(folder, tree, param_map, config, put, params_key, progress)


def load_tree(
    folder: Path,
    tree: Tree,
    param_map: str | None = None,
    params_key: str | None = None,
    put: Put = on_default_device,
    progress: Progress = SILENT,
) -> Tree:
    """Weights of any model, with the structure, shapes and dtypes of `tree`: an nnx.State, Linen's
    variables, ...

    Its random keys and their counts are kept as they are (zeros, where it has their shapes alone):
    the scores of a model in evaluation mode do not depend on them.  Raises InputError as
    `load_orbax` does.
    """
    return _load(folder, tree, param_map, None, put, params_key, progress)


def _load(
    folder: Path,
    tree: Tree,
    param_map: str | None,
    config: ModelConfig | None,
    put: Put,
    params_key: str | None,
    progress: Progress,
) -> Tree:
    checkpoint = _checkpoint_of(folder, params_key, progress)
    flat, treedef = jax.tree_util.tree_flatten_with_path(tree)
    named = {leaf_name(path): leaf for path, leaf in flat}
    random = _random_state(named)
    leaves = {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        for name, leaf in named.items()
        if name not in random
    }
    keys = checkpoint.keys
    config_file = param_map if is_maxtext_config(param_map) else None
    if config_file is not None and (config is None or not is_maxtext(keys)):
        raise InputError(
            f"--param_map={param_map}: names a MaxText config, but {folder} holds no MaxText tree "
            "of a known architecture, expected one: leave the flag out, or name where the arrays "
            "are in a JSON file"
        )
    if param_map is not None and config_file is None:
        shapes = {name: checkpoint.arrays[key].shape for name, key in keys.items()}
        mapping = users_map(
            param_map, shapes, {name: leaf.shape for name, leaf in named.items()}, config, random
        )
        mapping, root = _below_root(mapping, keys)
        remedy = "mend the map, or config.json"
        if param_map in PRESETS:
            remedy = USE_ITS_CONFIG
        else:
            root = None
        read = _mapped_reader(checkpoint, leaves, mapping, remedy, root)
    elif config is not None and is_maxtext(keys):
        rounded = jnp.asarray(config.embedding_scale, jax.tree.leaves(tree)[0].dtype)
        scale = float(rounded) if config.embedding_scale_rounded else config.embedding_scale
        settings = None
        if config_file is not None:
            settings = maxtext_settings(config_file, config.family)
        if settings is not None and settings.assumed:
            progress.say(
                f"--param_map={config_file}: MaxText's defaults are taken for what it lacks: "
                f"{', '.join(settings.assumed)}"
            )
        mapping = maxtext_map(folder, config, keys, scale, settings)
        read = _mapped_reader(checkpoint, leaves, mapping, f"{USE_ITS_CONFIG}; {UNREAD_OF_MAXTEXT}")
    else:
        source = (
            "of the model's params; check the model's sizes, give the factory's params all that "
            "its scores depend on"
        )
        if config is not None:
            source = "that config.json describes; use the config.json of this checkpoint"
        read = _plain_reader(checkpoint, leaves, source)
    arrays = random | _restore(leaves, read, put)
    return jax.tree_util.tree_unflatten(treedef, [arrays[name] for name in named])


def _random_state(leaves: Mapping[str, Tree]) -> dict[str, jax.Array]:
    """The leaves that hold random keys, and nnx's counts beside them: .../key and .../count."""
    names = {name for name, leaf in leaves.items() if is_key(leaf)}
    counts = {f"{name.removesuffix('key')}count" for name in names if name.endswith("key")}
    return {
        name: jnp.zeros(leaf.shape, leaf.dtype)
        if isinstance(leaf, jax.ShapeDtypeStruct)
        else jnp.asarray(leaf)
        for name, leaf in leaves.items()
        if name in names | counts
    }


@dataclass(frozen=True, slots=True)
class _OrbaxTree:
    folder: Path  # as the user names it, for messages
    root: str  # of all keys: the path of --params_key, or ""
    arrays: Mapping[str, StoredArray]  # by key: their path, without that of --params_key
    everything: Mapping[str, StoredArray]  # and those of other items, if there are any
    home: str  # what `everything` has before the keys of `arrays`
    progress: Progress

    @property
    def keys(self) -> dict[str, str]:
        """Name of an array without nnx's level of `value` -> its key."""
        return {key.removesuffix("/value"): key for key in self.arrays}

    def check_floats(self, name: str, stored: StoredArray) -> None:
        """Raises InputError for an array that holds no floats."""
        if stored.dtype not in _FLOATS:
            raise InputError(
                f"{self.folder}: {name} holds {stored.dtype}, expected one of "
                f"{', '.join(_FLOATS)}; save the weights unquantized"
            )

    def without_integers(self, keys: Mapping[str, str]) -> list[str]:
        """The sorted names (of name -> key) whose arrays hold no integers; a line tells of the
        others: random keys and counts, which are no weights."""
        rest = sorted(name for name in keys if self.arrays[keys[name]].dtype not in _INTEGERS)
        if integers := keys.keys() - rest:
            self.progress.say(
                f"{self.folder}: integers beside the weights, such as random keys, are not read: "
                f"{listed(integers)}"
            )
        return rest

    def tell(self, weights: Weights, integers: Sequence[str]) -> None:
        """Name where the weights are, what else the tree holds and, so that nobody misses them,
        averages."""
        where = f"{self.root}{weights.prefix}".strip("/")
        place = f"below {where}" if where else "at the top"
        if besides := [*weights.besides, *integers]:
            self.progress.say(f"{self.folder}: the weights {place} are read, not {listed(besides)}")
        if weights.copies:
            first = f"{self.root}{min(weights.copies)}".rstrip("/")
            self.progress.warn(
                f"{self.folder}: the weights {place} are read, and the same names stand in "
                f"{listed(weights.copies)} too: --params_key={first} scores those"
            )

    def read(self, checkpointer: ocp.Checkpointer, stored: StoredArray) -> np.ndarray:
        """One array on the host, in its stored dtype.  Raises InputError if it is damaged."""
        parts = stored.path
        as_numpy = _nested(parts, ocp.RestoreArgs(restore_type=np.ndarray), stored.lists)
        request = _nested(
            parts, jax.ShapeDtypeStruct(stored.shape, np.dtype(stored.dtype)), stored.lists
        )
        arguments = ocp.args.PyTreeRestore(
            item=request, restore_args=as_numpy, partial_restore=True
        )
        try:
            tree: Tree = checkpointer.restore(stored.item.absolute(), args=arguments)
        # Orbax and tensorstore raise errors of any class for damaged files
        except Exception as error:
            raise damaged(self.folder, error) from None
        for part, siblings in zip(parts, stored.lists, strict=True):
            tree = tree[int(part) if siblings else part]
        assert isinstance(tree, np.ndarray), (
            "Orbax returns a placeholder for a missing key, but all keys were checked"
        )
        return tree


def _checkpoint_of(folder: Path, params_key: str | None, progress: Progress) -> _OrbaxTree:
    """The checkpoint, or what of it lies below --params_key, which may begin with an item's name.
    Raises InputError if nothing does."""
    items = named_items(folder, params_key)
    root = path_of(params_key)
    if root and items == [folder / root[0]]:
        root = root[1:]
    everything = arrays_of(items)
    home = ""
    if len(items) > 1 and items[0].name in ITEMS:
        home = f"{items[0].name}/"
    arrays = _below(everything, home)
    if params_key is None:
        return _OrbaxTree(folder, "", arrays, everything, home, progress)
    below = _below(arrays, "".join(f"{part}/" for part in root))
    if not below:
        tops = listed({key.partition("/")[0] for key in arrays})
        raise InputError(
            f"--params_key={params_key}: {folder} holds nothing below it, expected a path in its "
            f"tree of {tops}"
        )
    place = f"{'/'.join(path_of(params_key))}/"
    return _OrbaxTree(folder, place, below, below, "", progress)


def _below(arrays: Mapping[str, StoredArray], prefix: str) -> dict[str, StoredArray]:
    """The arrays whose keys have the prefix, by the rest of their keys."""
    return {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }


def _nested(parts: Sequence[str], leaf: Tree, lists: Sequence[Sequence[Tree]]) -> Tree:
    """(["blocks", "1", "q"], x) -> {"blocks": [None, {"q": x}]}, where the list has a length of
    two."""
    for part, siblings in zip(reversed(parts), reversed(lists), strict=True):
        if siblings:
            position = int(part)
            leaf = [*siblings[:position], leaf, *siblings[position + 1 :]]
        else:
            leaf = {part: leaf}
    return leaf


def _restore(leaves: _Leaves, read: _ReadLeaf, put: Put) -> dict[str, jax.Array]:
    """Every leaf on its devices.

    One leaf at a time: the host holds at most one beyond the copies.  Parallel reads would also
    print the errors of all others when one array is damaged.
    """
    arrays = {}
    with _checkpointer() as checkpointer:
        # Largest first: the additional memory of a read is then smallest when most leaves are
        # loaded.
        for name in sorted(leaves, key=lambda name: -math.prod(leaves[name].shape)):
            arrays[name] = jax.block_until_ready(put(name, read(checkpointer, name)))
            # Orbax leaves some buffers in reference cycles, which are young
            gc.collect(1)
            return_freed_memory()
    return arrays


def _checkpointer() -> ocp.Checkpointer:
    """A checkpointer of this process alone: by default Orbax waits for all processes of a job at
    each restore."""
    index = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"miron_jax_{index}"
    )
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _plain_reader(checkpoint: _OrbaxTree, leaves: _Leaves, source: str) -> _ReadLeaf:
    """A function that reads the array with the name of a leaf.

    Raises InputError, which names the `source` of the leaves, unless all names, shapes and dtypes
    fit.
    """
    arrays = checkpoint.everything
    weights = weights_of(checkpoint.folder, arrays, leaves, checkpoint.home)
    missing = sorted(leaves.keys() - weights.keys.keys())
    extra: list[str] = []
    integers: list[str] = []
    for name, key in sorted(weights.extra.items()):
        if arrays[key].dtype in _INTEGERS:
            integers.append(weights.prefix + name)
        else:
            extra.append(name)
    faults = [f"lacks {listed(missing)}"] if missing else []
    if extra:
        faults.append(f"has {listed(extra)} besides")
    if faults:
        raise InputError(
            f"{checkpoint.folder}: {' and '.join(faults)}, expected the {len(leaves)} arrays "
            f"{source}, save the model's weights alone, or say with --param_map where each lies, "
            "or with --params_key below what"
        )
    items: set[Path] = set()
    for name, leaf in leaves.items():
        stored = arrays[weights.keys[name]]
        items.add(stored.item)
        checkpoint.check_floats(name, stored)
        if stored.shape != leaf.shape:
            raise InputError(
                f"{checkpoint.folder}: {name} has shape {list(stored.shape)}, expected "
                f"{list(leaf.shape)}; use the config.json, or the model, that belongs to this "
                "checkpoint"
            )
    for item in items:
        if (item / _DATA_FOLDER).is_dir() and not (item / _MANIFEST).is_file():
            raise damaged(checkpoint.folder, FileNotFoundError(f"{_MANIFEST} is missing"))
    checkpoint.tell(weights, integers)

    def read(checkpointer: ocp.Checkpointer, name: str) -> np.ndarray:
        host = checkpoint.read(checkpointer, arrays[weights.keys[name]])
        return host.astype(leaves[name].dtype, copy=False)

    return read


def _mapped_reader(
    checkpoint: _OrbaxTree,
    leaves: _Leaves,
    mapping: Mapping[str, Mapped],
    remedy: str,
    root: str | None = None,
) -> _ReadLeaf:
    """A function that reads a leaf from the arrays of its mapping.

    `remedy`: what to do where the two do not fit.  `root`: what all arrays of the model begin with;
    None: those near the mapped ones are its own.  Raises InputError unless names and dtypes fit.
    """
    unmapped = sorted(set(leaves) - set(mapping))
    if unmapped:
        raise InputError(
            f"{checkpoint.folder}: config.json asks for {listed(unmapped)}, which such a tree has "
            "no place for; use the config.json of this checkpoint"
        )
    keys = checkpoint.keys
    used = {array.name for name in leaves for array in mapping[name].arrays}
    for name in sorted(used):
        if name not in keys:
            close = difflib.get_close_matches(name, list(keys), n=3, cutoff=0.3) or sorted(keys)[:3]
            raise InputError(
                f"{checkpoint.folder}: has no array {name} (closest: {', '.join(close)}); {remedy}"
            )
        checkpoint.check_floats(name, checkpoint.arrays[keys[name]])
    tops = {_top(name, used) for name in used}
    unused: dict[str, str] = {}
    for name in keys.keys() - used:
        is_below = _top(name, used) in tops
        if root is not None:
            is_below = name.startswith(root) and not re.fullmatch(IGNORED, name)
        if is_below:
            unused[name] = keys[name]
    if besides := checkpoint.without_integers(unused):
        raise InputError(
            f"{checkpoint.folder}: has {listed(besides)} besides, which nothing is mapped to and "
            f"which may change the scores; {remedy}"
        )
    return lambda checkpointer, name: _read_mapped(
        checkpoint, checkpointer, name, leaves[name], mapping[name], remedy
    )


def _below_root(
    mapping: Mapping[str, Mapped], names: Container[str]
) -> tuple[Mapping[str, Mapped], str]:
    """The mapping with the prefix, of `ROOTS`, below which the tree has most of its names, and that
    prefix."""
    mapped_names = [array.name for mapped in mapping.values() for array in mapped.arrays]
    root = max(ROOTS, key=lambda root: sum(root + name in names for name in mapped_names))
    below = {
        leaf: Mapped(
            tuple(array._replace(name=root + array.name) for array in mapped.arrays), mapped.change
        )
        for leaf, mapped in mapping.items()
    }
    return below, root


def _top(name: str, used: set[str]) -> str:
    """The part of a name that follows the common prefix of all used names.  An optimizer's state
    differs in it."""
    common = os.path.commonpath(used)
    if not name.startswith(common):
        return f"beside {common}"
    return name.removeprefix(common).strip("/").partition("/")[0]


def _read_mapped(
    checkpoint: _OrbaxTree,
    checkpointer: ocp.Checkpointer,
    leaf: str,
    target: jax.ShapeDtypeStruct,
    mapped: Mapped,
    remedy: str,
) -> np.ndarray:
    """One leaf on the host, in its shape and dtype.  Raises InputError for an array of another
    shape."""
    host = np.empty(target.shape, target.dtype)
    first, *others = mapped.arrays
    slices: list[Tree] = list(host) if others or first.axis is not None else [host]
    layers_of: dict[str, list[int]] = {}  # name of an array -> indices of its layers in the leaf
    for layer, layer_array in enumerate(mapped.arrays):
        layers_of.setdefault(layer_array.name, []).append(layer)
    for name, layers in layers_of.items():
        array = checkpoint.read(checkpointer, checkpoint.arrays[checkpoint.keys[name]])
        axis = mapped.arrays[layers[0]].axis
        if axis is not None and (axis >= array.ndim or array.shape[axis] != len(layers)):
            raise InputError(
                f"{checkpoint.folder}: {name} has shape {list(array.shape)}, expected "
                f"{len(layers)} layers along axis {axis}; {remedy}"
            )
        for layer in layers:
            part = array if axis is None else np.take(array, mapped.arrays[layer].index, axis)
            part = mapped.change(part.astype(np.float32))
            if not _only_merges(part.shape, slices[layer].shape):
                raise InputError(
                    f"{checkpoint.folder}: {name} gives {list(part.shape)} for {leaf}, expected "
                    f"{list(slices[layer].shape)}; use the config.json that belongs to this "
                    "checkpoint"
                )
            slices[layer][...] = part.reshape(slices[layer].shape)
    return host


def _only_merges(shape: tuple[int, ...], merged: tuple[int, ...]) -> bool:
    """Whether each axis of `merged` is one axis of `shape` or adjacent ones: (D, N * H) of (D, N,
    H), never (H, D)."""
    boundaries = set(np.cumprod(shape).tolist())
    return math.prod(shape) == math.prod(merged) and set(np.cumprod(merged).tolist()) <= boundaries
