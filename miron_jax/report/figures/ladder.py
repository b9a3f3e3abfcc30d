"""The laws of a ladder: loss over sizes, accuracy over losses.

Arrives: a `Ladder`.  Leaves: a figure a task.  It deliberately fits nothing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from miron_jax.report.compare.ladder import Ladder, TaskLadder
from miron_jax.report.exports.pictures import file_name
from miron_jax.report.figures.all import Drawn
from miron_jax.report.figures.drawing import color, label
from miron_jax.statistics.estimate import Estimate
from miron_jax.statistics.scaling import forecast

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_POINTS = 60  # of a curve
PANEL = (3.4, 2.6)  # inches, of a column's width


def ladder_figures(ladder: Ladder) -> Iterator[Drawn]:
    from matplotlib.figure import Figure

    for task in ladder.tasks:
        panels = 1 if task.sigmoid is None else 2
        figure = Figure(figsize=(PANEL[0] * panels, PANEL[1]), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0]
        axes[0].set_title(label(task.task), fontsize=8, parse_math=False)
        _draw_losses(axes[0], ladder, task)
        if task.sigmoid is not None:
            _draw_accuracies(axes[1], task)
        yield Drawn(f"ladder_{file_name(task.task)}", figure, "")


def _draw_losses(axes: "Axes", ladder: Ladder, task: TaskLadder) -> None:
    """Runs, the law with the interval of one more run, forecasts."""
    sizes = [rung.size for rung in ladder.rungs]
    ends = [*sizes, *(each.size for each in task.forecasts)]
    places = np.geomspace(min(ends), max(ends), NUM_POINTS)
    curve = [forecast(float(size), task.law, None).loss for size in places]
    low, high = np.asarray([each.ci95 for each in curve]).T
    axes.plot(places, [each.value for each in curve], color=color(0), linewidth=1)
    axes.fill_between(places, low, high, color=color(0), alpha=0.15, linewidth=0)
    axes.plot(sizes, task.losses, "o", markersize=3, color=color(0))
    for each in task.forecasts:
        _draw_forecast(axes, each.size, each.loss)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:.0e}")  # the scale's is TeX
    axes.xaxis.set_minor_formatter(lambda *_: "")
    axes.set_xlabel(ladder.axis)
    axes.set_ylabel(task.metric)


def _draw_accuracies(axes: "Axes", task: TaskLadder) -> None:
    assert task.sigmoid is not None
    losses = [*task.losses, *(each.loss.value for each in task.forecasts)]
    places = np.linspace(min(losses), max(losses), NUM_POINTS)
    axes.plot(places, task.sigmoid.law.at(places), color=color(0), linewidth=1)
    axes.plot(task.losses, task.accuracies, "o", markersize=3, color=color(0))
    for each in task.forecasts:
        if each.accuracy is not None:
            _draw_forecast(axes, each.loss.value, each.accuracy)
    axes.invert_xaxis()
    axes.set_xlabel(task.metric)
    axes.set_ylabel(task.accuracy)


def _draw_forecast(axes: "Axes", place: float, estimate: Estimate) -> None:
    low, high = estimate.ci95
    axes.vlines(place, low, high, color=color(1), linewidth=1)
    axes.plot([place], [estimate.value], "D", markersize=3, color=color(1))
