"""Mappings from the decoder's leaves to arrays of other names, as a user's file or function says.

Arrives: the shapes on disk by name, and the user's mapping.  Leaves: `Mapped` for each leaf.
It deliberately does not read arrays.

A user's mapping is JSON, or the result of a function `mapping(shapes)`, with one entry for each
leaf of the model:

    {"embedding_VD": "wte/embedding",
     "layers/attn/q/kernel_IO": "h_{}/attn/query/kernel",
     "layers/mlp/up/kernel_IO": {"name": "blocks/fc", "layer_axis": 1, "transposed": true}}

The first is one array; the second one for each layer, where (D, N, H) counts as (D, N * H); the
third has all layers in one array.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.places import local_path
from miron_jax.files.readers import Json, parse_json
from miron_jax.files.regular import read_text
from miron_jax.model.checkpoints.presets import PRESETS, MapEntries
from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family_model import Shapes

Change = Callable[[np.ndarray], np.ndarray]


class LayerArray(NamedTuple):
    """The array, or the part of one, that holds one layer of a leaf or a leaf without layers."""

    name: str
    axis: int | None = None  # the axis of layers, if the array holds several
    index: int = 0  # of this layer along that axis


class Mapped(NamedTuple):
    """The arrays that hold a leaf."""

    arrays: tuple[LayerArray, ...]  # one for each layer
    change: Change  # applied to each array before it is reshaped to the leaf


def unchanged(x: np.ndarray) -> np.ndarray:
    return x


def users_map(
    param_map: str,
    shapes: Shapes,
    leaves: Shapes,
    config: ModelConfig | None,
    optional: Collection[str] = (),
) -> dict[str, Mapped]:
    """The mapping that --param_map names: another library, a JSON file, or package.module:function,
    which is called with the stored `shapes`.

    `leaves`: shapes of the model's leaves, of which the `optional` ones may have no entry.  With a
    `config` the first axis of those below layers/ is that of layers.  Raises InputError for a
    mapping that is malformed, incomplete or names an unknown leaf.
    """
    if param_map in PRESETS:
        entries = _preset(param_map, shapes, leaves, config)
    else:
        entries = _entries(param_map, shapes)
    unknown = sorted(set(entries) - set(leaves))
    faults = [f"names {leaf}, which the model does not have" for leaf in unknown]
    missing = sorted(set(leaves) - set(entries) - set(optional))
    faults += [f"lacks {leaf}" for leaf in missing]
    if faults:
        raise InputError(
            f"--param_map={param_map}: {faults[0]}, expected an entry for each of "
            f"{', '.join(sorted(leaves))}"
        )
    mapped = {}
    for leaf, entry in entries.items():
        is_stacked = config is not None and leaf.startswith("layers/")
        mapped[leaf] = _mapped(param_map, leaf, entry, leaves[leaf][0] if is_stacked else None)
    return mapped


def _preset(
    name: str,
    shapes: Shapes,
    leaves: Collection[str],
    config: ModelConfig | None,
) -> MapEntries:
    """The names of another library, of the leaves that this model has."""
    if config is None:
        raise InputError(
            f"--param_map={name}: names a library's tree of a known architecture, expected the "
            "names of a model of your own: give a JSON file or package.module:function"
        )
    entries = PRESETS[name](config, shapes)
    missing = sorted(set(leaves) - set(entries))
    if missing:
        raise InputError(
            f"--param_map={name}: such a tree has no place for {missing[0]}, which a "
            f"{config.family} model of this config.json has; use the config.json of this checkpoint"
        )
    return {leaf: entries[leaf] for leaf in leaves}


def _entries(param_map: str, shapes: Shapes) -> MapEntries:
    from miron_jax.model.own import import_from, is_factory

    if is_factory(param_map) and not Path(param_map).exists():
        entries = import_from(param_map, "--param_map", 1)(dict(shapes))
    else:
        path = local_path(param_map)
        if not path.is_file():
            raise InputError(
                f"--param_map={param_map}: no such file, no package.module:function, "
                f"and none of {', '.join(PRESETS)}; check the path"
            )
        try:
            entries = parse_json(read_text(path))
        except ValueError as error:
            raise InputError(
                f"--param_map={param_map}: not JSON ({error}), expected an object: leaf to name"
            ) from None
    if not isinstance(entries, Mapping):
        raise InputError(
            f"--param_map={param_map}: holds a {type(entries).__name__}, expected an object: leaf "
            "to name"
        )
    return dict(entries)


_DEFAULTS: MapEntries = {
    "layer_axis": 0,
    "transposed": False,
    "change": unchanged,
}  # beside the name


def _mapped(param_map: str, leaf: str, entry: Json, num_layers: int | None) -> Mapped:
    """One entry of a user's mapping.  Raises InputError for an entry of the wrong form."""
    if isinstance(entry, str):
        entry = {"name": entry}
    rules: MapEntries = {**_DEFAULTS, **entry} if isinstance(entry, Mapping) else {}
    axis = rules.get("layer_axis")
    if not (
        rules.keys() == {"name", *_DEFAULTS}
        and isinstance(rules["name"], str)
        and type(axis) is int
        and axis >= 0
        and isinstance(rules["transposed"], bool)
        and callable(rules.get("change"))
    ):
        raise InputError(
            f"--param_map={param_map}: {leaf} is {entry!r}, expected a name, or an object of name, "
            "layer_axis (a number from 0), transposed (true or false) and, in a function's result, "
            "change (array to array)"
        )
    name = rules["name"]
    transposed = rules["transposed"]
    change: Change = rules["change"]

    def changed(x: np.ndarray) -> np.ndarray:
        x = change(x)
        if transposed and x.ndim != 2:
            raise InputError(
                f"--param_map={param_map}: {leaf} is to be transposed, but {name} has shape "
                f"{list(x.shape)}, expected two axes: turn it with a function's `change`"
            )
        return x.T if transposed else x

    if num_layers is None:
        return Mapped((LayerArray(name),), changed)
    if "{}" in name:
        return Mapped(
            tuple(LayerArray(name.replace("{}", str(i))) for i in range(num_layers)), changed
        )
    return Mapped(tuple(LayerArray(name, axis, i) for i in range(num_layers)), changed)
