"""The numbers of runs as Markdown and CSV.

Arrives: `Run`s.  Leaves: texts.  It deliberately computes nothing.
"""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from miron_jax.errors import printable
from miron_jax.report.numbers import number, with_interval
from miron_jax.results.records import CompositeResult
from miron_jax.results.run_folder import Run

COLUMNS = ("value", "stderr", "low", "high", "n", "chance", "human")


def numbers_of(run: Run) -> Iterator[tuple[str, str, list[float | None]]]:
    """(task, metric, COLUMNS), each task's metrics in their order, then those of each category:
    "task: category"."""
    for name, task in run.tasks.items():
        for metric, estimate in task.metrics.items():
            baselines = [None, None]
            if metric == "accuracy":
                baselines = [task.baselines.get("random"), task.baselines.get("human")]
            n = estimate.num_examples
            yield name, metric, [estimate.value, estimate.stderr, *estimate.ci95, n, *baselines]
        for category, group in task.groups.items():
            for metric, estimate in group.metrics.items():
                numbers = [estimate.value, estimate.stderr, *estimate.ci95, estimate.num_examples]
                yield f"{name}: {category}", metric, [*numbers, None, None]


def composites_of(runs: Sequence[Run]) -> dict[str, list[CompositeResult]]:
    """ "suite: name" -> the composite of each run; an undefined one where a run lacks it."""
    composites = dict[str, list[CompositeResult]]()
    for of_run in runs:
        for suite, result in of_run.result.suites.items():
            for name in result.composites:
                of_runs = [run.result.composite(suite, name) for run in runs]
                composites.setdefault(f"{suite}: {name}", of_runs)
    return composites


def csv_of(runs: Sequence[Run]) -> str:
    """A row for each number: composites under the task "suite: name"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("run", "step", "task", "metric", *COLUMNS))
    for i, run in enumerate(runs):
        step = run.result.step
        for name, of_runs in composites_of(runs).items():
            composite = of_runs[i]
            bounds = composite.ci95 or (None, None)
            numbers = (composite.value, composite.stderr, *bounds, None, None, None)
            writer.writerow((run.label, step, name, "composite", *map(_exact, numbers)))
        for task, metric, numbers in numbers_of(run):
            writer.writerow((run.label, step, task, metric, *map(_exact, numbers)))
    return text.getvalue()


def markdown_of(runs: Sequence[Run]) -> str:
    """Composites, then each task's main metric, a column a run."""
    labels = [run.label for run in runs]
    lines = [f"# {_escaped(' and '.join(labels))}", ""]
    composites = composites_of(runs)
    if composites:
        rows = [[name, *map(with_interval, of_runs)] for name, of_runs in composites.items()]
        lines += _table(["composite", *labels], rows)
    rows = []
    for name in dict.fromkeys(name for run in runs for name in run.tasks):
        known = next(run.tasks[name] for run in runs if name in run.tasks)
        metric = known.main_metric
        numbers = [with_interval(run.result.metric(name, metric)) for run in runs]
        rows.append([name, str(known.n), metric, *numbers, number(known.baselines.get("random"))])
    lines += _table(["task", "n", "metric", *labels, "chance"], rows)
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table with an empty line behind it."""
    lines = (head, ["---"] * len(head), *rows)
    return [*(f"| {' | '.join(map(_escaped, row))} |" for row in lines), ""]


def _escaped(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("<", "&lt;")


def _exact(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return repr(value)
