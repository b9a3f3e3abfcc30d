"""The robustness report on screen.

Arrives: a run's results.json.  Leaves: a table per task on standard output.  It deliberately computes nothing.
"""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.report.console import table_of
from miron_jax.report.run_folder import Run


def is_robust(run: Run) -> bool:
    return any(task.get("robustness") for task in run.tasks.values())


def print_robustness(out: Console, run: Run) -> None:
    """Print every task's robustness report.  Raises InputError if the run has none."""
    if not is_robust(run):
        raise InputError(
            f"{run.folder}: none of its tasks tells how its questions are worded: run eval-ua-tion or eval-ua-tion-gen"
        )
    reported = {name: task for name, task in run.tasks.items() if task.get("robustness")}
    tables = [(_table(name, task["robustness"]), robustness_lines(task)) for name, task in reported.items()]
    for table, lines in tables:
        out.print(table)
        for line in lines:
            out.print(line, soft_wrap=True)


def robustness_rows(report: JsonObject) -> Iterator[list[str]]:
    """A heading, then a row for all examples and one for each value of each trait."""
    yield ["by", "", "n", report["main"], "stderr", f"of {report['cluster']} clusters", "clusters"]
    yield ["all", "", *_numbers(report["metrics"][report["main"]])]
    for trait, values in report["by"].items():
        for value, entry in values.items():
            yield [trait, value, *_numbers(entry)]


def _table(name: str, report: JsonObject) -> Table:
    head, *rows = robustness_rows(report)
    table = table_of(head[:2], head[2:])
    table.title, table.title_justify = f"{name}: {report['main']}", "left"
    before = "all"
    for trait, *cells in rows:
        if trait != before:
            table.add_section()
        table.add_row("" if trait == before != "all" else trait, *cells)
        before = trait
    return table


def _numbers(entry: JsonObject) -> tuple[str, ...]:
    numbers = [entry[name] for name in ("value", "stderr", "cluster_stderr")]
    return str(entry["n"]), *("" if number is None else f"{number:.3f}" for number in numbers), str(entry["clusters"])


def robustness_lines(task: JsonObject) -> list[str]:
    report, lines = task["robustness"], []
    others = [(name, entry) for name, entry in report["metrics"].items() if name != report["main"]]
    if numbers := [f"{name} {entry['value']:.3f}" for name, entry in others if entry["value"] is not None]:
        lines.append(f"beside it: {', '.join(numbers)}")
    if report.get("template_spread") is not None:
        lines.append(f"between its best and its worst template: {report['template_spread']:.3f}")
    if swapped := report.get("swapped"):
        lines.append(
            f"the same answer with the options in both orders: {swapped['consistency']:.3f} of {swapped['pairs']} pairs"
        )
    if reference := task.get("reference"):
        lines.append("published: " + ", ".join(f"{model} {value:.2f}" for model, value in reference.items()))
    baselines = [f"{name} {value:.3f}" for name, value in task["baselines"].items() if value is not None]
    return [*lines, f"baselines: {', '.join(baselines)}"]
