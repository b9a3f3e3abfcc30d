"""Training runs side by side: noise of each task over the last checkpoints, signal, and which step
overtakes another run.

Arrives: `Run`s with checkpoints.  Leaves: `TaskNoise`s.  It deliberately does not know how a score
is made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from miron_jax.metrics.choices import LOWER_IS_BETTER
from miron_jax.results.records import UNKNOWN, CompositeResult, SuiteResult
from miron_jax.results.run_folder import Run
from miron_jax.statistics.estimate import Estimate
from miron_jax.statistics.noise import Noise, noise, signal


@dataclass(frozen=True, slots=True)
class TaskNoise:
    """A task's main metric, or a composite, over the steps of one or more training runs."""

    name: str
    metric: str
    noise: tuple[Noise, ...]  # of each run
    stderr: tuple[float, ...]  # of each run's last step, over examples: another question than noise
    signal: float  # NaN for one run
    shares: Mapping[
        str, float
    ]  # of a composite's error over examples: task -> its share of the variance, in the first run
    # the second run's first step that is better than the first run's last one; None: none is
    overtakes: int | None

    @property
    def signal_to_noise(self) -> float:
        known = [each.relative for each in self.noise if math.isfinite(each.relative)]
        relative = max(known, default=math.nan)
        return self.signal / relative if relative else math.nan


def training_noise(runs: Sequence[Run], last: int) -> list[TaskNoise]:
    """For tasks and composites that all runs have; none where no run has several checkpoints."""
    steps = [run.steps() or {run.result.step or 0: run} for run in runs]
    if not any(len(of_run) > 1 for of_run in steps):
        return []
    noises = []
    for name, task in runs[0].tasks.items():
        if all(name in run.tasks for run in runs):
            metric = task.main_metric
            values = [
                {step: _of_task(run, name, metric) for step, run in of_run.items()}
                for of_run in steps
            ]
            noises.append(_noise_of(name, metric, values, last))
    for suite, result in runs[0].result.suites.items():
        for name, composite in result.composites.items():
            values = [
                {step: _number(_composite(run, suite, name)) for step, run in of_run.items()}
                for of_run in steps
            ]
            metric = _metric_of(runs[0], composite)
            shares = _shares(runs[0], composite)
            noises.append(_noise_of(f"{suite}: {name}", metric, values, last, shares))
    return [each for each in noises if any(noise.num_steps for noise in each.noise)]


def _metric_of(run: Run, composite: CompositeResult) -> str:
    """The metric that a composite averages, its tasks' main one if it names none."""
    mains = [run.tasks[task].main_metric for task in composite.weights if task in run.tasks]
    return composite.metric or (mains[0] if mains else "composite")


def _shares(run: Run, composite: CompositeResult) -> dict[str, float]:
    """(weight * stderr)² of each task's main metric, by their sum; {} if one is unknown."""
    squares = {}
    for name, weight in composite.weights.items():
        if name in run.tasks:
            task = run.tasks[name]
            squares[name] = (weight * task.metric(composite.metric or task.main_metric).stderr) ** 2
    total = sum(squares.values())
    return (
        {name: square / total for name, square in squares.items()}
        if total and math.isfinite(total)
        else {}
    )


def _of_task(run: Run, name: str, metric: str) -> tuple[float, float]:
    return _number(run.tasks[name].metric(metric) if name in run.tasks else UNKNOWN)


def _composite(run: Run, suite: str, name: str) -> CompositeResult:
    return run.result.suites.get(suite, SuiteResult({})).composites.get(name, CompositeResult())


def _number(estimate: Estimate | CompositeResult) -> tuple[float, float]:
    """Value and standard error."""
    return estimate.value, estimate.stderr


def _noise_of(
    name: str,
    metric: str,
    values: Sequence[dict[int, tuple[float, float]]],
    last: int,
    shares: Mapping[str, float] = MappingProxyType({}),
) -> TaskNoise:
    noises = [
        noise({step: value for step, (value, _) in of_run.items()}, last) for of_run in values
    ]
    ends = [list(of_run.values())[-1] for of_run in values]
    overtakes = None
    if len(values) > 1 and len(values[1]) > 1 and math.isfinite(ends[0][0]):
        sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
        better = (step for step, (value, _) in values[1].items() if sign * (value - ends[0][0]) > 0)
        overtakes = next(better, None)
    means = [of_run.mean for of_run in noises]
    return TaskNoise(
        name,
        metric,
        tuple(noises),
        tuple(stderr for _, stderr in ends),
        signal(means),
        shares,
        overtakes,
    )
