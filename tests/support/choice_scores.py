"""Scores of choices that no model gave."""

from collections.abc import Iterable
from typing import Any

from miron_jax.config import RunConfig
from miron_jax.evaluation.task_kinds.choice import ChoiceKind, ChoiceRow
from miron_jax.evaluation.task_kinds.interface import LoadedTask, Setup, TaskScores
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.spans import Spans
from miron_jax.prompting.prompts import Prompt
from miron_jax.tokens.records import Bos
from miron_jax.tokens.truncation import LengthLimit

NO_LIMIT = LengthLimit(None, None)
NOTHING: Any = None  # in place of a tokenizer
SETUP = Setup(RunConfig("none", ("none",)), NOTHING, NOTHING, NO_LIMIT, bos=Bos(0, "declared <s>"))


def choice_kind(source: LoadedTask) -> ChoiceKind:
    return ChoiceKind(source, SETUP)


def choice_scores(source: LoadedTask, rows: Iterable[tuple[Prompt, list[Any], ExampleScore]]) -> TaskScores[ChoiceRow]:
    """Rows of prompt, `Score` of each choice, score of the example."""
    questions = {question.row: question for question in source.examples}
    scored = []
    for prompt, choices, example in rows:
        spans = Spans.of_each([choice.logprob for choice in choices], [choice.rank for choice in choices])
        sums = spans.sum.tolist(), spans.is_greedy.tolist()
        scored.append(ChoiceRow(prompt.id, example, prompt, questions[prompt.row], choices, *sums))
    return TaskScores(choice_kind(source), scored)
