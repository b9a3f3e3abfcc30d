"""Which blocks of keys a block of queries needs, from a few numbers a block.

A block of keys is skipped when none of its places is visible to any of the queries, and needs no
mask when all are to all. The few numbers are lowest and highest `subtree_end` and `position` of a
block: they may keep a block that nobody sees (its mask then hides all of it), never drop one that
somebody does.
"""

import jax
import jax.numpy as jnp

SKIP, MASKED, WHOLE = 0, 1, 2


def block_kinds(
    subtree_end_BT: jax.Array,
    position_BT: jax.Array,
    window: jax.Array | int | None,
    query_block: int,
    key_block: int,
) -> jax.Array:
    """int32 [B, T / query_block, T / key_block]: SKIP, MASKED or WHOLE.  T is a multiple of both
    sizes."""
    rows, length = subtree_end_BT.shape

    def extremes(x_BT: jax.Array, block: int) -> tuple[jax.Array, jax.Array]:
        """Lowest and highest of each block, [B, T / block].  In two axes: libtpu 0.0.42 fails on
        three under a mesh."""
        x_XC = x_BT.reshape(-1, block)
        return x_XC.min(axis=1).reshape(rows, -1), x_XC.max(axis=1).reshape(rows, -1)

    lowest_end_BJ, highest_end_BJ = extremes(subtree_end_BT, key_block)
    first_I1 = (jnp.arange(length // query_block, dtype=jnp.int32) * query_block)[:, None]
    last_I1 = first_I1 + query_block - 1
    first_1J = (jnp.arange(length // key_block, dtype=jnp.int32) * key_block)[None]
    last_1J = first_1J + key_block - 1
    seen = (first_1J <= last_I1)[None] & (highest_end_BJ[:, None] > first_I1[None])
    whole = (last_1J <= first_I1)[None] & (lowest_end_BJ[:, None] > last_I1[None])
    if window is not None:
        (lowest_BI, highest_BI), (lowest_BJ, highest_BJ) = (
            extremes(position_BT, query_block),
            extremes(position_BT, key_block),
        )
        nearest = lowest_BI[:, :, None] - highest_BJ[:, None]
        farthest = highest_BI[:, :, None] - lowest_BJ[:, None]
        seen = seen & (nearest < window)
        whole = whole & (farthest < window)
    return jnp.where(seen, jnp.where(whole, WHOLE, MASKED), SKIP).astype(jnp.int32)


def padded(
    subtree_end_BT: jax.Array, position_BT: jax.Array, length: int
) -> tuple[jax.Array, jax.Array]:
    """Rows filled up to `length` with places that see only themselves."""
    rows, num_slots = subtree_end_BT.shape
    fill = jnp.broadcast_to(
        jnp.arange(num_slots + 1, length + 1, dtype=jnp.int32)[None], (rows, length - num_slots)
    )
    subtree_end_BT = jnp.concatenate([subtree_end_BT, fill], axis=1)
    return subtree_end_BT, jnp.pad(position_BT, ((0, 0), (0, length - num_slots)))
