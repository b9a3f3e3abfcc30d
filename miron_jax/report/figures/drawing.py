"""What all figures share: style, colours, labels, points with intervals.

Arrives: estimates.  Leaves: places and errors of points.  It deliberately does not know
tasks.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from miron_jax.errors import printable
from miron_jax.results.details import Drift
from miron_jax.results.records import CompositeResult
from miron_jax.results.run_folder import Run
from miron_jax.statistics.estimate import Estimate
from miron_jax.statistics.paired import Difference

COLORS = ("#2f81f7", "#d4761a", "#3a9d4c", "#b35bd8", "#d9435e", "#7d8590")
MOST_CHARS = 48


class Points(NamedTuple):
    """The estimates that have a value."""

    rows: np.ndarray  # their places among all, int [n]
    values: np.ndarray  # float64 [n]
    errors: np.ndarray  # how far intervals reach below and above, 0 for none, float64 [2, n]


def points_of(estimates: Sequence[Estimate | CompositeResult | Difference | Drift]) -> Points:
    numbers = np.full((3, len(estimates)), math.nan)
    for row, each in enumerate(estimates):
        value = each.median_percent if isinstance(each, Drift) else each.value
        numbers[:, row] = (value, *(each.ci95 or (math.nan, math.nan)))
    rows = np.flatnonzero(np.isfinite(numbers[0]))
    values, low, high = numbers[:, rows]
    errors = np.asarray([values - low, high - values])
    return Points(rows, values, np.where(np.isfinite(errors), np.maximum(errors, 0.0), 0.0))


def color(i: int) -> str:
    return COLORS[i % len(COLORS)]


def label(name: str, most: int = MOST_CHARS) -> str:
    """A name in a figure; matplotlib hides labels that begin with an underscore."""
    shown = printable(name, most)
    return f" {shown}" if shown.startswith("_") else shown


def legend(axes: Any, runs: Sequence[Run]) -> None:
    if len(runs) > 1:
        axes.legend(fontsize=8)
