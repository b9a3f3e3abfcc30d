"""How far a score moves with the draw of its few-shot examples.

Arrives: the value of each example under each draw.  Leaves: a standard deviation, float64.  It
deliberately does not know how shots are drawn.

Shots are drawn for each example apart, so of a mean of examples

    spread = sqrt(sum of (weight of an example * the deviation of its values over the draws)²)

which has n (K - 1) degrees of freedom, where the deviation of K scores has K - 1.  It also holds
where an example has in one draw the shots that another one has in another draw: an example's values
depend on its shots alone.
"""

import math
from collections.abc import Sequence

import numpy as np

from miron_jax.statistics.paired import mean

WITHIN = 1.96  # standard deviations that 95 % of draws lie within


def spread(by_draw: np.ndarray, strata: Sequence[str] | None = None) -> float:
    """The standard deviation of the mean of examples from one draw to another; NaN of one draw.

    `by_draw`: float64 [examples, draws]; an example with a NaN is left out.  `strata`: a name for
    each example, where the mean is that of the strata's means.
    """
    defined = np.isfinite(by_draw).all(axis=1)
    kept = by_draw[defined]
    num_examples, num_draws = kept.shape
    if not num_examples or num_draws < 2:
        return math.nan
    stratum = np.zeros(num_examples, int)
    if strata is not None:
        stratum = np.unique(np.asarray(strata)[defined], return_inverse=True)[1]
    sizes = np.bincount(stratum)
    weights = 1 / (len(sizes) * sizes[stratum])
    return math.hypot(*(weights * kept.std(axis=1, ddof=1)))


def spread_of_task(
    by_draw: np.ndarray, scores: Sequence[float], strata: Sequence[str] | None = None
) -> float:
    """`spread`; of a metric that is no mean of examples, the deviation of the `scores` of the
    draws."""
    means = [mean(values, strata) for values in by_draw.T]
    if np.allclose(means, scores, rtol=1e-6, atol=1e-9):
        return spread(by_draw, strata)
    return float(np.std(scores, ddof=1)) if len(scores) > 1 else math.nan
