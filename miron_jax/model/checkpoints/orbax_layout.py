"""Structure of an Orbax checkpoint on disk: its items, and the keys, shapes and dtypes of its
arrays.

Arrives: a checkpoint's folder.  Leaves: `StoredArray`s by key.  It deliberately does not read the
arrays.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts
from etils import epath

from miron_jax.errors import InputError, some_of
from miron_jax.files.readers import parse_json, shown
from miron_jax.files.regular import read_regular
from miron_jax.model.checkpoints.array_tree import sizes_fit
from miron_jax.model.checkpoints.remote import is_remote
from miron_jax.runtime.devices import Tree

TREE_FILE = "_METADATA"  # every checkpoint has one
_MANIFEST = "manifest.ocdbt"  # index of the database that holds all arrays, if there is one
# an array's description there has its path and one of these ends as key (Zarr 2 and 3)
_ARRAY_FILES = (b"/.zarray", b"/zarr.json")
NO_ARRAY = "no array"  # dtype of a leaf that is none
COMMITTED = "commit_success.txt"
UNFINISHED = ".orbax-checkpoint-tmp"
# Folders in a checkpoint that may hold the tree: those of CheckpointManager and orbax v1, and
# common names of an item
ITEMS = ("default", "state", "pytree", "params", "model", "model_params", "items", "train_state")
_STEP_FILE = "_CHECKPOINT_METADATA"  # Orbax writes one in the folder of a step's items
SAVE = (
    "save nnx.to_pure_dict(state) of a Decoder with orbax.checkpoint, or name the folder of one "
    "step"
)


class StoredArray(NamedTuple):
    """One array as the checkpoint's metadata describes it."""

    shape: tuple[int, ...]
    dtype: str
    path: tuple[str, ...]  # in the tree; a part of it may hold slashes
    # for each part of the path that is an index: the list that it indexes, its leaves None (see
    # `_lists`); for a key of a dict: ()
    lists: tuple[Sequence[Tree], ...]
    item: Path  # the folder of the tree


def is_checkpoint(folder: Path, params_key: str | None = None) -> bool:
    """Whether the folder is a finished Orbax checkpoint.  An object store cannot rename a folder:
    there a file marks the end of the writing."""
    items = _named_item(folder, params_key) or items_of(folder)
    if not items or not is_remote(folder):
        return bool(items)
    return any((parent / COMMITTED).is_file() for parent in (items[0], folder))


def items_of(folder: Path) -> list[Path]:
    """The folders of trees: the checkpoint's folder, or the folders in it, those of usual names
    first."""
    if (folder / TREE_FILE).is_file():
        return [folder]
    names = list(ITEMS)
    if (folder / _STEP_FILE).is_file():
        names += sorted({path.name for path in folder.iterdir()} - {*ITEMS})
    return [folder / name for name in names if (folder / name / TREE_FILE).is_file()]


def _named_item(folder: Path, params_key: str | None) -> list[Path]:
    """The item with which `params_key` begins, if it does."""
    return [
        folder / name for name in path_of(params_key)[:1] if (folder / name / TREE_FILE).is_file()
    ]


def path_of(params_key: str | None) -> tuple[str, ...]:
    """The parts of --params_key."""
    return tuple(filter(None, (params_key or "").split("/")))


def named_items(folder: Path, params_key: str | None = None) -> list[Path]:
    """The item that `params_key` names, or else all of a finished checkpoint, as `items_of` orders
    them.  Raises InputError for any other folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected an Orbax checkpoint; check the path")
    if UNFINISHED in folder.name:
        raise InputError(
            f"{folder}: is still being written, or was given up by its writer, expected a finished "
            "Orbax checkpoint; name another step"
        )
    items = _named_item(folder, params_key) or items_of(folder)
    if not items:
        raise InputError(
            f"{folder}: holds {listed(path.name for path in folder.iterdir())} and no {TREE_FILE}, "
            f"expected a finished Orbax checkpoint; {SAVE}"
        )
    return items


def arrays_of(items: Sequence[Path]) -> dict[str, StoredArray]:
    """Key -> description of every array; of several items, with the item's name before the key."""
    if len(items) == 1:
        return stored_arrays(items[0])
    arrays: dict[str, StoredArray] = {}
    for item in items:
        for key, array in stored_arrays(item).items():
            arrays[f"{item.name}/{key}"] = array
    return arrays


def stored_arrays(item: Path) -> dict[str, StoredArray]:
    """Key -> description of every array, from the metadata alone.  Raises InputError for a damaged
    checkpoint."""
    check_chunks(item)
    check_database(item)
    try:
        metadata = ocp.PyTreeCheckpointHandler().metadata(epath.Path(item.absolute()))
        return dict(_flattened(getattr(metadata, "tree", metadata), item))
    # Orbax builds its records from JSON, and damaged JSON may raise errors of any class
    except Exception as error:
        raise damaged(item, error) from None


def check_chunks(item: Path) -> None:
    """Raises InputError for chunks larger than their array."""
    for path in item.glob("*/.zarray"):
        try:
            fields = parse_json(read_regular(path))
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


def check_database(item: Path) -> None:
    """Raises InputError for a database of arrays that has lost files.  Orbax opens all arrays at
    once, and each of those that it cannot read would print errors of its own."""
    if not (item / _MANIFEST).is_file():
        data = item / "d"  # of a database, unless the array of a tree has this name
        is_array = any((data / name).is_file() for name in (".zarray", "zarr.json"))
        if data.is_dir() and not is_array:
            raise damaged(item, FileNotFoundError(f"{_MANIFEST} is missing"))
        return
    base = {"driver": "file", "path": f"{item.absolute()}/"}
    try:
        database = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
        keys = database.list().result()
        for read in [database.read(key) for key in keys if key.endswith(_ARRAY_FILES)]:
            read.result()
    # tensorstore raises errors of any class for damaged files
    except Exception as error:
        raise damaged(item, error) from None


def _flattened(
    tree: Tree, item: Path, keys: tuple[str, ...] = (), lists: tuple[Sequence[Tree], ...] = ()
) -> Iterable[tuple[str, StoredArray]]:
    if isinstance(tree, Mapping):
        for key, subtree in tree.items():
            yield from _flattened(subtree, item, (*keys, str(key)), (*lists, ()))
    elif isinstance(tree, list | tuple):
        siblings = _lists(tree)
        for i, subtree in enumerate(tree):
            yield from _flattened(subtree, item, (*keys, str(i)), (*lists, siblings))
    else:  # a leaf that is no array has neither shape nor dtype
        shape = tuple(getattr(tree, "shape", None) or ())
        dtype = getattr(tree, "dtype", None)
        dtype = NO_ARRAY if dtype is None else np.dtype(dtype).name
        yield "/".join(keys), StoredArray(shape, dtype, keys, lists, item)


def _lists(tree: Tree) -> Tree:
    """[{..}, [x, y]] -> [None, [None, None]]: Orbax reads a part of a list if all lists in it
    stand there."""
    return [*map(_lists, tree)] if isinstance(tree, list | tuple) else None


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
