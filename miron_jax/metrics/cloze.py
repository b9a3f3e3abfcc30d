"""One cloze item's log-probabilities and completion -> named numbers: the card's two metrics, and
tokenizer-free ones.

Arrives: an item's texts, `ClozeAnswers`.  Leaves: an `ExampleScore`; a number that is not defined
is NaN.  It deliberately does not know tokenizers or files.  Card: the README of the hub data set
apsua/MIRON_Benchmark, `compute_metrics`.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from miron_jax.metrics.choices import ExampleScore

CLOZE_PROPORTIONS = frozenset(
    {
        "greedy_exact", "contrast_accuracy", "card_zero", "seam", "regress", "single_token",
        "clean_greedy_exact", "flip_to_wrong", "flip_to_right",
    }
)  # fmt: skip


# heavy tails: its median is reported, its mean means nothing
NOT_AVERAGED = frozenset({"drift_percent"})


class Span(NamedTuple):
    """A scored text."""

    logprob: np.ndarray  # float32 nats, of its tokens
    rank: np.ndarray  # int32, of its tokens
    held: float = 0.0  # nats, log p of the end of the prefix that the first token holds

    @property
    def total(self) -> float:
        """log P(text | prefix) in nats: sum over the tokens, less the part of the prefix that they
        hold."""
        return float(self.logprob.sum(dtype=np.float64)) - self.held


class ClozeAnswers(NamedTuple):
    """The model's answers to one item."""

    target: Span
    card: np.ndarray | None  # log p of the card's tokens; None: its formula finds none
    unprefixed: Span | None
    clean: Span | None
    distractors: Sequence[Span | None]  # None: the tokenizer cannot spell it
    segmentations: Sequence[Span] | None  # None: not searched
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
    is_nan = any(
        np.isnan(scored.logprob).any() or math.isnan(scored.held) for scored in _spans(answers)
    )
    metrics = {
        "lev_score": lev_score(generated, target),
        "target_confidence": target_confidence(answers.card),
        "logprob": span.total,
        "bits_per_char": _bits(span.total) / len(target),
        "bits_per_byte": _bits(span.total) / len(target.encode()),
        "greedy_exact": _greedy(span, fragments.seam),
        "first_token_rank": math.nan if fragments.seam else float(span.rank[0]),
        "pmi": span.total - answers.unprefixed.total if answers.unprefixed else math.nan,
        "marginal_gap": math.nan
        if answers.segmentations is None
        else marginal_gap(span, answers.segmentations),
        **text_scores(generated, target),
        "card_zero": float(answers.card is None),
        "seam": float(fragments.seam),
        "regress": float(fragments.regress),
        "target_tokens": float(fragments.target_tokens),
        "single_token": float(fragments.target_tokens == 1),
        "prefix_fertility": fragments.prefix_tokens / len(prefix.split())
        if prefix.split()
        else math.nan,
    }
    if distractors:
        metrics["contrast_accuracy"] = contrast_accuracy(
            span, target, answers.distractors, distractors
        )
    if answers.clean is not None:
        metrics |= drift(span, answers.clean, fragments.seam)
        metrics["token_inflation"] = fragments.prefix_tokens / fragments.clean_tokens
    if is_nan or answers.generated is None:
        metrics = dict.fromkeys(metrics, math.nan)
    exact = metrics["greedy_exact"]
    return ExampleScore(None, None if math.isnan(exact) else bool(exact), False, False, metrics)


def lev_score(generated: str, target: str) -> float:
    """100 (1 - Levenshtein(generated, target) / longer length), code points, case kept, nothing
    stripped; both empty: 100.

    The card's formula, literally.  Text that runs on costs as much as text that is wrong.
    """
    longer = max(len(generated), len(target))
    return 100 * (1 - Levenshtein.distance(generated, target) / longer) if longer else 100.0


def target_confidence(logprobs: np.ndarray | None) -> float:
    """100 exp(mean of log p over the card's tokens), 0 without tokens; the card rounds to two
    decimals, this does not.

    A geometric mean per token: it grows if a tokenizer cuts the same target into more tokens, so it
    must not be compared between tokenizers.  Bits per character may.
    """
    return 0.0 if logprobs is None else 100 * math.exp(float(np.mean(logprobs, dtype=np.float64)))


def text_scores(generated: str, target: str) -> dict[str, float]:
    """lev_score after NFC and stripping of both texts: of all, of the target's length, and of the
    first word."""
    generated, target = (unicodedata.normalize("NFC", text).strip() for text in (generated, target))
    words = re.findall(r"\w+(?:[-'\u2019]\w+)*", generated)
    return {
        "lev_stripped": lev_score(generated, target),
        "lev_truncated": lev_score(generated[: len(target)], target),
        "lev_first_word": lev_score(words[0] if words else "", target),
    }


def marginal_gap(span: Span, others: Sequence[Span]) -> float:
    """log of the sum of P over all scored tokenizations, less log P of the tokenizer's own: nats,
    at least 0."""
    totals = [span.total, *(other.total for other in others)]
    return (
        float(np.logaddexp.reduce(totals)) - span.total if math.isfinite(span.total) else math.nan
    )


def contrast_accuracy(
    span: Span, target: str, others: Sequence[Span | None], distractors: Sequence[str]
) -> float:
    """1 if the target has a larger log P per character than every distractor, else 0; no tokenizer
    is favoured."""
    pairs = [
        (other.total, text)
        for other, text in zip(others, distractors, strict=True)
        if other is not None
    ]
    if not pairs:
        return math.nan
    return float(all(span.total / len(target) > total / len(text) for total, text in pairs))


def drift(noisy: Span, clean: Span, seam: bool = False) -> dict[str, float]:
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


def _spans(answers: ClozeAnswers) -> list[Span]:
    card = [] if answers.card is None else [Span(answers.card, np.zeros(0, np.int32))]
    maybe = [answers.unprefixed, answers.clean, *answers.distractors]
    return [
        answers.target,
        *card,
        *(answers.segmentations or ()),
        *(span for span in maybe if span is not None),
    ]


def _greedy(span: Span, seam: bool) -> float:
    """1 if every token is the most probable one.  NaN on a seam: the first token holds the end of
    the prefix too."""
    return math.nan if seam else float(bool(np.all(span.rank == 0)))


def _bits(nats: float) -> float:
    """Information of an outcome, -log2 P."""
    return -nats / math.log(2)
