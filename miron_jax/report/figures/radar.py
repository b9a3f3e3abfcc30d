"""The categories of a suite as a radar.

Arrives: `Run`s.  Leaves: a figure with its caption.  It deliberately does not know how a number is
made.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from miron_jax.report.figures.drawing import color, label, legend
from miron_jax.report.tables.results import PARTIAL_COMPOSITE
from miron_jax.results.records import CompositeResult, SuiteResult
from miron_jax.results.run_folder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Radar(NamedTuple):
    spokes: Mapping[str, Sequence[float]]  # category -> its average in each run
    caption: str


def radar_spokes(runs: Sequence[Run]) -> Radar:
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


def radar_figure(runs: Sequence[Run], spokes: Mapping[str, Sequence[float]]) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5), layout="constrained")
    axes: Any = figure.add_subplot(projection="polar")
    angles = 2 * math.pi * np.arange(len(spokes)) / len(spokes)
    closed = [*angles, angles[0]]
    for i, (run, values) in enumerate(zip(runs, zip(*spokes.values(), strict=True), strict=True)):
        line = [*values, values[0]]
        axes.plot(closed, line, color=color(i), label=label(run.label), linewidth=1.5)
        axes.fill(closed, line, color=color(i), alpha=0.15)
    axes.set_xticks(angles, [label(name.replace("_", " ")) for name in spokes])
    axes.set_rlim(min(0.0, *map(min, spokes.values())), None)
    axes.grid(alpha=0.3)
    legend(axes, runs)
    return figure
