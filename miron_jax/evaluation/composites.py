"""Composites: one number over many tasks, with its error.

Arrives: a suite, the `TaskResult`s of a run.  Leaves: `CompositeResult`s.  Here stands which tasks
count, and the error.  It deliberately does not know how a suite weighs its tasks: value and weights
are those of `Suite.composites`, which each suite in tasks/ defines.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from miron_jax.definitions.records import AnyTask, Composite, Measured, Suite
from miron_jax.results.details import ClozeDetails
from miron_jax.results.records import CompositeResult, TaskResult
from miron_jax.statistics.estimate import Estimate, ends_of_sum

SAMPLED = "sampled "  # before the name of a composite of which not every example ran
MEANS = ("choice_prob_norm",)  # that composites may take beside a task's main metric


class _Averaged(NamedTuple):
    """A task's metrics of which composites are made."""

    main: Estimate
    by_name: Mapping[str, Estimate]  # the main one included


def suite_composites(
    suite: Suite[AnyTask], tasks: Mapping[str, TaskResult]
) -> dict[str, CompositeResult]:
    """A suite's composites.  A task with skipped examples or changed data counts as missing.

    So does one of which not every example ran; "sampled" composites take it, with their error for
    the complete set.
    """
    whole = _composites(suite, tasks, takes_sampled=False)
    if not any(task.sampled for task in tasks.values()):
        return whole
    sampled = _composites(suite, tasks, takes_sampled=True)
    added = {
        f"{SAMPLED}{name}": composite
        for name, composite in sampled.items()
        if not math.isnan(composite.value) and math.isnan(whole[name].value)
    }
    return whole | added


def _composites(
    suite: Suite[AnyTask], tasks: Mapping[str, TaskResult], takes_sampled: bool
) -> dict[str, CompositeResult]:
    averaged = dict[str, _Averaged]()
    measured = dict[str, Measured]()
    for name, task in tasks.items():
        if metrics := _averaged(task, takes_sampled):
            averaged[name] = metrics
            measured[name] = _measured(task, metrics, takes_sampled)
    composites = dict[str, CompositeResult]()
    for name, composite in suite.composites(measured).items():
        of_tasks = {
            task: metrics.by_name[composite.metric] if composite.metric else metrics.main
            for task, metrics in averaged.items()
            if task in composite.weights
        }
        composites[name] = composite_result(composite, of_tasks)
    return composites


def _averaged(task: TaskResult, takes_sampled: bool) -> _Averaged | None:
    """None where the task lacks its main metric."""
    if isinstance(task.details, ClozeDetails):
        metrics = task.details.macro
        return _Averaged(metrics[task.main], metrics) if metrics else None
    if task.main not in task.metrics:
        return None
    main = of_complete_set(task) if takes_sampled else task.metrics[task.main]
    means = {name: task.metrics[name] for name in MEANS if name in task.metrics}
    return _Averaged(main, {**means, task.main: main})


def of_complete_set(task: TaskResult) -> Estimate:
    """The main metric's estimate about the complete set of examples, of which some have run: its
    interval holds whenever the run stopped."""
    estimate = task.metrics[task.main]
    if task.sampled is None:
        return estimate
    low, high = task.sampled.interval
    interval = (min(low, estimate.value), max(high, estimate.value))
    return replace(estimate, stderr=(high - low) / 2 / 1.96, ci95=interval)


def _measured(task: TaskResult, metrics: _Averaged, takes_sampled: bool) -> Measured:
    has_all_rows = task.data.state == "as published" or task.data.rows is None
    counts = has_all_rows and not task.skipped and task.data.state != "changed"
    num_examples = task.n + task.skipped
    if task.sampled is not None:
        counts = counts and (takes_sampled or task.sampled.is_whole)
        num_examples = task.sampled.of
    if not counts:
        return Measured(None, num_examples)
    main = metrics.main.value
    means = {name: estimate.value for name, estimate in metrics.by_name.items()}
    return Measured(None if math.isnan(main) else main, num_examples, means)


def composite_result(composite: Composite, tasks: Mapping[str, Estimate]) -> CompositeResult:
    """A composite with its error: sqrt(sum of (weight * stderr)²), as if tasks were independent.
    `tasks`: by name.

    The interval keeps the tasks' own: its ends are sqrt(sum of (weight * (value - end))²) away (Zou
    and Donner 2008, Statistics in Medicine 27, 1693-1702), so that a small task near 0 or 1 does
    not make it too narrow.  Two tasks over one file (CORE's two hellaswags) are not independent:
    their error is somewhat too small.
    """
    result = CompositeResult(
        complete=composite.complete,
        missing=composite.missing,
        weights=composite.weights,
        metric=composite.metric,
    )
    if composite.value is None:
        return result
    of_tasks = [(weight, tasks[name]) for name, weight in composite.weights.items()]
    stderr = math.hypot(*(weight * estimate.stderr for weight, estimate in of_tasks))
    below, above = ends_of_sum(of_tasks)
    interval = (composite.value - below, composite.value + above)
    return replace(result, value=composite.value, stderr=stderr, ci95=interval)
