"""How far a model is from people: its number less theirs, with an interval, or why there is none.

Arrives: a task's estimates, the human values that its suite names.  Leaves: `Gap`s.  It deliberately does not know suites.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import HumanBaseline
from miron_jax.statistics.estimate import Estimate, wilson


@dataclass(frozen=True, slots=True)
class Gap:
    metric: str
    human: HumanBaseline
    value: float | None  # model less people; None: not comparable
    ci95: tuple[float, float] | None
    interval: str  # how it was made; "" where there is none
    why_not: str  # "" where there is a gap


def gaps(
    metrics: Mapping[str, Estimate],
    human: Sequence[HumanBaseline],
    procedure: str,
    rows: int,
    data: DataState,
    proportions: frozenset[str],
) -> list[Gap]:
    """One for each human value by this procedure.  `rows`: records of the test file that was found.

    Model and people are taken as independent samples, also where they saw the same items: no item's human label is
    published.  The interval is then wider than a paired one.
    """
    return [
        _gap(metrics.get(own.metric), own, rows, data, own.metric in proportions)
        for own in human
        if own.procedure in (procedure, "one annotator")
    ]


def _gap(found: Estimate | None, human: HumanBaseline, rows: int, data: DataState, proportion: bool) -> Gap:
    if why := _why_not(found, human, rows, data):
        return Gap(human.metric, human, None, None, "", why)
    assert found is not None
    value = found.value - human.value
    if proportion and human.n and human.source == "measured":
        interval = newcombe(found.ci95, found.value, wilson(human.value, human.n), human.value)
        return Gap(human.metric, human, value, interval, "Newcombe, independent samples", "")
    low, high = (end - human.value for end in found.ci95)
    how = "the model's alone: people's is not known"
    return Gap(human.metric, human, value, None if math.isnan(low) else (low, high), how, "")


def _why_not(found: Estimate | None, human: HumanBaseline, rows: int, data: DataState) -> str:
    if found is None or math.isnan(found.value):
        return f"{human.metric} is not scored here"
    if data.state == "changed":
        return "the data are not the published ones"
    if human.tests is not None and human.tests != rows:
        return f"another split: people's value stands for {human.tests} records, the test file has {rows}"
    return f"another prompt set: {human.otherwise}" if human.otherwise else ""


def newcombe(
    model_ci: tuple[float, float], model: float, human_ci: tuple[float, float], human: float
) -> tuple[float, float]:
    """95 % interval of the difference of two independent proportions from their Wilson intervals (l, u):
    d - sqrt((p1 - l1)² + (u2 - p2)²) to d + sqrt((u1 - p1)² + (p2 - l2)²).

    Newcombe 1998, Statistics in Medicine 17, 873-890, method 10.
    """
    difference = model - human
    low = math.hypot(model - model_ci[0], human_ci[1] - human)
    high = math.hypot(model_ci[1] - model, human - human_ci[0])
    return difference - low, difference + high
