"""Paired differences: by hand, against slow twins, and how often every interval that the program prints holds the truth."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miron_jax.definitions.records import Composite
from miron_jax.evaluation.composites import composite_result
from miron_jax.statistics import paired
from miron_jax.statistics.cloze_groups import _median
from miron_jax.statistics.estimate import bonett_price, estimate, macro, ratio, whole_set_estimates, wilson
from miron_jax.statistics.human_gaps import newcombe
from miron_jax.statistics.noise import noise, signal
from miron_jax.statistics.paired import Difference, combined, difference, holm, mcnemar, mean, sign_flips
from miron_jax.statistics.robustness import cluster_stderr
from tests.support.tolerances import FLOAT64, RESAMPLED, ROUNDING, SIMULATED, printed


def test_right_and_wrong_by_hand() -> None:
    # 10 pairs: right in the first only 1, in the second only 4.  d = .3.
    # McNemar: 2 (C(5,0) + C(5,1)) / 2^5 = 12 / 32.  Bonett and Price: 2 and 5 of 12, center .25,
    # half 1.96 sqrt((7/12 - .25²) / 12) = .4083
    first = [1, 1, 1, 0, 0, 0, 0, 0, 0, 1]
    second = [1, 1, 0, 1, 1, 1, 1, 0, 0, 1]
    computed = difference(first, second)
    assert (computed.num_examples, computed.only_first, computed.only_second) == (10, 1, 4)
    assert computed.value == pytest.approx(0.3)
    assert computed.p_value == pytest.approx(12 / 32)
    assert computed.ci95 == pytest.approx((0.25 - 0.40834, 0.25 + 0.40834), abs=printed(4))
    assert computed.stderr == pytest.approx(math.sqrt((0.5 - 0.09) / 10))
    assert computed.detectable == pytest.approx(2.8016 / 1.96 * 0.40834, abs=printed(4))


def test_means_by_hand() -> None:
    # d = 1 2 3 6: mean 3, stderr 1.0801234 (test_aggregate), Student's t of 3 degrees 3.1824463; all 16 sign flips but two
    # have a smaller sum
    computed = difference([0.5, 0.5, 0.5, 0.5], [1.5, 2.5, 3.5, 6.5])
    assert (computed.value, computed.p_value) == (3.0, 2 / 16)
    assert computed.stderr == pytest.approx(1.0801234)
    assert computed.ci95 == pytest.approx((3 - 3.1824463 * 1.0801234, 3 + 3.1824463 * 1.0801234))


def test_what_cannot_be_said_is_nan_and_what_is_equal_is_zero() -> None:
    assert math.isnan(difference([math.nan], [1.0]).value)
    assert math.isnan(difference([], []).p_value)
    one = difference([0.25], [0.75])
    assert (one.value, one.p_value, one.num_examples) == (0.5, 1.0, 1)
    assert math.isnan(one.stderr)
    equal = difference([0.25, 0.5, 0.75], [0.25, 0.5, 0.75])
    assert (equal.value, equal.stderr, equal.p_value, equal.ci95) == (0.0, 0.0, 1.0, (0.0, 0.0))
    ties = difference([1, 0, 1], [1, 0, 1])
    assert (ties.value, ties.stderr, ties.p_value) == (0.0, 0.0, 1.0)
    assert ties.ci95[0] < 0 < ties.ci95[1]
    some = difference([1.0, math.nan, 0.0, math.inf], [1.0, 1.0, math.nan, 0.0])
    assert (some.num_examples, some.num_undefined) == (1, 3)


@settings(max_examples=20)
@given(st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=8))
def test_sign_flips_equal_enumeration(sums: list[float]) -> None:
    observed = abs(sum(sums))
    flips = np.abs(np.asarray([*itertools.product((1, -1), repeat=len(sums))]) @ np.asarray(sums))
    assert sign_flips(np.asarray(sums)) == pytest.approx(np.mean(flips >= observed))


@pytest.mark.parametrize(
    ("sums", "expected"),
    [
        ([0.1, 0.2, -0.3], 1.0),  # 5.6e-17 in floats: every flip reaches 0
        ([0.1] * 6 + [-0.2] * 3, 1.0),
        ([1e9, 0.1, -1e9, -0.1], 1.0),
        ([0.1, 0.2, 0.3], 0.25),  # two of eight flips reach 0.6
        ([0.3] * 5 + [-0.3] * 9, (2 * sum(math.comb(14, k) for k in range(6))) / 2**14),  # drawn: 14 that are not zero
    ],
)
def test_sign_flips_of_sums_that_round(sums: list[float], expected: float) -> None:
    exact = len(sums) <= 13
    assert sign_flips(np.asarray(sums)) == pytest.approx(expected, abs=0 if exact else RESAMPLED), sums


def test_drawn_sign_flips_of_sums_that_cancel() -> None:
    assert sign_flips(np.asarray([0.1, 0.2, -0.3] * 8)) == 1.0


def test_drawn_sign_flips_are_near_the_normal_p_value_do_not_change_and_are_never_zero() -> None:
    sums = np.random.default_rng(3).normal(0.1, 1, 400)
    normal = math.erfc(abs(sums.sum()) / math.sqrt(np.square(sums).sum()) / math.sqrt(2))
    assert sign_flips(sums) == pytest.approx(normal, abs=RESAMPLED)
    assert sign_flips(sums) == sign_flips(sums)
    # Of 400 equal sums none of the 10,000 drawn flips reaches the observed one, which counts among them.
    assert sign_flips(np.ones(400)) == 1 / 10_001


@settings(max_examples=25)
@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_equals_the_sum_of_binomials(a: int, b: int) -> None:
    n = a + b
    tail = sum(math.comb(n, k) for k in range(min(a, b) + 1)) / 2**n
    assert mcnemar(a, b) == pytest.approx(min(1.0, 2 * tail))


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.floats(-3, 3), st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(1, 9)), min_size=4)
)
def test_errors_equal_those_of_the_estimates(rows: list[tuple[float, str, str, int]]) -> None:
    """One cluster an example: the mean's; clusters: the cluster-robust one; strata: the macro mean's; sizes: the ratio's."""
    values = np.asarray([value for value, *_ in rows])
    strata, clusters = [row[1] for row in rows], [row[2] for row in rows]
    sizes = np.asarray([row[3] for row in rows], np.float64)
    none = np.zeros(len(rows)) + 0.125  # no value is 0 or 1
    d = values - none
    assert difference(none, values).stderr == pytest.approx(estimate(d, False).stderr, abs=FLOAT64)
    clustered = difference(none, values, clusters=clusters).stderr
    assert clustered == pytest.approx(cluster_stderr(d, clusters), abs=FLOAT64, nan_ok=True)
    groups = [estimate(d[[each == name for each in strata]], False) for name in sorted(set(strata))]
    by_stratum = difference(none, values, strata=strata)
    assert by_stratum.stderr == pytest.approx(macro(groups).stderr, abs=ROUNDING, nan_ok=True)
    assert by_stratum.value == pytest.approx(macro(groups).value, abs=FLOAT64)
    assert mean(d, strata) == pytest.approx(macro(groups).value, abs=FLOAT64)
    whole = ratio(d, sizes)
    of_sizes = difference(none, values, sizes=sizes)
    assert (of_sizes.value, of_sizes.stderr) == pytest.approx((whole.value, whole.stderr), abs=ROUNDING)


def test_holm_by_hand() -> None:
    # .01 * 4, .03 * 3 -> .09, .03 * 2 -> at least .09, .5
    assert holm([0.03, 0.01, 0.5, 0.03]) == pytest.approx([0.09, 0.04, 0.5, 0.09])
    with_nan = holm([0.03, 0.01, math.nan, 0.5, 0.03])  # NaN is no test of the family
    assert with_nan == pytest.approx([0.09, 0.04, math.nan, 0.5, 0.09], nan_ok=True)
    assert holm([]) == []


def test_composites_and_noise_by_hand() -> None:
    x = Difference(0.2, 0.06, (0.1, 0.26), 0.5, 9, 0, 0, 0, "")
    y = Difference(0.0, 0.08, (-0.24, 0.16), 0.5, 9, 0, 0, 0, "")
    computed = combined(0.1, [(0.5, x), (0.5, y)])
    low, high = 0.13, math.hypot(0.03, 0.08)
    assert computed.ci95 == pytest.approx((0.1 - low, 0.1 + high))
    assert computed.stderr == pytest.approx((low + high) / 2 / 1.96)
    # 0.1 is 0.1 / .13 of the way to the interval's end: z = 1.5077
    assert computed.p_value == pytest.approx(0.1316, abs=printed(4))
    # Five flips of 100, all one way: McNemar says .0625, and so, about, does a composite of this task alone.
    one_way = difference([0] * 100, [1] * 5 + [0] * 95)
    assert combined(0.05, [(1.0, one_way)]).p_value > 0.05
    assert combined(1.0, [(1.0, difference([0], [1]))]).p_value > 0.05
    assert noise({1: 1.0, 2: math.nan, 3: 3.0}, last=2).num_steps == 1
    assert signal([1.0, 3.0]) == 1.0
    assert math.isnan(signal([1.0]))


@pytest.mark.parametrize(
    ("values", "mean_and_deviation"),
    [
        ({0: 9.0, 1: 1.0, 2: 2.0, 3: 3.0}, (2.0, 0.0)),  # the last three rise along a line
        ({100: 0.45, 200: 0.5, 400: 0.6}, (1.55 / 3, 0.0)),  # so do these, by step and not by place
        # 1 3 2 about 2: slope .5, residuals -.5 1 -.5: sqrt(1.5 / 1)
        ({1: 1.0, 2: 3.0, 3: 2.0}, (2.0, math.sqrt(1.5))),
        ({1: 1.0, 2: 3.0, 3: math.nan}, (2.0, math.nan)),  # two do not deviate from a line
    ],
)
def test_the_trend_of_a_training_is_no_noise(values: dict[int, float], mean_and_deviation: tuple[float, float]) -> None:
    assert noise(values, last=3)[:2] == pytest.approx(mean_and_deviation, nan_ok=True), values


def test_noise_about_a_rising_line_is_that_of_a_flat_one() -> None:
    """Seeded draws of deviation .01 about a line: the mean of variances over 4,000 runs of 5 checkpoints is .0001."""
    draws = np.random.default_rng(0).normal(0.0, 0.01, (4000, 5))
    for slope in (0.0, 0.05):
        runs = (dict(enumerate(each + slope * np.arange(5))) for each in draws)
        assert np.mean([noise(run).deviation ** 2 for run in runs]) == pytest.approx(1e-4, rel=SIMULATED), slope


# How often an interval holds the truth.  Each case draws n examples and returns (low, high, truth).

Draws = np.random.Generator
Case = Callable[[Draws, int], tuple[float, float, float]]
LONG = [pytest.param(size, marks=pytest.mark.long) for size in (230, 1000)]


def _pairs(draws: Draws, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two models that are right about two times in three, and agree four times in five; the second is .04 better."""
    kind = draws.choice(4, n, p=(0.56, 0.24, 0.08, 0.12))  # both right, none, first only, second only
    return np.isin(kind, (0, 2)).astype(float), np.isin(kind, (0, 3)).astype(float)


def _bits(draws: Draws, shape: int | tuple[int, int]) -> np.ndarray:
    """Bits per byte of answers: positive, skewed; mean 1.2."""
    return draws.gamma(4.0, 0.3, shape)


def _ratio(draws: Draws, n: int) -> tuple[float, float, float]:
    sizes = draws.integers(50, 500, n).astype(float)
    return *ratio(sizes * _bits(draws, n), sizes).ci95, 1.2


def _macro(draws: Draws, n: int) -> tuple[float, float, float]:
    """Four categories of different sizes and difficulties."""
    shares, means = (0.1, 0.2, 0.3, 0.4), (0.3, 0.5, 0.6, 0.8)
    groups = [estimate(draws.random(int(n * share)) < p, True) for share, p in zip(shares, means, strict=True)]
    return *macro(groups, are_proportions=True).ci95, float(np.mean(means))


def _composite(draws: Draws, n: int) -> tuple[float, float, float]:
    """Ten tasks, the smallest of 32 examples, some near chance and some near 1, rescaled as in CORE."""
    sizes, means = [32, *[n] * 9], np.linspace(0.1, 0.9, 10)
    tasks = [estimate(draws.random(size) < p, True) for size, p in zip(sizes, means, strict=True)]
    weights = {str(i): 0.1 / 0.75 for i in range(10)}
    value = sum(0.1 * (task.value - 0.25) / 0.75 for task in tasks)
    composite = Composite(value, True, (), weights)
    computed = composite_result(composite, {str(i): each for i, each in enumerate(tasks)})
    assert computed.ci95 is not None
    return *computed.ci95, float(np.mean((means - 0.25) / 0.75))


def _paired_clusters(draws: Draws, n: int) -> tuple[float, float, float]:
    """Clusters of five examples that share a part of their difference."""
    shared = np.repeat(draws.normal(0.04, 0.1, n // 5), 5)
    clusters = [str(i) for i in np.repeat(np.arange(n // 5), 5)]
    first = _bits(draws, len(shared))
    return *difference(first, first + shared + draws.normal(0, 0.1, len(shared)), clusters=clusters).ci95, 0.04


def _over_all(draws: Draws, n: int) -> tuple[float, float, float]:
    """A number over all examples with a bootstrap: the ratio of two sums."""
    pairs = np.stack([draws.random(n) < 0.3, np.ones(n)])

    def rule(rows: Sequence[int], weights: np.ndarray) -> dict[str, float]:
        return {"f": float((pairs[0] @ weights) / (pairs[1] @ weights))}

    return *whole_set_estimates(rule, range(n), 0)["f"].ci95, 0.3


def _wilson(p: float) -> Case:
    return lambda draws, n: (*wilson(draws.binomial(n, p) / n, n), p)


def _newcombe(draws: Draws, n: int) -> tuple[float, float, float]:
    model, human = draws.binomial(n, 0.6) / n, draws.binomial(200, 0.9) / 200
    return *newcombe(wilson(model, n), model, wilson(human, 200), human), -0.3


def _rarely(draws: Draws, n: int) -> tuple[float, float, float]:
    """Models that are nearly the same: 2 and 3 discordant pairs of 100."""
    kind = draws.choice(3, n, p=(0.95, 0.02, 0.03))
    return *bonett_price(int((kind == 1).sum()), int((kind == 2).sum()), n), 0.01


def _two_categories(draws: Draws, n: int) -> tuple[float, float, float]:
    strata = ["a"] * (n // 5) + ["b"] * (n - n // 5)
    return *difference(*_pairs(draws, n), strata=strata).ci95, 0.04


def _five_tasks(draws: Draws, n: int) -> tuple[float, float, float]:
    tasks = [difference(*_pairs(draws, n)) for _ in range(5)]
    return *combined(sum(each.value for each in tasks) / 5, [(0.2, each) for each in tasks]).ci95, 0.04


CASES: dict[str, tuple[Case, int]] = {  # and the number of simulations
    "Wilson, .1": (_wilson(0.1), 2000),
    "Wilson, .5": (_wilson(0.5), 2000),
    "Wilson, .9": (_wilson(0.9), 2000),
    "mean": (lambda draws, n: (*estimate(_bits(draws, n), False).ci95, 1.2), 2000),
    "ratio": (_ratio, 2000),
    "macro mean": (_macro, 2000),
    "composite": (_composite, 2000),
    "human gap": (_newcombe, 2000),
    "paired, right or wrong": (lambda draws, n: (*difference(*_pairs(draws, n)).ci95, 0.04), 2000),
    "paired, rarely different": (_rarely, 2000),
    "paired, categories": (_two_categories, 2000),
    "paired, clusters": (_paired_clusters, 2000),
    "paired, composite": (_five_tasks, 500),
    "median of drift": (lambda draws, n: (*_median(draws.normal(3.0, 2.0, n).tolist()).ci95, 3.0), 150),
    "over all examples": (_over_all, 100),
}


@pytest.mark.parametrize("size", [100, *LONG])
@pytest.mark.parametrize("name", CASES)
def test_intervals_hold_the_truth(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 93 of 100 of the intervals said to be of 95 %, less two deviations of the simulation itself."""
    monkeypatch.setattr(paired, "sign_flips", lambda *_: math.nan)  # 10,000 draws, which no interval needs
    case, times = CASES[name]
    draws, held = np.random.default_rng(size), 0
    for _ in range(times):
        low, high, truth = case(draws, size)
        held += low <= truth <= high
    spread = math.sqrt(0.93 * 0.07 / times) if times < 2000 else 0.0
    assert held / times >= 0.93 - 2 * spread, held / times
