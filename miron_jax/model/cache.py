"""Keys and values of every slot, laid out as attention reads them.

Arrives: keys and values of some places, and where they go.  Leaves: the cache with them, or one block of it.  It
deliberately does not know what is visible or when a slot is free.

    L layers, J blocks of C places, B slots, K key/value heads, H head, P places of a prefilled batch, T new tokens

A block of all slots lies together, keys transposed: reading it is one sweep through memory, and the matmuls of
attention take it as it is.  (Places side by side, [B, J * C, K, H], cost a transposed copy of every key at each step.)
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from miron_jax.model.config import ModelConfig


class Cache(NamedTuple):
    key_LJBKHC: jax.Array
    value_LJBKCH: jax.Array

    @classmethod
    def zeros(cls, config: ModelConfig, num_slots: int, num_blocks: int, block: int, dtype: DTypeLike) -> Self:
        lead = (config.num_layers, num_blocks, num_slots, config.num_kv_heads)
        head = config.head_dim
        return cls(jnp.zeros((*lead, head, block), dtype), jnp.zeros((*lead, block, head), dtype))

    @property
    def num_slots(self) -> int:
        return self.key_LJBKHC.shape[2]

    @property
    def num_blocks(self) -> int:
        return self.key_LJBKHC.shape[1]

    @property
    def block(self) -> int:
        """Places of a block."""
        return self.key_LJBKHC.shape[5]

    @property
    def num_places(self) -> int:
        """Places of a slot."""
        return self.num_blocks * self.block

    def read(self, layer: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One block of one layer: keys [B, K, H, C] and values [B, K, C, H]."""
        zero = jnp.int32(0)

        def one(x: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice(x, (layer, index, zero, zero, zero, zero), (1, 1, *x.shape[2:]))[0, 0]

        return one(self.key_LJBKHC), one(self.value_LJBKCH)

    def with_tokens(self, key_LBTKH: jax.Array, value_LBTKH: jax.Array, place_BT: jax.Array) -> Self:
        """New tokens of every slot at their places, int32; a place past the last one is dropped."""
        slot_B1 = jnp.arange(self.num_slots, dtype=jnp.int32)[:, None]
        block_BT, within_BT = place_BT // self.block, place_BT % self.block

        def lead(x_LBTKH: jax.Array) -> jax.Array:
            return x_LBTKH.transpose(1, 2, 0, 3, 4)

        key = self.key_LJBKHC.at[:, block_BT, slot_B1, :, :, within_BT].set(lead(key_LBTKH), mode="drop")
        value = self.value_LJBKCH.at[:, block_BT, slot_B1, :, within_BT].set(lead(value_LBTKH), mode="drop")
        return type(self)(key, value)

    def with_slot(self, key_LPKH: jax.Array, value_LPKH: jax.Array, place_S: jax.Array, slot: jax.Array) -> Self:
        """Places `place_S`, int32 [places of a slot], of a prefilled batch become all of one slot."""
        zero = jnp.int32(0)
        start = (zero, zero, slot, zero, zero, zero)

        def blocks(x_LPKH: jax.Array) -> jax.Array:
            x_LSKH = x_LPKH[:, place_S]
            return x_LSKH.reshape(x_LSKH.shape[0], self.num_blocks, 1, self.block, *x_LSKH.shape[2:])

        key = blocks(key_LPKH).transpose(0, 1, 2, 4, 5, 3)
        value = blocks(value_LPKH).transpose(0, 1, 2, 4, 3, 5)
        return type(self)(
            jax.lax.dynamic_update_slice(self.key_LJBKHC, key, start),
            jax.lax.dynamic_update_slice(self.value_LJBKCH, value, start),
        )
