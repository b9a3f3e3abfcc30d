"""One cloze item's log-probabilities and completion -> named numbers: the card's two metrics, and
tokenizer-free ones.

Arrives: an item's texts, `ClozeAnswers`.  Leaves: an `ExampleScore`; a number that is not defined
is NaN.  It deliberately does not know tokenizers or files.  Card: the README of the hub data set
apsua/MIRON_Benchmark, `compute_metrics`.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.spans import Spans

CLOZE_PROPORTIONS = frozenset(
    {
        "greedy_exact", "contrast_accuracy", "card_zero", "seam", "regress", "single_token",
        "clean_greedy_exact", "flip_to_wrong", "flip_to_right",
    }
)  # fmt: skip


# heavy tails: its median is reported, its mean means nothing
NOT_AVERAGED = frozenset({"drift_percent"})


class ScoredSpan(NamedTuple):
    """A scored text."""

    sum: float  # nats, of log p over its tokens
    num_tokens: int
    first_rank: int  # of its first token
    is_greedy: bool  # every rank is 0
    is_nan: bool  # so is a number of it
    held: float = 0.0  # nats, log p of the end of the prefix that the first token holds

    @property
    def total(self) -> float:
        """log P(text | prefix) in nats: sum over the tokens, less the part of the prefix that they
        hold."""
        return self.sum - self.held


def scored_spans(
    logprob: np.ndarray, rank: np.ndarray, offsets: np.ndarray, held: np.ndarray
) -> list[ScoredSpan]:
    """Each text of many.  Tokens of text r are [offsets[r], offsets[r + 1]); logprob and held are
    float32 nats, `held` of each text."""
    spans = Spans.of(logprob, rank, offsets)
    first = np.append(rank, 0)[offsets[:-1]]
    is_nan = spans.has_nan | np.isnan(held)
    columns = spans.sum, spans.num_tokens, first, spans.is_greedy, is_nan, held
    return [*map(ScoredSpan, *(column.tolist() for column in columns))]


class ClozeAnswers(NamedTuple):
    """The model's answers to one item."""

    target: ScoredSpan
    card: ScoredSpan | None  # of the card's tokens; None: its formula finds none
    unprefixed: ScoredSpan | None
    clean: ScoredSpan | None
    distractors: Sequence[ScoredSpan | None]  # None: the tokenizer cannot spell it
    segmentations: Sequence[ScoredSpan] | None  # None: not searched
    generated: str | None  # None: the logits were NaN


class Fragments(NamedTuple):
    """The tokenization of one item."""

    target_tokens: int
    prefix_tokens: int
    clean_tokens: int  # of the clean prefix; 0: the item has none
    seam: bool  # a token holds the end of the prefix and the beginning of the target
    regress: bool  # the prefix alone has other tokens than before the target


def score_cloze(
    prefix: str,
    target: str,
    distractors: Sequence[str],
    answers: ClozeAnswers,
    fragments: Fragments,
) -> ExampleScore:
    """Every number of one item."""
    span = answers.target
    generated = answers.generated or ""
    num_words = len(prefix.split())
    metrics = {
        "lev_score": lev_score(generated, target),
        "target_confidence": target_confidence(answers.card),
        "logprob": span.total,
        "bits_per_char": _bits(span.total) / len(target),
        "bits_per_byte": _bits(span.total) / len(target.encode()),
        "greedy_exact": _greedy(span, fragments.seam),
        "first_token_rank": math.nan if fragments.seam else float(span.first_rank),
        "pmi": span.total - answers.unprefixed.total if answers.unprefixed else math.nan,
        "marginal_gap": marginal_gap(span, answers.segmentations),
        **text_scores(generated, target),
        "card_zero": float(answers.card is None),
        "seam": float(fragments.seam),
        "regress": float(fragments.regress),
        "target_tokens": float(fragments.target_tokens),
        "single_token": float(fragments.target_tokens == 1),
        "prefix_fertility": fragments.prefix_tokens / num_words if num_words else math.nan,
    }
    if distractors:
        metrics["contrast_accuracy"] = contrast_accuracy(
            span, target, answers.distractors, distractors
        )
    if answers.clean is not None:
        metrics |= drift(span, answers.clean, fragments.seam)
        metrics["token_inflation"] = fragments.prefix_tokens / fragments.clean_tokens
    if answers.generated is None or any(span.is_nan for span in _spans(answers)):
        metrics = dict.fromkeys(metrics, math.nan)
    exact = metrics["greedy_exact"]
    return ExampleScore(None, None if math.isnan(exact) else bool(exact), False, False, metrics)


def score_completion(generated: str, target: str) -> ExampleScore:
    """The numbers of one item that need its completion alone."""
    metrics = {"lev_score": lev_score(generated, target), **text_scores(generated, target)}
    return ExampleScore(None, None, False, False, metrics)


def lev_score(generated: str, target: str) -> float:
    """100 (1 - Levenshtein(generated, target) / longer length), code points, case kept, nothing
    stripped; both empty: 100.

    The card's formula, literally.  Text that runs on costs as much as text that is wrong.
    """
    longer = max(len(generated), len(target), 1)
    return 100 * (1 - Levenshtein.distance(generated, target) / longer)


def target_confidence(card: ScoredSpan | None) -> float:
    """100 exp(mean of log p over the card's tokens), 0 without tokens; the card rounds to two
    decimals, this does not.

    A geometric mean per token: it grows if a tokenizer cuts the same target into more tokens, so it
    must not be compared between tokenizers.  Bits per character may.
    """
    if card is None:
        return 0.0
    return 100 * math.exp(card.sum / card.num_tokens)


def text_scores(generated: str, target: str) -> dict[str, float]:
    """lev_score after NFC and stripping of both texts: of all, of the target's length, and of the
    first word."""
    generated = unicodedata.normalize("NFC", generated).strip()
    target = unicodedata.normalize("NFC", target).strip()
    words = re.findall(r"\w+(?:[-'\u2019]\w+)*", generated)
    return {
        "lev_stripped": lev_score(generated, target),
        "lev_truncated": lev_score(generated[: len(target)], target),
        "lev_first_word": lev_score("".join(words[:1]), target),
    }


def marginal_gap(span: ScoredSpan, others: Sequence[ScoredSpan] | None) -> float:
    """log of the sum of P over all scored tokenizations, less log P of the tokenizer's own: nats,
    at least 0.  NaN where others were not searched."""
    if others is None or not math.isfinite(span.total):
        return math.nan
    totals = [span.total, *(other.total for other in others)]
    return float(np.logaddexp.reduce(totals)) - span.total


def contrast_accuracy(
    span: ScoredSpan, target: str, others: Sequence[ScoredSpan | None], distractors: Sequence[str]
) -> float:
    """1 if the target has a larger log P per character than every distractor, else 0; no tokenizer
    is favoured."""
    of_target = span.total / len(target)
    rates = []
    for other, text in zip(others, distractors, strict=True):
        if other is not None:
            rates.append(other.total / len(text))
    if not rates:
        return math.nan
    return float(all(of_target > rate for rate in rates))


def drift(noisy: ScoredSpan, clean: ScoredSpan, seam: bool = False) -> dict[str, float]:
    """The effect of noise in the prefix on one target: added bits, lost share of P, flipped
    answers."""
    right_before = _greedy(clean, seam)
    right_after = _greedy(noisy, seam)
    return {
        "clean_greedy_exact": right_before,
        "drift_bits": _bits(noisy.total) - _bits(clean.total),
        "drift_percent": 100 * -math.expm1(min(noisy.total - clean.total, 700.0)),
        "flip_to_wrong": right_before * (1 - right_after),
        "flip_to_right": right_after * (1 - right_before),
    }


def _spans(answers: ClozeAnswers) -> Iterator[ScoredSpan]:
    yield answers.target
    yield from answers.segmentations or ()
    others = answers.card, answers.unprefixed, answers.clean, *answers.distractors
    yield from filter(None, others)


def _greedy(span: ScoredSpan, seam: bool) -> float:
    """1 if every token is the most probable one.  NaN on a seam: the first token holds the end of
    the prefix too."""
    return math.nan if seam else float(span.is_greedy)


def _bits(nats: float) -> float:
    """Information of an outcome, -log2 P."""
    return -nats / math.log(2)
