"""The head of the page: a card a run, and sentences that sum them up.

Arrives: `Run`s, each with its comparison with the pinned or the earlier one.  Leaves: texts for the
template.  It deliberately computes no statistic.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from miron_jax.errors import InputError, printable, some_of
from miron_jax.metrics.choices import LOWER_IS_BETTER
from miron_jax.report.compare.runs import Comparison, CompositeDifference, compare
from miron_jax.report.compare.table import LOWER, difference_text
from miron_jax.report.compare.verdicts import moved_sentence, verdict_of_composite
from miron_jax.report.numbers import interval, number
from miron_jax.report.tables.notes import above_chance
from miron_jax.report.tables.results import LEAST_SECONDS, activity
from miron_jax.results.records import CompositeResult, RunResult
from miron_jax.results.run_folder import Run


class Against(NamedTuple):
    """A run beside the pinned run, which is the first, or its step before."""

    title: str
    comparison: Comparison | None
    why_not: str  # "" with a comparison


class Change(NamedTuple):
    difference: str  # with its interval
    word: str  # better, worse, within noise; "": no p-value


class Headline(NamedTuple):
    """A composite of a run."""

    name: str
    metric: str
    value: str
    interval: str
    change: Change | None


class Spent(NamedTuple):
    activity: str
    seconds: str
    share: str  # of the wall time, per cent


class Card(NamedTuple):
    label: str
    headlines: Sequence[Headline]
    facts: Sequence[tuple[str, str]]
    timeline: Sequence[Spent]


def against_of(runs: Sequence[Run]) -> dict[str, Against]:
    """By label, of those runs that have one to stand beside."""
    pairs = [(_step_before(runs[0]), runs[0]), *((runs[0], run) for run in runs[1:])]
    return {second.label: _against(first, second) for first, second in pairs if first}


def _step_before(run: Run) -> Run | None:
    before = [of_step for step, of_step in run.steps().items() if step < (run.result.step or 0)]
    return next(reversed(before), None)


def _against(first: Run, second: Run) -> Against:
    title = printable(f"{second.label} (second) against {first.label} (first)")
    try:
        return Against(title, compare(first, second), "")
    except InputError as error:
        return Against(title, None, printable(str(error)))


def sentences_of(runs: Sequence[Run], beside: Mapping[str, Against]) -> Iterator[str]:
    """What moved, or what lies above chance where nothing is compared."""
    for against in beside.values():
        if against.comparison:
            yield printable(moved_sentence(against.comparison))
    if not beside:
        yield from above_chance(runs[0].result)


def card_of(run: Run, beside: Mapping[str, Against]) -> Card:
    comparison = beside[run.label].comparison if run.label in beside else None
    changes = {each.name: each for each in comparison.composites} if comparison else {}
    headlines = [
        _headline(run.result, f"{suite}: {name}", composite, changes)
        for suite, of_suite in run.result.suites.items()
        for name, composite in of_suite.composites.items()
        if math.isfinite(composite.value)
    ]
    return Card(printable(run.label), headlines, [*_facts(run)], [*_timeline(run.result)])


def _headline(
    result: RunResult,
    name: str,
    composite: CompositeResult,
    changes: Mapping[str, CompositeDifference],
) -> Headline:
    metric = result.metric_of(composite)
    change = None
    if name in changes:
        word = verdict_of_composite(changes[name], metric)
        change = Change(difference_text(changes[name].paired), word)
    if metric in LOWER_IS_BETTER:
        metric += f" {LOWER}"
    value = number(composite.value)
    return Headline(printable(name), printable(metric), value, interval(composite.ci95), change)


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    result = run.result
    scored = sum(task.n for task in result.tasks.values())
    parameters = sum(result.checkpoint.dtypes.values())
    seconds = result.speed.wall_seconds
    facts = {
        "model": result.config.get("model"),
        "step": result.step,
        "parameters": f"{parameters:,}" if parameters else "",
        "dtype": result.config.get("dtype"),
        "devices": _devices(result),
        "examples": f"{scored:,} in {len(result.tasks)} tasks",
        "wall time": f"{seconds:,.1f} s" if seconds else "",
        "missing": "; ".join(_missing(run)) or "nothing",
    }
    for name, value in facts.items():
        if value not in (None, ""):
            yield name, printable(str(value))


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
    if run.unfinished:
        yield "checkpoints that are not scored yet"


def _timeline(result: RunResult) -> Iterator[Spent]:
    for name, seconds in result.speed.timeline.items():
        if seconds >= LEAST_SECONDS:
            share = 100 * seconds / result.speed.wall_seconds
            yield Spent(printable(activity(name)), f"{seconds:.1f} s", f"{share:.1f}")
