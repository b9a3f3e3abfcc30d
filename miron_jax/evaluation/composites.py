"""A suite's composites, with the intervals that statistics/estimate gives them.

Arrives: a suite, an `Outcome`.  Leaves: `Composite`s and their `Estimate`s.  It deliberately does not know how a suite
weighs its tasks.
"""

import math
from collections.abc import Mapping

from miron_jax.definitions.records import AnyTask, Composite, Measured, Suite
from miron_jax.evaluation.records import Outcome
from miron_jax.statistics.estimate import Estimate, estimate_composite
from miron_jax.task_kinds.interface import TaskScores


def suite_composites(suite: Suite[AnyTask], outcome: Outcome) -> dict[str, tuple[Composite, Estimate | None]]:
    """A suite's composites.  A task with skipped examples or changed data counts as missing."""
    estimates, measured = {}, {}
    for scores in outcome.tasks:
        if metrics := scores.for_composites():
            name = scores.source.task.name
            estimates[name], measured[name] = metrics, _measured(scores, metrics)
    composites = {}
    for name, composite in suite.composites(measured).items():
        of_tasks = {
            task: metrics[composite.metric] if composite.metric else next(iter(metrics.values()))
            for task, metrics in estimates.items()
            if task in composite.weights
        }
        composites[name] = composite, estimate_composite(composite, of_tasks)
    return composites


def _measured(scores: TaskScores, metrics: Mapping[str, Estimate]) -> Measured:
    source, means = scores.source, {name: estimate.value for name, estimate in metrics.items()}
    rows = None if source.task.file is None else source.task.file.rows
    is_whole = source.data.state == "as published" or rows in (None, len(source.examples))
    if scores.num_skipped or not is_whole or source.data.state == "changed":
        return Measured(None, scores.num_examples)
    main = next(iter(means.values()))
    return Measured(None if math.isnan(main) else main, scores.num_examples, means)
