"""Reductions over the last axis that XLA:CPU vectorises; elsewhere they are jax.numpy's own."""

import jax
import jax.numpy as jnp

LANES = 16  # float32 numbers in a 512-bit register
WINDOW = 32  # XLA:CPU makes a slow reduce-window of any reduction over more


def row_max(x: jax.Array) -> jax.Array:
    """Maximum over the last axis.  XLA:CPU does not vectorise jnp.max, which carries NaN; this one
    drops NaN there.

    Callers subtract it and exponentiate, where a NaN entry makes the sum NaN all the same.  Where
    the axis may be split over a mesh it is jnp.max everywhere: XLA:CPU knows no sum over devices of
    a hand-written reduction.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if any(mesh.shape[axis] > 1 for axis in mesh.auto_axes):
        return x.max(axis=-1)

    def select_max(y: jax.Array) -> jax.Array:
        lowest = jnp.asarray(-jnp.inf, y.dtype)
        return jax.lax.reduce(y, lowest, lambda a, b: jax.lax.select(a > b, a, b), (y.ndim - 1,))

    return jax.lax.platform_dependent(x, cpu=select_max, default=lambda y: y.max(axis=-1))


def row_sum(x: jax.Array) -> jax.Array:
    """Sum over the last axis.  On CPU whole registers are added first, in steps that XLA leaves as
    they are."""
    return jax.lax.platform_dependent(x, cpu=_sum_by_lanes, default=lambda y: y.sum(axis=-1))


def row_dot(x: jax.Array, y: jax.Array) -> jax.Array:
    """Sum of the products over the last axis.  On CPU a dot computes neither array twice."""

    def dot(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.einsum("cv,cv->c", a, b, precision="highest")

    return jax.lax.platform_dependent(x, y, cpu=dot, default=lambda a, b: jnp.sum(a * b, axis=-1))


def _sum_by_lanes(x: jax.Array) -> jax.Array:
    size = x.shape[-1]
    steps = size // LANES if size % LANES == 0 else 1
    factor = max(d for d in range(1, WINDOW + 1) if steps % d == 0)
    if factor == 1:
        return x.sum(axis=-1)
    lanes = x.reshape(*x.shape[:-1], factor, size // factor).sum(axis=-2)
    # Without the barrier XLA merges the two sums into the one that it does not vectorise.
    return _sum_by_lanes(jax.lax.optimization_barrier(lanes))
