"""Results of a training run's checkpoints -> what was learned when: a table with small curves, and a picture.

Arrives: results.json of each step.  Leaves: a rich Table, an SVG file.  It deliberately does not know how a number is made.
"""

from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

from rich.table import Table

from miron_jax.errors import printable

MOST_SHOWN = 60  # characters of a name in the picture
BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
SHOWN = (
    ("greedy_exact", "greedy exact, %", 100.0),
    ("contrast_accuracy", "contrast, %", 100.0),
    ("bits_per_char", "bits/char", 1.0),
)


class Curve(NamedTuple):
    """One number of one category over the steps."""

    task: str
    category: str
    metric: str
    values: tuple[float | None, ...]


def curves_of(results: Mapping[int, Mapping[str, Any]]) -> list[Curve]:
    """Every category of every cloze task, for the metrics shown; choice tasks have accuracy alone."""
    last = results[max(results)]
    found = []
    for task, entry in last["tasks"].items():
        every = [own["tasks"][task] for _, own in sorted(results.items())]
        if "macro" in entry:  # its categories stand for themselves
            for category in dict.fromkeys(name for own in every for name in own["groups"]):
                groups = [own["groups"].get(category, {}).get("metrics", {}) for own in every]
                found += [Curve(task, category, name, _values(groups, name, scale)) for name, _, scale in SHOWN]
        else:
            found.append(Curve(task, "", "accuracy", _values([own["metrics"] for own in every], "accuracy", 100.0)))
    return found


def curves_table(results: Mapping[int, Mapping[str, Any]]) -> Table:
    """A row a category and metric, a column a step, and a bar a step at the end."""
    table = Table(title=None, header_style="bold")
    for name in ("task", "category", "metric"):
        table.add_column(name, no_wrap=True)
    for step in sorted(results):
        table.add_column(f"step {step}", justify="right", no_wrap=True)
    table.add_column("curve", no_wrap=True)
    names, before = {name: label for name, label, _ in SHOWN}, ""
    for curve in curves_of(results):
        if before and before != curve.task + curve.category:
            table.add_section()
        before = curve.task + curve.category
        cells = ["" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}" for value in curve.values]
        table.add_row(curve.task, curve.category, names.get(curve.metric, curve.metric), *cells, bars(curve.values))
    return table


def bars(values: Sequence[float | None]) -> str:
    """One block a value, from the lowest to the highest of them; a dot where there is none."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join("\u00b7" if value is None else BARS[round((value - low) * scale)] for value in values)


def draw_curves(results: Mapping[int, Mapping[str, Any]], file: IO[bytes]) -> None:
    """A panel a task and metric, a line a category, steps on a logarithmic axis; SVG."""
    from matplotlib.figure import Figure

    curves, steps = curves_of(results), sorted(results)
    tasks = list(dict.fromkeys(curve.task for curve in curves))
    metrics = list(dict.fromkeys(curve.metric for curve in curves))
    if not curves:
        return
    figure = Figure(figsize=(4.2 * len(metrics), 3.2 * len(tasks)), layout="constrained")
    panels = figure.subplots(len(tasks), len(metrics), squeeze=False)
    labels = {name: label for name, label, _ in SHOWN}
    for i, task in enumerate(tasks):
        for j, metric in enumerate(metrics):
            panel = panels[i][j]
            for curve in (own for own in curves if (own.task, own.metric) == (task, metric)):
                panel.plot(steps, curve.values, marker="o", markersize=3, label=_label(curve.category))
            panel.set_xscale("symlog", linthresh=1)  # a step 0 has its place
            title = f"{_label(task)}: {labels.get(metric, metric)}"
            panel.set_title(title, fontsize=9, parse_math=False)
            panel.set_xlabel("training step", fontsize=8)
            panel.grid(alpha=0.3)
    if panels[0][0].get_legend_handles_labels()[1]:
        for text in panels[0][0].legend(fontsize=7).get_texts():
            text.set_parse_math(False)
    figure.savefig(file, format="svg", metadata={"Date": None})


def _label(name: str) -> str | None:
    """A name in the picture; matplotlib would hide one that begins with an underscore."""
    shown = printable(name, MOST_SHOWN)
    return f" {shown}" if shown.startswith("_") else shown or None


def _values(groups: Sequence[Mapping[str, Any]], name: str, scale: float) -> tuple[float | None, ...]:
    found = [group.get(name, {}).get("value") for group in groups]
    return tuple(None if value is None else value * scale for value in found)
