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
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from miron_jax.definitions.records import Example, Task
from miron_jax.metrics.choices import PROPORTIONS, ExampleScore
from miron_jax.statistics.estimate import estimate

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
    template_spread: float | None = None
    swapped: Swapped | None = None  # None: no question has several orders


def cluster_stderr(values: Sequence[float] | np.ndarray, clusters: Sequence[str]) -> float:
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


def robustness(
    task: Task,
    examples: Sequence[Example],
    scores: Sequence[ExampleScore],
    orders: Sequence[Hashable],
    answers: Sequence[str | None],
) -> Robustness | None:
    """The robustness report of a task; None if its examples have no clusters.

    `orders`: per example, distinct for distinct orders of its choices; `answers`: in the form
    compared with the right one.
    """
    if task.clusters is None or not examples:
        return None
    clusters = [str(example.cluster) for example in examples]
    names = dict.fromkeys(name for score in scores for name in score.metrics if name in PROPORTIONS)
    values = {
        name: np.asarray([score.metrics.get(name, math.nan) for score in scores]) for name in names
    }
    main = values[task.main]
    traits: dict[str, list[str | None]] = {
        name: [] for example in examples for name, _ in example.traits
    }
    for name, column in traits.items():
        column += [dict(example.traits).get(name) for example in examples]
    by = {name: _by(column, main, clusters) for name, column in traits.items()}
    spread = None
    if TEMPLATE in by:
        accuracies = [entry.value for entry in by[TEMPLATE].values() if not math.isnan(entry.value)]
        spread = max(accuracies) - min(accuracies) if accuracies else math.nan
    return Robustness(
        main=task.main,
        cluster=task.clusters,
        clusters=len(set(clusters)),
        metrics={name: _estimate(metric, clusters) for name, metric in values.items()},
        by=by,
        template_spread=spread,
        swapped=_swapped([example.swapped for example in examples], orders, answers),
    )


def _by(
    column: Sequence[str | None], values: np.ndarray, clusters: Sequence[str]
) -> dict[str, ClusterEstimate]:
    """The metric for each value of one trait, in numeric order if the values are numbers."""
    rows: dict[str, list[int]] = {}
    for row, trait in enumerate(column):
        if trait is not None:
            rows.setdefault(trait, []).append(row)
    return {
        name: _estimate(values[rows[name]], [clusters[i] for i in rows[name]])
        for name in sorted(rows, key=_order)
    }


def _order(name: str) -> tuple[float, str]:
    return (float(name), "") if name.lstrip("-").isdecimal() else (math.inf, name)


def _estimate(values: np.ndarray, clusters: Sequence[str]) -> ClusterEstimate:
    defined = ~np.isnan(values)
    mean = estimate(values, True)
    known = [cluster for cluster, is_defined in zip(clusters, defined, strict=True) if is_defined]
    return ClusterEstimate(
        n=mean.num_examples,
        clusters=len(set(known)),
        value=mean.value,
        stderr=mean.stderr,
        cluster_stderr=cluster_stderr(values[defined], known),
    )


def _swapped(
    names: Sequence[str | None], orders: Sequence[Hashable], answers: Sequence[str | None]
) -> Swapped | None:
    """Share of questions with the same answer in all orders of their choices, over those with
    several orders."""
    seen: dict[str, tuple[set[Hashable], set[str]]] = {}
    for name, order, answer in zip(names, orders, answers, strict=True):
        if name and answer is not None:
            by_order = seen.setdefault(name, (set(), set()))
            by_order[0].add(order)
            by_order[1].add(answer)
    same = [float(len(said) == 1) for shuffles, said in seen.values() if len(shuffles) > 1]
    if not same:
        return None
    return Swapped(len(same), sum(same) / len(same), estimate(same, True).stderr)
