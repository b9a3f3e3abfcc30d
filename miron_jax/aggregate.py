"""Numbers of examples -> task means with their uncertainty; composites with theirs.

Arrives: one value an example and metric; composites and their tasks' estimates.  Leaves: `Estimate`s, float64; an
`Outcome` holds all that a run has scored.  It deliberately does not know what a metric means.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.forward import Speed
from miron_jax.metrics.choices import PROPORTIONS, ExampleScore
from miron_jax.prompts import Prompt
from miron_jax.scores import Score, SelfCheck, Totals
from miron_jax.task import Composite, DataState, Example, Suite, Task
from miron_jax.token_requests import Bos

_Z = 1.96  # standard errors to either side of a 95 % interval


class Source(NamedTuple):
    """A task with its data at hand."""

    task: Task
    examples: list[Example]
    data: DataState


class Inputs(NamedTuple):
    """What a run scores, found and checked."""

    sources: list[Source]
    missing: dict[str, Path]  # tasks of a suite whose data file is absent, and where it was looked for
    suites: list[Suite]  # those that the tasks come from


@dataclass(slots=True)
class TaskScores:
    """One task's examples, in the suite's own order."""

    source: Source
    prompts: list[Prompt] = field(default_factory=list)  # without their worked examples
    options: list[list[Score]] = field(default_factory=list)  # one an example, one an option
    examples: list[ExampleScore] = field(default_factory=list)
    truncated: int = 0  # examples with an option that lost tokens to the length limit
    inexact_prefix: int = 0  # examples whose context is no token prefix; scored from the longest common one
    beyond_trained: int = 0  # examples with an option longer than the length the model was trained at


class Outcome(NamedTuple):
    """All that a run has scored, and what it took."""

    tasks: list[TaskScores]
    inputs: Inputs
    length_limit: int | None  # tokens a request may have, BOS included; None: no limit
    bos: Bos
    totals: Totals
    speed: Speed
    check: SelfCheck
    load_seconds: float  # model and tokenizer


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


def estimates(task: TaskScores) -> dict[str, Estimate]:
    """Every metric of a task."""
    names = dict.fromkeys(name for example in task.examples for name in example.metrics)
    return {name: estimate([example.metrics[name] for example in task.examples], name in PROPORTIONS) for name in names}


def skipped(task: TaskScores) -> int:
    """Examples that have no accuracy: a model that answers NaN."""
    return sum(example.correct is None for example in task.examples)


def suite_composites(suite: Suite, outcome: Outcome) -> dict[str, tuple[Composite, Estimate | None]]:
    """A suite's composites.  A task with skipped examples or changed data counts as missing: no name without the data."""
    accuracy: dict[str, float | None] = {}
    stderr: dict[str, float] = {}
    for task in outcome.tasks:
        found = estimates(task)["accuracy"]
        sound = not skipped(task) and task.source.data.state == "as published"
        accuracy[task.source.task.name] = found.value if sound else None
        stderr[task.source.task.name] = found.stderr
    return {
        name: (composite, estimate_composite(composite, stderr))
        for name, composite in suite.composites(accuracy).items()
    }


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
