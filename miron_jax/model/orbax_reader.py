"""An Orbax checkpoint -> the decoder's weights.

Arrives: a checkpoint folder and the ModelConfig it belongs to.  Leaves: a state that fits `decoder.abstract`, as
hf_reader leaves it.  It deliberately does not know config.json, tokenizers, meshes or optimizers.

The tree on disk holds a Decoder's state, as `nnx.to_pure_dict` gives it or with nnx's level of `value` below each name, at
the top or below other names (`params`), with anything beside it (an optimizer's state is never read); or it has MaxText's
names, or the user's own (`param_map.py`).  Orbax hands a
placeholder back, without a word, for a key that a checkpoint lacks: so keys, shapes and kinds of number are compared here
before an array is read.  The format is JSON and arrays; nothing is ever unpickled.
"""

import ctypes
import difflib
import gc
import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.typing import DTypeLike

from miron_jax.errors import InputError
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import abstract, leaf_name
from miron_jax.model.hf_reader import Put, on_default_device
from miron_jax.model.orbax_layout import Stored, damaged, item_of, listed, place_of, stored_arrays
from miron_jax.model.param_map import Mapped, is_maxtext, maxtext_map, users_map

_DATA_FOLDER, _MANIFEST = "d", "manifest.ocdbt"  # all arrays in a few files, and what tells where each one lies
_FLOATS = ("float64", "float32", "float16", "bfloat16")


def load_orbax(
    folder: Path,
    config: ModelConfig,
    dtype: DTypeLike,
    param_map: str | None = None,
    put: Put = on_default_device,
) -> Any:
    """Weights as an nnx.State, matrices in `dtype`, norms and biases in float32.  MaxText's trees are known; `param_map`
    names the arrays of any other.  `put` places each leaf; without it all go to the default device."""
    described = "that config.json describes; use the config.json of this checkpoint"
    return _load(folder, abstract(config, dtype)[1], described, param_map, config, put)


def load_tree(folder: Path, tree: Any, param_map: str | None = None) -> Any:
    """The same of any tree of arrays or shapes: nnx.State, Linen's variables.  Leaves come back in the tree's dtypes."""
    described = "of the model's params; check the model's sizes"
    return _load(folder, tree, described, param_map, None, on_default_device)


def _load(folder: Path, tree: Any, described: str, param_map: str | None, config: ModelConfig | None, put: Put) -> Any:
    item = item_of(folder)
    stored = stored_arrays(item)
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
    wanted = {leaf_name(path): jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for path, leaf in leaves}
    if param_map is not None:
        shapes = {name.removesuffix("/value"): own.shape for name, own in stored.items()}
        mapping = users_map(param_map, shapes, {path: leaf.shape for path, leaf in wanted.items()}, config is not None)
        mapping = _below_root(mapping, shapes)
        arrays = _restore_mapped(folder, item, stored, wanted, mapping, put)
    elif config is not None and is_maxtext(stored):
        rounded = jnp.asarray(config.embedding_scale, jax.tree.leaves(tree)[0].dtype)
        scale = float(rounded) if config.embedding_scale_rounded else config.embedding_scale
        arrays = _restore_mapped(folder, item, stored, wanted, maxtext_map(folder, config, stored, scale), put)
    else:
        place = place_of(folder, stored, wanted)
        inside = {key.removeprefix(place.above).removesuffix(place.below): key for key in stored if place.holds(key)}
        _check_keys(folder, inside, wanted, described)
        for path, leaf in wanted.items():
            _check_array(folder, path, stored[inside[path]], leaf)
        arrays = _restore(folder, item, stored, wanted, inside, put)
    return jax.tree_util.tree_unflatten(treedef, [arrays[path] for path in wanted])


def _below_root(mapping: Mapping[str, Mapped], names: Iterable[str]) -> dict[str, Mapped]:
    """The map's names as they stand in the tree, where all of them stand below `params` or the like."""
    there = set(names)
    for root in ("", "params/", "params/params/", "model/"):
        if all(root + piece.name in there for own in mapping.values() for piece in own.pieces):
            return {
                leaf: Mapped(tuple(piece._replace(name=root + piece.name) for piece in own.pieces), own.change)
                for leaf, own in mapping.items()
            }
    return dict(mapping)


def _restore_mapped(
    folder: Path,
    item: Path,
    stored: Mapping[str, Stored],
    wanted: Mapping[str, jax.ShapeDtypeStruct],
    mapping: Mapping[str, Mapped],
    put: Put,
) -> dict[str, jax.Array]:
    """Every wanted leaf, put together from where it is mapped to; all names are checked first."""
    absent = sorted(set(wanted) - set(mapping))
    if absent:
        raise InputError(
            f"{folder}: config.json asks for {listed(absent)}, which such a tree has no place for; use the config.json of "
            "this checkpoint"
        )
    used = {piece.name for path in wanted for piece in mapping[path].pieces}
    on_disk = {name.removesuffix("/value"): name for name in stored}
    for name in sorted(used):
        if name not in on_disk:
            close = difflib.get_close_matches(name, list(on_disk), n=3, cutoff=0.3) or sorted(on_disk)[:3]
            raise InputError(
                f"{folder}: has no array {name} (closest: {', '.join(close)}); mend the name, or config.json"
            )
        _check_floats(folder, name, stored[on_disk[name]])
    tops = {_top(name, used) for name in used}
    left = [name for name in on_disk if name not in used and _top(name, used) in tops]
    if left:
        raise InputError(
            f"{folder}: has {listed(left)} besides, which nothing is mapped to and which may change the scores; use the "
            "config.json of this checkpoint, or map them"
        )
    arrays = {}
    for path in sorted(wanted, key=lambda path: -math.prod(wanted[path].shape)):
        arrays[path] = put(path, _put_together(folder, item, stored, on_disk, path, wanted[path], mapping[path]))
        _give_back()
    return arrays


def _top(name: str, used: set[str]) -> str:
    """What a name begins with below what all used names begin with: an optimizer's state has another one."""
    common = os.path.commonpath(used)
    return name.removeprefix(common).strip("/").partition("/")[0] if name.startswith(common) else f"beside {common}"


def _put_together(
    folder: Path,
    item: Path,
    stored: Mapping[str, Stored],
    on_disk: Mapping[str, str],
    path: str,
    leaf: jax.ShapeDtypeStruct,
    mapped: Mapped,
) -> np.ndarray:
    """One leaf on the host."""
    host: Any = np.empty(leaf.shape, leaf.dtype)
    first, *more = mapped.pieces
    slots = list(host) if more or first.axis is not None else [host]
    by_name: dict[str, list[int]] = {}
    for slot, piece in enumerate(mapped.pieces):
        by_name.setdefault(piece.name, []).append(slot)
    for name, own in by_name.items():
        key = on_disk[name]
        with _checkpointer() as checkpointer:
            array: Any = _read(checkpointer, folder, item, key, stored[key])
        axis = mapped.pieces[own[0]].axis
        if axis is not None and (axis >= array.ndim or array.shape[axis] != len(own)):
            raise InputError(
                f"{folder}: {name} has shape {list(array.shape)}, expected {len(own)} layers along axis {axis}; use the "
                "config.json of this checkpoint, or mend the map"
            )
        for slot in own:
            index = mapped.pieces[slot].index
            part = array if axis is None else np.take(array, index, axis)
            part = mapped.change(part.astype(np.float32))
            if not _only_merges(part.shape, slots[slot].shape):
                raise InputError(
                    f"{folder}: {name} gives {list(part.shape)} for {path}, expected {list(slots[slot].shape)}; use the "
                    "config.json that belongs to this checkpoint"
                )
            slots[slot][...] = part.reshape(slots[slot].shape)
    return host


def _only_merges(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether each wanted axis is one of what is found, or neighbours together: (D, N, H) for (D, N * H), never (H, D)."""
    ends = set(np.cumprod(found).tolist())
    return math.prod(found) == math.prod(wanted) and set(np.cumprod(wanted).tolist()) <= ends


def _check_keys(folder: Path, found: Mapping[str, str], wanted: Mapping[str, Any], described: str) -> None:
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or extra:
        raise InputError(
            f"{folder}: lacks {listed(missing)} and has {listed(extra)} besides, expected the {len(wanted)} arrays "
            f"{described}, save the model's weights alone, or say with --param_map where each lies"
        )


def _check_array(folder: Path, path: str, stored: Stored, leaf: jax.ShapeDtypeStruct) -> None:
    _check_floats(folder, path, stored)
    if stored.shape != leaf.shape:
        raise InputError(
            f"{folder}: {path} has shape {list(stored.shape)}, expected {list(leaf.shape)}; use the config.json, or the "
            "model, that belongs to this checkpoint"
        )


def _check_floats(folder: Path, path: str, stored: Stored) -> None:
    if stored.dtype not in _FLOATS:
        raise InputError(
            f"{folder}: {path} holds {stored.dtype}, expected one of {', '.join(_FLOATS)}; save the weights unquantized"
        )


def _restore(
    folder: Path,
    item: Path,
    stored: Mapping[str, Stored],
    wanted: Mapping[str, jax.ShapeDtypeStruct],
    inside: Mapping[str, str],
    put: Put,
) -> dict[str, jax.Array]:
    """Every wanted leaf, which the checkpoint has under the name that `inside` gives, whole and in its wanted dtype.

    One at a time: the host holds one leaf beyond what the device keeps, and where an array is damaged no other is on its
    way, whose failure asyncio would print.
    """
    if (item / _DATA_FOLDER).is_dir() and not (item / _MANIFEST).is_file():
        raise damaged(folder, FileNotFoundError(f"{_MANIFEST} is missing"))
    arrays = {}
    with _checkpointer() as checkpointer:
        # Largest first: what reading one takes beside the leaf itself is then smallest where most leaves are there.
        for path, leaf in sorted(wanted.items(), key=lambda item: -math.prod(item[1].shape)):
            array = _read(checkpointer, folder, item, inside[path], stored[inside[path]])
            arrays[path] = jax.block_until_ready(put(path, array.astype(leaf.dtype, copy=False)))
            del array  # else it lives while the next leaf is read
            _give_back()
    return arrays


def _checkpointer() -> ocp.Checkpointer:
    """Of this process alone: by default Orbax waits for all processes of a job at each restore."""
    index = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"miron_jax_{index}"
    )
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _read(checkpointer: Any, folder: Path, item: Path, path: str, stored: Stored) -> np.ndarray:
    """One array as it is stored."""
    leaf = jax.ShapeDtypeStruct(stored.shape, np.dtype(stored.dtype))
    try:
        tree = checkpointer.restore(item.absolute(), args=_only(path, leaf, stored.lists))
    except Exception as error:  # as above
        raise damaged(folder, error) from None
    array = _at(tree, path, stored.lists)
    assert isinstance(array, np.ndarray), "the keys were compared before"
    return array


def _give_back() -> None:
    """Freed memory goes back to the system: what glibc keeps of the buffers that leaves are decoded in would stay resident,
    up to a third of a checkpoint.  Orbax leaves some in cycles, which are young."""
    gc.collect(1)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # musl has none
        trim(0)


def _only(path: str, leaf: jax.ShapeDtypeStruct, lists: tuple[int, ...]) -> ocp.args.PyTreeRestore:
    as_numpy = _nested(path, ocp.RestoreArgs(restore_type=np.ndarray), lists)
    return ocp.args.PyTreeRestore(item=_nested(path, leaf, lists), restore_args=as_numpy, partial_restore=True)


def _nested(path: str, leaf: Any, lists: tuple[int, ...]) -> Any:
    """("blocks/1/q", x) -> {"blocks": [None, {"q": x}]} where there is a list of two."""
    for key, length in zip(reversed(path.split("/")), reversed(lists), strict=True):
        leaf = [leaf if str(i) == key else None for i in range(length)] if length else {key: leaf}
    return leaf


def _at(tree: Any, path: str, lists: tuple[int, ...]) -> Any:
    for key, length in zip(path.split("/"), lists, strict=True):
        tree = tree[int(key) if length else key]
    return tree
