"""Dialogues: each turn is worded with the answers to those before it, scored, and answered.

Arrives: a task of turns, a tokenizer, a model.  Leaves: `ChoiceScores`.  It deliberately does not know what a turn says.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np

from miron_jax.definitions.records import Example
from miron_jax.engine.growing import GrowingText
from miron_jax.engine.model import Model
from miron_jax.engine.records import Score
from miron_jax.engine.self_check import SelfCheck
from miron_jax.planning.records import CostModel
from miron_jax.prompting.prompts import Prompt
from miron_jax.task_kinds.choice import Choice, ChoiceScores
from miron_jax.task_kinds.interface import Piece
from miron_jax.tokens.records import Requests

CHECKED, CHECKED_UP_TO = 8, 4096  # turns of a task that the self-check reads whole, and tokens that they may have


class Dialogue(Choice):
    scores_spans = False  # each turn only behind the answers to those before it

    def sizes(self, cost: CostModel) -> None:
        return None

    def pieces(self) -> Iterator[tuple[list[Prompt], Requests]]:
        yield from ()

    def ask(
        self, scores: ChoiceScores, model: Model, check: SelfCheck, say: Callable[[str], None] = lambda line: None
    ) -> None:
        """Ask every turn in order.  A turn to which the model answers NaN ends its dialogue: the rest is not scored.

        Raises SelfCheckFailed where turns that are read whole score otherwise.
        """
        turns = self.source.examples[: self.setup.config.limit]
        checked: list[tuple[np.ndarray, int, Score]] = []
        dialogues = [list(group) for _, group in groupby(turns, key=lambda turn: turn.dialogue)]
        text = GrowingText(model, max(self._room(scores, own) for own in dialogues), say)
        scores.growing = text.speed
        for own in dialogues:
            answered = True  # all turns so far; what comes behind one that is not was never read
            for piece, found in self.asked(scores, own, text):
                self.take(scores, piece, found)
                if answered and _longest(piece.requests) <= CHECKED_UP_TO:
                    pairs = zip(piece.requests, found, strict=True)
                    checked += [(ids, start, score) for (ids, start), score in pairs]
                answered = answered and scores.examples[-1].prediction is not None
        chosen = checked[:: max(1, len(checked) // CHECKED)][:CHECKED]
        names = [f"{self.source.task.name}, a turn" for _ in chosen]
        check.compare_with(model, [own[:2] for own in chosen], [own[2] for own in chosen], names)

    def asked(
        self, scores: ChoiceScores, turns: Sequence[Example], text: GrowingText
    ) -> Iterator[tuple[Piece, list[Score]]]:
        """Every turn of one dialogue with its options' scores; the caller scores it before the next one is asked."""
        answers: list[str] = []
        for place, turn in enumerate(turns):
            prompt = self._prompt(scores, turns, answers, place)
            requests = self.tokenized([prompt])
            is_nan = len(answers) < place  # an earlier turn has no answer
            found = [_unanswered(ids, start) for ids, start in requests] if is_nan else text.score(requests)
            yield Piece(0, [prompt], requests), found
            chosen = scores.examples[-1].prediction
            if chosen is not None and not is_nan:
                answers.append(turn.continuations[chosen].strip())

    def _prompt(self, scores: ChoiceScores, turns: Sequence[Example], answers: Sequence[str], place: int) -> Prompt:
        """A turn behind an answer to every turn before it."""
        turn, before = turns[place], self.source.task.profile.fewshot_draw.call(answers, place)
        context, options = self.source.task.ask(turns[: place + 1], before), turn.continuations
        return Prompt(len(scores.prompts), turn.row, (context,) * len(options), options, turn.gold)

    def _room(self, scores: ChoiceScores, turns: Sequence[Example]) -> int:
        """Tokens that a dialogue may come to; an answer may take one more than the dash that stands for it here."""
        return _longest(self.tokenized([self._prompt(scores, turns, [], len(turns) - 1)])) + len(turns)


KINDS = {"dialogue": Dialogue}


def _unanswered(ids: np.ndarray, start: int) -> Score:
    scored = len(ids) - start
    return Score(np.full(scored, np.nan, np.float32), np.zeros(scored, np.int32))


def _longest(requests: Requests) -> int:
    return int(np.diff(requests.offsets).max())
