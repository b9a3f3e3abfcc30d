"""Pictures of runs as inline SVG, which takes the page's colours.

Arrives: `Run`s.  Leaves: SVG texts with captions.  It deliberately does not know how a number is
made.
"""

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from miron_jax.errors import printable
from miron_jax.report.tables.cloze import cloze_of
from miron_jax.report.tables.curves import curves_figure, label_of
from miron_jax.report.tables.results import PARTIAL_COMPOSITE
from miron_jax.results.details import ClozeDetails, Drift
from miron_jax.results.records import UNKNOWN, CompositeResult, SuiteResult
from miron_jax.results.run_folder import Run
from miron_jax.statistics.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#010203"  # drawn in the text's colour of the page
COLORS = ("#2f81f7", "#d4761a", "#3a9d4c", "#b35bd8", "#d9435e", "#7d8590")
MOST_CHARS = 48
_SVG = "http://www.w3.org/2000/svg"
_STYLE: Any = {
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none", "svg.hashsalt": "miron", "text.parse_math": False, "font.size": 9,
    "figure.facecolor": "none", "axes.facecolor": "none", "legend.framealpha": 0.0,
    "savefig.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


class Picture(NamedTuple):
    svg: str
    caption: str


def pictures_of(runs: Sequence[Run]) -> list[Picture]:
    """The pictures that these runs have numbers for."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        return [Picture(inline_svg(figure, caption), caption) for figure, caption in _figures(runs)]


def _figures(runs: Sequence[Run]) -> Iterator[tuple["Figure", str]]:
    radar = _radar_spokes(runs)
    if len(radar.spokes) > 2:
        yield _radar(runs, radar.spokes), radar.caption
    for run in runs:
        steps = {step: of_step.result for step, of_step in run.steps().items()}
        if len(steps) > 1 and (figure := curves_figure(steps)) is not None:
            yield figure, f"{run.label}: over the steps of training."
    for task in cloze_of(runs[0].result):
        if (figure := _cloze(runs, task)) is not None:
            yield figure, f"{task}: by tokens of the target, and what noise in the prefix costs."


# Categories of one suite


class Radar(NamedTuple):
    spokes: Mapping[str, Sequence[float]]  # category -> its average in each run
    caption: str


def _radar_spokes(runs: Sequence[Run]) -> Radar:
    """The categories of the first suite that has partial composites.  A category is drawn where all
    runs average the same tasks of it, be they all of its tasks or not."""
    suites = runs[0].result.suites
    suite = next((suite for suite in suites if _has_partial(suites[suite])), None)
    if suite is None:
        return Radar({}, "")
    spokes = dict[str, list[float]]()
    partial = []
    unlike = []
    for name in suites[suite].composites:
        of_runs = [_whole_or_partial(run, suite, name) for run in runs]
        is_category = not name.startswith(PARTIAL_COMPOSITE) and "_average" not in name
        if not is_category or any(math.isnan(each.value) for each in of_runs):
            continue
        if any(each.weights.keys() != of_runs[0].weights.keys() for each in of_runs):
            unlike.append(name)
            continue
        spokes[name] = [each.value for each in of_runs]
        if not of_runs[0].complete:
            partial.append(f"{name} of {len(of_runs[0].weights)} tasks")
    caption = f"The categories of {suite}: averages of rescaled accuracies, 0 is chance."
    if partial:
        caption += f" Without some of their tasks: {', '.join(partial)}."
    if unlike:
        caption += f" Not drawn, as the runs have other tasks of them: {', '.join(unlike)}."
    return Radar(spokes, caption)


def _has_partial(suite: SuiteResult) -> bool:
    return any(name.startswith(PARTIAL_COMPOSITE) for name in suite.composites)


def _whole_or_partial(run: Run, suite: str, name: str) -> CompositeResult:
    composite = run.result.composite(suite, name)
    if math.isnan(composite.value):
        return run.result.composite(suite, PARTIAL_COMPOSITE + name)
    return composite


def _radar(runs: Sequence[Run], spokes: Mapping[str, Sequence[float]]) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5), layout="constrained")
    axes: Any = figure.add_subplot(projection="polar")
    angles = 2 * math.pi * np.arange(len(spokes)) / len(spokes)
    closed = [*angles, angles[0]]
    for i, (run, values) in enumerate(zip(runs, zip(*spokes.values(), strict=True), strict=True)):
        line = [*values, values[0]]
        axes.plot(closed, line, color=_color(i), label=_label(run.label), linewidth=1.5)
        axes.fill(closed, line, color=_color(i), alpha=0.15)
    axes.set_xticks(angles, [_label(name.replace("_", " ")) for name in spokes])
    axes.set_rlim(min(0.0, *map(min, spokes.values())), None)
    axes.grid(alpha=0.3)
    _legend(axes, runs)
    return figure


# MIRON: fragmentation and noise


def _cloze(runs: Sequence[Run], task: str) -> "Figure | None":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, run in enumerate(runs):
        details = getattr(run.tasks.get(task), "details", None)
        if not isinstance(details, ClozeDetails):
            continue
        bits = dict[str, float]()
        for name, means in details.fragmentation.by_target_tokens.items():
            value = means.get("bits_per_char", UNKNOWN).value
            if math.isfinite(value):
                bits[name] = value
        left.plot([*bits], [*bits.values()], marker="o", color=_color(i), label=_label(run.label))
        names = [name for name, each in details.drift.items() if math.isfinite(each.median_percent)]
        points = _points([details.drift[name] for name in names])
        places = points.rows + 0.25 * i
        style = {"fmt": "o", "markersize": 4, "capsize": 2}
        right.errorbar(points.values, places, xerr=points.errors, color=_color(i), **style)
        right.set_yticks(range(len(names)), [*map(_label, names)])
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


class _Points(NamedTuple):
    """The estimates that have a value."""

    rows: np.ndarray  # their places among all, int [n]
    values: np.ndarray  # float64 [n]
    errors: np.ndarray  # how far intervals reach below and above, 0 for none, float64 [2, n]


def _points(estimates: Sequence[Estimate | CompositeResult | Drift]) -> _Points:
    numbers = np.full((3, len(estimates)), math.nan)
    for row, each in enumerate(estimates):
        value = each.median_percent if isinstance(each, Drift) else each.value
        numbers[:, row] = (value, *(each.ci95 or (math.nan, math.nan)))
    rows = np.flatnonzero(np.isfinite(numbers[0]))
    values, low, high = numbers[:, rows]
    errors = np.asarray([values - low, high - values])
    return _Points(rows, values, np.where(np.isfinite(errors), np.maximum(errors, 0.0), 0.0))


def _color(i: int) -> str:
    return COLORS[i % len(COLORS)]


def _label(name: str) -> str:
    return label_of(name, MOST_CHARS)


def _legend(axes: Any, runs: Sequence[Run]) -> None:
    if len(runs) > 1:
        axes.legend(fontsize=8)


def inline_svg(figure: "Figure", caption: str) -> str:
    """The figure as an SVG element without style attributes, which the page's policy forbids.
    `caption`: what screen readers say in its place."""
    picture = io.BytesIO()
    figure.savefig(
        picture,
        format="svg",
        metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
    )
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
    root.set("aria-label", printable(caption))
    return re.sub(r"^<\?xml[^>]*\?>\s*", "", ElementTree.tostring(root, encoding="unicode"))


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    """The properties of a style attribute as attributes; `font: 9px 'Name'` is size and family."""
    for declaration in filter(None, map(str.strip, style.split(";"))):
        name, _, value = map(str.strip, declaration.partition(":"))
        if name == "font":
            size = re.search(r"([\d.]+px)", value)
            yield "font-size", size[1] if size else "9px"
            yield "font-family", "system-ui, sans-serif"
        else:
            yield name, value
