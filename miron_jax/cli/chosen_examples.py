"""The examples that --rows names, with everything that a score is made of.

Arrives: a task's kind, and its scores once there are some.  Leaves: lines.  It deliberately chooses
nothing: the kind gives the examples.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from miron_jax.evaluation.task_kinds.choice import ChoiceRow
from miron_jax.evaluation.task_kinds.generation import GenerationKind, GenerationRow
from miron_jax.evaluation.task_kinds.interface import ScoredRow, TaskKind, TaskScores
from miron_jax.prompting.prompts import Prompt
from miron_jax.tokens.tokenizers import Tokenizer

OPEN, CLOSE = "⟦", "⟧"  # around the scored span
NEAR = 8  # tokens before the scored span that are shown with it
Rows = Mapping[int, ScoredRow]  # by id; {}: no model has run
Shown = tuple[Prompt, str, list[str]]  # the text before the answers, and a line for each answer


def chosen_examples(kind: TaskKind, scores: TaskScores | None = None) -> Iterator[str]:
    """The prompt of every example, with the scored tokens of each choice and their
    log-probabilities in nats, or with its completion.  `scores`: None before a model has run."""
    rows: Rows = {}
    if scores is not None:
        rows = {row.id: row for row in scores.rows}
    of_kind = _chosen(kind, rows)
    if isinstance(kind, GenerationKind):
        of_kind = _completed(kind, rows)
    for prompt, text, answers in of_kind:
        yield f"{kind.source.task.name}, row {prompt.row}, prompt:"
        yield text
        yield from answers
        row = rows.get(prompt.id)
        if row is not None and row.score is not None:
            numbers = row.score.metrics.items()
            yield ", ".join(f"{name} {value:.4g}" for name, value in numbers)


def _completed(kind: GenerationKind, rows: Rows) -> Iterator[Shown]:
    kind.prepare()
    asked = kind.requests
    for prompt, ids in zip(asked.worded, asked.prompts, strict=True):
        row = rows.get(prompt.id)
        lines = list[str]()
        if isinstance(row, GenerationRow):
            lines.append(f"  completion: {row.text!r}")
        yield prompt, kind.setup.tokenizer.decode(list(ids)), lines


def _chosen(kind: TaskKind, rows: Rows) -> Iterator[Shown]:
    for prompts, requests in kind.pieces():
        first = 0
        for prompt in prompts:
            row = rows.get(prompt.id)
            num_choices = len(prompt.contexts) - prompt.num_extra
            lines = []
            for choice in range(num_choices):
                right = " (right)" if prompt.gold == choice and num_choices > 1 else ""
                logprob = row.choices[choice].logprob if isinstance(row, ChoiceRow) else None
                ids = requests.tokens(first + choice)
                start = int(requests.span_start[first + choice])
                lines.append(
                    f"  {choice}{right}: {_span(kind.setup.tokenizer, ids, start, logprob)}"
                )
            contexts = dict.fromkeys(prompt.contexts[:num_choices])  # of a schema several
            yield prompt, prompt.preamble + "\n".join(contexts), lines
            first += len(prompt.contexts)


def _span(tokenizer: Tokenizer, ids: np.ndarray, start: int, logprob: np.ndarray | None) -> str:
    """The scored tokens of a request behind the last ones before them."""
    before = tokenizer.decode(ids[max(0, start - NEAR) : start].tolist())
    tokens = [repr(tokenizer.decode([token])) for token in ids[start:].tolist()]
    if logprob is None:
        return f"..{before!r} {OPEN}{' | '.join(tokens)}{CLOSE}"
    scored = [f"{token} {nats:.4f}" for token, nats in zip(tokens, logprob, strict=True)]
    return f"..{before!r} {OPEN}{' | '.join(scored)}{CLOSE} sum {sum(logprob):.4f}"
