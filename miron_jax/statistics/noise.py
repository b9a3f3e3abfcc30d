"""How much a task's number moves from checkpoint to checkpoint of a training run, beside what tells
models apart.

Arrives: values by step, or by model.  Leaves: `Noise` and other numbers.  It deliberately does not
know runs or metrics.

Heineman et al. 2025 (arXiv:2508.13144): noise is the deviation over a run's last checkpoints,
relative to their mean; signal the largest difference between models, relative to the mean; their
ratio says how far a benchmark can decide.  Theirs is the deviation from the mean, which counts the
progress of a run that still learns as noise; here it is the deviation from the straight line
through the checkpoints.  This noise of training is another one than the error of a mean over
examples (`Estimate.stderr`): the same examples are asked each time.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from miron_jax.statistics.estimate import spearman

LAST = 5  # checkpoints
LEAST = 3  # checkpoints that can deviate from a line
_ROUNDING = 1e-12  # of the values: checkpoints on a line leave residuals of rounding


class Noise(NamedTuple):
    """Of the last checkpoints of one run."""

    mean: float
    deviation: float  # from the line through the checkpoints; NaN for fewer than three
    num_steps: int

    @property
    def relative(self) -> float:
        return self.deviation / abs(self.mean) if self.mean else math.nan


def noise(values: Mapping[int, float], last: int = LAST) -> Noise:
    """`values`: by step, in order; NaN where a step has none."""
    kept = [(step, value) for step, value in list(values.items())[-last:] if math.isfinite(value)]
    if not kept:
        return Noise(math.nan, math.nan, 0)
    steps, numbers = np.asarray(kept, np.float64).T
    return Noise(float(numbers.mean()), _deviation(steps, numbers), len(kept))


def monotonicity(values: Mapping[int, float]) -> float:
    """Spearman's rank correlation of step and value: 1 of a curve that only rises; NaN for fewer
    than three steps with a value, and where all are equal."""
    known = {step: value for step, value in values.items() if math.isfinite(value)}
    if len(known) < LEAST:
        return math.nan
    return spearman([*known], [*known.values()])


def decision_accuracy(small: Sequence[float], large: Sequence[float]) -> tuple[float, int]:
    """The share of pairs of recipes that small models order as large ones do, and the number of
    pairs (Magnusson et al. 2025, arXiv:2504.11393).

    `small[i]` and `large[i]` are of one recipe.  A pair that small models do not tell apart counts
    half; one that large models do not tell apart, or that lacks a value, is no pair.  NaN without
    pairs."""
    points = list[float]()
    for i, j in combinations(range(len(small)), 2):
        truth = large[j] - large[i]
        guess = small[j] - small[i]
        if truth and math.isfinite(truth) and math.isfinite(guess):
            points.append((1 + np.sign(truth) * np.sign(guess)) / 2)
    return (float(np.mean(points)) if points else math.nan), len(points)


def _deviation(steps: np.ndarray, values: np.ndarray) -> float:
    """Residual standard deviation of the least-squares line: sqrt(sum of residual² / (n - 2)).

    Without a trend it estimates the same number as the sample deviation; a steady rise adds
    nothing.
    """
    if len(values) < LEAST:
        return math.nan
    away = steps - steps.mean()
    rises = values - values.mean()
    residuals = rises - away * (away @ rises) / (away @ away)
    residuals[np.abs(residuals) < _ROUNDING * np.abs(values).max()] = 0.0
    return float(np.sqrt(residuals @ residuals / (len(values) - 2)))


def signal(means: Sequence[float]) -> float:
    """The largest difference between two models' means, relative to the mean of all; NaN for fewer
    than two."""
    known = [*filter(math.isfinite, means)]
    middle = float(np.mean(known)) if len(known) > 1 else 0.0
    return (max(known) - min(known)) / abs(middle) if middle else math.nan


def signal_to_noise(noises: Sequence[Noise]) -> float:
    """Of several runs: their signal over the largest relative noise; NaN where there is none."""
    known = [each.relative for each in noises if math.isfinite(each.relative)]
    relative = max(known, default=math.nan)
    return signal([each.mean for each in noises]) / relative if relative else math.nan
