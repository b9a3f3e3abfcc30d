"""Cloze items: a beginning, and how probable, how exactly generated and how well told from wrong ones its continuation is.

Arrives: a task of items, a tokenizer; then scores and texts.  Leaves: `ClozeScores`.  It deliberately does not know how a
metric is made.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Cloze, ClozeTask
from miron_jax.definitions.rules import printed
from miron_jax.engine.records import Score
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.cloze import ClozeAnswers, Fragments, Span, score_cloze
from miron_jax.metrics.detox import Scorer
from miron_jax.statistics.cloze_groups import cloze_groups
from miron_jax.statistics.estimate import Estimate, estimates
from miron_jax.task_kinds.entries import estimate_entry, option_entry, with_limit
from miron_jax.task_kinds.interface import Facts, Piece, Source, TaskKind, TaskScores
from miron_jax.tokens.cloze_requests import ItemRequests, cloze_requests
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import special_tokens

# What stands in results by the number of a target's tokens.
SHOWN = ("lev_score", "target_confidence", "bits_per_char", "bits_per_byte", "greedy_exact", "contrast_accuracy")


class Items(NamedTuple):
    """A piece's items."""

    items: list[Cloze]
    asked: list[ItemRequests]
    empty_prefix: str | None  # the token that stands for one


@dataclass(slots=True)
class ClozeScores(TaskScores):
    """One cloze task's items, in file order.  Those that the tokenizer cannot spell have no scores and no example."""

    source: Source
    items: list[Cloze] = field(default_factory=list)
    asked: list[ItemRequests] = field(default_factory=list)  # as the other lists, one an item
    spans: list[dict[int, Score]] = field(default_factory=list)  # by place among the requests that `asked` names
    generated: list[str | None] = field(default_factory=list)  # None: not scored, or the model answered NaN
    examples: list[ExampleScore | None] = field(default_factory=list)
    truncated: int = 0
    beyond_trained: int = 0
    empty_prefix: str | None = None  # the token that stands for an empty prefix

    @property
    def unspelled(self) -> int:
        return sum(asked.target is None for asked in self.asked)

    @property
    def scored(self) -> list[tuple[Cloze, ExampleScore]]:
        """Items that the tokenizer could spell and the model answered."""
        pairs = zip(self.items, self.examples, strict=True)
        return [(item, example) for item, example in pairs if example and not math.isnan(example.metrics["logprob"])]

    @property
    def num_examples(self) -> int:
        return len(self.examples)

    @property
    def num_skipped(self) -> int:
        return len(self.examples) - len(self.scored)

    @property
    def unanswered(self) -> list[int]:
        columns = zip(self.examples, self.generated, strict=True)
        scored = [(i, own, text) for i, (own, text) in enumerate(columns) if own is not None]
        return [i for i, own, text in scored if text is None or math.isnan(own.metrics["logprob"])]

    def finish(self, detox: Scorer | None = None) -> None:
        columns = (self.items, self.asked, self.spans, self.generated)
        self.examples = [_score_item(*item) for item in zip(*columns, strict=True)]

    def for_composites(self) -> Mapping[str, Estimate]:
        return cloze_groups(self.scored).macro

    def entry(self, facts: Facts) -> dict[str, Any]:
        """DESIGN section 4's keys, and what only a cloze task has."""
        definition, groups = self.source.task, cloze_groups(self.scored)
        scored = [example for _, example in self.scored]
        entry: dict[str, Any] = {
            "n": len(scored),
            "metrics": _entries(estimates(scored)),
            "groups": {
                name: {"n": groups.sizes[name], "metrics": _entries(found)} for name, found in groups.categories.items()
            },
            "macro": _entries(groups.macro),
            "fragmentation": {
                "spearman_tokens_bits_per_char": groups.spearman,
                **({"reason": "tokens or bits are the same for all items"} if math.isnan(groups.spearman) else {}),
                "by_target_tokens": {
                    name: _entries({key: found[key] for key in SHOWN if key in found})
                    for name, found in groups.by_target_tokens.items()
                },
                "segmentation_tokens": sum(asked.added_tokens for asked in self.asked),
            },
            "drift": {
                name: {
                    "median_percent": found.value,
                    "ci95": list(found.ci95),
                    "n": found.num_examples,
                    **({} if found.num_examples else {"reason": "no pair has a defined value"}),
                    **_entries(groups.flips[name]),
                }
                for name, found in groups.drift.items()
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

    def samples(self) -> Iterator[dict[str, Any]]:
        columns = (self.items, self.asked, self.spans, self.generated, self.examples)
        for place, (item, asked, spans, generated, example) in enumerate(zip(*columns, strict=True)):
            options = []
            if asked.target is not None:
                held = spans[asked.target].set_logprob
                options = [{**option_entry(item.target, spans[asked.target]), "held_logprob": held}]
            sample = {
                "id": place,
                "row": item.row,
                "name": item.name,
                "category": item.category,
                "prefix": item.prefix,
                "gold": None,
                "prediction": None,
                "correct": example.correct if example else None,
                "options": options,
                "generated": generated,
                "metrics": dict(example.metrics) if example else {},
            }
            if example is None:
                sample["reason"] = "the tokenizer has no tokens that spell this item"
            elif math.isnan(example.metrics["logprob"]):
                sample["reason"] = "the model answers NaN"
            elif not all(map(math.isfinite, example.metrics.values())):
                sample["reason"] = "a metric that is null is not defined for this item"
            yield sample


class ClozeKind(TaskKind):
    scores_spans, generates = True, True

    @classmethod
    def load(cls, task: ClozeTask, folder: Path, config: RunConfig, runs: bool) -> list[Cloze]:
        """The first `limit` items of each category, in file order."""
        met: Counter[str] = Counter()
        chosen = []
        for item in task.read(folder, config.items_per_category):
            met[item.category] += 1
            if config.limit is None or met[item.category] <= config.limit:
                chosen.append(item)
        return chosen

    def pieces(self) -> Iterator[tuple[Items, Requests]]:
        task, items, tokenizer = self.source.task, self.source.examples, self.setup.tokenizer
        requests, asked = cloze_requests(items, task.profile, tokenizer, self.setup.table, self.max_length, task.name)
        empty = special_tokens(tokenizer).empty
        yield Items(items, asked, tokenizer.convert_ids_to_tokens(empty[0]) if empty else None), requests

    def begin(self) -> ClozeScores:
        return ClozeScores(self.source)

    def take(self, scores: ClozeScores, piece: Piece, found: Sequence[Score]) -> None:
        """Give each item the scores that it asked for; its text is generated later."""
        own: Items = piece.examples
        scores.items += own.items
        scores.asked += own.asked
        scores.empty_prefix = own.empty_prefix
        length = np.diff(piece.requests.offsets)
        for asked in own.asked:
            optional = (asked.target, asked.card, asked.unprefixed, asked.clean, *asked.distractors)
            places = [place for place in (*optional, *asked.segmentations) if place is not None]
            scores.spans.append({place: found[place] for place in places})
            scores.truncated += bool(piece.requests.truncated[places].any()) or asked.prompt_cut
            scores.beyond_trained += bool((length[places] - 1 > self.setup.trained_length).any())

    def texts(self, scores: ClozeScores) -> list[TextRequest]:
        profile = self.source.task.profile
        how = Sampling(**profile.decoding.call())
        return [
            TextRequest(asked.prompt, asked.num_tokens + profile.extra_tokens, (profile.stop,), how)
            for asked in scores.asked
            if asked.target is not None
        ]

    def take_texts(self, scores: ClozeScores, texts: Iterator[Generated]) -> None:
        found = [next(texts) if own.target is not None else None for own in scores.asked]
        scores.generated += [None if own is None or own.ended == "nan" else own.text for own in found]


KINDS = {"cloze": ClozeKind}


def _score_item(
    item: Cloze, asked: ItemRequests, spans: dict[int, Score], generated: str | None
) -> ExampleScore | None:
    if asked.target is None:
        return None

    def span(place: int | None) -> Span | None:
        return None if place is None else Span(*spans[place])

    target = span(asked.target)
    assert target is not None
    answers = ClozeAnswers(
        target=target,
        card=None if asked.card is None else spans[asked.card].logprob,
        unprefixed=span(asked.unprefixed),
        clean=span(asked.clean),
        distractors=[span(place) for place in asked.distractors],
        segmentations=[Span(*spans[place]) for place in asked.segmentations] if asked.segmented else None,
        generated=generated,
    )
    fragments = Fragments(asked.num_tokens, asked.num_prefix_tokens, asked.num_clean_tokens, asked.seam, asked.regress)
    return score_cloze(item.prefix, item.target, item.distractors, answers, fragments)


def _entries(found: Mapping[str, Estimate]) -> dict[str, Any]:
    """Each with its own n: some numbers exist for some items only."""
    return {name: {**estimate_entry(own), "n": own.num_examples} for name, own in found.items()}
