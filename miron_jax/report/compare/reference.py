"""A run against stored reference numbers of the same model.

Arrives: a name in references.json, a run.  Leaves: a row for each number.  It deliberately scores
nothing.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.files.regular import read_text
from miron_jax.metrics.choices import PROPORTIONS
from miron_jax.report.exports.exchange import requests_sha256
from miron_jax.results.run_folder import Run

FILE = Path(__file__).with_name("references.json")
ALLOWED = 0.002  # of a mean in float32; of a proportion one example, which a near tie may flip


@dataclass(frozen=True, slots=True)
class ReferenceTask:
    """A task's numbers."""

    requests_sha256: str  # of what it asked, see exports/exchange.py
    n: int  # examples
    metrics: Mapping[str, tuple[float, float, float]]  # the number and its 95 % interval


@dataclass(frozen=True, slots=True)
class Reference:
    """Numbers of a model, and what they were made with."""

    command: str
    weights: str  # fingerprint of all weights in this dtype
    dtype: str
    device: str
    packages: Mapping[str, str]  # versions
    tasks: Mapping[str, ReferenceTask]


class Row(NamedTuple):
    """A number of a run beside the reference's."""

    task: str
    metric: str
    expected: float
    interval: tuple[float, float]
    found: float  # NaN: the run lacks it
    verdict: str  # "same", or how it differs


def references() -> dict[str, Reference]:
    """All that there are, by name."""
    from cattrs import structure

    return structure(parse_json(read_text(FILE)), dict[str, Reference])


def reference(name: str) -> Reference:
    """Raises InputError for a name that there is not."""
    every = references()
    if name not in every:
        raise InputError(
            f"--reference={name}: there are no such numbers, expected {', '.join(every)}"
        )
    return every[name]


def rows_of(expected: Reference, run: Run) -> Iterator[Row]:
    """Raises InputError where samples cannot be read."""
    for name, task in expected.tasks.items():
        why = _asks_other(name, task, run)
        for metric, (value, *interval) in task.metrics.items():
            found = run.result.metric(name, metric).value
            allowed = ALLOWED
            if metric in PROPORTIONS:
                allowed = 1.5 / task.n
            verdict = "same"
            if why:
                verdict = why
            elif not abs(found - value) <= allowed:
                verdict = "DIFFERS"
            yield Row(name, metric, value, (interval[0], interval[1]), found, verdict)


def _asks_other(name: str, task: ReferenceTask, run: Run) -> str:
    """Why a run's task is not the reference's; ""."""
    if name not in run.tasks:
        return "not scored"
    if run.tasks[name].n != task.n:
        return f"{run.tasks[name].n} examples, not {task.n}"
    return "" if requests_sha256(run, name) == task.requests_sha256 else "other requests"


def entry_of(run: Run, command: str) -> Reference:
    """A run's numbers as reference: each task's main metric, and bits per byte beside it."""
    result = run.result
    tasks = {}
    for name, task in result.tasks.items():
        metrics = {}
        for metric in dict.fromkeys((task.main_metric, "bits_per_byte")):
            estimate = task.metric(metric)
            if math.isfinite(estimate.value):
                metrics[metric] = (estimate.value, *estimate.ci95)
        tasks[name] = ReferenceTask(requests_sha256(run, name) or "", task.n, metrics)
    environment = result.environment
    dtype = str(result.config["dtype"])
    device = f"{environment.device}, {environment.host}"
    weights = result.checkpoint.weights or ""
    return Reference(command, weights, dtype, device, environment.packages, tasks)
