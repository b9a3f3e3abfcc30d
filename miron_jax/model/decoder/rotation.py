"""Rotation of queries and keys by their positions (RoPE: Su et al., 2021, arXiv 2104.09864),
computed with the batch.

Arrives: the layers' `Rope`s, positions of a batch, heads.  Leaves: rotated heads.  It deliberately
does not know layers.  Letters of shapes as in decoder.py; R: the distinct Ropes of the layers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.model.config import Rope


class Rotation(NamedTuple):
    """Cosines and sines of every slot for each distinct Rope: float32 [R, B, T, 1, pairs]."""

    cos_RBT1H: jax.Array
    sin_RBT1H: jax.Array


def distinct(ropes: tuple[Rope, ...]) -> tuple[Rope, ...]:
    return tuple(dict.fromkeys(ropes))


def rotation_of(
    ropes: tuple[Rope, ...], position_BT: jax.Array, rope_class_BT: jax.Array | None
) -> Rotation:
    """`ropes`: the distinct ones; `rope_class_BT`: the RoPE scaling class of each slot, None where
    no Rope has any."""
    if rope_class_BT is None:
        frequency_RBT1H = jnp.asarray([rope.frequencies for rope in ropes], jnp.float32)[
            :, None, None, None, :
        ]
    else:
        frequency_RBT1H = jnp.stack([_frequencies(rope, rope_class_BT) for rope in ropes])[
            :, :, :, None, :
        ]
    scale_R1111 = np.asarray([rope.scale for rope in ropes], np.float32)[:, None, None, None, None]
    position_1BT11 = position_BT.astype(jnp.float32)[None, :, :, None, None]
    angle_RBT1H = position_1BT11 * frequency_RBT1H
    return Rotation(jnp.cos(angle_RBT1H) * scale_R1111, jnp.sin(angle_RBT1H) * scale_R1111)


def rotate(x_BTNH: jax.Array, rotation: Rotation, rope_idx: jax.Array | None) -> jax.Array:
    """Rotate n pairs of each head; pair i is (x[i], x[i + n]), Hugging Face's half-split order.
    Dimensions from 2n on are not rotated.  `rope_idx`: int32, the layer's row of the tables; None:
    the first."""
    row = 0 if rope_idx is None else rope_idx
    cos_BT1H = rotation.cos_RBT1H[row]
    sin_BT1H = rotation.sin_RBT1H[row]
    pairs = cos_BT1H.shape[-1]
    left = x_BTNH[..., :pairs]
    right = x_BTNH[..., pairs : 2 * pairs]
    rest = x_BTNH[..., 2 * pairs :]
    return jnp.concatenate(
        [left * cos_BT1H - right * sin_BT1H, right * cos_BT1H + left * sin_BT1H, rest], axis=-1
    )


def _frequencies(rope: Rope, rope_class_BT: jax.Array) -> jax.Array:
    """Rotary frequencies of every slot by its RoPE scaling class, float32 [B, T, pairs]."""
    short_11H = jnp.asarray(rope.frequencies, jnp.float32)[None, None]
    if not rope.varies_with_length:
        return jnp.broadcast_to(short_11H, (*rope_class_BT.shape, len(rope.frequencies)))
    if rope.dynamic is None:
        long_BTH = jnp.asarray(rope.long, jnp.float32)[None, None]
    else:
        theta = rope.dynamic.theta
        factor = rope.dynamic.factor
        size = rope.dynamic.size
        longer_BT = factor * rope_class_BT.astype(jnp.float32) / rope.original_length - (factor - 1)
        theta_BT1 = (theta * jnp.maximum(longer_BT, 1.0) ** (size / (size - 2)))[:, :, None]
        exponent_H = jnp.arange(0, size, 2, dtype=jnp.float32) / size
        long_BTH = 1.0 / theta_BT1 ** exponent_H[None, None]
    return jnp.where((rope_class_BT > 0)[:, :, None], long_BTH, short_11H)
