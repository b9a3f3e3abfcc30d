"""Whether the second run is better, worse or within noise: the words of a comparison.

Arrives: a `Comparison`.  Leaves: words and a sentence.  It deliberately computes no p-value.

The level is 0.05.  A task's p-value is McNemar's exact one where examples are right or wrong, else
that of signs flipped (statistics/paired.py, `difference`), and holds for all tasks' main metrics
together by Holm's method (runs.py, `_adjusted`).  A composite has a normal p-value of its own
(`combined`).  There is none, and no word, where sampling stopped early.
"""

import math

from miron_jax.metrics.properties import LOWER_IS_BETTER, ZERO_IS_BEST
from miron_jax.report.compare.runs import Comparison, CompositeDifference, TaskDifference

LEVEL = 0.05
NOISE = "within noise"


def verdict_of_task(task: TaskDifference) -> str:
    return _verdict(task.difference.value, task.adjusted, task.metric)


def verdict_of_composite(composite: CompositeDifference, metric: str) -> str:
    return _verdict(composite.paired.value, composite.paired.p_value, metric)


def _verdict(difference: float, p_value: float, metric: str) -> str:
    if math.isnan(p_value):
        return ""
    if p_value >= LEVEL:
        return NOISE
    if metric in ZERO_IS_BEST:
        return "higher" if difference > 0 else "lower"
    return "better" if (difference > 0) != (metric in LOWER_IS_BETTER) else "worse"


def moved(comparison: Comparison) -> tuple[list[TaskDifference], list[TaskDifference]]:
    """Tasks whose main metric differs beyond chance, and all whose p-value is known."""
    known = [task for task in comparison.tasks if not math.isnan(task.difference.p_value)]
    mains = [task for task in known if task.is_main] or known
    return [task for task in mains if task.adjusted < LEVEL], mains


def moved_sentence(comparison: Comparison) -> str:
    decided, mains = moved(comparison)
    words = [verdict_of_task(task) for task in decided]
    split = f": {words.count('better')} better, {words.count('worse')} worse" if words else ""
    return (
        f"{comparison.second.label} against {comparison.first.label}: {len(decided)} of "
        f"{len(mains)} compared tasks moved by more than chance{split}."
    )
