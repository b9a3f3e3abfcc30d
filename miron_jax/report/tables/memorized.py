"""Tests of whether a model knows test sets by heart, on screen and as JSON.

Arrives: `TaskTests`s.  Leaves: a rich table, sentences, a JSON object.  It deliberately computes
nothing.
"""

from collections.abc import Sequence

from rich.console import Console

from miron_jax.evaluation.memorized import TaskTests
from miron_jax.files.places import public
from miron_jax.files.readers import JsonObject
from miron_jax.report.numbers import interval, number
from miron_jax.report.tables.console import table_of

LEGEND = (
    "effect: how much higher than where the model has read neither; p: one-sided, of an effect so "
    "large by chance alone, p (Holm) of all these tests at once; docs/memorized.md says what each "
    "test can show"
)


def print_memorized(console: Console, tested: Sequence[TaskTests]) -> None:
    table = table_of(("task", "test"), ("n", "effect", "95 %", "p", "p (Holm)"), texts=("unit",))
    for task in tested:
        for each in task.tests:
            differs = each.difference
            table.add_row(
                task.task,
                each.test,
                str(differs.num_examples),
                number(differs.value, "none"),
                interval(differs.ci95),
                number(differs.p_value, "none"),
                number(each.holm, "none"),
                each.unit,
            )
    console.print(table)
    console.print(LEGEND, soft_wrap=True)
    for task in tested:
        for test, why in task.left_out.items():
            console.print(f"{task.task}: no {test} test, {why}", soft_wrap=True)


def memorized_json(model: str, tested: Sequence[TaskTests]) -> JsonObject:
    tasks = dict[str, JsonObject]()
    for task in tested:
        tests = dict[str, JsonObject]()
        for each in task.tests:
            differs = each.difference
            tests[each.test] = {
                "effect": differs.value,
                "unit": each.unit,
                "ci95": [*differs.ci95],
                "p_value": differs.p_value,
                "p_holm": each.holm,
                "n": differs.num_examples,
                "undefined": differs.num_undefined,
                "tokens": each.tokens,
            }
        more = {"rows": task.rows, "tokens": task.tokens, "left_out": task.left_out}
        tasks[task.task] = {**more, "tests": tests}
    return {"model": public(model), "tasks": tasks}
