"""Metrics of one example and of MIRON's cloze items, each number worked out by hand."""

import itertools
import math

import numpy as np
import pytest

from miron_jax.definitions.rules import Rule
from miron_jax.metrics.choices import (
    CHAR,
    CHOICE_METRICS,
    EXP_MEAN,
    FIRST,
    LAST,
    Tie,
    first_smallest,
    mean_losses,
    score_choices,
)
from miron_jax.metrics.cloze import (
    ClozeAnswers,
    Fragments,
    ScoredSpan,
    contrast_accuracy,
    drift,
    lev_score,
    marginal_gap,
    score_cloze,
    scored_spans,
    target_confidence,
    text_scores,
)
from miron_jax.metrics.properties import PROPORTIONS
from miron_jax.metrics.spans import Spans
from tests.support.plain_choices import score_continuation

pytestmark = pytest.mark.newest

NAN = float("nan")


def logprobs(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_three_rules_choose_three_options():
    # option   log p            sum   tokens  mean    bytes  sum / bytes
    #   0      -3               -3      1     -3        1     -3
    #   1      -1 -1 -1.5       -3.5    3     -1.1667   3     -1.1667
    #   2      -2 -2 -2 -2      -8      4     -2       16     -0.5
    spans = [logprobs(-3), logprobs(-1, -1, -1.5), logprobs(-2, -2, -2, -2)]
    texts = ["a", "abc", "sixteen bytes ok"]
    score = score_choices(spans, texts, gold=1)
    assert (score.prediction, score.correct, score.tied, score.empty_span) == (1, True, False, False)
    assert [score.metrics[name] for name in ("accuracy", "accuracy_sum", "accuracy_bytes")] == [1, 0, 0]
    assert score.metrics["bits_per_byte"] == pytest.approx(3.5 / math.log(2) / 3)
    assert score_choices(spans, texts, gold=0).metrics["accuracy_sum"] == 1
    assert score_choices(spans, texts, gold=2).metrics["accuracy_bytes"] == 1
    soft = {"choice_logprob", "choice_prob_norm", "choice_logprob_norm", "choice_rank", "choice_margin"}
    assert set(score.metrics) - PROPORTIONS == {"bits_per_byte", *soft}


@pytest.mark.parametrize(
    "texts",
    [
        (" g!", " базбзге", " èéèàêéàà"),  # lm-eval divides by len(choice), blanks at both ends counted
        ("yes ", "\tno\n", "  "),
        ("", "b", " "),  # no character: lm-eval divides by 0, and the choice never wins
    ],
)
def test_lengths_are_those_that_lm_eval_divides_by(texts: tuple[str, ...]):
    rng = np.random.default_rng(0)
    for _ in range(200):
        spans = [logprobs(*rng.uniform(-9, -1, len(text) + 1)) for text in texts]
        sums = np.array([span.sum() for span in spans])
        with np.errstate(divide="ignore"):
            by_char = np.argmax(sums / np.array([float(len(text)) for text in texts]))
            by_byte = np.argmax(sums / np.array([float(len(text.encode())) for text in texts]))
        score = score_choices(spans, texts, 1, CHAR)
        assert score.prediction == by_char
        assert score.metrics["accuracy_bytes"] == (by_byte == 1)
        assert score.metrics["accuracy_char"] == (by_char == 1)


def test_soft_metrics():
    # option   log p        sum    bytes  bits = -sum / ln 2 / bytes
    #   0      -1 -1        -2      2      1.442695
    #   1      -3           -3      1      4.328085
    #   2      -0.5 -0.5    -1      4      0.360674
    spans, texts = [logprobs(-1, -1), logprobs(-3), logprobs(-0.5, -0.5)], ["ab", "c", "four"]
    metrics = score_choices(spans, texts, gold=0).metrics
    share = math.exp(-2) / (math.exp(-1) + math.exp(-2) + math.exp(-3))
    bits = [2 / math.log(2) / 2, 3 / math.log(2), 1 / math.log(2) / 4]
    norm = math.exp(-bits[0]) / sum(math.exp(-b) for b in bits)
    assert metrics["choice_logprob"] == pytest.approx(math.log(share))
    assert metrics["choice_prob_norm"] == pytest.approx(norm)
    assert metrics["choice_logprob_norm"] == pytest.approx(math.log(norm))
    assert (metrics["choice_rank"], metrics["choice_margin"]) == (1, -1)
    assert score_choices(spans, texts, gold=2).metrics["choice_margin"] == 1


def test_soft_metrics_at_the_edges():
    never, empty = logprobs(-math.inf), logprobs()
    metrics = score_choices([logprobs(-1e5), logprobs(-2e5)], ["", "b"], gold=1).metrics
    assert (metrics["choice_prob_norm"], metrics["choice_logprob_norm"]) == (0, pytest.approx(math.log(1e-30)))
    assert (metrics["choice_logprob"], metrics["choice_margin"]) == (-1e5, -1e5)
    impossible = score_choices([logprobs(-1), never], ["a", "b"], gold=1).metrics
    assert (impossible["choice_rank"], impossible["choice_logprob"]) == (1, -math.inf)
    assert (impossible["accuracy"], impossible["bits_per_byte"]) == (0, math.inf)
    assert math.isnan(score_choices([never, never], ["a", "b"], gold=1).metrics["choice_logprob"])
    assert score_choices([empty, logprobs(-1)], ["a", "b"], gold=0).metrics["choice_margin"] == 1
    equal = score_choices([logprobs(-1), logprobs(-1)], ["a", "b"], gold=1).metrics
    assert (equal["choice_rank"], equal["choice_margin"]) == (0, 0)


def test_bytes_are_utf8_bytes():
    # "é" is two bytes: 4 ln 2 nats are 4 bits, over 2 bytes.
    assert score_continuation(logprobs(-4 * math.log(2)), np.zeros(1, np.int32), "é").metrics[
        "bits_per_byte"
    ] == pytest.approx(2)
    # -3 over the four bytes of "éé" is -0.75, over two characters -1.5; "abc" has -1.
    score = score_choices([logprobs(-3), logprobs(-3)], ["éé", "abc"], gold=0)
    assert score.metrics["accuracy_bytes"] == 1


def test_equal_options_tie_and_the_first_wins():
    same = logprobs(-1, -0.7)
    score = score_choices([logprobs(-2, -2), same, same], ["x", "y", "y"], gold=2)
    assert (score.prediction, score.correct, score.tied) == (1, False, True)
    assert score.metrics["accuracy_sum"] == score.metrics["accuracy_bytes"] == 0
    assert not score_choices([same, logprobs(-9), logprobs(-9)], ["x", "y", "y"], gold=0).tied  # a tie among losers


def test_nan_wins_in_first_place_and_loses_elsewhere():
    """As Python's min has it."""
    for losses in itertools.product((NAN, 0.5, 1.0, math.inf), repeat=3):
        float32 = [np.float32(loss) for loss in losses]
        assert first_smallest(np.array([float32])).tolist() == [float32.index(min(float32))], losses


def test_an_empty_span_is_nan_to_the_protocol_and_zero_to_the_sums():
    assert np.isnan(mean_losses(Spans.of_each([logprobs()]))[0])
    last = score_choices([logprobs(-0.5), logprobs()], ["abcd", "abc"], gold=1)
    assert (last.prediction, last.empty_span, last.tied) == (0, True, False)
    assert last.metrics["accuracy_sum"] == 1  # a sum of nothing is 0, above -0.5
    assert math.isnan(last.metrics["bits_per_byte"])  # the gold answer has no scored token: not 0 bits
    first = score_choices([logprobs(), logprobs(-0.5)], ["abc", "abcd"], gold=1)
    assert (first.prediction, first.correct) == (0, False)
    assert first.metrics["bits_per_byte"] == pytest.approx(0.5 / math.log(2) / 4)


@pytest.mark.parametrize(("tie", "chosen"), [(FIRST, 0), (LAST, 1)])
def test_an_exact_tie_is_no_rounding_to_one(tie: Rule[Tie], chosen: int):
    equal = score_choices([logprobs(-1), logprobs(-1), logprobs(-2)], ["a", "b", "c"], 0, EXP_MEAN, tie)
    assert (equal.prediction, equal.tied, equal.rounded) == (chosen, True, False)
    # exp(1e-9) and exp(2e-9) are both 1 in float32: the means alone would choose the first of these, whatever the rule.
    near = score_choices([logprobs(-1e-9), logprobs(-2e-9), logprobs(-2)], ["a", "b", "c"], 0, EXP_MEAN, tie)
    assert (near.prediction, near.tied, near.rounded) == (chosen, True, tie is LAST)


def test_means_are_float32():
    # In float32, 2**24 + 1 = 2**24: both means are equal and the first wins; in float64 the second would.
    losses = mean_losses(Spans.of_each([logprobs(-(2.0**24) - 1), logprobs(-(2.0**24))]))
    assert losses[0] == losses[1]
    assert losses.dtype == np.float32


def test_nan_from_a_broken_model_is_never_a_zero():
    score = score_choices([logprobs(NAN), logprobs(-1)], ["a", "b"], gold=1)
    assert (score.prediction, score.correct) == (None, None)
    assert all(math.isnan(value) for value in score.metrics.values())
    text = score_continuation(logprobs(-1, NAN), np.array([0, 0]), "ab")
    assert text.correct is None
    assert all(math.isnan(value) for value in text.metrics.values())


def test_continuation_is_right_when_all_ranks_are_zero():
    right = score_continuation(logprobs(-math.log(2), -math.log(4)), np.array([0, 0]), "abc")
    assert (right.prediction, right.correct) == (None, True)
    assert right.metrics["accuracy"] == 1
    assert right.metrics["bits_per_byte"] == pytest.approx(3 / 3)  # 1 + 2 bits over 3 bytes
    wrong = score_continuation(logprobs(-0.1, -0.1), np.array([0, 1]), "abc")
    assert (wrong.correct, wrong.metrics["accuracy"]) == (False, 0)
    nothing = score_continuation(logprobs(), np.array([], np.int32), "abc")
    assert nothing.correct is None
    assert math.isnan(nothing.metrics["accuracy"])  # all() of nothing is true, and means nothing


def test_metric_names_are_stated_once():
    assert tuple(score_choices([logprobs(-1), logprobs(-2)], ["a", "b"], 0).metrics) == CHOICE_METRICS
    assert tuple(score_choices([logprobs(NAN), logprobs(-2)], ["a", "b"], 0).metrics) == CHOICE_METRICS
    assert tuple(score_continuation(logprobs(-1), np.array([0]), "a").metrics) == ("accuracy", "bits_per_byte")


def span(*probabilities: float, ranks: tuple[int, ...] | None = None, held: float = 1.0) -> ScoredSpan:
    ranks = ranks or (0,) * len(probabilities)
    logprob, rank = np.log(np.asarray(probabilities, np.float32)), np.asarray(ranks, np.int32)
    [one] = scored_spans(logprob, rank, np.asarray([0, len(rank)]), np.log(np.asarray([held])))
    return one


@pytest.mark.parametrize(
    ("generated", "target", "score"),
    [
        ("", "", 100.0),
        ("abc", "", 0.0),
        (" Paris", " Paris", 100.0),
        ("Paris", " Paris", 100 * 5 / 6),  # a leading space costs one of six
        (" paris", " Paris", 100 * 5 / 6),  # case counts
        (" Paris and", " Paris", 60.0),  # four characters too many of ten
        ("йод", "йод", 100.0),
        ("и\u0306од", "йод", 50.0),  # two code points for one: a substitution and an insertion over four
    ],
)
def test_the_cards_levenshtein(generated: str, target: str, score: float) -> None:
    assert lev_score(generated, target) == pytest.approx(score)


def test_the_cards_confidence_rewards_fragments() -> None:
    # The same total probability 0.1 in 1, 2 and 4 tokens: 10, 31.6 and 56.2 percent.
    assert target_confidence(span(0.1)) == pytest.approx(10)
    assert target_confidence(span(*[0.1**0.5] * 2)) == pytest.approx(31.6227766)
    assert target_confidence(span(*[0.1**0.25] * 4)) == pytest.approx(56.2341325)
    assert target_confidence(None) == 0.0


def test_texts_stripped_truncated_and_first_word() -> None:
    scores = text_scores(" Paris, of course", " Paris")
    assert scores == pytest.approx({"lev_stripped": 100 * 5 / 16, "lev_truncated": 100, "lev_first_word": 100})
    assert text_scores("и\u0306од", "йод")["lev_stripped"] == 100
    assert text_scores("...", " a")["lev_first_word"] == 0


def test_marginal_and_contrast_by_hand() -> None:
    target = span(0.5, 0.5)  # 1/4
    assert marginal_gap(target, [span(0.25), span(0.125, 0.5)]) == pytest.approx(
        math.log((0.25 + 0.25 + 0.0625) / 0.25)
    )
    assert marginal_gap(target, []) == pytest.approx(0)
    # A character: ln(1/4) / 4 against ln(1/8) / 8, which is the larger one.
    assert contrast_accuracy(target, " abc", [span(0.125)], [" abcdefg"]) == 0
    assert contrast_accuracy(target, " abc", [span(0.125)], [" abc"]) == 1
    assert contrast_accuracy(target, " abc", [None, span(0.125)], [" x", " abc"]) == 1
    assert math.isnan(contrast_accuracy(target, " abc", [None], [" x"]))


def test_drift_by_hand() -> None:
    numbers = drift(noisy=span(0.125, ranks=(3,)), clean=span(0.5))
    flips = {"clean_greedy_exact": 1.0, "flip_to_wrong": 1.0, "flip_to_right": 0.0}
    assert numbers == pytest.approx({"drift_bits": 2.0, "drift_percent": 75.0, **flips})


def test_healing_divides_by_what_the_prefix_holds() -> None:
    # The token " wugs" has 0.2, and all tokens that may continue with " wug" have 0.8: P("s") = 1/4, two bits per character.
    answers = ClozeAnswers(span(0.2, held=0.8), None, span(0.1, held=0.8), None, [], [], "s and so on")
    metrics = score_cloze("two wug", "s", (), answers, Fragments(1, 2, 0, True, True)).metrics
    assert metrics["logprob"] == pytest.approx(math.log(0.25))
    assert metrics["bits_per_char"] == pytest.approx(2.0)
    assert metrics["pmi"] == pytest.approx(math.log(2))
    assert (metrics["target_confidence"], metrics["card_zero"], metrics["seam"]) == (0.0, 1.0, 1.0)
    assert metrics["prefix_fertility"] == 1.0
    assert math.isnan(metrics["greedy_exact"]), "the first token is not the target's alone"
    assert "contrast_accuracy" not in metrics
    assert "drift_bits" not in metrics


def test_a_broken_model_makes_every_number_of_its_item_nan() -> None:
    answers = ClozeAnswers(span(0.5), span(math.nan), None, None, [], [], "x")
    score = score_cloze("a", " b", (), answers, Fragments(1, 1, 0, False, False))
    assert score.correct is None
    assert all(math.isnan(value) for value in score.metrics.values())
