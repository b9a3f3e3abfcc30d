"""Intervals that hold at every moment of a run, over the finite set of a task's examples; shares of
a budget.

Arrives: values in the order in which examples ran.  Leaves: that order, intervals, whether a winner
is decided, how many examples to run.  It deliberately does not know runs or metrics.

The question is about this complete set: its mean, or who wins on it, as if every example had run.
Since examples come in a random order without replacement, what has run also bounds what is left,
and at the last example all is known.  (Whether another set of such questions would say the same is
`paired.difference`'s question.)

Betting (Waudby-Smith and Ramdas 2024, J. R. Stat. Soc. B 86, 1-27; without replacement: NeurIPS
2020).  For a candidate mean m of N values in [0, 1], the next value has the mean m_t = (N m -
S_{t-1}) / (N - t + 1); the wealth of a bet on more, product of 1 + l_t (x_t - m_t), and of one on
less, product of 1 - l_t (x_t - m_t), are martingales.  m is refuted once their mean has reached 1 /
ALPHA.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np

ALPHA = 0.05
FIRST, GROWTH = 100, 1.5  # examples of a task in its first round; how much each round adds
_GRID, _ROWS = 1001, 512  # candidate means; values whose bets are computed at once
_CAP = 0.5  # of a bet's largest size
# bets on a winner, of all that can be lost; their mean is a bet too
_FRACTIONS = np.geomspace(0.01, 0.9, 24)
_ROUNDING = 1e-9  # of a sum of differences


class Interval(NamedTuple):
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def order_of(ids: Collection[int], task: str, seed: int) -> np.ndarray:
    """The ids, int64 [n], in the random order in which a task's examples run."""
    return np.random.default_rng([seed, crc32(task.encode())]).permutation(
        np.asarray(sorted(ids), np.int64)
    )


def moments(size: int) -> Iterator[int]:
    """Numbers of examples after which a task may end, all of them at last."""
    at = min(FIRST, size)
    while at < size:
        yield at
        at = min(size, math.ceil(GROWTH * at))
    yield size


def betting_interval(values: np.ndarray, population: int) -> Interval:
    """The mean of all `population` values in [0, 1], of which `values` [t] have run; holds at every
    t at once, 95 %."""
    t = len(values)
    total = float(values.sum())
    logical = Interval(total / population, (total + population - t) / population)
    if t == population or not t:
        return logical
    grid = np.linspace(0, 1, _GRID)
    grid = grid[(grid >= logical.low) & (grid <= logical.high)]
    kept = grid[highest_wealth(values, population, grid) < -math.log(ALPHA)] if len(grid) else grid
    if not len(kept):  # what is left is less than a step of the grid
        return logical
    step = 1 / (_GRID - 1)  # a mean between two candidates may be the true one
    return Interval(max(kept.min() - step, logical.low), min(kept.max() + step, logical.high))


def highest_wealth(values: np.ndarray, population: int, candidates: np.ndarray) -> np.ndarray:
    """ln of the most that the bets against each candidate mean [m] have held at any moment: from
    -ln ALPHA on it is refuted.

    Candidates must be possible after all `values`.
    """
    sums = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    sizes = _bet_sizes(values)
    more = np.zeros(len(candidates))
    less = np.zeros(len(candidates))
    highest = np.full(len(candidates), -math.inf)
    for start in range(0, len(values), _ROWS):
        rows = slice(start, min(start + _ROWS, len(values)))
        left = population - np.arange(rows.start, rows.stop)
        # A candidate at the end of what is possible expects 0 or 1 of every value that is left, and
        # gets it.
        means = np.clip(
            (population * candidates - sums[rows, None]) / left[:, None], 1e-9, 1 - 1e-9
        )
        gain = values[rows, None] - means
        size = sizes[rows, None]
        up = more + np.cumsum(np.log1p(np.minimum(size, _CAP / means) * gain), axis=0)
        down = less + np.cumsum(np.log1p(-np.minimum(size, _CAP / (1 - means)) * gain), axis=0)
        highest = np.maximum(highest, (np.logaddexp(up, down) - math.log(2)).max(axis=0))
        more = up[-1]
        less = down[-1]
    return highest


def _bet_sizes(values: np.ndarray) -> np.ndarray:
    """sqrt(2 ln(2 / ALPHA) / (variance * t * ln(1 + t))) with the variance of the values before,
    [t]."""
    t = np.arange(1, len(values) + 1)
    means = (0.5 + np.cumsum(values)) / (t + 1)
    variance = (0.25 + np.cumsum((values - means) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    return np.sqrt(2 * math.log(2 / ALPHA) / (before * t * np.log(1 + t)))


def winner(differences: np.ndarray, population: int) -> int:
    """Who has the larger mean over all examples: 1 the second, -1 the first, 0 not decided by
    these.

    `differences` [t], second minus first, within [-1, 1], in a random order; wrong at most 5 times
    in 100, whenever asked.
    """
    t = len(differences)
    total = float(differences.sum())
    if abs(total) > population - t + _ROUNDING:  # the examples that are left cannot turn it
        return 1 if total > 0 else -1
    if t == population or not t:
        return 0
    sums = np.concatenate([[0.0], np.cumsum(differences)[:-1]])
    left = population - np.arange(t)
    expected = -sums / left  # of the next difference if the means are equal
    for sign in (1, -1):
        # Losing all would take a step of 1 + sign * expected down: none where only losing all that
        # are left makes the means equal.  An example that is not lost then has decided.
        gain = sign * (differences - expected)
        most_lost = 1 + sign * expected
        step = np.divide(gain, most_lost, out=np.zeros(t), where=most_lost > _ROUNDING)
        wealth = np.cumsum(np.log1p(_FRACTIONS[:, None] * step), axis=1)
        if np.logaddexp.reduce(wealth, axis=0).max() - math.log(len(_FRACTIONS)) >= math.log(
            2 / ALPHA
        ):
            return sign
    return 0


# Weighted sums of several tasks' means.


class Stratum(NamedTuple):
    """What has run of one task of a composite."""

    weight: float  # d composite / d mean
    values: np.ndarray  # [t]
    population: int

    @property
    def variance(self) -> float:
        """Of weight * mean, for the complete set; at least that of one value apart from the
        others."""
        t = len(self.values)
        if t >= self.population:
            return 0.0
        if t < 2:
            return math.inf
        spread = max(float(self.values.var(ddof=1)), float(np.ptp(self.values) == 0) / t)
        return self.weight**2 * spread / t * (1 - t / self.population)


def half_width(strata: Sequence[Stratum], target: float) -> float:
    """Half the 95 % confidence sequence of the sum of weight * mean, which is tightest where it
    reaches `target`.

    Asymptotic (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024, Ann. Stat. 52, 2613-2640,
    theorem 2.2): sqrt(V) * sqrt(2 (e + 1) / e * ln(sqrt(e + 1) / ALPHA)), V the estimate's
    variance, e inverse to it.
    """
    variance = sum(stratum.variance for stratum in strata)
    if not variance or math.isinf(variance):
        return variance
    best = (target / _boundary(_BEST)) ** 2  # the variance at which the target is reached
    return math.sqrt(variance) * _boundary(_BEST * best / variance)


def _boundary(time: float) -> float:
    return math.sqrt(2 * (time + 1) / time * math.log(math.sqrt(time + 1) / ALPHA))


_BEST = min(np.geomspace(0.1, 100, 2000).tolist(), key=_boundary)


def allocation(
    deviations: Sequence[float],
    costs: Sequence[float],
    sizes: Sequence[int],
    budget: float,
) -> list[int]:
    """Examples of each task that give a weighted sum its smallest error for `budget` (Neyman 1934,
    with costs).

    `deviations`: weight times an example's deviation; `costs` of an example, `budget` in one unit;
    `sizes`: examples there. n = c * deviation / sqrt(cost), between two and the size; a larger
    budget never gives fewer.
    """
    rates = np.maximum(deviations, 0.0) / np.sqrt(costs)

    def numbers(scale: float) -> np.ndarray:
        return np.minimum(sizes, np.maximum(2, np.floor(scale * rates)))

    low = 0.0
    some = rates > 0
    high = float((np.asarray(sizes)[some] / rates[some]).max(initial=0.0)) + 1
    for _ in range(100):
        middle = (low + high) / 2
        if (numbers(middle) * costs).sum() <= budget:
            low = middle
        else:
            high = middle
    return numbers(low).astype(int).tolist()
