"""What a model is told about who may see whom: one record, two ways to use it.

Arrives: `until` and `position` of a batch.  Leaves: a dense mask, or attention itself.  It deliberately does not know
layers; a user's own model needs one of the two methods.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from miron_jax.kernels.forest_attention import reference, xla

AHEAD_UP_TO = 4096  # rows of at most this many places have their masks built once a batch; longer ones block by block
NO_WINDOW = 2**30  # a window wider than any row


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Visibility:
    """Key k is visible to query q exactly when k <= q < until[k], and position[q] - position[k] < window."""

    until_BT: jax.Array  # int32, row index just past the token's subtree; a padding place sees only itself
    position_BT: jax.Array  # int32, depth in the token's trie
    bias_WBTT: jax.Array | None = None  # float32 for each of `windows`: 0 where visible, else very negative
    windows: tuple[int, ...] = field(default=(), metadata={"static": True})

    @classmethod
    def of_batch(
        cls, until_BT: jax.Array, position_BT: jax.Array, layer_windows: tuple[int | None, ...] = (None,)
    ) -> "Visibility":
        """With the masks of all windows that the layers use, where rows are short enough to hold them."""
        if until_BT.shape[1] > AHEAD_UP_TO:
            return cls(until_BT, position_BT)
        windows = tuple(dict.fromkeys(NO_WINDOW if window is None else window for window in layer_windows))
        biases = [xla.hidden_bias(until_BT, position_BT, window) for window in windows]
        return cls(until_BT, position_BT, jnp.stack(biases), windows)

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
        """Attention over the visible keys, [B, T, N, H] float32; kernels/forest_attention gives the definition.

        A traced `window` must be one of `windows`; NO_WINDOW sees everything.
        """
        return xla.forest_attention(
            q_BTNH,
            k_BTKH,
            v_BTKH,
            self.until_BT,
            self.position_BT,
            scale=scale,
            window=window,
            softcap=softcap,
            bias_BTT=self._bias(window),
        )

    def _bias(self, window: jax.Array | int | None) -> jax.Array | None:
        if self.bias_WBTT is None:
            return None
        if len(self.windows) == 1:
            return self.bias_WBTT[0]
        wanted = NO_WINDOW if window is None else window
        return self.bias_WBTT[jnp.argmax(jnp.asarray(self.windows) == wanted)]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Continuation:
    """One new token a row behind places kept before: it sees the first `position` of these, and itself."""

    position_B: jax.Array  # int32, places kept so far; the new token's own position

    def attend(
        self,
        q_B1NH: jax.Array,
        k_B1KH: jax.Array,
        v_B1KH: jax.Array,
        kept_key_BSKH: jax.Array,
        kept_value_BSKH: jax.Array,
        *,
        scale: float,
        window: jax.Array | int | None = None,
        softcap: float | None = None,
    ) -> jax.Array:
        """[B, 1, N, H] float32.  Kept places and the new one meet in the softmax only: joining them would copy the kept."""
        b, _, n, h = q_B1NH.shape
        kv_heads, dtype = k_B1KH.shape[2], q_B1NH.dtype
        q_BKGH = (q_B1NH * jnp.asarray(scale, dtype)).reshape(b, kv_heads, n // kv_heads, h)
        kept = jnp.einsum("bkgh,bskh->bkgs", q_BKGH, kept_key_BSKH, preferred_element_type=jnp.float32)
        new = jnp.einsum("bkgh,bkh->bkg", q_BKGH, k_B1KH[:, 0], preferred_element_type=jnp.float32)[..., None]
        if softcap is not None:
            kept, new = (softcap * jnp.tanh(logits / softcap) for logits in (kept, new))
        place_1S = jnp.arange(kept.shape[3], dtype=jnp.int32)[None]
        position_B1 = self.position_B[:, None]
        visible_BS = place_1S < position_B1
        if window is not None:
            visible_BS &= position_B1 - place_1S < window
        kept = jnp.where(visible_BS[:, None, None], kept, -jnp.inf)
        highest = jnp.maximum(kept.max(axis=-1, keepdims=True), new)
        kept, new = jnp.exp(kept - highest), jnp.exp(new - highest)
        mixed = jnp.einsum("bkgs,bskh->bkgh", kept.astype(dtype), kept_value_BSKH, preferred_element_type=jnp.float32)
        own_BK1H = v_B1KH[:, 0, :, None].astype(jnp.float32)
        mixed = (mixed + new.astype(dtype).astype(jnp.float32) * own_BK1H) / (kept.sum(axis=-1, keepdims=True) + new)
        return mixed.reshape(b, 1, n, h)
