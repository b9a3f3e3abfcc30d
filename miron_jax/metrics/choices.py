"""One example's token log-probabilities -> named numbers: multiple choice and language modelling.

Arrives: for each choice the float32 log-probabilities (nats) of its scored tokens, and its text.
Leaves: `ExampleScore`.  It deliberately does not know tasks, tokens or files.

The scored span is the task profile's.  In CORE's multiple choice it leaves out the common prefix of
all choices, so a choice that is a prefix of another has an empty span.  A NaN log-probability comes
from a broken model: it makes every number of its example NaN, never 0, and nothing is chosen.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.rules import Rule


@dataclass(frozen=True, slots=True)
class ExampleScore:
    """The score of one example.  A metric that is not defined for it is NaN."""

    # the chosen choice; None: the task chooses nothing, or a log-probability is NaN
    prediction: int | None
    correct: bool | None  # the protocol's own accuracy; None: it is NaN
    tied: bool  # another choice equals the chosen one, and the tie rule decided
    empty_span: bool  # some choice has no scored token
    metrics: Mapping[str, float]
    # mean losses and the same tie rule would choose otherwise: exp rounded them to a tie
    rounded: bool = False
    # nats, of every choice after a context without content
    neutral_logprobs: tuple[float, ...] = ()


# Normalizers: log-probabilities (float32 nats) of each choice's scored tokens, their texts -> a
# loss of each choice.
Normalizer = Callable[[Sequence[np.ndarray], Sequence[str]], Sequence[np.floating]]
MEAN: Rule[Normalizer] = Rule("mean", lambda logprobs, texts: mean_losses(logprobs))
EXP_MEAN: Rule[Normalizer] = Rule(
    "exp_mean", lambda logprobs, texts: perplexities(mean_losses(logprobs))
)
SUM: Rule[Normalizer] = Rule("sum", lambda logprobs, texts: list(-_sums(logprobs)))
CHAR: Rule[Normalizer] = Rule(  # the sum divided by the characters of the choice
    "char",
    lambda logprobs, texts: list(_losses_per_unit(logprobs, list(map(len, texts)))),
)

# Ties: losses -> the choice with the smallest loss; among equal ones the first or the last.
Tie = Callable[[Sequence[np.floating]], int]
FIRST: Rule[Tie] = Rule("first", lambda losses: first_smallest(losses))
LAST: Rule[Tie] = Rule("last", lambda losses: len(losses) - 1 - first_smallest(losses[::-1]))


def score_choices(
    token_logprobs: Sequence[np.ndarray],
    continuations: Sequence[str],
    gold: int | None,
    normalizer: Rule[Normalizer] = MEAN,
    tie: Rule[Tie] = FIRST,
) -> ExampleScore:
    """Score an example of multiple choice or schema; both sequences have one entry per choice.

    If the right answer is not published (`gold` is None), a choice is made, and every metric is
    NaN, never 0.
    """
    empty = any(len(logprobs) == 0 for logprobs in token_logprobs)
    if _has_nan(token_logprobs):
        return ExampleScore(None, None, False, empty, dict.fromkeys(CHOICE_METRICS, math.nan))
    losses = normalizer.call(token_logprobs, continuations)
    prediction = tie.call(losses)
    tied = sum(bool(loss == losses[prediction]) for loss in losses) > 1
    if gold is None:
        return ExampleScore(prediction, None, tied, empty, dict.fromkeys(CHOICE_METRICS, math.nan))
    metrics = {"accuracy": float(prediction == gold)}
    for metric in OF_OPTIONS:
        metrics[metric.name] = metric.of(token_logprobs, continuations, gold)
    return ExampleScore(
        prediction=prediction,
        correct=prediction == gold,
        tied=tied,
        empty_span=empty,
        rounded=normalizer is EXP_MEAN and prediction != tie.call(mean_losses(token_logprobs)),
        metrics=metrics,
    )


def with_extra_metrics(
    example: ExampleScore,
    token_logprobs: Sequence[np.ndarray],
    continuations: Sequence[str],
    gold: int,
    endings: Sequence[tuple[np.ndarray, np.ndarray]],
    neutral_logprobs: Sequence[np.ndarray],
) -> ExampleScore:
    """Add the metrics that need requests beside the choices; NaN stays NaN, never 0.

    `endings`: log-probabilities and ranks of the tokens of gold and each ending.
    `neutral_logprobs`: every choice after a context without content.

    accuracy_char: 1 if gold has the largest (sum of log p) / (characters of the choice), white
    space at its ends counted, lm-eval's `acc_norm`.
    accuracy_pmi: 1 if gold has the largest (sum of log p after the question) - (sum after the
    context without content), Holtzman et al. 2021 (arXiv:2104.08315), within the same shots: what
    is probable anyway does not count. greedy_exact: 1 if every token of gold and one of its endings
    is the most probable: greedy decoding writes just gold.  A lower bound of exact match over
    completions, as other tokens may spell the same text.
    """
    metrics = dict(example.metrics)
    best = np.argmin(np.asarray(CHAR.call(token_logprobs, continuations)))
    metrics["accuracy_char"] = _right(int(best) == gold, _has_nan(token_logprobs))
    if neutral_logprobs:
        with np.errstate(invalid="ignore"):  # -inf less -inf
            gain = _sums(token_logprobs).astype(np.float64) - _sums(neutral_logprobs)
        metrics["accuracy_pmi"] = _right(int(np.argmax(gain)) == gold, _has_nan([gain]))
    if endings:
        is_greedy = any(bool(np.all(ranks == 0)) for _, ranks in endings)
        is_nan = _has_nan([logprobs for logprobs, _ in endings])
        metrics["greedy_exact"] = _right(is_greedy, is_nan)
    return replace(
        example, metrics=metrics, neutral_logprobs=tuple(map(float, _sums(neutral_logprobs)))
    )


def _right(is_right: bool, is_nan: bool) -> float:
    return math.nan if is_nan else float(is_right)


def _has_nan(arrays: Sequence[np.ndarray]) -> bool:
    return any(np.isnan(array).any() for array in arrays)


def score_continuation(
    token_logprobs: np.ndarray, ranks: np.ndarray, continuation: str
) -> ExampleScore:
    """Language modelling: right if every scored token is the model's most probable one.

    accuracy = 1 if all ranks are 0 else 0, where a rank counts the tokens ahead, ties by lowest id.
    nanochat takes the argmax of the same logits (equal on ties); lm-eval calls it is_greedy.  No
    metric asks that the model stop there.
    """
    right = float(bool(np.all(ranks == 0)))
    if len(token_logprobs) == 0 or np.isnan(token_logprobs).any():
        right = math.nan
    return ExampleScore(
        prediction=None,
        correct=None if math.isnan(right) else bool(right),
        tied=False,
        empty_span=len(token_logprobs) == 0,
        metrics={"accuracy": right, "bits_per_byte": bits_per_byte(token_logprobs, continuation)},
    )


def mean_losses(token_logprobs: Sequence[np.ndarray]) -> list[np.float32]:
    """loss = -(1/n) sum of log p, float32 nats a token; NaN for an empty span, as nanochat's mean
    over no tokens is.

    lm-eval has no metric by tokens: its `acc` takes the sum, its `acc_norm` divides by the choice's
    characters.
    """
    return [
        -np.mean(logprobs, dtype=np.float32) if len(logprobs) else np.float32(np.nan)
        for logprobs in token_logprobs
    ]


def perplexities(losses: Sequence[np.float32]) -> list[np.float32]:
    """exp(loss), float32, which the Gauntlet compares: above 88.7 nats all are infinite, tiny
    losses all become 1.

    Otherwise it orders choices as the losses do; if rounding makes two of them equal, the task's
    tie rule decides.
    """
    with np.errstate(over="ignore"):
        return [*map(np.exp, losses)]


def first_smallest(losses: Sequence[np.floating]) -> int:
    """The first smallest loss, as Python's `min` finds it: NaN compares false, so it wins only if
    it comes first.

    nanochat chooses this way; np.argmin would return any NaN.
    """
    return min(range(len(losses)), key=losses.__getitem__)


def accuracy_sum(token_logprobs: Sequence[np.ndarray], gold: int) -> float:
    """1 if gold has the largest sum of log p over its scored span, float32; the first of equal ones
    wins.

    Like lm-eval's `acc`: a prefix that all choices share adds the same to each sum, so leaving it
    out changes no choice. An empty span sums to 0 and wins: a choice that is a prefix of another is
    never less probable.
    """
    return float(int(np.argmax(_sums(token_logprobs))) == gold)


def accuracy_bytes(
    token_logprobs: Sequence[np.ndarray], continuations: Sequence[str], gold: int
) -> float:
    """1 if gold has the largest (sum of log p over its scored span) / (UTF-8 bytes of its
    continuation).

    Like lm-eval's `acc_bytes`, without the delimiter in the bytes.  It differs where the span is
    not the whole choice: the bytes of a shared prefix count here, its log p does not.  In a schema
    all choices share the continuation, and this equals accuracy_sum.
    """
    num_bytes = [len(text.encode()) for text in continuations]
    return float(int(np.argmin(_losses_per_unit(token_logprobs, num_bytes))) == gold)


def bits_per_byte(token_logprobs: np.ndarray, continuation: str) -> float:
    """-(sum of log p over the scored span) / ln 2 / (UTF-8 bytes of the continuation); NaN for an
    empty span.

    The bytes are those of the continuation in the data file, without delimiter: they do not depend
    on the tokenizer, but the scored span does.  In multiple choice the span may leave out a shared
    prefix, and the value is then a lower bound of the whole answer's; in a schema the span may
    reach back into the context.  lm-eval's bits_per_byte covers whole documents with all their
    tokens.
    """
    if len(token_logprobs) == 0:
        return math.nan
    return float(
        -np.sum(token_logprobs, dtype=np.float64) / math.log(2) / len(continuation.encode())
    )


# Soft metrics: how probable gold is among the choices.  They move where accuracy does not yet
# (Levanter's "smooth multiple-choice metrics"; marin#5247).  Sums are float64 nats over scored
# spans; an empty span is 0.


def choice_logprob(token_logprobs: Sequence[np.ndarray], gold: int) -> float:
    """ln of gold's share of all choices' probabilities: sum of log p of gold - logsumexp over
    choices, nats."""
    sums = _sums64(token_logprobs)
    with np.errstate(invalid="ignore"):  # all are -inf
        return float(sums[gold] - np.logaddexp.reduce(sums))


def choice_prob_norm(
    token_logprobs: Sequence[np.ndarray], continuations: Sequence[str], gold: int
) -> float:
    """exp(-b of gold) / sum of exp(-b) over choices, b their bits per byte.

    Base e on bits, as Levanter publishes it under this name.  A choice has at least one byte.
    """
    num_bytes = np.array([max(1, len(text.encode())) for text in continuations])
    bits = -_sums64(token_logprobs) / (num_bytes * math.log(2))
    with np.errstate(invalid="ignore"):
        weights = np.exp(bits.min() - bits)
    return float(weights[gold] / weights.sum())


def choice_logprob_norm(
    token_logprobs: Sequence[np.ndarray], continuations: Sequence[str], gold: int
) -> float:
    """ln(choice_prob_norm + 1e-30), as Levanter has it."""
    return math.log(choice_prob_norm(token_logprobs, continuations, gold) + 1e-30)


def choice_rank(token_logprobs: Sequence[np.ndarray], gold: int) -> float:
    """How many choices have a larger sum of log p than gold; 0 is best."""
    sums = _sums64(token_logprobs)
    return float((sums > sums[gold]).sum())


def choice_margin(token_logprobs: Sequence[np.ndarray], gold: int) -> float:
    """Sum of log p of gold less the largest of the others, nats."""
    sums = _sums64(token_logprobs)
    with np.errstate(invalid="ignore"):
        return float(sums[gold] - np.delete(sums, gold).max(initial=-math.inf))


def _sums64(token_logprobs: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([np.sum(logprobs, dtype=np.float64) for logprobs in token_logprobs])


def _sums(token_logprobs: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([np.sum(logprobs, dtype=np.float32) for logprobs in token_logprobs], np.float32)


def _losses_per_unit(token_logprobs: Sequence[np.ndarray], num_units: Sequence[int]) -> np.ndarray:
    """-(sum of log p) / (characters or bytes) of each choice; infinite where it has none, as in
    lm-eval."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(num_units, -_sums(token_logprobs) / np.array(num_units), math.inf)


class Metric(NamedTuple):
    """A number of one multiple-choice example."""

    name: str
    # logprobs (nats) and text of each choice, gold
    of: Callable[[Sequence[np.ndarray], Sequence[str], int], float]
    is_proportion: bool  # 0 or 1 for each example: its mean has Wilson's interval


SOFT: tuple[Metric, ...] = (
    Metric("choice_logprob", lambda logprobs, texts, gold: choice_logprob(logprobs, gold), False),
    Metric("choice_prob_norm", choice_prob_norm, False),
    Metric("choice_logprob_norm", choice_logprob_norm, False),
    Metric("choice_rank", lambda logprobs, texts, gold: choice_rank(logprobs, gold), False),
    Metric("choice_margin", lambda logprobs, texts, gold: choice_margin(logprobs, gold), False),
)  # in results and samples, not in tables
# All but accuracy, which the profile's normalizer and tie rule decide.
OF_OPTIONS: tuple[Metric, ...] = (
    Metric("accuracy_sum", lambda logprobs, texts, gold: accuracy_sum(logprobs, gold), True),
    Metric("accuracy_bytes", accuracy_bytes, True),
    Metric(
        "bits_per_byte",
        lambda logprobs, texts, gold: bits_per_byte(logprobs[gold], texts[gold]),
        False,
    ),
    *SOFT,
)
CHOICE_METRICS: tuple[str, ...] = ("accuracy", *(metric.name for metric in OF_OPTIONS))
PROPORTIONS = frozenset(
    {"accuracy", "accuracy_char", "accuracy_pmi", "greedy_exact", "em", "answered", "answered_last"}
    | {metric.name for metric in OF_OPTIONS if metric.is_proportion}
)  # 0 or 1 for each example; other metrics are means
# By which fewer is better, of all task kinds.
LOWER_IS_BETTER = frozenset({
    "bits_per_byte", "bits_per_char", "bits_per_token", "choice_rank", "first_token_rank",
    "drift_bits", "drift_percent",
    "flip_to_wrong", "token_inflation",
})  # fmt: skip
