"""Numbers as texts, for screens, pages and files.

Arrives: numbers, some of them undefined.  Leaves: texts.  It deliberately does not know what a
number means.
"""

import math

from miron_jax.results.records import CompositeResult
from miron_jax.statistics.estimate import Estimate


def shown(value: float | None, form: str = ".4f", missing: str = "") -> str:
    """The number by a format specification; `missing` for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return missing
    return format(value, form)


def number(value: float | None, missing: str = "") -> str:
    """A count as it is, any other number with four digits."""
    return shown(value, "d" if isinstance(value, int) else ".4f", missing)


def interval(bounds: tuple[float, float] | None) -> str:
    if bounds is None or not all(map(math.isfinite, bounds)):
        return ""
    return f"{number(bounds[0])} to {number(bounds[1])}"


def with_interval(estimate: Estimate | CompositeResult) -> str:
    value = number(estimate.value, "none")
    bounds = interval(estimate.ci95)
    return f"{value} ({bounds})" if bounds else value
