"""Averages of a training run's checkpoints: the mean of the last ones, or a moving average of all.

Arrives: the steps of a run and a rule of --average; then the weights of each, leaf by leaf.
Leaves: a `Checkpoint` that stands for an average; its weights.  It deliberately does not know how
weights are read.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from miron_jax.errors import InputError, some_of
from miron_jax.model.checkpoints.hf_reader import Put
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.model.network import is_key
from miron_jax.runtime.devices import Tree
from miron_jax.runtime.progress import Progress


def average_of(rule: str, steps: list[Checkpoint], source: str) -> Checkpoint:
    """The average of a run's steps.  `source`: the run, as an error names it.  Raises InputError
    if there are too few."""
    kind, _, value = rule.partition(":")
    count = 2
    picked = steps
    if kind == "last":
        count = int(value)
        picked = steps[-count:]
    average = Checkpoint(None, None, averaged=tuple(picked))
    if len(picked) < count or steps[0].step is None:
        there = some_of(average.averaged_steps, 8)
        raise InputError(
            f"--average={rule}: {source} has steps {there or 'none'}, expected {count} or more of "
            "a training run; average fewer, or leave the flag out"
        )
    return Checkpoint.average_of(rule, average.averaged)


def still_there(average: Checkpoint, progress: Progress) -> Checkpoint:
    """The average of those of its steps that are there now; a line names those that a trainer has
    removed.  Raises InputError if fewer than two are left."""
    left = tuple(step for step in average.averaged if step.is_there())
    if len(left) == len(average.averaged):
        return average
    kept = [step.step for step in left]
    gone = some_of([step for step in average.averaged_steps if step not in kept], 8)
    if len(left) < 2:
        raise InputError(
            f"--average={average.average}: steps {gone} have been removed before they were read, "
            f"expected two or more that stay, of {some_of(average.averaged_steps, 8)}: let the "
            "trainer keep more"
        )
    progress.warn(f"--average={average.average}: steps {gone} have been removed, and are left out")
    return Checkpoint.average_of(average.average, left)


class Sums:
    """The sums of an average, in float32 on the weights' devices: beside them there is one leaf of
    one step at a time."""

    def __init__(self, rule: str) -> None:
        kind, _, value = rule.partition(":")
        self._decay = float(value) if kind == "ema" else None
        self._sums: dict[str, jax.Array] = {}
        self._num_steps = 0

    def adding(self, put: Put) -> Put:
        """The `Put` of the next step: it adds a leaf to what stands for earlier steps.  Raises
        InputError for one that holds no floats."""
        self._num_steps += 1
        kept, added = 1.0, 1.0
        if self._decay is not None and self._num_steps > 1:
            kept, added = self._decay, 1 - self._decay

        def add(path: str, host: np.ndarray) -> jax.Array:
            if not jnp.issubdtype(host.dtype, jnp.floating):
                raise InputError(
                    f"--average: the weights {path} hold {host.dtype}, expected floats, of which "
                    "there is an average; leave the flag out"
                )
            new = put(path, host)
            if self._num_steps > 1:
                new = _added(self._sums.pop(path), new, np.float32(kept), np.float32(added))
            self._sums[path] = new
            return new

        return add

    def round_in_place(self, leaves: list[jax.Array], dtypes: list[DTypeLike]) -> None:
        """Replace each of the sums, all leaves of the last step, by the average in its dtype."""
        self._sums.clear()
        divisor = np.float32(self._num_steps)
        if self._decay is not None:
            divisor = np.float32(1)
        for i, dtype in enumerate(dtypes):
            if not is_key(leaves[i]) and leaves[i].dtype == jnp.float32:
                leaves[i] = _rounded(leaves[i], divisor, dtype)


def in_float32(params: Tree) -> Tree:
    """Shapes in place of floats, in float32; other leaves, such as random keys, as they are."""

    def one(leaf: Tree) -> Tree:
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jax.ShapeDtypeStruct(leaf.shape, jnp.float32)
        return leaf

    return jax.tree.map(one, params)


@partial(jax.jit, donate_argnums=0)
def _added(sums: jax.Array, new: jax.Array, kept: np.float32, added: np.float32) -> jax.Array:
    return sums * kept + new * added


@partial(jax.jit, static_argnums=2)
def _rounded(sums: jax.Array, divisor: np.float32, dtype: DTypeLike) -> jax.Array:
    """An array of divisors, as XLA would multiply with the reciprocal of one."""
    divisors = jax.lax.optimization_barrier(jnp.broadcast_to(divisor, sums.shape))
    return (sums / divisors).astype(dtype)
