"""Robustness to wording: scores by template, position, length and other traits, with cluster-robust
standard errors.

Arrives: a task's scored examples with their clusters and traits.  Leaves: `Robustness`.  It
deliberately does not know what a trait means.

Examples that share a word, a sentence or a story are not independent trials: the plain standard
error of their mean is too small.  The cluster-robust one (Liang and Zeger 1986, Biometrika 73,
13-22, for a mean) sums within clusters first:

    sqrt(G / (G - 1) * sum over clusters g of (sum over i in g of (x_i - mean))^2) / n
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.if_any import IfAny
from miron_jax.definitions.records import Example, Task
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.properties import PROPORTIONS
from miron_jax.statistics.estimate import estimate, is_proportion

TEMPLATE = "template_n"


@dataclass(frozen=True, slots=True)
class ClusterEstimate:
    """A mean over examples that are not independent."""

    n: int  # examples with a defined value
    clusters: int
    value: float
    stderr: float  # as if examples were independent
    cluster_stderr: float


@dataclass(frozen=True, slots=True)
class Swapped:
    """Questions that were asked with their choices in several orders."""

    pairs: int
    consistency: float  # share with the same answer in all orders
    stderr: float


@dataclass(frozen=True, slots=True)
class Robustness:
    """How far a task's scores depend on wording."""

    main: str  # the metric of `by`
    cluster: str  # what dependent examples share
    clusters: int
    metrics: Mapping[str, ClusterEstimate]
    by: Mapping[str, Mapping[str, ClusterEstimate]]  # trait -> its value -> examples that have it
    # best template less worst; None: the task has no templates
    template_spread: IfAny[float | None] = None
    swapped: IfAny[Swapped | None] = None  # None: no question has several orders


def cluster_stderr(
    values: Sequence[float] | np.ndarray, clusters: Sequence[str] | np.ndarray
) -> float:
    """Cluster-robust standard error of the mean of `values` [n]; NaN for fewer than two
    clusters."""
    _, member = np.unique(np.asarray(clusters), return_inverse=True)
    num_clusters = int(member.max(initial=-1)) + 1
    if num_clusters < 2:
        return math.nan
    residuals = np.asarray(values, np.float64)
    residuals = residuals - residuals.mean()
    sums = np.bincount(member, weights=residuals)
    return float(np.sqrt(num_clusters / (num_clusters - 1) * np.sum(sums**2)) / len(residuals))


class Worded(NamedTuple):
    """A scored example, and what may depend on its wording."""

    example: Example
    score: ExampleScore
    order: Hashable  # distinct for distinct orders of the example's choices
    answer: str | None  # in the form that is compared with the right one


def robustness(task: Task, asked: Sequence[Worded]) -> Robustness | None:
    """The robustness report of a task; None if its examples have no clusters."""
    if task.clusters is None or not asked:
        return None
    clusters = np.asarray([str(each.example.cluster) for each in asked])
    values: dict[str, np.ndarray] = {}
    rows = defaultdict[str, dict[str, list[int]]](dict)  # trait -> its value -> examples
    for row, each in enumerate(asked):
        for name, value in each.score.metrics.items():
            if name in PROPORTIONS or name == task.main:
                values.setdefault(name, np.full(len(asked), math.nan))[row] = value
        for name, value in each.example.traits:
            of_trait = rows[name]
            if value is not None:
                of_trait.setdefault(value, []).append(row)
    main = values[task.main]
    is_share = is_proportion(task.main, main)
    by = {name: _by(of_trait, main, clusters, is_share) for name, of_trait in rows.items()}
    spread = None
    if TEMPLATE in by:
        accuracies = np.asarray([each.value for each in by[TEMPLATE].values()])
        known = accuracies[~np.isnan(accuracies)]
        spread = float(np.ptp(known)) if len(known) else math.nan
    return Robustness(
        main=task.main,
        cluster=task.clusters,
        clusters=len(set(clusters.tolist())),
        metrics={
            name: _estimate(metric, clusters, is_proportion(name, metric))
            for name, metric in values.items()
        },
        by=by,
        template_spread=spread,
        swapped=_swapped(asked),
    )


def _by(
    rows: Mapping[str, list[int]], values: np.ndarray, clusters: np.ndarray, is_share: bool
) -> dict[str, ClusterEstimate]:
    """The metric for each value of one trait, in numeric order if the values are numbers."""
    ordered = sorted(rows, key=_order)
    return {name: _estimate(values[rows[name]], clusters[rows[name]], is_share) for name in ordered}


def _order(name: str) -> tuple[float, str]:
    if name.lstrip("-").isdecimal():
        return (float(name), "")
    return (math.inf, name)


def _estimate(values: np.ndarray, clusters: np.ndarray, is_share: bool) -> ClusterEstimate:
    defined = ~np.isnan(values)
    mean = estimate(values, is_share)
    known = clusters[defined]
    return ClusterEstimate(
        n=mean.num_examples,
        clusters=len(set(known.tolist())),
        value=mean.value,
        stderr=mean.stderr,
        cluster_stderr=cluster_stderr(values[defined], known),
    )


def _swapped(asked: Sequence[Worded]) -> Swapped | None:
    """Share of questions with the same answer in all orders of their choices, over those with
    several orders."""
    seen: dict[str, tuple[set[Hashable], set[str]]] = {}
    for example, _, order, answer in asked:
        if example.swapped and answer is not None:
            orders, answers = seen.setdefault(example.swapped, (set(), set()))
            orders.add(order)
            answers.add(answer)
    same = [float(len(said) == 1) for shuffles, said in seen.values() if len(shuffles) > 1]
    if not same:
        return None
    return Swapped(len(same), sum(same) / len(same), estimate(same, True).stderr)
