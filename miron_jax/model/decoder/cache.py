"""The key/value cache of generation and of dialogues that grow turn by turn: positions in blocks, a
slot for each text.

Arrives: keys and values of some tokens, and their positions.  Leaves: the cache with them, or one
block of it.  It deliberately does not know what is visible or when a slot is free.

    L layers, J blocks of C positions, B slots (one for each prompt in generation), K key/value
    heads, H head, P slots of a prefilled batch, T new tokens

A block of all slots is contiguous, with keys transposed: reading it is one pass through memory, and
the matmuls of attention take it without a copy.  (The layout [B, J * C, K, H] would cost a
transposed copy of every key at each step.)
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.typing import DTypeLike

from miron_jax.model.config import ModelConfig

LANES = 128  # of a TPU's registers
FEW = 8  # new tokens of a slot that one pass over the cache places


class Cache(NamedTuple):
    key_LJBKHC: jax.Array
    value_LJBKCH: jax.Array

    @classmethod
    def zeros(
        cls, config: ModelConfig, num_slots: int, num_blocks: int, block: int, dtype: DTypeLike
    ) -> Self:
        lead = (config.num_layers, num_blocks, num_slots, config.num_kv_heads)
        head = config.attended_dim
        return cls(jnp.zeros((*lead, head, block), dtype), jnp.zeros((*lead, block, head), dtype))

    @property
    def num_slots(self) -> int:
        return self.key_LJBKHC.shape[2]

    @property
    def num_blocks(self) -> int:
        return self.key_LJBKHC.shape[1]

    @property
    def block(self) -> int:
        """Positions of a block."""
        return self.key_LJBKHC.shape[5]

    @property
    def num_positions(self) -> int:
        """Positions of a slot."""
        return self.num_blocks * self.block

    def read(self, layer: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One block of one layer: keys [B, K, H, C] and values [B, K, C, H]."""
        zero = jnp.int32(0)

        def block_of(x: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice(
                x, (layer, index, zero, zero, zero, zero), (1, 1, *x.shape[2:])
            )[0, 0]

        return block_of(self.key_LJBKHC), block_of(self.value_LJBKCH)

    def with_tokens(
        self, key_LBTKH: jax.Array, value_LBTKH: jax.Array, position_BT: jax.Array
    ) -> Self:
        """The cache with new tokens of every slot at the positions `position_BT`, int32; one beyond
        the slot is dropped."""
        new = key_LBTKH, value_LBTKH, position_BT
        if position_BT.shape[1] > FEW:
            return self._scattered(*new)
        return jax.lax.platform_dependent(
            self, *new, tpu=type(self)._selected, default=type(self)._scattered
        )

    def _scattered(
        self, key_LBTKH: jax.Array, value_LBTKH: jax.Array, position_BT: jax.Array
    ) -> Self:
        slot_B1 = jnp.arange(self.num_slots, dtype=jnp.int32)[:, None]
        block_BT = position_BT // self.block
        within_BT = position_BT % self.block
        key_BTLKH, value_BTLKH = (x.transpose(1, 2, 0, 3, 4) for x in (key_LBTKH, value_LBTKH))
        key = self.key_LJBKHC.at[:, block_BT, slot_B1, :, :, within_BT].set(key_BTLKH, mode="drop")
        value = self.value_LJBKCH.at[:, block_BT, slot_B1, :, within_BT].set(
            value_BTLKH, mode="drop"
        )
        return type(self)(key, value)

    def _selected(
        self, key_LBTKH: jax.Array, value_LBTKH: jax.Array, position_BT: jax.Array
    ) -> Self:
        """The same in one pass over the cache: for a scatter XLA's TPU compiler copies all of it
        into another layout, and back, at each step."""
        key, value = self
        place_JC = jnp.arange(self.num_positions, dtype=jnp.int32).reshape(
            self.num_blocks, self.block
        )
        for t in range(position_BT.shape[1]):
            is_new_JBC = place_JC[:, None] == position_BT[None, :, t, None]
            is_new_1JB11C = is_new_JBC[None, :, :, None, None]
            key = jnp.where(is_new_1JB11C, key_LBTKH[:, None, :, t, :, :, None], key)
            value = jnp.where(
                is_new_JBC[None, :, :, None, :, None], value_LBTKH[:, None, :, t, :, None], value
            )
        return type(self)(key, value)

    def with_slot(
        self, key_LPKH: jax.Array, value_LPKH: jax.Array, node_S: jax.Array, slot: jax.Array
    ) -> Self:
        """The cache with one slot filled: its position s is slot `node_S[s]` (int32) of a prefilled
        batch."""
        zero = jnp.int32(0)
        start = (zero, zero, slot, zero, zero, zero)

        def blocks(x_LPKH: jax.Array) -> jax.Array:
            x_LSKH = x_LPKH[:, node_S]
            return x_LSKH.reshape(
                x_LSKH.shape[0], self.num_blocks, 1, self.block, *x_LSKH.shape[2:]
            )

        key = _as_stored(blocks(key_LPKH).transpose(0, 1, 2, 4, 5, 3))
        value = _as_stored(blocks(value_LPKH).transpose(0, 1, 2, 4, 3, 5))
        return type(self)(
            _as_stored(jax.lax.dynamic_update_slice(_as_stored(self.key_LJBKHC), key, start)),
            _as_stored(jax.lax.dynamic_update_slice(_as_stored(self.value_LJBKCH), value, start)),
        )


def _as_stored(x: jax.Array) -> jax.Array:
    """x, on a TPU in the layout that its compiler gives such an array by itself: last axis
    innermost, or the one before if that fills registers and the last does not.

    Within a loop that fills slots XLA otherwise prefers another layout, and copies the whole cache
    into it and back.
    """
    *lead, before, last = range(x.ndim)
    swaps = x.shape[last] % LANES and x.shape[before] % LANES == 0
    layout = Layout((*lead, last, before) if swaps else (*lead, before, last))
    return jax.lax.platform_dependent(
        x, tpu=lambda x: with_layout_constraint(x, layout), default=lambda x: x
    )
