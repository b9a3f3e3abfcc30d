"""Confidence sequences without replacement: against a slow twin, and how often they hold at every moment."""

import itertools
import math

import numpy as np
import pytest

from miron_jax.definitions.records import Composite
from miron_jax.statistics.estimate import Estimate, estimate_composite
from miron_jax.statistics.sequential import (
    ALPHA,
    Interval,
    Stratum,
    allocation,
    betting_interval,
    half_width,
    winner,
)
from tests.support.tolerances import FLOAT64

pytestmark = pytest.mark.slow

RUNS = 300
STEP = 1 / 1000  # between two candidate means


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


@pytest.mark.parametrize("seed", range(6))
def test_the_interval_is_what_the_bets_do_not_refute(seed: int) -> None:
    draws = np.random.default_rng(seed)
    population = 60
    values = draws.permutation((draws.random(population) < 0.3).astype(float) if seed % 2 else draws.random(population))
    found = betting_interval(values[:40], population)
    total = float(values[:40].sum())
    inside = [
        k / 1000
        for k in range(1001)
        if total <= population * k / 1000 <= total + 20 and not refuted(values[:40], population, k / 1000)
    ]
    # The interval reaches one step of the grid further, but not beyond what is possible.
    assert found.low <= inside[0] <= found.low + 2.1 * STEP
    assert found.high - 2.1 * STEP <= inside[-1] <= found.high


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
    assert winner(np.asarray([]), 2) == 0


def test_intervals_hold_at_every_moment() -> None:
    """Of 300 runs at most 5 in 100, and two deviations, leave the truth at any of their moments."""
    draws = np.random.default_rng(0)
    left = 0
    for _ in range(RUNS):
        population = 400
        values = draws.permutation((draws.random(population) < 0.35).astype(float))
        truth = values.mean()
        moments = [betting_interval(values[:t], population) for t in range(10, population, 30)]
        left += any(not own.low <= truth <= own.high for own in moments)
    assert left / RUNS <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / RUNS), left


@pytest.mark.parametrize("gap", [0.0, 0.04])
def test_winners_are_right_and_are_found(gap: float) -> None:
    """20 % of the pairs differ.  Equal models: seldom a winner before the end; 4 points: the right one, by half of 2,400."""
    draws, population = np.random.default_rng(1), 2400
    wrong, needed = 0, []
    for _ in range(RUNS):
        ahead, behind = int(population * (0.1 + gap / 2)), int(population * (0.1 - gap / 2))
        values = np.repeat([1.0, -1.0, 0.0], [ahead, behind, population - ahead - behind])
        values = draws.permutation(values)
        moments = range(100, population, 100)
        found = next(((t, own) for t in moments if (own := winner(values[:t], population))), (population, 0))
        wrong += found[1] == (-1 if gap else found[1]) and found[1] != 0
        needed.append(found[0])
    assert wrong / RUNS <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / RUNS), wrong
    if gap:
        assert np.median(needed) <= 0.5 * population, np.median(needed)


def test_composites_hold_at_every_moment() -> None:
    draws, left = np.random.default_rng(2), 0
    for _ in range(RUNS):
        sizes, means = (100, 500, 2000, 2000), (0.6, 0.3, 0.5, 0.8)
        tasks = [draws.permutation((draws.random(n) < p).astype(float)) for n, p in zip(sizes, means, strict=True)]
        truth = sum(0.25 * own.mean() for own in tasks)
        for share in np.linspace(0.1, 1, 16):
            strata = [Stratum(0.25, own[: max(20, int(share * len(own)))], len(own)) for own in tasks]
            estimate = sum(own.weight * own.values.mean() for own in strata)
            half = half_width(strata, 0.02)
            if abs(estimate - truth) > half + FLOAT64:
                left += 1
                break
        assert half_width([Stratum(0.25, own, len(own)) for own in tasks], 0.02) == 0.0, "at the end all is known"
    assert left / RUNS <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / RUNS), left
    assert half_width([Stratum(1.0, np.ones(1), 9)], 0.1) == math.inf


def test_intervals_of_sampled_composites_hold_the_complete_sets_value() -> None:
    """Made of the tasks' sequences, so near 1 too, and wherever a task stopped."""
    draws, held = np.random.default_rng(3), 0
    for _ in range(RUNS):
        tasks = [draws.permutation((draws.random(1000) < p).astype(float)) for p in (0.97, 0.5, 0.3, 0.8)]
        parts = {}
        for i, own in enumerate(tasks):
            at = int(draws.integers(30, 300))
            low, high = betting_interval(own[:at], len(own))
            parts[str(i)] = Estimate(float(own[:at].mean()), (high - low) / 2 / 1.96, (low, high), at, 0)
        value = sum(0.25 * own.value for own in parts.values())
        found = estimate_composite(Composite(value, True, (), dict.fromkeys(parts, 0.25)), parts)
        assert found is not None
        held += found.ci95[0] <= sum(0.25 * own.mean() for own in tasks) <= found.ci95[1]
    assert held / RUNS >= 0.93, held


def test_allocation_by_hand() -> None:
    # Rates .5 / sqrt(4) = .25 and .5 / sqrt(1) = .5: twice as many of the cheap one.  4 n + 2 n = 60: n = 10.
    assert allocation([0.5, 0.5], [4, 1], [100, 100], 60) == [10, 20]
    assert allocation([0.5, 0.5], [4, 1], [100, 12], 60) == [12, 12]  # what one cannot take goes to the other
    assert allocation([0.0, 0.5], [1, 1], [100, 100], 50) == [2, 48]
    assert allocation([0.5], [1], [7], 1e9) == [7]
    budgets = [allocation([0.5, 0.2, 0.4], [30, 500, 80], [100, 2000, 900], budget) for budget in (1e4, 3e4, 1e5, 1e6)]
    for smaller, larger in itertools.pairwise(budgets):
        assert all(a <= b for a, b in zip(smaller, larger, strict=True))
    assert Interval(0.2, 0.5).half_width == pytest.approx(0.15)
