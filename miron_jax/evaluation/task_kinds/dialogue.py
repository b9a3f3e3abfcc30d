"""Dialogues: the prompt of each turn holds the model's answers to earlier turns.

Arrives: a task of turns, a tokenizer, a model.  Leaves: `ChoiceRow`s.  It deliberately does not
know how turns are worded.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Example, Task, Wording
from miron_jax.engine.growing import GrowingText
from miron_jax.engine.model import Model
from miron_jax.engine.records import Score, Scores
from miron_jax.engine.self_check import SelfCheck
from miron_jax.evaluation.task_kinds.choice import ChoiceKind, ChoiceRow, PromptsOfPiece
from miron_jax.evaluation.task_kinds.interface import (
    LoadedTask,
    RequestTexts,
    TaskScores,
    TokenizedExamples,
)
from miron_jax.planning.records import CostModel
from miron_jax.prompting.prompts import Prompt, digest_of
from miron_jax.results.samples import ExampleResult
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.tokens.records import Requests

# turns per task in the self-check, and their largest length in tokens
CHECKED, CHECKED_UP_TO = 8, 4096


class DialogueKind(ChoiceKind):
    scores_spans = False  # requests of a turn depend on earlier answers
    takes_rows = False
    why_no_controls = "the prompt of a turn holds what the model has answered before"

    @property
    def may_be_sampled(self) -> bool:
        return False

    @classmethod
    def whole_prompts(
        cls, source: LoadedTask, config: RunConfig, examples: Iterable[ExampleResult]
    ) -> Iterator[Prompt]:
        predictions = {example.id: example.prediction for example in examples}
        idx = count()
        for turns in _dialogues(source, config):
            so_far: list[str] = []
            for turn_idx, turn in enumerate(turns):
                prompt = _prompt(source.task, next(idx), turns, so_far, turn_idx)
                yield prompt
                chosen = predictions.get(prompt.id)
                if chosen is None or len(so_far) < turn_idx:
                    continue
                so_far += [choice.strip() for choice in turn.continuations[chosen : chosen + 1]]

    def sizes(self, cost: CostModel) -> None:
        return None

    def pieces(self) -> Iterator[tuple[PromptsOfPiece, Requests]]:
        yield from ()

    def pairs(self) -> Iterator[RequestTexts]:
        yield from ()

    def growing_text(self, model: Model, progress: Progress) -> GrowingText:
        return GrowingText(model, max(map(self._room, self._dialogues)), progress)

    @property
    def _dialogues(self) -> list[list[Example]]:
        return _dialogues(self.source, self.setup.config)

    def score_in_turn(
        self,
        scores: TaskScores[ChoiceRow],
        model: Model,
        check: SelfCheck,
        progress: Progress = SILENT,
    ) -> None:
        """Score every turn in order.  A turn that the model answers with NaN ends its dialogue:
        later turns have no score.

        Raises SelfCheckFailed if turns that are computed from scratch score otherwise.
        """
        checked: list[tuple[tuple[np.ndarray, int], Score]] = []
        text = self.growing_text(model, progress)
        scores.growing = text.speed
        num_turns = sum(map(len, self._dialogues))
        for turns in self._dialogues:
            answered = True  # all turns so far; turns after an unanswered one are not computed
            for piece, choice_scores in self.turn_scores(scores, turns, text):
                scores.rows += self.rows_of(piece, choice_scores)
                progress.advance("dialogues", len(scores.rows), num_turns, "turns")
                if answered and _longest(piece.requests) <= CHECKED_UP_TO:
                    checked += zip(piece.requests, choice_scores, strict=True)
                answered = answered and scores.rows[-1].score.prediction is not None
        progress.end("dialogues")
        chosen = checked[:: max(1, len(checked) // CHECKED)][:CHECKED]
        names = [f"{self.source.task.name}, a turn"] * len(chosen)
        check.compare_with(
            model, [request for request, _ in chosen], [score for _, score in chosen], names
        )

    def turn_scores(
        self, scores: TaskScores[ChoiceRow], turns: Sequence[Example], text: GrowingText
    ) -> Iterator[tuple[TokenizedExamples, Scores]]:
        """Every turn of one dialogue with its choices' scores; the caller adds their rows
        before the next turn."""
        answers: list[str] = []
        for turn_idx, turn in enumerate(turns):
            prompt = _prompt(self.source.task, len(scores.rows), turns, answers, turn_idx)
            requests = self.tokenized([prompt])
            piece = TokenizedExamples(0, PromptsOfPiece.of([prompt]), requests)
            if len(answers) < turn_idx:  # an earlier turn has no answer
                width = text.model.distribution_size
                yield piece, Scores.of([_nan_score(*request, width) for request in requests])
                continue
            yield piece, Scores.of(text.score(requests))
            choice = scores.rows[-1].score.prediction
            if choice is not None:
                answers.append(turn.continuations[choice].strip())

    def _room(self, turns: Sequence[Example]) -> int:
        """Upper bound of a dialogue's tokens: an answer may have one more than the dash in its
        place."""
        return _longest(
            self.tokenized([_prompt(self.source.task, 0, turns, [], len(turns) - 1)])
        ) + len(turns)


KINDS = {"dialogue": DialogueKind}


def _dialogues(source: LoadedTask, config: RunConfig) -> list[list[Example]]:
    examples = source.examples[: config.limit]
    return [list(group) for _, group in groupby(examples, key=lambda turn: turn.dialogue)]


def _prompt(
    task: Task[Wording], id: int, turns: Sequence[Example], answers: Sequence[str], turn_idx: int
) -> Prompt:
    """The prompt of a turn with an answer to every earlier turn.  `id`: turns before it."""
    turn = turns[turn_idx]
    assert task.turn_prompt is not None
    fill = task.profile.fewshot_draw.call
    so_far = turns[: turn_idx + 1]
    context = task.turn_prompt(so_far, fill(answers, turn_idx))
    unanswered = task.turn_prompt(so_far, fill((), turn_idx))
    choices = turn.continuations
    digest = digest_of(unanswered, *choices)  # the same whatever a model answers
    return Prompt(id, turn.row, (context,) * len(choices), choices, turn.gold, digest=digest)


def _nan_score(ids: np.ndarray, start: int, width: int) -> Score:
    """`width`: columns of a distribution."""
    scored = len(ids) - start
    nan = np.full((scored, 1 + width), np.nan, np.float32)
    return Score(nan[:, 0], np.zeros(scored, np.int32), distribution=nan[:, 1:])


def _longest(requests: Requests) -> int:
    return int(np.diff(requests.offsets).max())
