"""MIRON: bits by tokens of the target, and what noise in the prefix costs.

Arrives: `Run`s.  Leaves: a figure.  It deliberately does not know how a number is made.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from miron_jax.report.figures.drawing import color, label, legend, points_of
from miron_jax.results.details import ClozeDetails
from miron_jax.results.records import UNKNOWN
from miron_jax.results.run_folder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def cloze_figure(runs: Sequence[Run], task: str) -> "Figure | None":
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
        left.plot([*bits], [*bits.values()], marker="o", color=color(i), label=label(run.label))
        names = [name for name, each in details.drift.items() if math.isfinite(each.median_percent)]
        points = points_of([details.drift[name] for name in names])
        places = points.rows + 0.25 * i
        style = {"fmt": "o", "markersize": 4, "capsize": 2}
        right.errorbar(points.values, places, xerr=points.errors, color=color(i), **style)
        right.set_yticks(range(len(names)), [*map(label, names)])
    left.set_xlabel("tokens of the target")
    left.set_ylabel("bits per character")
    right.set_xlabel("per cent of P(target) lost, median")
    right.invert_yaxis()
    legend(left, runs)
    return figure
