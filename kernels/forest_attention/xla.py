"""Forest attention in plain XLA, a block of queries at a time, so that memory stays linear in the
row length.

A block of queries [a, b) multiplies only keys [0, b): later ones are never visible.  That skips
nearly half of the square at 64 queries a block.  Matmuls run in the dtype of q, k and v with
float32 sums; softmax is float32.

A CPU takes the rows one after another, so that a block's logits stay in its second cache; other
devices take them all, NVIDIA GPUs in larger blocks.  Of a long row a CPU goes over blocks of keys,
too, with a running softmax, and skips those that no query of the block sees: as `tpu` does.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from miron_jax.kernels.forest_attention.blocks import SKIP, block_kinds, padded
from miron_jax.kernels.forest_attention.reference import visible_pairs
from miron_jax.kernels.reductions import row_max, row_sum

QUERY_BLOCK = 64  # measured on CPU at rows of 512: 64 and 128 level, 256 a third slower
# blocks are unrolled: longer rows take larger blocks, so that compile time stays flat
MAX_BLOCKS = 16
# On CPU rows of more slots skip blocks.  Rows of 704 take half the time without, rows of 1,856 the
# same where all is seen, and 0.7 of it where each of many branches sees 512 tokens before it.
WHOLE_UP_TO = 1024
SKIPPED_QUERIES = 256  # of a block; smaller and larger ones are no faster
SKIPPED_KEYS = 128
HIDDEN = -1e30  # added to a logit: finite, so that exp(HIDDEN - max) is 0 and never NaN


def hidden_bias(
    subtree_end_BT: jax.Array, position_BT: jax.Array, window: jax.Array | int | None = None
) -> jax.Array:
    """float32 [B, T, T], query by key: 0 where the key is visible, HIDDEN elsewhere.  Built once a
    batch."""
    return jnp.where(visible_pairs(subtree_end_BT, position_BT, window), 0.0, HIDDEN).astype(
        jnp.float32
    )


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
    bias_BTT: jax.Array | None = None,
    block: int | None = None,
    skip: bool = True,
) -> jax.Array:
    """Same result as `reference.forest_attention` within float32 rounding; out [B, T, N, H]
    float32.

    `bias_BTT` is `hidden_bias` of the same rows and window, where the caller has it: a seventh
    faster on CPU than comparing indices again in every layer.  `skip`: whether long rows skip
    blocks on CPU, for which jax has no gradient.
    """
    length = q_BTNH.shape[1]
    rules = {"scale": scale, "window": window, "softcap": softcap, "sinks_N": sinks_N}
    attend = partial(_attend, **rules, block=block or _query_block(length, QUERY_BLOCK, MAX_BLOCKS))
    on_cuda = partial(attend, block=block or _cuda_block(length))

    def row_by_row(*rows: jax.Array | None) -> jax.Array:
        if skip and length > WHOLE_UP_TO:
            return jax.lax.map(lambda row: _attend_seen_blocks(*row, **rules), rows[:-1])
        return jax.lax.map(lambda row: attend(*jax.tree.map(lambda x: x[None], row))[0], rows)

    rows = (q_BTNH, k_BTKH, v_BTKH, subtree_end_BT, position_BT, bias_BTT)
    return jax.lax.platform_dependent(*rows, cpu=row_by_row, cuda=on_cuda, default=attend)


def _cuda_block(length: int) -> int:
    """By the GPU's compiler (benchmarks/results/README.md): 16 blocks of a row of 1,024 take two
    minutes to compile and three times the kernels of 4; larger ones take more memory."""
    if length <= 256:
        return 128
    return 256 if length <= 1024 else _query_block(length, 512, 8)


def _query_block(length: int, smallest: int, most: int) -> int:
    """A multiple of `smallest` of which at most `most` cover the row."""
    return max(1, -(-length // (most * smallest))) * smallest


def _attend(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    subtree_end_BT: jax.Array,
    position_BT: jax.Array,
    bias_BTT: jax.Array | None,
    *,
    scale: float,
    window: jax.Array | int | None,
    softcap: float | None,
    sinks_N: jax.Array | None = None,
    block: int,
) -> jax.Array:
    b, t, n, h = q_BTNH.shape
    kv_heads = k_BTKH.shape[2]
    groups = n // kv_heads
    q = (
        (q_BTNH * jnp.asarray(scale, q_BTNH.dtype))
        .reshape(b, t, kv_heads, groups, h)
        .transpose(0, 2, 3, 1, 4)
    )
    k = k_BTKH.transpose(0, 2, 1, 3)
    v = v_BTKH.transpose(0, 2, 1, 3)
    out = []
    for start in range(0, t, block):
        stop = min(t, start + block)
        q_block = q[:, :, :, start:stop].reshape(b, kv_heads, groups * (stop - start), h)
        logits = jnp.einsum(
            "bkqh,bksh->bkqs", q_block, k[:, :, :stop], preferred_element_type=jnp.float32
        )
        if softcap is not None:
            logits = softcap * jnp.tanh(logits / softcap)
        if bias_BTT is None:
            bias = _block_bias(subtree_end_BT, position_BT, start, stop, window)
        else:
            bias = bias_BTT[:, start:stop, :stop]
        logits = logits.reshape(b, kv_heads, groups, stop - start, stop) + bias[:, None, None]
        logits = logits.reshape(b, kv_heads, groups * (stop - start), stop)
        highest = row_max(logits)
        sunk = 0.0
        if sinks_N is not None:
            sinks = jnp.repeat(sinks_N.reshape(kv_heads, groups), stop - start, axis=1)[None]
            highest = jnp.maximum(highest, sinks)
            sunk = jnp.exp(sinks - highest)
        weights = jnp.exp(logits - highest[..., None])
        mixed = jnp.einsum(
            "bkqs,bksh->bkqh",
            weights.astype(v.dtype),
            v[:, :, :stop],
            preferred_element_type=jnp.float32,
        )
        mixed /= (row_sum(weights) + sunk)[..., None]
        out.append(mixed.reshape(b, kv_heads, groups, stop - start, h))
    return jnp.concatenate(out, axis=3).transpose(0, 3, 1, 2, 4).reshape(b, t, n, h)


def _block_bias(
    subtree_end_BT: jax.Array,
    position_BT: jax.Array,
    start: int,
    stop: int,
    window: jax.Array | int | None,
) -> jax.Array:
    """float32 [B, stop - start, stop]: `hidden_bias` of queries start to stop and keys 0 to
    stop."""
    query = jnp.arange(start, stop, dtype=jnp.int32)[None, :, None]
    key = jnp.arange(stop, dtype=jnp.int32)[None, None, :]
    visible = (key <= query) & (query < subtree_end_BT[:, None, :stop])
    if window is not None:
        visible &= position_BT[:, start:stop, None] - position_BT[:, None, :stop] < window
    return jnp.where(visible, 0.0, HIDDEN).astype(jnp.float32)


class Running(NamedTuple):
    """A softmax over the keys met so far, float32; R: the queries of one key head."""

    highest: jax.Array  # [..., K, R]
    total: jax.Array  # [..., K, R], of exp(logit - highest)
    mixed: jax.Array  # [..., K, R, H], values weighted by the same


def _attend_seen_blocks(
    q_TNH: jax.Array,
    k_TKH: jax.Array,
    v_TKH: jax.Array,
    subtree_end_T: jax.Array,
    position_T: jax.Array,
    *,
    scale: float,
    window: jax.Array | int | None,
    softcap: float | None,
    sinks_N: jax.Array | None,
) -> jax.Array:
    """One row, [T, N, H] float32.  A block of queries meets only blocks of keys of which it may see
    any."""
    t, n, h = q_TNH.shape
    kv_heads = k_TKH.shape[1]
    groups = n // kv_heads
    num_blocks = -(-t // SKIPPED_QUERIES)  # of queries, I
    length = num_blocks * SKIPPED_QUERIES
    end_1T, place_1T = padded(subtree_end_T[None], position_T[None], length)
    end_T = end_1T[0]
    place_T = place_1T[0]
    is_seen_IJ = block_kinds(end_1T, place_1T, window, SKIPPED_QUERIES, SKIPPED_KEYS)[0] != SKIP
    seen_IJ = jnp.argsort(~is_seen_IJ, axis=1, stable=True)  # those seen first, in order
    num_seen_I = is_seen_IJ.sum(axis=1)

    fill = ((0, length - t), (0, 0), (0, 0))
    q_TNH = jnp.pad(q_TNH * jnp.asarray(scale, q_TNH.dtype), fill)
    q_IQKGH = q_TNH.reshape(num_blocks, SKIPPED_QUERIES, kv_heads, groups, h)
    q_IKRH = q_IQKGH.transpose(0, 2, 3, 1, 4).reshape(num_blocks, kv_heads, -1, h)
    k_KTH = jnp.pad(k_TKH, fill).transpose(1, 0, 2)
    v_KTH = jnp.pad(v_TKH, fill).transpose(1, 0, 2)

    def bias(first_query: jax.Array, first_key: jax.Array) -> jax.Array:
        """[1, 1, Q, C]: 0 where the key is visible, HIDDEN elsewhere."""
        query_Q1 = first_query + jnp.arange(SKIPPED_QUERIES, dtype=jnp.int32)[:, None]
        key_1C = first_key + jnp.arange(SKIPPED_KEYS, dtype=jnp.int32)[None]
        end_1C = jax.lax.dynamic_slice_in_dim(end_T, first_key, SKIPPED_KEYS)[None]
        visible = (key_1C <= query_Q1) & (query_Q1 < end_1C)
        if window is not None:
            at_Q = jax.lax.dynamic_slice_in_dim(place_T, first_query, SKIPPED_QUERIES)
            at_C = jax.lax.dynamic_slice_in_dim(place_T, first_key, SKIPPED_KEYS)
            visible &= at_Q[:, None] - at_C[None] < window
        return jnp.where(visible, 0.0, HIDDEN)[None, None].astype(jnp.float32)

    def of_queries(i: jax.Array) -> jax.Array:
        q_KRH = q_IKRH[i]

        def add_block(j: jax.Array, running: Running) -> Running:
            first_key = seen_IJ[i, j] * SKIPPED_KEYS
            k_KCH = jax.lax.dynamic_slice_in_dim(k_KTH, first_key, SKIPPED_KEYS, axis=1)
            v_KCH = jax.lax.dynamic_slice_in_dim(v_KTH, first_key, SKIPPED_KEYS, axis=1)
            logit_KRC = jnp.einsum("krh,kch->krc", q_KRH, k_KCH, preferred_element_type=jnp.float32)
            if softcap is not None:
                logit_KRC = softcap * jnp.tanh(logit_KRC / softcap)
            logit_KGQC = logit_KRC.reshape(kv_heads, groups, SKIPPED_QUERIES, SKIPPED_KEYS)
            logit_KGQC += bias(i * SKIPPED_QUERIES, first_key)
            logit_KRC = logit_KGQC.reshape(logit_KRC.shape)
            highest = jnp.maximum(running.highest, row_max(logit_KRC))
            weight_KRC = jnp.exp(logit_KRC - highest[..., None])
            before = jnp.exp(running.highest - highest)
            mixed = jnp.einsum(
                "krc,kch->krh",
                weight_KRC.astype(v_KCH.dtype),
                v_KCH,
                preferred_element_type=jnp.float32,
            )
            return Running(
                highest,
                running.total * before + row_sum(weight_KRC),
                running.mixed * before[..., None] + mixed,
            )

        none_KR = jnp.zeros(q_KRH.shape[:2], jnp.float32)
        start = Running(none_KR + HIDDEN, none_KR, jnp.zeros(q_KRH.shape, jnp.float32))
        if sinks_N is not None:  # as a key of this logit whose value is 0
            sink_KR = jnp.repeat(sinks_N.reshape(kv_heads, groups), SKIPPED_QUERIES, axis=1)
            start = start._replace(highest=sink_KR.astype(jnp.float32), total=none_KR + 1)
        running = jax.lax.fori_loop(0, num_seen_I[i], add_block, start)
        return running.mixed / running.total[..., None]

    o_IKRH = jax.lax.map(of_queries, jnp.arange(num_blocks, dtype=jnp.int32))
    o_IKGQH = o_IKRH.reshape(num_blocks, kv_heads, groups, SKIPPED_QUERIES, h)
    return o_IKGQH.transpose(0, 3, 1, 2, 4).reshape(length, n, h)[:t]
