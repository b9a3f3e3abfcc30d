"""Scores under several draws of their few-shot examples, on screen.

Arrives: a run.  Leaves: a table.  It deliberately computes nothing.
"""

from collections.abc import Iterator

from miron_jax.report.numbers import shown
from miron_jax.report.tables.console import NumberTable, table_of
from miron_jax.results.records import Draws, RunResult

LEGEND = (
    "few-shot draws: spread is the standard deviation of a score from one draw of its shots to "
    "another; beside it where 95 % of draws lie, and the interval over examples of the first draw"
)


def draws_table(run: RunResult) -> NumberTable:
    """A row for each composite and task: its scores' range over the draws, and their spread beside
    the interval over examples."""
    table = table_of(
        ("few-shot draws",),
        ("mean", "lowest - highest", "spread", "95 % over draws", "95 % over examples"),
        gives_way=("lowest - highest",),
    )
    for name, draws, ends in _rows(run):
        if draws.scored_once:
            table.add_row(name, draws.scored_once, "", "", "", _interval(ends))
            continue
        lowest_and_highest = (min(draws.scores), max(draws.scores))
        table.add_row(
            name,
            shown(draws.mean, ".3f"),
            _interval(lowest_and_highest),
            shown(draws.spread, ".4f"),
            _interval(draws.estimate.ci95),
            _interval(ends),
        )
    return table


def _rows(run: RunResult) -> Iterator[tuple[str, Draws, tuple[float, float]]]:
    for of_suite in run.suites.values():
        for name, composite in of_suite.composites.items():
            if composite.draws is not None:
                yield name, composite.draws, composite.ci95 or (float("nan"), float("nan"))
    for name, task in run.tasks.items():
        if task.draws is not None:
            yield name, task.draws, task.main_estimate.ci95


def _interval(ends: tuple[float, float]) -> str:
    return f"{shown(ends[0], '.3f')} - {shown(ends[1], '.3f')}"
