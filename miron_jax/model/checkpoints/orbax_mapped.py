"""Leaves of a model from an Orbax tree with other names and shapes: the user's own, another
library's or MaxText's.

Arrives: an `OrbaxTree` and `Mapped` for each leaf.  Leaves: a function that reads one leaf.  It
deliberately does not know where a mapping comes from.
"""

import difflib
import math
import os
import re
from collections.abc import Container, Mapping

import jax
import numpy as np
import orbax.checkpoint as ocp

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.orbax_layout import listed
from miron_jax.model.checkpoints.orbax_tree import Leaves, OrbaxTree, ReadLeaf
from miron_jax.model.checkpoints.orbax_weights import ROOTS
from miron_jax.model.checkpoints.param_map import Mapped
from miron_jax.model.checkpoints.plausible import check_one_copy
from miron_jax.model.checkpoints.presets import IGNORED
from miron_jax.runtime.devices import Tree


def mapped_reader(
    checkpoint: OrbaxTree,
    leaves: Leaves,
    mapping: Mapping[str, Mapped],
    remedy: str,
    root: str | None = None,
) -> ReadLeaf:
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
    leaf_of = {array.name: leaf for name, leaf in leaves.items() for array in mapping[name].arrays}
    used = set(leaf_of)
    for name in sorted(used):
        if name not in keys:
            close = difflib.get_close_matches(name, list(keys), n=3, cutoff=0.3) or sorted(keys)[:3]
            raise InputError(
                f"{checkpoint.folder}: has no array {name} (closest: {', '.join(close)}); {remedy}"
            )
        checkpoint.check_dtype(name, checkpoint.arrays[keys[name]], leaf_of[name])
    shapes = [checkpoint.arrays[keys[name]].shape for name in used]
    check_one_copy(checkpoint.folder, shapes)
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


def below_root(
    mapping: Mapping[str, Mapped], names: Container[str]
) -> tuple[Mapping[str, Mapped], str]:
    """The mapping with the prefix, of `ROOTS`, below which the tree has most of its names, and that
    prefix."""
    mapped_names = [array.name for mapped in mapping.values() for array in mapped.arrays]
    root = max(ROOTS, key=lambda root: sum(root + name in names for name in mapped_names))
    below = {}
    for leaf, mapped in mapping.items():
        below[leaf] = Mapped(
            tuple(array._replace(name=root + array.name) for array in mapped.arrays), mapped.change
        )
    return below, root


def _top(name: str, used: set[str]) -> str:
    """The part of a name that follows the common prefix of all used names.  An optimizer's state
    differs in it."""
    common = os.path.commonpath(used)
    if not name.startswith(common):
        return f"beside {common}"
    return name.removeprefix(common).strip("/").partition("/")[0]


def _read_mapped(
    checkpoint: OrbaxTree,
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
