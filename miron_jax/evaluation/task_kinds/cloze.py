"""Cloze items: the log-probability of a target after its prefix, its exact generation, its contrast
with distractors.

Arrives: a task of items, a tokenizer; then scores and completions.  Leaves: `ClozeRow`s.  It
deliberately does not know how a metric is computed.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Cloze, ClozeTask
from miron_jax.definitions.rules import printed
from miron_jax.engine.records import Score, Scores
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest
from miron_jax.evaluation.task_kinds.interface import (
    LoadedTask,
    RequestTexts,
    RowSizes,
    ScoredRow,
    Setup,
    TaskKind,
    TaskScores,
    TokenizedExamples,
)
from miron_jax.evaluation.task_kinds.row_sizes import sizes_of
from miron_jax.evaluation.task_kinds.summary import data_of, option_of, with_token_stats
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.cloze import (
    ClozeAnswers,
    Fragments,
    ScoredSpan,
    score_cloze,
    score_completion,
    scored_spans,
)
from miron_jax.planning.records import CostModel
from miron_jax.prompting.prompts import Prompt, digest_of
from miron_jax.results.details import BY_TARGET_TOKENS, ClozeDetails, Drift, Fragmentation
from miron_jax.results.records import Group, TaskResult
from miron_jax.results.samples import AskedItem, ExampleResult
from miron_jax.runtime.timeline import spent_on
from miron_jax.statistics.cloze_groups import cloze_groups
from miron_jax.statistics.estimate import estimates
from miron_jax.tokens.cloze_requests import ItemRequests, cloze_requests
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import special_tokens


@dataclass(slots=True)
class ClozeRow(ScoredRow):
    """`score` is None until there is a completion, and where the tokenizer cannot spell the
    item."""

    item: Cloze
    asked: ItemRequests | None  # None: its completion was written elsewhere
    spans: Sequence[ScoredSpan]  # of all items, by index of the requests in `asked`
    target: Score | None = None  # None: there is none
    generated: str | None = None  # None: not asked, or the model answered NaN
    truncated: bool = False
    beyond_trained: bool = False

    @property
    def is_nan(self) -> bool:
        if self.score is None:
            return False
        return self.generated is None or self.is_unscored

    @property
    def is_unscored(self) -> bool:
        return self.score is None or math.isnan(self.score.metrics["lev_score"])


class ClozeKind(TaskKind[ClozeRow]):
    scores_spans = True
    why_no_controls = "its main number is of what the model writes, not of a choice"
    generates = True
    asked: Sequence[ItemRequests] = ()  # once the items are tokenized
    empty_prefix: str | None = None  # the token in place of an empty prefix
    _requests: Requests | None = None  # tokenized for `sizes`; `pieces` takes them over

    def __init__(self, source: LoadedTask, setup: Setup) -> None:
        super().__init__(source, setup)
        self.items: Sequence[Cloze] = source.examples
        if setup.chat is not None:
            self.items = [*map(setup.chat.item, source.examples)]

    @classmethod
    def load(cls, task: ClozeTask, folder: Path, config: RunConfig, runs: bool) -> list[Cloze]:
        """The first `limit` items of each category, in file order."""
        items = task.read(folder, config.items_per_category)
        seen = Counter[str]()
        if config.limit is None:
            return items
        first = []
        for item in items:
            seen[item.category] += 1
            if seen[item.category] <= config.limit:
                first.append(item)
        return first

    @classmethod
    def whole_prompts(
        cls, source: LoadedTask, config: RunConfig, examples: Iterable[ExampleResult]
    ) -> Iterator[Prompt]:
        for idx, item in enumerate(source.examples):
            texts = (item.prefix,), (item.target,)
            yield Prompt(idx, item.row, *texts, None, digest=_digest(item))

    def sizes(self, cost: CostModel) -> RowSizes | None:
        """Those of all items: they are one piece, which is tokenized here."""
        self._requests = self._tokenized()
        return sizes_of(self._requests, cost) if len(self._requests) else None

    def pieces(self) -> Iterator[tuple[Sequence[Cloze], Requests]]:
        requests = self._requests or self._tokenized()
        self._requests = None
        yield self.items, requests

    @spent_on("tokenize")
    def _tokenized(self) -> Requests:
        task = self.source.task
        items = self.items
        tokenizer = self.setup.tokenizer
        requests, self.asked = cloze_requests(
            items, task.profile, tokenizer, self.setup.table, self.max_length, task.name
        )
        empty = special_tokens(tokenizer).empty
        self.empty_prefix = tokenizer.convert_ids_to_tokens(empty[0]) if empty else None
        return requests

    def pairs(self) -> Iterator[RequestTexts]:
        for idx, item in enumerate(self.items):
            yield RequestTexts(idx, item.prefix, item.target, None)

    def rows_of(self, piece: TokenizedExamples, scores: Scores) -> list[ClozeRow]:
        """Items with the scores of their requests; `take_texts` scores the items, after their
        completions."""
        rows = list[ClozeRow]()
        truncated = piece.requests.truncated
        too_long = np.diff(piece.requests.offsets) - 1 > self.setup.trained_length
        spans = scored_spans(scores.logprob, scores.rank, scores.offsets, scores.set_logprob)
        for i, (item, asked) in enumerate(zip(piece.examples, self.asked, strict=True)):
            optional = (asked.target, asked.card, asked.unprefixed, asked.clean, *asked.distractors)
            requests = [r for r in (*optional, *asked.segmentations) if r is not None]
            rows.append(
                ClozeRow(
                    i,
                    None,
                    item,
                    asked,
                    spans,
                    None if asked.target is None else scores[asked.target],
                    truncated=bool(truncated[requests].any()) or asked.prompt_cut,
                    beyond_trained=bool(too_long[requests].any()),
                )
            )
        return rows

    def texts(self) -> list[TextRequest]:
        profile = self.source.task.profile
        stop: tuple[str, ...] = (profile.stop,)
        if self.setup.chat is not None and self.setup.chat.end_of_turn:
            stop = (*stop, self.setup.chat.end_of_turn)
        if self.setup.tokenizer is None:
            return [TextRequest((), 0, stop)] * len(self.items)
        sampling = Sampling(**profile.decoding.call())
        return [
            TextRequest(asked.prompt, asked.num_tokens + profile.extra_tokens, stop, sampling)
            for asked in self.asked
            if asked.target is not None
        ]

    def take_texts(self, scores: TaskScores[ClozeRow], texts: Iterator[Generated]) -> None:
        if self.setup.tokenizer is None:
            for i, (item, (text, *_)) in enumerate(zip(self.items, texts, strict=True)):
                example = score_completion(text, item.target)
                scores.rows.append(ClozeRow(i, example, item, None, (), generated=text))
        for row in scores.rows:
            if row.asked is not None and row.asked.target is not None:
                completion = next(texts)
                row.generated = None if completion.ended == "nan" else completion.text
                row.score = _score_item(row)

    def result(self, scores: TaskScores[ClozeRow]) -> TaskResult:
        task = self.source.task
        rows = scores.rows
        scored = [(row.item, row.score) for row in rows if row.score and not row.is_unscored]
        examples = [example for _, example in scored]
        items = [row.item for row in rows]
        tokenized = [row.asked for row in rows if row.asked is not None]
        groups = cloze_groups(scored)
        by_target_tokens = {}
        for tokens, means in groups.by_target_tokens.items():
            by_target_tokens[tokens] = {
                name: means[name] for name in BY_TARGET_TOKENS if name in means
            }
        details = ClozeDetails(
            macro=groups.macro,
            fragmentation=Fragmentation(
                groups.spearman, by_target_tokens, sum(asked.added_tokens for asked in tokenized)
            ),
            drift={
                name: Drift(median.value, median.ci95, median.num_examples, groups.flips[name])
                for name, median in groups.drift.items()
            },
            rows_by_category=Counter(item.category for item in items),
            published_rows_a_category=task.rows,
            unspelled=sum(asked.target is None for asked in tokenized),
            bos_added=sum(asked.bos_added for asked in tokenized),
            targets_with_newline=sum("\n" in item.target for item in items),
            truncated=sum(row.truncated for row in rows),
            beyond_trained_length=sum(row.beyond_trained for row in rows),
            prefixes_end_in_space=sum(item.prefix[-1:].isspace() for item in items),
            targets_begin_with_space=sum(item.target[:1].isspace() for item in items),
        )
        return TaskResult(
            n=len(scored),
            metrics=estimates(examples),
            groups={
                name: Group(groups.sizes[name], means) for name, means in groups.categories.items()
            },
            baselines=task.baselines,
            profile={
                **printed(task.profile),
                "empty_prefix_token": self.empty_prefix,
                "max_length": self.max_length,
            },
            kind=task.kind,
            main=task.main if self.setup.tokenizer is not None else "lev_score",
            skipped=scores.num_skipped,
            control_tokens=self.control_tokens,
            tokens_without_text=scores.tokens_without_text or None,
            details=details,
            data=data_of(scores, None),
            citation=task.citation,
            limit=self.setup.config.limit,
        )

    def example_results(self, scores: TaskScores[ClozeRow]) -> Iterator[ExampleResult]:
        for row in scores.rows:
            item = row.item
            options = ()
            if row.target is not None:
                option = option_of(item.target, row.target)
                options = (replace(option, held_logprob=row.target.set_logprob),)
            yield ExampleResult(
                id=row.id,
                row=item.row,
                asked=AskedItem(
                    name=item.name,
                    category=item.category,
                    prefix=item.prefix,
                    prompt_sha256=_digest(item),
                ),
                correct=getattr(row.score, "correct", None),
                options=options,
                generated=row.generated,
                truncated=row.truncated or None,
                metrics=getattr(row.score, "metrics", {}),
                reason=_why_undefined(row.score),
            )


KINDS = {"cloze": ClozeKind}


def _digest(item: Cloze) -> str:
    return digest_of(item.prefix, item.target, *item.distractors)


def _score_item(row: ClozeRow) -> ExampleScore:
    item = row.item
    asked = row.asked
    assert asked is not None
    assert asked.target is not None
    assert row.target is not None

    def scored(request: int | None) -> ScoredSpan | None:
        return None if request is None else row.spans[request]

    others = None
    if asked.segmented:
        others = [row.spans[request] for request in asked.segmentations]
    answers = ClozeAnswers(
        target=row.spans[asked.target],
        card=scored(asked.card),
        unprefixed=scored(asked.unprefixed),
        clean=scored(asked.clean),
        distractors=[*map(scored, asked.distractors)],
        segmentations=others,
        generated=row.generated,
    )
    fragments = Fragments(
        asked.num_tokens, asked.num_prefix_tokens, asked.num_clean_tokens, asked.seam, asked.regress
    )
    example = score_cloze(item.prefix, item.target, item.distractors, answers, fragments)
    return with_token_stats(example, row.target)


def _why_undefined(example: ExampleScore | None) -> str:
    if example is None:
        return "the tokenizer has no tokens that spell this item"
    if math.isnan(example.metrics["lev_score"]):
        return "the model answers NaN"
    if not all(map(math.isfinite, example.metrics.values())):
        return "a metric that is null is not defined for this item"
    return ""
