"""What a model is told about who may see whom: one record, two ways to use it.

Arrives: `until` and `position` of a batch.  Leaves: a dense mask, or attention itself.  It deliberately does not know
layers; a user's own model needs one of the two methods.
"""

from dataclasses import dataclass

import jax

from miron_jax.kernels.forest_attention import reference, xla


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Visibility:
    """Key k is visible to query q exactly when k <= q < until[k], and position[q] - position[k] < window."""

    until_BT: jax.Array  # int32, row index just past the token's subtree; a padding place sees only itself
    position_BT: jax.Array  # int32, depth in the token's trie

    def mask(self, window: jax.Array | int | None = None) -> jax.Array:
        """Dense bool [B, T, T], query by key."""
        return reference.visible_pairs(self.until_BT, self.position_BT, window)

    def attend(
        self,
        q_BTNH: jax.Array,
        k_BTKH: jax.Array,
        v_BTKH: jax.Array,
        *,
        scale: float,
        window: jax.Array | int | None = None,
        softcap: float | None = None,
    ) -> jax.Array:
        """Attention over the visible keys, [B, T, N, H] float32; kernels/forest_attention gives the definition."""
        return xla.forest_attention(
            q_BTNH, k_BTKH, v_BTKH, self.until_BT, self.position_BT, scale=scale, window=window, softcap=softcap
        )
