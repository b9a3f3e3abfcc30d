"""Numbers of examples -> task means with their uncertainty; composites with theirs.

Arrives: one value an example and metric; composites and their tasks' estimates.  Leaves: `Estimate`s, float64.
It deliberately does not know what a metric means.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miron_jax.definitions.records import Composite
from miron_jax.metrics.choices import PROPORTIONS, ExampleScore
from miron_jax.metrics.cloze import CLOZE_PROPORTIONS, NOT_AVERAGED

BOOTSTRAP = 1000  # resamples
_Z = 1.96  # standard errors to either side of a 95 % interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and how far to trust it.  NaN stands where a number is not defined."""

    value: float
    stderr: float
    ci95: tuple[float, float]
    num_examples: int  # examples the mean is over
    num_undefined: int  # examples left out of it: their value is NaN


def estimate(values: Sequence[float] | np.ndarray, proportion: bool) -> Estimate:
    """Mean of the values that are defined; the others are counted, so that nobody takes them for zeros."""
    every = np.asarray(values, np.float64)
    defined = every[~np.isnan(every)]
    n, num_undefined = len(defined), len(every) - len(defined)
    if n == 0:
        return Estimate(math.nan, math.nan, (math.nan, math.nan), 0, num_undefined)
    value = float(defined.mean())
    if proportion:
        return Estimate(value, math.sqrt(value * (1 - value) / n), wilson(value, n), n, num_undefined)
    stderr = float(defined.std(ddof=1) / math.sqrt(n)) if n > 1 and math.isfinite(value) else math.nan
    return Estimate(value, stderr, _symmetric(value, stderr), n, num_undefined)


def wilson(p: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)."""
    scale = 1 + _Z**2 / n
    center = (p + _Z**2 / (2 * n)) / scale
    half = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2)) / scale
    # The interval lies within [0, 1] and holds p, touching it at p = 0 and p = 1; rounding must not undo that.
    return min(max(center - half, 0.0), p), max(min(center + half, 1.0), p)


def estimates(examples: Sequence[ExampleScore]) -> dict[str, Estimate]:
    """Every metric over the examples that have it."""
    names = dict.fromkeys(name for example in examples for name in example.metrics)
    values = {name: [example.metrics[name] for example in examples if name in example.metrics] for name in names}
    return {name: estimate(own, _is_proportion(name, own)) for name, own in values.items() if name not in NOT_AVERAGED}


def _is_proportion(name: str, values: Sequence[float]) -> bool:
    """0 or 1 an example; of several programs drawn for one problem, a share of them may pass."""
    known = name in PROPORTIONS or name in CLOZE_PROPORTIONS
    return known and all(value in (0, 1) or math.isnan(value) for value in values)


@dataclass(frozen=True, slots=True)
class TaskEstimates:
    """A task's metrics; where its categories count apart, the macro means over them, and each one's own."""

    metrics: dict[str, Estimate]
    categories: dict[str, dict[str, Estimate]]  # empty: the task has none
    sizes: dict[str, int]  # scored examples of each category


def by_category(
    examples: Sequence[ExampleScore],
    categories: Sequence[str | None],
    rule: str,
    whole_set: Mapping[str, Estimate],
) -> TaskEstimates:
    """Every metric of a task by its rule: over all examples ("pooled", "reported"), or category by category and then their
    plain mean ("macro").  `whole_set`: numbers over all examples together, told beside the former."""
    if rule == "pooled":
        return TaskEstimates({**estimates(examples), **whole_set}, {}, {})
    members: dict[str, list[ExampleScore]] = {}
    for category, example in zip(categories, examples, strict=True):
        members.setdefault(category or "", []).append(example)
    found = {name: estimates(own) for name, own in members.items()}
    if rule == "reported":
        told = {name: own for name, own in found.items() if name}
        sizes = {name: sum(not is_unscored(example) for example in members[name]) for name in told}
        return TaskEstimates({**estimates(examples), **whole_set}, told, sizes)
    names = dict.fromkeys(name for own in found.values() for name in own)
    metrics = {name: macro([own[name] for own in found.values() if name in own]) for name in names}
    sizes = {name: sum(example.correct is not None for example in own) for name, own in members.items()}
    return TaskEstimates(metrics, found, sizes)


def macro(groups: Sequence[Estimate]) -> Estimate:
    """Mean of groups that count alike, their errors independent: sqrt(sum of stderr²) / groups."""
    with np.errstate(invalid="ignore"):  # infinite groups of both signs have no mean
        value = float(np.mean([group.value for group in groups])) if groups else math.nan
    stderr = math.hypot(*(group.stderr for group in groups)) / len(groups) if groups else math.nan
    counted = sum(group.num_examples for group in groups), sum(group.num_undefined for group in groups)
    return Estimate(value, stderr, _symmetric(value, stderr), *counted)


def whole_set_estimates(
    rule: Callable[[Sequence[Any], np.ndarray], Mapping[str, float]], answered: Sequence[Any], num_undefined: int
) -> dict[str, Estimate]:
    """Numbers over all examples together.  Their standard error is that of BOOTSTRAP resamples of the examples, drawn with
    seed 0; ci95 are the resamples' percentiles 2.5 and 97.5.  `rule` takes examples and how often each counts."""
    values = rule(answered, np.ones(len(answered)))
    if not answered:
        return {name: Estimate(math.nan, math.nan, (math.nan, math.nan), 0, num_undefined) for name in values}
    size = len(answered)
    draws = np.random.default_rng(0).multinomial(size, np.full(size, 1 / size), BOOTSTRAP)
    drawn = [rule(answered, weights.astype(np.float64)) for weights in draws]
    found = {}
    for name, value in values.items():
        own = np.asarray([numbers.get(name, math.nan) for numbers in drawn])
        low, high = np.nanpercentile(own, (2.5, 97.5)).tolist()
        interval = (min(low, value), max(high, value))
        found[name] = Estimate(value, float(np.nanstd(own, ddof=1)), interval, size, num_undefined)
    return found


def is_unscored(example: ExampleScore) -> bool:
    """Nothing of it counts: the model answered NaN, or the right answer is not published."""
    return example.correct is None and all(map(math.isnan, example.metrics.values()))


def estimate_composite(composite: Composite, stderrs: Mapping[str, float]) -> Estimate | None:
    """sqrt(sum of (weight * stderr)²), tasks taken as independent; None while the composite has no value.

    Two tasks over one file (CORE's two hellaswags) are not independent: the error is then somewhat too small.
    """
    if composite.value is None:
        return None
    stderr = math.hypot(*(weight * stderrs[name] for name, weight in composite.weights.items()))
    return Estimate(composite.value, stderr, _symmetric(composite.value, stderr), len(composite.weights), 0)


def _symmetric(value: float, stderr: float) -> tuple[float, float]:
    return value - _Z * stderr, value + _Z * stderr
