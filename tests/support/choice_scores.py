"""Scores of choices that no model gave."""

from collections.abc import Iterable
from typing import Any

from miron_jax.config import RunConfig
from miron_jax.evaluation.task_kinds.choice import Choice, ChoiceRow
from miron_jax.evaluation.task_kinds.interface import Facts, Setup, Source, TaskScores
from miron_jax.metrics.choices import ExampleScore
from miron_jax.prompting.prompts import Prompt
from miron_jax.tokens.records import Bos, LengthLimit

NO_LIMIT = LengthLimit(None, None)
NOTHING: Any = None  # in place of a tokenizer
FACTS = Facts(RunConfig("none", ("none",)), NO_LIMIT, Bos(0, "declared <s>"))


def choice_kind(source: Source) -> Choice:
    return Choice(source, Setup(FACTS.config, NOTHING, NOTHING, NO_LIMIT))


def choice_scores(source: Source, rows: Iterable[tuple[Prompt, list[Any], ExampleScore]]) -> TaskScores[ChoiceRow]:
    """Rows of prompt, `Score` of each choice, score of the example."""
    scored = [ChoiceRow(prompt.id, example, prompt, choices) for prompt, choices, example in rows]
    return TaskScores(choice_kind(source), scored)
