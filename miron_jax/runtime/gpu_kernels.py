"""What a program that XLA compiled for a GPU takes at least: a roofline of its kernels.

Arrives: compiled HLO text, what is known of the GPU.  Leaves: `Roofline`.  It deliberately does not
know which program it is.

Every fusion, copy and call of a library is a kernel.  It takes the longer of the times of its
matmuls and of its memory's traffic, and a launch.  Traffic is operands and results as the kernel
uses them: where it takes slices, the slices; where it updates a part in place, the part.  Nothing
stays in the cache between kernels.  The way from GPU to GPU is not counted.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from miron_jax.runtime.chips import BANDWIDTH_SHARE, FLOAT32_SHARE, LAUNCH_SECONDS, Gpu
from miron_jax.runtime.hlo import (
    Computation,
    Operation,
    Program,
    bytes_of,
    program_of,
    runs_of,
    sizes_of,
)

# Operations without a kernel; those whose names end with -done belong to the one that starts them.
_FREE = ("after-all", "bitcast", "constant", "get-tuple-element", "parameter", "tuple")
_SLICES = ("dynamic-slice", "gather", "slice")
_VIEWS = ("bitcast", "convert", "copy", "reshape")  # a fusion reads through them
ATTENTION = "__cudnn$fmha"


class Kernel(NamedTuple):
    """One call of a kernel."""

    flops: float  # of matmuls
    is_float32: bool  # whether their operands are
    traffic: float  # bytes

    def seconds(self, gpu: Gpu) -> tuple[float, float]:
        """The least times of its matmuls and of its traffic."""
        rate = gpu.peak
        if self.is_float32:
            rate = FLOAT32_SHARE * gpu.float32_rate
        return self.flops / rate, self.traffic / (BANDWIDTH_SHARE * gpu.bandwidth)


class Roofline(NamedTuple):
    """Of one call of a program."""

    roofline: float  # seconds
    flops: float  # of matmuls
    traffic: float  # bytes
    kernels: int  # in the text
    launches: int  # of kernels, loops counted
    bound: str  # what most of the seconds go to: matmuls, memory or launches


def roofline_of(text: str, iterations: Mapping[str, float], gpu: Gpu) -> Roofline:
    """`iterations`: see `runs_of`."""
    program = program_of(text)

    def cost(operation: Operation, inside: Computation) -> float:
        if kernel := kernel_of(operation, inside, program):
            return max(kernel.seconds(gpu)) + LAUNCH_SECONDS
        return 0.0

    kernels = []
    for run in runs_of(program, iterations, cost):
        if kernel := kernel_of(run.operation, run.inside, program):
            kernels.append((kernel, run.times))
    launches = sum(times for _, times in kernels)
    seconds = {"matmuls": 0.0, "memory": 0.0, "launches": launches * LAUNCH_SECONDS}
    for kernel, times in kernels:
        matmuls, memory = kernel.seconds(gpu)
        seconds["matmuls" if matmuls > memory else "memory"] += max(matmuls, memory) * times
    return Roofline(
        sum(seconds.values()),
        sum(kernel.flops * times for kernel, times in kernels),
        sum(kernel.traffic * times for kernel, times in kernels),
        len(kernels),
        round(launches),
        max(seconds, key=lambda what: seconds[what]),
    )


def kernel_of(operation: Operation, inside: Computation, program: Program) -> Kernel | None:
    """The kernel that an operation runs; None if it runs none."""
    if operation.kind in _FREE or operation.kind.endswith("-done"):
        return None
    matmuls = [*_matmuls(operation, inside, program)]
    return Kernel(
        sum(flops for flops, _ in matmuls),
        any(left.startswith("f32") for _, left in matmuls),
        _traffic(operation, inside, program),
    )


def _matmuls(
    operation: Operation, inside: Computation, program: Program
) -> Iterator[tuple[float, str]]:
    """FLOPs and left operand's shape of each matmul of an operation, or of the fusion that it
    runs."""
    if body := _body(operation, program):
        for each in body.operations.values():
            yield from _matmuls(each, body, program)
    axes = re.search(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)', operation.line)
    if operation.kind not in ("dot", "custom-call") or not (axes or is_attention(operation)):
        return
    left = inside.operations[operation.operands[0]].shape
    sizes = sizes_of(left)
    if axes is None:  # q [B, T, N, H] with keys and with values, each query as far as itself
        b, t, n, h = sizes
        yield 4 * b * n * t * t * h * (0.5 if "CAUSAL" in operation.line else 1.0), left
    else:
        summed = math.prod(sizes[int(axis)] for axis in re.findall(r"\d+", axes[1]))
        yield 2.0 * math.prod(sizes_of(operation.shape)) * summed, left


def is_attention(operation: Operation) -> bool:
    """Whether it is cuDNN's attention."""
    return operation.kind == "custom-call" and ATTENTION in operation.line


def _body(operation: Operation, program: Program) -> Computation | None:
    """What a fusion computes, or an operation that is started and not waited for."""
    called = re.search(r" calls=%?([\w.\-]+)", operation.line)
    return program.computations[called[1]] if called else None


def _traffic(operation: Operation, inside: Computation, program: Program) -> float:
    """Bytes that a kernel reads and writes."""
    if body := _body(operation, program):
        return _fusion_traffic(body)
    read = [bytes_of(inside.operations[name].shape) for name in operation.operands]
    if is_attention(operation):  # the mask once for each head, as far as the diagonal
        heads = sizes_of(inside.operations[operation.operands[0]].shape)[2]
        read[3:] = [heads / 2 * bias for bias in read[3:]]
    written = operation.shape
    if operation.kind == "custom-call":  # a library's room to work in is none of its results
        written = re.sub(r"\b[su]8\[\d+\]", "", written)
    return sum(read) + bytes_of(written)


def _fusion_traffic(body: Computation) -> float:
    users = defaultdict[str, list[Operation]](list)
    for operation in body.operations.values():
        for name in operation.operands:
            users[name].append(operation)

    def uses(name: str) -> Iterator[tuple[Operation, str]]:
        """Operations that take the value, each with the name that it has there."""
        for user in users[name]:
            if user.kind in _VIEWS and users[user.name]:
                yield from uses(user.name)
            else:
                yield user, name

    total = 0.0
    for operation in body.operations.values():
        if operation.kind == "parameter":
            total += _read(operation, uses(operation.name))
        if operation.is_root:
            total += _written(operation, body)
    return total


def _read(parameter: Operation, uses: Iterator[tuple[Operation, str]]) -> float:
    """Bytes of a fusion's parameter: all, or those of its slices."""
    whole = bytes_of(parameter.shape)
    slices = 0.0
    for use, name in uses:
        if use.kind in _SLICES:
            slices += bytes_of(use.shape)
        elif use.kind != "dynamic-update-slice" or name in use.operands[1:]:
            return whole
    return min(slices, whole)


def _written(result: Operation, body: Computation) -> float:
    operands = [body.operations[name] for name in result.operands]
    if result.kind == "tuple":
        return sum(_written(each, body) for each in operands)
    if result.kind == "bitcast":
        return _written(operands[0], body)
    if result.kind == "dynamic-update-slice":
        return bytes_of(operands[1].shape)  # in the place of the first
    return bytes_of(result.shape)
