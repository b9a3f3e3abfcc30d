"""How far a task's scores hang on wording: by template, place, length and other traits; errors that know of clusters.

Arrives: a task's scored examples with their clusters and traits.  Leaves: plain dicts.  It deliberately does not know
what a trait means.

Examples that share a word, a sentence or a story are no independent trials: the plain standard error of their mean is too
small.  The cluster-robust one (Liang and Zeger 1986, Biometrika 73, 13-22, for a mean) sums within clusters first:

    sqrt(G / (G - 1) * sum over clusters g of (sum over i in g of (x_i - mean))^2) / n
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from miron_jax.definitions.records import Example, Task
from miron_jax.metrics.choices import PROPORTIONS, ExampleScore
from miron_jax.statistics.estimate import estimate

TEMPLATE = "template_n"


def cluster_stderr(values: Sequence[float] | np.ndarray, clusters: Sequence[str]) -> float:
    """Of the mean of `values` [n]; NaN where there are fewer than two clusters."""
    _, member = np.unique(np.asarray(clusters), return_inverse=True)
    num_clusters = int(member.max(initial=-1)) + 1
    if num_clusters < 2:
        return math.nan
    own = np.asarray(values, np.float64)
    sums = np.bincount(member, weights=own - own.mean())
    return float(np.sqrt(num_clusters / (num_clusters - 1) * np.sum(sums**2)) / len(own))


def robustness(
    task: Task[Any],
    examples: Sequence[Example],
    scores: Sequence[ExampleScore],
    shown: Sequence[Any],
    answers: Sequence[str | None],
) -> dict[str, Any] | None:
    """None: the task's examples tell of no clusters.  `shown`: what tells the order of an example's options; `answers`: as
    they are compared with the right one."""
    if task.clusters is None or not examples:
        return None
    clusters = [str(example.cluster) for example in examples]
    names = dict.fromkeys(name for own in scores for name in own.metrics if name in PROPORTIONS)
    values = {name: np.asarray([own.metrics.get(name, math.nan) for own in scores]) for name in names}
    main = values[task.main]
    traits: dict[str, list[str | None]] = {name: [] for example in examples for name, _ in example.traits}
    for name, column in traits.items():
        column += [dict(example.traits).get(name) for example in examples]
    by = {name: _by(column, main, clusters) for name, column in traits.items()}
    found: dict[str, Any] = {
        "main": task.main,
        "cluster": task.clusters,
        "clusters": len(set(clusters)),
        "metrics": {name: _entry(own, clusters) for name, own in values.items()},
        "by": by,
    }
    if TEMPLATE in by:
        accuracies = [own["value"] for own in by[TEMPLATE].values() if not math.isnan(own["value"])]
        found["template_spread"] = max(accuracies) - min(accuracies) if accuracies else math.nan
    return {**found, **_swapped([example.swapped for example in examples], shown, answers)}


def _by(column: Sequence[str | None], values: np.ndarray, clusters: Sequence[str]) -> dict[str, Any]:
    """The metric for each value of one trait, numbers in their own order."""
    places: dict[str, list[int]] = {}
    for place, own in enumerate(column):
        if own is not None:
            places.setdefault(own, []).append(place)
    return {own: _entry(values[places[own]], [clusters[i] for i in places[own]]) for own in sorted(places, key=_order)}


def _order(name: str) -> tuple[float, str]:
    return (float(name), "") if name.lstrip("-").isdecimal() else (math.inf, name)


def _entry(values: np.ndarray, clusters: Sequence[str]) -> dict[str, Any]:
    defined = ~np.isnan(values)
    found = estimate(values, True)
    known = [own for own, is_defined in zip(clusters, defined, strict=True) if is_defined]
    return {
        "n": found.num_examples,
        "clusters": len(set(known)),
        "value": found.value,
        "stderr": found.stderr,
        "cluster_stderr": cluster_stderr(values[defined], known),
    }


def _swapped(names: Sequence[str | None], shown: Sequence[Any], answers: Sequence[str | None]) -> dict[str, Any]:
    """Share of questions asked with their options in both orders to which the same was answered each time."""
    orders: dict[str, set[Any]] = {}
    answered: dict[str, set[str]] = {}
    for name, order, answer in zip(names, shown, answers, strict=True):
        if name and answer is not None:
            orders.setdefault(name, set()).add(order)
            answered.setdefault(name, set()).add(answer)
    twice = [name for name, own in orders.items() if len(own) > 1]
    if not twice:
        return {}
    same = [float(len(answered[name]) == 1) for name in twice]
    return {
        "swapped": {"pairs": len(twice), "consistency": sum(same) / len(same), "stderr": estimate(same, True).stderr}
    }
