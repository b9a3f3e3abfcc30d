"""How an Orbax checkpoint lies on disk: its items, its arrays, their names and shapes.

Arrives: a checkpoint's folder.  Leaves: `Stored` arrays by name.  It deliberately does not read them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json, shown
from miron_jax.model.remote import is_remote

MOST_SIZE = 1 << 40  # along an axis of an array
TREE_FILE = "_METADATA"  # every checkpoint has one
COMMITTED = "commit_success.txt"
UNFINISHED = ".orbax-checkpoint-tmp"
# Inside a checkpoint's folder, where its writers put a tree: CheckpointManager, orbax v1, and what people name an item
ITEMS = ("default", "state", "pytree", "params", "model", "model_params", "items", "train_state")
SAVE = "save nnx.to_pure_dict(state) of a Decoder with orbax.checkpoint, or name the folder of one step"


class Stored(NamedTuple):
    """One array as the checkpoint describes it."""

    shape: tuple[int, ...]
    dtype: str
    lists: tuple[int, ...] = ()  # a level of its path: entries of the list that stands there, 0 for names


def is_checkpoint(folder: Path) -> bool:
    """Whether a finished Orbax checkpoint lies there.  A store cannot rename a folder: there a file says that it is."""
    item = find_item(folder)
    if item is None or not is_remote(folder):
        return item is not None
    return any((where / COMMITTED).is_file() for where in (item, folder))


class Place(NamedTuple):
    """Where the weights lie in a tree."""

    above: str  # "params/"; "" at the top
    below: str  # "/value" where nnx variables were saved as they are

    def holds(self, key: str) -> bool:
        return key.startswith(self.above) and key.endswith(self.below)


def place_of(folder: Path, stored: Iterable[str], wanted: Mapping[str, Any]) -> Place:
    """Where most of the wanted names stand; `params` where they stand in several places."""
    places = Counter(
        Place(key[: -len(name + below)], below)
        for below in ("", "/value")
        for name in wanted
        for key in stored
        if key == name + below or key.endswith(f"/{name}{below}")
    )
    most = max(places.values(), default=0)
    best = sorted(place for place, count in places.items() if count == most)
    if len(best) < 2:
        return best[0] if best else Place("", "")
    named = [place for place in best if place.above in ("", "params/", "params/params/", "model/")]
    if len(named) != 1:
        raise InputError(
            f"{folder}: holds the weights in {listed(place.above or 'the top' for place in best)}, expected them once, or "
            "once below params; save the weights to score alone"
        )
    return named[0]


def find_item(folder: Path) -> Path | None:
    return next((path for path in (folder, *(folder / name for name in ITEMS)) if (path / TREE_FILE).is_file()), None)


def item_of(folder: Path) -> Path:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected an Orbax checkpoint; check the path")
    if UNFINISHED in folder.name:
        raise InputError(
            f"{folder}: is still being written, or was given up by its writer, expected a finished Orbax checkpoint; name "
            "another step"
        )
    item = find_item(folder)
    if item is None:
        raise InputError(
            f"{folder}: holds {listed(path.name for path in folder.iterdir())} and no {TREE_FILE}, expected a "
            f"finished Orbax checkpoint; {SAVE}"
        )
    return item


def stored_arrays(item: Path) -> dict[str, Stored]:
    """Leaf path -> what the checkpoint holds there, from its metadata alone."""
    check_chunks(item)
    try:
        found = ocp.PyTreeCheckpointHandler().metadata(epath.Path(item.absolute()))
        return dict(flat(getattr(found, "tree", found), ""))
    except Exception as error:  # Orbax builds its own records from damaged JSON, and fails in whatever way that does
        raise damaged(item, error) from None


def check_chunks(item: Path) -> None:
    """Chunks beyond their array make tensorstore abort the process, or take memory without end: refused before it looks."""
    for path in item.glob("*/.zarray"):
        try:
            fields = parse_json(path.read_bytes())
            shape, chunks = fields["shape"], fields["chunks"]
            fits = len(shape) == len(chunks) and all(
                type(size) is type(chunk) is int and 0 <= size <= MOST_SIZE and 1 <= chunk <= max(size, 1)
                for size, chunk in zip(shape, chunks, strict=True)
            )
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise damaged(path, error) from None
        if not fits:
            raise InputError(
                f"{path}: shape is {shown(shape)} and chunks {shown(chunks)}, expected as many whole numbers, chunks no "
                "larger than the array; copy or save the checkpoint again"
            )


def flat(tree: Any, path: str, lists: tuple[int, ...] = ()) -> Iterable[tuple[str, Stored]]:
    if isinstance(tree, Mapping):
        for key, below in tree.items():
            yield from flat(below, f"{path}/{key}" if path else str(key), (*lists, 0))
    elif isinstance(tree, list | tuple):
        for i, below in enumerate(tree):
            yield from flat(below, f"{path}/{i}" if path else str(i), (*lists, len(tree)))
    else:  # a leaf that is no array has neither shape nor number
        shape, dtype = getattr(tree, "shape", None), getattr(tree, "dtype", None)
        yield path, Stored(tuple(shape or ()), "no array" if dtype is None else np.dtype(dtype).name, lists)


def damaged(folder: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(
        f"{folder}: Orbax cannot read it ({reason:.200}), expected a whole checkpoint; copy or save it again"
    )


def listed(names: Iterable[str]) -> str:
    every = sorted(names)
    return ", ".join(every[:3]) + (f" and {len(every) - 3} more" if len(every) > 3 else "") if every else "nothing"
