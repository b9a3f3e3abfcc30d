"""Means, standard errors and intervals, worked out by hand."""

import math

import numpy as np
import pytest

from miron_jax.statistics.estimate import Estimate, estimate, macro, wilson
from tests.support.tolerances import FLOAT64, INTERVALS_APART, printed


def test_proportion_by_hand():
    # 25 of 40: p = .625, sqrt(.625 * .375 / 40) = .0765466
    # Wilson:  center (.625 + .04802) / 1.09604 = .614047, half 1.96 * sqrt(.005859375 + .00060025) / 1.09604 = .143725
    result = estimate([1.0] * 25 + [0.0] * 15, proportion=True)
    assert result.value == 0.625
    assert result.stderr == pytest.approx(0.0765466, abs=printed(7))
    assert result.ci95 == pytest.approx((0.470322, 0.757772), abs=printed(6))
    assert (result.num_examples, result.num_undefined) == (40, 0)


def test_wilson_stays_within_bounds():
    assert wilson(0.0, 10)[0] == 0
    assert wilson(1.0, 10)[1] == 1
    assert wilson(0.0, 10)[1] == pytest.approx(1.96**2 / (10 + 1.96**2))  # the closed form at p = 0
    for n in (1, 2, 3, 7, 1000, 20321):
        for k in {0, 1, n // 2, n}:
            low, high = wilson(k / n, n)
            assert 0 <= low <= k / n <= high <= 1


def test_mean_by_hand():
    # 1 2 3 6: mean 3, squares 4 + 1 + 0 + 9 = 14, deviation sqrt(14 / 3), stderr sqrt(14 / 12) = 1.0801234
    result = estimate([1, 2, 3, 6], proportion=False)
    assert result.value == 3
    assert result.stderr == pytest.approx(1.0801234)
    assert result.ci95 == pytest.approx((3 - 1.96 * 1.0801234, 3 + 1.96 * 1.0801234))


def test_undefined_values_are_counted_not_zeroed_and_one_value_or_infinity_has_no_error():
    result = estimate([1.0, math.nan, 0.0, math.nan], proportion=True)
    assert (result.value, result.num_examples, result.num_undefined) == (0.5, 2, 2)
    nothing = estimate([math.nan], proportion=True)
    assert math.isnan(nothing.value)
    assert (nothing.num_examples, nothing.num_undefined) == (0, 1)
    assert math.isnan(estimate([], proportion=False).value)
    assert math.isnan(estimate([2.0], proportion=False).stderr)
    infinite = estimate([1.0, math.inf], proportion=False)
    assert infinite.value == math.inf
    assert math.isnan(infinite.stderr)


def test_sums_are_float64():
    values = np.full(1_000_000, 0.1, np.float32)
    assert estimate(values, proportion=False).value == pytest.approx(float(np.float32(0.1)), rel=FLOAT64)


def test_macro_mean_by_hand():
    groups = [Estimate(0.2, 0.3, (0, 1), 9, 1), Estimate(0.6, 0.4, (0, 1), 5, 0)]
    result = macro(groups)
    assert (result.value, result.num_examples, result.num_undefined) == (pytest.approx(0.4), 14, 1)
    assert result.stderr == pytest.approx(0.5 / 2)  # sqrt(.3² + .4²) / 2


@pytest.mark.parametrize(
    ("rights", "sizes", "ends"),
    [
        ((0, 0, 0, 0), (20,) * 4, wilson(0.0, 80)),  # equal groups at the edge: Wilson's interval of all examples
        ((20, 20), (20, 20), wilson(1.0, 40)),
        # None and all right: below, the first group cannot vary, so z stays 1.96, and the second's limit is
        # 1 - z² / (10 + z²).
        ((0, 10), (10, 10), (0.5 - 3.8416 / 13.8416 / 2, 0.5 + 3.8416 / 13.8416 / 2)),
    ],
)
def test_a_mean_of_proportions_at_the_edge_has_an_interval(
    rights: tuple[int, ...], sizes: tuple[int, ...], ends: tuple[float, float]
) -> None:
    groups = [
        estimate([1.0] * right + [0.0] * (size - right), proportion=True)
        for right, size in zip(rights, sizes, strict=True)
    ]
    result = macro(groups, are_proportions=True)
    assert result.stderr == 0.0
    assert result.ci95 == pytest.approx(ends), (rights, sizes)


def test_a_mean_of_many_proportions_away_from_the_edge_is_symmetric() -> None:
    groups = [estimate([1.0] * right + [0.0] * (1000 - right), proportion=True) for right in range(300, 701, 10)]
    plain, wilsons = macro(groups), macro(groups, are_proportions=True)
    assert wilsons.ci95 == pytest.approx(plain.ci95, abs=INTERVALS_APART)
