"""Samples: one record an example, in the suite's own order.

Arrives: a task's scores.  Leaves: dicts.  It deliberately does not know files.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from miron_jax.engine.records import Score
from miron_jax.evaluation.records import AnswerScores, AnyScores, ClozeScores, ProgramScores, TaskScores
from miron_jax.metrics.answers import compared
from miron_jax.prompting.prompts import Prompt
from miron_jax.report.cloze import cloze_samples
from miron_jax.report.entries import option_entry
from miron_jax.statistics.estimate import is_unscored
from miron_jax.task_kinds.programs import Verdict
from miron_jax.task_kinds.records import Example, Problem


def samples(task: AnyScores) -> Iterator[dict[str, Any]]:
    """One record an example, in the suite's own order."""
    if isinstance(task, ClozeScores):
        return cloze_samples(task)
    if isinstance(task, ProgramScores):
        return _program_samples(task)
    return _answer_samples(task) if isinstance(task, AnswerScores) else _samples(task)


def _program_samples(task: ProgramScores) -> Iterator[dict[str, Any]]:
    columns = (task.problems, task.programs, task.verdicts, task.ceiling, task.examples)
    for i, (problem, programs, verdicts, ceiling, example) in enumerate(zip(*columns, strict=True)):
        yield {
            "id": i,
            "row": problem.row,
            "name": problem.name,
            "gold": None,
            "prediction": None,
            "correct": example.correct,
            "options": [],
            "generated": None,
            "programs": [
                {"text": text, "ended": verdict.ended, **({"answers": verdict.answers} if verdict.answers else {})}
                for text, verdict in zip(programs, verdicts, strict=True)
            ],
            "ceiling": ceiling.ended,
            "metrics": dict(example.metrics),
            **_published(problem),
            **({"reason": _why_unscored(_has_nan(verdicts))} if example.correct is None else {}),
        }


def _has_nan(verdicts: list[Verdict]) -> bool:
    return any(verdict.ended == "nan" for verdict in verdicts)


def _answer_samples(task: AnswerScores) -> Iterator[dict[str, Any]]:
    profile = task.source.task.profile
    for i, (prompt, example) in enumerate(zip(task.prompts, task.examples, strict=True)):
        sample = {
            "id": prompt.id,
            "row": prompt.row,
            **_category(prompt),
            **_robust(prompt, task.questions[i]),
            "gold": None,
            "prediction": None,
            "correct": example.correct,
            "options": [],
            "generated": task.generated[i],
            "ended": task.ended[i],
            "answer": compared(task.generated[i], profile),
            "accepted": list(task.questions[i].accepted),
            "metrics": dict(example.metrics),
            **_published(task.questions[i]),
        }
        yield (
            {**sample, "reason": _why_unscored(task.ended[i] == "nan", profile.match)}
            if is_unscored(example)
            else sample
        )


def _why_unscored(nan: bool, match: str = "") -> str:
    if nan:
        return "the model answers NaN"
    if match == "detox":
        return "J wants three classifiers, which are not here"
    return "the right answer is not published: it cannot be scored here"


def _published(example: Example | Problem | None) -> dict[str, Any]:
    """What names the record in a submission."""
    return {} if example is None or example.published is None else {"meta": dict(example.published["meta"])}


def _category(prompt: Prompt) -> dict[str, str]:
    return {} if prompt.category is None else {"category": prompt.category}


def _robust(prompt: Prompt, example: Example | None) -> dict[str, Any]:
    """What the robustness report groups it by, and how many worked examples it has kept."""
    found: dict[str, Any] = {} if prompt.num_shots is None else {"num_shots": prompt.num_shots}
    if example is not None and example.cluster is not None:
        found |= {"cluster": example.cluster, "swapped": example.swapped, "traits": dict(example.traits)}
    return found


def _samples(task: TaskScores) -> Iterator[dict[str, Any]]:
    chosen = task.source.task.kind != "language_modeling"
    of_row = {example.row: example for example in task.source.examples}
    for prompt, options, example in zip(task.prompts, task.options, task.examples, strict=True):
        sample = {
            "id": prompt.id,
            "row": prompt.row,
            **_category(prompt),
            **_robust(prompt, of_row.get(prompt.row)),
            "gold": prompt.gold,
            "prediction": example.prediction if chosen else None,
            "correct": example.correct,
            "options": [
                option_entry(prompt.contexts[i] + prompt.continuations[i], option) for i, option in enumerate(options)
            ],
            **({"neutral_logprobs": list(example.neutral_logprobs)} if example.neutral_logprobs else {}),
            "generated": None,
            "metrics": dict(example.metrics),
            **_published(of_row.get(prompt.row)),
        }
        if not all(map(math.isfinite, example.metrics.values())):
            sample["reason"] = _reason(options, chosen and prompt.gold is None)
        yield sample


def _reason(options: list[Score], hidden: bool) -> str:
    """Why a metric of an example is null."""
    if hidden or any(np.isnan(option.logprob).any() for option in options):
        return _why_unscored(any(np.isnan(option.logprob).any() for option in options))
    if any(np.isinf(option.logprob).any() for option in options):
        return "the model gives a token no probability at all"
    return "the gold option has no scored token"
