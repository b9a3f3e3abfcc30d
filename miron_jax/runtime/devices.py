"""Devices and meshes: where weights and batches lie, and how one function runs on all of them at once.

Arrives: flags, or weights that lie somewhere.  Leaves: a `Placement`.  It deliberately does not know models or plans.

A batch has a leading axis of *shards*: parts that are computed side by side, each by a copy of the weights.  A copy is one
device (`pmap`), or the devices of one place along a mesh's `data` axis, which split it between them (`mesh`).  A function
of one shard is written once and runs under either.

    data    copies of the weights; each scores rows of its own
    fsdp    devices that share one copy: each keeps a part of every matrix, gathers a layer's when it is due, and computes
            some of the shard's rows
    model   devices that split heads, feed-forward and vocabulary (tensor parallel)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from miron_jax.config import AXES
from miron_jax.errors import InputError

DATA, FSDP, MODEL = AXES

Device = Any  # a jax.Device: jaxlib has no type stubs
Tree = Any  # a pytree of arrays: jax has no type for it


@dataclass(frozen=True)
class Placement:
    """Where weights and batches lie.  given: weights come placed, and a batch is one shard on their mesh."""

    device: Device  # one of its devices
    mesh: Mesh | None = None
    how: Literal["one", "pmap", "mesh", "given"] = "one"
    row_axes: tuple[str, ...] = ()  # axes of the mesh that the rows of one shard are split over

    @classmethod
    def default(cls) -> "Placement":
        """jax's default device alone."""
        return cls(jax.config.values["jax_default_device"] or jax.local_devices()[0])

    @classmethod
    def of(cls, state: Any, row_axes: tuple[str, ...] = ()) -> "Placement":
        """Of weights that lie on a device or on a mesh.  Raises InputError where their mesh has no such axes."""
        leaves = jax.tree.leaves(state)
        device = min(leaves[0].sharding.addressable_devices, key=lambda own: own.id)
        meshes: list[Any] = [leaf.sharding.mesh for leaf in leaves if isinstance(leaf.sharding, NamedSharding)]
        names = meshes[0].axis_names if meshes else ()
        if not set(row_axes) <= set(names):
            raise InputError(
                f"row_axes are {row_axes}, expected axes of the weights' mesh: {', '.join(map(str, names)) or 'none'}"
            )
        return cls(device, meshes[0], "given", row_axes) if meshes else cls(device)

    @classmethod
    def choose(cls, sharding: Literal["pmap", "mesh"], axes: tuple[tuple[str, int], ...] = ()) -> "Placement":
        """Of --sharding and --mesh: this host's devices, or all devices of all hosts where the mesh is as large.

        Raises InputError for a mesh that does not fit the devices.
        """
        local = jax.local_devices()
        if sharding == "pmap":
            return cls(local[0], Mesh(np.asarray(local), (DATA,)), "pmap") if len(local) > 1 else cls(local[0])
        shape = tuple(dict(axes).get(axis, 1) for axis in AXES)
        size = math.prod(shape)
        devices = jax.devices() if size == jax.device_count() else local[:size]
        if size > len(devices):
            everywhere = f" ({jax.device_count()} on all hosts)" if jax.process_count() > 1 else ""
            raise InputError(
                f"--mesh={','.join(f'{axis}={n}' for axis, n in axes)} takes {size} devices, this host has "
                f"{len(local)}{everywhere}: name sizes whose product is that"
            )
        return cls(local[0], Mesh(np.asarray(devices).reshape(shape), AXES), "mesh", (FSDP,) if shape[1] > 1 else ())

    def size(self, *axes: str) -> int:
        """Devices along these axes of the mesh."""
        shape = {} if self.mesh is None else self.mesh.shape
        return math.prod(shape.get(axis, 1) for axis in axes)

    @property
    def devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    @property
    def shards(self) -> int:
        return self.size(DATA) if self.how in ("pmap", "mesh") else 1

    @property
    def is_global(self) -> bool:
        """Whether it spans hosts: then all of them run the same programs in the same order."""
        return self.mesh is not None and not self.shared.is_fully_addressable

    @property
    def shared(self) -> Any:
        """Where that lies which every device has whole."""
        return self.device if self.mesh is None else NamedSharding(self.mesh, PartitionSpec())

    @property
    def split(self) -> Any:
        """Where arrays with a leading axis of shards lie."""
        return self.shared if self.how in ("one", "given") else NamedSharding(self.mesh, PartitionSpec(DATA))  # type: ignore[arg-type]

    @property
    def row_sharding(self) -> NamedSharding | PartitionSpec | None:
        """Of a shard's arrays [rows, ...], inside its function."""
        if not self.row_axes:
            return None
        spec = PartitionSpec(self.row_axes)
        return NamedSharding(self.mesh, spec) if self.how == "given" else spec  # type: ignore[arg-type]

    def share(self, host: Any) -> jax.Array:
        """A host array on every device, whole."""
        return _put(np.asarray(host), self.shared)

    def put(self, host: Any) -> jax.Array:
        """A host array with a leading axis of shards, each part where its shard is computed."""
        return _put(np.asarray(host), self.split)

    def zeros(self, shape: tuple[int, ...], dtype: Any, spec: PartitionSpec) -> jax.Array:
        """An array with a leading axis of shards, which lies as `spec` says under `mesh`."""
        if self.how in ("one", "given"):
            return jax.device_put(jnp.zeros(shape, dtype), self.split)
        lies = NamedSharding(self.mesh, spec) if self.how == "mesh" else self.split  # type: ignore[arg-type]
        return jax.jit(partial(jnp.zeros, shape, dtype), out_shardings=lies)()

    @property
    def results(self) -> PartitionSpec:
        """Of a program's small results: whole on every device of a mesh that spans hosts, for each host to read."""
        return PartitionSpec() if self.is_global else PartitionSpec(DATA)

    def put_weight(self, host: np.ndarray, spec: PartitionSpec, shape: tuple[int, ...]) -> jax.Array:
        """A weight, split over the mesh as `spec` says; zeros fill it up to `shape`."""
        if self.mesh is None:
            return jax.device_put(host, self.device)

        def part(index: Any) -> np.ndarray:
            own = host[index]
            wanted = [len(range(*cut.indices(size))) for cut, size in zip(index, shape, strict=True)]
            more = [(0, size - there) for size, there in zip(wanted, own.shape, strict=True)]
            return np.pad(own, more) if any(right for _, right in more) else own

        return jax.make_array_from_callback(shape, NamedSharding(self.mesh, spec), part)

    def compile(
        self,
        function: Callable[..., Any],
        shared: tuple[Any, ...],
        split: tuple[Any, ...],
        donate: tuple[int, ...] = (),
        out: Any = None,
    ) -> Any:
        """The compiled program of `function(*shared, *split)` -> arrays of one shard.

        Its arguments and results are arrays, or trees of them; those of `split`, and the results, have a leading axis of
        shards that the function does not see.  `donate`: arguments whose memory the results take over.  `out`: tree of
        PartitionSpecs of the results, leading axis included; None: each shard's results lie whole on its devices, and on
        every device of a mesh that spans hosts.
        """
        first = len(shared)

        def one(*arguments: Any) -> Any:
            own = jax.tree.map(lambda x: x[0], arguments[first:])
            return jax.tree.map(lambda y: y[None], function(*arguments[:first], *own))

        if self.how == "pmap":
            assert self.mesh is not None
            axes = (None,) * first + (0,) * len(split)
            devices = list(self.mesh.devices.flat)
            mapped = jax.pmap(function, DATA, in_axes=axes, donate_argnums=donate, devices=devices)
            # Where there are several processes, pmap takes shapes for host arrays: it is shown arrays.
            shared = jax.tree.map(lambda x: self.share(_zeros(x)) if _is_shape(x) else x, shared)
            split = jax.tree.map(lambda x: self.put(_zeros(x)) if _is_shape(x) else x, split)
        elif self.how == "mesh":
            assert self.mesh is not None
            whole, by_shard = PartitionSpec(), PartitionSpec(DATA)
            specs = (whole,) * first + (by_shard,) * len(split)
            # Only `data` is mapped by hand; what the other axes do follows from where the weights lie.
            inner = jax.shard_map(
                one, mesh=self.mesh, in_specs=specs, out_specs=by_shard, axis_names={DATA}, check_vma=False
            )
            out = out or self.results
            lies = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), out, is_leaf=_is_spec)  # type: ignore[arg-type]
            mapped = jax.jit(inner, donate_argnums=donate, out_shardings=lies)
        else:
            mapped = jax.jit(one, donate_argnums=donate)
        return mapped.lower(*shared, *split).compile()

    def on_one_device(self, state: Any) -> Any:
        """The same weights on one device, where a device has all of them; else as they are."""
        if self.how != "pmap":
            return state
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), state)

    def free_bytes(self) -> float:
        """Memory that a program may still take on each device; on CPU they have the host's in common.  On a mesh that spans
        hosts none is looked at: they must not come to unlike sizes."""
        if self.is_global:
            return float(1 << 60)
        statistics = self.device.memory_stats()
        if statistics and "bytes_limit" in statistics:
            return statistics["bytes_limit"] - statistics["bytes_in_use"]
        here = 1 if self.mesh is None else len(self.mesh.local_devices)
        return psutil.virtual_memory().available / here


def take_rows(table_VD: jax.Array, index_BT: jax.Array, rows_are_split: bool) -> jax.Array:
    """float32 table_VD[index_BT]; where a mesh splits the table's rows over `fsdp` and `model`, each device takes its own.

    Inside a program of `Placement.compile`; `rows_are_split`: B over `fsdp`.  XLA's own way to split such a gather ends the
    process at some sizes (spmd_partitioner_util.cc, "Check failed: partition_group_list", jaxlib 0.10.2).
    """
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(axis for axis in (FSDP, MODEL) if mesh.shape.get(axis, 1) > 1)
    if not axes:
        return table_VD[index_BT].astype(jnp.float32)
    scatters = rows_are_split and FSDP in axes and index_BT.shape[0] % mesh.shape[FSDP] == 0

    def own_rows(part_VD: jax.Array, index_BT: jax.Array) -> jax.Array:
        own_BT = index_BT - jax.lax.axis_index(axes) * part_VD.shape[0]
        here_BT = (own_BT >= 0) & (own_BT < part_VD.shape[0])
        taken_BTD = part_VD[jnp.where(here_BT, own_BT, 0)].astype(jnp.float32)
        found_BTD = jnp.where(here_BT[..., None], taken_BTD, 0.0)  # one device's row and zeros: the sum is exact
        if not scatters:
            return jax.lax.psum(found_BTD, axes)
        found_BTD = jax.lax.psum_scatter(found_BTD, FSDP, scatter_dimension=0, tiled=True)
        return jax.lax.psum(found_BTD, MODEL) if MODEL in axes else found_BTD

    whole, rows = PartitionSpec(), PartitionSpec(FSDP) if scatters else PartitionSpec()
    split = jax.shard_map(
        own_rows, in_specs=(PartitionSpec(axes), whole), out_specs=rows, axis_names=set(axes), check_vma=False
    )
    return split(table_VD, index_BT)


def _is_shape(value: Any) -> bool:
    return isinstance(value, jax.ShapeDtypeStruct)


def _zeros(shape: jax.ShapeDtypeStruct) -> np.ndarray:
    return np.zeros(shape.shape, shape.dtype)


def _is_spec(value: Any) -> bool:
    return isinstance(value, PartitionSpec)


def _put(host: np.ndarray, sharding: Any) -> jax.Array:
    if getattr(sharding, "is_fully_addressable", True):
        return jax.device_put(host, sharding)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])  # compares nothing over hosts


def with_auto_axes(state: Any) -> Any:
    """The same arrays where a mesh has explicit axes (jax.make_mesh's default), under automatic ones: nothing is copied."""

    def one(leaf: Any) -> Any:
        sharding = getattr(leaf, "sharding", None)
        if not isinstance(sharding, NamedSharding) or set(sharding.mesh.axis_types) == {AxisType.Auto}:
            return leaf
        mesh = Mesh(np.asarray(sharding.mesh.devices), sharding.mesh.axis_names)
        return jax.device_put(leaf, NamedSharding(mesh, sharding.spec))

    return jax.tree.map(one, state)
