"""Forest attention on NVIDIA Hopper: a tile of queries goes over the blocks of keys that somebody in it sees, and no others.

Two warpgroups hold 64 queries each and keep a running softmax; a third one only copies keys and values into shared memory,
as many blocks ahead as there is room for.  Which blocks a tile visits is a list made beforehand, those without a mask
first.  The scheme is FlashAttention-3's (Shah and others, 2024, arXiv 2407.08608, section 3.1) without its turns between the
two warpgroups.  bfloat16 and float16 only.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from miron_jax.kernels.forest_attention.blocks import MASKED, WHOLE, block_kinds, padded
from miron_jax.kernels.forest_attention.xla import HIDDEN

QUERIES = 64  # of a warpgroup: what one matmul instruction takes
WARPGROUPS = 2  # that compute
TILE = WARPGROUPS * QUERIES
STAGES = 2  # blocks of keys and of values in shared memory: 128 kB with heads of 128
LOG2_E = 1.4426950408889634


@jax.named_scope("forest_attention")
def forest_attention(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    until_BT: jax.Array,
    position_BT: jax.Array,
    *,
    scale: float,
    window: jax.Array | int | None = None,
    softcap: float | None = None,
    interpret: Any = None,
) -> jax.Array:
    """Same result as `reference.forest_attention` within the inputs' rounding; out [B, T, N, H] float32.

    Heads are filled up with zeros to a multiple of 64.  `interpret`: run on any device, slowly, with matmuls and register
    layouts of no GPU (`jax.experimental.pallas.mosaic_gpu.kernel`).  Raises NotImplementedError for inputs of four bytes and
    heads of more than 256.
    """
    b, t, n, h = q_BTNH.shape
    if q_BTNH.dtype.itemsize != 2 or h > 256:
        raise NotImplementedError(f"heads of {h} in {q_BTNH.dtype}, expected at most 256 in bfloat16 or float16")
    groups = n // k_BTKH.shape[2]
    width = -(-h // 64) * 64
    block = 128 if width <= 128 else 64  # of keys: two blocks of them and of values fit beside the queries
    length = -(-t // TILE) * TILE
    until_BT, position_BT = padded(until_BT, position_BT, length)

    def filled(x_BTNH: jax.Array) -> jax.Array:
        return jnp.pad(x_BTNH, ((0, 0), (0, length - t), (0, 0), (0, width - h)))

    visits = visits_of(block_kinds(until_BT, position_BT, window, TILE, block))
    swizzled = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    shared = partial(plgpu.SMEM, dtype=q_BTNH.dtype, transforms=swizzled)
    kernel = partial(
        _kernel,
        on=INTERPRETED if interpret else HOPPER,
        groups=groups,
        scale=scale,
        softcap=softcap,
        windowed=window is not None,
    )
    out_BTNH = plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((b, length, n, width), q_BTNH.dtype),
        grid=(n, length // TILE, b),
        grid_names=("head", "tile", "row"),
        num_threads=WARPGROUPS + 1,
        thread_name="warpgroup",
        scratch_types=[
            shared((WARPGROUPS, QUERIES, width)),
            shared((STAGES, block, width)),
            shared((STAGES, block, width)),
            plgpu.Barrier(num_barriers=WARPGROUPS),
            plgpu.Barrier(num_barriers=STAGES),
            plgpu.Barrier(num_barriers=STAGES),
            plgpu.Barrier(num_barriers=STAGES, num_arrivals=WARPGROUPS),
        ],
        compiler_params=plgpu.CompilerParams(approx_math=softcap is None),  # exp2 to 2**-22, but tanh only to 2**-11
        interpret=interpret,
    )(
        filled(q_BTNH),
        filled(k_BTKH),
        filled(v_BTKH),
        until_BT,
        position_BT,
        *visits,
        jnp.asarray(0 if window is None else window, jnp.int32).reshape(1),
    )
    return out_BTNH[:, :t, :, :h].astype(jnp.float32)


class Visits(NamedTuple):
    """Blocks of keys that a tile of queries goes over."""

    block_BIJ: jax.Array  # int32: those without a mask, then those with one, then anything
    whole_BI: jax.Array  # int32: how many need no mask
    count_BI: jax.Array  # int32: how many there are


def visits_of(kind_BIJ: jax.Array) -> Visits:
    """The last block with a mask holds the tile's own places and is visited last, so that each query ends by itself."""
    order = jnp.where(kind_BIJ == WHOLE, 0, jnp.where(kind_BIJ == MASKED, 1, 2))
    whole_BI = (kind_BIJ == WHOLE).sum(axis=2, dtype=jnp.int32)
    masked_BI = (kind_BIJ == MASKED).sum(axis=2, dtype=jnp.int32)
    return Visits(jnp.argsort(order, axis=2, stable=True).astype(jnp.int32), whole_BI, whole_BI + masked_BI)


class Machine(NamedTuple):
    """What a GPU's registers and tensor cores do, and what stands for it where there is none."""

    full: Callable[..., jax.Array]  # shape, value
    iota: Callable[..., jax.Array]  # shape, dimension
    load: Callable[..., jax.Array]  # reference to one number a query (axis 0) or key (1), axis
    add_product: Callable[..., jax.Array]  # sums [Q, N] float32, a [Q, M], reference to b [M, N] or, across, [N, M]


def _load_on_hopper(ref: Any, axis: int) -> jax.Array:
    index = {"idx": None} if jax.__version_info__ < (0, 11) else {}  # asked for there, refused from 0.12 on
    return plgpu.load(ref, **index, layout=plgpu.Layout.WGMMA.reduce(1 - axis), optimized=False)


def _add_product_on_hopper(sum_QN: jax.Array, a: Any, b_ref: Any, across: bool = False) -> jax.Array:
    def product(sum_ref: Any) -> None:
        plgpu.wgmma(sum_ref, a, b_ref.transpose((1, 0)) if across else b_ref)

    return pl.run_state(product)(plgpu.ACC.init(sum_QN))


def _add_product_interpreted(sum_QN: jax.Array, a: Any, b_ref: Any, across: bool = False) -> jax.Array:
    a, b = a[...].astype(jnp.float32), b_ref[...].astype(jnp.float32)
    plgpu.commit_smem()  # tensor cores read as copies do: without it these reads would seem to race with the next copy
    return sum_QN + jax.lax.dot_general(a, b, (((1,), (1 if across else 0,)), ((), ())))


def _layout(shape: tuple[int, ...]) -> Any:
    return plgpu.Layout.WGMMA if len(shape) == 2 else plgpu.Layout.WGMMA.reduce(1)


HOPPER = Machine(
    full=lambda shape, value: plgpu.layout_cast(jnp.full(shape, value, jnp.float32), _layout(shape)),
    iota=lambda shape, axis: plgpu.broadcasted_iota(jnp.int32, shape, axis, layout=plgpu.Layout.WGMMA),
    load=_load_on_hopper,
    add_product=_add_product_on_hopper,
)
INTERPRETED = Machine(
    full=lambda shape, value: jnp.full(shape, value, jnp.float32),
    iota=lambda shape, axis: jax.lax.broadcasted_iota(jnp.int32, shape, axis),
    load=lambda ref, axis: ref[...],
    add_product=_add_product_interpreted,
)


def _kernel(
    q_BTNH: Any,
    k_BTKH: Any,
    v_BTKH: Any,
    until_BT: Any,
    position_BT: Any,
    block_BIJ: Any,
    whole_BI: Any,
    count_BI: Any,
    window_1: Any,
    out_BTNH: Any,
    q_GQH: Any,
    k_SCH: Any,
    v_SCH: Any,
    q_ready_G: Any,
    k_ready_S: Any,
    v_ready_S: Any,
    used_S: Any,
    *,
    on: Machine,
    groups: int,
    scale: float,
    softcap: float | None,
    windowed: bool,
) -> None:
    b, i, n = jax.lax.axis_index("row"), jax.lax.axis_index("tile"), jax.lax.axis_index("head")
    group = jax.lax.axis_index("warpgroup")
    keys, width = k_SCH.shape[1:]
    whole, count = whole_BI[b, i], count_BI[b, i]

    @pl.when(group == WARPGROUPS)
    def _copy() -> None:
        plgpu.set_max_registers(40, action="decrease")
        kv = jax.lax.div(n, jnp.int32(groups))

        @pl.loop(0, count)
        def _(step: jax.Array) -> None:
            slot = jax.lax.rem(step, jnp.int32(STAGES))
            pl.when(step >= STAGES)(lambda: plgpu.barrier_wait(used_S.at[slot]))
            own = (b, pl.ds(block_BIJ[b, i, step] * keys, keys), kv)
            plgpu.copy_gmem_to_smem(k_BTKH.at[own], k_SCH.at[slot], k_ready_S.at[slot])
            plgpu.copy_gmem_to_smem(v_BTKH.at[own], v_SCH.at[slot], v_ready_S.at[slot])

        @pl.loop(jnp.maximum(count - STAGES, 0), count)
        def _(step: jax.Array) -> None:
            plgpu.barrier_wait(used_S.at[jax.lax.rem(step, jnp.int32(STAGES))])

    @pl.when(group < WARPGROUPS)
    def _compute() -> None:
        plgpu.set_max_registers(232, action="increase")
        start = i * TILE + group * QUERIES
        own = (b, pl.ds(start, QUERIES), n)
        q_QH = q_GQH.at[group]
        plgpu.copy_gmem_to_smem(q_BTNH.at[own], q_QH, q_ready_G.at[group])
        plgpu.barrier_wait(q_ready_G.at[group])

        def one_block(step: jax.Array, carry: tuple[jax.Array, ...], masked: bool) -> tuple[jax.Array, ...]:
            highest_Q, total_Q, mixed_QH = carry
            slot = jax.lax.rem(step, jnp.int32(STAGES))
            plgpu.barrier_wait(k_ready_S.at[slot])
            logits_QC = on.add_product(on.full((QUERIES, keys), 0.0), q_QH, k_SCH.at[slot], across=True)
            if softcap is None:
                logits_QC *= scale * LOG2_E
            else:
                logits_QC = softcap * LOG2_E * jnp.tanh(logits_QC * (scale / softcap))
            if masked:
                first = block_BIJ[b, i, step] * keys
                own_queries, own_keys = (b, pl.ds(start, QUERIES)), (b, pl.ds(first, keys))
                query_QC, key_QC = on.iota(logits_QC.shape, 0) + start, on.iota(logits_QC.shape, 1) + first
                until_QC = _along(on.load(until_BT.at[own_keys], 1), logits_QC, 1)
                visible_QC = (key_QC <= query_QC) & (query_QC < until_QC)
                if windowed:
                    position_QC = _along(on.load(position_BT.at[own_queries], 0), logits_QC, 0)
                    position_QC -= _along(on.load(position_BT.at[own_keys], 1), logits_QC, 1)
                    visible_QC &= position_QC < window_1[0]
                logits_QC = jnp.where(visible_QC, logits_QC, HIDDEN)
            # Before a query has seen anything it weighs hidden keys by exp2(HIDDEN - HIDDEN) = 1; its own place, in the last
            # block, wipes that out by exp2(HIDDEN - a logit) = 0.
            now_Q = jnp.maximum(highest_Q, logits_QC.max(axis=1))
            weight_QC, fade_Q = jnp.exp2(logits_QC - _along(now_Q, logits_QC, 0)), jnp.exp2(highest_Q - now_Q)
            total_Q = total_Q * fade_Q + weight_QC.sum(axis=1)
            plgpu.barrier_wait(v_ready_S.at[slot])
            mixed_QH = on.add_product(
                mixed_QH * _along(fade_Q, mixed_QH, 0), weight_QC.astype(v_SCH.dtype), v_SCH.at[slot]
            )
            plgpu.barrier_arrive(used_S.at[slot])
            return now_Q, total_Q, mixed_QH

        carry = on.full((QUERIES,), HIDDEN), on.full((QUERIES,), 0.0), on.full((QUERIES, width), 0.0)
        carry = jax.lax.fori_loop(0, whole, partial(one_block, masked=False), carry)
        _, total_Q, mixed_QH = jax.lax.fori_loop(whole, count, partial(one_block, masked=True), carry)
        q_QH[...] = (mixed_QH / _along(total_Q, mixed_QH, 0)).astype(q_QH.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(q_QH, out_BTNH.at[own])
        plgpu.wait_smem_to_gmem(0)


def _along(x: jax.Array, like: jax.Array, axis: int) -> jax.Array:
    """`x`, whose only axis is `axis`, in the shape of `like`."""
    return jax.lax.broadcast_in_dim(x, like.shape, [axis])
