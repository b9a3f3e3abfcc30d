"""Comparisons on screen and as JSON.

Arrives: `Comparison`s, `TaskNoise`s.  Leaves: rich tables, sentences, a JSON object.  It
deliberately computes nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter

from rich.console import Console

from miron_jax.errors import some_of
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.properties import LOWER_IS_BETTER
from miron_jax.report.compare.runs import (
    Comparison,
    CompositeDifference,
    TaskDifference,
    decided_after,
)
from miron_jax.report.compare.subset import Subset
from miron_jax.report.compare.training_noise import Decisions, TaskNoise
from miron_jax.report.compare.verdicts import LEVEL, moved_sentence
from miron_jax.report.numbers import shown
from miron_jax.report.tables.console import NumberTable, table_of
from miron_jax.results.document import plain
from miron_jax.statistics.draws import WITHIN
from miron_jax.statistics.paired import Difference

MOST_ROWS = 8  # of flipped examples that are listed
MARK = "*"
LOWER = "\u2193"  # beside metrics of which less is better
LARGE_SHARE = 0.05  # of a composite's variance
SHARES = "share of the variance"
RISES = "rises"
ABOVE_CHANCE = "above chance"
_SIDES = ("first", "second")
GIVES_WAY = (SHARES, "unpaired", "detectable", "only 1st | 2nd", "p", _SIDES, "Holm")


def print_comparison(console: Console, comparison: Comparison) -> None:
    first = comparison.first.label
    second = comparison.second.label
    console.print(
        f"{second} (second) against {first} (first): differences are second less first",
        soft_wrap=True,
    )
    console.print(moved_sentence(comparison), soft_wrap=True)
    if comparison.composites:
        console.print(_table_of(composite_rows(comparison), num_names=1, num_texts=1))
    console.print(_table_of(task_rows(comparison), num_names=2))
    for line in comparison_lines(comparison):
        console.print(line, soft_wrap=True)


def print_decided(console: Console, comparison: Comparison, seed: int) -> None:
    """When `eval --until=decided` would have known who is better on each task."""
    table = table_of(("task",), ("examples", "of", "better"))
    for task, at, size, better in decided_rows(comparison, seed):
        table.add_row(task, str(at), str(size), better or "neither")
    console.print(
        "who is better on this complete set was decided after so many examples, in the order of "
        f"--seed={seed}; whether other such questions would say the same is what p is about",
        soft_wrap=True,
    )
    console.print(table)


def decided_rows(comparison: Comparison, seed: int) -> Iterator[tuple[str, int, int, str]]:
    """(task, examples that ran, of how many, who is better or ""), of tasks of right and wrong."""
    labels = {1: comparison.second.label, -1: comparison.first.label, 0: ""}
    for task in comparison.tasks:
        if task.is_main and task.has_flips:
            at, size, better = decided_after(comparison, task.task, seed)
            yield task.task, at, size, labels[better]


def print_noise(
    console: Console, noises: Sequence[TaskNoise], labels: Sequence[str], last: int
) -> None:
    """Two different errors stand side by side: over examples (stderr) and over checkpoints
    (noise)."""
    columns = list[str]()
    for label in labels:
        columns += [f"mean {label}", "noise", "stderr", RISES, ABOVE_CHANCE]
    more = ()
    if len(labels) > 1:
        more = ("signal", "signal/noise", f"{labels[1]} overtakes at step")
    table = table_of(
        ("task or composite", "metric"),
        (*columns, *more),
        gives_way=(RISES, ABOVE_CHANCE, *more[:1], "stderr", *more[1:]),
    )
    for each in noises:
        cells = list[str]()
        for i, noise in enumerate(each.noise):
            cells += [shown(noise.mean), shown(noise.deviation), shown(each.stderr[i])]
            cells += [shown(each.monotonicity[i], ".2f"), shown(each.above_chance[i], "d")]
        if more:
            cells += [shown(each.signal), shown(each.signal_to_noise), shown(each.overtakes, "d")]
        table.add_row(each.name, each.metric, *cells)
    most = max(noise.num_steps for each in noises for noise in each.noise)
    console.print(
        f"training noise over the last {most} checkpoints (--last={last}): how far they lie from a "
        "straight line",
        soft_wrap=True,
    )
    console.print(table)
    for each in noises:
        if shares := largest_shares(each.shares):
            console.print(f"{each.name}: of its variance over examples {shares}", soft_wrap=True)
    console.print(
        "mean, noise: over checkpoints, the same examples each time, without their trend; stderr: "
        "of the last checkpoint, over examples. They answer different questions and are not added. "
        f"{RISES}: rank correlation of step and value, 1 of a curve that only gets better; "
        f"{ABOVE_CHANCE}: the step from which on the whole interval is",
        soft_wrap=True,
    )


def print_decisions(console: Console, decided: Sequence[Decisions]) -> None:
    table = table_of(("task or composite", "metric"), ("decision accuracy", "pairs"))
    for each in sorted(decided, key=attrgetter("accuracy"), reverse=True):
        table.add_row(each.name, each.metric, shown(each.accuracy, ".2f"), str(each.num_pairs))
    console.print(
        "decision accuracy: the share of pairs of runs that stand in the order of their --larger "
        "runs; 0.5 is a coin's. What some runs have with other data, rules or limits is left out",
        soft_wrap=True,
    )
    console.print(table)


def print_subset(console: Console, chosen: Subset, name: str) -> None:
    table = table_of(
        ("task", "metric"), ("tokens", "signal/noise", "with those above"), gives_way=("metric",)
    )
    for each in chosen.chosen:
        ratios = [shown(each.signal_to_noise, ".2f"), shown(each.together, ".2f")]
        table.add_row(each.task, each.metric, f"{each.tokens:,}", *ratios)
    console.print(
        f"{len(chosen.chosen)} tasks of {chosen.tokens:,} unique tokens by their signal to noise; "
        f"with those above: of the mean of all so far, which for all tasks is "
        f"{shown(chosen.all_together, '.2f')}",
        soft_wrap=True,
    )
    console.print(table)
    console.print(f"written to {name}: eval --tasks=@{name}", soft_wrap=True)


def comparison_json(comparison: Comparison, seed: int | None = None) -> JsonObject:
    """`seed`: of the order in which `decided` is asked; None: it is not."""
    document: JsonObject = {
        "first": comparison.first.folder,
        "second": comparison.second.folder,
        "tasks": [
            {**_stated(each), "difference": _entry(each.difference)} for each in comparison.tasks
        ],
        "composites": [
            {**_stated(each), "paired": _entry(each.paired)} for each in comparison.composites
        ],
    }
    if seed is not None:
        keys = ("task", "examples", "of", "better")
        rows = decided_rows(comparison, seed)
        document |= {"decided": [dict(zip(keys, row, strict=True)) for row in rows]}
    document |= {"refused": dict(comparison.refused), "notes": list(comparison.notes)}
    return plain(document)


def _stated(each: TaskDifference | CompositeDifference) -> JsonObject:
    entry = asdict(each)
    if math.isnan(each.over_draws):
        entry.pop("over_draws")
    return entry


def _entry(difference: Difference) -> JsonObject:
    return {**asdict(difference), "detectable": difference.detectable}


def task_rows(comparison: Comparison) -> Iterator[list[str]]:
    """A heading, then a row for each difference."""
    yield [
        "task",
        "metric",
        "n",
        *_SIDES,
        "difference",
        "95 % interval",
        "p",
        "Holm",
        "detectable",
        "only 1st | 2nd",
    ]
    for task in comparison.tasks:
        paired = task.difference
        flips = f"{paired.only_first} | {paired.only_second}" if task.has_flips else ""
        yield [
            task.task,
            f"{task.metric} {LOWER}" if task.metric in LOWER_IS_BETTER else task.metric,
            str(paired.num_examples),
            *_differences(task.first, task.second, paired),
            _p(task.adjusted) + (MARK if task.adjusted < LEVEL else ""),
            shown(paired.detectable),
            flips,
        ]


def composite_rows(comparison: Comparison) -> Iterator[list[str]]:
    """A heading, then a row for each composite."""
    yield [
        "composite",
        *_SIDES,
        "difference",
        "95 % interval",
        "p",
        "detectable",
        "unpaired",
        SHARES,
    ]
    for composite in comparison.composites:
        yield [
            composite.name,
            *_differences(composite.first, composite.second, composite.paired),
            shown(composite.paired.detectable),
            shown(composite.unpaired_stderr),
            largest_shares(composite.shares),
        ]


def largest_shares(shares: Mapping[str, float]) -> str:
    """The tasks that most of a composite's variance comes from."""
    large = sorted(
        ((share, task) for task, share in shares.items() if share >= LARGE_SHARE), reverse=True
    )
    return ", ".join(f"{task.partition('/')[2]} {share:.0%}" for share, task in large[:4])


def _differences(first: float, second: float, paired: Difference) -> tuple[str, ...]:
    return (
        shown(first),
        shown(second),
        shown(paired.value, "+.4f"),
        interval_text(paired),
        _p(paired.p_value),
    )


def interval_text(paired: Difference) -> str:
    low, high = (shown(end, "+.4f") for end in paired.ci95)
    return low and f"{low} to {high}"


def difference_text(paired: Difference) -> str:
    """The difference with its interval; "" where it has no value."""
    value = shown(paired.value, "+.4f")
    ends = interval_text(paired)
    return f"{value} ({ends})" if ends else value


def _table_of(rows: Iterator[list[str]], num_names: int, num_texts: int = 0) -> NumberTable:
    head, *others = rows
    texts = len(head) - num_texts
    table = table_of(head[:num_names], head[num_names:texts], head[texts:], gives_way=GIVES_WAY)
    for row in others:
        table.add_row(*row)
    return table


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    yield (
        f"{MARK}: beyond chance at the level of {LEVEL:g}, all tasks' main metrics taken together "
        "(Holm), a composite by its own p-value; detectable: the smallest true difference that so "
        "many examples find four times in five"
    )
    if any(task.metric in LOWER_IS_BETTER for task in comparison.tasks):
        yield f"{LOWER} less is better"
    if comparison.composites:
        yield (
            "unpaired: the standard error of a composite's difference if the runs had other "
            "examples"
        )
    if any(task.is_main and task.has_flips for task in comparison.tasks):
        yield "right in one only, by row of the data file, from 0 (all of them: --json=FILE):"
    for task in comparison.tasks:
        if task.is_main and task.has_flips:
            yield f"  {task.task}: {_flips(task, comparison)}"
        if task.difference.num_undefined:
            yield (
                f"{task.task} {task.metric}: {task.difference.num_undefined} examples have no "
                "value in one of the runs"
            )
        if task.difference.num_examples and math.isnan(task.difference.stderr):
            yield (
                f"{task.task} {task.metric}: one example, or one cluster, has no deviation: no "
                "standard error"
            )
        elif task.is_main and task.difference.only_first == task.difference.only_second == 0:
            yield f"{task.task} {task.metric}: every example is the same in both runs"
    yield from _draws_lines(comparison)
    for name, why in comparison.refused.items():
        yield f"{name} is not compared: {why}"
    yield from comparison.notes


def _draws_lines(comparison: Comparison) -> Iterator[str]:
    """Which differences another draw of the shots might have turned."""
    known = [(each.name, each.paired.value, each.over_draws) for each in comparison.composites]
    known += [(each.task, each.difference.value, each.over_draws) for each in comparison.tasks]
    drawn = [each for each in known if each[2] > 0]
    if not drawn:
        return
    smaller = list[str]()
    for name, value, over_draws in drawn:
        if abs(value) < WITHIN * over_draws:
            smaller.append(f"{name} {value:+.4f} of {WITHIN * over_draws:.4f}")
    yield (
        f"could change sign with other few-shot examples (within {WITHIN:g} standard deviations "
        f"over draws): {', '.join(smaller) or 'none'}, of {len(drawn)} differences with draws"
    )


def _flips(task: TaskDifference, comparison: Comparison) -> str:
    sides = ((comparison.first.label, task.only_first), (comparison.second.label, task.only_second))
    return "; ".join(f"{label} {some_of(rows, MOST_ROWS)}" for label, rows in sides if rows)


def _p(value: float) -> str:
    return "<.0001" if value < 0.0001 else shown(value)
