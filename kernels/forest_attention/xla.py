"""Forest attention in plain XLA, a block of queries at a time, so that memory stays linear in the
row length.

A block of queries [a, b) multiplies only keys [0, b): later ones are never visible.  That skips
nearly half of the square at 64 queries a block.  Matmuls run in the dtype of q, k and v with
float32 sums; softmax is float32.

A CPU takes the rows one after another, so that a block's logits stay in its second cache; other
devices take them all, NVIDIA GPUs in larger blocks.
"""

from functools import partial

import jax
import jax.numpy as jnp

from miron_jax.kernels.forest_attention.reference import visible_pairs
from miron_jax.kernels.reductions import row_max, row_sum

QUERY_BLOCK = 64  # measured on CPU at rows of 512: 64 and 128 level, 256 a third slower
# blocks are unrolled: longer rows take larger blocks, so that compile time stays flat
MAX_BLOCKS = 16
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
) -> jax.Array:
    """Same result as `reference.forest_attention` within float32 rounding; out [B, T, N, H]
    float32.

    `bias_BTT` is `hidden_bias` of the same rows and window, where the caller has it: a seventh
    faster on CPU than comparing indices again in every layer.
    """
    length = q_BTNH.shape[1]
    attend = partial(
        _attend,
        scale=scale,
        window=window,
        softcap=softcap,
        sinks_N=sinks_N,
        block=block or _query_block(length, QUERY_BLOCK, MAX_BLOCKS),
    )
    on_cuda = partial(attend, block=block or _cuda_block(length))

    def row_by_row(*rows: jax.Array | None) -> jax.Array:
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
