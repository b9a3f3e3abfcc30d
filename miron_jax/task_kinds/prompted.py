"""What choices and generated answers have in common: examples behind prompts, categories, numbers over the whole set.

Arrives: prompts and example scores.  Leaves: estimates and a task's part of results.json.  It deliberately does not know
how an example was scored.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from miron_jax.definitions.records import Example
from miron_jax.metrics.choices import ExampleScore
from miron_jax.prompting.prompts import Prompt
from miron_jax.statistics.estimate import Estimate, TaskEstimates, by_category, is_unscored, whole_set_estimates
from miron_jax.statistics.robustness import robustness
from miron_jax.task_kinds.entries import num_shots_entry, task_entry
from miron_jax.task_kinds.interface import Facts, Source, TaskScores


@dataclass(slots=True)
class PromptedScores(TaskScores):
    source: Source
    prompts: list[Prompt] = field(default_factory=list)  # without their worked examples
    examples: list[ExampleScore] = field(default_factory=list)
    truncated: int = 0  # examples that lost tokens to the length limit
    beyond_trained: int = 0  # examples longer than the length the model was trained at

    @property
    def num_examples(self) -> int:
        return len(self.examples)

    @property
    def num_skipped(self) -> int:
        return sum(is_unscored(example) for example in self.examples)

    @property
    @abstractmethod
    def answers(self) -> list[str | None]:
        """What was answered to each example, without white space at its ends; None: nothing."""

    @property
    def compared_answers(self) -> list[str | None]:
        """As they are compared with the right one."""
        return self.answers

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """What only tasks of this kind have in results.json."""

    @property
    def examples_by_row(self) -> dict[int, Example]:
        return {example.row: example for example in self.source.examples}

    def estimates(self) -> TaskEstimates:
        categories = [prompt.category for prompt in self.prompts]
        return by_category(self.examples, categories, self.source.task.profile.categories, self._whole_set())

    def for_composites(self) -> Mapping[str, Estimate]:
        main = self.source.task.main
        return {name: own for name, own in self.estimates().metrics.items() if name == main}

    def entry(self, facts: Facts) -> dict[str, Any]:
        of_kind = {
            **self.details(),
            "truncated": self.truncated,
            "beyond_trained_length": self.beyond_trained,
            **num_shots_entry(self.prompts),
        }
        if (told := self.robustness()) is not None:
            of_kind["robustness"] = told
        num_scored = self.num_examples - self.num_skipped
        return task_entry(self.source, self.estimates(), num_scored, self.num_skipped, facts, of_kind)

    def robustness(self) -> dict[str, Any] | None:
        """How far scores hang on wording; None: the task's examples tell of no clusters."""
        task, by_row = self.source.task, self.examples_by_row
        if task.clusters is None:
            return None
        examples = [by_row[prompt.row] for prompt in self.prompts]
        shown = [(prompt.contexts[0], prompt.continuations) for prompt in self.prompts]
        return robustness(task, examples, self.examples, shown, self.compared_answers)

    def _whole_set(self) -> dict[str, Estimate]:
        """The profile's numbers over all examples together, of those whose right answer is published."""
        task, by_row = self.source.task, self.examples_by_row
        if task.answered is None:
            return {}
        answers = self.answers
        found = [
            task.answered(by_row[prompt.row], answer)
            for prompt, example, answer in zip(self.prompts, self.examples, answers, strict=True)
            if not is_unscored(example) and answer is not None and (by_row[prompt.row].published or {}).get("outputs")
        ]
        return whole_set_estimates(task.profile.over_all.call, found, len(answers) - len(found))
