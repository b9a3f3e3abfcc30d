"""Tasks' scores -> a suite's composites with their uncertainty.

Arrives: a suite, an `Outcome`.  Leaves: `Composite`s and their `Estimate`s.  It deliberately does not know how a suite
weighs its tasks: the suite does.
"""

import math
from collections.abc import Mapping

from miron_jax.definitions.records import AnyTask, Composite, Measured, Suite
from miron_jax.evaluation.records import Outcome
from miron_jax.statistics.estimate import Estimate, estimate_composite
from miron_jax.task_kinds.interface import TaskScores


def suite_composites(suite: Suite[AnyTask], outcome: Outcome) -> dict[str, tuple[Composite, Estimate | None]]:
    """A suite's composites.  A task with skipped examples or changed data counts as missing: no name without the data."""
    found = {task.source.task.name: own for task in outcome.tasks if (own := task.for_composites())}
    measured = {
        task.source.task.name: _measured(task, found[task.source.task.name])
        for task in outcome.tasks
        if task.source.task.name in found
    }
    composites = {}
    for name, composite in suite.composites(measured).items():
        stderrs = {
            task: (own[composite.metric] if composite.metric else next(iter(own.values()))).stderr
            for task, own in found.items()
            if task in composite.weights
        }
        composites[name] = composite, estimate_composite(composite, stderrs)
    return composites


def _measured(task: TaskScores, found: Mapping[str, Estimate]) -> Measured:
    source, means = task.source, {name: own.value for name, own in found.items()}
    rows = None if source.task.file is None else source.task.file.rows
    is_whole = source.data.state == "as published" or rows in (None, len(source.examples))
    if task.num_skipped or not is_whole or source.data.state == "changed":
        return Measured(None, task.num_examples)
    main = next(iter(means.values()))
    return Measured(None if math.isnan(main) else main, task.num_examples, means)
