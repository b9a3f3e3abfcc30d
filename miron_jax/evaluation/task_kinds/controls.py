"""Controls of choice tasks: examples with one thing of their prompts changed, scored by the same
rules.

Arrives: a `ChoiceKind`; then the scores of the task and those of its controls.  Leaves: requests,
then `Controls`.  It deliberately does not know what a control changes.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import nan
from operator import attrgetter

from miron_jax.evaluation.task_kinds.choice import ChoiceKind, ChoiceRow
from miron_jax.evaluation.task_kinds.interface import TaskScores
from miron_jax.prompting.controls import (
    CONTROLS,
    PERMUTED_OPTIONS,
    ControlPrompts,
    control_prompts,
)
from miron_jax.prompting.prompts import Prompt
from miron_jax.results.records import Control, Controls
from miron_jax.results.samples import FinishedTask
from miron_jax.statistics.estimate import Estimate, estimate
from miron_jax.statistics.paired import difference


class ControlsKind(ChoiceKind):
    """All controls of one task; the id of a row is its place among `made.prompts`."""

    def __init__(self, plain: ChoiceKind) -> None:
        super().__init__(plain.source, replace(plain.setup, kept=None))

    @cached_property
    def made(self) -> ControlPrompts:
        task = self.source.task
        examples = self.source.examples
        return control_prompts(task, examples, super().prompts(), self.setup.config.seed)

    def prompts(self) -> list[Prompt]:
        return self.made.prompts


def with_controls(
    finished: Mapping[str, FinishedTask],
    tasks: Sequence[TaskScores],
    controls: Sequence[TaskScores[ChoiceRow]],
) -> dict[str, FinishedTask]:
    """The tasks with their controls, or with why they have none."""
    added = dict(finished)
    plain = dict[str, TaskScores]()
    for scores in tasks:
        absent = dict.fromkeys(CONTROLS, scores.kind.why_no_controls)
        plain[scores.source.task.name] = scores
        _add(added, scores, Controls(of=len(scores.rows), absent=absent))
    for scores in controls:
        _add(added, scores, controls_of(plain[scores.source.task.name], scores))
    return added


def _add(tasks: dict[str, FinishedTask], scores: TaskScores, controls: Controls) -> None:
    name = scores.source.task.name
    result = replace(tasks[name].result, controls=controls)
    tasks[name] = tasks[name]._replace(result=result)


def controls_of(plain: TaskScores[ChoiceRow], controls: TaskScores[ChoiceRow]) -> Controls:
    """The accuracy of each control, and how far that of the same examples as they are is above
    it."""
    assert isinstance(controls.kind, ControlsKind)
    made = controls.kind.made
    changed = defaultdict[str, list[ChoiceRow]](list)
    for row in sorted(controls.rows, key=attrgetter("id")):
        changed[made.controls[row.id]].append(row)
    rows = {row.id: row for row in plain.rows}
    drawn = [*map(rows.__getitem__, made.ids)]
    clusters = None
    if drawn and drawn[0].question.cluster is not None:
        clusters = [str(row.question.cluster) for row in drawn]
    right = [*map(_right, drawn)]
    by = dict[str, Control]()
    for name in filter(changed.__contains__, CONTROLS):
        by[name] = control_of(right, [*map(_right, changed[name])], clusters)
        if name == PERMUTED_OPTIONS:
            by[name] = replace(by[name], chosen_places=_places(changed[name]))
    accuracy = estimate(right, proportion=True)
    return Controls(n=len(drawn), of=len(rows), accuracy=accuracy, by=by, absent=made.absent)


def control_of(
    plain: Sequence[float], changed: Sequence[float], clusters: Sequence[str] | None = None
) -> Control:
    """`plain`, `changed`: whether each example is right as it is, and under the control; 0, 1 or
    NaN."""
    gap = difference(changed, plain, clusters=clusters)
    of_pairs = Estimate(gap.value, gap.stderr, gap.ci95, gap.num_examples, gap.num_undefined)
    return Control(estimate(changed, proportion=True), of_pairs)


def _right(row: ChoiceRow) -> float:
    return row.score.metrics.get("accuracy", nan)


def _places(rows: Sequence[ChoiceRow]) -> tuple[float, ...]:
    """The share of the choices that each place has."""
    num_places = {*map(len, map(attrgetter("choices"), rows))}
    if len(num_places) > 1:
        return ()  # a place that some examples lack is chosen less often
    chosen = Counter(row.score.prediction for row in rows if row.score.prediction is not None)
    return tuple(chosen[place] / max(1, chosen.total()) for place in range(*num_places))
