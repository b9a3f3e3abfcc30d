"""The human gap: a model's score minus a human baseline, with an interval, or the reason why there
is none.

Arrives: a task's estimates and published human baselines; or the scores of the examples that people
have answered too.  Leaves: `HumanGap`s.  It deliberately does not know suites or files.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.if_any import IfAny
from miron_jax.definitions.records import HumanBaseline
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.properties import PROPORTIONS
from miron_jax.statistics.estimate import Estimate, by_category, whole_set_estimates, wilson
from miron_jax.statistics.paired import difference

MODEL_ONLY = "the model's alone: people's is not known"
# (what it reads of each example, weights) -> numbers over all examples
OverAll = Callable[..., Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class HumanGap:
    metric: str
    human: HumanBaseline
    value: float | None  # model minus human; None: not comparable
    ci95: tuple[float, float] | None
    interval: str  # its method; "" without a gap
    why_not: str  # "" if there is a gap
    # examples that the model and people have answered, and the gap is over; None: two samples
    pairs: IfAny[int | None] = None

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
    interval = _known((low - human.value, high - human.value))
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


class BothAnswered(NamedTuple):
    """An example that the model and people have answered."""

    model: ExampleScore
    people: ExampleScore
    category: str | None = None
    cluster: str | None = None
    # what a rule over all examples reads of the model and of people; None: of no such number
    records: tuple[object, object] | None = None


def paired_gaps(
    both: Sequence[BothAnswered], people: HumanBaseline, categories: str, over_all: OverAll
) -> list[HumanGap]:
    """One gap per metric of people's, over the examples in common: of means as
    statistics/paired.py has it, of numbers over all examples by a bootstrap of the pairs.

    `people`: what the baselines have in common, with the metric that is named if there is no pair;
    `categories`: the profile's rule.
    """
    if not both:
        why = "no example that ran has a label of people"
        return [HumanGap(people.metric, people, None, None, "", why, 0)]
    records = list[tuple[object, object]]()
    scores = list[ExampleScore]()
    names = list[str | None]()
    for each in both:
        if each.records is not None:
            records.append(each.records)
        scores.append(each.people)
        names.append(each.category)
    num_without = len(both) - len(records)
    of_people = whole_set_estimates(over_all, [second for _, second in records], num_without)
    differences = whole_set_estimates(_difference_of(over_all), records, num_without)
    gaps = list[HumanGap]()
    for metric, score in by_category(scores, names, categories, of_people).metrics.items():
        if math.isnan(score.value):
            continue
        ci95 = _known(score.ci95)
        human = replace(people, metric=metric, value=score.value, n=score.num_examples, ci95=ci95)
        if metric in differences:
            gap = differences[metric]
            how = "bootstrap of the pairs"
            ci95 = _known(gap.ci95)
            gaps.append(HumanGap(metric, human, gap.value, ci95, how, "", gap.num_examples))
        else:
            gaps.append(_paired_gap(both, human, categories))
    return gaps


def _paired_gap(both: Sequence[BothAnswered], human: HumanBaseline, categories: str) -> HumanGap:
    metric = human.metric
    people = list[float]()
    model = list[float]()
    strata = list[str]()
    clusters = list[str]()
    for each in both:
        people.append(each.people.metrics.get(metric, math.nan))
        model.append(each.model.metrics.get(metric, math.nan))
        if categories == "macro":
            strata.append(each.category or "")
        if each.cluster is not None:
            clusters.append(each.cluster)
    are_clustered = len(clusters) == len(both)
    paired = difference(people, model, strata or None, clusters if are_clustered else None)
    if not paired.num_examples:
        return HumanGap(metric, human, None, None, "", f"{metric} is not scored here", 0)
    how = "Student's t of the pairs"
    if paired.method == "exact McNemar":
        how = "Bonett and Price, of pairs"
    return HumanGap(metric, human, paired.value, _known(paired.ci95), how, "", paired.num_examples)


def _difference_of(over_all: OverAll) -> OverAll:
    """The rule's numbers of the model less those of people."""

    def differences(
        records: Sequence[tuple[object, object]], weights: np.ndarray
    ) -> dict[str, float]:
        model = list[object]()
        people = list[object]()
        for of_model, of_people in records:
            model.append(of_model)
            people.append(of_people)
        numbers = dict(over_all(model, weights))
        for name, value in over_all(people, weights).items():
            numbers[name] = numbers.get(name, math.nan) - value
        return numbers

    return differences


def _known(interval: tuple[float, float]) -> tuple[float, float] | None:
    return None if math.isnan(interval[0]) else interval


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
