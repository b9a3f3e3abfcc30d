"""The numbers of runs as Markdown and CSV.

Arrives: `Run`s.  Leaves: texts.  It deliberately computes nothing.
"""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from miron_jax.errors import printable
from miron_jax.files.readers import JsonObject
from miron_jax.report.run_folder import Run, main_of

COLUMNS = ("value", "stderr", "low", "high", "n", "chance", "human")


def numbers_of(run: Run) -> Iterator[tuple[str, str, list[float | None]]]:
    """(task, metric, COLUMNS), each task's metrics in their order."""
    for name, task in run.tasks.items():
        for metric, entry in task["metrics"].items():
            low, high = entry.get("ci95") or (None, None)
            is_accuracy = metric == "accuracy"
            baselines = [task["baselines"].get(key) if is_accuracy else None for key in ("random", "human")]
            yield name, metric, [entry["value"], entry["stderr"], low, high, entry.get("n", task["n"]), *baselines]


def composites_of(runs: Sequence[Run]) -> dict[str, list[JsonObject]]:
    """ "suite: name" -> its entry in each run; an empty one where a run lacks it."""
    suites = [run.results["suites"] for run in runs]
    names = dict.fromkeys(
        (suite, name) for own in suites for suite, entry in own.items() for name in entry["composites"]
    )
    return {
        f"{suite}: {name}": [own.get(suite, {}).get("composites", {}).get(name) or {} for own in suites]
        for suite, name in names
    }


def csv_of(runs: Sequence[Run]) -> str:
    """A row for each number: composites under the task "suite: name"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("run", "step", "task", "metric", *COLUMNS))
    for i, run in enumerate(runs):
        for name, entries in composites_of(runs).items():
            low, high = entries[i].get("ci95") or (None, None)
            numbers = entries[i].get("value"), entries[i].get("stderr"), low, high, None, None, None
            writer.writerow((run.label, run.step, name, "composite", *map(_exact, numbers)))
        for task, metric, numbers in numbers_of(run):
            writer.writerow((run.label, run.step, task, metric, *map(_exact, numbers)))
    return text.getvalue()


def markdown_of(runs: Sequence[Run]) -> str:
    """Composites, then each task's main metric, a column a run."""
    lines = [f"# {_escaped(' and '.join(run.label for run in runs))}", ""]
    if composites := composites_of(runs):
        rows = [[name, *(_with_interval(own) for own in entries)] for name, entries in composites.items()]
        lines += _table(["composite", *(run.label for run in runs)], rows)
    tasks = dict.fromkeys(name for run in runs for name in run.tasks)
    rows = []
    for name in tasks:
        entries = [run.tasks.get(name) for run in runs]
        known = next(entry for entry in entries if entry is not None)
        metric = main_of(known)
        numbers = [_with_interval((entry or {}).get("metrics", {}).get(metric, {})) for entry in entries]
        rows.append([name, str(known["n"]), metric, *numbers, number(known["baselines"].get("random"))])
    lines += _table(["task", "n", "metric", *(run.label for run in runs), "chance"], rows)
    return "\n".join(lines)


def number(value: float | None, otherwise: str = "") -> str:
    if value is None or not math.isfinite(value):
        return otherwise
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def interval(bounds: Sequence[float | None] | None) -> str:
    return "" if not bounds or None in bounds else f"{number(bounds[0])} to {number(bounds[1])}"


def _with_interval(entry: JsonObject) -> str:
    value, bounds = number(entry.get("value"), "none"), interval(entry.get("ci95"))
    return f"{value} ({bounds})" if bounds else value


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table with an empty line behind it."""
    return [*(f"| {' | '.join(map(_escaped, row))} |" for row in (head, ["---"] * len(head), *rows)), ""]


def _escaped(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("<", "&lt;")


def _exact(value: float | None) -> str:
    return "" if value is None else repr(value)
