"""Choices: every option is scored behind its context, and one is chosen; of a continuation alone, how probable it is.

Arrives: a task of examples with their options, a tokenizer; then scores.  Leaves: `ChoiceScores`.  It deliberately does not
know devices.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from miron_jax.engine.growing import GrowingSpeed
from miron_jax.engine.records import Score
from miron_jax.metrics.choices import CHAR, ExampleScore, score_choices, score_continuation, with_extra_metrics
from miron_jax.metrics.detox import Scorer
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import REQUEST_BATCH_TOKENS
from miron_jax.prompting.prompts import Prompt, render, without_shots
from miron_jax.ragged import offsets_of
from miron_jax.task_kinds.entries import option_entry, prompt_entry, published_entry, why_unscored
from miron_jax.task_kinds.interface import Piece, Sizes, TaskKind
from miron_jax.task_kinds.prompted import PromptedScores
from miron_jax.tokens.records import Requests
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.whole_shots import fitting

LONGEST_TRIED, SAMPLED = 8, 32  # examples of each task tokenized ahead: its longest, and some of every size


@dataclass(slots=True)
class ChoiceScores(PromptedScores):
    options: list[list[Score]] = field(default_factory=list)  # one an example, one an option
    inexact_prefix: int = 0  # examples whose context is no token prefix; scored from the longest common one
    growing: GrowingSpeed | None = None  # of dialogues

    chooses: ClassVar[bool] = True

    @property
    def unanswered(self) -> list[int]:
        return [
            prompt.id for prompt, own in zip(self.prompts, self.options, strict=True) if any(_is_nan(o) for o in own)
        ]

    @property
    def answers(self) -> list[str | None]:
        pairs = zip(self.prompts, self.examples, strict=True)
        return [
            None if own.prediction is None else prompt.continuations[own.prediction].strip() for prompt, own in pairs
        ]

    def finish(self, detox: Scorer | None = None) -> None:
        """Every example is scored as its piece arrives."""

    def details(self) -> dict[str, Any]:
        golds = [prompt.gold for prompt in self.prompts if prompt.gold is not None]
        return {
            "tied": sum(example.tied for example in self.examples),
            "rounded_to_a_tie": sum(example.rounded for example in self.examples),
            # What a model scores that finds all options equal: the first one wins.
            "first_option_accuracy": sum(gold == 0 for gold in golds) / len(golds) if golds else None,
            "empty_span": sum(example.empty_span for example in self.examples),
            "inexact_prefix": self.inexact_prefix,
            **({} if self.growing is None else {"dialogue": asdict(self.growing)}),
        }

    def samples(self) -> Iterator[dict[str, Any]]:
        by_row = self.examples_by_row
        for prompt, options, example in zip(self.prompts, self.options, self.examples, strict=True):
            sample = {
                **prompt_entry(prompt, by_row.get(prompt.row)),
                "gold": prompt.gold,
                "prediction": example.prediction if self.chooses else None,
                "correct": example.correct,
                "options": [
                    option_entry(prompt.contexts[i] + prompt.continuations[i], own) for i, own in enumerate(options)
                ],
                **({"neutral_logprobs": list(example.neutral_logprobs)} if example.neutral_logprobs else {}),
                "generated": None,
                "metrics": dict(example.metrics),
                **published_entry(by_row.get(prompt.row)),
            }
            if not all(map(math.isfinite, example.metrics.values())):
                sample["reason"] = _reason(options, self.chooses and prompt.gold is None)
            yield sample


class ContinuationScores(ChoiceScores):
    chooses = False


class Choice(TaskKind):
    scores_spans = True

    def prompts(self) -> list[Prompt]:
        return render(self.source.task, self.source.examples, self.setup.config.limit)

    def tokenized(self, prompts: Sequence[Prompt]) -> Requests:
        task = self.source.task
        return tokenize(prompts, task.profile, self.setup.tokenizer, self.max_length, task.name)

    def sizes(self, cost: CostModel) -> Sizes:
        """Guessed from UTF-8 bytes of all examples; the rate comes from a few that are tokenized, the longest among them."""
        prompts = self.prompts()
        num_bytes = np.asarray([_num_bytes(prompt) for prompt in prompts])
        by_size = np.argsort(num_bytes, kind="stable")
        tried = np.unique([*by_size[-LONGEST_TRIED:], *by_size[:: max(1, len(prompts) // SAMPLED)]])
        measured = np.asarray([_places(self.tokenized([prompts[i]]), cost) for i in tried])
        places = np.minimum(num_bytes * (measured.sum() / num_bytes[tried].sum()), measured.max())
        return Sizes(int(measured.max()), places, float(places.sum()) * len(prompts[0].contexts))

    def pieces(self) -> Iterator[tuple[list[Prompt], Requests]]:
        task = self.source.task
        for chunk in _chunks(fitting(self.prompts(), task.profile, self.setup.tokenizer, self.max_length)):
            yield chunk, self.tokenized(chunk)

    def begin(self) -> ChoiceScores:
        return ChoiceScores(self.source)

    def take(self, scores: ChoiceScores, piece: Piece, found: Sequence[Score]) -> None:
        """Give each example its options' scores and score it."""
        prompts: list[Prompt] = piece.examples
        taken = iter(found)
        for prompt in prompts:
            options = list(islice(taken, len(prompt.continuations) - prompt.num_extra))
            beside = list(islice(taken, prompt.num_extra))
            scores.prompts.append(without_shots(prompt))
            scores.options.append(options)
            scores.examples.append(self.score(prompt, options, beside))
        self._count(scores, prompts, piece.requests)

    def score(self, prompt: Prompt, options: Sequence[Score], beside: Sequence[Score]) -> ExampleScore:
        """One example.  `beside`: the right option with each ending, then every option behind a question without content."""
        profile, logprobs = self.source.task.profile, [option.logprob for option in options]
        texts = prompt.continuations[: len(options)]
        example = score_choices(logprobs, texts, prompt.gold, profile.normalizer, profile.tie)
        if prompt.gold is not None and (beside or profile.normalizer is CHAR):
            ends, neutral = beside[: len(profile.endings)], beside[len(profile.endings) :]
            endings = [(own.logprob, own.rank) for own in ends]
            example = with_extra_metrics(
                example, logprobs, texts, prompt.gold, endings, [own.logprob for own in neutral]
            )
        if not self.source.task.main and example.prediction is not None:  # no option is right by itself
            example = replace(example, metrics={"answered_last": float(example.prediction == len(options) - 1)})
        return example

    def _count(self, scores: ChoiceScores, prompts: Sequence[Prompt], requests: Requests) -> None:
        """Count examples that the length limit, the tokenizer or the model's training length touched."""
        first = offsets_of([len(prompt.continuations) for prompt in prompts])[:-1]
        too_long = np.diff(requests.offsets) - 1 > self.setup.trained_length
        scores.truncated += int(np.logical_or.reduceat(requests.truncated, first).sum())
        scores.inexact_prefix += int(np.logical_or.reduceat(requests.inexact_prefix, first).sum())
        scores.beyond_trained += int(np.logical_or.reduceat(too_long, first).sum())


class Continuation(Choice):
    def begin(self) -> ChoiceScores:
        return ContinuationScores(self.source)

    def score(self, prompt: Prompt, options: Sequence[Score], beside: Sequence[Score]) -> ExampleScore:
        return score_continuation(options[0].logprob, options[0].rank, prompt.continuations[0])


KINDS = {"multiple_choice": Choice, "schema": Choice, "language_modeling": Continuation}


def _is_nan(option: Score) -> bool:
    return bool(np.isnan(option.logprob).any())


def _reason(options: Sequence[Score], is_hidden: bool) -> str:
    """Why a metric of an example is null."""
    is_nan = any(map(_is_nan, options))
    if is_hidden or is_nan:
        return why_unscored(is_nan)
    if any(np.isinf(option.logprob).any() for option in options):
        return "the model gives a token no probability at all"
    return "the gold option has no scored token"


def _num_bytes(prompt: Prompt) -> int:
    """UTF-8 bytes of a prompt with all its options."""
    return len("".join((prompt.preamble, prompt.contexts[0], *prompt.continuations)).encode())


def _places(requests: Requests, cost: CostModel) -> int:
    """Places that an example's options take together, their common beginning shared; those of one, where a row holds one."""
    length = np.diff(requests.offsets)
    if cost.sharing != "forest":
        return int(length.max()) - 1
    return int(length.max() + np.sort(length - requests.span_start)[:-1].sum())


def _chunks(prompts: list[Prompt]) -> Iterator[list[Prompt]]:
    """Prompts in runs that hold about half a part's text, at four characters a token."""
    start = num_chars = 0
    for i, prompt in enumerate(prompts):
        num_chars += prompt.num_chars
        if num_chars >= 2 * REQUEST_BATCH_TOKENS:
            yield prompts[start : i + 1]
            start, num_chars = i + 1, 0
    if start < len(prompts):
        yield prompts[start:]
