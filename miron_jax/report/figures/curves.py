"""Metrics over the steps of training runs.

Arrives: the `RunResult` of each step of each run.  Leaves: a figure, an SVG file.  It deliberately
does not know how numbers are made.
"""

import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.files.places import public
from miron_jax.files.store import Store
from miron_jax.report.figures.drawing import color, label
from miron_jax.report.tables.curves import LABELS, Curve, curves_of
from miron_jax.results.output import CURVES
from miron_jax.results.records import RunResult, TaskResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CHARS = 60  # of a name
COLUMNS = 3  # of panels: as many as a cloze task has metrics
WIDTH, HEIGHT = 4.2, 3.2  # of a panel and the margins around it, in inches

Steps = Mapping[int, RunResult]


class Line(NamedTuple):
    run: int  # among the runs
    name: str  # of the run, or of the category of the only run
    steps: Sequence[int]
    curve: Curve


Panels = Mapping[tuple[str, str], Sequence[Line]]  # by task and metric


def write_curves(config: RunConfig, results: Steps) -> str:
    """Write the picture of one run to its output folder; returns its path."""
    picture = io.BytesIO()
    draw_curves(results, picture)
    Store(config.output).put(CURVES, picture.getvalue())
    return f"{public(config.output)}/{CURVES}"


def draw_curves(results: Steps, file: IO[bytes]) -> None:
    """Write the figure of one run as an SVG, if there is a curve."""
    if (figure := curves_figure({"": results})) is not None:
        figure.savefig(file, format="svg", metadata={"Date": None})


def curves_figure(runs: Mapping[str, Steps]) -> "Figure | None":
    """A panel per task and metric that has a value, steps on a logarithmic axis; None without one.

    A line is a run with its 95 % interval, or a category of cloze items; chance is dashed, people
    are dotted.
    """
    panels = lines_of(runs)
    return _figure(runs, panels) if panels else None


def single_curves(runs: Mapping[str, Steps]) -> "Iterator[tuple[str, Figure]]":
    """Each panel of `curves_figure` as a figure, with its name."""
    for (task, metric), lines in lines_of(runs).items():
        yield f"{task} {metric}", _figure(runs, {(task, metric): lines})


def _figure(runs: Mapping[str, Steps], panels: Panels) -> "Figure":
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows))
    grid = figure.subplots(rows, columns, squeeze=False)
    # Places by hand: with matplotlib's constrained layout a picture of a hundred tasks takes twice
    # as long.
    figure.subplots_adjust(
        left=0.6 / WIDTH / columns,
        bottom=0.5 / HEIGHT / rows,
        right=1 - 0.15 / WIDTH / columns,
        top=1 - 0.35 / HEIGHT / rows,
        wspace=0.75 / (WIDTH - 0.75),
        hspace=0.85 / (HEIGHT - 0.85),
    )
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, ((task, metric), lines) in zip(grid.flat, panels.items(), strict=False):
        _draw(axes, lines, len(runs) > 1)
        last = (results[max(results)] for results in runs.values())
        of_task = next(result.tasks[task] for result in last if task in result.tasks)
        _draw_baselines(axes, of_task, metric)
        title = f"{label(task, MOST_CHARS)}: {LABELS.get(metric, metric)}"
        axes.set_title(title, fontsize=9, parse_math=False)
        axes.set_xlabel("training step", fontsize=8)
    _legend_once(grid)
    return figure


def lines_of(runs: Mapping[str, Steps]) -> Panels:
    """By task and metric, of those that have a value."""
    panels = defaultdict[tuple[str, str], list[Line]](list)
    for i, (name, results) in enumerate(runs.items()):
        for curve in curves_of(results):
            if set(curve.values) != {None}:
                shown = name if len(runs) > 1 else curve.category
                lines = panels[curve.task, curve.metric]
                lines.append(Line(i, shown, sorted(results), curve))
    return panels


def _draw(axes: Any, lines: Sequence[Line], are_runs: bool) -> None:
    drawn = set[str]()
    for line in lines:
        shade = color(line.run) if are_runs else None
        name = None if line.name in drawn else label(line.name, MOST_CHARS) or None
        drawn.add(line.name)
        values = line.curve.values
        style = {"marker": "o", "markersize": 3, "color": shade}
        axes.plot(line.steps, values, label=name, **style)
        if not line.curve.category:
            low, high = np.asarray([estimate.ci95 for estimate in line.curve.estimates]).T
            axes.fill_between(line.steps, low, high, alpha=0.15, color=shade, linewidth=0)
    axes.set_xscale("symlog", linthresh=1)  # linear below 1, for step 0
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:g}")
    axes.grid(alpha=0.3)


def _draw_baselines(axes: Any, task: TaskResult, metric: str) -> None:
    for value, style in ((task.chance(metric), "--"), (task.people(metric), ":")):
        if value is not None:
            axes.axhline(value, color="#7d8590", linestyle=style, linewidth=1)


def _legend_once(grid: np.ndarray) -> None:
    """In the first panel that has names."""
    for axes in grid.flat:
        if axes.get_legend_handles_labels()[1]:
            for text in axes.legend(fontsize=7).get_texts():
                text.set_parse_math(False)
            return
