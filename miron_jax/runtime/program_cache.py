"""Compiled programs of processes after the first, in the folder of jax's compilation cache.

Arrives: a lowered program and the devices that run it.  Leaves: the compiled program.  It
deliberately does not know what it computes.

Of several processes jax lets the first alone write its cache (`_cache_write` in
jax/_src/compiler.py), and the programs of another host's own devices have other keys: on a pod
every start compiled them again on all hosts but one.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Sequence
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

import jax
from etils import epath
from jax.experimental.serialize_executable import deserialize_and_load, serialize

Device = Any  # a jax.Device: jaxlib has no type stubs


def library_matmuls(device: Device) -> dict[str, bool | str] | None:
    """Compiler options with which a GPU's matmuls are cuBLAS's, none of Triton; None on other
    devices.

    XLA compiles and times many Triton kernels for each matmul: on an H200 (jax 0.11.2) a program of
    GPT-2 took 38 s to compile in float32, 4 s without them; in bfloat16 3.2 and 1.3 s.
    """
    if device.platform != "gpu":
        return None
    return {"xla_gpu_enable_triton_gemm": False}


def compiled(
    lowered: jax.stages.Lowered,
    devices: Sequence[Device],
    options: dict[str, bool | str] | None = None,
) -> jax.stages.Compiled:
    """The program, read from the folder if this process has written it there, else compiled and
    written.

    `options`: those of the compiler.
    """
    folder = jax.config.values["jax_compilation_cache_dir"]
    is_on = bool(folder) and jax.config.values["jax_enable_compilation_cache"]
    if not is_on or jax.process_index() == 0:
        return lowered.compile(options)
    path = epath.Path(folder) / f"{_key(lowered, devices, options)}-process"
    with contextlib.suppress(Exception):  # absent, or damaged in any way: it is written again
        return deserialize_and_load(
            path.read_bytes(), lowered.in_tree, lowered.out_tree, execution_devices=list(devices)
        )
    program = lowered.compile(options)
    part = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    # A folder that cannot be written, or a program that calls back into Python, costs time and no
    # result.
    with contextlib.suppress(Exception):
        payload, _, _ = serialize(program)
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(payload)
        part.replace(path)
    return program


def _key(
    lowered: jax.stages.Lowered, devices: Sequence[Device], options: dict[str, bool | str] | None
) -> str:
    """Of all that decides the program: its text, its devices, the compiler and its flags."""
    device = devices[0]
    compiler = [
        jax.__version__,
        version("jaxlib"),
        device.client.platform_version,
        device.device_kind,
        os.environ.get("XLA_FLAGS"),
        options,
    ]
    content = json.dumps(
        [*compiler, os.environ.get("LIBTPU_INIT_ARGS"), [device.id for device in devices]]
    )
    return blake2b((content + lowered.as_text()).encode(), digest_size=16).hexdigest()
