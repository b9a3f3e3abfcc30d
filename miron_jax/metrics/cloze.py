"""One item's log-probabilities and generated text -> named numbers: the card's two, and what a careful reader wants beside.

Arrives: an item's texts, `ClozeAnswers`.  Leaves: an `ExampleScore`; a number that is not defined is NaN.  It deliberately
does not know tokenizers or files.  Card: the README of the hub data set apsua/MIRON_Benchmark, `compute_metrics`.
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


NOT_AVERAGED = frozenset({"drift_percent"})  # heavy tails: its median is reported, its mean means nothing


class Span(NamedTuple):
    """A scored text: log p (nats) and rank of its tokens, and log p of what its first token holds of the prefix."""

    logprob: np.ndarray
    rank: np.ndarray
    held: float = 0.0

    @property
    def total(self) -> float:
        """log P(text | prefix) in nats: sum over the tokens, less what they hold of the prefix."""
        return float(self.logprob.sum(dtype=np.float64)) - self.held


class ClozeAnswers(NamedTuple):
    """What the model said about one item."""

    target: Span
    card: np.ndarray | None  # log p of the card's tokens; None where its formula finds none
    unprefixed: Span | None
    clean: Span | None
    distractors: Sequence[Span | None]  # None: the tokenizer cannot spell it
    segmentations: Sequence[Span] | None  # None: not looked for
    generated: str | None  # None: the model answered NaN while it wrote


class Fragments(NamedTuple):
    """How the tokenizer cuts one item."""

    target_tokens: int
    prefix_tokens: int
    clean_tokens: int  # of the clean prefix, 0 where there is none
    seam: bool
    regress: bool


def score_cloze(
    prefix: str, target: str, distractors: Sequence[str], answers: ClozeAnswers, fragments: Fragments
) -> ExampleScore:
    """Every number of one item."""
    own, generated = answers.target, answers.generated or ""
    sound = not any(np.isnan(span.logprob).any() or math.isnan(span.held) for span in _spans(answers))
    sound &= answers.generated is not None
    metrics = {
        "lev_score": lev_score(generated, target),
        "target_confidence": target_confidence(answers.card),
        "logprob": own.total,
        "bits_per_char": _bits(own.total) / len(target),
        "bits_per_byte": _bits(own.total) / len(target.encode()),
        "greedy_exact": _greedy(own, fragments.seam),
        "first_token_rank": math.nan if fragments.seam else float(own.rank[0]),
        "pmi": own.total - answers.unprefixed.total if answers.unprefixed else math.nan,
        "marginal_gap": math.nan if answers.segmentations is None else marginal_gap(own, answers.segmentations),
        **text_scores(generated, target),
        "card_zero": float(answers.card is None),
        "seam": float(fragments.seam),
        "regress": float(fragments.regress),
        "target_tokens": float(fragments.target_tokens),
        "single_token": float(fragments.target_tokens == 1),
        "prefix_fertility": fragments.prefix_tokens / len(prefix.split()) if prefix.split() else math.nan,
    }
    if distractors:
        metrics["contrast_accuracy"] = contrast_accuracy(own, target, answers.distractors, distractors)
    if answers.clean is not None:
        metrics |= drift(own, answers.clean, fragments.seam)
        metrics["token_inflation"] = fragments.prefix_tokens / fragments.clean_tokens
    if not sound:
        metrics = dict.fromkeys(metrics, math.nan)
    exact = metrics["greedy_exact"]
    return ExampleScore(None, None if math.isnan(exact) else bool(exact), False, False, metrics)


def lev_score(generated: str, target: str) -> float:
    """100 (1 - Levenshtein(generated, target) / longer length), code points, case kept, nothing stripped; both empty: 100.

    The card's formula, literally.  Text that runs on costs as much as text that is wrong.
    """
    longer = max(len(generated), len(target))
    return 100 * (1 - Levenshtein.distance(generated, target) / longer) if longer else 100.0


def target_confidence(logprobs: np.ndarray | None) -> float:
    """100 exp(mean of log p over the card's tokens), 0 where it finds none; the card rounds to two decimals, this does not.

    A geometric mean a token: it grows when a tokenizer cuts the same target into more tokens, so it must not be compared
    between tokenizers.  Bits per character may.
    """
    return 0.0 if logprobs is None else 100 * math.exp(float(np.mean(logprobs, dtype=np.float64)))


def text_scores(generated: str, target: str) -> dict[str, float]:
    """lev_score after NFC and stripping both; of as many characters as the target has; of the first word alone."""
    found, wanted = (unicodedata.normalize("NFC", text).strip() for text in (generated, target))
    words = re.findall(r"\w+(?:[-'\u2019]\w+)*", found)
    return {
        "lev_stripped": lev_score(found, wanted),
        "lev_truncated": lev_score(found[: len(wanted)], wanted),
        "lev_first_word": lev_score(words[0] if words else "", wanted),
    }


def marginal_gap(own: Span, others: Sequence[Span]) -> float:
    """log of the sum of P over all tokenizations scored, less log P of the target's own: nats, at least 0."""
    totals = [own.total, *(other.total for other in others)]
    return float(np.logaddexp.reduce(totals)) - own.total if math.isfinite(own.total) else math.nan


def contrast_accuracy(own: Span, target: str, others: Sequence[Span | None], distractors: Sequence[str]) -> float:
    """1 if the target has a larger log P a character than every distractor, 0 if not: no tokenizer is favoured."""
    pairs = [(other.total, text) for other, text in zip(others, distractors, strict=True) if other is not None]
    if not pairs:
        return math.nan
    return float(all(own.total / len(target) > total / len(text) for total, text in pairs))


def drift(noisy: Span, clean: Span, seam: bool = False) -> dict[str, float]:
    """What noise in the prefix does to one target: bits it adds, share of P it takes, answers it turns."""
    right_before, right_after = _greedy(clean, seam), _greedy(noisy, seam)
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
    return [answers.target, *card, *(answers.segmentations or ()), *(span for span in maybe if span is not None)]


def _greedy(span: Span, seam: bool) -> float:
    """1 if every token is the most probable one.  NaN on a seam: the first token would have to say the prefix's end too."""
    return math.nan if seam else float(bool(np.all(span.rank == 0)))


def _bits(nats: float) -> float:
    """Information of an outcome, -log2 P."""
    return -nats / math.log(2)
