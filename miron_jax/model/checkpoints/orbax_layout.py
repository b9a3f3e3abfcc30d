"""Structure of an Orbax checkpoint on disk: its items, and the keys, shapes and dtypes of its
arrays.

Arrives: a checkpoint's folder.  Leaves: `StoredArray`s by key.  It deliberately does not read the
arrays.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from miron_jax.errors import InputError, some_of
from miron_jax.files.readers import parse_json, shown
from miron_jax.model.checkpoints.array_tree import sizes_fit
from miron_jax.model.checkpoints.remote import is_remote
from miron_jax.runtime.devices import Tree

TREE_FILE = "_METADATA"  # every checkpoint has one
COMMITTED = "commit_success.txt"
UNFINISHED = ".orbax-checkpoint-tmp"
# Folders in a checkpoint that may hold the tree: those of CheckpointManager and orbax v1, and
# common names of an item
ITEMS = ("default", "state", "pytree", "params", "model", "model_params", "items", "train_state")
# usual prefixes of the weights in a tree
ROOTS = ("", "params/", "params/params/", "model/", "transformer/")
SAVE = (
    "save nnx.to_pure_dict(state) of a Decoder with orbax.checkpoint, or name the folder of one "
    "step"
)


class StoredArray(NamedTuple):
    """One array as the checkpoint's metadata describes it."""

    shape: tuple[int, ...]
    dtype: str
    path: tuple[str, ...]  # in the tree; a part of it may hold slashes
    # for each part of the path: length of the list that it indexes, 0 for a dict
    lists: tuple[int, ...]


def is_checkpoint(folder: Path, params_key: str | None = None) -> bool:
    """Whether the folder is a finished Orbax checkpoint, with an item of a usual name or that of
    `params_key`.  An object store cannot rename a folder: there a file marks the end of the
    writing."""
    item = find_item(folder, params_key)
    if item is None or not is_remote(folder):
        return item is not None
    return any((parent / COMMITTED).is_file() for parent in (item, folder))


def weight_keys(folder: Path, keys: Iterable[str], leaf_names: Iterable[str]) -> dict[str, str]:
    """Name -> key of every array of the subtree that holds most of the leaf names.

    A key is prefix + name + suffix: the prefix is the path of the subtree, the suffix is "/value"
    if nnx variables were saved without to_pure_dict.  Of several such subtrees the one below
    `params` counts.  Raises InputError if that leaves more than one.
    """
    counts = Counter(
        (key[: -len(name + suffix)], suffix)
        for suffix in ("", "/value")
        for name in leaf_names
        for key in keys
        if f"/{key}".endswith(f"/{name}{suffix}")
    )
    highest = max(counts.values(), default=0)
    best = sorted(affixes for affixes, count in counts.items() if count == highest) or [("", "")]
    usual = [(prefix, suffix) for prefix, suffix in best if prefix in ROOTS]
    if len(best) > 1 and len(usual) != 1:
        raise InputError(
            f"{folder}: holds the weights in {listed(prefix or 'the top' for prefix, _ in best)}, "
            "expected them once, or once below params; say with --params_key which to score"
        )
    prefix, suffix = best[0] if len(best) == 1 else usual[0]
    names: dict[str, str] = {}
    for key in keys:
        if key.startswith(prefix) and key.endswith(suffix):
            names[key.removeprefix(prefix).removesuffix(suffix)] = key
    return names


def find_item(folder: Path, params_key: str | None = None) -> Path | None:
    """The folder of the tree: the item with which `params_key` begins, or else the checkpoint's
    folder or a folder in it; None if there is no tree."""
    named = path_of(params_key)[:1]
    for path in (*map(folder.joinpath, named), folder, *map(folder.joinpath, ITEMS)):
        if (path / TREE_FILE).is_file():
            return path
    return None


def path_of(params_key: str | None) -> tuple[str, ...]:
    """The parts of --params_key."""
    return tuple(filter(None, (params_key or "").split("/")))


def item_of(folder: Path, params_key: str | None = None) -> Path:
    """The folder of the tree in a finished checkpoint.  Raises InputError for any other folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected an Orbax checkpoint; check the path")
    if UNFINISHED in folder.name:
        raise InputError(
            f"{folder}: is still being written, or was given up by its writer, expected a finished "
            "Orbax checkpoint; name another step"
        )
    item = find_item(folder, params_key)
    items = sorted(path.parent.name for path in folder.glob(f"*/{TREE_FILE}"))
    if item is None and items:
        raise InputError(
            f"{folder} holds the items {listed(items)}, expected one of a usual name: say which "
            f"has the weights, such as --params_key={items[0]}"
        )
    if item is None:
        raise InputError(
            f"{folder}: holds {listed(path.name for path in folder.iterdir())} and no {TREE_FILE}, "
            f"expected a finished Orbax checkpoint; {SAVE}"
        )
    return item


def stored_arrays(item: Path) -> dict[str, StoredArray]:
    """Key -> description of every array, from the metadata alone.  Raises InputError for a damaged
    checkpoint."""
    check_chunks(item)
    try:
        metadata = ocp.PyTreeCheckpointHandler().metadata(epath.Path(item.absolute()))
        return dict(_flattened(getattr(metadata, "tree", metadata)))
    # Orbax builds its records from JSON, and damaged JSON may raise errors of any class
    except Exception as error:
        raise damaged(item, error) from None


def check_chunks(item: Path) -> None:
    """Raises InputError for chunks larger than their array."""
    for path in item.glob("*/.zarray"):
        try:
            fields = parse_json(path.read_bytes())
            shape = fields["shape"]
            chunks = fields["chunks"]
            fits = sizes_fit(shape, chunks)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise damaged(path, error) from None
        if not fits:
            raise InputError(
                f"{path}: shape is {shown(shape)} and chunks {shown(chunks)}, expected as many "
                "whole numbers, chunks no larger than the array; copy or save the checkpoint again"
            )


def _flattened(
    tree: Tree, keys: tuple[str, ...] = (), lists: tuple[int, ...] = ()
) -> Iterable[tuple[str, StoredArray]]:
    if isinstance(tree, Mapping):
        for key, subtree in tree.items():
            yield from _flattened(subtree, (*keys, str(key)), (*lists, 0))
    elif isinstance(tree, list | tuple):
        for i, subtree in enumerate(tree):
            yield from _flattened(subtree, (*keys, str(i)), (*lists, len(tree)))
    else:  # a leaf that is no array has neither shape nor dtype
        shape = tuple(getattr(tree, "shape", None) or ())
        dtype = getattr(tree, "dtype", None)
        dtype = "no array" if dtype is None else np.dtype(dtype).name
        yield "/".join(keys), StoredArray(shape, dtype, keys, lists)


def damaged(folder: Path, error: Exception) -> InputError:
    """The error to raise for a checkpoint that Orbax cannot read."""
    reason = " ".join(str(error).split())
    return InputError(
        f"{folder}: Orbax cannot read it ({reason:.200}), expected a whole checkpoint; copy or "
        "save it again"
    )


def listed(names: Iterable[str]) -> str:
    """The first three names in order, and the number of the others."""
    return some_of(sorted(names), 3) or "nothing"
