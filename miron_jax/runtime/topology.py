"""TPUs that are described and not present: libtpu compiles programs for them on any machine.

Arrives: a name such as v5e:4x4.  Leaves: devices that jax compiles for, and what is known of their chips.  It deliberately
does not know models or programs.
"""

import math
import os
import re
from typing import NamedTuple

from jax.experimental import topologies

from miron_jax.config import AXES
from miron_jax.errors import InputError
from miron_jax.runtime.devices import Device, Placement


class Chip(NamedTuple):
    """Bytes are those that libtpu 0.0.42.1 says are available; rates are of cloud.google.com/tpu/docs (v5e, v5p, v6e)."""

    kind: str  # `device_kind` of its devices
    memory: int  # bytes
    peak: float  # FLOPs a second of bfloat16 matmuls
    clock: float  # cycles a second of the compiler's estimates


CHIPS = {
    "v5e": Chip("TPU v5 lite", int(15.75 * 2**30), 197e12, 1.5e9),
    "v5p": Chip("TPU v5", int(95.74 * 2**30), 459e12, 1.75e9),
    "v6e": Chip("TPU v6 lite", int(31.25 * 2**30), 918e12, 1.75e9),
}
EXAMPLES = "v5e:2x2, v5e:4x4, v5p:2x2x1, v5p:2x2x4, v6e:2x2"


def described_devices(topology: str) -> list[Device]:
    """The devices of a topology, which compile and do not run.

    Raises InputError for an unknown topology, and where libtpu is absent or does not go with this jax.
    """
    if not re.fullmatch(rf"({'|'.join(CHIPS)}):\d+(x\d+){{1,2}}", topology):
        raise InputError(
            f"{topology!r} is not a known topology, expected {', '.join(CHIPS)} and sizes, such as {EXAMPLES}"
        )
    # libtpu otherwise asks a metadata server what it runs on, and serves one process of a machine.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        if "INVALID_ARGUMENT" in reason:
            raise InputError(f"{topology!r} is not a topology that libtpu knows ({reason}); try {EXAMPLES}") from error
        raise InputError(
            f'libtpu, which compiles for {topology}, cannot be used ({reason}): install it by pip install "miron-jax[tpu]"'
        ) from error


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
            f"--mesh={mesh} takes {size} devices, {topology} has {len(devices)}: name sizes whose product is that"
        )
    return Placement.on_mesh(devices[:size], shape, memory)


def chip_of(device: Device) -> Chip:
    return next(chip for chip in CHIPS.values() if chip.kind == device.device_kind)
