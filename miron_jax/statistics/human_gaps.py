"""The human gap: a model's score minus a human baseline, with an interval, or the reason why there
is none.

Arrives: a task's estimates and human baselines.  Leaves: `HumanGap`s.  It deliberately does not
know suites.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import HumanBaseline
from miron_jax.metrics.choices import PROPORTIONS
from miron_jax.statistics.estimate import Estimate, wilson

MODEL_ONLY = "the model's alone: people's is not known"


@dataclass(frozen=True, slots=True)
class HumanGap:
    metric: str
    human: HumanBaseline
    value: float | None  # model minus human; None: not comparable
    ci95: tuple[float, float] | None
    interval: str  # its method; "" without a gap
    why_not: str  # "" if there is a gap

    @property
    def is_model_only(self) -> bool:
        """Whether its interval takes the human baseline as exactly known."""
        return self.interval == MODEL_ONLY


def gaps(
    metrics: Mapping[str, Estimate],
    human: Sequence[HumanBaseline],
    procedure: str,
    rows: int,
    data: DataState,
) -> list[HumanGap]:
    """One gap per human baseline of this procedure.  `rows`: records of the test file on disk.

    Model and human scores are taken as independent samples even if they are over the same items,
    since human labels of items are not published.  The interval is then wider than a paired one.
    """
    return [
        _gap(metrics.get(baseline.metric), baseline, rows, data, baseline.metric in PROPORTIONS)
        for baseline in human
        if baseline.procedure in (procedure, "one annotator")
    ]


def _gap(
    model: Estimate | None, human: HumanBaseline, rows: int, data: DataState, proportion: bool
) -> HumanGap:
    if why := _why_not(model, human, rows, data):
        return HumanGap(human.metric, human, None, None, "", why)
    assert model is not None
    value = model.value - human.value
    if proportion and human.n and human.source == "measured":
        interval = newcombe(model.ci95, model.value, wilson(human.value, human.n), human.value)
        return HumanGap(human.metric, human, value, interval, "Newcombe, independent samples", "")
    low, high = model.ci95
    interval = None if math.isnan(low) else (low - human.value, high - human.value)
    return HumanGap(human.metric, human, value, interval, MODEL_ONLY, "")


def _why_not(model: Estimate | None, human: HumanBaseline, rows: int, data: DataState) -> str:
    if model is None or math.isnan(model.value):
        return f"{human.metric} is not scored here"
    if data.state == "changed":
        return "the data are not the published ones"
    if human.tests is not None and human.tests != rows:
        return (
            f"another split: people's value stands for {human.tests} records, the test file has "
            f"{rows}"
        )
    return f"another prompt set: {human.otherwise}" if human.otherwise else ""


def newcombe(
    model_ci: tuple[float, float], model: float, human_ci: tuple[float, float], human: float
) -> tuple[float, float]:
    """95 % interval of the difference of two independent proportions from their Wilson intervals
    (l, u): d - sqrt((p1 - l1)² + (u2 - p2)²) to d + sqrt((u1 - p1)² + (p2 - l2)²).

    Newcombe 1998, Statistics in Medicine 17, 873-890, method 10.
    """
    difference = model - human
    low = math.hypot(model - model_ci[0], human_ci[1] - human)
    high = math.hypot(model_ci[1] - model, human - human_ci[0])
    return difference - low, difference + high
