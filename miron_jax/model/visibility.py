"""What a model is told about who may see whom: one record, two ways to use it.

Arrives: `until` and `position` of a batch.  Leaves: a dense mask, or attention itself.  It deliberately does not know
layers; a user's own model needs one of the two methods.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from miron_jax.kernels.forest_attention import reference, xla
from miron_jax.kernels.reductions import row_max, row_sum

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
    block: int = field(metadata={"static": True})  # places read at a time; the number of places is a multiple of it

    def attend(
        self,
        q_B1NH: jax.Array,
        k_B1KH: jax.Array,
        v_B1KH: jax.Array,
        kept_key_LBSKH: jax.Array,
        kept_value_LBSKH: jax.Array,
        layer: jax.Array,
        *,
        scale: float,
        window: jax.Array | int | None = None,
        softcap: float | None = None,
    ) -> jax.Array:
        """[B, 1, N, H] float32.

        Block after block of kept places, as far as any row has come, with a running softmax that begins with the new token:
        nothing is copied but the block, which stays in the processor's cache.  A block that a row does not see adds exact
        zeros to it.
        """
        b, _, n, h = q_B1NH.shape
        kv_heads, dtype = k_B1KH.shape[2], q_B1NH.dtype
        q_BKGH = (q_B1NH * jnp.asarray(scale, dtype)).reshape(b, kv_heads, n // kv_heads, h)

        def capped(logits: jax.Array) -> jax.Array:
            return logits if softcap is None else softcap * jnp.tanh(logits / softcap)

        def of_block(kept_LBSKH: jax.Array, start: jax.Array) -> jax.Array:
            zero = jnp.int32(0)
            sizes = (1, b, self.block, kv_heads, h)
            return jax.lax.dynamic_slice(kept_LBSKH, (layer, zero, start, zero, zero), sizes)[0]

        def add_block(i: jax.Array, running: _Running) -> _Running:
            start = i * self.block
            logits = capped(_logits(q_BKGH, of_block(kept_key_LBSKH, start)))
            logits = jnp.where(self._visible(start, window)[:, None, None], logits, -jnp.inf)
            highest = jnp.maximum(running.highest, row_max(logits))
            weights, before = jnp.exp(logits - highest[..., None]), jnp.exp(running.highest - highest)
            mixed = jnp.einsum(
                "bkgs,bskh->bkgh",
                weights.astype(dtype),
                of_block(kept_value_LBSKH, start),
                preferred_element_type=jnp.float32,
            )
            return _Running(
                highest, running.total * before + row_sum(weights), running.mixed * before[..., None] + mixed
            )

        new = capped(jnp.einsum("bkgh,bkh->bkg", q_BKGH, k_B1KH[:, 0], preferred_element_type=jnp.float32))
        own = jnp.broadcast_to(v_B1KH[:, 0, :, None].astype(jnp.float32), q_BKGH.shape)
        blocks = (self.position_B.max() + (self.block - 1)) // self.block
        running = jax.lax.fori_loop(0, blocks, add_block, _Running(new, jnp.ones_like(new), own))
        return (running.mixed / running.total[..., None]).reshape(b, 1, n, h)

    def _visible(self, start: jax.Array, window: jax.Array | int | None) -> jax.Array:
        """Bool [B, block]."""
        place = (start + jnp.arange(self.block, dtype=jnp.int32))[None]
        position = self.position_B[:, None]
        visible = place < position
        return visible if window is None else visible & (position - place < window)


class _Running(NamedTuple):
    """A softmax over the places met so far, float32."""

    highest: jax.Array  # [B, K, G]
    total: jax.Array  # [B, K, G], of exp(logit - highest)
    mixed: jax.Array  # [B, K, G, H], values weighted by the same


def _logits(q_BKGH: jax.Array, key_BSKH: jax.Array) -> jax.Array:
    return jnp.einsum("bkgh,bskh->bkgs", q_BKGH, key_BSKH, preferred_element_type=jnp.float32)
