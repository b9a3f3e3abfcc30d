"""A run against stored reference numbers of the same model.

Arrives: a name in references.json, a run.  Leaves: a row for each number.  It deliberately scores
nothing.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.files.regular import read_text
from miron_jax.report.exports.exchange import PROPORTION_NAMES, requests_sha256
from miron_jax.results.records import TaskResult
from miron_jax.results.run_folder import Run

FILE = Path(__file__).with_name("references.json")
ALLOWED = 0.002  # of a mean in float32
ONE_EXAMPLE = 1.5  # numbers of what a model answers may differ by one, which a near tie flips
ANSWERS = PROPORTION_NAMES | {"lev_score"}
PERCENTAGES = ("lev_score", "target_confidence")  # MIRON's two
ALSO = ("bits_per_byte", *PERCENTAGES)
SAME = "same"

Numbers = Mapping[str, tuple[float, float, float]]  # name -> the number and its 95 % interval


@dataclass(frozen=True, slots=True)
class ReferenceTask:
    """A task's numbers: its main metric, and those of `ALSO` that it has."""

    requests_sha256: str  # of what it asked, see exports/exchange.py
    n: int  # scored examples
    metrics: Numbers


@dataclass(frozen=True, slots=True)
class Reference:
    """Numbers of a model, and what they were made with; only the command if it was not run."""

    command: str
    weights: str = ""  # fingerprint of all weights in this dtype
    dtype: str = ""
    device: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)  # versions
    composites: Numbers = field(default_factory=dict)  # by suite/name; of its tasks' main metrics
    tasks: Mapping[str, ReferenceTask] = field(default_factory=dict)


class Row(NamedTuple):
    """A number of a run beside the reference's."""

    task: str  # of a composite its suite
    metric: str
    expected: float
    interval: tuple[float, float]
    measured: float  # NaN: the run lacks it
    verdict: str  # SAME, or how it differs


def references() -> dict[str, Reference]:
    """All that there are, by name."""
    from cattrs import structure

    return structure(parse_json(read_text(FILE)), dict[str, Reference])


def reference(name: str) -> Reference:
    """Raises InputError for a name that there is not, or whose numbers are not there."""
    every = references()
    if name not in every:
        raise InputError(
            f"--reference={name}: there are no such numbers, expected {', '.join(every)}"
        )
    if not every[name].tasks:
        raise InputError(
            f"--reference={name} has no numbers: it was not run here, and the command to run it is "
            f"{every[name].command}"
        )
    return every[name]


def rows_of(expected: Reference, run: Run) -> Iterator[Row]:
    """A row for each number of each task, then for each composite.  Raises InputError where
    samples cannot be read."""
    asks_other = {name: _asks_other(name, task, run) for name, task in expected.tasks.items()}
    for name, task in expected.tasks.items():
        for metric, (value, *ends) in task.metrics.items():
            allowed = ALLOWED
            if metric in ANSWERS:
                allowed = ONE_EXAMPLE / task.n
            if metric in PERCENTAGES:
                allowed *= 100
            measured = run.result.metric(name, metric).value
            verdict = asks_other[name] or _verdict(value, measured, allowed)
            yield Row(name, metric, value, (ends[0], ends[1]), measured, verdict)
    for name, (value, *ends) in expected.composites.items():
        suite, _, metric = name.partition("/")
        composite = run.result.composite(suite, metric)
        of_tasks = {asks_other.get(task, "other tasks") for task in composite.weights}
        # what one example of one task moves
        steps = [
            abs(weight) * ONE_EXAMPLE / expected.tasks[task].n
            for task, weight in composite.weights.items()
            if task in expected.tasks
        ]
        verdict = next(filter(None, sorted(of_tasks)), "")
        verdict = verdict or _verdict(value, composite.value, max(steps, default=0))
        yield Row(suite, metric, value, (ends[0], ends[1]), composite.value, verdict)


def _asks_other(name: str, task: ReferenceTask, run: Run) -> str:
    """Why a run's task is not the reference's; ""."""
    if name not in run.tasks:
        return "not scored"
    if run.tasks[name].n != task.n:
        return f"{run.tasks[name].n} examples, not {task.n}"
    requests = requests_sha256(run, name)
    if requests is None:
        return "requests without hashes"
    return "" if requests == task.requests_sha256 else "other requests"


def _verdict(expected: float, measured: float, allowed: float) -> str:
    if math.isnan(measured):
        return "no value"
    return SAME if abs(measured - expected) <= allowed else "DIFFERS"


def unlike(expected: Reference, run: Run) -> str:
    """What of the run's model is other than the reference's; "".  Weights have a fingerprint for
    each dtype."""
    dtype = run.result.dtype
    if dtype != expected.dtype:
        return f"{dtype}, not {expected.dtype}"
    return "" if run.result.checkpoint.weights == expected.weights else "other weights"


def entry_of(run: Run, command: str) -> Reference:
    """A run's numbers as reference.  Left out: those without value or interval, and composites that
    lack tasks, which another machine may have."""
    result = run.result
    tasks = {
        name: ReferenceTask(requests_sha256(run, name) or "", task.n, numbers)
        for name, task in result.tasks.items()
        if (numbers := _numbers(task))
    }
    composites = {}
    for suite, of_suite in result.suites.items():
        for name, each in of_suite.composites.items():
            if each.complete and not each.metric and each.ci95 is not None:
                composites[f"{suite}/{name}"] = (each.value, *each.ci95)
    environment = result.environment
    return Reference(
        command,
        result.checkpoint.weights or "",
        str(result.dtype),
        f"{environment.device}, {environment.host}",
        {"python": environment.python, **environment.packages},
        composites,
        tasks,
    )


def _numbers(task: TaskResult) -> Numbers:
    numbers = {}
    for metric in dict.fromkeys((task.main_metric, *ALSO)):
        estimate = task.metric(metric)
        if all(map(math.isfinite, (estimate.value, *estimate.ci95))):
            numbers[metric] = (estimate.value, *estimate.ci95)
    return numbers
