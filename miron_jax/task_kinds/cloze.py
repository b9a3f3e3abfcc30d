"""Cloze items: the log-probability of a target after its prefix, its exact generation, its contrast with distractors.

Arrives: a task of items, a tokenizer; then scores and completions.  Leaves: `ClozeScores`.  It deliberately does not know
how a metric is computed.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Cloze, ClozeTask
from miron_jax.definitions.rules import printed
from miron_jax.engine.records import Score
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.cloze import ClozeAnswers, Fragments, Span, score_cloze
from miron_jax.metrics.detox import Scorer
from miron_jax.prompting.prompts import digest_of
from miron_jax.statistics.cloze_groups import cloze_groups
from miron_jax.statistics.estimate import Estimate, estimates
from miron_jax.task_kinds.entries import answer_entry, estimate_entry, option_entry, with_limit
from miron_jax.task_kinds.interface import Facts, Pair, Piece, Source, TaskKind, TaskScores
from miron_jax.tokens.cloze_requests import ItemRequests, cloze_requests
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import special_tokens

BY_TARGET_TOKENS = (
    "lev_score",
    "target_confidence",
    "bits_per_char",
    "bits_per_byte",
    "greedy_exact",
    "contrast_accuracy",
)


class Items(NamedTuple):
    """The items of a piece with their requests."""

    items: list[Cloze]
    asked: list[ItemRequests]
    empty_prefix: str | None  # the token in place of an empty prefix


@dataclass(slots=True)
class ClozeScores(TaskScores):
    """One cloze task's items, in file order.  Items that the tokenizer cannot spell have no scores and no example."""

    source: Source
    items: list[Cloze] = field(default_factory=list)
    asked: list[ItemRequests] = field(default_factory=list)  # of each item
    spans: list[dict[int, Score]] = field(default_factory=list)  # by index of the requests in `asked`
    # Completions; None: not scored, or the model answered NaN.
    generated: list[str | None] = field(default_factory=list)
    examples: list[ExampleScore | None] = field(default_factory=list)
    truncated: int = 0
    beyond_trained: int = 0
    empty_prefix: str | None = None  # the token in place of an empty prefix

    @property
    def unspelled(self) -> int:
        return sum(asked.target is None for asked in self.asked)

    @property
    def scored(self) -> list[tuple[Cloze, ExampleScore]]:
        """Items that the tokenizer could spell and the model answered."""
        pairs = zip(self.items, self.examples, strict=True)
        return [(item, example) for item, example in pairs if example and not math.isnan(example.metrics["logprob"])]

    @property
    def num_skipped(self) -> int:
        return len(self.examples) - len(self.scored)

    @property
    def unanswered(self) -> list[int]:
        pairs = enumerate(zip(self.examples, self.generated, strict=True))
        scored = [(i, example, text) for i, (example, text) in pairs if example is not None]
        return [i for i, example, text in scored if text is None or math.isnan(example.metrics["logprob"])]

    def finish(self, detox: Scorer | None = None) -> None:
        columns = zip(self.items, self.asked, self.spans, self.generated, strict=True)
        self.examples = [_score_item(*column) for column in columns]

    def for_composites(self) -> Mapping[str, Estimate]:
        return cloze_groups(self.scored).macro

    def entry(self, facts: Facts) -> JsonObject:
        definition, groups = self.source.task, cloze_groups(self.scored)
        scored = [example for _, example in self.scored]
        entry: JsonObject = {
            "n": len(scored),
            "metrics": _entries(estimates(scored)),
            "groups": {
                name: {"n": groups.sizes[name], "metrics": _entries(means)} for name, means in groups.categories.items()
            },
            "macro": _entries(groups.macro),
            "fragmentation": {
                "spearman_tokens_bits_per_char": groups.spearman,
                **({"reason": "tokens or bits are the same for all items"} if math.isnan(groups.spearman) else {}),
                "by_target_tokens": {
                    name: _entries({key: means[key] for key in BY_TARGET_TOKENS if key in means})
                    for name, means in groups.by_target_tokens.items()
                },
                "segmentation_tokens": sum(asked.added_tokens for asked in self.asked),
            },
            "drift": {
                name: {
                    "median_percent": median.value,
                    "ci95": list(median.ci95),
                    "n": median.num_examples,
                    **({} if median.num_examples else {"reason": "no pair has a defined value"}),
                    **_entries(groups.flips[name]),
                }
                for name, median in groups.drift.items()
            },
            "baselines": {"random": None, "human": None},
            "profile": {
                **printed(definition.profile),
                "empty_prefix_token": self.empty_prefix,
                "max_length": facts.limit.of(definition.profile),
            },
            "kind": definition.kind,
            "rows_by_category": dict(Counter(item.category for item in self.items)),
            "published_rows_a_category": definition.rows,
            "skipped": self.num_skipped,
            "unspelled": self.unspelled,
            "bos_added": sum(asked.bos_added for asked in self.asked),
            "targets_with_newline": sum("\n" in item.target for item in self.items),
            "truncated": self.truncated,
            "beyond_trained_length": self.beyond_trained,
            "prefixes_end_in_space": sum(item.prefix[-1:].isspace() for item in self.items),
            "targets_begin_with_space": sum(item.target[:1].isspace() for item in self.items),
            "data": {"file": None if definition.file is None else definition.file.path, **self.source.data._asdict()},
            "citation": definition.citation,
        }
        return with_limit(entry, facts)

    def samples(self) -> Iterator[JsonObject]:
        columns = (self.items, self.asked, self.spans, self.generated, self.examples)
        for i, (item, asked, spans, generated, example) in enumerate(zip(*columns, strict=True)):
            options = []
            if asked.target is not None:
                score = spans[asked.target]
                options = [{**option_entry(item.target, score), "held_logprob": score.set_logprob}]
            sample = {
                "id": i,
                "row": item.row,
                "name": item.name,
                "category": item.category,
                "prefix": item.prefix,
                "prompt_sha256": digest_of(item.prefix, item.target, *item.distractors),
                **answer_entry(example.correct if example else None, generated, options),
                "metrics": dict(example.metrics) if example else {},
            }
            if example is None:
                sample["reason"] = "the tokenizer has no tokens that spell this item"
            elif math.isnan(example.metrics["logprob"]):
                sample["reason"] = "the model answers NaN"
            elif not all(map(math.isfinite, example.metrics.values())):
                sample["reason"] = "a metric that is null is not defined for this item"
            yield sample


class ClozeKind(TaskKind[ClozeScores]):
    scores_spans, generates = True, True

    @classmethod
    def load(cls, task: ClozeTask, folder: Path, config: RunConfig, runs: bool) -> list[Cloze]:
        """The first `limit` items of each category, in file order."""
        items, seen = task.read(folder, config.items_per_category), Counter[str]()
        if config.limit is None:
            return items
        first = []
        for item in items:
            seen[item.category] += 1
            if seen[item.category] <= config.limit:
                first.append(item)
        return first

    def pieces(self) -> Iterator[tuple[Items, Requests]]:
        task, items, tokenizer = self.source.task, self.source.examples, self.setup.tokenizer
        requests, asked = cloze_requests(items, task.profile, tokenizer, self.setup.table, self.max_length, task.name)
        empty = special_tokens(tokenizer).empty
        yield Items(items, asked, tokenizer.convert_ids_to_tokens(empty[0]) if empty else None), requests

    def pairs(self) -> Iterator[Pair]:
        for idx, item in enumerate(self.source.examples):
            yield Pair(idx, item.prefix, item.target, None)

    def begin(self) -> ClozeScores:
        return ClozeScores(self.source)

    def take(self, scores: ClozeScores, piece: Piece, request_scores: Sequence[Score]) -> None:
        """Add each item's scores; `finish` scores the items, after their completions."""
        items: Items = piece.examples
        scores.items += items.items
        scores.asked += items.asked
        scores.empty_prefix = items.empty_prefix
        length = np.diff(piece.requests.offsets)
        for asked in items.asked:
            optional = (asked.target, asked.card, asked.unprefixed, asked.clean, *asked.distractors)
            requests = [i for i in (*optional, *asked.segmentations) if i is not None]
            scores.spans.append({i: request_scores[i] for i in requests})
            scores.truncated += bool(piece.requests.truncated[requests].any()) or asked.prompt_cut
            scores.beyond_trained += bool((length[requests] - 1 > self.setup.trained_length).any())

    def texts(self, scores: ClozeScores) -> list[TextRequest]:
        profile = self.source.task.profile
        sampling = Sampling(**profile.decoding.call())
        return [
            TextRequest(asked.prompt, asked.num_tokens + profile.extra_tokens, (profile.stop,), sampling)
            for asked in scores.asked
            if asked.target is not None
        ]

    def take_texts(self, scores: ClozeScores, texts: Iterator[Generated]) -> None:
        completions = [None if asked.target is None else next(texts) for asked in scores.asked]
        scores.generated += [None if text is None or text.ended == "nan" else text.text for text in completions]


KINDS = {"cloze": ClozeKind}


def _score_item(
    item: Cloze, asked: ItemRequests, spans: dict[int, Score], generated: str | None
) -> ExampleScore | None:
    if asked.target is None:
        return None

    def span(request: int | None) -> Span | None:
        return None if request is None else Span(*spans[request])

    target = span(asked.target)
    assert target is not None
    answers = ClozeAnswers(
        target=target,
        card=None if asked.card is None else spans[asked.card].logprob,
        unprefixed=span(asked.unprefixed),
        clean=span(asked.clean),
        distractors=[span(request) for request in asked.distractors],
        segmentations=[Span(*spans[request]) for request in asked.segmentations] if asked.segmented else None,
        generated=generated,
    )
    fragments = Fragments(asked.num_tokens, asked.num_prefix_tokens, asked.num_clean_tokens, asked.seam, asked.regress)
    return score_cloze(item.prefix, item.target, item.distractors, answers, fragments)


def _entries(means: Mapping[str, Estimate]) -> JsonObject:
    """Entries with an n each: some numbers exist for some items only."""
    return {name: {**estimate_entry(mean), "n": mean.num_examples} for name, mean in means.items()}
