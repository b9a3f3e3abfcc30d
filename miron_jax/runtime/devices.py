"""Devices and meshes: how weights and batches are placed, and how one function runs on all devices
at once.

Arrives: flags, or weights that are on devices already.  Leaves: a `Placement`.  It deliberately
does not know models or plans.

A batch has a leading axis of *shards*.  Copies of the weights compute them in parallel, one shard
each.  A copy is on one device (`pmap`), or it is split over the devices at one index of a mesh's
`data` axis (`mesh`).  Both run the same function of one shard.

    data    copies of the weights; each copy scores different rows
    fsdp    devices that share one copy: each keeps a part of every matrix, gathers a layer's
            matrices before it computes the layer, and computes some of the shard's rows
    expert  devices that split the experts of a mixture; each computes attention for some of the
            shard's rows
    model   devices that split heads, feed-forward and vocabulary (tensor parallel)
"""

import ctypes
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jax.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)
from jax.stages import Compiled
from jax.typing import ArrayLike, DTypeLike

from miron_jax.config import AXES, mesh_text
from miron_jax.errors import InputError
from miron_jax.runtime.program_cache import Device, compiled, library_matmuls

DATA, FSDP, EXPERT, MODEL = AXES
ROWS = FSDP, EXPERT  # axes that split the rows of a shard
ONE_COPY = FSDP, EXPERT, MODEL  # axes whose devices have one copy of the weights

Tree = Any  # a pytree of arrays: jax has no type for it


@dataclass(frozen=True)
class Placement:
    """The devices of weights and batches.  user: the user has placed the weights; a batch is one
    shard on their mesh."""

    device: Device  # one of them
    mesh: Mesh | None = None
    how: Literal["one", "pmap", "mesh", "user"] = "one"
    row_axes: tuple[str, ...] = ()  # axes of the mesh that the rows of one shard are split over
    # bytes of each device, if it only compiles (runtime/topology.py); None: it runs
    memory: int | None = None
    taken: int = 0  # of these, by weights

    @classmethod
    def default(cls) -> "Placement":
        """jax's default device alone."""
        return cls(jax.config.values["jax_default_device"] or jax.local_devices()[0])

    @classmethod
    def of(cls, state: Tree, row_axes: tuple[str, ...] = ()) -> "Placement":
        """The placement of weights that are on a device or on a mesh.  Raises InputError if their
        mesh lacks row_axes."""
        leaves = jax.tree.leaves(state)
        device = min(leaves[0].sharding.addressable_devices, key=lambda device: device.id)
        meshes: list[Any] = [
            leaf.sharding.mesh for leaf in leaves if isinstance(leaf.sharding, NamedSharding)
        ]
        names = meshes[0].axis_names if meshes else ()
        if not set(row_axes) <= set(names):
            raise InputError(
                f"row_axes are {row_axes}, expected axes of the weights' mesh: "
                f"{', '.join(map(str, names)) or 'none'}"
            )
        return cls(device, meshes[0], "user", row_axes) if meshes else cls(device)

    @classmethod
    def of_loaded(
        cls,
        state: Tree,
        chosen: "Placement | None",
        row_axes: tuple[str, ...] = (),
        is_own: bool = False,
    ) -> "Placement":
        """`chosen`, for which the engine has loaded the state, unless a user's own model came with
        its weights on a mesh of their own."""
        placement = cls.of(state, row_axes)
        whole = all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state))
        if chosen is None or chosen.mesh != placement.mesh or (is_own and not whole):
            return placement
        return chosen

    @classmethod
    def choose(
        cls, sharding: Literal["pmap", "mesh"], axes: tuple[tuple[str, int], ...] = ()
    ) -> "Placement":
        """The placement of --sharding and --mesh.  Raises InputError for a mesh that does not fit
        the devices.

        A mesh of as many devices as all hosts have spans the hosts; any other is on this host's
        devices.
        """
        local = jax.local_devices()
        if sharding == "pmap":
            if len(local) == 1:
                return cls(local[0])
            return cls(local[0], Mesh(np.asarray(local), (DATA,)), "pmap")
        shape = tuple(dict(axes).get(axis, 1) for axis in AXES)
        size = math.prod(shape)
        devices = jax.devices() if size == jax.device_count() else local[:size]
        if size > len(devices):
            everywhere = f" ({jax.device_count()} on all hosts)" if jax.process_count() > 1 else ""
            raise InputError(
                f"--mesh={mesh_text(axes)} takes {size} devices, this "
                f"host has {len(local)}{everywhere}: name sizes whose product is that"
            )
        return cls.on_mesh(devices, shape)

    @classmethod
    def on_mesh(
        cls, devices: list[Device], shape: tuple[int, ...], memory: int | None = None
    ) -> "Placement":
        """A mesh of this shape, in the order of AXES."""
        mesh = Mesh(np.asarray(devices).reshape(shape), AXES)
        device = mesh.local_devices[0] if memory is None else devices[0]
        row_axes = tuple(axis for axis in ROWS if mesh.shape[axis] > 1)
        return cls(device, mesh, "mesh", row_axes, memory)

    def size(self, *axes: str) -> int:
        """Number of devices along these axes of the mesh."""
        shape = {} if self.mesh is None else self.mesh.shape
        return math.prod(shape.get(axis, 1) for axis in axes)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def shards(self) -> int:
        """Number of shards in a batch."""
        return self.size(DATA) if self.how in ("pmap", "mesh") else 1

    @property
    def row_places(self) -> tuple[int, int]:
        """Shards of a batch, and rows of a shard that its devices compute side by side."""
        return self.shards, self.size(*self.row_axes)

    @property
    def is_described(self) -> bool:
        """Whether the devices only compile: arrays on them are shapes, dtypes and shardings."""
        return self.memory is not None

    @property
    def is_global(self) -> bool:
        """Whether the mesh spans hosts, which then run the same programs in the same order."""
        if self.mesh is None or not self.is_described:
            return self.mesh is not None and not self.shared.is_fully_addressable
        return len({device.process_index for device in self.mesh.devices.flat}) > 1

    @property
    def shared(self) -> Sharding | Device:
        """Sharding of arrays that every device has whole."""
        if self.mesh is not None:
            return NamedSharding(self.mesh, PartitionSpec())
        return SingleDeviceSharding(self.device) if self.is_described else self.device

    @property
    def split(self) -> Sharding | Device:
        """Sharding of arrays with a leading axis of shards."""
        if self.how in ("one", "user"):
            return self.shared
        return NamedSharding(self.mesh, PartitionSpec(DATA))  # type: ignore[arg-type]

    @property
    def row_sharding(self) -> NamedSharding | PartitionSpec | None:
        """Sharding of one shard's arrays [rows, ...], inside the function that computes it."""
        if not self.row_axes:
            return None
        spec = PartitionSpec(self.row_axes)
        return NamedSharding(self.mesh, spec) if self.how == "user" else spec  # type: ignore[arg-type]

    def share(self, host: ArrayLike) -> jax.Array:
        """Copy a host array whole to every device."""
        return self._put(np.asarray(host), self.shared)

    def put(self, host: ArrayLike) -> jax.Array:
        """Copy each shard of a host array, whose leading axis is shards, to the devices that
        compute it."""
        return self._put(np.asarray(host), self.split)

    def _put(self, host: np.ndarray, sharding: Sharding | Device) -> jax.Array:
        if self.is_described:
            return jax.ShapeDtypeStruct(host.shape, host.dtype, sharding=sharding)  # type: ignore[return-value]
        if getattr(sharding, "is_fully_addressable", True):
            return jax.device_put(host, sharding)
        # does not compare hosts
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike, spec: PartitionSpec) -> jax.Array:
        """Zeros with a leading axis of shards; under `mesh` they are split as `spec` says."""
        sharding = NamedSharding(self.mesh, spec) if self.how == "mesh" else self.split  # type: ignore[arg-type]
        if self.is_described:
            return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)  # type: ignore[return-value]
        if self.how in ("one", "user") and not self.is_global:
            return jax.device_put(jnp.zeros(shape, dtype), sharding)
        return jax.jit(partial(jnp.zeros, shape, dtype), out_shardings=sharding)()

    @property
    def read_by_all(self) -> Sharding | Device | None:
        """Sharding of results that every host of the mesh reads; None: there is one host, and XLA
        chooses."""
        return self.shared if self.is_global else None

    @property
    def results(self) -> PartitionSpec:
        """Spec of a program's small results: whole on every device of a mesh that spans hosts, as
        each host reads them."""
        return PartitionSpec() if self.is_global else PartitionSpec(DATA)

    def put_weight(
        self, host: np.ndarray, spec: PartitionSpec, shape: tuple[int, ...]
    ) -> jax.Array:
        """Copy a weight to the mesh, split as `spec` says and padded with zeros to `shape`."""
        if self.mesh is None:
            return jax.device_put(host, self.device)

        def block_at(index: Tree) -> np.ndarray:
            block = host[index]
            sizes = []
            for axis, size in zip(index, shape, strict=True):
                sizes.append(len(range(*axis.indices(size))))
            padding = [(0, padded - size) for padded, size in zip(sizes, block.shape, strict=True)]
            return np.pad(block, padding) if any(right for _, right in padding) else block

        return jax.make_array_from_callback(shape, NamedSharding(self.mesh, spec), block_at)

    def compile(
        self,
        function: Callable[..., Tree],
        shared: tuple[Tree, ...],
        split: tuple[Tree, ...],
        donate: tuple[int, ...] = (),
        out: Tree = None,
        in_float32: bool = False,
    ) -> Compiled:
        """Compile `function(*shared, *split)`, which computes one shard.

        Arguments and results are trees of arrays; those of `split`, and the results, have a leading
        axis of shards that the function does not see.  `donate`: indices of arguments whose memory
        the results take over.  `out`: tree of PartitionSpecs of the results, leading axis included;
        None: see `results`.  `in_float32`: some matmuls are float32 whatever the weights are.
        """
        num_shared = len(shared)

        def on_batch_of_one(*arguments: Tree) -> Tree:
            shard = jax.tree.map(lambda x: x[0], arguments[num_shared:])
            return jax.tree.map(lambda y: y[None], function(*arguments[:num_shared], *shard))

        if self.how == "pmap":
            assert self.mesh is not None
            axes = (None,) * num_shared + (0,) * len(split)
            devices = list(self.mesh.devices.flat)
            mapped = jax.pmap(function, DATA, in_axes=axes, donate_argnums=donate, devices=devices)
            # With several processes, pmap mistakes shapes for host arrays: it gets zeros of these
            # shapes.
            shared = jax.tree.map(partial(_zeros_if_shape, put=self.share), shared)
            split = jax.tree.map(partial(_zeros_if_shape, put=self.put), split)
        elif self.how == "mesh":
            assert self.mesh is not None
            whole = PartitionSpec()
            by_shard = PartitionSpec(DATA)
            specs = (whole,) * num_shared + (by_shard,) * len(split)
            # XLA partitions over the axes that split a copy, from the shardings of the weights.
            # Without any, all axes are manual: cuDNN's attention compiles under no other, of
            # size 1 either.
            inner = jax.shard_map(
                on_batch_of_one,
                mesh=self.mesh,
                in_specs=specs,
                out_specs=by_shard,
                axis_names={DATA} if self.size(*ONE_COPY) > 1 else set(self.mesh.axis_names),
                check_vma=False,
            )
            shardings = jax.tree.map(
                partial(NamedSharding, self.mesh), out or self.results, is_leaf=_is_spec
            )
            mapped = jax.jit(inner, donate_argnums=donate, out_shardings=shardings)
        else:
            # as `zeros` lie: results come back as arguments
            whole = {"user": self.shared}.get(self.how)
            mapped = jax.jit(on_batch_of_one, donate_argnums=donate, out_shardings=whole)
        devices = [self.device] if self.mesh is None else list(self.mesh.devices.flat)
        largest = max(jax.tree.leaves(shared), key=lambda leaf: leaf.size, default=None)
        in_float32 |= largest is not None and largest.dtype == jnp.float32
        options = library_matmuls(self.device) if in_float32 else None
        return compiled(mapped.lower(*shared, *split), devices, options)

    def free_bytes(self) -> float:
        """Free memory of each device in bytes; on CPU an equal share of the host's.

        On a mesh that spans hosts, which must all choose the same sizes, half of a device's memory.
        """
        if self.memory is not None:
            return self.memory / 2 if self.is_global else max(self.memory - self.taken, 0)
        statistics = self.device.memory_stats() or {}
        if self.is_global:
            return statistics.get("bytes_limit", 1 << 60) / 2
        if "bytes_limit" in statistics:
            return statistics["bytes_limit"] - statistics["bytes_in_use"]
        num_local = 1 if self.mesh is None else len(self.mesh.local_devices)
        return psutil.virtual_memory().available / num_local


def row_axes(num_rows: int) -> tuple[str, ...]:
    """Axes that split so many rows of a shard inside a program of `Placement.compile`; none if they
    do not divide them."""
    shape = jax.sharding.get_abstract_mesh().shape
    axes = tuple(axis for axis in ROWS if shape.get(axis, 1) > 1)
    return axes if num_rows % math.prod(shape[axis] for axis in axes) == 0 else ()


def on_every_device(x: jax.Array) -> jax.Array:
    """x, inside a program of `Placement.compile`, where no axis of a mesh splits it."""
    mesh = jax.sharding.get_abstract_mesh()
    has_axes = set(mesh.axis_names) != set(mesh.manual_axes)
    return jax.lax.with_sharding_constraint(x, PartitionSpec()) if has_axes else x


def gathered(x: Tree, row_sharding: Sharding | PartitionSpec | None) -> Tree:
    """Arrays of a shard, inside its program, whole on each device that `row_sharding` gives some of
    the shard's rows."""
    if row_sharding is None:
        return x
    whole: Sharding | PartitionSpec = PartitionSpec()
    if isinstance(row_sharding, NamedSharding):
        whole = NamedSharding(row_sharding.mesh, whole)
    return jax.lax.with_sharding_constraint(x, whole)


def take_rows(table_VD: jax.Array, index_BT: jax.Array, rows_are_split: bool) -> jax.Array:
    """float32 table_VD[index_BT] inside a program of `Placement.compile`.  `rows_are_split`:
    whether B is split over `fsdp`.

    If a mesh splits V over `fsdp` and `model`, each device looks up the rows that it holds, because
    XLA's partitioner aborts at some sizes of such a gather (spmd_partitioner_util.cc, "Check
    failed: partition_group_list", jaxlib 0.10.2).
    """
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(axis for axis in (FSDP, MODEL) if mesh.shape.get(axis, 1) > 1)
    if not axes:
        return table_VD[index_BT].astype(jnp.float32)
    scatters = rows_are_split and FSDP in axes and index_BT.shape[0] % mesh.shape[FSDP] == 0

    def local_rows(part_VD: jax.Array, index_BT: jax.Array, dtype: DTypeLike) -> jax.Array:
        local_BT = index_BT - jax.lax.axis_index(axes) * part_VD.shape[0]
        is_local_BT = (local_BT >= 0) & (local_BT < part_VD.shape[0])
        rows_BTD = part_VD[jnp.where(is_local_BT, local_BT, 0)].astype(dtype)
        # zeros on all devices but one: the sum is exact
        rows_BTD = jnp.where(is_local_BT[..., None], rows_BTD, 0)
        if not scatters:
            return jax.lax.psum(rows_BTD, axes)
        rows_BTD = jax.lax.psum_scatter(rows_BTD, FSDP, scatter_dimension=0, tiled=True)
        return jax.lax.psum(rows_BTD, MODEL) if MODEL in axes else rows_BTD

    whole = PartitionSpec()
    rows = PartitionSpec(FSDP) if scatters else PartitionSpec()

    def summed(dtype: DTypeLike, table_VD: jax.Array, index_BT: jax.Array) -> jax.Array:
        """`dtype`: that rows travel in; XLA's CPU compiler aborts on such a sum of bfloat16."""
        split = jax.shard_map(
            partial(local_rows, dtype=dtype),
            in_specs=(PartitionSpec(axes), whole),
            out_specs=rows,
            axis_names=set(axes),
            check_vma=False,
        )
        return split(table_VD, index_BT).astype(jnp.float32)

    forms = {"tpu": partial(summed, table_VD.dtype), "default": partial(summed, jnp.float32)}
    return jax.lax.platform_dependent(table_VD, index_BT, **forms)


def _zeros_if_shape(leaf: Tree, put: Callable[[np.ndarray], jax.Array]) -> Tree:
    return put(np.zeros(leaf.shape, leaf.dtype)) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf


def _is_spec(leaf: object) -> bool:
    return isinstance(leaf, PartitionSpec)


def bytes_of_a_device(state: Tree) -> int:
    """Bytes that each device holds of a state, or of its shapes."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(state)
    )


def as_copies(state: Tree, placement: Placement) -> tuple[Tree, Placement]:
    """Weights that a user has placed whole on each device of a mesh, all of whose axes split rows,
    as `mesh` places copies: no device then waits for another one before its shard is done.  Nothing
    is copied; other weights stay as they are."""
    copies = placement.size(*placement.row_axes)
    if placement.how != "user" or placement.mesh is None or copies < max(2, placement.devices):
        return state, placement
    shardings = [leaf.sharding for leaf in jax.tree.leaves(state)]
    if not all(each.is_fully_replicated and each.num_devices == copies for each in shardings):
        return state, placement
    mesh = Mesh(placement.mesh.devices.reshape(copies, *(1,) * (len(AXES) - 1)), AXES)
    whole = NamedSharding(mesh, PartitionSpec())
    state = jax.tree.map(partial(_with_sharding, sharding=whole), state)
    return state, replace(placement, mesh=mesh, how="mesh", row_axes=())


def _with_sharding(leaf: Tree, sharding: NamedSharding) -> Tree:
    """An array, or its shape, by another name of where it lies."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.update(sharding=sharding)
    if leaf.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    blocks = [shard.data for shard in leaf.addressable_shards]
    return jax.make_array_from_single_device_arrays(leaf.shape, sharding, blocks)


def with_auto_axes(state: Tree) -> Tree:
    """The same arrays with the explicit axes of their mesh (jax.make_mesh's default) made
    automatic; nothing is copied."""

    def with_auto(leaf: Tree) -> Tree:
        sharding = getattr(leaf, "sharding", None)
        if not isinstance(sharding, NamedSharding) or set(sharding.mesh.axis_types) == {
            AxisType.Auto
        }:
            return leaf
        mesh = Mesh(np.asarray(sharding.mesh.devices), sharding.mesh.axis_names)
        return _with_sharding(leaf, NamedSharding(mesh, sharding.spec))

    return jax.tree.map(with_auto, state)


def return_freed_memory() -> None:
    """Give freed memory back to the system: glibc keeps 0.2 GB after the compiler's eight programs
    on CPU, and the buffers in which weights are decoded, up to a third of a checkpoint."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # musl does not have it
        trim(0)
