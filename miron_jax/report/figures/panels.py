"""Tasks and their differences as points with intervals, a row each: one panel for each metric, so
that no axis has two units.

Arrives: `Run`s, a `Comparison`.  Leaves: figures of a column's width.  It deliberately computes no
statistic.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from miron_jax.metrics.properties import LOWER_IS_BETTER, PROPORTIONS
from miron_jax.report.compare.runs import Comparison
from miron_jax.report.compare.table import LOWER
from miron_jax.report.compare.verdicts import LEVEL
from miron_jax.report.figures.drawing import color, label, points_of
from miron_jax.results.records import TaskResult
from miron_jax.results.run_folder import Run
from miron_jax.statistics.paired import Difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 3.4  # of a column of a paper, in inches
ROW = 0.17  # inches
MARGINS = 0.75  # inches of a panel above and below its rows
SHIFT = 0.22  # rows between two runs
SIZE = 7  # of letters, in points
STYLE: Mapping[str, Any] = {"fmt": "o", "markersize": 3, "capsize": 1.5, "linewidth": 1}


def tasks_figure(runs: Sequence[Run]) -> "Figure | None":
    """The main metric of each task in each run with its 95 % interval; a bar is chance, a diamond
    is people."""
    panels = dict[str, dict[str, TaskResult]]()
    for run in runs:
        for name, task in run.tasks.items():
            if math.isfinite(task.main_estimate.value):
                panels.setdefault(task.main_metric, {}).setdefault(name, task)
    if not panels:
        return None
    figure, of_panels = _panels([*map(len, panels.values())])
    for axes, (metric, tasks) in zip(of_panels, panels.items(), strict=True):
        for i, run in enumerate(runs):
            points = points_of([run.result.metric(name, metric) for name in tasks])
            places = points.rows + SHIFT * (i - (len(runs) - 1) / 2)
            axes.errorbar(
                points.values,
                places,
                xerr=points.errors,
                color=color(i),
                label=label(run.label),
                **STYLE,
            )
        _mark(axes, {row: task.chance(metric) for row, task in enumerate(tasks.values())}, "|")
        _mark(axes, {row: task.people(metric) for row, task in enumerate(tasks.values())}, "D")
        _name_rows(axes, tasks, metric)
        if metric in PROPORTIONS:
            axes.set_xlim(0, 1)
    if len(runs) > 1:
        figure.legend(
            *of_panels[0].get_legend_handles_labels(), fontsize=SIZE, loc="outside upper left"
        )
    return figure


def comparison_figure(comparison: Comparison) -> "Figure | None":
    """Differences of composites and of tasks' main metrics, second less first, with their 95 %
    intervals; filled where they are beyond chance."""
    panels = dict[tuple[str, str], list[tuple[str, Difference, float]]]()
    for composite in comparison.composites:
        metric = _metric_of(comparison, composite.name)
        row = (composite.name, composite.paired, composite.paired.p_value)
        panels.setdefault(("composites", metric), []).append(row)
    for task in comparison.tasks:
        if task.is_main:
            row = (task.task, task.difference, task.adjusted)
            panels.setdefault(("tasks", task.metric), []).append(row)
    panels = {
        key: known
        for key, rows in panels.items()
        if (known := [row for row in rows if math.isfinite(row[1].value)])
    }
    if not panels:
        return None
    figure, of_panels = _panels([*map(len, panels.values())])
    for axes, ((_, metric), rows) in zip(of_panels, panels.items(), strict=True):
        points = points_of([paired for _, paired, _ in rows])
        axes.axvline(0, color="#7d8590", linewidth=0.8)
        axes.errorbar(
            points.values, points.rows, xerr=points.errors, color=color(0), mfc="white", **STYLE
        )
        beyond = [row for row, (_, _, p_value) in enumerate(rows) if p_value < LEVEL]
        axes.plot(points.values[beyond], beyond, "o", markersize=3, color=color(0), zorder=3)
        _name_rows(axes, [name for name, _, _ in rows], metric, "difference in ")
    return figure


def _metric_of(comparison: Comparison, name: str) -> str:
    suite, _, composite = name.partition(": ")
    result = comparison.second.result
    return result.metric_of(result.composite(suite, composite))


def _panels(rows: Sequence[int]) -> "tuple[Figure, list[Any]]":
    """A figure with a panel below another, as high as its rows take."""
    from matplotlib.figure import Figure

    heights = [MARGINS + ROW * count for count in rows]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    grid = figure.subplots(len(rows), 1, squeeze=False, height_ratios=heights)
    return figure, [*grid[:, 0]]


def _mark(axes: Any, values: Mapping[int, float | None], marker: str) -> None:
    known = {row: value for row, value in values.items() if value is not None}
    style = {"markersize": 5, "color": "#7d8590", "fillstyle": "none", "linestyle": "none"}
    axes.plot([*known.values()], [*known], marker=marker, **style)


def _name_rows(axes: Any, names: Iterable[str], metric: str, what: str = "") -> None:
    """Names without their suite, if all are of one."""
    shown = [*map(label, names)]
    suites = {name.partition("/")[0] for name in shown}
    if len(suites) == 1:
        shown = [name.partition("/")[2] or name for name in shown]
    axes.set_yticks(range(len(shown)), shown, fontsize=SIZE)
    axes.set_ylim(len(shown) - 0.4, -0.6)  # the first on top
    axes.tick_params(axis="x", labelsize=SIZE)
    axes.locator_params(axis="x", nbins=4)
    lower = f" {LOWER}" if metric in LOWER_IS_BETTER else ""
    axes.set_xlabel(f"{what}{metric}{lower}", fontsize=SIZE)
    axes.grid(axis="x", alpha=0.3)
