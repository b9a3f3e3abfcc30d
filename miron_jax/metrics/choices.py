"""Scored spans of examples -> named numbers: multiple choice and language modelling.

Arrives: the scored span of each choice, and its text.  Leaves: an `ExampleScore` for each example.
It deliberately does not know tasks, tokens or files.

Formulas are of `Choices`, N examples with K choices each: of arrays [N, K] they give one number for
each example, [N].

The scored span is the task profile's.  In CORE's multiple choice it leaves out the common prefix of
all choices, so a choice that is a prefix of another has an empty span.  A NaN log-probability comes
from a broken model: it makes every number of its example NaN, never 0, and nothing is chosen.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from miron_jax.definitions.rules import Rule
from miron_jax.metrics.spans import Spans


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


class Choices(NamedTuple):
    """N examples of multiple choice or schema with K choices each."""

    spans: Spans  # [N, K]
    num_chars: np.ndarray  # int64 [N, K], of the texts of the choices
    num_bytes: np.ndarray  # int64 [N, K], in UTF-8
    gold: np.ndarray  # int64 [N], the right choice, or the first of several
    right: np.ndarray  # bool [N, K]
    neutral: Spans | None = None  # [N, K], after a context without content; None: not scored

    @classmethod
    def of(cls, spans: Spans, asked: Sequence["AskedChoices"]) -> Self:
        num_chars = [[*map(len, each.texts)] for each in asked]
        num_bytes = [[len(text.encode()) for text in each.texts] for each in asked]
        gold = np.array([each.gold or 0 for each in asked])
        right = np.arange(len(asked[0].texts)) == gold[:, np.newaxis]
        for row, each in zip(right, asked, strict=True):
            row[[*(each.also_right or ())]] = True
        return cls(spans, np.array(num_chars), np.array(num_bytes), gold, right)

    def at(self, choice: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The values [N, K] of one choice of each example, [N]."""
        return values[np.arange(len(choice)), choice]


# Normalizers: choices -> a loss of each, [N, K].
Normalizer = Callable[[Choices], np.ndarray]
MEAN: Rule[Normalizer] = Rule("mean", lambda choices: mean_losses(choices.spans))
EXP_MEAN: Rule[Normalizer] = Rule(
    "exp_mean", lambda choices: perplexities(mean_losses(choices.spans))
)
SUM: Rule[Normalizer] = Rule("sum", lambda choices: -choices.spans.sum32)
CHAR: Rule[Normalizer] = Rule(  # the sum divided by the characters of the choice
    "char", lambda choices: _losses_per_unit(choices.spans, choices.num_chars)
)
PMI: Rule[Normalizer] = Rule("pmi", lambda choices: pmi_losses(choices))

# Ties: losses [N, K] -> the choice with the smallest loss, [N]; of equal ones the first or last.
Tie = Callable[[np.ndarray], np.ndarray]
FIRST: Rule[Tie] = Rule("first", lambda losses: first_smallest(losses))
LAST: Rule[Tie] = Rule("last", lambda losses: losses.shape[1] - 1 - first_smallest(losses[:, ::-1]))


class ChoiceRules(NamedTuple):
    """What a profile says about the scores of choices."""

    normalizer: Rule[Normalizer] = MEAN
    tie: Rule[Tie] = FIRST
    num_endings: int = 0  # texts that may follow the right choice, see `AskedChoices`
    # names and further normalizers: the metric accuracy_NAME is by each
    compared: tuple[tuple[str, Rule[Normalizer]], ...] = ()


class AskedChoices(NamedTuple):
    """An example of multiple choice or schema, beside its scored spans."""

    texts: Sequence[str]  # of its choices
    gold: int | None  # the right one; None: not published
    # Spans after those of its choices: gold with each ending appended, then every choice after a
    # context without content, or neither.
    num_extra: int = 0
    also_right: tuple[int, ...] | None = None  # beside gold; None: one choice is right


def score_choices(
    token_logprobs: Sequence[np.ndarray],
    continuations: Sequence[str],
    gold: int | None,
    normalizer: Rule[Normalizer] = MEAN,
    tie: Rule[Tie] = FIRST,
) -> ExampleScore:
    """Score one example by `score_examples`; both sequences have one entry per choice."""
    spans = Spans.of_each(token_logprobs)
    asked = [AskedChoices(continuations, gold)]
    return score_examples(asked, spans, ChoiceRules(normalizer, tie))[0]


def score_examples(
    asked: Sequence[AskedChoices], spans: Spans, rules: ChoiceRules
) -> list[ExampleScore]:
    """Score examples of multiple choice or schema.  `spans`: of all examples, in their order.

    If the right answer is not published, a choice is made, and every metric is NaN, never 0.
    """
    groups = defaultdict[tuple[int, int, bool, bool], list[int]](list)
    first = [0]
    for i, (texts, gold, num_extra, also_right) in enumerate(asked):
        groups[len(texts), num_extra, gold is None, also_right is None].append(i)
        first.append(first[-1] + len(texts) + num_extra)
    scores = dict[int, ExampleScore]()
    for (num_choices, num_extra, *_), group in groups.items():
        index = np.array(first)[group][:, np.newaxis] + np.arange(num_choices + num_extra)
        of_group = _score_alike([asked[i] for i in group], spans.at(index), rules)
        scores.update(zip(group, of_group, strict=True))
    return [scores[i] for i in range(len(asked))]


@np.errstate(divide="ignore", invalid="ignore", over="ignore")  # spans may be infinite or NaN
def _score_alike(
    asked: Sequence[AskedChoices], spans: Spans, rules: ChoiceRules
) -> list[ExampleScore]:
    """Score N examples with equally many choices and extra spans; the right answers of all are
    published, or of none.  `spans`: [N, choices and extra]."""
    num_choices = len(asked[0].texts)
    is_published = asked[0].gold is not None
    choices = Choices.of(spans.at(np.s_[:, :num_choices]), asked)
    endings = spans.at(np.s_[:, num_choices : num_choices + rules.num_endings])
    neutral = spans.at(np.s_[:, num_choices + rules.num_endings :])
    if neutral.sum.shape == choices.spans.sum.shape:
        choices = choices._replace(neutral=neutral)
    losses = rules.normalizer.call(choices)
    chosen = rules.tie.call(losses)
    is_smallest = losses == choices.at(chosen, losses)[:, np.newaxis]
    rounded = np.zeros(len(asked), bool)
    metrics = dict.fromkeys(CHOICE_METRICS, np.full(len(asked), math.nan))
    neutral_logprobs = spans.sum32[:, :0]
    if is_published:
        metrics = _metrics_of(choices, chosen, endings, rules)
        if asked[0].also_right is not None:
            metrics["right_mass"] = right_mass(choices)
        neutral_logprobs = neutral.sum32
        if rules.normalizer is EXP_MEAN:
            rounded = chosen != rules.tie.call(mean_losses(choices.spans))
    is_scored = ~choices.spans.has_nan.any(axis=1)
    columns = (
        choices.at(chosen, choices.right),
        np.where(is_scored, chosen, -1),
        is_scored & (is_smallest.sum(axis=1) > 1),
        (choices.spans.num_tokens == 0).any(axis=1),
        is_scored & rounded,
        neutral_logprobs,
        np.array([*metrics.values()], np.float64).T,
    )
    return [
        ExampleScore(
            prediction=prediction if prediction >= 0 else None,
            correct=is_right if is_published and prediction >= 0 else None,
            tied=tied,
            empty_span=has_empty,
            metrics=dict(zip(metrics, values, strict=True)),
            rounded=was_rounded,
            neutral_logprobs=tuple(of_neutral),
        )
        for is_right, prediction, tied, has_empty, was_rounded, of_neutral, values in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


def _metrics_of(
    choices: Choices, chosen: np.ndarray, endings: Spans, rules: ChoiceRules
) -> dict[str, np.ndarray]:
    """Every metric by its name, float or bool [N].  `endings`: of gold with each ending appended,
    [N, endings]."""
    is_nan = choices.spans.has_nan.any(axis=1)
    has_endings = endings.sum.shape[1] > 0
    metrics = {"accuracy": choices.at(chosen, choices.right)}
    metrics |= {metric.name: metric.of(choices) for metric in OF_OPTIONS}
    if has_endings or choices.neutral is not None or rules.normalizer is CHAR:
        metrics["accuracy_char"] = accuracy_char(choices)
    for name, normalizer in rules.compared:
        losses = normalizer.call(choices)
        metrics[f"accuracy_{name}"] = choices.at(rules.tie.call(losses), choices.right)
    metrics = {name: np.where(is_nan, math.nan, values) for name, values in metrics.items()}
    if choices.neutral is not None:
        metrics["accuracy_pmi"] = accuracy_pmi(choices)
    if has_endings:
        metrics["greedy_exact"] = greedy_exact(endings)
    return metrics


@np.errstate(divide="ignore", invalid="ignore")
def score_continuations(continuations: Sequence[str], spans: Spans) -> list[ExampleScore]:
    """Language modelling: right if every scored token is the model's most probable one.

    accuracy = 1 if all ranks are 0 else 0, where a rank counts the tokens ahead, ties by lowest id.
    nanochat takes the argmax of the same logits (equal on ties); lm-eval calls it is_greedy.  No
    metric asks that the model stop there.
    """
    num_bytes = np.array([len(text.encode()) for text in continuations])
    is_empty = spans.num_tokens == 0
    accuracy = np.where(is_empty | spans.has_nan, math.nan, spans.is_greedy)
    columns = is_empty, accuracy, bits_per_byte(spans, num_bytes)
    return [
        ExampleScore(
            prediction=None,
            correct=None if math.isnan(right) else bool(right),
            tied=False,
            empty_span=is_empty,
            metrics={"accuracy": right, "bits_per_byte": bits},
        )
        for is_empty, right, bits in zip(*(column.tolist() for column in columns), strict=True)
    ]


def mean_losses(spans: Spans) -> np.ndarray:
    """loss = -(1/n) sum of log p, float32 nats a token; NaN for an empty span, as nanochat's mean
    over no tokens is.

    lm-eval has no metric by tokens: its `acc` takes the sum, its `acc_norm` divides by the choice's
    characters.
    """
    with np.errstate(invalid="ignore"):
        return -(spans.sum32 / spans.num_tokens.astype(np.float32))


def perplexities(losses: np.ndarray) -> np.ndarray:
    """exp(loss), float32, which the Gauntlet compares: above 88.7 nats all are infinite, tiny
    losses all become 1.

    Otherwise it orders choices as the losses do; if rounding makes two of them equal, the task's
    tie rule decides.
    """
    return np.exp(losses)


def first_smallest(losses: np.ndarray) -> np.ndarray:
    """The first smallest loss of each example, as Python's `min` finds it: NaN compares false, so
    it wins only if it comes first.

    nanochat chooses this way; np.argmin would return any NaN.
    """
    smallest = np.argmin(np.where(np.isnan(losses), math.inf, losses), axis=1)
    return np.where(np.isnan(losses[:, 0]), 0, smallest)


def accuracy_sum(choices: Choices) -> np.ndarray:
    """1 if gold has the largest sum of log p over its scored span, float32; the first of equal ones
    wins.

    Like lm-eval's `acc`: a prefix that all choices share adds the same to each sum, so leaving it
    out changes no choice. An empty span sums to 0 and wins: a choice that is a prefix of another is
    never less probable.
    """
    return choices.at(np.argmax(choices.spans.sum32, axis=1), choices.right)


def accuracy_bytes(choices: Choices) -> np.ndarray:
    """1 if gold has the largest (sum of log p over its scored span) / (UTF-8 bytes of its
    continuation).

    Like lm-eval's `acc_bytes`, without the delimiter in the bytes.  It differs where the span is
    not the whole choice: the bytes of a shared prefix count here, its log p does not.  In a schema
    all choices share the continuation, and this equals accuracy_sum.
    """
    losses = _losses_per_unit(choices.spans, choices.num_bytes)
    return choices.at(np.argmin(losses, axis=1), choices.right)


def bits_per_byte(spans: Spans, num_bytes: np.ndarray) -> np.ndarray:
    """-(sum of log p over the scored span) / ln 2 / (UTF-8 bytes of the continuation); NaN for an
    empty span.

    The bytes are those of the continuation in the data file, without delimiter: they do not depend
    on the tokenizer, but the scored span does.  In multiple choice the span may leave out a shared
    prefix, and the value is then a lower bound of the whole answer's; in a schema the span may
    reach back into the context.  lm-eval's bits_per_byte covers whole documents with all their
    tokens.
    """
    return np.where(spans.num_tokens == 0, math.nan, -spans.sum / math.log(2) / num_bytes)


# Soft metrics: how probable gold is among the choices.  They move where accuracy does not yet
# (Levanter's "smooth multiple-choice metrics"; marin#5247).  Sums are float64 nats over scored
# spans; an empty span is 0.


def choice_logprob(choices: Choices) -> np.ndarray:
    """ln of gold's share of all choices' probabilities: sum of log p of gold - logsumexp over
    choices, nats."""
    sums = choices.spans.sum
    return choices.at(choices.gold, sums) - np.logaddexp.reduce(sums, axis=1)


def right_mass(choices: Choices) -> np.ndarray:
    """The share of all choices' probability that the right ones have together: sum of exp(sum of
    log p) over the right choices / over all.

    lm-eval's number of truthfulqa_mc2, which wants the right choices first, and has none where
    every exp is 0.
    """
    sums = choices.spans.sum
    of_right = np.logaddexp.reduce(np.where(choices.right, sums, -math.inf), axis=1)
    return np.exp(of_right - np.logaddexp.reduce(sums, axis=1))


def choice_prob_norm(choices: Choices) -> np.ndarray:
    """exp(-b of gold) / sum of exp(-b) over choices, b their bits per byte.

    Base e on bits, as Levanter publishes it under this name.  A choice has at least one byte.
    """
    bits = -choices.spans.sum / (np.maximum(1, choices.num_bytes) * math.log(2))
    weights = np.exp(bits.min(axis=1, keepdims=True) - bits)
    return choices.at(choices.gold, weights) / weights.sum(axis=1)


def choice_logprob_norm(choices: Choices) -> np.ndarray:
    """ln(choice_prob_norm + 1e-30), as Levanter has it."""
    shares = choice_prob_norm(choices) + 1e-30
    return np.array([*map(math.log, shares.tolist())])  # np.log may round otherwise


def choice_rank(choices: Choices) -> np.ndarray:
    """How many choices have a larger sum of log p than gold; 0 is best."""
    sums = choices.spans.sum
    return (sums > choices.at(choices.gold, sums)[:, np.newaxis]).sum(axis=1)


def choice_margin(choices: Choices) -> np.ndarray:
    """Sum of log p of gold less the largest of the others, nats."""
    sums = choices.spans.sum
    is_gold = np.arange(sums.shape[1]) == choices.gold[:, np.newaxis]
    return choices.at(choices.gold, sums) - np.where(is_gold, -math.inf, sums).max(axis=1)


# Metrics of profiles whose choices are compared by characters, and of examples with extra spans.


def accuracy_char(choices: Choices) -> np.ndarray:
    """1 if gold has the largest (sum of log p) / (characters of the choice), white space at its
    ends counted, lm-eval's `acc_norm`."""
    return choices.at(np.argmin(CHAR.call(choices), axis=1), choices.right)


def accuracy_pmi(choices: Choices) -> np.ndarray:
    """1 if gold has the smallest of the `pmi_losses`; the first of equal ones wins."""
    losses = pmi_losses(choices)
    is_right = choices.at(np.argmin(losses, axis=1), choices.right)
    return np.where(np.isnan(losses).any(axis=1), math.nan, is_right)


def pmi_losses(choices: Choices) -> np.ndarray:
    """(sum of log p after the context without content) - (sum after the question), float64 nats,
    Holtzman et al. 2021 (arXiv:2104.08315): what is probable anyway does not count.

    ai2-olmo-eval's `pmi_dc` is the quotient of the two sums, which ranks otherwise.
    """
    assert choices.neutral is not None, "a suite with this rule gives every example its context"
    return choices.neutral.sum32.astype(np.float64) - choices.spans.sum32


def greedy_exact(endings: Spans) -> np.ndarray:
    """1 if every token of gold and one of its endings is the most probable: greedy decoding writes
    just gold.  A lower bound of exact match over completions, as other tokens may spell the same
    text."""
    return np.where(endings.has_nan.any(axis=1), math.nan, endings.is_greedy.any(axis=1))


def _losses_per_unit(spans: Spans, num_units: np.ndarray) -> np.ndarray:
    """-(sum of log p) / (characters or bytes) of each choice; infinite where it has none, as in
    lm-eval."""
    return np.where(num_units == 0, math.inf, -spans.sum32 / num_units)


class Metric(NamedTuple):
    """A number of each example of multiple choice or schema."""

    name: str
    of: Callable[[Choices], np.ndarray]  # [N], float or bool
    is_proportion: bool  # 0 or 1 for each example: its mean has Wilson's interval


SOFT: tuple[Metric, ...] = (
    Metric("choice_logprob", choice_logprob, False),
    Metric("choice_prob_norm", choice_prob_norm, False),
    Metric("choice_logprob_norm", choice_logprob_norm, False),
    Metric("choice_rank", choice_rank, False),
    Metric("choice_margin", choice_margin, False),
)  # in results and samples, not in tables
# All but accuracy, which the profile's normalizer and tie rule decide.
OF_OPTIONS: tuple[Metric, ...] = (
    Metric("accuracy_sum", accuracy_sum, True),
    Metric("accuracy_bytes", accuracy_bytes, True),
    Metric(
        "bits_per_byte",
        lambda choices: choices.at(choices.gold, bits_per_byte(choices.spans, choices.num_bytes)),
        False,
    ),
    *SOFT,
)
CHOICE_METRICS: tuple[str, ...] = ("accuracy", *(metric.name for metric in OF_OPTIONS))
