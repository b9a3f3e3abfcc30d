"""A suite's composites, with the intervals that statistics/estimate gives them.

Arrives: a suite, the `TaskResult`s of a run.  Leaves: `CompositeResult`s.  It deliberately does not
know how a suite weighs its tasks.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from miron_jax.definitions.records import AnyTask, Measured, Suite
from miron_jax.results.details import ClozeDetails
from miron_jax.results.records import CompositeResult, TaskResult
from miron_jax.statistics.estimate import Estimate, estimate_composite

SAMPLED = "sampled "  # before the name of a composite of which not every example ran
MEANS = ("choice_prob_norm",)  # that composites may take beside a task's main metric


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
    estimates = dict[str, dict[str, Estimate]]()
    measured = dict[str, Measured]()
    for name, task in tasks.items():
        if metrics := _averaged(task, takes_sampled):
            estimates[name] = metrics
            measured[name] = _measured(task, metrics, takes_sampled)
    composites = dict[str, CompositeResult]()
    for name, composite in suite.composites(measured).items():
        of_tasks = {
            task: metrics[composite.metric or next(iter(metrics))]
            for task, metrics in estimates.items()
            if task in composite.weights
        }
        result = CompositeResult(
            complete=composite.complete,
            missing=composite.missing,
            weights=composite.weights,
            metric=composite.metric,
        )
        if estimate := estimate_composite(composite, of_tasks):
            result = replace(
                result, value=estimate.value, stderr=estimate.stderr, ci95=estimate.ci95
            )
        composites[name] = result
    return composites


def _averaged(task: TaskResult, takes_sampled: bool) -> dict[str, Estimate]:
    """Metrics of which composites are made, the main one first; none where the task lacks its main
    one."""
    if isinstance(task.details, ClozeDetails):
        return dict(task.details.macro)
    if task.main not in task.metrics:
        return {}
    metrics = {name: task.metrics[name] for name in (task.main, *MEANS) if name in task.metrics}
    if takes_sampled:
        metrics[task.main] = of_complete_set(task)
    return metrics


def of_complete_set(task: TaskResult) -> Estimate:
    """The main metric's estimate about the complete set of examples, of which some have run: its
    interval holds whenever the run stopped."""
    estimate = task.metrics[task.main]
    if task.sampled is None:
        return estimate
    low, high = task.sampled.interval
    interval = (min(low, estimate.value), max(high, estimate.value))
    return replace(estimate, stderr=(high - low) / 2 / 1.96, ci95=interval)


def _measured(task: TaskResult, metrics: Mapping[str, Estimate], takes_sampled: bool) -> Measured:
    means = {name: estimate.value for name, estimate in metrics.items()}
    has_all_rows = task.data.state == "as published" or task.data.rows is None
    counts = has_all_rows and not task.skipped and task.data.state != "changed"
    num_examples = task.n + task.skipped
    if task.sampled is not None:
        counts = counts and (takes_sampled or task.sampled.is_whole)
        num_examples = task.sampled.of
    if not counts:
        return Measured(None, num_examples)
    main = next(iter(means.values()))
    return Measured(None if math.isnan(main) else main, num_examples, means)
