"""Pictures of runs as inline SVG, which takes the page's colours.

Arrives: `Run`s.  Leaves: SVG texts with captions.  It deliberately does not know how a number is made.
"""

import io
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from miron_jax.errors import printable
from miron_jax.files.readers import JsonObject
from miron_jax.report.curves import curves_figure
from miron_jax.report.flat import composites_of
from miron_jax.report.run_folder import Run, main_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#010203"  # drawn in the text's colour of the page
COLORS = ("#2f81f7", "#d4761a", "#3a9d4c", "#b35bd8", "#d9435e", "#7d8590")
MOST_BARS, MOST_CHARS = 60, 48
_SVG = "http://www.w3.org/2000/svg"
_STYLE: Any = {
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "svg.fonttype": "none", "svg.hashsalt": "miron", "text.parse_math": False, "font.size": 9,
    "figure.facecolor": "none", "axes.facecolor": "none", "legend.framealpha": 0.0, "savefig.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


class Picture(NamedTuple):
    svg: str
    caption: str


def pictures_of(runs: Sequence[Run]) -> list[Picture]:
    """The pictures that these runs have numbers for."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        return [Picture(inline_svg(figure), caption) for figure, caption in _figures(runs)]


def _figures(runs: Sequence[Run]) -> Iterator[tuple["Figure", str]]:
    if rows := _composites(runs):
        yield _intervals(runs, rows), "Composites with 95 % intervals."
    if spokes := _radar_spokes(runs):
        yield _radar(runs, spokes), "The Gauntlet's categories: averages of rescaled accuracies, 0 is chance."
    if tasks := _tasks_with_chance(runs):
        caption = "Accuracy beside chance (line) and people (diamond); 95 % intervals."
        yield _bars(runs, tasks), caption + (f" The first {MOST_BARS} tasks." if len(tasks) > MOST_BARS else "")
    for run in runs:
        steps = {step: own.results for step, own in run.steps().items()}
        if len(steps) > 1 and (figure := curves_figure(steps)) is not None:
            yield figure, f"{run.label}: over the steps of training."
    for task in [name for name in runs[0].tasks if "drift" in runs[0].tasks[name]]:
        if (figure := _cloze(runs, task)) is not None:
            yield figure, f"{task}: by tokens of the target, and what noise in the prefix costs."


# Composites


def _composites(runs: Sequence[Run]) -> dict[str, list[JsonObject]]:
    """Those with a value in a run."""
    entries = composites_of(runs).items()
    return {name: own for name, own in entries if any(entry.get("value") is not None for entry in own)}


def _intervals(runs: Sequence[Run], rows: dict[str, list[JsonObject]]) -> "Figure":
    figure, axes = _new(7.5, 0.8 + 0.28 * len(rows) * (0.6 + 0.4 * len(runs)))
    for i, run in enumerate(runs):
        points = [(row, entry[i]) for row, entry in enumerate(rows.values()) if entry[i].get("value") is not None]
        values = [entry["value"] for _, entry in points]
        bounds = [_bounds(entry) for _, entry in points]
        errors = [
            [max(0.0, value - low) for value, (low, _) in zip(values, bounds, strict=True)],
            [max(0.0, high - value) for value, (_, high) in zip(values, bounds, strict=True)],
        ]
        places = [row + 0.6 * (i - (len(runs) - 1) / 2) / len(runs) for row, _ in points]
        axes.errorbar(
            values, places, xerr=errors, fmt="o", markersize=4, capsize=2, color=_color(i), label=_label(run.label)
        )
    axes.set_yticks(range(len(rows)), [_label(name) for name in rows])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.25)
    _legend(axes, runs)
    return figure


# The Gauntlet's radar


def _radar_spokes(runs: Sequence[Run]) -> dict[str, list[float]]:
    """Category of the Gauntlet -> its average in each run, a partial one where tasks are missing; {} for less than three."""
    spokes: dict[str, list[float]] = {}
    suites = [name for name in runs[0].results["suites"] if "gauntlet" in name]
    for suite in suites[:1]:
        composites = [run.results["suites"].get(suite, {}).get("composites", {}) for run in runs]
        for name in composites[0]:
            if name.startswith("partial_") or name.startswith(("core_average", "lm_task_average", "default_average")):
                continue
            values = [_first_value(own.get(name), own.get(f"partial_{name}")) for own in composites]
            if not any(math.isnan(value) for value in values):
                spokes[name] = values
    return spokes if len(spokes) > 2 else {}


def _first_value(*entries: Any) -> float:
    return next((entry["value"] for entry in entries if entry and entry.get("value") is not None), math.nan)


def _radar(runs: Sequence[Run], spokes: dict[str, list[float]]) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5), layout="constrained")
    axes: Any = figure.add_subplot(projection="polar")
    angles = [2 * math.pi * i / len(spokes) for i in range(len(spokes))]
    for i, run in enumerate(runs):
        values = [own[i] for own in spokes.values()]
        axes.plot([*angles, angles[0]], [*values, values[0]], color=_color(i), label=_label(run.label), linewidth=1.5)
        axes.fill([*angles, angles[0]], [*values, values[0]], color=_color(i), alpha=0.15)
    axes.set_xticks(angles, [_label(name.replace("_", " ")) for name in spokes])
    lowest = min(0.0, *(value for own in spokes.values() for value in own))
    axes.set_rlim(lowest, None)
    axes.grid(alpha=0.3)
    _legend(axes, runs)
    return figure


# Tasks beside chance and people


def _tasks_with_chance(runs: Sequence[Run]) -> list[str]:
    return [
        name
        for name, task in runs[0].tasks.items()
        if main_of(task) == "accuracy" and task["metrics"].get("accuracy", {}).get("value") is not None
    ]


def _bars(runs: Sequence[Run], tasks: Sequence[str]) -> "Figure":
    tasks = tasks[:MOST_BARS]
    figure, axes = _new(7.5, 0.9 + 0.22 * len(tasks) * (0.6 + 0.4 * len(runs)))
    height = 0.8 / len(runs)
    for i, run in enumerate(runs):
        there = [(row, run.tasks[name]["metrics"]["accuracy"]) for row, name in enumerate(tasks) if name in run.tasks]
        there = [(row, entry) for row, entry in there if entry["value"] is not None]
        values = [entry["value"] for _, entry in there]
        bounds = [_bounds(entry) for _, entry in there]
        errors = [
            [value - low for value, (low, _) in zip(values, bounds, strict=True)],
            [high - value for value, (_, high) in zip(values, bounds, strict=True)],
        ]
        places = [row - 0.4 + height * (i + 0.5) for row, _ in there]
        style = {"ecolor": INK, "elinewidth": 0.8}
        axes.barh(
            places, values, height, xerr=errors, color=_color(i), alpha=0.8, label=_label(run.label), error_kw=style
        )
    for row, name in enumerate(tasks):
        baselines = runs[0].tasks[name]["baselines"]
        if baselines.get("random") is not None:
            axes.plot([baselines["random"]] * 2, [row - 0.45, row + 0.45], color=INK, linewidth=1.2)
        if baselines.get("human") is not None:
            axes.plot([baselines["human"]], [row], marker="D", markersize=4, color=INK, linestyle="none")
    axes.set_yticks(range(len(tasks)), [_label(name) for name in tasks])
    axes.set_xlim(0, 1)
    axes.set_ylim(len(tasks) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.25)
    _legend(axes, runs)
    return figure


# MIRON: fragmentation and noise


def _cloze(runs: Sequence[Run], task: str) -> "Figure | None":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, run in enumerate(runs):
        entry = run.tasks.get(task, {})
        tokens = entry.get("fragmentation", {}).get("by_target_tokens", {})
        bits = {name: own.get("bits_per_char", {}).get("value") for name, own in tokens.items()}
        known = {name: value for name, value in bits.items() if value is not None}
        left.plot(list(known), list(known.values()), marker="o", color=_color(i), label=_label(run.label))
        drift = {name: own for name, own in entry.get("drift", {}).items() if own.get("median_percent") is not None}
        values = [own["median_percent"] for own in drift.values()]
        errors = [
            [max(0.0, own["median_percent"] - own["ci95"][0]) for own in drift.values()],
            [max(0.0, own["ci95"][1] - own["median_percent"]) for own in drift.values()],
        ]
        places = [row + 0.25 * i for row in range(len(drift))]
        right.errorbar(values, places, xerr=errors, fmt="o", markersize=4, capsize=2, color=_color(i))
        right.set_yticks(range(len(drift)), [_label(name) for name in drift])
    left.set_xlabel("tokens of the target")
    left.set_ylabel("bits per character")
    right.set_xlabel("per cent of P(target) lost, median")
    right.invert_yaxis()
    _legend(left, runs)
    return figure


# Drawing


def _new(width: float, height: float) -> tuple["Figure", Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _bounds(entry: JsonObject) -> tuple[float, float]:
    """The interval; the value alone where there is none."""
    low, high = entry.get("ci95") or (None, None)
    return (entry["value"], entry["value"]) if low is None or high is None else (low, high)


def _color(i: int) -> str:
    return COLORS[i % len(COLORS)]


def _label(name: str) -> str:
    """matplotlib hides labels that begin with an underscore."""
    label = printable(name, MOST_CHARS)
    return f" {label}" if label.startswith("_") else label


def _legend(axes: Any, runs: Sequence[Run]) -> None:
    if len(runs) > 1:
        axes.legend(fontsize=8)


def inline_svg(figure: "Figure") -> str:
    """The figure as an SVG element without style attributes, which the page's policy forbids."""
    picture = io.BytesIO()
    figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(picture.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}style", f"{{{_SVG}}}metadata"):
                parent.remove(child)
        for name, value in _declarations(parent.attrib.pop("style", "")):
            parent.set(name, value)
        for name, value in parent.attrib.items():
            if value == INK:
                parent.set(name, "currentColor")
    root.set("stroke-linejoin", "round")
    root.set("stroke-linecap", "butt")
    root.set("role", "img")
    return re.sub(r"^<\?xml[^>]*\?>\s*", "", ElementTree.tostring(root, encoding="unicode"))


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    """The properties of a style attribute as attributes; `font: 9px 'Name'` is size and family."""
    for declaration in filter(None, (part.strip() for part in style.split(";"))):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":
            size = re.search(r"([\d.]+px)", value)
            yield "font-size", size[1] if size else "9px"
            yield "font-family", "system-ui, sans-serif"
        else:
            yield name, value
