"""The slow twin of miron_jax/metrics/choices.py: one example at a time, each number by its formula."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from miron_jax.metrics.choices import (
    CHAR,
    CHOICE_METRICS,
    EXP_MEAN,
    FIRST,
    MEAN,
    SUM,
    ChoiceRules,
    ExampleScore,
    score_continuations,
)
from miron_jax.metrics.spans import Spans


class PlainExample(NamedTuple):
    logprobs: Sequence[np.ndarray]  # of each choice, float32 nats
    texts: Sequence[str]
    gold: int | None
    endings: Sequence[tuple[np.ndarray, np.ndarray]] = ()  # log-probabilities and ranks
    neutral: Sequence[np.ndarray] = ()


def score_continuation(token_logprobs: np.ndarray, ranks: np.ndarray, continuation: str) -> ExampleScore:
    """One example of `score_continuations`."""
    [score] = score_continuations([continuation], Spans.of_each([token_logprobs], [ranks]))
    return score


def score_plainly(example: PlainExample, rules: ChoiceRules) -> ExampleScore:
    logprobs, texts, gold, endings, neutral = example
    normalizer, tie, _, compared = rules
    empty = any(len(each) == 0 for each in logprobs)
    metrics = dict.fromkeys(CHOICE_METRICS, math.nan)
    prediction, tied, rounded = None, False, False
    if not _has_nan(logprobs):
        losses = _losses(normalizer.name, logprobs, texts)
        prediction = _choose(losses, tie.name)
        tied = sum(bool(loss == losses[prediction]) for loss in losses) > 1
        if gold is not None:
            metrics = {"accuracy": float(prediction == gold)}
            metrics |= {name: metric(logprobs, texts, gold) for name, metric in METRICS.items()}
            rounded = normalizer is EXP_MEAN and prediction != _choose(_losses("mean", logprobs, texts), tie.name)
    if gold is not None and (endings or neutral or normalizer is CHAR):
        chosen = int(np.argmin(np.asarray(_losses("char", logprobs, texts))))
        metrics["accuracy_char"] = math.nan if _has_nan(logprobs) else float(chosen == gold)
    for name, rule in compared if gold is not None else ():
        chosen = _choose(_losses(rule.name, logprobs, texts), tie.name)
        metrics[f"accuracy_{name}"] = math.nan if _has_nan(logprobs) else float(chosen == gold)
    if gold is not None and neutral:
        gain = np.array([np.float64(_sum32(a)) - _sum32(b) for a, b in zip(logprobs, neutral, strict=True)])
        metrics["accuracy_pmi"] = math.nan if _has_nan([gain]) else float(int(np.argmax(gain)) == gold)
    if gold is not None and endings:
        is_greedy = any(bool(np.all(ranks == 0)) for _, ranks in endings)
        metrics["greedy_exact"] = math.nan if _has_nan([each for each, _ in endings]) else float(is_greedy)
    correct = None if gold is None or prediction is None else prediction == gold
    of_neutral = () if gold is None else tuple(map(float, map(_sum32, neutral)))
    return ExampleScore(prediction, correct, tied, empty, metrics, rounded, of_neutral)


def _choose(losses: Sequence[np.floating], tie: str) -> int:
    if tie == FIRST.name:
        return min(range(len(losses)), key=losses.__getitem__)
    return len(losses) - 1 - min(range(len(losses)), key=losses[::-1].__getitem__)


def _losses(normalizer: str, logprobs: Sequence[np.ndarray], texts: Sequence[str]) -> list[np.floating]:
    if normalizer == SUM.name:
        return [-_sum32(each) for each in logprobs]
    if normalizer == CHAR.name:
        return _per_unit(logprobs, [*map(len, texts)])
    means = [-np.mean(each, dtype=np.float32) if len(each) else np.float32(np.nan) for each in logprobs]
    return means if normalizer == MEAN.name else [*map(np.exp, means)]


def _per_unit(logprobs: Sequence[np.ndarray], num_units: Sequence[int]) -> list[np.floating]:
    pairs = zip(logprobs, num_units, strict=True)
    return [-_sum32(each) / np.int64(units) if units else np.float64(np.inf) for each, units in pairs]


def _bits_per_byte(logprobs: Sequence[np.ndarray], texts: Sequence[str], gold: int) -> float:
    if not len(logprobs[gold]):
        return math.nan
    return float(-np.sum(logprobs[gold], dtype=np.float64) / math.log(2) / len(texts[gold].encode()))


def _choice_logprob(logprobs: Sequence[np.ndarray], texts: Sequence[str], gold: int) -> float:
    sums = _sums64(logprobs)
    return float(sums[gold] - np.logaddexp.reduce(sums))


def _prob_norm(logprobs: Sequence[np.ndarray], texts: Sequence[str], gold: int) -> float:
    bits = -_sums64(logprobs) / (np.array([max(1, len(text.encode())) for text in texts]) * math.log(2))
    weights = np.exp(bits.min() - bits)
    return float(weights[gold] / weights.sum())


def _rank(logprobs: Sequence[np.ndarray], texts: Sequence[str], gold: int) -> float:
    sums = _sums64(logprobs)
    return float((sums > sums[gold]).sum())


def _margin(logprobs: Sequence[np.ndarray], texts: Sequence[str], gold: int) -> float:
    sums = _sums64(logprobs)
    return float(sums[gold] - np.delete(sums, gold).max(initial=-math.inf))


METRICS: dict[str, Callable[[Sequence[np.ndarray], Sequence[str], int], float]] = {
    "accuracy_sum": lambda logprobs, texts, gold: float(int(np.argmax([*map(_sum32, logprobs)])) == gold),
    "accuracy_bytes": lambda logprobs, texts, gold: float(
        int(np.argmin(_per_unit(logprobs, [len(text.encode()) for text in texts]))) == gold
    ),
    "bits_per_byte": _bits_per_byte,
    "choice_logprob": _choice_logprob,
    "choice_prob_norm": _prob_norm,
    "choice_logprob_norm": lambda *example: math.log(_prob_norm(*example) + 1e-30),
    "choice_rank": _rank,
    "choice_margin": _margin,
}


def _sum32(logprobs: np.ndarray) -> np.float32:
    return np.sum(logprobs, dtype=np.float32)


def _sums64(logprobs: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([np.sum(each, dtype=np.float64) for each in logprobs])


def _has_nan(arrays: Sequence[np.ndarray]) -> bool:
    return any(np.isnan(array).any() for array in arrays)
