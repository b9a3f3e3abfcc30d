"""Means of examples and of categories, with their standard errors and intervals.

Arrives: one value per example and metric.  Leaves: `Estimate`s, float64.  It deliberately
does not know what a metric means.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np

from miron_jax.metrics.bias import SIGNS
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.cloze import CLOZE_PROPORTIONS, NOT_AVERAGED
from miron_jax.metrics.properties import PROPORTIONS

BOOTSTRAP = 1000  # resamples
_Z = 1.96  # standard errors to either side of a 95 % interval
_TURNS = 20  # of limits and z, far more than they need to settle


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its standard error and 95 % interval; undefined numbers are NaN."""

    value: float
    stderr: float
    ci95: tuple[float, float]
    num_examples: int  # examples with a defined value
    num_undefined: int  # examples whose value is NaN, left out of the mean


def estimate(values: Sequence[float] | np.ndarray, proportion: bool) -> Estimate:
    """Mean of the defined values; NaNs are counted apart, never taken as 0."""
    defined = np.asarray(values, np.float64)
    defined = defined[~np.isnan(defined)]
    n = len(defined)
    num_undefined = len(values) - len(defined)
    if n == 0:
        return _undefined(num_undefined)
    value = float(defined.mean())
    if proportion:
        return Estimate(
            value, math.sqrt(value * (1 - value) / n), wilson(value, n), n, num_undefined
        )
    stderr = math.nan
    if n > 1 and math.isfinite(value):
        stderr = float(defined.std(ddof=1) / math.sqrt(n))
    return Estimate(value, stderr, _symmetric(value, stderr), n, num_undefined)


def _undefined(num_undefined: int) -> Estimate:
    return Estimate(math.nan, math.nan, (math.nan, math.nan), 0, num_undefined)


def wilson(p: float, n: int, z: float = _Z) -> tuple[float, float]:
    """Wilson's interval of a proportion: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)."""
    scale = 1 + z**2 / n
    center = (p + z**2 / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / scale
    # The interval lies within [0, 1] and holds p, touching it at p = 0 and p = 1; rounding must not
    # undo that.
    return min(max(center - half, 0.0), p), max(min(center + half, 1.0), p)


def bonett_price(only_first: int, only_second: int, n: int, z: float = _Z) -> tuple[float, float]:
    """Interval of a difference of paired proportions: Wald's with one discordant pair of each
    kind added."""
    a = only_first + 1
    b = only_second + 1
    center = (b - a) / (n + 2)
    half = z * math.sqrt(variance_of_signs(a, b, n + 2) / (n + 2))
    return max(-1.0, center - half), min(1.0, center + half)


def variance_of_signs(only_first: int, only_second: int, n: int) -> float:
    """Of one pair's difference, right or wrong: 1, 0 or -1."""
    return (only_first + only_second) / n - ((only_second - only_first) / n) ** 2


def z_of(confidence: float) -> float:
    """Standard errors to either side of a normal interval; of 95 % the 1.96 of all results."""
    return _Z if confidence == 0.95 else NormalDist().inv_cdf((1 + confidence) / 2)


def interval_at(estimate: Estimate, confidence: float) -> tuple[float, float]:
    """The interval of another confidence than 95 %.

    Wilson's where the one of 95 % is Wilson's; else each end is z / 1.96 times as far from the
    value, which is exact for normal intervals and an approximation for resampled ones.
    """
    value = estimate.value
    n = estimate.num_examples
    z = z_of(confidence)
    if n and 0 <= value <= 1 and all(map(math.isclose, wilson(value, n), estimate.ci95)):
        return wilson(value, n, z)
    low, high = estimate.ci95
    return value + (low - value) * z / _Z, value + (high - value) * z / _Z


def estimates(examples: Sequence[ExampleScore]) -> dict[str, Estimate]:
    """Estimates of every metric, each over the examples that have it."""
    columns = _columns(examples)
    means = dict[str, Estimate]()
    for name, values in columns:
        means[name] = estimate(values, is_proportion(name, values))
        if name in SIGNS:
            means[name] = _of_signs(means[name], values)
    return means


def _of_signs(mean: Estimate, values: Sequence[float]) -> Estimate:
    """The mean of 1, 0 and -1 with the interval of a difference of paired proportions."""
    if not mean.num_examples:
        return mean
    interval = bonett_price(values.count(-1), values.count(1), mean.num_examples)
    return replace(mean, ci95=interval)


def _columns(examples: Iterable[ExampleScore]) -> Iterable[tuple[str, list[float]]]:
    """Metrics that are averaged, each with its values over the examples that have it."""
    columns = defaultdict[str, list[float]](list)
    for example in examples:
        for name, value in example.metrics.items():
            if name not in NOT_AVERAGED:
                columns[name].append(value)
    return columns.items()


def is_proportion(name: str, values: Sequence[float] | np.ndarray) -> bool:
    """Whether every example has 0 or 1: of several programs of a problem, a share may pass."""
    known = name in PROPORTIONS or name in CLOZE_PROPORTIONS
    return known and all(value in (0, 1) or math.isnan(value) for value in values)


def macro_estimates(categories: Mapping[str, Sequence[ExampleScore]]) -> dict[str, Estimate]:
    """The plain mean of the categories' estimates of each metric, over the categories that have
    it."""
    means = [*map(estimates, categories.values())]
    macros = {}
    for name, values in _columns(chain(*categories.values())):
        of_categories = [metrics[name] for metrics in means if name in metrics]
        macros[name] = macro(of_categories, is_proportion(name, values))
    return macros


@dataclass(frozen=True, slots=True)
class TaskEstimates:
    """A task's metrics and, if its profile reports categories, those of each category."""

    metrics: dict[str, Estimate]
    categories: dict[str, dict[str, Estimate]]  # empty: not reported
    sizes: dict[str, int]  # scored examples of each category


def by_category(
    examples: Sequence[ExampleScore],
    categories: Sequence[str | None],
    rule: str,
    whole_set: Mapping[str, Estimate],
) -> TaskEstimates:
    """Every metric of a task by its rule of categories: over all examples ("pooled", "reported"),
    or the plain mean of the categories ("macro").  `whole_set`: numbers over all examples, which
    join the metrics unless the rule is "macro"."""
    if rule == "pooled":
        return TaskEstimates({**estimates(examples), **whole_set}, {}, {})
    members = defaultdict[str, list[ExampleScore]](list)
    for category, example in zip(categories, examples, strict=True):
        members[category or ""].append(example)
    means = {category: estimates(scores) for category, scores in members.items()}
    sizes = dict[str, int]()
    if rule == "reported":
        means.pop("", None)
        for category in means:
            sizes[category] = sum(not is_unscored(example) for example in members[category])
        return TaskEstimates({**estimates(examples), **whole_set}, means, sizes)
    for category, scores in members.items():
        sizes[category] = sum(example.correct is not None for example in scores)
    return TaskEstimates(macro_estimates(members), means, sizes)


def ratio(numerators: np.ndarray, denominators: np.ndarray) -> Estimate:
    """sum of numerators / sum of denominators, float64 [n] each; pairs with a NaN are left out.

    Standard error by linearization (Cochran, Sampling Techniques, section 6.4): sqrt(n / (n - 1) *
    sum (a - value * b)²) / sum of b.
    """
    defined = ~np.isnan(numerators) & ~np.isnan(denominators)
    a = numerators[defined]
    b = denominators[defined]
    n = int(defined.sum())
    num_undefined = len(numerators) - n
    if not b.sum() > 0:
        return _undefined(num_undefined)
    value = float(a.sum() / b.sum())
    stderr = math.nan
    if n > 1 and math.isfinite(value):
        squares = float(np.square(a - value * b).sum())
        stderr = math.sqrt(n / (n - 1) * squares) / float(b.sum())
    return Estimate(value, stderr, _symmetric(value, stderr), n, num_undefined)


def macro(groups: Sequence[Estimate], are_proportions: bool = False) -> Estimate:
    """Unweighted mean of independent groups; its standard error is sqrt(sum of stderr²) / groups.

    The interval of proportions is the stratified Wilson interval: 1.96 standard errors are 0 where
    each group's share is 0 or 1, as if nothing were unknown.
    """
    if not groups:
        return _undefined(0)
    with np.errstate(invalid="ignore"):  # groups with infinities of both signs have no mean
        value = float(np.mean([group.value for group in groups]))
    stderr = math.hypot(*(group.stderr for group in groups)) / len(groups)
    interval = _symmetric(value, stderr)
    if are_proportions and not math.isnan(value):
        low = _stratified_wilson(groups, 0)
        high = _stratified_wilson(groups, 1)
        interval = (min(low, value), max(high, value))
    num_examples = sum(group.num_examples for group in groups)
    num_undefined = sum(group.num_undefined for group in groups)
    return Estimate(value, stderr, interval, num_examples, num_undefined)


def _stratified_wilson(groups: Sequence[Estimate], side: int) -> float:
    """The lower (0) or upper (1) end for the mean of proportions: the mean of the groups' Wilson
    limits at a smaller z.

    Yan and Su 2010 (Statistics in Biopharmaceutical Research 2, 329-335): z = 1.96 sqrt(sum of V) /
    sum of sqrt(V), with V = limit (1 - limit) / n of each group; limits and z are computed in turn.
    Equal groups, all at 0, have Wilson's interval of all their examples.
    """
    z = _Z / math.sqrt(len(groups))
    for _ in range(_TURNS):
        limits = [wilson(group.value, group.num_examples, z)[side] for group in groups]
        pairs = zip(limits, groups, strict=True)
        variances = [limit * (1 - limit) / group.num_examples for limit, group in pairs]
        if not any(variances):  # every limit is 0 or 1
            break
        z = _Z * math.sqrt(sum(variances)) / sum(map(math.sqrt, variances))
    return float(np.mean(limits))


def whole_set_estimates(
    rule: Callable[[Sequence[Any], np.ndarray], Mapping[str, float]],
    answered: Sequence[Any],
    num_undefined: int,
) -> dict[str, Estimate]:
    """Numbers over all examples, by `rule`: (examples, weights) -> numbers.  Standard error and
    ci95 (percentiles 2.5 and 97.5) come from BOOTSTRAP resamples of the examples with seed 0."""
    values = rule(answered, np.ones(len(answered)))
    if not answered:
        return dict.fromkeys(values, _undefined(num_undefined))
    size = len(answered)
    if size == 1:  # resamples of one example are all equal
        nan = math.nan
        return {
            name: Estimate(value, nan, (nan, nan), 1, num_undefined)
            for name, value in values.items()
        }
    counts = np.random.default_rng(0).multinomial(size, np.full(size, 1 / size), BOOTSTRAP)
    resampled = [rule(answered, weights.astype(np.float64)) for weights in counts]
    whole_set = {}
    for name, value in values.items():
        replicates = np.asarray([numbers.get(name, math.nan) for numbers in resampled])
        low, high = np.nanpercentile(replicates, (2.5, 97.5)).tolist()
        interval = (min(low, value), max(high, value))
        whole_set[name] = Estimate(
            value, float(np.nanstd(replicates, ddof=1)), interval, size, num_undefined
        )
    return whole_set


def is_unscored(example: ExampleScore) -> bool:
    """Whether an example has no score: the model answered NaN, or the right answer is not
    published."""
    return example.correct is None and all(map(math.isnan, example.metrics.values()))


class HasInterval(Protocol):
    @property
    def value(self) -> float: ...
    @property
    def ci95(self) -> tuple[float, float]: ...


def ends_of_sum(parts: Sequence[tuple[float, HasInterval]]) -> tuple[float, float]:
    """How far the interval of a weighted sum reaches below and above it, by Zou and Donner:
    sqrt(sum of (weight * (value - end))²)."""
    below = list[float]()
    above = list[float]()
    for weight, part in parts:
        low, high = sorted(weight * (end - part.value) for end in part.ci95)
        below.append(low)
        above.append(high)
    return math.hypot(*below), math.hypot(*above)


def _symmetric(value: float, stderr: float) -> tuple[float, float]:
    return value - _Z * stderr, value + _Z * stderr


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation; NaN if either is constant or has a NaN."""
    # scipy.stats has it too, and takes half a second and 60 MB to import
    is_constant = len(set(first)) < 2 or len(set(second)) < 2
    if is_constant or any(map(math.isnan, [*first, *second])):
        return math.nan
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks from 1, float64 [n]; equal values have the mean of their ranks: [7, 5, 5] -> [3, 1.5,
    1.5]."""
    _, idx, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[idx]
