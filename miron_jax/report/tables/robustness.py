"""The robustness report on screen.

Arrives: a run.  Leaves: a table per task on standard output.  It deliberately computes nothing.
"""

import math
from collections.abc import Iterator

from rich.console import Console

from miron_jax.errors import InputError
from miron_jax.report.numbers import shown
from miron_jax.report.tables.console import NumberTable, table_of
from miron_jax.results.records import TaskResult
from miron_jax.results.run_folder import Run
from miron_jax.statistics.robustness import ClusterEstimate, Robustness


def is_robust(run: Run) -> bool:
    return any(task.robustness for task in run.tasks.values())


def print_robustness(out: Console, run: Run) -> None:
    """Print every task's robustness report.  Raises InputError if the run has none."""
    if not is_robust(run):
        raise InputError(
            f"{run.folder}: none of its tasks tells how its questions are worded: run eval-ua-tion "
            "or eval-ua-tion-gen, or name cluster and traits in a task of your own"
        )
    for name, task in run.tasks.items():
        if task.robustness:
            out.print(_table(name, task.robustness))
            for line in robustness_lines(task):
                out.print(line, soft_wrap=True)


def robustness_rows(report: Robustness) -> Iterator[list[str]]:
    """A heading, then a row for all examples and one for each value of each trait."""
    yield ["by", "", "n", report.main, "stderr", f"of {report.cluster} clusters", "clusters"]
    if report.main in report.metrics:
        yield ["all", "", *_numbers(report.metrics[report.main])]
    for trait, values in report.by.items():
        for value, estimate in values.items():
            yield [trait, value, *_numbers(estimate)]


def _table(name: str, report: Robustness) -> NumberTable:
    head, *rows = robustness_rows(report)
    table = table_of(head[:2], head[2:], gives_way=head[-1:])
    table.title = f"{name}: {report.main}"
    before = "all"
    for trait, *cells in rows:
        if trait != before:
            table.add_section()
        table.add_row("" if trait == before != "all" else trait, *cells)
        before = trait
    return table


def _numbers(estimate: ClusterEstimate) -> tuple[str, ...]:
    numbers = (estimate.value, estimate.stderr, estimate.cluster_stderr)
    return (str(estimate.n), *(shown(each, ".3f") for each in numbers), str(estimate.clusters))


def robustness_lines(task: TaskResult) -> list[str]:
    report = task.robustness
    assert report is not None
    lines = []
    numbers = []
    for name, estimate in report.metrics.items():
        if name != report.main and not math.isnan(estimate.value):
            numbers.append(f"{name} {estimate.value:.3f}")
    if numbers:
        lines.append(f"beside it: {', '.join(numbers)}")
    spread = report.template_spread
    if spread is not None and not math.isnan(spread):
        lines.append(f"between its best and its worst template: {spread:.3f}")
    swapped = report.swapped
    if swapped:
        lines.append(
            f"the same answer with the options in both orders: {swapped.consistency:.3f} of "
            f"{swapped.pairs} pairs"
        )
    if task.reference:
        lines.append(
            "published: "
            + ", ".join(f"{model} {value:.2f}" for model, value in task.reference.items())
        )
    baselines = [
        f"{name} {value:.3f}" for name, value in task.baselines.items() if value is not None
    ]
    return [*lines, f"baselines: {', '.join(baselines)}"]
