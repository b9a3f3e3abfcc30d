"""What choices and completions share: prompts of examples, categories, numbers over all examples.

Arrives: prompts and example scores.  Leaves: estimates and a task's part of results.json.  It deliberately does not know
how an example is scored.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from miron_jax.definitions.records import Example
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import ExampleScore
from miron_jax.prompting.prompts import Prompt
from miron_jax.statistics.estimate import Estimate, TaskEstimates, by_category, is_unscored, whole_set_estimates
from miron_jax.statistics.robustness import robustness
from miron_jax.task_kinds.entries import num_shots_entry, task_entry
from miron_jax.task_kinds.interface import Facts, Source, TaskScores

MEANS = ("choice_prob_norm",)  # that composites may take beside a task's main metric


@dataclass(slots=True)
class PromptedScores(TaskScores):
    source: Source
    prompts: list[Prompt] = field(default_factory=list)  # without their few-shot examples
    examples: list[ExampleScore] = field(default_factory=list)
    truncated: int = 0  # examples that lost tokens to the length limit
    beyond_trained: int = 0  # examples longer than the length the model was trained at

    @property
    @abstractmethod
    def answers(self) -> list[str | None]:
        """The answer to each example, without white space at its ends; None: no answer."""

    @property
    def compared_answers(self) -> list[str | None]:
        """Answers in the form that is compared with the right one."""
        return self.answers

    @abstractmethod
    def details(self) -> JsonObject:
        """Keys of results.json that only this kind has."""

    @property
    def examples_by_row(self) -> dict[int, Example]:
        return {example.row: example for example in self.source.examples}

    def estimates(self) -> TaskEstimates:
        categories = [prompt.category for prompt in self.prompts]
        return by_category(self.examples, categories, self.source.task.profile.categories, self._whole_set())

    def for_composites(self) -> Mapping[str, Estimate]:
        metrics, main = self.estimates().metrics, self.source.task.main
        return {name: metrics[name] for name in (main, *MEANS) if name in metrics} if main in metrics else {}

    def entry(self, facts: Facts) -> JsonObject:
        of_kind = {
            **self.details(),
            "truncated": self.truncated,
            "beyond_trained_length": self.beyond_trained,
            **num_shots_entry(self.prompts),
        }
        if (report := self.robustness()) is not None:
            of_kind["robustness"] = report
        return task_entry(self, self.estimates(), facts, of_kind)

    def robustness(self) -> JsonObject | None:
        """How far scores depend on wording; None: the task's examples have no clusters."""
        task, by_row = self.source.task, self.examples_by_row
        examples = [by_row[prompt.row] for prompt in self.prompts]
        wordings = [(prompt.contexts[0], prompt.continuations) for prompt in self.prompts]
        return robustness(task, examples, self.examples, wordings, self.compared_answers)

    def _whole_set(self) -> dict[str, Estimate]:
        """The profile's numbers over all examples with a published right answer."""
        task, by_row = self.source.task, self.examples_by_row
        if task.answered is None:
            return {}
        answers = self.answers
        answered = [
            task.answered(by_row[prompt.row], answer)
            for prompt, example, answer in zip(self.prompts, self.examples, answers, strict=True)
            if not is_unscored(example) and answer is not None and (by_row[prompt.row].published or {}).get("outputs")
        ]
        return whole_set_estimates(task.profile.over_all.call, answered, len(answers) - len(answered))
