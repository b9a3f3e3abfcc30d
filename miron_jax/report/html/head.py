"""The head of the page: a card a run, and sentences that sum them up.

Arrives: `Run`s, with their comparisons with each run that can be pinned.  Leaves: texts for the
template.  It deliberately computes no statistic.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from miron_jax.errors import InputError, printable, some_of
from miron_jax.metrics.properties import LOWER_IS_BETTER
from miron_jax.report.compare.runs import (
    Comparison,
    Keyed,
    TaskDifference,
    compare,
    keyed_examples,
    turned,
)
from miron_jax.report.compare.table import LOWER, difference_text
from miron_jax.report.compare.verdicts import (
    moved,
    moved_sentence,
    verdict_of_composite,
    verdict_of_task,
)
from miron_jax.report.figures.curves import Steps
from miron_jax.report.numbers import interval, number
from miron_jax.report.tables.notes import above_chance
from miron_jax.report.tables.results import LEAST_SECONDS, activity
from miron_jax.results.records import CompositeResult, RunResult
from miron_jax.results.run_folder import Run

MOST_PINNED = 4  # runs of which each can be pinned; of more the first is


class Against(NamedTuple):
    """A run beside the pinned run, or the pinned one beside its step before."""

    title: str
    comparison: Comparison | None
    why_not: str  # "" with a comparison


class Moved(NamedTuple):
    """A task that differs beyond chance."""

    name: str
    difference: str  # with its interval
    word: str  # better or worse


class Sentence(NamedTuple):
    text: str
    moved: Sequence[Moved]


class Change(NamedTuple):
    difference: str  # with its interval
    word: str  # better, worse, within noise; "": no p-value


class Headline(NamedTuple):
    """A composite of a run."""

    name: str  # with its metric
    value: str
    interval: str
    changes: Sequence[Change | None]  # by the pinned run


class Spent(NamedTuple):
    activity: str
    seconds: str
    share: str  # of the wall time, per cent


class Card(NamedTuple):
    label: str
    headlines: Sequence[Headline]
    facts: Sequence[tuple[str, str]]
    timeline: Sequence[Spent]


Beside = Mapping[str, Against]  # by label of a run, of those that have one to stand beside


def against_of(runs: Sequence[Run]) -> list[Beside]:
    """What the runs stand beside, by the pinned run."""
    compared = dict[tuple[str, str], Against]()
    kept = dict[tuple[str, str], Keyed]()  # by run and task: each is read once

    def read(run: Run, task: str) -> Keyed:
        key = run.folder, task
        if key in kept:
            return kept[key]
        examples = keyed_examples(run, task)
        if len(runs) <= MOST_PINNED or run is runs[0]:  # others are read once anyway
            kept[key] = examples
        return examples

    for i, first in enumerate(runs):
        for second in runs[i + 1 :] if i == 0 or len(runs) <= MOST_PINNED else ():
            there = compared[first.label, second.label] = _against(first, second, read)
            back = there.comparison and turned(there.comparison)
            title = _title(second, first)
            compared[second.label, first.label] = Against(title, back, there.why_not)
    besides = []
    for pinned in runs if len(runs) <= MOST_PINNED else runs[:1]:
        before = _step_before(pinned)
        beside = {pinned.label: _against(before, pinned, read)} if before else {}
        others = [run.label for run in runs if run is not pinned]
        besides.append({**beside, **{label: compared[pinned.label, label] for label in others}})
    return besides


def _step_before(run: Run) -> Run | None:
    before = [of_step for step, of_step in run.steps().items() if step < (run.result.step or 0)]
    return next(reversed(before), None)


def _against(first: Run, second: Run, read: Callable[[Run, str], Keyed]) -> Against:
    title = _title(first, second)
    try:
        return Against(title, compare(first, second, read=read), "")
    except InputError as error:
        return Against(title, None, printable(str(error)))


def _title(first: Run, second: Run) -> str:
    return printable(f"{second.label} (second) against {first.label} (first)")


def sentences_of(runs: Sequence[Run], beside: Beside) -> Iterator[Sentence]:
    """What moved, or what lies above chance where nothing is compared."""
    for against in beside.values():
        if against.comparison:
            decided, _ = moved(against.comparison)
            names = [*map(_moved, decided)]
            yield Sentence(printable(moved_sentence(against.comparison)), names)
    if not beside:
        for line in above_chance(runs[0].result):
            yield Sentence(line, ())


def _moved(task: TaskDifference) -> Moved:
    return Moved(printable(task.task), difference_text(task.difference), verdict_of_task(task))


def card_of(run: Run, besides: Sequence[Beside], steps: Steps) -> Card:
    """`steps`: of a training run; else empty."""
    of_run = [beside.get(run.label) for beside in besides]
    comparisons = [each and each.comparison for each in of_run]
    headlines = [
        _headline(run.result, suite, name, composite, comparisons)
        for suite, of_suite in run.result.suites.items()
        for name, composite in of_suite.composites.items()
        if math.isfinite(composite.value)
    ]
    return Card(printable(run.label), headlines, [*_facts(run, steps)], [*_timeline(run.result)])


def _headline(
    result: RunResult,
    suite: str,
    name: str,
    composite: CompositeResult,
    comparisons: Sequence[Comparison | None],
) -> Headline:
    metric = result.metric_of(composite)
    changes = [each and _change(each, f"{suite}: {name}", metric) for each in comparisons]
    shown = name_of_composite(suite, name, metric)
    around = interval(composite.ci95) or "no interval, as a task of it has none"
    return Headline(shown, number(composite.value), around, changes)


def name_of_composite(suite: str, name: str, metric: str) -> str:
    """With its metric."""
    shown = name if name.startswith(suite) else f"{suite}: {name}"
    if metric not in name:
        shown += f", {metric}"
    if metric in LOWER_IS_BETTER:
        shown += f" {LOWER}"
    return printable(shown)


def _change(comparison: Comparison, name: str, metric: str) -> Change | None:
    for each in comparison.composites:
        if each.name == name:
            return Change(difference_text(each.paired), verdict_of_composite(each, metric))
    return None


def _best_steps(steps: Steps) -> str:
    """By each composite, or where none has a value, by most tasks."""
    last = steps[max(steps)]
    names = dict[int, list[str]]()
    for suite, of_suite in last.suites.items():
        for name, composite in of_suite.composites.items():
            values = {step: each.composite(suite, name).value for step, each in steps.items()}
            best = _best(values, last.metric_of(composite))
            if best is not None:
                names.setdefault(best, []).append(name)
    if names:
        return "; ".join(f"{step} by {', '.join(by)}" for step, by in names.items())
    bests = Counter[int]()
    for name, task in last.tasks.items():
        metric = task.main_metric
        best = _best(
            {step: each.metric(name, metric).value for step, each in steps.items()}, metric
        )
        if best is not None:
            bests[best] += 1
    if not bests:
        return ""
    ((step, count),) = bests.most_common(1)
    return f"{step} on {count} of {bests.total()} tasks"


def _best(values: Mapping[int, float], metric: str) -> int | None:
    """The first of the steps with the best value."""
    sign = -1 if metric in LOWER_IS_BETTER else 1
    known = {step: sign * value for step, value in values.items() if math.isfinite(value)}
    return max(known, key=known.__getitem__, default=None)


def _facts(run: Run, steps: Steps) -> Iterator[tuple[str, str]]:
    result = run.result
    scored = sum(task.n for task in result.tasks.values())
    seconds = result.speed.wall_seconds
    weights = result.checkpoint
    average = ""
    if weights.average:
        average = f"{weights.average} of steps {some_of(weights.averaged, 8)}"
    facts = {
        "model": result.model,
        "step": result.step,
        "best step": _best_steps(steps) if steps else "",
        "average": average,
        "parameters": _count(weights.num_parameters),
        "training tokens": _count(weights.training_tokens),
        "FLOPs a token": _count(weights.flops_per_token),
        "dtype": result.dtype,
        "devices": _devices(result),
        "examples": f"{scored:,} in {len(result.tasks)} tasks",
        "finished": result.speed.finished,
        "wall time": f"{seconds:,.1f} s" if seconds else "",
        "missing": "; ".join(_missing(run)) or "nothing",
    }
    for name, value in facts.items():
        if value not in (None, ""):
            yield name, printable(str(value))


def _count(number: float | None) -> str:
    return f"{number:,.0f}" if number else ""


def _devices(result: RunResult) -> str:
    count = result.environment.num_devices
    return f"{count} x {result.environment.device}" if count else ""


def _missing(run: Run) -> Iterator[str]:
    """What the run has no score of."""
    result = run.result
    for suite in result.suites.values():
        names = dict.fromkeys(chain(*map(result.not_scored, suite.composites.values())))
        if names:
            yield f"without a score on published data: {some_of([*names], 6)}"
    if skipped := sum(task.skipped for task in result.tasks.values()):
        yield f"{skipped:,} examples without a score"
    limit = result.limit
    if limit and any(task.n + task.skipped >= limit for task in result.tasks.values()):
        yield f"what --limit={limit} leaves out of each task"
    if run.unfinished:
        yield "checkpoints that are not scored yet"


def _timeline(result: RunResult) -> Iterator[Spent]:
    for name, seconds in result.speed.timeline.items():
        if seconds >= LEAST_SECONDS:
            share = 100 * seconds / result.speed.wall_seconds
            yield Spent(printable(activity(name)), f"{seconds:.1f} s", f"{share:.1f}")
