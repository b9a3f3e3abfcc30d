"""Scores of several models against what their training or a token of them costs.

Arrives: `Run`s.  Leaves: points, a figure with its caption.  It deliberately does not know how a
number is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from miron_jax.report.figures.drawing import color, label, points_of
from miron_jax.report.tables.results import PARTIAL_COMPOSITE
from miron_jax.results.records import CompositeResult, Weights
from miron_jax.results.run_folder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 6
MOST_TICKS = 4  # the costs themselves; of more the ends
PANEL = (3.4, 2.8)  # inches
# of training: forward and backward (Kaplan et al. 2020, arXiv 2001.08361, table 1)
PASSES_IN_TRAINING = 3


@dataclass(frozen=True, slots=True)
class Costs:
    name: str  # of the axis
    of_run: Sequence[float]

    @property
    def differ(self) -> bool:
        return len(set(self.of_run)) > 1


def costs_of(runs: Sequence[Run]) -> Costs | None:
    """Training FLOPs where every run says its tokens, else FLOPs a token, else parameters; None:
    some run says none of them."""
    weights = [run.result.checkpoint for run in runs]
    axes = {
        "training FLOPs": _training_flops,
        "FLOPs a token, forward": lambda each: each.flops_per_token or 0.0,
        "parameters": lambda each: float(each.num_parameters),
    }
    for name, cost_of in axes.items():
        costs = [cost_of(each) for each in weights]
        if all(costs):
            return Costs(name, costs)
    return None


def _training_flops(weights: Weights) -> float:
    return PASSES_IN_TRAINING * (weights.flops_per_token or 0.0) * (weights.training_tokens or 0)


def scores_of(runs: Sequence[Run]) -> dict[str, list[CompositeResult]]:
    """The composites that all runs have over the same tasks, by suite and name."""
    scores = {}
    for suite, result in runs[0].result.suites.items():
        for name in result.composites:
            of_runs = [run.result.composite(suite, name) for run in runs]
            are_alike = all(each.weights.keys() == of_runs[0].weights.keys() for each in of_runs)
            has_values = all(each.ci95 is not None for each in of_runs)
            if are_alike and has_values and not name.startswith(PARTIAL_COMPOSITE):
                scores[f"{suite} {name}"] = of_runs
    return dict([*scores.items()][:MOST_PANELS])


def cost_figure(runs: Sequence[Run], costs: Costs) -> "Figure | None":
    """A panel a composite; None: there is none that all runs have."""
    from matplotlib.figure import Figure

    scores = scores_of(runs)
    if not scores:
        return None
    each = sorted(set(costs.of_run))
    ticks = each if len(each) <= MOST_TICKS else [each[0], each[-1]]
    columns = min(2, len(scores))
    rows = -(-len(scores) // columns)
    size = (PANEL[0] * columns, PANEL[1] * rows)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, of_runs) in zip(panels, scores.items(), strict=False):
        _, values, errors = points_of(of_runs)
        for i, run in enumerate(runs):
            place = (costs.of_run[i], values[i])
            drawn = {"fmt": "o", "color": color(i), "capsize": 2, "markersize": 4}
            axes.errorbar(*place, errors[:, i : i + 1], **drawn)
            axes.annotate(
                label(run.label, 24), place, (4, 4), textcoords="offset points", fontsize=7
            )
        axes.set_title(label(name), fontsize=8, parse_math=False)
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{cost:.2g}" for cost in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(costs.name)
        axes.margins(x=0.25)
    for axes in panels[len(scores) :]:
        axes.set_axis_off()
    return figure
