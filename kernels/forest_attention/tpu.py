"""Forest attention on TPU: a block of queries goes over blocks of keys with a running softmax, and
skips those unseen.

Nothing of the size [T, T] is written to memory; a block that nobody sees is neither read nor
multiplied.  The scheme is that of FlashAttention-2 (Dao, 2023, arXiv 2307.08691, section 3.1) with
the blocks' kinds known beforehand, as in splash attention
(jax.experimental.pallas.ops.tpu.splash_attention).

Arrays stay [B, T, heads * H], as the matmuls before and after have them: nothing is transposed.  A
step takes the fewest heads whose lanes fill whole registers, with all queries of their keys: two
key heads of size 64, one of size 128.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from miron_jax.kernels.forest_attention.blocks import MASKED, SKIP, WHOLE, block_kinds, padded
from miron_jax.kernels.forest_attention.xla import HIDDEN

LANES = 128  # of a TPU's vector registers
SUBLANES = 16  # rows of a register's tile of bfloat16
BLOCK = 256  # not yet measured on a TPU
MOST_WIDE = 1024  # lanes of queries in a step, where heads can be divided
# entries of the table of blocks, int32: half of a chip's scalar memory (1 MB on v5e, v5p and v6e)
TABLE = 1 << 17
VMEM = 64 << 20  # bytes that a step may use; XLA's default is 16 MiB
Ref = Any  # memory of a kernel, or an array that is read before it: pallas has no type for it
Index = jax.Array  # of a step along one axis of the grid, int32


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
    sinks_N: jax.Array | None = None,
    bias_BTT: None = None,
    block: int | None = None,
    interpret: bool | pltpu.InterpretParams = False,
) -> jax.Array:
    """Same result as `reference.forest_attention` within float32 rounding, rounded to q's dtype;
    out [B, T, N, H] float32.

    `block`: places of a block of queries and of keys: a multiple of 128, or the whole row; None:
    `block_of`.  `interpret`: run on any device, slowly (see `pallas_call`).
    """
    b, t, n, h = q_BTNH.shape
    kv_heads = k_BTKH.shape[2]
    block = block_of(b, t) if block is None else min(block, -(-t // SUBLANES) * SUBLANES)
    length = -(-t // block) * block
    blocks = length // block
    heads, kv = _heads_of_step(n, kv_heads, h)
    subtree_end_BT, position_BT = padded(subtree_end_BT, position_BT, length)

    def rows(x_BTNH: jax.Array) -> jax.Array:
        return jnp.pad(x_BTNH.reshape(b, t, -1), ((0, 0), (0, length - t), (0, 0)))

    def query(b: Index, step: Index, i: Index, j: Index, *_: Ref) -> tuple[Index, ...]:
        return b, i, step

    def key_block(b: Index, i: Index, j: Index, table: Ref) -> Index:
        return jax.lax.shift_right_logical(table[(b * blocks + i) * blocks + j], 2)

    def key(b: Index, step: Index, i: Index, j: Index, table: Ref, *_: Ref) -> tuple[Index, ...]:
        # lax.div: // in an index map does not lower without the chip's generation
        return b, key_block(b, i, j, table), jax.lax.div(step * heads, n // kv_heads * kv)

    key_place = pl.BlockSpec(
        (1, 1, block), lambda b, step, i, j, table, *_: (b, 0, key_block(b, i, j, table))
    )
    query_place = pl.BlockSpec((1, block, 1), lambda b, step, i, j, *_: (b, i, 0))
    wide = pl.BlockSpec((1, block, heads * h), query)
    narrow = pl.BlockSpec((1, block, kv * h), key)
    arrays = [rows(q_BTNH), rows(k_BTKH), rows(v_BTKH), subtree_end_BT[:, None]]
    specs = [wide, narrow, narrow, key_place]
    if window is not None:
        arrays += [position_BT[:, None], position_BT[:, :, None]]
        specs += [key_place, query_place]
    kind_BIJ = block_kinds(subtree_end_BT, position_BT, window, block, block)
    scalars = [_table(kind_BIJ), jnp.asarray(0 if window is None else window, jnp.int32).reshape(1)]
    if sinks_N is not None:
        scalars.append(sinks_N)
    sizes = {"heads": heads, "kv_heads": kv, "blocks": blocks}
    out_BTO = pl.pallas_call(
        partial(
            _kernel,
            **sizes,
            scale=scale,
            softcap=softcap,
            windowed=window is not None,
            has_sinks=sinks_N is not None,
        ),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(scalars),
            grid=(b, n // heads, blocks, blocks),
            in_specs=specs,
            out_specs=wide,
            scratch_shapes=[
                pltpu.VMEM((heads, block, LANES), jnp.float32),
                pltpu.VMEM((heads, block, LANES), jnp.float32),
                pltpu.VMEM((heads, block, h), jnp.float32),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((b, length, n * h), q_BTNH.dtype),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=VMEM,
        ),
        interpret=interpret,
    )(*scalars, *arrays)
    return out_BTO[:, :t].reshape(b, t, n, h).astype(jnp.float32)


def block_of(rows: int, length: int) -> int:
    """Places of a block: the whole row up to BLOCK, else BLOCK, doubled until a table of all rows'
    blocks has room.

    With BLOCK of 256 that is 8 rows of 32,768 places, 131,072 rows of one block; larger blocks
    serve above it.
    """
    if length <= BLOCK:
        return -(-length // SUBLANES) * SUBLANES
    block = BLOCK
    while rows * (-(-length // block)) ** 2 > TABLE and block < length:
        block *= 2
    return block


def _heads_of_step(heads: int, kv_heads: int, head_dim: int) -> tuple[int, int]:
    """(query heads, key heads) of a step: their lanes fill registers, or they are all heads."""

    def fills(count: int) -> bool:
        return count * head_dim % LANES == 0

    groups = heads // kv_heads
    kv = next(
        (count for count in range(1, kv_heads) if kv_heads % count == 0 and fills(count)), kv_heads
    )
    if kv > 1 or (kv_heads == 1 and not fills(1)):
        return kv * groups, kv
    parts = [count for count in range(1, groups + 1) if groups % count == 0 and fills(count)]
    return max((count for count in parts if count * head_dim <= MOST_WIDE), default=groups), kv


def _table(kind_BIJ: jax.Array) -> jax.Array:
    """int32 [B * I * J]: each block's kind, and 4 times the block of keys that is read for it.

    That is the block itself, or for one that is skipped the next that is not (the last one behind
    it), so that nothing is copied for it.
    """
    index_J = jnp.arange(kind_BIJ.shape[2], dtype=jnp.int32)[None, None]
    used = kind_BIJ != SKIP
    last = jnp.where(used, index_J, 0).max(axis=2, keepdims=True)
    ahead = jax.lax.cummin(jnp.where(used, index_J, kind_BIJ.shape[2]), axis=2, reverse=True)
    return (4 * jnp.minimum(ahead, last) + kind_BIJ).reshape(-1)


def _kernel(
    table: Ref,
    window_1: Ref,
    # with sinks sinks_N; then q_1QO, k_1CO, v_1CO, subtree_end_11C; with a window position_11C,
    # position_1Q1;
    *more: Ref,
    # then out_1QO, highest_NQL, total_NQL, mixed_NQH
    heads: int,
    kv_heads: int,
    blocks: int,
    scale: float,
    softcap: float | None,
    windowed: bool,
    has_sinks: bool,
) -> None:
    sinks_N, *refs = more if has_sinks else (None, *more)
    q_1QO, k_1CO, v_1CO, subtree_end_11C, *positions, out_1QO, highest_NQL, total_NQL, mixed_NQH = (
        refs
    )
    step = pl.program_id(1)
    i = pl.program_id(2)
    j = pl.program_id(3)
    kind = table[(pl.program_id(0) * blocks + i) * blocks + j] & 3
    queries = q_1QO.shape[1]
    keys = k_1CO.shape[1]
    h = mixed_NQH.shape[2]
    # Named for each dtype: Mosaic refuses bfloat16 operands under the "highest" of the engine's
    # other matmuls.
    precision = jax.lax.Precision.DEFAULT
    if q_1QO.dtype == jnp.float32:
        precision = jax.lax.Precision.HIGHEST
    product = partial(jax.lax.dot_general, preferred_element_type=jnp.float32, precision=precision)

    @pl.when(j == 0)
    def _start() -> None:
        if sinks_N is None:
            highest_NQL[...] = jnp.full_like(highest_NQL, HIDDEN)
            total_NQL[...] = jnp.zeros_like(total_NQL)
        else:  # as after a key of this logit whose value is 0
            for n in range(heads):
                highest_NQL[n] = jnp.full(highest_NQL.shape[1:], sinks_N[step * heads + n])
            total_NQL[...] = jnp.ones_like(total_NQL)
        mixed_NQH[...] = jnp.zeros_like(mixed_NQH)

    def add(visible_QC: jax.Array | None) -> None:
        for n in range(heads):
            m = n * kv_heads // heads
            query_QH = q_1QO[0, :, n * h : (n + 1) * h]
            key_CH, value_CH = (x_1CO[0, :, m * h : (m + 1) * h] for x_1CO in (k_1CO, v_1CO))
            logits_QC = product(query_QH, key_CH, (((1,), (1,)), ((), ()))) * scale
            if softcap is not None:
                logits_QC = softcap * jnp.tanh(logits_QC / softcap)
            if visible_QC is not None:
                logits_QC = jnp.where(visible_QC, logits_QC, HIDDEN)
            # A query that has seen nothing yet weighs hidden keys by exp(HIDDEN - HIDDEN) = 1.  It
            # sees itself in its last block at the latest, and there exp(HIDDEN - a logit) = 0 wipes
            # that out.
            before_Q1 = highest_NQL[n, :, :1]
            highest_Q1 = jnp.maximum(before_Q1, logits_QC.max(axis=1, keepdims=True))
            weight_QC = jnp.exp(logits_QC - highest_Q1)
            fade_Q1 = jnp.exp(before_Q1 - highest_Q1)
            highest_NQL[n] = jnp.broadcast_to(highest_Q1, highest_NQL.shape[1:])
            total_NQL[n] = total_NQL[n] * fade_Q1 + weight_QC.sum(axis=1, keepdims=True)
            mixed_QH = product(weight_QC.astype(value_CH.dtype), value_CH, (((1,), (0,)), ((), ())))
            mixed_NQH[n] = mixed_NQH[n] * fade_Q1 + mixed_QH

    @pl.when(kind == WHOLE)
    def _whole() -> None:
        add(None)

    @pl.when(kind == MASKED)
    def _masked() -> None:
        query_QC = i * queries + jax.lax.broadcasted_iota(jnp.int32, (queries, keys), 0)
        key_QC = j * keys + jax.lax.broadcasted_iota(jnp.int32, (queries, keys), 1)
        visible_QC = (key_QC <= query_QC) & (query_QC < subtree_end_11C[0])
        if windowed:
            position_11C, position_1Q1 = positions
            visible_QC &= position_1Q1[0] - position_11C[0] < window_1[0]
        add(visible_QC)

    @pl.when(j == pl.num_programs(3) - 1)
    def _finish() -> None:
        for n in range(heads):
            out_1QO[0, :, n * h : (n + 1) * h] = (mixed_NQH[n] / total_NQL[n, :, :1]).astype(
                out_1QO.dtype
            )
