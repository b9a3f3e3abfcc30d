"""Cloze tasks as a table.

Arrives: `TaskResult`s.  Leaves: a table.  It deliberately does not know how a metric is computed.
"""

from collections.abc import Mapping

from miron_jax.report.tables.console import NumberTable, table_of
from miron_jax.results.details import BY_TARGET_TOKENS, ClozeDetails, shown_with_error
from miron_jax.results.records import UNKNOWN, RunResult, TaskResult
from miron_jax.statistics.estimate import Estimate

HEADINGS = ("Levenshtein", "confidence", "bits/char", "bits/byte", "greedy exact", "contrast")
GIVES_WAY = ("Levenshtein", "confidence", "bits/byte", "bits/char", "contrast")


def cloze_of(run: RunResult) -> dict[str, TaskResult]:
    return {
        name: task for name, task in run.tasks.items() if isinstance(task.details, ClozeDetails)
    }


def cloze_table(tasks: Mapping[str, TaskResult]) -> NumberTable:
    """A table of every cloze task's categories and their macro mean."""
    table = table_of(("task", "category"), ("n", *HEADINGS), gives_way=GIVES_WAY)
    for name, task in tasks.items():
        assert isinstance(task.details, ClozeDetails)
        for category, group in task.groups.items():
            table.add_row(name, category, str(group.n), *_cells(group.metrics))
        table.add_row(
            name, "macro mean", str(task.n), *_cells(task.details.macro), end_section=True
        )
    return table


def _cells(metrics: Mapping[str, Estimate]) -> list[str]:
    return [shown_with_error(metrics.get(name, UNKNOWN)) for name in BY_TARGET_TOKENS]
