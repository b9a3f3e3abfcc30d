"""What choices and completions share: prompts of examples, categories, numbers over all examples,
people's scores of the same examples.

Arrives: prompts and example scores.  Leaves: estimates and a task's result.  It deliberately does
not know how an example is scored.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from miron_jax.config import RunConfig
from miron_jax.definitions.records import AnyExample, Example, HumanBaseline, PromptedTask
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.interface import LoadedTask, ScoredRow, TaskKind, TaskScores
from miron_jax.evaluation.task_kinds.summary import num_shots_of, task_result
from miron_jax.files.places import public
from miron_jax.humans.task_labels import TaskLabels
from miron_jax.metrics.choices import ExampleScore
from miron_jax.prompting.prompts import Prompt, each_rendered, render
from miron_jax.results.details import ChoiceDetails, GenerationDetails
from miron_jax.results.records import TaskResult
from miron_jax.results.samples import ExampleResult
from miron_jax.runtime.timeline import spent_on
from miron_jax.statistics.estimate import Estimate, TaskEstimates, by_category, whole_set_estimates
from miron_jax.statistics.human_gaps import BothAnswered, HumanGap, OverAll, paired_gaps
from miron_jax.statistics.robustness import Robustness, Worded, robustness


@dataclass(slots=True)
class PromptedRow(ScoredRow):
    score: ExampleScore  # pyright: ignore[reportIncompatibleVariableOverride] - always spelled
    prompt: Prompt  # without its few-shot examples
    question: Example

    @property
    @abstractmethod
    def answer(self) -> str | None:
        """The answer, without white space at its ends; None: no answer."""


AnyPrompted = TypeVar("AnyPrompted", bound=PromptedRow)


class PromptedKind(TaskKind[AnyPrompted]):
    takes_rows = True

    @classmethod
    def whole_prompts(
        cls, source: LoadedTask, config: RunConfig, examples: Iterable[ExampleResult]
    ) -> Iterable[Prompt]:
        return each_rendered(source.task, source.examples, config.limit)

    @spent_on("render")
    def prompts(self) -> list[Prompt]:
        """Those of --rows, or all.  Raises InputError for a row that is not there."""
        config = self.setup.config
        prompts = render(self.source.task, self.source.examples, config.limit)
        if self.setup.chat is not None:
            prompts = self.setup.chat.prompts(prompts, self.source.task.profile)
        if config.rows is None:
            return prompts
        chosen = [prompt for prompt in prompts if prompt.row in config.rows]
        if absent := set(config.rows) - {prompt.row for prompt in chosen}:
            last = max(prompt.row for prompt in prompts)
            raise InputError(
                f"--rows: {self.source.task.name} has no example of row {min(absent)}, expected "
                f"lines of its data file, 0 to {last}, that --limit leaves: name others"
            )
        return chosen

    @abstractmethod
    def details(self, scores: TaskScores[AnyPrompted]) -> ChoiceDetails | GenerationDetails:
        """What only this kind has."""

    @classmethod
    @abstractmethod
    def label_of(cls, task: PromptedTask, example: AnyExample, answer: str, is_place: bool) -> str:
        """A person's answer as a text that equal answers share.  `is_place`: it is the place of a
        choice, from 0.  Raises ValueError for what is no answer to the example."""

    @abstractmethod
    def answered_by(self, row: AnyPrompted, label: str) -> AnyPrompted:
        """The row with the answer and the score of people, whose label `label_of` has given."""

    def compared(self, answer: str) -> str:
        """An answer in the form that is compared with the right one."""
        return answer

    def result(self, scores: TaskScores[AnyPrompted]) -> TaskResult:
        return task_result(
            scores,
            self.estimates(scores),
            self.details(scores),
            num_shots_of([row.prompt for row in scores.rows]),
            self.robustness(scores),
            self.human(scores),
        )

    def human(self, scores: TaskScores[AnyPrompted]) -> Sequence[HumanGap]:
        """Gaps to people's labels; empty: there are none."""
        task = self.source.task
        labels = self.source.labels
        if labels is None:
            return ()
        both = list[BothAnswered]()
        for row in scores.rows:
            if row.prompt.row not in labels.of_row:
                continue
            people = self.answered_by(row, labels.of_row[row.prompt.row])
            of_both = (self._record(row), self._record(people))
            both.append(
                BothAnswered(
                    row.score,
                    people.score,
                    row.prompt.category,
                    row.question.cluster,
                    None if None in of_both else of_both,
                )
            )
        return paired_gaps(
            both, _baseline_of(labels, task.main), task.profile.categories, self._over_all(scores)
        )

    def estimates(self, scores: TaskScores[AnyPrompted]) -> TaskEstimates:
        examples = [row.score for row in scores.rows]
        categories = [row.prompt.category for row in scores.rows]
        rule = self.source.task.profile.categories
        return by_category(examples, categories, rule, self._whole_set(scores))

    def robustness(self, scores: TaskScores[AnyPrompted]) -> Robustness | None:
        """How far scores depend on wording; None: the task's examples have no clusters."""
        asked = [
            Worded(
                row.question,
                row.score,
                (row.prompt.contexts[0], row.prompt.continuations),
                row.answer and self.compared(row.answer),
            )
            for row in scores.rows
        ]
        return robustness(self.source.task, asked)

    def _over_all(self, scores: TaskScores[AnyPrompted]) -> OverAll:
        """The rule of numbers over all examples, which reads what `_record` gives."""
        return self.source.task.profile.over_all.call

    def _record(self, row: AnyPrompted) -> object:
        """What the profile's rule over all examples reads of an answer; None: it has none, or the
        right answer is not published."""
        task = self.source.task
        has_gold = bool((row.question.published or {}).get("outputs"))
        if task.answered is None or not has_gold or row.answer is None or row.is_unscored:
            return None
        return task.answered(row.question, row.answer)

    def _whole_set(self, scores: TaskScores[AnyPrompted]) -> dict[str, Estimate]:
        """The profile's numbers over all examples with a published right answer."""
        task = self.source.task
        if task.answered is None:
            return {}
        answered = []
        for row in scores.rows:
            record = self._record(row)
            if record is not None:
                answered.append(record)
        return whole_set_estimates(
            task.profile.over_all.call, answered, len(scores.rows) - len(answered)
        )


def _baseline_of(labels: TaskLabels, metric: str) -> HumanBaseline:
    """What the human baselines of these labels have in common."""
    people = labels.people
    note = f"{people.rows} answers of {people.workers} annotators, {len(people.rejected)} rejected"
    if people.alpha is not None:
        note += f"; Krippendorff's alpha {people.alpha:.3f}"
    if without := people.items - len(labels.of_row):
        note += f"; {without} of {people.items} rows have no label"
    return HumanBaseline(
        metric, math.nan, 0, labels.procedure, "measured", public(str(labels.file)), note=note
    )
