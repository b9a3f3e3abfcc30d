"""The tree of an Orbax checkpoint, or the part of it that --params_key names.

Arrives: a checkpoint's folder.  Leaves: an `OrbaxTree`, which reads one array at a time.  It
deliberately does not know which arrays a model's leaves are read from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.orbax_layout import (
    ITEMS,
    StoredArray,
    arrays_of,
    damaged,
    listed,
    named_items,
    path_of,
)
from miron_jax.model.checkpoints.orbax_weights import Weights
from miron_jax.runtime.devices import Tree
from miron_jax.runtime.progress import Progress

_FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "uint32", "uint64")  # smaller ones may be quantized weights

Leaves = Mapping[str, jax.ShapeDtypeStruct]
ReadLeaf = Callable[[ocp.Checkpointer, str], np.ndarray]  # name of a leaf -> the leaf on the host


@dataclass(frozen=True, slots=True)
class OrbaxTree:
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

    def check_dtype(self, name: str, stored: StoredArray, leaf: jax.ShapeDtypeStruct) -> None:
        """Raises InputError for an array that holds no floats, or another dtype than a leaf that
        is none of floats either, such as a table of positions."""
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            if stored.dtype != leaf.dtype.name:
                raise InputError(
                    f"{self.folder}: {name} holds {stored.dtype}, expected the {leaf.dtype.name} "
                    "of the model's params; give the factory's params the dtype of the checkpoint"
                )
        elif stored.dtype not in _FLOATS:
            raise InputError(
                f"{self.folder}: {name} holds {stored.dtype}, expected one of "
                f"{', '.join(_FLOATS)}; save the weights unquantized"
            )

    def without_integers(self, keys: Mapping[str, str]) -> list[str]:
        """The sorted names (of name -> key) whose arrays hold no integers; a line tells of the
        others: random keys and counts, which are no weights."""
        rest = sorted(name for name in keys if self.arrays[keys[name]].dtype not in INTEGERS)
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


def checkpoint_of(folder: Path, params_key: str | None, progress: Progress) -> OrbaxTree:
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
        return OrbaxTree(folder, "", arrays, everything, home, progress)
    below = _below(arrays, "".join(f"{part}/" for part in root))
    if not below:
        tops = listed({key.partition("/")[0] for key in arrays})
        raise InputError(
            f"--params_key={params_key}: {folder} holds nothing below it, expected a path in its "
            f"tree of {tops}"
        )
    place = f"{'/'.join(path_of(params_key))}/"
    return OrbaxTree(folder, place, below, below, "", progress)


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
