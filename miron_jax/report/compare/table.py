"""Comparisons on screen and as JSON.

Arrives: `Comparison`s, `TaskNoise`s.  Leaves: rich tables, sentences, a JSON object.  It deliberately computes nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import LOWER_IS_BETTER
from miron_jax.report.compare.runs import Comparison, TaskDifference, decided_after
from miron_jax.report.compare.training_noise import TaskNoise
from miron_jax.report.tables.console import print_whole, table_of
from miron_jax.results.document import plain
from miron_jax.statistics.paired import Difference

LEVEL = 0.05
MOST_ROWS = 8  # of flipped examples that are listed
MARK = "*"
LOWER = "\u2193"  # beside metrics of which less is better
LARGE_SHARE = 0.05  # of a composite's variance
_SIDES = ("first", "second")


def print_comparison(console: Console, comparison: Comparison) -> None:
    first, second = comparison.first.label, comparison.second.label
    console.print(f"{second} (second) against {first} (first): differences are second less first", soft_wrap=True)
    print_whole(console, _table_of(task_rows(comparison), 2))
    if comparison.composites:
        print_whole(console, _table_of(composite_rows(comparison), 1))
    for line in comparison_lines(comparison):
        console.print(line, soft_wrap=True)


def print_decided(console: Console, comparison: Comparison, seed: int) -> None:
    """When `eval --until=decided` would have known who is better on each task."""
    table = table_of(("task",), ("examples", "of", "better"))
    for task, at, size, found in decided_rows(comparison, seed):
        table.add_row(task, str(at), str(size), found or "neither")
    console.print(
        f"who is better on this complete set was decided after so many examples, in the order of --seed={seed}; whether "
        "other such questions would say the same is what p is about",
        soft_wrap=True,
    )
    print_whole(console, table)


def decided_rows(comparison: Comparison, seed: int) -> Iterator[tuple[str, int, int, str]]:
    """(task, examples that ran, of how many, who is better or ""), of tasks of right and wrong."""
    labels = {1: comparison.second.label, -1: comparison.first.label, 0: ""}
    for own in comparison.tasks:
        if own.is_main and (own.only_first or own.only_second):
            at, size, found = decided_after(comparison, own.task, seed)
            yield own.task, at, size, labels[found]


def print_noise(console: Console, noises: Sequence[TaskNoise], labels: Sequence[str], last: int) -> None:
    """Two different errors stand side by side: over examples (stderr) and over checkpoints (noise)."""
    columns = [column for label in labels for column in (f"mean {label}", "noise", "stderr")]
    several = len(labels) > 1
    more = ("signal", "signal/noise", f"{labels[1]} overtakes at step") if several else ()
    table = table_of(("task or composite", "metric"), (*columns, *more))
    for own in noises:
        cells = [
            cell
            for noise, stderr in zip(own.noise, own.stderr, strict=True)
            for cell in (_number(noise.mean), _number(noise.deviation), _number(stderr))
        ]
        if several:
            cells += [
                _number(own.signal),
                _number(own.signal_to_noise),
                "" if own.overtakes is None else str(own.overtakes),
            ]
        table.add_row(own.name, own.metric, *cells)
    most = max(noise.num_steps for own in noises for noise in own.noise)
    console.print(f"training noise over the last {most} checkpoints (--last={last})", soft_wrap=True)
    print_whole(console, table)
    for own in noises:
        if shares := largest_shares(own.shares):
            console.print(f"{own.name}: of its variance over examples {shares}", soft_wrap=True)
    console.print(
        "mean, noise: over checkpoints, the same examples each time; stderr: of the last checkpoint, over examples. They "
        "answer different questions and are not added.",
        soft_wrap=True,
    )


def comparison_json(comparison: Comparison, seed: int | None = None) -> JsonObject:
    """`seed`: of the order in which `decided` is asked; None: it is not."""
    decided = [] if seed is None else [*decided_rows(comparison, seed)]
    keys = ("task", "examples", "of", "better")
    return plain(
        {
            "first": comparison.first.folder,
            "second": comparison.second.folder,
            "tasks": [{**asdict(own), "difference": _entry(own.difference)} for own in comparison.tasks],
            "composites": [{**asdict(own), "paired": _entry(own.paired)} for own in comparison.composites],
            **({} if seed is None else {"decided": [dict(zip(keys, row, strict=True)) for row in decided]}),
            "refused": dict(comparison.refused),
            "notes": list(comparison.notes),
        }
    )


def _entry(difference: Difference) -> JsonObject:
    return {**asdict(difference), "detectable": difference.detectable}


def task_rows(comparison: Comparison) -> Iterator[list[str]]:
    """A heading, then a row for each difference."""
    yield ["task", "metric", "n", *_SIDES, "difference", "95 % interval", "p", "Holm", "detectable", "only 1st | 2nd"]
    for own in comparison.tasks:
        found = own.difference
        is_right = bool(own.only_first or own.only_second)
        yield [
            own.task,
            f"{own.metric} {LOWER}" if own.metric in LOWER_IS_BETTER else own.metric,
            str(found.num_examples),
            *_differences(own.first, own.second, found),
            _p(own.adjusted) + (MARK if own.adjusted < LEVEL else ""),
            _number(found.detectable),
            f"{found.only_first} | {found.only_second}" if is_right else "",
        ]


def composite_rows(comparison: Comparison) -> Iterator[list[str]]:
    """A heading, then a row for each composite."""
    yield ["composite", *_SIDES, "difference", "95 % interval", "p", "detectable", "unpaired", "share of the variance"]
    for own in comparison.composites:
        numbers = _number(own.paired.detectable), _number(own.unpaired_stderr), largest_shares(own.shares)
        yield [own.name, *_differences(own.first, own.second, own.paired), *numbers]


def largest_shares(shares: Mapping[str, float]) -> str:
    """The tasks that most of a composite's variance comes from."""
    large = sorted(((share, task) for task, share in shares.items() if share >= LARGE_SHARE), reverse=True)
    return ", ".join(f"{task.partition('/')[2]} {share:.0%}" for share, task in large[:4])


def _differences(first: float, second: float, found: Difference) -> tuple[str, ...]:
    return _number(first), _number(second), _signed(found.value), _interval(found), _p(found.p_value)


def _table_of(rows: Iterator[list[str]], num_names: int) -> Table:
    head, *others = rows
    table = table_of(head[:num_names], head[num_names:])
    for row in others:
        table.add_row(*row)
    return table


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    known = [own for own in comparison.tasks if not math.isnan(own.difference.p_value)]
    mains = [own for own in known if own.is_main] or known
    decided = [own for own in mains if own.adjusted < LEVEL]
    yield (
        f"{len(decided)} of {len(mains)} tasks differ in their main metric at the level of {LEVEL:g}, all taken together "
        f"(Holm, {MARK}), composites apart; detectable: the smallest true difference that so many examples find four "
        "times in five"
    )
    if any(own.metric in LOWER_IS_BETTER for own in comparison.tasks):
        yield f"{LOWER} less is better"
    if comparison.composites:
        yield "unpaired: the standard error of a composite's difference if the runs had other examples"
    if any(own.only_first or own.only_second for own in comparison.tasks if own.is_main):
        yield "right in one only, by row of the data file, from 0 (all of them: --json=FILE):"
    for own in comparison.tasks:
        if own.is_main and (own.only_first or own.only_second):
            yield f"  {own.task}: {_flips(own, comparison)}"
        if own.difference.num_undefined:
            yield f"{own.task} {own.metric}: {own.difference.num_undefined} examples have no value in one of the runs"
        if own.difference.num_examples and math.isnan(own.difference.stderr):
            yield f"{own.task} {own.metric}: one example, or one cluster, has no deviation: no standard error"
        elif own.is_main and own.difference.only_first == own.difference.only_second == 0:
            yield f"{own.task} {own.metric}: every example is the same in both runs"
    for name, why in comparison.refused.items():
        yield f"{name} is not compared: {why}"
    yield from comparison.notes


def _flips(own: TaskDifference, comparison: Comparison) -> str:
    sides = ((comparison.first.label, own.only_first), (comparison.second.label, own.only_second))
    return "; ".join(
        f"{label} {', '.join(map(str, rows[:MOST_ROWS]))}{f' and {len(rows) - MOST_ROWS} more' if rows[MOST_ROWS:] else ''}"
        for label, rows in sides
        if rows
    )


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def _signed(value: float) -> str:
    return "" if math.isnan(value) else f"{value:+.4f}"


def _interval(found: Difference) -> str:
    low, high = found.ci95
    return "" if math.isnan(low) else f"{low:+.4f} to {high:+.4f}"


def _p(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}" if value >= 0.0001 else "<.0001"
