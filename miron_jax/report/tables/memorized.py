"""Tests of whether a model knows test sets by heart, on screen and as JSON.

Arrives: `TaskTests`s.  Leaves: a rich table, sentences, a JSON object.  It deliberately computes
nothing.
"""

from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console

from miron_jax.errors import some_of
from miron_jax.evaluation.memorized import TaskTests
from miron_jax.files.places import public
from miron_jax.files.readers import JsonObject
from miron_jax.report.numbers import interval, number
from miron_jax.report.tables.console import table_of

LEGEND = (
    "effect: by how much the rows are better known than rows that no model has read, in nats a "
    "token or as the rank correlation of pairs (1: the row is higher in all); p: one-sided, of so "
    "large an effect by chance; p (Holm): over all tests here; docs/memorized.md says what each "
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
    left_out = defaultdict[str, list[str]](list)
    for task in tested:
        for test, why in task.left_out.items():
            left_out[f"no {test} test, {why}"].append(task.task)
    for why, names in left_out.items():
        console.print(f"{why}: {some_of(names, 3)}", soft_wrap=True)


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
