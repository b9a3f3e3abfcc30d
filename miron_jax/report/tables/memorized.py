"""Tests of whether a model knows test sets by heart, on screen.

Arrives: `TaskTests`.  Leaves: a rich table, sentences.  It deliberately computes nothing.
"""

from collections.abc import Sequence

from rich.console import Console

from miron_jax.evaluation.memorized import TaskTests
from miron_jax.report.numbers import interval, number
from miron_jax.report.tables.console import table_of

LEGEND = (
    "effect: by how much the rows are better known than rows that no model has read, in nats a "
    "token or as the rank correlation of pairs (1: the row is higher in all); p: one-sided, of so "
    "large an effect by chance; p (Holm): over all tests here; those of twins hold where row and "
    "twin are exchangeable: a less probable wording makes a clean model look like a reader; "
    "docs/memorized.md says what each test can show"
)


def print_memorized(console: Console, tested: Sequence[TaskTests]) -> None:
    table = table_of(("task", "test"), ("n", "effect", "95 %", "p", "p (Holm)"), ("unit",))
    for task in tested:
        for each in task.tests:
            differs = each.difference
            effect = (str(differs.num_examples), number(differs.value), interval(differs.ci95))
            p_values = (number(differs.p_value), number(each.holm))
            table.add_row(task.task, each.test, *effect, *p_values, each.unit)
    console.print(table)
    console.print(LEGEND, soft_wrap=True)
    for task in tested:
        for test, why in task.left_out.items():
            console.print(f"{task.task}: no {test} test, {why}", soft_wrap=True)
