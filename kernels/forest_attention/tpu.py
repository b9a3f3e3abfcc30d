"""Forest attention on TPU: a block of queries goes over blocks of keys with a running softmax, and skips those unseen.

Nothing of the size [T, T] is written to memory; a block that nobody sees is neither read nor multiplied.  The scheme is
that of FlashAttention-2 (Dao, 2023, arXiv 2307.08691, section 3.1) with the blocks' kinds known beforehand, as in splash
attention (jax.experimental.pallas.ops.tpu.splash_attention).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from miron_jax.kernels.forest_attention.blocks import MASKED, SKIP, WHOLE, block_kinds, padded
from miron_jax.kernels.forest_attention.xla import HIDDEN

LANES = 128  # of a TPU's vector registers: block sizes are multiples of it
BLOCK = 256  # not yet measured on a TPU


@jax.named_scope("forest_attention")
def forest_attention(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    subtree_end_BT: jax.Array,
    position_BT: jax.Array,
    *,
    scale: float,
    window: jax.Array | int | None = None,
    softcap: float | None = None,
    bias_BTT: None = None,
    block: int = BLOCK,
    interpret: Any = False,
) -> jax.Array:
    """Same result as `reference.forest_attention` within float32 rounding; out [B, T, N, H] float32.

    `block`: places of a block, a multiple of 128, of queries and of keys; shorter rows take one block.  `interpret`: run on
    any device, slowly (see `pallas_call`).
    """
    b, t, n, h = q_BTNH.shape
    groups = n // k_BTKH.shape[2]
    block = min(block, -(-t // LANES) * LANES)
    length = -(-t // block) * block
    subtree_end_BT, position_BT = padded(subtree_end_BT, position_BT, length)

    def heads_first(x_BTNH: jax.Array) -> jax.Array:
        return jnp.pad(x_BTNH, ((0, 0), (0, length - t), (0, 0), (0, 0))).transpose(0, 2, 1, 3)

    kind_BIJ = block_kinds(subtree_end_BT, position_BT, window, block, block)
    grid = (b, n, length // block, length // block)
    out_BNTH = pl.pallas_call(
        partial(_kernel, scale=scale, softcap=softcap, windowed=window is not None),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=grid,
            in_specs=[
                pl.BlockSpec((1, 1, block, h), lambda b, n, i, j, *_: (b, n, i, 0)),
                pl.BlockSpec(
                    (1, 1, block, h), lambda b, n, i, j, _, read, *__: (b, jax.lax.div(n, groups), read[b, i, j], 0)
                ),
                pl.BlockSpec(
                    (1, 1, block, h), lambda b, n, i, j, _, read, *__: (b, jax.lax.div(n, groups), read[b, i, j], 0)
                ),
                pl.BlockSpec((1, 1, block), lambda b, n, i, j, _, read, *__: (b, 0, read[b, i, j])),
                pl.BlockSpec((1, 1, block), lambda b, n, i, j, _, read, *__: (b, 0, read[b, i, j])),
                pl.BlockSpec((1, block, 1), lambda b, n, i, j, *_: (b, i, 0)),
            ],
            out_specs=pl.BlockSpec((1, 1, block, h), lambda b, n, i, j, *_: (b, n, i, 0)),
            scratch_shapes=[
                pltpu.VMEM((block, LANES), jnp.float32),
                pltpu.VMEM((block, LANES), jnp.float32),
                pltpu.VMEM((block, h), jnp.float32),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((b, n, length, h), jnp.float32),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")),
        interpret=interpret,
    )(
        kind_BIJ,
        _next_read(kind_BIJ),
        jnp.asarray(0 if window is None else window, jnp.int32).reshape(1),
        heads_first(q_BTNH),
        heads_first(k_BTKH),
        heads_first(v_BTKH),
        subtree_end_BT[:, None],
        position_BT[:, None],
        position_BT[:, :, None],
    )
    return out_BNTH.transpose(0, 2, 1, 3)[:, :t]


def _next_read(kind_BIJ: jax.Array) -> jax.Array:
    """int32 [B, I, J]: the block itself, or for one that is skipped the next that is not (the last one behind it), so that
    nothing is copied for it."""
    index_J = jnp.arange(kind_BIJ.shape[2], dtype=jnp.int32)[None, None]
    used = kind_BIJ != SKIP
    last = jnp.where(used, index_J, 0).max(axis=2, keepdims=True)
    ahead = jax.lax.cummin(jnp.where(used, index_J, kind_BIJ.shape[2]), axis=2, reverse=True)
    return jnp.minimum(ahead, last)


def _kernel(
    kind_BIJ: Any,
    _: Any,
    window_1: Any,
    q_11QH: Any,
    k_11CH: Any,
    v_11CH: Any,
    subtree_end_11C: Any,
    position_11C: Any,
    position_1Q1: Any,
    out_11QH: Any,
    highest_QL: Any,
    total_QL: Any,
    mixed_QH: Any,
    *,
    scale: float,
    softcap: float | None,
    windowed: bool,
) -> None:
    b, i, j = pl.program_id(0), pl.program_id(2), pl.program_id(3)
    queries, keys = q_11QH.shape[2], k_11CH.shape[2]
    exact = jax.lax.Precision.HIGHEST if q_11QH.dtype == jnp.float32 else None
    product = partial(jax.lax.dot_general, preferred_element_type=jnp.float32, precision=exact)

    @pl.when(j == 0)
    def _start() -> None:
        highest_QL[...] = jnp.full_like(highest_QL, HIDDEN)
        total_QL[...] = jnp.zeros_like(total_QL)
        mixed_QH[...] = jnp.zeros_like(mixed_QH)

    def add(logits_QC: jax.Array) -> None:
        # A query that has seen nothing yet weighs hidden keys by exp(HIDDEN - HIDDEN) = 1. It sees itself in its last block
        # at the latest, and there exp(HIDDEN - a logit) = 0 wipes that out.
        before_Q1 = highest_QL[:, :1]
        highest_Q1 = jnp.maximum(before_Q1, logits_QC.max(axis=1, keepdims=True))
        weight_QC, fade_Q1 = jnp.exp(logits_QC - highest_Q1), jnp.exp(before_Q1 - highest_Q1)
        highest_QL[...] = jnp.broadcast_to(highest_Q1, highest_QL.shape)
        total_QL[...] = total_QL[...] * fade_Q1 + weight_QC.sum(axis=1, keepdims=True)
        value_CH = v_11CH[0, 0]
        mixed_QH[...] = mixed_QH[...] * fade_Q1 + product(
            weight_QC.astype(value_CH.dtype), value_CH, (((1,), (0,)), ((), ()))
        )

    def logits() -> jax.Array:
        found_QC = product(q_11QH[0, 0], k_11CH[0, 0], (((1,), (1,)), ((), ()))) * scale
        return found_QC if softcap is None else softcap * jnp.tanh(found_QC / softcap)

    @pl.when(kind_BIJ[b, i, j] == WHOLE)
    def _whole() -> None:
        add(logits())

    @pl.when(kind_BIJ[b, i, j] == MASKED)
    def _masked() -> None:
        query_QC = i * queries + jax.lax.broadcasted_iota(jnp.int32, (queries, keys), 0)
        key_QC = j * keys + jax.lax.broadcasted_iota(jnp.int32, (queries, keys), 1)
        visible_QC = (key_QC <= query_QC) & (query_QC < subtree_end_11C[0])
        if windowed:
            visible_QC &= position_1Q1[0] - position_11C[0] < window_1[0]
        add(jnp.where(visible_QC, logits(), HIDDEN))

    @pl.when(j == pl.num_programs(3) - 1)
    def _finish() -> None:
        out_11QH[0, 0] = mixed_QH[...] / total_QL[:, :1]
