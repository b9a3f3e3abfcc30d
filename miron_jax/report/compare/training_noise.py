"""Training runs side by side: noise of each task over the last checkpoints, signal, and which step
overtakes another run.

Arrives: `Run`s with checkpoints.  Leaves: `TaskNoise`s.  It deliberately does not know how a score
is made.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from types import MappingProxyType

from miron_jax.metrics.choices import LOWER_IS_BETTER
from miron_jax.results.records import CompositeResult, RunResult
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
    # of a composite's error over examples: task -> its share of the variance, in the first run
    shares: Mapping[str, float]
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
    if max(map(len, steps)) < 2:
        return []
    noises = []
    for name, task in runs[0].tasks.items():
        if all(name in run.tasks for run in runs):
            metric = task.main_metric
            values = _values(steps, methodcaller("metric", name, metric))
            noises.append(_noise_of(name, metric, values, last))
    for suite, result in runs[0].result.suites.items():
        for name, composite in result.composites.items():
            values = _values(steps, methodcaller("composite", suite, name))
            metric = runs[0].result.metric_of(composite)
            shares = _shares(runs[0], composite)
            noises.append(_noise_of(f"{suite}: {name}", metric, values, last, shares))
    return [each for each in noises if any(noise.num_steps for noise in each.noise)]


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


def _noise_of(
    name: str,
    metric: str,
    values: Sequence[Mapping[int, Estimate | CompositeResult]],
    last: int,
    shares: Mapping[str, float] = MappingProxyType({}),
) -> TaskNoise:
    noises = []
    stderrs = []
    for of_run in values:
        noises.append(noise({step: each.value for step, each in of_run.items()}, last))
        stderrs.append(of_run[max(of_run)].stderr)
    overtakes = None
    if len(values) > 1 and len(values[1]) > 1:
        end = values[0][max(values[0])].value
        sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
        better = (step for step, each in values[1].items() if sign * (each.value - end) > 0)
        overtakes = next(better, None) if math.isfinite(end) else None
    return TaskNoise(
        name=name,
        metric=metric,
        noise=tuple(noises),
        stderr=tuple(stderrs),
        signal=signal([each.mean for each in noises]),
        shares=shares,
        overtakes=overtakes,
    )
