"""A suite's composites, with the intervals that statistics/estimate gives them.

Arrives: a suite, an `Outcome`.  Leaves: `Composite`s and their `Estimate`s.  It deliberately does not know how a suite
weighs its tasks.
"""

import math
from collections.abc import Mapping

from miron_jax.definitions.records import AnyTask, Composite, Measured, Suite
from miron_jax.evaluation.records import Outcome
from miron_jax.evaluation.sampling import of_complete_set
from miron_jax.statistics.estimate import Estimate, estimate_composite
from miron_jax.task_kinds.interface import TaskScores

SAMPLED = "sampled "  # before the name of a composite of which not every example ran


def suite_composites(suite: Suite[AnyTask], outcome: Outcome) -> dict[str, tuple[Composite, Estimate | None]]:
    """A suite's composites.  A task with skipped examples or changed data counts as missing.

    So does one of which not every example ran; "sampled" composites take it, with their error for the complete set.
    """
    whole = _composites(suite, outcome, False)
    if not any(scores.sampled for scores in outcome.tasks):
        return whole
    sampled = _composites(suite, outcome, True).items()
    added = {name: own for name, own in sampled if own[0].value is not None and whole[name][0].value is None}
    return whole | {f"{SAMPLED}{name}": own for name, own in added.items()}


def _composites(
    suite: Suite[AnyTask], outcome: Outcome, takes_sampled: bool
) -> dict[str, tuple[Composite, Estimate | None]]:
    estimates, measured = {}, {}
    for scores in outcome.tasks:
        if metrics := scores.for_composites():
            name = scores.source.task.name
            is_whole = takes_sampled or scores.sampled is None or scores.sampled.examples == scores.sampled.of
            estimates[name] = metrics
            if takes_sampled:
                main, *others = metrics.items()
                estimates[name] = dict([(main[0], of_complete_set(scores, main[1])), *others])
            own = _measured(scores, metrics) if is_whole else Measured(None, scores.num_examples)
            measured[name] = own if scores.sampled is None else own._replace(num_examples=scores.sampled.of)
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
