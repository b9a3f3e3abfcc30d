"""TPUs and GPUs that are described and not present: their compilers run on any machine.

Arrives: a name such as v5e:4x4 or h100:1x1x8.  Leaves: devices that jax compiles for, and what is
known of them.  It deliberately does not know models or programs.
"""

import math
import os
import re
from importlib.metadata import PackageNotFoundError, requires, version

import jax
from jax.experimental import topologies
from packaging.requirements import Requirement
from packaging.version import Version

from miron_jax.config import AXES, mesh_text
from miron_jax.errors import InputError
from miron_jax.runtime.chips import CHIPS, Gpu, Tpu, description_of
from miron_jax.runtime.devices import Device, Placement


def described_devices(topology: str) -> list[Device]:
    """The devices of a topology, which compile and do not run.

    Raises InputError for an unknown topology, and where the compiler is absent or does not go with
    this jax.
    """
    name, _, size = topology.partition(":")
    chip = CHIPS.get(name)
    if chip is None or not re.fullmatch(chip.any_size, size):
        known = "; ".join(f"{name}:{', '.join(chip.sizes)}" for name, chip in CHIPS.items())
        raise InputError(
            f"{topology!r} is not a known topology, expected a chip and sizes such as v5e:4x4 or "
            f"h100:1x1x8, of {known}"
        )
    remedy = f'install it by pip install "miron-jax[{chip.extra}]"'
    _check_installed(chip.compiler, topology, remedy)
    try:
        if isinstance(chip, Gpu):
            return _gpus(chip, size)
        return _tpus(topology)
    except Exception as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        if "INVALID_ARGUMENT" in reason:
            raise InputError(
                f"{topology!r} is not a topology that {chip.compiler} knows ({reason}); try "
                f"{name}:{', '.join(chip.sizes)}"
            ) from error
        raise InputError(
            f"{chip.compiler}, which compiles for {topology}, cannot be used ({reason}): {remedy}"
        ) from error


def _tpus(topology: str) -> list[Device]:
    # libtpu otherwise asks a metadata server what it runs on, and serves one process of a machine.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)


def _gpus(gpu: Gpu, size: str) -> list[Device]:
    text = description_of(gpu)
    described = topologies.get_topology_desc(platform="cuda", target_config=text, topology=size)
    return list(described.devices)


def _check_installed(compiler: str, topology: str, remedy: str) -> None:
    """Raises InputError if the compiler's package is absent, or older than the one that this jax
    was made for."""
    try:
        has = version(compiler)
    except PackageNotFoundError:
        raise InputError(
            f"{compiler}, which compiles for {topology} on any machine, is not installed: {remedy}"
        ) from None
    for wanted in map(Requirement, requires("jax") or ()):
        lowest = [Version(each.version.removesuffix(".*")) for each in wanted.specifier]
        if wanted.name == compiler and lowest and Version(has) < min(lowest):
            raise InputError(
                f"{compiler} is {has}, but jax {jax.__version__} goes with {wanted.specifier}: "
                f"{remedy}"
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
        mesh = mesh_text(axes)
        raise InputError(
            f"--mesh={mesh} takes {size} devices, {topology} has {len(devices)}: name sizes whose "
            f"product is at most {len(devices)}"
        )
    return Placement.on_mesh(devices[:size], shape, memory)


def chip_of(device: Device) -> Tpu | Gpu:
    return next(chip for chip in CHIPS.values() if chip.kind == device.device_kind)
