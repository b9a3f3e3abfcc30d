"""The definition of forest attention: one dense mask, one softmax.  Computes in the dtype it is
given.

Shapes: q [B, T, N, H]; k, v [B, T, K, H] with N a multiple of K; subtree_end, position [B, T]
int32; sinks [N] float32; out [B, T, N, H].
"""

import jax
import jax.numpy as jnp


def visible_pairs(
    subtree_end_BT: jax.Array, position_BT: jax.Array, window: jax.Array | int | None
) -> jax.Array:
    """Bool [B, T, T], query by key.  A window of w tokens sees position differences 0 to w - 1, the
    query included."""
    index_T = jnp.arange(subtree_end_BT.shape[1], dtype=jnp.int32)
    query = index_T[None, :, None]
    key = index_T[None, None, :]
    visible = (key <= query) & (query < subtree_end_BT[:, None, :])
    if window is not None:
        visible &= position_BT[:, :, None] - position_BT[:, None, :] < window
    return visible


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
) -> jax.Array:
    """softmax(cap(scale * q k')) v over the visible keys; every query sees itself, so no row of
    weights is empty.

    `sinks_N`: a logit for each head, which the softmax counts and which has no value (OpenAI, 2025,
    gpt-oss model card, section 2).
    """
    b, t, n, h = q_BTNH.shape
    groups = n // k_BTKH.shape[2]
    q_BTKGH = q_BTNH.reshape(b, t, n // groups, groups, h)
    logits = jnp.einsum("btkgh,bskh->bkgts", q_BTKGH, k_BTKH) * jnp.asarray(scale, q_BTNH.dtype)
    if softcap is not None:
        logits = softcap * jnp.tanh(logits / softcap)
    visible = visible_pairs(subtree_end_BT, position_BT, window)[:, None, None]
    logits = jnp.where(visible, logits, -jnp.inf)
    if sinks_N is not None:
        sinks = sinks_N.astype(logits.dtype).reshape(1, n // groups, groups, 1, 1)
        logits = jnp.concatenate(
            [logits, jnp.broadcast_to(sinks, (*logits.shape[:-1], 1))], axis=-1
        )
    weights = jax.nn.softmax(logits, axis=-1)[..., :t]
    return jnp.einsum("bkgts,bskh->btkgh", weights, v_BTKH).reshape(b, t, n, h)
