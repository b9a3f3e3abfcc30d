"""Where weights lie, and what goes with them.

Arrives: weights on a device or a mesh.  Leaves: where a program's other inputs go, and how rows are split.  It deliberately
does not know models or plans.
"""

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from miron_jax.errors import InputError


def devices_of(state: Any) -> tuple[Any, Any]:
    """(one device of the weights, where every program's other inputs go: that device, or all of the weights' mesh)."""
    leaves = jax.tree.leaves(state)
    device = min(leaves[0].devices(), key=lambda own: own.id)
    on_mesh = [leaf.sharding.mesh for leaf in leaves if isinstance(leaf.sharding, NamedSharding)]
    return device, NamedSharding(on_mesh[0], PartitionSpec()) if on_mesh else device


def split_rows(place: Any, axes: tuple[str, ...]) -> tuple[NamedSharding, int]:
    """Of arrays [rows, places]: rows over these axes of the weights' mesh, and into how many parts.  Raises InputError."""
    names = place.mesh.axis_names if isinstance(place, NamedSharding) else ()
    if not isinstance(place, NamedSharding) or not set(axes) <= set(names):
        raise InputError(
            f"row_axes are {axes}, expected axes of the weights' mesh: {', '.join(map(str, names)) or 'none'}"
        )
    return NamedSharding(place.mesh, PartitionSpec(axes, None)), math.prod(place.mesh.shape[axis] for axis in axes)


def with_auto_axes(state: Any) -> Any:
    """The same arrays where a mesh has explicit axes (jax.make_mesh's default), under automatic ones: nothing is copied."""

    def one(leaf: Any) -> Any:
        sharding = getattr(leaf, "sharding", None)
        if not isinstance(sharding, NamedSharding) or set(sharding.mesh.axis_types) == {AxisType.Auto}:
            return leaf
        mesh = Mesh(np.asarray(sharding.mesh.devices), sharding.mesh.axis_names)
        return jax.device_put(leaf, NamedSharding(mesh, sharding.spec))

    return jax.tree.map(one, state)
