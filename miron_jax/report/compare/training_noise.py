"""Training runs side by side: noise of each task over the last checkpoints, signal, which step
overtakes another run, and whether small runs decide as larger ones do.

Arrives: `Run`s with checkpoints.  Leaves: `TaskNoise`s, `Decisions`.  It deliberately does not
know how a score is made.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from types import MappingProxyType
from typing import NamedTuple

from miron_jax.metrics.properties import LOWER_IS_BETTER
from miron_jax.results.records import CompositeResult, RunResult, TaskResult
from miron_jax.results.run_folder import Run
from miron_jax.results.same_rules import other_rule
from miron_jax.statistics.estimate import Estimate
from miron_jax.statistics.noise import (
    Noise,
    decision_accuracy,
    monotonicity,
    noise,
    signal,
    signal_to_noise,
)


@dataclass(frozen=True, slots=True)
class TaskNoise:
    """A task's main metric, or a composite, over the steps of one or more training runs."""

    name: str
    metric: str
    noise: tuple[Noise, ...]  # of each run
    stderr: tuple[float, ...]  # of each run's last step, over examples: another question than noise
    signal: float  # NaN for one run
    # of a composite's error over examples: task -> its share of the variance, in the first run
    shares: Mapping[str, float]
    # the second run's first step that is better than the first run's last one; None: none is
    overtakes: int | None
    monotonicity: tuple[float, ...]  # of each run's curve; 1: it only gets better
    # of each run, the step from which on the whole interval is better than chance; None: it never
    # is, or chance is not known
    above_chance: tuple[int | None, ...]

    @property
    def signal_to_noise(self) -> float:
        return signal_to_noise(self.noise)


class _Number(NamedTuple):
    """A task's main metric, or a composite, that all runs have."""

    name: str
    metric: str
    values: list[dict[int, Estimate | CompositeResult]]  # of each run, by step
    tasks: Collection[str]  # that it is made of
    chance: float | None = None
    shares: Mapping[str, float] = MappingProxyType({})  # see `TaskNoise`


def training_noise(runs: Sequence[Run], last: int) -> list[TaskNoise]:
    """For tasks and composites that all runs have; none where no run has several checkpoints."""
    if all(len(run.steps()) < 2 for run in runs):
        return []
    noises = [_noise_of(number, last) for number in _numbers(runs)]
    return [each for each in noises if any(noise.num_steps for noise in each.noise)]


def _numbers(runs: Sequence[Run]) -> Iterator[_Number]:
    steps = [run.steps() or {run.result.step or 0: run} for run in runs]
    for name, task in runs[0].tasks.items():
        if all(name in run.tasks for run in runs):
            metric = task.main_metric
            values = _values(steps, methodcaller("metric", name, metric))
            yield _Number(name, metric, values, (name,), task.chance(metric))
    for suite, result in runs[0].result.suites.items():
        for name, composite in result.composites.items():
            values = _values(steps, methodcaller("composite", suite, name))
            metric = runs[0].result.metric_of(composite)
            shares = _shares(runs[0], composite)
            yield _Number(f"{suite}: {name}", metric, values, composite.weights, shares=shares)


def _values(
    steps: Sequence[Mapping[int, Run]], number: Callable[[RunResult], Estimate | CompositeResult]
) -> list[dict[int, Estimate | CompositeResult]]:
    """A number at each step of each run."""
    return [{step: number(run.result) for step, run in of_run.items()} for of_run in steps]


def _shares(run: Run, composite: CompositeResult) -> dict[str, float]:
    """(weight * stderr)² of each task's main metric, by their sum; {} if one is unknown."""
    squares = {}
    for name, weight in composite.weights.items():
        if name in run.tasks:
            task = run.tasks[name]
            squares[name] = (weight * task.metric(composite.metric or task.main_metric).stderr) ** 2
    total = sum(squares.values())
    if not total or not math.isfinite(total):
        return {}
    return {name: square / total for name, square in squares.items()}


def _noise_of(number: _Number, last: int) -> TaskNoise:
    sign = -1.0 if number.metric in LOWER_IS_BETTER else 1.0
    noises = []
    stderrs = []
    curves = []
    for of_run in number.values:
        noises.append(noise({step: each.value for step, each in of_run.items()}, last))
        stderrs.append(of_run[max(of_run)].stderr)
        curves.append(monotonicity({step: sign * each.value for step, each in of_run.items()}))
    overtakes = None
    if len(number.values) > 1 and len(number.values[1]) > 1:
        first, second, *_ = number.values
        end = first[max(first)].value
        better = (step for step, each in second.items() if sign * (each.value - end) > 0)
        overtakes = next(better, None) if math.isfinite(end) else None
    return TaskNoise(
        name=number.name,
        metric=number.metric,
        noise=tuple(noises),
        stderr=tuple(stderrs),
        signal=signal([each.mean for each in noises]),
        shares=number.shares,
        overtakes=overtakes,
        monotonicity=tuple(curves),
        above_chance=tuple(_above_chance(of_run, number.chance) for of_run in number.values),
    )


def _above_chance(
    of_run: Mapping[int, Estimate | CompositeResult], chance: float | None
) -> int | None:
    first = None
    for step, each in of_run.items():
        low = each.ci95[0] if each.ci95 is not None else math.nan
        if chance is None or not low > chance:
            first = None
        elif first is None:
            first = step
    return first


def is_alike(first: TaskResult, name: str, runs: Sequence[Run]) -> bool:
    for run in runs:
        task = run.tasks.get(name)
        if task is None or task.limit != first.limit or task.sampled != first.sampled:
            return False
        if task.n + task.skipped != first.n + first.skipped:
            return False
        if other_rule(first, task.data.git_blob_sha1, task.profile):
            return False
    return True


class Decisions(NamedTuple):
    """Whether small runs order recipes as larger ones of the same recipes do."""

    name: str  # a task or composite that all runs have
    metric: str
    accuracy: float
    num_pairs: int


def decisions(small: Sequence[Run], large: Sequence[Run], last: int) -> list[Decisions]:
    """Of means over each run's last checkpoints.  `large[i]` is of the recipe of `small[i]`.  What
    some runs have with other data, rules or limits is left out."""
    runs = [*small, *large]
    alike = {name for name, task in runs[0].tasks.items() if is_alike(task, name, runs)}
    rows = []
    for number in _numbers(runs):
        if not alike.issuperset(number.tasks):
            continue
        means = []
        for of_run in number.values:
            means.append(noise({step: each.value for step, each in of_run.items()}, last).mean)
        decided = decision_accuracy(means[: len(small)], means[len(small) :])
        rows.append(Decisions(number.name, number.metric, *decided))
    return [row for row in rows if row.num_pairs]
