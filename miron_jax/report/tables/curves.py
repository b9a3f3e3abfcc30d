"""Metrics over the checkpoints of a training run: a table with small curves, and a picture.

Arrives: the `RunResult` of each step.  Leaves: a rich Table, an SVG file.  It deliberately does not
know how numbers are made.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

from miron_jax.errors import printable
from miron_jax.report.numbers import shown
from miron_jax.report.tables.console import NumberTable, table_of
from miron_jax.results.details import ClozeDetails
from miron_jax.results.records import UNKNOWN, Group, RunResult
from miron_jax.statistics.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CHARS = 60  # of a name in the picture
COLUMNS = 3  # of panels: as many as a cloze task has metrics
WIDTH, HEIGHT = 4.2, 3.2  # of a panel and the margins around it, in inches
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
    values: tuple[float | None, ...]


def curves_of(results: Mapping[int, RunResult]) -> list[Curve]:
    """The metrics of LABELS of every category of cloze tasks, other tasks' main metric."""
    last = results[max(results)]
    curves = []
    for name, task in last.tasks.items():
        of_steps = [results[step].tasks[name] for step in sorted(results)]
        if not isinstance(task.details, ClozeDetails):
            metrics = [step.metrics for step in of_steps]
            curves.append(Curve(name, "", task.main_metric, _values(metrics, task.main_metric)))
            continue
        for category in dict.fromkeys(group for step in of_steps for group in step.groups):
            groups = [step.groups.get(category, NO_GROUP).metrics for step in of_steps]
            for metric in LABELS:
                curves.append(Curve(name, category, metric, _values(groups, metric)))
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


def draw_curves(results: Mapping[int, RunResult], file: IO[bytes]) -> None:
    """Write the picture as an SVG, if there is a curve."""
    if (figure := curves_figure(results)) is not None:
        figure.savefig(file, format="svg", metadata={"Date": None})


def curves_figure(results: Mapping[int, RunResult]) -> "Figure | None":
    """A panel per task and metric that has a value, a line per category, steps on a logarithmic
    axis; None without one."""
    from matplotlib.figure import Figure

    by_place = defaultdict[tuple[str, str], list[Curve]](list)
    for curve in curves_of(results):
        if set(curve.values) != {None}:
            by_place[curve.task, curve.metric].append(curve)
    steps = sorted(results)
    if not by_place:
        return None
    columns = min(COLUMNS, len(by_place))
    rows = -(-len(by_place) // columns)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows))
    panels = figure.subplots(rows, columns, squeeze=False)
    # Places by hand: with matplotlib's constrained layout a picture of a hundred tasks takes twice
    # as long.
    left = 0.6 / WIDTH / columns
    right = 0.15 / WIDTH / columns
    bottom = 0.5 / HEIGHT / rows
    top = 0.35 / HEIGHT / rows
    figure.subplots_adjust(
        left,
        bottom,
        1 - right,
        1 - top,
        wspace=0.75 / (WIDTH - 0.75),
        hspace=0.85 / (HEIGHT - 0.85),
    )
    for panel in panels.flat[len(by_place) :]:
        panel.set_axis_off()
    for panel, ((task, metric), curves) in zip(panels.flat, by_place.items(), strict=False):
        for curve in curves:
            label = label_of(curve.category) or None
            panel.plot(steps, curve.values, marker="o", markersize=3, label=label)
        panel.set_xscale("symlog", linthresh=1)  # linear below 1, for step 0
        panel.xaxis.set_major_formatter(lambda step, _: f"{step:g}")
        title = f"{label_of(task)}: {LABELS.get(metric, metric)}"
        panel.set_title(title, fontsize=9, parse_math=False)
        panel.set_xlabel("training step", fontsize=8)
        panel.grid(alpha=0.3)
    for panel in panels.flat:
        if panel.get_legend_handles_labels()[1]:
            for text in panel.legend(fontsize=7).get_texts():
                text.set_parse_math(False)
            break
    return figure


def label_of(name: str, most: int = MOST_CHARS) -> str:
    """A name in a picture; matplotlib hides labels that begin with an underscore."""
    label = printable(name, most)
    return f" {label}" if label.startswith("_") else label


def _values(groups: Sequence[Mapping[str, Estimate]], name: str) -> tuple[float | None, ...]:
    values = (group.get(name, UNKNOWN).value for group in groups)
    return tuple(value if math.isfinite(value) else None for value in values)
