"""Logits -> one token a row: the most probable one, or a seeded draw.

A draw adds Gumbel noise, which depends on the row's seed and step alone, and takes the largest sum:
neither the batch nor a row's place in it changes it.  Letters: B rows, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

OfRows = Any  # an array [B], on the host or on a device


class RowDraws(NamedTuple):
    """How every row draws."""

    temperature_B: OfRows  # float32; 0 takes the most probable token
    seed_B: OfRows  # uint32
    step_B: OfRows  # int32, tokens drawn before
    cut: (
        "VocabularyCut | None"  # None where every row draws from the whole vocabulary: no sort then
    )


class VocabularyCut(NamedTuple):
    top_k_B: OfRows  # int32; 0: all
    top_p_B: OfRows  # float32; 1: all


def draw_token(logits_BV: jax.Array, draw: RowDraws | None, index: jax.Array) -> jax.Array:
    """A token a row, int32 [B], from float32 logits; `index` steps after those that `draw`
    counts."""
    greedy_B = _first_largest(logits_BV)
    if draw is None:
        return greedy_B
    temperature_B1 = draw.temperature_B[:, None]
    # so that a tiny temperature does not overflow
    below_BV = logits_BV - logits_BV.max(axis=1, keepdims=True)
    scaled_BV = below_BV / jnp.where(temperature_B1 > 0, temperature_B1, 1.0)
    if draw.cut is not None:
        scaled_BV = keep_probable(scaled_BV, draw.cut.top_k_B, draw.cut.top_p_B)

    def noise(seed: jax.Array, step: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(seed), step)
        return jax.random.gumbel(key, logits_BV.shape[1:], jnp.float32)

    sampled_B = _first_largest(scaled_BV + jax.vmap(noise)(draw.seed_B, draw.step_B + index))
    return jnp.where(draw.temperature_B > 0, sampled_B, greedy_B)


def _first_largest(x_BV: jax.Array) -> jax.Array:
    """argmax with the lowest id among equals; jnp.argmax is slow on CPU."""
    id_1V = jnp.arange(x_BV.shape[1], dtype=jnp.int32)[None]
    return jnp.where(x_BV == x_BV.max(axis=1, keepdims=True), id_1V, x_BV.shape[1] - 1).min(axis=1)


def keep_probable(logits_BV: jax.Array, top_k_B: jax.Array, top_p_B: jax.Array) -> jax.Array:
    """-inf for tokens beyond top_k and, among the others, beyond the fewest that hold top_p.  The
    first always stays."""
    size = logits_BV.shape[1]
    rank_1V = jnp.arange(size, dtype=jnp.int32)[None]
    falling_BV = -jnp.sort(-logits_BV, axis=1)
    in_k_BV = (rank_1V < top_k_B[:, None]) | (top_k_B[:, None] == 0)
    probability_BV = jax.nn.softmax(jnp.where(in_k_BV, falling_BV, -jnp.inf), axis=1)
    before_BV = jnp.cumsum(probability_BV, axis=1) - probability_BV
    in_p_BV = (before_BV < top_p_B[:, None]) | (top_p_B[:, None] >= 1) | (rank_1V == 0)
    lowest_B = jnp.where(in_k_BV & in_p_BV, falling_BV, jnp.inf).min(axis=1)
    return jnp.where(logits_BV >= lowest_B[:, None], logits_BV, -jnp.inf)
