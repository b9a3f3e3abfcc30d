"""TPUs that are described and not present: libtpu compiles programs for them on any machine.

Arrives: a name such as v5e:4x4.  Leaves: devices that jax compiles for, and what is known of their
chips.  It deliberately does not know models or programs.
"""

import math
import os
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import NamedTuple

import jax
from jax.experimental import topologies
from packaging.requirements import Requirement
from packaging.version import Version

from miron_jax.config import AXES
from miron_jax.errors import InputError
from miron_jax.runtime.devices import Device, Placement


class Chip(NamedTuple):
    """Bytes are those that libtpu 0.0.42.1 says are available; rates are of
    cloud.google.com/tpu/docs (v5e, v5p, v6e)."""

    kind: str  # `device_kind` of its devices
    memory: int  # bytes
    peak: float  # FLOPs a second of bfloat16 matmuls
    clock: float  # cycles a second of the compiler's estimates
    sizes: tuple[str, ...]  # of its topologies, from the smallest; there are others


_FLAT = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8")
CHIPS = {
    "v5e": Chip("TPU v5 lite", int(15.75 * 2**30), 197e12, 1.5e9, _FLAT),
    "v5p": Chip("TPU v5", int(95.74 * 2**30), 459e12, 1.75e9, _CUBES),
    "v6e": Chip("TPU v6 lite", int(31.25 * 2**30), 918e12, 1.75e9, _FLAT),
}


def described_devices(topology: str) -> list[Device]:
    """The devices of a topology, which compile and do not run.

    Raises InputError for an unknown topology, and where libtpu is absent or does not go with this
    jax.
    """
    name, _, size = topology.partition(":")
    if name not in CHIPS or not re.fullmatch(r"\d+(x\d+){1,2}", size):
        known = "; ".join(f"{name}:{', '.join(chip.sizes)}" for name, chip in CHIPS.items())
        raise InputError(
            f"{topology!r} is not a known topology, expected a chip and sizes such as v5e:4x4, of "
            f"{known}"
        )
    _check_libtpu()
    # libtpu otherwise asks a metadata server what it runs on, and serves one process of a machine.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    except Exception as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        if "INVALID_ARGUMENT" in reason:
            raise InputError(
                f"{topology!r} is not a topology that libtpu knows ({reason}); try "
                f"{name}:{', '.join(CHIPS[name].sizes)}"
            ) from error
        raise InputError(
            f"libtpu, which compiles for {topology}, cannot be used ({reason}): install it by "
            'pip install "miron-jax[tpu]"'
        ) from error


def _check_libtpu() -> None:
    """Raises InputError if libtpu is absent, or older than the one that this jax was made for."""
    remedy = 'install it by pip install "miron-jax[tpu]"'
    try:
        has = version("libtpu")
    except PackageNotFoundError:
        raise InputError(
            f"libtpu, which compiles for TPUs on any machine, is not installed: {remedy}"
        ) from None
    for wanted in map(Requirement, requires("jax") or ()):
        lowest = [Version(each.version.removesuffix(".*")) for each in wanted.specifier]
        if wanted.name == "libtpu" and lowest and Version(has) < min(lowest):
            raise InputError(
                f"libtpu is {has}, but jax {jax.__version__} goes with {wanted.specifier}: {remedy}"
            )


def larger(topology: str) -> list[str]:
    """The known topologies of the same chip with more chips, from the smallest."""
    name, _, size = topology.partition(":")
    return [f"{name}:{each}" for each in CHIPS[name].sizes if _chips(each) > _chips(size)]


def _chips(size: str) -> int:
    return math.prod(map(int, size.split("x")))


def described_placement(topology: str, axes: tuple[tuple[str, int], ...] = ()) -> Placement:
    """The placement of --mesh on the devices of a topology; without axes, on one of them.

    Raises InputError for a mesh that is larger than the topology.
    """
    devices = described_devices(topology)
    memory = chip_of(devices[0]).memory
    if not axes:
        return Placement(devices[0], memory=memory)
    shape = tuple(dict(axes).get(axis, 1) for axis in AXES)
    size = math.prod(shape)
    if size > len(devices):
        mesh = ",".join(f"{axis}={count}" for axis, count in axes)
        raise InputError(
            f"--mesh={mesh} takes {size} devices, {topology} has {len(devices)}: name sizes whose "
            "product is that"
        )
    return Placement.on_mesh(devices[:size], shape, memory)


def chip_of(device: Device) -> Chip:
    return next(chip for chip in CHIPS.values() if chip.kind == device.device_kind)
