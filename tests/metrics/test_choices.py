"""Metrics of choices over whole tasks, against one example at a time: equal to the last bit."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from miron_jax.definitions.rules import Rule
from miron_jax.metrics.choices import (
    CHAR,
    CHOICE_METRICS,
    EXP_MEAN,
    FIRST,
    LAST,
    MEAN,
    SUM,
    AskedChoices,
    ChoiceRules,
    ExampleScore,
    Normalizer,
    Tie,
    score_continuations,
    score_examples,
)
from miron_jax.metrics.spans import Spans, sums
from tests.support.plain_choices import METRICS, PlainExample, score_continuation, score_plainly

pytestmark = pytest.mark.newest

LENGTHS = (0, 1, 1, 2, 3, 5, 7, 8, 9, 17, 127, 128, 129, 300)  # NumPy sums 8 at a time, and halves of more than 128
TEXTS = ("", " a", "é", "абв", "yes", "a longer answer", "\n")


def spans_of(rng: np.random.Generator, count: int, odd: bool) -> list[np.ndarray]:
    """Log-probabilities, some of them equal; `odd`: also 0, -inf and NaN, or some whose exp is 1 in float32."""
    if odd and rng.random() < 0.3:
        return [-1e-8 * rng.random(1).astype(np.float32) for _ in range(count)]
    spans = []
    for length in rng.choice(LENGTHS, count):
        span = -rng.exponential(3.0, length).astype(np.float32)
        if odd and length:
            span[rng.integers(length)] = rng.choice([0.0, -0.0, -1e-9, -100.0, -np.inf, np.nan])
        spans.append(span)
    if rng.random() < 0.3:
        spans[-1] = spans[0]
    return spans


def random_example(rng: np.random.Generator, num_endings: int) -> PlainExample:
    num_choices = int(rng.integers(1, 6))
    odd = bool(rng.random() < 0.3)
    gold = None if rng.random() < 0.1 else int(rng.integers(num_choices))
    endings = []
    neutral = []
    if gold is not None and num_endings:
        endings = [(span, np.asarray(rng.random(len(span)) < 0.1)) for span in spans_of(rng, num_endings, odd)]
    if rng.random() < 0.5:
        neutral = spans_of(rng, num_choices, odd)
    texts = rng.choice(TEXTS, num_choices).tolist()
    return PlainExample(spans_of(rng, num_choices, odd), texts, gold, endings, neutral)


def at_once(examples: Sequence[PlainExample], rules: ChoiceRules) -> list[ExampleScore]:
    asked, logprobs, ranks = [], list[np.ndarray](), list[np.ndarray]()
    for example in examples:
        extra = [*(span for span, _ in example.endings), *example.neutral]
        asked.append(AskedChoices(example.texts, example.gold, len(extra)))
        logprobs += [*example.logprobs, *extra]
        ranks += [np.ones(len(span), np.int32) for span in example.logprobs]
        ranks += [ranks_of.astype(np.int32) for _, ranks_of in example.endings]
        ranks += [np.ones(len(span), np.int32) for span in example.neutral]
    return score_examples(asked, Spans.of_each(logprobs, ranks), rules)


@pytest.mark.parametrize("tie", [FIRST, LAST])
@pytest.mark.parametrize("normalizer", [MEAN, EXP_MEAN, SUM, CHAR])
@pytest.mark.parametrize("num_endings", [0, 2])
def test_whole_tasks_score_as_their_examples_do(normalizer: Rule[Normalizer], tie: Rule[Tie], num_endings: int) -> None:
    rng = np.random.default_rng(0)
    rules = ChoiceRules(normalizer, tie, num_endings, (("token", MEAN), ("package", SUM)) if num_endings else ())
    examples = [random_example(rng, num_endings) for _ in range(300)]
    with np.errstate(all="ignore"):
        plain = [score_plainly(example, rules) for example in examples]
    for ours, theirs in zip(at_once(examples, rules), plain, strict=True):
        assert repr(ours) == repr(theirs)  # digits that tell any two numbers apart, types, and the order of metrics
    assert {True, False, None} == {score.correct for score in plain}
    assert any(score.tied for score in plain)
    assert any(score.rounded for score in plain) is (normalizer is EXP_MEAN)


def test_the_twin_has_every_metric() -> None:
    assert ("accuracy", *METRICS) == CHOICE_METRICS


def test_continuations_score_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    spans = spans_of(rng, 200, odd=True)
    ranks = [(rng.random(len(span)) < 0.05).astype(np.int32) for span in spans]
    texts = rng.choice(TEXTS[1:], 200).tolist()
    for text, span, rank, ours in zip(
        texts, spans, ranks, score_continuations(texts, Spans.of_each(spans, ranks)), strict=True
    ):
        assert repr(ours) == repr(score_continuation(span, rank, text))
        is_defined = bool(len(span)) and not np.isnan(span).any()
        assert ours.correct == (bool((rank == 0).all()) if is_defined else None)
        bits = -np.sum(span, dtype=np.float64) / math.log(2) / len(text.encode()) if len(span) else math.nan
        assert repr(ours.metrics["bits_per_byte"]) == repr(float(bits))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_spans_are_numpys_own(dtype: type) -> None:
    rng = np.random.default_rng(0)
    spans = [-rng.exponential(3.0, length).astype(dtype) for length in rng.choice([*range(20), 127, 1000, 5000], 300)]
    offsets = np.cumsum([0, *map(len, spans)])
    np.testing.assert_array_equal(sums(np.concatenate(spans), offsets), [np.sum(span) for span in spans])
