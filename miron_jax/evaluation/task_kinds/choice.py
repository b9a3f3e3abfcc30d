"""Multiple choice: every choice is scored after its context, and one is predicted; a lone
continuation has its probability.

Arrives: a task of examples with their choices, a tokenizer; then scores.  Leaves: requests, then
`ChoiceRow`s; from these `ChoiceDetails` and `ExampleResult`s.  It deliberately does not know
devices.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

import numpy as np

from miron_jax.definitions.records import AnyExample, Example, PromptedTask, Solution
from miron_jax.engine.records import Score, Scores
from miron_jax.evaluation.task_kinds.interface import (
    Rendered,
    RequestTexts,
    RowSizes,
    TaskScores,
    TokenizedExamples,
)
from miron_jax.evaluation.task_kinds.kept_tasks import KeptChunk, KeptTask
from miron_jax.evaluation.task_kinds.prompted import PromptedKind, PromptedRow
from miron_jax.evaluation.task_kinds.row_sizes import (
    VARIED,
    Sample,
    row_bytes,
    row_sizes,
    sampled,
    varies,
)
from miron_jax.evaluation.task_kinds.summary import (
    asked_prompt,
    num_leaked,
    scored_option,
    submitted_meta,
    why_unscored,
    with_token_stats,
)
from miron_jax.files.kept import Job
from miron_jax.humans.baseline import class_numbers
from miron_jax.humans.task_labels import label_of_choice, label_of_text
from miron_jax.metrics.bias import with_bias
from miron_jax.metrics.choices import (
    AskedChoices,
    ChoiceRules,
    ExampleScore,
    score_continuations,
    score_examples,
)
from miron_jax.metrics.properties import PROPORTIONS
from miron_jax.metrics.spans import Spans
from miron_jax.metrics.token_stats import RBRIDGE, rbridge_surprise
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import REQUEST_BATCH_TOKENS
from miron_jax.prompting.chats import lead_of
from miron_jax.prompting.prompts import Prompt, check_shots, chunks_of, without_shots
from miron_jax.results.details import ChoiceDetails
from miron_jax.results.samples import ExampleResult
from miron_jax.runtime.timeline import spent_on
from miron_jax.statistics.human_gaps import OverAll
from miron_jax.tokens.ragged import offsets_of
from miron_jax.tokens.records import Requests
from miron_jax.tokens.requests import as_scored, tokenize
from miron_jax.tokens.truncation import fitting

# half a request batch, at four characters per token, of all draws of a task's shots together
PIECE_CHARS = 2 * REQUEST_BATCH_TOKENS
# How long what is made of a request takes, beside a token that no request before has: a plain token
# is copied, a prompt is rendered and cut into pieces.  Measured on CORE.
PLAIN_COST = 0.3
PROMPT_COST = 1500


class ScoredPrompt(NamedTuple):
    """What is kept of a prompt once it is scored."""

    prompt: Prompt  # without its few-shot examples
    num_extra: int  # requests after those of its choices

    @classmethod
    def of(cls, prompt: Prompt) -> Self:
        return cls(without_shots(prompt), prompt.num_extra)


@dataclass(slots=True)
class ChoiceRow(PromptedRow):
    choices: list[Score]
    logprobs: list[float]  # of each choice, summed in float64
    greedy: list[bool]  # of each choice, whether every token has rank 0
    truncated: bool = False  # it lost tokens to the length limit
    crossed_pairs: int = 0  # its pairs of context and continuation whose border a token crosses
    beyond_trained: bool = False  # it is longer than the length the model was trained at

    @property
    def is_nan(self) -> bool:
        # such an example is neither right nor wrong
        return self.score.correct is None and any(map(_is_nan, self.choices))

    @property
    def answer(self) -> str | None:
        choice = self.score.prediction
        if choice is None:
            return None
        return self.prompt.continuations[choice].strip()


class ChoiceKind(PromptedKind[ChoiceRow]):
    scores_spans = True
    why_no_controls = ""
    chooses: ClassVar[bool] = True  # False: an example has one continuation
    _surveyed: list[Prompt] | None = None  # rendered for `sizes`; `pieces` takes them over

    @spent_on("render")
    def prepare(self) -> None:
        check_shots(self.source.task, self.source.examples, self.setup.config.limit)

    @spent_on("tokenize")
    def tokenized(self, prompts: Sequence[Prompt]) -> Requests:
        task = self.source.task
        return tokenize(prompts, task.profile, self.setup.tokenizer, self.max_length, task.name)

    @property
    def _piece_chars(self) -> int:
        return PIECE_CHARS // self.setup.config.fewshot_draws

    def sizes(self, cost: CostModel) -> RowSizes:
        if (kept := self._kept.row_sizes(cost.sharing)) is not None:
            return kept
        sizes = self._row_sizes(cost)
        self._kept.keep_row_sizes(cost.sharing, sizes)
        return sizes

    def sizes_job(self, cost: CostModel) -> Iterator[Job]:
        num_examples = len(self.source.examples)
        return self._kept.row_sizes_job(cost.sharing, num_examples, lambda: self._row_sizes(cost))

    def _row_sizes(self, cost: CostModel) -> RowSizes:
        prompts = self._surveyed = self.prompts()
        num_bytes = row_bytes(prompts)
        sample = self._sample(prompts, sampled(num_bytes))
        if varies(sample):
            sample = self._sample(prompts, sampled(num_bytes, VARIED))
        sizes = row_sizes(prompts, num_bytes, sample, self.max_length, cost)
        chunks = chunks_of(prompts, self._piece_chars)
        return sizes._replace(stops=offsets_of([*map(len, chunks)])[1:])

    def _sample(self, prompts: Sequence[Prompt], index: np.ndarray) -> Sample:
        some = self.fitting([prompts[i] for i in index.tolist()])
        return Sample(index, some, self.tokenized(some))

    @property
    def may_be_sampled(self) -> bool:
        """It is, if its number is the mean of a right or wrong, and the right answers are known."""
        is_mean = (
            self.source.task.main in PROPORTIONS and self.source.task.profile.categories != "macro"
        )
        return is_mean and all(example.gold is not None for example in self.source.examples)

    def digests(self) -> dict[int, str]:
        return {prompt.id: without_shots(prompt).digest for prompt in self.fitting(self.prompts())}

    @spent_on("tokenize")
    def fitting(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Without the shots that its length limit has no room for."""
        return fitting(prompts, self.source.task.profile, self.setup.tokenizer, self.max_length)

    def pieces(self) -> Iterator[tuple["PromptsOfPiece", Requests]]:
        if self.due is not None:
            prompts = [prompt for prompt in self.prompts() if prompt.id in self.due]
            for chunk in chunks_of(self.fitting(prompts), self._piece_chars):
                yield PromptsOfPiece.of(chunk), self.tokenized(chunk)
            return
        rendered = cache(self.rendered)
        start = 0
        while (kept := self._kept.requests_from(start)) is not None:
            # made once their scores are there
            late = partial(self._some, rendered, slice(start, kept.stop))
            yield PromptsOfPiece(late), kept.requests
            if kept.is_last:
                return
            start = kept.stop
        for chunk in chunks_of(rendered()[start:], self._piece_chars):
            stop = start + len(chunk)
            fitted = self.fitting(chunk)
            made = KeptChunk(self.tokenized(fitted), stop, stop == len(rendered()))
            yield PromptsOfPiece.of(fitted), self._kept.keep_requests(start, made)
            start = stop

    def _some(self, rendered: Callable[[], list[Prompt]], chosen: slice) -> list[Prompt]:
        return self.fitting(rendered()[chosen])

    def rendered(self) -> list[Prompt]:
        """All prompts of the task, with the shots that may not have room."""
        surveyed = self._surveyed
        self._surveyed = None
        return surveyed or self.prompts()

    def piece_jobs(self, sizes: RowSizes, rendered: Rendered) -> Iterator[Job]:
        stops = sizes.stops.tolist()
        cost_of_tokens = (PLAIN_COST * sizes.plain_tokens + sizes.unique_tokens) / len(stops)
        for start, stop in pairwise([0, *stops]):
            make = partial(self._chunk, rendered, slice(start, stop), stop == stops[-1])
            cost = cost_of_tokens + PROMPT_COST * (stop - start)
            yield from self._kept.requests_job(start, cost, make)

    def _chunk(self, rendered: Rendered, chosen: slice, is_last: bool) -> KeptChunk:
        fitted = self.fitting(rendered(self)[chosen])
        return KeptChunk(self.tokenized(fitted), chosen.stop, is_last)

    @cached_property
    def _questions(self) -> dict[int, Example]:
        """By line of the data file."""
        return {question.row: question for question in self.source.examples}

    @cached_property
    def _kept(self) -> KeptTask:
        return KeptTask(self.source, self.setup, self.max_length)

    def pairs(self) -> Iterator[RequestTexts]:
        texts = list[RequestTexts]()
        for prompt in self.fitting(self.prompts()):
            if prompt.also_right:  # a frozen request set names one right choice
                return
            contexts = prompt.contexts[: len(prompt.contexts) - prompt.num_extra]
            if prompt.gold is None and len(contexts) > 1:
                return
            continuations = as_scored(
                prompt.continuations[: len(contexts)],
                self.source.task.profile,
                self.setup.tokenizer,
            )
            for context, continuation in zip(contexts, continuations, strict=True):
                context = prompt.preamble + context
                texts.append(RequestTexts(prompt.id, context, continuation, prompt.gold))
        yield from texts

    def rows_of(self, piece: TokenizedExamples, scores: Scores) -> list[ChoiceRow]:
        requests = piece.requests
        prompts: list[ScoredPrompt] = piece.examples.scored
        first = _first_requests(prompts)
        too_long = np.diff(requests.offsets) - 1 > self.setup.trained_length
        truncated = np.logical_or.reduceat(requests.truncated, first)
        crossed_pairs = np.add.reduceat(requests.inexact_prefix, first, dtype=np.int64)
        beyond_trained = np.logical_or.reduceat(too_long, first)
        flags = zip(
            truncated.tolist(), crossed_pairs.tolist(), beyond_trained.tolist(), strict=True
        )
        spans = Spans.of(scores.logprob, scores.rank, scores.offsets)
        examples = self.score(prompts, spans)
        each, logprobs, greedy = [*scores], spans.sum.tolist(), spans.is_greedy.tolist()
        rows = list[ChoiceRow]()
        for (prompt, _), start, example, flags_of_prompt in zip(
            prompts, first.tolist(), examples, flags, strict=True
        ):
            span = slice(start, start + len(prompt.continuations))
            choices = each[span]
            gold = prompt.gold if self.chooses else 0
            if gold is not None:
                example = with_token_stats(example, choices[gold])
            question = self._questions[prompt.row]
            if question.bias is not None:
                example = with_bias(example, question.bias)
            rows.append(
                ChoiceRow(
                    prompt.id,
                    example,
                    prompt,
                    question,
                    choices,
                    logprobs[span],
                    greedy[span],
                    *flags_of_prompt,
                )
            )
        return rows

    def score(self, prompts: Sequence[ScoredPrompt], spans: Spans) -> list[ExampleScore]:
        """Score examples.  `spans`: of each prompt's choices, then gold with each ending appended,
        then every choice after the neutral context."""
        profile = self.source.task.profile
        uncounted = lead_of(profile) if profile.chat else profile.joined_delimiter
        asked = [
            AskedChoices(
                [text.removeprefix(uncounted) for text in prompt.continuations],
                prompt.gold,
                num_extra,
                prompt.also_right,
            )
            for prompt, num_extra in prompts
        ]
        rules = ChoiceRules(profile.normalizer, profile.tie, len(profile.endings), profile.compared)
        examples = score_examples(asked, spans, rules)
        if self.source.task.main:
            return examples
        return [*map(_last_or_not, prompts, examples)]

    @classmethod
    def label_of(cls, task: PromptedTask, example: AnyExample, answer: str, is_place: bool) -> str:
        """The place of the choice, from 0."""
        choices = example.continuations
        if len(choices) == 1:  # a schema
            choices = example.contexts
        return label_of_choice(choices, task.profile.joined_delimiter, answer, is_place)

    def answered_by(self, row: ChoiceRow, label: str) -> ChoiceRow:
        place = int(label)
        gold = row.prompt.gold
        if gold is None:
            score = ExampleScore(place, None, False, False, {})
        else:
            is_right = place in (gold, *(row.prompt.also_right or ()))
            score = ExampleScore(place, is_right, False, False, {"accuracy": float(is_right)})
            if row.question.bias is not None:
                score = with_bias(score, row.question.bias)
        if not self.source.task.main:
            score = _last_or_not(ScoredPrompt.of(row.prompt), score)
        return replace(row, score=score)

    def _over_all(self, scores: TaskScores[ChoiceRow]) -> OverAll:
        """Where the profile has no such rule and all examples have the same choices, macro F1 and
        Matthews' correlation."""
        classes = set[tuple[str, ...]]()
        for row in scores.rows:
            classes.add(tuple(sorted(map(str.strip, row.prompt.continuations))))
        names = next(iter(classes), ())
        if self.source.task.answered is not None or len(classes) > 1 or len(set(names)) < 2:
            return super()._over_all(scores)
        return partial(class_numbers, classes=names)

    def _record(self, row: ChoiceRow) -> object:
        gold = row.prompt.gold
        if self.source.task.answered is not None:
            return super()._record(row)
        if gold is None or row.prompt.also_right is not None or row.answer is None:
            return None
        return row.answer, row.prompt.continuations[gold].strip()

    def details(self, scores: TaskScores[ChoiceRow]) -> ChoiceDetails:
        rows = scores.rows
        golds = [row.prompt.gold for row in rows if row.prompt.gold is not None]
        return ChoiceDetails(
            tied=sum(row.score.tied for row in rows),
            rounded_to_a_tie=sum(row.score.rounded for row in rows),
            first_option_accuracy=golds.count(0) / len(golds) if golds else None,
            empty_span=sum(row.score.empty_span for row in rows),
            inexact_prefix=sum(row.crossed_pairs > 0 for row in rows),
            crossed_pairs=sum(row.crossed_pairs for row in rows) or None,
            dialogue=scores.growing,
            truncated=sum(row.truncated for row in rows),
            beyond_trained_length=sum(row.beyond_trained for row in rows),
            leaked_prompts=num_leaked([row.prompt for row in rows]),
        )

    def example_results(self, scores: TaskScores[ChoiceRow]) -> Iterator[ExampleResult]:
        for row in scores.rows:
            prompt = row.prompt
            score = row.score
            reason = ""
            if not all(map(math.isfinite, score.metrics.values())):
                reason = _reason(row.choices, self.chooses and prompt.gold is None)
            yield ExampleResult(
                id=prompt.id,
                row=prompt.row,
                asked=asked_prompt(prompt, row.question),
                gold=prompt.gold,
                also_right=prompt.also_right or (),
                prediction=score.prediction if self.chooses else None,
                correct=score.correct,
                options=tuple(
                    map(scored_option, _texts_of(row), row.choices, row.logprobs, row.greedy)
                ),
                neutral_logprobs=tuple(score.neutral_logprobs),
                truncated=row.truncated or None,
                metrics=score.metrics,
                meta=submitted_meta(row.question),
                reason=reason,
            )


@dataclass(frozen=True)
class PromptsOfPiece:
    """Prompts whose requests are scored together."""

    make: Callable[[], Sequence[Prompt]]

    @classmethod
    def of(cls, prompts: Sequence[Prompt]) -> Self:
        return cls(lambda: prompts)

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self.make())

    @cached_property
    def scored(self) -> list[ScoredPrompt]:
        """What rows hold of them, made once for all checkpoints, when scores are there."""
        return [*map(ScoredPrompt.of, self)]


class ContinuationKind(ChoiceKind):
    chooses = False
    why_no_controls = PromptedKind.why_no_controls

    @classmethod
    def label_of(cls, task: PromptedTask, example: AnyExample, answer: str, is_place: bool) -> str:
        return label_of_text(answer, is_place)

    def answered_by(self, row: ChoiceRow, label: str) -> ChoiceRow:
        """Right where its words are those of the continuation."""
        is_right = label == " ".join(row.prompt.continuations[0].split())
        score = ExampleScore(None, is_right, False, False, {"accuracy": float(is_right)})
        return replace(row, score=score)

    def score(self, prompts: Sequence[ScoredPrompt], spans: Spans) -> list[ExampleScore]:
        texts = [each.prompt.continuations[0] for each in prompts]
        return score_continuations(texts, spans.at(_first_requests(prompts)))


class ExpertKind(ContinuationKind):
    """Solutions; where a file has the expert's probabilities, surprise is weighted by them too."""

    def rows_of(self, piece: TokenizedExamples, scores: Scores) -> list[ChoiceRow]:
        rows = super().rows_of(piece, scores)
        for row, (ids, start) in zip(rows, piece.requests, strict=True):
            assert isinstance(row.question, Solution)
            if row.question.expert_probs:
                pieces = [self.setup.table.of[i] or b"" for i in ids[start:].tolist()]
                weighted = rbridge_surprise(
                    row.choices[0].logprob, pieces, row.question.expert_probs
                )
                row.score = replace(row.score, metrics={**row.score.metrics, RBRIDGE: weighted})
        return rows


KINDS = {
    "multiple_choice": ChoiceKind,
    "schema": ChoiceKind,
    "language_modeling": ContinuationKind,
    "expert": ExpertKind,
}


def _first_requests(prompts: Sequence[ScoredPrompt]) -> np.ndarray:
    """int64: the first request of each prompt."""
    return offsets_of([len(prompt.continuations) + extra for prompt, extra in prompts])[:-1]


def _last_or_not(scored: ScoredPrompt, example: ExampleScore) -> ExampleScore:
    """The score of an example of which no choice is right by itself: whether the last is chosen."""
    if example.prediction is None:
        return example
    is_last = example.prediction == len(scored.prompt.continuations) - 1
    return replace(example, metrics={"answered_last": float(is_last)})


def _texts_of(row: ChoiceRow) -> Iterator[str]:
    return map(str.__add__, row.prompt.contexts, row.prompt.continuations)


def _is_nan(choice: Score) -> bool:
    return bool(np.isnan(choice.logprob).any())


def _reason(choices: Sequence[Score], is_hidden: bool) -> str:
    """Why a metric of an example is null."""
    is_nan = any(map(_is_nan, choices))
    if is_hidden or is_nan:
        return why_unscored(is_nan)
    if any(np.isinf(choice.logprob).any() for choice in choices):
        return "the model gives a token no probability at all"
    return "the gold option has no scored token"
