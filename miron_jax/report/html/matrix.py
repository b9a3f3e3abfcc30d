"""The matrix of tasks: a row a task by suites and sections, a column a run, the other metrics
beneath.

Arrives: `Run`s, with their comparisons with each run that can be pinned, and their steps.  Leaves:
texts for the template.  It deliberately computes no statistic.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from miron_jax.errors import printable
from miron_jax.metrics.properties import LOWER_IS_BETTER, PROPORTIONS
from miron_jax.report.compare.runs import TaskDifference
from miron_jax.report.compare.table import LOWER, difference_text
from miron_jax.report.compare.verdicts import NOISE, verdict_of_task
from miron_jax.report.figures.all import Trained
from miron_jax.report.html.head import Beside
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
    steps: Sequence[str]  # lines over the steps, where they have a value; (): not of several
    steps_words: str


class Change(NamedTuple):
    text: str
    sort: str
    word: str  # better or worse beyond chance, or no p-value; "": within noise


class Row(NamedTuple):
    name: str
    metric: str
    n: str
    cells: Sequence[tuple[Cell, Sequence[Change | None]]]  # of each run, by the pinned run
    others: Sequence[Sequence[str]]  # metric, then a number a run


class Matrix(NamedTuple):
    # a run, and what it stands beside, by the pinned run; "": nothing
    heads: Sequence[tuple[str, Sequence[str]]]
    groups: Mapping[str, Sequence[Row]]


_Changes = Sequence[Mapping[str, TaskDifference] | None]  # by the pinned run; None: no comparison


def matrix_of(runs: Sequence[Run], besides: Sequence[Beside], trained: Trained) -> Matrix:
    changes = list[_Changes]()  # of each run
    heads = []
    for run in runs:
        of_run = [beside.get(run.label) for beside in besides]
        comparisons = [each and each.comparison for each in of_run]
        heads.append(
            (printable(run.label), [each and printable(each.first.label) for each in comparisons])
        )
        changes.append(
            [
                each and {task.task: task for task in each.tasks if task.is_main}
                for each in comparisons
            ]
        )
    groups = dict[str, list[Row]]()
    for name in dict.fromkeys(name for run in runs for name in run.tasks):
        known = next(run.tasks[name] for run in runs if name in run.tasks)
        suite, _, _ = name.partition("/")
        group = f"{suite}: {known.section}" if known.section else suite
        groups.setdefault(printable(group), []).append(_row(name, known, runs, changes, trained))
    return Matrix(heads, groups)


def _row(
    name: str,
    known: TaskResult,
    runs: Sequence[Run],
    changes: Sequence[_Changes],
    trained: Trained,
) -> Row:
    metric = known.main_metric
    cells = []
    for run, of_run in zip(runs, changes, strict=True):
        steps = trained.get(run.label, {})
        values = [steps[step].metric(name, metric).value for step in sorted(steps)]
        cell = _cell(known, metric, run.result.metric(name, metric), values)
        cells.append((cell, [None if each is None else _change(each.get(name)) for each in of_run]))
    counts = [run.result.metric(name, metric).num_examples for run in runs if name in run.tasks]
    return Row(
        name=printable(name),
        metric=printable(f"{metric} {LOWER}" if metric in LOWER_IS_BETTER else metric),
        n=" | ".join(map(str, dict.fromkeys(counts))),
        cells=cells,
        others=[*_others(name, metric, runs)],
    )


def _cell(task: TaskResult, metric: str, estimate: Estimate, of_steps: Sequence[float]) -> Cell:
    value = number(estimate.value, "none")
    words = "over the steps: " + ", ".join(number(each, "none") for each in of_steps)
    bar = _bar(task, metric, estimate)
    return Cell(value, shown(estimate.value, ".17g"), bar, [*_sparkline(of_steps)], words)


def _sparkline(values: Sequence[float]) -> Iterator[str]:
    """Points of lines in a box of 60 by 12, from the lowest value to the highest; a step without a
    value parts two lines."""
    known = [value for value in values if math.isfinite(value)]
    height = max(known, default=0.0) - min(known, default=0.0)
    points = list[str]()
    for i, value in enumerate([*values, math.nan]):
        if math.isfinite(value):
            y = 6.0 if not height else 11 - 10 * (value - min(known)) / height
            points.append(f"{60 * i / max(1, len(values) - 1):.1f},{y:.1f}")
        elif points:
            yield " ".join(points)
            points = []


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
        gap = task.human_gap(metric)
        if gap is not None and gap.pairs:
            words += f" ({interval(gap.human.ci95)}), human gap {shown(gap.value, '+.4f')}"
            words += f" ({interval(gap.ci95)})"
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
    if task.draws and task.draws.scores:
        others[f"{main} over {len(task.draws.scores)} draws of shots"] = task.draws.estimate
    for category, group in task.groups.items():
        others |= {f"{category}: {metric}": each for metric, each in group.metrics.items()}
    return others
