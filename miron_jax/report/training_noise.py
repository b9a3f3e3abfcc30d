"""Training runs side by side: noise of each task over the last checkpoints, signal, and which step overtakes another run.

Arrives: `Run`s with checkpoints.  Leaves: `TaskNoise`s.  It deliberately does not know how a score is made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from miron_jax.metrics.choices import LOWER_IS_BETTER
from miron_jax.report.run_folder import Run, main_of
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
    overtakes: int | None  # the second run's first step that is better than the first run's last one; None: none is

    @property
    def signal_to_noise(self) -> float:
        known = [own.relative for own in self.noise if math.isfinite(own.relative)]
        relative = max(known, default=math.nan)
        return self.signal / relative if relative else math.nan


def training_noise(runs: Sequence[Run], last: int) -> list[TaskNoise]:
    """For tasks and composites that all runs have; none where no run has several checkpoints."""
    steps = [run.steps() or {run.step or 0: run} for run in runs]
    if not any(len(own) > 1 for own in steps):
        return []
    found = []
    for task in [name for name in runs[0].tasks if all(name in run.tasks for run in runs)]:
        metric = main_of(runs[0].tasks[task])
        values = [
            {step: _number(run.tasks.get(task, {}).get("metrics", {}).get(metric)) for step, run in own.items()}
            for own in steps
        ]
        found.append(_noise_of(task, metric, values, last))
    for suite, entry in runs[0].results["suites"].items():
        for name in entry["composites"]:
            values = [{step: _number(_composite(run, suite, name)) for step, run in own.items()} for own in steps]
            metric, shares = _metric_of(runs[0], suite, name), _shares(runs[0], suite, name)
            found.append(_noise_of(f"{suite}: {name}", metric, values, last, shares))
    return [own for own in found if any(noise.num_steps for noise in own.noise)]


def _metric_of(run: Run, suite: str, name: str) -> str:
    """The metric that a composite averages, its tasks' main one if it names none."""
    entry = _composite(run, suite, name)
    own = entry if isinstance(entry, dict) else {}
    tasks = [run.tasks[task] for task in own.get("weights", ()) if task in run.tasks]
    named = own.get("metric") or next((known for known in sorted(LOWER_IS_BETTER) if known in name.split()), None)
    return named or (main_of(tasks[0]) if tasks else "composite")


def _shares(run: Run, suite: str, name: str) -> dict[str, float]:
    """(weight * stderr)² of each task's main metric, by their sum; {} if one is unknown."""
    entry = _composite(run, suite, name)
    own = entry if isinstance(entry, dict) else {}
    metrics = {
        task: own.get("metric") or main_of(run.tasks[task]) for task in own.get("weights", ()) if task in run.tasks
    }
    errors = {task: _number(run.tasks[task]["metrics"].get(metric))[1] for task, metric in metrics.items()}
    squares = {task: (own["weights"][task] * error) ** 2 for task, error in errors.items()}
    total = sum(squares.values())
    return {task: square / total for task, square in squares.items()} if total and math.isfinite(total) else {}


def _composite(run: Run, suite: str, name: str) -> object:
    return run.results["suites"].get(suite, {}).get("composites", {}).get(name)


def _number(entry: object) -> tuple[float, float]:
    """Value and standard error of an entry of results.json; NaN for what is null or missing."""
    own = entry if isinstance(entry, dict) else {}
    value, stderr = own.get("value"), own.get("stderr")
    return math.nan if value is None else float(value), math.nan if stderr is None else float(stderr)


def _noise_of(
    name: str,
    metric: str,
    values: Sequence[dict[int, tuple[float, float]]],
    last: int,
    shares: Mapping[str, float] = MappingProxyType({}),
) -> TaskNoise:
    noises = [noise([value for value, _ in own.values()], last) for own in values]
    ends = [list(own.values())[-1] for own in values]
    overtakes = None
    if len(values) > 1 and len(values[1]) > 1 and math.isfinite(ends[0][0]):
        sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
        better = (step for step, (value, _) in values[1].items() if sign * (value - ends[0][0]) > 0)
        overtakes = next(better, None)
    means = [own.mean for own in noises]
    return TaskNoise(name, metric, tuple(noises), tuple(stderr for _, stderr in ends), signal(means), shares, overtakes)
