"""Multiple choice: every choice is scored after its context, and one is predicted; a lone continuation has its probability.

Arrives: a task of examples with their choices, a tokenizer; then scores.  Leaves: `ChoiceScores`.  It deliberately does not
know devices.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import ClassVar

import numpy as np

from miron_jax.engine.growing import GrowingSpeed
from miron_jax.engine.records import Score
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import (
    CHAR,
    PROPORTIONS,
    ExampleScore,
    score_choices,
    score_continuation,
    with_extra_metrics,
)
from miron_jax.metrics.detox import Scorer
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import REQUEST_BATCH_TOKENS
from miron_jax.prompting.prompts import Prompt, check_shots, chunks_of, render, without_shots
from miron_jax.ragged import offsets_of
from miron_jax.task_kinds.entries import option_entry, prompt_entry, published_entry, why_unscored
from miron_jax.task_kinds.interface import Pair, Piece, Sizes, TaskKind
from miron_jax.task_kinds.prompted import PromptedScores
from miron_jax.tokens.records import Requests
from miron_jax.tokens.requests import as_scored, tokenize
from miron_jax.tokens.whole_shots import fitting

LONGEST_TRIED, SAMPLED = 8, 32  # examples per task tokenized ahead: the longest, and some of every size


@dataclass(slots=True)
class ChoiceScores(PromptedScores):
    choices: list[list[Score]] = field(default_factory=list)  # of each example
    inexact_prefix: int = 0  # examples whose context is no token prefix, scored from the longest common one
    growing: GrowingSpeed | None = None  # of dialogues

    chooses: ClassVar[bool] = True

    @property
    def unanswered(self) -> list[int]:
        pairs = zip(self.prompts, self.choices, strict=True)
        return [prompt.id for prompt, choices in pairs if any(map(_is_nan, choices))]

    @property
    def answers(self) -> list[str | None]:
        pairs = ((prompt, example.prediction) for prompt, example in zip(self.prompts, self.examples, strict=True))
        return [None if choice is None else prompt.continuations[choice].strip() for prompt, choice in pairs]

    def finish(self, detox: Scorer | None = None) -> None:
        """Do nothing: `Choice.take` has scored every example."""

    def values_by_id(self) -> dict[int, float]:
        main = self.source.task.main
        pairs = zip(self.prompts, self.examples, strict=True)
        return {prompt.id: example.metrics.get(main, math.nan) for prompt, example in pairs}

    def in_order(self) -> None:
        place = sorted(range(len(self.prompts)), key=lambda i: self.prompts[i].id)
        self.prompts = [self.prompts[i] for i in place]
        self.choices = [self.choices[i] for i in place]
        self.examples = [self.examples[i] for i in place]

    def details(self) -> JsonObject:
        golds = [prompt.gold for prompt in self.prompts if prompt.gold is not None]
        return {
            "tied": sum(example.tied for example in self.examples),
            "rounded_to_a_tie": sum(example.rounded for example in self.examples),
            # The accuracy of a model that finds all choices equal: the first one wins.
            "first_option_accuracy": sum(gold == 0 for gold in golds) / len(golds) if golds else None,
            "empty_span": sum(example.empty_span for example in self.examples),
            "inexact_prefix": self.inexact_prefix,
            **({} if self.growing is None else {"dialogue": asdict(self.growing)}),
        }

    def samples(self) -> Iterator[JsonObject]:
        by_row = self.examples_by_row
        for prompt, choices, example in zip(self.prompts, self.choices, self.examples, strict=True):
            sample = {
                **prompt_entry(prompt, by_row.get(prompt.row)),
                "gold": prompt.gold,
                "prediction": example.prediction if self.chooses else None,
                "correct": example.correct,
                "options": [
                    option_entry(prompt.contexts[i] + prompt.continuations[i], score) for i, score in enumerate(choices)
                ],
                **({"neutral_logprobs": list(example.neutral_logprobs)} if example.neutral_logprobs else {}),
                "generated": None,
                "metrics": dict(example.metrics),
                **published_entry(by_row.get(prompt.row)),
            }
            if not all(map(math.isfinite, example.metrics.values())):
                sample["reason"] = _reason(choices, self.chooses and prompt.gold is None)
            yield sample


class ContinuationScores(ChoiceScores):
    chooses = False


class Choice(TaskKind[ChoiceScores]):
    scores_spans = True

    def prompts(self) -> list[Prompt]:
        return render(self.source.task, self.source.examples, self.setup.config.limit)

    def prepare(self) -> None:
        check_shots(self.source.task, self.source.examples, self.setup.config.limit)

    def tokenized(self, prompts: Sequence[Prompt]) -> Requests:
        task = self.source.task
        return tokenize(prompts, task.profile, self.setup.tokenizer, self.max_length, task.name)

    def sizes(self, cost: CostModel) -> Sizes:
        """Estimates nodes from the UTF-8 bytes of all examples, at the rate of some tokenized ones, the longest included."""
        prompts = self.prompts()
        num_bytes = np.asarray([_num_bytes(prompt) for prompt in prompts])
        by_size = np.argsort(num_bytes, kind="stable")
        tried = np.unique([*by_size[-LONGEST_TRIED:], *by_size[:: max(1, len(prompts) // SAMPLED)]])
        measured = np.asarray([_num_nodes(self.tokenized([prompts[i]]), cost) for i in tried])
        num_nodes = np.minimum(num_bytes * (measured.sum() / num_bytes[tried].sum()), measured.max())
        return Sizes(int(measured.max()), num_nodes, float(num_nodes.sum()) * len(prompts[0].contexts))

    @property
    def may_be_sampled(self) -> bool:
        """It is, if its number is the mean of a right or wrong, and the right answers are known."""
        is_mean = self.source.task.main in PROPORTIONS and self.source.task.profile.categories != "macro"
        return is_mean and all(example.gold is not None for example in self.source.examples)

    def digests(self) -> dict[int, str]:
        prompts = fitting(self.prompts(), self.source.task.profile, self.setup.tokenizer, self.max_length)
        return {prompt.id: without_shots(prompt).digest for prompt in prompts}

    def pieces(self) -> Iterator[tuple[Sequence[Prompt], Requests]]:
        prompts = [prompt for prompt in self.prompts() if self.due is None or prompt.id in self.due]
        prompts = fitting(prompts, self.source.task.profile, self.setup.tokenizer, self.max_length)
        for chunk in chunks_of(prompts, 2 * REQUEST_BATCH_TOKENS):  # half a request batch, at four characters per token
            yield chunk, self.tokenized(chunk)

    def pairs(self) -> Iterator[Pair]:
        profile, tokenizer = self.source.task.profile, self.setup.tokenizer
        prompts = fitting(self.prompts(), profile, tokenizer, self.max_length)
        if any(prompt.gold is None and len(prompt.contexts) - prompt.num_extra > 1 for prompt in prompts):
            return
        for prompt in prompts:
            contexts = prompt.contexts[: len(prompt.contexts) - prompt.num_extra]
            continuations = as_scored(prompt.continuations[: len(contexts)], profile, tokenizer)
            for context, continuation in zip(contexts, continuations, strict=True):
                yield Pair(prompt.id, prompt.preamble + context, continuation, prompt.gold)

    def begin(self) -> ChoiceScores:
        return ChoiceScores(self.source)

    def take(self, scores: ChoiceScores, piece: Piece, request_scores: Sequence[Score]) -> None:
        prompts: list[Prompt] = piece.examples
        unread = iter(request_scores)
        for prompt in prompts:
            choices = list(islice(unread, len(prompt.continuations) - prompt.num_extra))
            scores.prompts.append(without_shots(prompt))
            scores.choices.append(choices)
            scores.examples.append(self.score(prompt, choices, list(islice(unread, prompt.num_extra))))
        self._count(scores, prompts, piece.requests)

    def score(self, prompt: Prompt, choices: Sequence[Score], further: Sequence[Score]) -> ExampleScore:
        """Score one example.  `further`: gold with each ending appended, then every choice after the neutral context."""
        profile, logprobs = self.source.task.profile, [choice.logprob for choice in choices]
        texts = prompt.continuations[: len(choices)]
        example = score_choices(logprobs, texts, prompt.gold, profile.normalizer, profile.tie)
        if prompt.gold is not None and (further or profile.normalizer is CHAR):
            endings = [(score.logprob, score.rank) for score in further[: len(profile.endings)]]
            neutral = [score.logprob for score in further[len(profile.endings) :]]
            example = with_extra_metrics(example, logprobs, texts, prompt.gold, endings, neutral)
        if not self.source.task.main and example.prediction is not None:  # no choice is right by itself
            example = replace(example, metrics={"answered_last": float(example.prediction == len(choices) - 1)})
        return example

    def _count(self, scores: ChoiceScores, prompts: Sequence[Prompt], requests: Requests) -> None:
        """Count examples that were truncated, share no token prefix with their context, or exceed the training length."""
        first = offsets_of([len(prompt.continuations) for prompt in prompts])[:-1]
        too_long = np.diff(requests.offsets) - 1 > self.setup.trained_length
        scores.truncated += int(np.logical_or.reduceat(requests.truncated, first).sum())
        scores.inexact_prefix += int(np.logical_or.reduceat(requests.inexact_prefix, first).sum())
        scores.beyond_trained += int(np.logical_or.reduceat(too_long, first).sum())


class Continuation(Choice):
    def begin(self) -> ChoiceScores:
        return ContinuationScores(self.source)

    def score(self, prompt: Prompt, choices: Sequence[Score], further: Sequence[Score]) -> ExampleScore:
        return score_continuation(choices[0].logprob, choices[0].rank, prompt.continuations[0])


KINDS = {"multiple_choice": Choice, "schema": Choice, "language_modeling": Continuation}


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


def _num_bytes(prompt: Prompt) -> int:
    """UTF-8 bytes of a prompt with all its choices."""
    return len("".join((prompt.preamble, prompt.contexts[0], *prompt.continuations)).encode())


def _num_nodes(requests: Requests, cost: CostModel) -> int:
    """Nodes of an example's row: of all its choices with their common prefix shared, or of the longest without a forest."""
    length = np.diff(requests.offsets)
    if cost.sharing != "forest":
        return int(length.max()) - 1
    return int(length.max() + np.sort(length - requests.span_start)[:-1].sum())
