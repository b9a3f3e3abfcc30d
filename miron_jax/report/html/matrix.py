"""The matrix of tasks: a row a task by suites, a column a run, the other metrics beneath.

Arrives: `Run`s, each with its comparison with the pinned or the earlier one.  Leaves: texts for the
template.  It deliberately computes no statistic.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from miron_jax.errors import printable
from miron_jax.metrics.choices import LOWER_IS_BETTER, PROPORTIONS
from miron_jax.report.compare.runs import TaskDifference
from miron_jax.report.compare.table import LOWER, difference_text
from miron_jax.report.compare.verdicts import NOISE, verdict_of_task
from miron_jax.report.html.head import Against
from miron_jax.report.numbers import interval, number, shown, with_interval
from miron_jax.results.records import UNKNOWN, TaskResult
from miron_jax.results.run_folder import Run
from miron_jax.statistics.estimate import Estimate


class Bar(NamedTuple):
    """Places on a scale from chance, 0, to 1, 100."""

    low: float
    width: float
    value: float
    people: float | None
    words: str  # for screen readers


class Cell(NamedTuple):
    """The main metric of a task in a run."""

    value: str
    sort: str  # what the table sorts by; "": comes last
    bar: Bar | None


class Change(NamedTuple):
    text: str
    sort: str
    word: str  # better or worse beyond chance, or no p-value; "": within noise


class Row(NamedTuple):
    name: str
    metric: str
    n: str
    cells: Sequence[tuple[Cell, Change | None]]  # of each run
    others: Sequence[Sequence[str]]  # metric, then a number a run


class Matrix(NamedTuple):
    heads: Sequence[tuple[str, str]]  # a run, and what it stands beside; "": nothing
    suites: Mapping[str, Sequence[Row]]


def matrix_of(runs: Sequence[Run], beside: Mapping[str, Against]) -> Matrix:
    changes = dict[str, dict[str, TaskDifference]]()
    heads = []
    for run in runs:
        pinned = ""
        if run.label in beside and (comparison := beside[run.label].comparison):
            pinned = comparison.first.label
            changes[run.label] = {task.task: task for task in comparison.tasks if task.is_main}
        heads.append((printable(run.label), printable(pinned)))
    suites = dict[str, list[Row]]()
    for name in dict.fromkeys(name for run in runs for name in run.tasks):
        suite, _, _ = name.partition("/")
        row = _row(name, runs, [changes.get(run.label) for run in runs])
        suites.setdefault(printable(suite), []).append(row)
    return Matrix(heads, suites)


def _row(
    name: str, runs: Sequence[Run], changes: Sequence[Mapping[str, TaskDifference] | None]
) -> Row:
    known = next(run.tasks[name] for run in runs if name in run.tasks)
    metric = known.main_metric
    cells = [_cell(known, metric, run.result.metric(name, metric)) for run in runs]
    counts = [run.result.metric(name, metric).num_examples for run in runs if name in run.tasks]
    differences = [None if each is None else _change(each.get(name)) for each in changes]
    return Row(
        name=printable(name),
        metric=printable(f"{metric} {LOWER}" if metric in LOWER_IS_BETTER else metric),
        n=" | ".join(map(str, dict.fromkeys(counts))),
        cells=[*zip(cells, differences, strict=True)],
        others=[*_others(name, metric, runs)],
    )


def _cell(task: TaskResult, metric: str, estimate: Estimate) -> Cell:
    value = number(estimate.value, "none")
    return Cell(value, shown(estimate.value, ".17g"), _bar(task, metric, estimate))


def _bar(task: TaskResult, metric: str, estimate: Estimate) -> Bar | None:
    """None where the metric is no share, or has no interval."""
    chance = task.chance(metric) or 0.0
    numbers = (estimate.value, *estimate.ci95)
    if metric not in PROPORTIONS or chance >= 1 or not all(map(math.isfinite, numbers)):
        return None
    people = task.people(metric)
    value, low, high = (_place(each, chance) for each in numbers)
    words = f"{interval(estimate.ci95)}; chance {chance:.4f}"
    if people is not None:
        words += f"; people {people:.4f}"
        people = _place(people, chance)
    return Bar(low, round(high - low, 2), value, people, words)


def _place(value: float, chance: float) -> float:
    return round(100 * min(1.0, max(0.0, (value - chance) / (1 - chance))), 2)


def _change(task: TaskDifference | None) -> Change:
    if task is None:
        return Change("", "", "")
    paired = task.difference
    word = verdict_of_task(task) or "no p-value"
    if word == NOISE:  # of most tasks: it needs no word
        word = ""
    return Change(difference_text(paired), shown(paired.value, ".17g"), word)


def _others(name: str, main: str, runs: Sequence[Run]) -> Iterator[list[str]]:
    """Every other metric, then all metrics of each category."""
    tasks = [run.tasks.get(name) for run in runs]
    numbers = [_numbers(task, main) if task else {} for task in tasks]
    for key in dict.fromkeys(key for each in numbers for key in each):
        yield [printable(key), *(with_interval(each.get(key, UNKNOWN)) for each in numbers)]


def _numbers(task: TaskResult, main: str) -> dict[str, Estimate]:
    others = {metric: each for metric, each in task.metrics.items() if metric != main}
    for category, group in task.groups.items():
        others |= {f"{category}: {metric}": each for metric, each in group.metrics.items()}
    return others
