"""An Orbax checkpoint -> the decoder's weights.

Arrives: a checkpoint folder and the ModelConfig it belongs to.  Leaves: a state that fits `decoder.abstract`, as
hf_reader leaves it.  It deliberately does not know config.json, tokenizers, meshes or optimizers.

The tree on disk holds a Decoder's state, as `nnx.to_pure_dict` gives it or with nnx's level of `value` below each name; at
the top or below other names (`params`), with anything beside it (an optimizer's state is never read).  Orbax hands a
placeholder back, without a word, for a key that a checkpoint lacks: so keys, shapes and kinds of number are compared here
before an array is read.  The format is JSON and arrays; nothing is ever unpickled.
"""

import ctypes
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.typing import DTypeLike

from miron_jax.errors import InputError
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import abstract, leaf_name

_TREE_FILE = "_METADATA"  # every checkpoint has one
_DATA_FOLDER, _MANIFEST = "d", "manifest.ocdbt"  # all arrays in a few files, and what tells where each one lies
# Inside a checkpoint's folder, where its writers put a tree: CheckpointManager, orbax v1, and what people name an item
_ITEMS = ("default", "state", "pytree", "params", "model", "model_params", "items", "train_state")
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_SAVE = "save nnx.to_pure_dict(state) of a Decoder with orbax.checkpoint, or name the folder of one step"


class Stored(NamedTuple):
    """One array as the checkpoint describes it."""

    shape: tuple[int, ...]
    dtype: str


def load_orbax(folder: Path, config: ModelConfig, dtype: DTypeLike) -> Any:
    """Weights as an nnx.State on the default device, matrices in `dtype`, norms and biases in float32."""
    return load_tree(
        folder, abstract(config, dtype)[1], "that config.json describes; use the config.json of this checkpoint"
    )


def load_tree(folder: Path, tree: Any, described: str = "of the model's params; check the model's sizes") -> Any:
    """The same of any tree of arrays or shapes: nnx.State, Linen's variables.  Leaves come back in the tree's dtypes."""
    item = _item(folder)
    stored = _stored(item)
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
    wanted = {leaf_name(path): jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for path, leaf in leaves}
    place = _place(folder, stored, wanted)
    inside = {key.removeprefix(place.above).removesuffix(place.below): key for key in stored if place.holds(key)}
    _check_keys(folder, inside, wanted, described)
    for path, leaf in wanted.items():
        _check_array(folder, path, stored[inside[path]], leaf)
    arrays = _restore(folder, item, {inside[path]: leaf for path, leaf in wanted.items()})
    return jax.tree_util.tree_unflatten(treedef, [arrays[inside[path]] for path in wanted])


def is_checkpoint(folder: Path) -> bool:
    """Whether a finished Orbax checkpoint lies there."""
    return _find_item(folder) is not None


class _Place(NamedTuple):
    """Where the weights lie in a tree."""

    above: str  # "params/"; "" at the top
    below: str  # "/value" where nnx variables were saved as they are

    def holds(self, key: str) -> bool:
        return key.startswith(self.above) and key.endswith(self.below)


def _place(folder: Path, stored: Iterable[str], wanted: Mapping[str, Any]) -> _Place:
    """Where most of the wanted names stand; `params` where they stand in several places."""
    places = Counter(
        _Place(key[: -len(name + below)], below)
        for below in ("", "/value")
        for name in wanted
        for key in stored
        if key == name + below or key.endswith(f"/{name}{below}")
    )
    most = max(places.values(), default=0)
    best = sorted(place for place, count in places.items() if count == most)
    if len(best) < 2:
        return best[0] if best else _Place("", "")
    named = [place for place in best if place.above in ("", "params/", "params/params/", "model/")]
    if len(named) != 1:
        raise InputError(
            f"{folder}: holds the weights in {_listed(place.above or 'the top' for place in best)}, expected them once, or "
            "once below params; save the weights to score alone"
        )
    return named[0]


def _find_item(folder: Path) -> Path | None:
    return next((path for path in (folder, *(folder / name for name in _ITEMS)) if (path / _TREE_FILE).is_file()), None)


def _item(folder: Path) -> Path:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected an Orbax checkpoint; check the path")
    item = _find_item(folder)
    if item is None:
        raise InputError(
            f"{folder}: holds {_listed(path.name for path in folder.iterdir())} and no {_TREE_FILE}, expected a "
            f"finished Orbax checkpoint; {_SAVE}"
        )
    return item


def _stored(item: Path) -> dict[str, Stored]:
    """Leaf path -> what the checkpoint holds there, from its metadata alone."""
    try:
        found = ocp.PyTreeCheckpointHandler().metadata(epath.Path(item.absolute()))
    except (json.JSONDecodeError, UnicodeDecodeError, ValueError, KeyError, OSError) as error:
        raise _damaged(item, error) from None
    return dict(_flat(getattr(found, "tree", found), ""))


def _flat(tree: Any, path: str) -> Iterable[tuple[str, Stored]]:
    if isinstance(tree, Mapping):
        for key, below in tree.items():
            yield from _flat(below, f"{path}/{key}" if path else str(key))
    elif isinstance(tree, list | tuple):
        for i, below in enumerate(tree):
            yield from _flat(below, f"{path}/{i}")
    else:  # a leaf that is no array has neither shape nor number
        shape, dtype = getattr(tree, "shape", None), getattr(tree, "dtype", None)
        yield path, Stored(tuple(shape or ()), "no array" if dtype is None else np.dtype(dtype).name)


def _check_keys(folder: Path, found: Mapping[str, str], wanted: Mapping[str, Any], described: str) -> None:
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or extra:
        raise InputError(
            f"{folder}: lacks {_listed(missing)} and has {_listed(extra)} besides, expected the {len(wanted)} arrays "
            f"{described}, and save the model's weights alone"
        )


def _check_array(folder: Path, path: str, stored: Stored, leaf: jax.ShapeDtypeStruct) -> None:
    if stored.dtype not in _FLOATS:
        raise InputError(
            f"{folder}: {path} holds {stored.dtype}, expected one of {', '.join(_FLOATS)}; save the weights unquantized"
        )
    if stored.shape != leaf.shape:
        raise InputError(
            f"{folder}: {path} has shape {list(stored.shape)}, expected {list(leaf.shape)}; use the config.json that "
            "belongs to this checkpoint"
        )


def _restore(folder: Path, item: Path, wanted: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
    """Every wanted leaf, whole and in its wanted dtype, wherever the checkpoint was made.

    One at a time: the host holds one leaf beyond what the device keeps, and where an array is damaged no other is on its
    way, whose failure asyncio would print.
    """
    if (item / _DATA_FOLDER).is_dir() and not (item / _MANIFEST).is_file():
        raise _damaged(folder, FileNotFoundError(f"{_MANIFEST} is missing"))
    arrays = {}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        # Largest first: what reading one takes beside the leaf itself is then smallest where most leaves are there.
        for path, leaf in sorted(wanted.items(), key=lambda item: -math.prod(item[1].shape)):
            try:
                tree = checkpointer.restore(item.absolute(), args=_only(path, leaf))
            except (ValueError, KeyError, OSError) as error:
                raise _damaged(folder, error) from None
            array = _at(tree, path)
            assert isinstance(array, np.ndarray), "the keys were compared before"
            arrays[path] = jax.block_until_ready(jnp.asarray(array.astype(leaf.dtype, copy=False)))
            del tree, array  # else they live while the next leaf is read
            _give_back()
    return arrays


def _give_back() -> None:
    """Freed memory goes back to the system: what glibc keeps of the buffers that leaves are decoded in would stay resident,
    up to a third of a checkpoint."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # musl has none
        trim(0)


def _only(path: str, leaf: jax.ShapeDtypeStruct) -> ocp.args.PyTreeRestore:
    as_numpy = _nested(path, ocp.RestoreArgs(restore_type=np.ndarray))
    return ocp.args.PyTreeRestore(item=_nested(path, leaf), restore_args=as_numpy, partial_restore=True)


def _nested(path: str, leaf: Any) -> Any:
    """("layers/attn/q", x) -> {"layers": {"attn": {"q": x}}}"""
    for key in reversed(path.split("/")):
        leaf = {key: leaf}
    return leaf


def _at(tree: Any, path: str) -> Any:
    for key in path.split("/"):
        tree = tree[key]
    return tree


def _damaged(folder: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(
        f"{folder}: Orbax cannot read it ({reason:.200}), expected a whole checkpoint; copy or save it again"
    )


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    return ", ".join(every[:3]) + (f" and {len(every) - 3} more" if len(every) > 3 else "") if every else "nothing"
