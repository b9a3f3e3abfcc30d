"""Generation: completions are compared with the right answers.

Arrives: a task of questions, a tokenizer; then completions.  Leaves: `GenerationRow`s.  It
deliberately does not know how a completion is generated.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from miron_jax.definitions.records import AnyExample, PromptedTask, Question
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest, plain_text
from miron_jax.evaluation.detox_scorer import Classifiers
from miron_jax.evaluation.task_kinds.interface import TaskScores
from miron_jax.evaluation.task_kinds.prompted import PromptedKind, PromptedRow
from miron_jax.evaluation.task_kinds.summary import (
    asked_prompt,
    num_leaked,
    submitted_meta,
    why_unscored,
)
from miron_jax.humans.task_labels import label_of_text
from miron_jax.metrics.answers import (
    EQUAL,
    PREFIX,
    compared,
    holds_stop,
    may_be_right,
    score_answer,
)
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.detox import DETOX, Scorer, detox_scores
from miron_jax.prompting.prompts import without_end_spaces, without_shots
from miron_jax.results.details import FEW, GenerationDetails
from miron_jax.results.samples import Completion, ExampleResult
from miron_jax.tokens.answer_requests import AnswerRequests, answer_requests
from miron_jax.tokens.detokenize import drops_first_space


@dataclass(slots=True)
class GenerationRow(PromptedRow):
    """Its metrics are NaN, never 0, if the model answered NaN, or if classifiers are needed and
    missing."""

    question: Question  # pyright: ignore[reportIncompatibleVariableOverride] - it has answers
    completion: Generated  # its token ids are without EOS
    text: str
    truncated: bool  # its prompt lost tokens to the length limit

    @property
    def is_nan(self) -> bool:
        return self.completion.ended == "nan"

    @property
    def answer(self) -> str | None:
        return None if self.is_nan else self.text.strip()


class GenerationKind(PromptedKind[GenerationRow]):
    generates = True
    requests: AnswerRequests

    def prepare(self) -> None:
        task = self.source.task
        prompts = self.prompts()
        if self.setup.tokenizer is None:
            self.requests = AnswerRequests.untokenized(len(prompts), prompts)
            return
        self.requests = answer_requests(
            prompts,
            self.source.examples,
            task.profile,
            self.setup.tokenizer,
            self.max_length,
            task.name,
        )

    def texts(self) -> list[TextRequest]:
        profile = self.source.task.profile
        sampling = Sampling(**profile.decoding.call())
        stop = profile.stop
        if self.setup.chat is not None and self.setup.chat.end_of_turn:
            stop = (*stop, self.setup.chat.end_of_turn)
        return [
            TextRequest(ids, self.requests.max_new_tokens, stop, sampling)
            for ids in self.requests.prompts
        ]

    def take_texts(self, scores: TaskScores[GenerationRow], texts: Iterator[Generated]) -> None:
        task = self.source.task
        tokenizer = self.setup.tokenizer
        questions = {question.row: question for question in self.source.examples}
        alone = task.profile.decoded == "alone" and bool(tokenizer) and drops_first_space(tokenizer)
        requests = self.requests
        for prompt, ids, truncated, completion in zip(
            requests.worded, requests.prompts, requests.truncated, texts, strict=False
        ):
            question = questions[prompt.row]
            text = plain_text(tokenizer, ids, completion)
            if alone:
                text = text.removeprefix(" ")
            example = ExampleScore(None, None, False, False, {task.main: math.nan})
            if completion.ended != "nan" and question.accepted:
                example = score_answer(text, question.accepted, task.profile)
            scores.rows.append(
                GenerationRow(
                    prompt.id,
                    example,
                    without_shots(prompt),
                    question,
                    completion,
                    text,
                    truncated,
                )
            )
        if task.profile.match is DETOX and self.setup.detox is not None:
            self._score_rewrites(scores, self.setup.detox)

    def _score_rewrites(self, scores: TaskScores[GenerationRow], detox: Scorer) -> None:
        """Replace the metrics of every completion by those of the classifiers."""
        rows = [row for row in scores.rows if not row.is_nan]
        originals = [str((row.question.published or {})["inputs"]) for row in rows]
        rewrites = [row.text.strip() for row in rows]
        for row, metrics in zip(rows, detox_scores(detox, originals, rewrites), strict=True):
            row.score = replace(row.score, metrics=metrics)

    @classmethod
    def label_of(cls, task: PromptedTask, example: AnyExample, answer: str, is_place: bool) -> str:
        """The normalized answer, which the profile's normalizer leaves as it is."""
        text = label_of_text(answer, is_place)
        return text if task.profile.match is EQUAL else compared(text, task.profile)

    def answered_by(self, row: GenerationRow, label: str) -> GenerationRow:
        score = ExampleScore(None, None, False, False, {self.source.task.main: math.nan})
        if row.question.accepted:
            score = score_answer(label, row.question.accepted, self.source.task.profile)
        return replace(row, score=score, text=label, completion=Generated(label, (), "written"))

    def compared(self, answer: str) -> str:
        return compared(answer, self.source.task.profile)

    def details(self, scores: TaskScores[GenerationRow]) -> GenerationDetails:
        profile = self.source.task.profile
        normalize = profile.answer_normalizer.call
        always_right = list[int]()
        with_stop = list[int]()
        never_right = list[int]()
        num_end_in_space = 0
        for row in scores.rows:
            question = row.question
            if profile.match is PREFIX and not all(map(normalize, question.accepted)):
                always_right.append(question.row)
            if any(holds_stop(answer, profile) for answer in question.accepted):
                with_stop.append(question.row)
            if not may_be_right(question.accepted, profile):
                never_right.append(question.row)
            num_end_in_space += row.prompt.tail != without_end_spaces(row.prompt.tail)
        fingerprints = None
        if profile.match is DETOX and isinstance(self.setup.detox, Classifiers):
            fingerprints = self.setup.detox.fingerprints()
        return GenerationDetails(
            max_new_tokens=self.requests.max_new_tokens,
            ended=Counter(row.completion.ended for row in scores.rows),
            always_right_rows=tuple(always_right),
            answer_holds_stop_rows=tuple(with_stop),
            never_right_rows=tuple(never_right),
            alike=_alike([row.text.strip() for row in scores.rows if not row.is_nan]),
            prompts_end_in_space=num_end_in_space or None,
            truncated=sum(row.truncated for row in scores.rows),
            beyond_trained_length=self.requests.num_longer_than(self.setup.trained_length),
            leaked_prompts=num_leaked([row.prompt for row in scores.rows]),
            classifiers=fingerprints,
        )

    def example_results(self, scores: TaskScores[GenerationRow]) -> Iterator[ExampleResult]:
        profile = self.source.task.profile
        for row in scores.rows:
            prompt = row.prompt
            reason = why_unscored(row.is_nan, profile.match is DETOX) if row.is_unscored else ""
            yield ExampleResult(
                id=prompt.id,
                row=prompt.row,
                asked=asked_prompt(prompt, row.question),
                correct=row.score.correct,
                generated=row.text,
                answered=Completion(
                    ended=row.completion.ended,
                    answer=compared(row.text, profile),
                    accepted=tuple(row.question.accepted),
                ),
                truncated=row.truncated or None,
                metrics=row.score.metrics,
                meta=submitted_meta(row.question),
                reason=reason,
            )


KINDS = {"generation": GenerationKind}


def _alike(texts: Sequence[str]) -> Literal["", "empty", "equal"]:
    """What all texts are."""
    if len(texts) < FEW or len(set(texts)) > 1:
        return ""
    return "equal" if texts[0] else "empty"
