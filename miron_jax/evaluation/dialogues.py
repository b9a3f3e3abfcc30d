"""Dialogues: each turn is worded with the answers to those before it, scored, and answered.

Arrives: a source of turns, a tokenizer, a model.  Leaves: its `TaskScores`.  It deliberately does not know what a turn
says.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from miron_jax.engine.growing import GrowingText
from miron_jax.engine.model import Model
from miron_jax.engine.records import Score
from miron_jax.engine.self_check import SelfCheck
from miron_jax.evaluation.hand_out import hand_out
from miron_jax.evaluation.parts import Piece
from miron_jax.evaluation.records import TaskScores
from miron_jax.prompting.prompts import Prompt
from miron_jax.task_kinds.records import Example
from miron_jax.tokens.records import Requests
from miron_jax.tokens.requests import tokenize

CHECKED, CHECKED_UP_TO = 8, 4096  # turns of a task that the self-check reads whole, and tokens that they may have


def score_dialogues(
    task: TaskScores,
    limit: int | None,
    model: Model,
    tokenizer: Any,
    max_length: int | None,
    trained_length: int,
    check: SelfCheck,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Ask every turn in order.  A turn to which the model answers NaN ends its dialogue: the rest is not scored.

    Raises SelfCheckFailed where turns that are read whole score otherwise.
    """
    definition, turns = task.source.task, task.source.examples[:limit]
    checked: list[tuple[np.ndarray, int, Score]] = []
    dialogues = [list(group) for _, group in groupby(turns, key=lambda turn: turn.dialogue)]
    text = GrowingText(model, max(_room(task, own, tokenizer, max_length) for own in dialogues), say)
    task.growing = text.speed
    for own in dialogues:
        answered = True  # all turns so far; what comes behind one that is not was never read
        for piece, scores in asked(task, own, text, tokenizer, max_length):
            hand_out(task, piece, scores, trained_length)
            if answered and _longest(piece.requests) <= CHECKED_UP_TO:
                checked += [(ids, start, score) for (ids, start), score in zip(piece.requests, scores, strict=True)]
            answered = answered and task.examples[-1].prediction is not None
    chosen = checked[:: max(1, len(checked) // CHECKED)][:CHECKED]
    names = [f"{definition.name}, a turn" for _ in chosen]
    check.compare_with(model, [own[:2] for own in chosen], [own[2] for own in chosen], names)


def asked(
    task: TaskScores, turns: Sequence[Example], text: GrowingText, tokenizer: Any, max_length: int | None
) -> Iterator[tuple[Piece, list[Score]]]:
    answers: list[str] = []
    for place, turn in enumerate(turns):
        requests = _requests(task, turns, answers, place, tokenizer, max_length)
        nan = len(answers) < place  # an earlier turn has no answer
        scores = [_unanswered(ids, start) for ids, start in requests] if nan else text.score(requests)
        yield Piece(0, [_prompt(task, turns, _told(answers, place), place)], requests), scores
        chosen = task.examples[-1].prediction
        if chosen is not None and not nan:
            answers.append(turn.continuations[chosen].strip())


def _prompt(task: TaskScores, turns: Sequence[Example], answers: Sequence[str], place: int) -> Prompt:
    turn, ask = turns[place], task.source.task.ask
    assert ask is not None
    context, options = ask(turns[: place + 1], answers), turn.continuations
    return Prompt(len(task.prompts), turn.row, (context,) * len(options), options, turn.gold)


def _requests(
    task: TaskScores,
    turns: Sequence[Example],
    answers: Sequence[str],
    place: int,
    tokenizer: Any,
    max_length: int | None,
) -> Requests:
    prompt = _prompt(task, turns, _told(answers, place), place)
    return tokenize([prompt], task.source.task.profile, tokenizer, max_length, task.source.task.name)


def _told(answers: Sequence[str], place: int) -> list[str]:
    """An answer to every turn before this one; a dash where there is none."""
    return [*answers, *["-"] * (place - len(answers))]


def _unanswered(ids: np.ndarray, start: int) -> Score:
    scored = len(ids) - start
    return Score(np.full(scored, np.nan, np.float32), np.zeros(scored, np.int32))


def _room(task: TaskScores, turns: Sequence[Example], tokenizer: Any, max_length: int | None) -> int:
    """Tokens that a dialogue may come to; an answer may take one more than the dash that stands for it here."""
    return _longest(_requests(task, turns, [], len(turns) - 1, tokenizer, max_length)) + len(turns)


def _longest(requests: Requests) -> int:
    return int(np.diff(requests.offsets).max())
