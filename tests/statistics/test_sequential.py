"""Confidence sequences without replacement: against a slow twin, and how often they hold at every moment."""

import itertools
import math

import numpy as np
import pytest

from miron_jax.statistics.sequential import (
    ALPHA,
    Interval,
    Stratum,
    allocation,
    betting_interval,
    half_width,
    highest_wealth,
    winner,
)
from tests.support.tolerances import FLOAT64

RUNS = 300
STEP = 1 / 1000  # between two candidate means


def seldom(times: int, runs: int) -> bool:
    """Whether 5 in 100 is likely, less two deviations of the simulation itself."""
    return times / runs <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)


def refuted(values: np.ndarray, population: int, mean: float) -> bool:
    """Whether the bets refute a mean: one value after the other, as the formulas stand."""
    more = less = 1.0
    total, seen = 0.0, []
    for t, x in enumerate(values, 1):
        expected = (population * mean - total) / (population - t + 1)
        if not 0 < expected < 1:
            return True
        averages = [(0.5 + sum(seen[: i + 1])) / (i + 2) for i in range(len(seen))]
        spread = (0.25 + sum((y - m) ** 2 for y, m in zip(seen, averages, strict=True))) / (len(seen) + 1)
        size = math.sqrt(2 * math.log(2 / ALPHA) / (spread * t * math.log(1 + t)))
        more *= 1 + min(size, 0.5 / expected) * (x - expected)
        less *= 1 - min(size, 0.5 / (1 - expected)) * (x - expected)
        if (more + less) / 2 >= 1 / ALPHA:
            return True
        total += x
        seen.append(x)
    return False


@pytest.mark.parametrize("seed", range(4))
def test_the_interval_is_what_the_bets_do_not_refute(seed: int) -> None:
    draws = np.random.default_rng(seed)
    population = 60
    values = draws.permutation((draws.random(population) < 0.3).astype(float) if seed % 2 else draws.random(population))
    interval = betting_interval(values[:40], population)
    total = float(values[:40].sum())
    means = [k / 1000 for k in range(1001) if total <= population * k / 1000 <= total + 20]
    inside = [mean for mean in means if not refuted(values[:40], population, mean)]
    # The interval reaches one step of the grid further, but not beyond what is possible.
    assert interval.low <= inside[0] <= interval.low + 2.1 * STEP
    assert interval.high - 2.1 * STEP <= inside[-1] <= interval.high


def test_what_is_certain_without_bets() -> None:
    assert betting_interval(np.ones(5), 10).low >= 0.5
    assert betting_interval(np.ones(5), 10).high == 1.0
    assert betting_interval(np.asarray([1.0, 0.0]), 2) == (0.5, 0.5)
    assert betting_interval(np.asarray([]), 4) == (0.0, 1.0)
    almost = np.repeat([1.0, 0.0], [6137, 3860])
    assert betting_interval(almost, 10_000) == (0.6137, 0.614)  # three are left: less than a step of the grid
    assert winner(np.asarray([1.0, 1.0, 1.0]), 4) == 1  # the last one cannot turn it
    assert winner(np.asarray([-1.0, -1.0]), 3) == -1
    assert winner(np.asarray([1.0, -1.0]), 2) == 0  # a tie
    assert winner(np.asarray([1.0, 1.0, -1.0]), 4) == 0  # the last one is all that can make it a tie
    assert winner(np.asarray([0.1] * 20 + [-1.0]), 22) == 0  # the same, where 20 times 0.1 rounds above 2
    assert winner(np.asarray([]), 2) == 0


def test_a_winner_needs_all_the_evidence() -> None:
    """Of a set without end, all for the second: 24 bets of shares f of what can be lost hold the mean of (1 + f)^t.

    The test is two-sided at .05: the first t with a mean of 40 or more decides; half the evidence, 6.3, does not.
    """
    shares = [0.01 * 90 ** (i / 23) for i in range(24)]
    needed = next(t for t in itertools.count(1) if sum((1 + f) ** t for f in shares) / 24 >= 2 / 0.05)
    for sign in (1, -1):
        assert winner(sign * np.ones(needed - 1), 10**9) == 0
        assert winner(sign * np.ones(needed), 10**9) == sign


def test_a_strata_variance_is_that_of_a_finite_set() -> None:
    # 0 1 1 0: deviation² 1 / 3; of a mean of 4, 1 / 12; half of the 8 are left: 1 / 24; times weight²
    assert Stratum(2.0, np.asarray([0.0, 1.0, 1.0, 0.0]), 8).variance == pytest.approx(4 / 24)


def test_intervals_hold_at_every_moment() -> None:
    draws, population, left = np.random.default_rng(0), 400, 0
    for _ in range(RUNS):
        values = draws.permutation((draws.random(population) < 0.35).astype(float))
        left += highest_wealth(values[:-1], population, values.mean(keepdims=True))[0] >= -math.log(ALPHA)
    assert seldom(left, RUNS), left


def test_composites_hold_at_every_moment() -> None:
    draws, left = np.random.default_rng(2), 0
    for _ in range(RUNS):
        sizes, means = (100, 500, 2000, 2000), (0.6, 0.3, 0.5, 0.8)
        tasks = [draws.permutation((draws.random(n) < p).astype(float)) for n, p in zip(sizes, means, strict=True)]
        truth = sum(0.25 * each.mean() for each in tasks)
        for share in np.linspace(0.1, 1, 16):
            strata = [Stratum(0.25, each[: max(20, int(share * len(each)))], len(each)) for each in tasks]
            estimate = sum(each.weight * each.values.mean() for each in strata)
            half = half_width(strata, 0.02)
            if abs(estimate - truth) > half + FLOAT64:
                left += 1
                break
        assert half_width([Stratum(0.25, each, len(each)) for each in tasks], 0.02) == 0.0, "at the end all is known"
    assert seldom(left, RUNS), left
    assert half_width([Stratum(1.0, np.ones(1), 9)], 0.1) == math.inf


def test_allocation_by_hand() -> None:
    # Rates .5 / sqrt(4) = .25 and .5 / sqrt(1) = .5: twice as many of the cheap one.  4 n + 2 n = 60: n = 10.
    assert allocation([0.5, 0.5], [4, 1], [100, 100], 60) == [10, 20]
    assert allocation([0.5, 0.5], [4, 1], [100, 12], 60) == [12, 12]  # what one cannot take goes to the other
    assert allocation([0.0, 0.5], [1, 1], [100, 100], 50) == [2, 48]
    assert allocation([0.5], [1], [7], 1e9) == [7]
    assert Interval(0.2, 0.5).half_width == pytest.approx(0.15)
