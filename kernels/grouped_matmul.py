"""Matmuls of stretches of rows by matrices of their own, as a mixture's experts have: JAX's Pallas
kernel for NVIDIA's Hopper.

Arrives: rows sorted by group, a matrix a group.  Leaves: their products; whether a device takes the
kernel.  It deliberately does not know what else computes them.
"""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from miron_jax.kernels.forest_attention.choose import TOLERANCE, DeviceLike

DEPTH = 64  # of a block: what it sums over is a multiple of it
TILE = 8  # rows that the kernel takes are a multiple of it
FEWEST = 128  # rows that a call has at least: those of a block
# Of the trial: no block is full; matrices are no wider than two SAMPLEs, in more steps than the
# kernel has under way.
ROWS = 700
SAMPLE = 512
GROUPS = 16


class GroupedChoice(NamedTuple):
    is_taken: bool
    why_not: str | None = None  # of a device that would take it by default


def grouped_matmul(x_RK: jax.Array, matrix_GKN: jax.Array, size_G: jax.Array) -> jax.Array:
    """The first size_G[0] rows times the first matrix, and so on, [R, N] in the dtype of x; rows
    after these are any.  Blocks of 128 x 128 x 64, four steps ahead: 160 registers, no spills."""
    from jax.experimental.pallas.ops.gpu.ragged_dot_mgpu import ragged_dot

    num_rows = len(x_RK)
    y_RN = ragged_dot(
        jnp.pad(x_RK, ((0, -num_rows % TILE), (0, 0))), matrix_GKN, group_sizes=size_G,
        block_m=FEWEST, block_n=128, block_k=DEPTH, max_concurrent_steps=4, grid_block_n=1,
    )  # fmt: skip
    return y_RN[:num_rows]


@cache
def choose(device: DeviceLike, groups: int, width: int, hidden: int, dtype: str) -> GroupedChoice:
    """Whether the kernel computes products of `width` and `hidden` on this device: on Hopper in
    bfloat16 where it agrees with float32 there."""
    if getattr(device, "compute_capability", "") != "9.0" or dtype != "bfloat16":
        return GroupedChoice(False)
    if width % DEPTH or hidden % DEPTH:
        return GroupedChoice(False, f"{width} and {hidden} are not multiples of {DEPTH}")
    sizes = [size if size < SAMPLE else SAMPLE + size % SAMPLE for size in (width, hidden)]
    up = tried(device, min(groups, GROUPS), *sizes)
    return tried(device, min(groups, GROUPS), *reversed(sizes)) if up.is_taken else up


def tried(device: DeviceLike, groups: int, width: int, hidden: int) -> GroupedChoice:
    """The kernel is taken if it agrees on the device with a loop over groups, one of them empty; a
    device that only compiles must compile it."""
    rng = np.random.default_rng(0)
    sizes = rng.multinomial(ROWS - 9, np.full(groups, 1 / groups)).astype(np.int32)
    sizes[0], sizes[-1] = 0, sizes[-1] + sizes[0]
    x = rng.standard_normal((ROWS, width), np.float32)
    matrices = rng.standard_normal((groups, width, hidden), np.float32) * width**-0.5
    try:
        if getattr(device.client, "runtime_type", "") == "compile_only_runtime":
            struct = partial(jax.ShapeDtypeStruct, sharding=SingleDeviceSharding(device))
            shapes = [struct(each.shape, jnp.bfloat16) for each in (x, matrices)]
            jax.jit(grouped_matmul).lower(*shapes, struct(sizes.shape, jnp.int32)).compile()
            return GroupedChoice(True)
        with jax.default_device(device):
            rows, by_group = (jnp.asarray(each, jnp.bfloat16) for each in (x, matrices))
            computed = np.asarray(jax.jit(grouped_matmul)(rows, by_group, jnp.asarray(sizes)))
    except Exception as error:  # whatever a compiler or a driver says of it, blocks run
        reason = (str(error) or repr(error)).splitlines()[0]
        return GroupedChoice(False, f"the kernel fails here: {reason}")
    stops = np.cumsum(sizes)
    of_groups = np.split(np.asarray(rows, np.float32)[: stops[-1]], stops[:-1])
    exact = np.concatenate([*map(np.matmul, of_groups, np.asarray(by_group, np.float32))])
    difference = float(np.abs(computed[: len(exact)].astype(np.float32) - exact).max())
    if not difference <= TOLERANCE["bfloat16"]:
        return GroupedChoice(False, f"the kernel is {difference:.1e} off its definition here")
    return GroupedChoice(True)
