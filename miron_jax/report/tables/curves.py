"""Metrics over the checkpoints of a training run, and a table of them with small curves.

Arrives: the `RunResult` of each step.  Leaves: `Curve`s, a rich Table.  It deliberately does not
know how numbers are made.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from miron_jax.report.numbers import shown
from miron_jax.report.tables.console import NumberTable, table_of
from miron_jax.results.details import ClozeDetails
from miron_jax.results.records import UNKNOWN, Group, RunResult
from miron_jax.statistics.estimate import Estimate

NO_GROUP = Group(0, {})
BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
LABELS = {
    "greedy_exact": "greedy exact",
    "contrast_accuracy": "contrast",
    "bits_per_char": "bits/char",
}


class Curve(NamedTuple):
    """A metric of one category over the steps."""

    task: str
    category: str
    metric: str
    estimates: tuple[Estimate, ...]

    @property
    def values(self) -> tuple[float | None, ...]:
        values = (estimate.value for estimate in self.estimates)
        return tuple(value if math.isfinite(value) else None for value in values)


def curves_of(results: Mapping[int, RunResult]) -> list[Curve]:
    """The metrics of LABELS of every category of cloze tasks, other tasks' main metric."""
    last = results[max(results)]
    curves = []
    for name, task in last.tasks.items():
        of_steps = [results[step].tasks[name] for step in sorted(results)]
        if not isinstance(task.details, ClozeDetails):
            metrics = [step.metrics for step in of_steps]
            curves.append(Curve(name, "", task.main_metric, _estimates(metrics, task.main_metric)))
            continue
        for category in dict.fromkeys(group for step in of_steps for group in step.groups):
            groups = [step.groups.get(category, NO_GROUP).metrics for step in of_steps]
            for metric in LABELS:
                curves.append(Curve(name, category, metric, _estimates(groups, metric)))
    return curves


def curves_table(results: Mapping[int, RunResult]) -> NumberTable:
    """One row per category and metric: a column per step, and a curve of bars."""
    steps = [f"step {step}" for step in sorted(results)]
    gives_way = (*steps[1:-1], *steps[:-1][:1], "curve")  # the last step stays
    table = table_of(("task", "category", "metric"), [*steps, "curve"], gives_way=gives_way)
    before = ""
    for curve in curves_of(results):
        if before and before != curve.task + curve.category:
            table.add_section()
        before = curve.task + curve.category
        form = ".2f" if curve.metric == "bits_per_char" else ".3f"
        cells = [shown(value, form) for value in curve.values]
        label = LABELS.get(curve.metric, curve.metric)
        table.add_row(curve.task, curve.category, label, *cells, bars(curve.values))
    return table


def bars(values: Sequence[float | None]) -> str:
    """One block per value, scaled from the lowest to the highest; a dot for None."""
    known = [value for value in values if value is not None]
    low = min(known, default=0.0)
    high = max(known, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        "\u00b7" if value is None else BARS[round((value - low) * scale)] for value in values
    )


def _estimates(groups: Sequence[Mapping[str, Estimate]], name: str) -> tuple[Estimate, ...]:
    return tuple(group.get(name, UNKNOWN) for group in groups)
