"""MIRON's numbers, worked out by hand."""

import math

import numpy as np
import pytest

from miron_jax.metrics.cloze import (
    ClozeAnswers,
    Fragments,
    Span,
    contrast_accuracy,
    drift,
    lev_score,
    marginal_gap,
    score_cloze,
    target_confidence,
    text_scores,
)


def span(*probabilities: float, ranks: tuple[int, ...] | None = None, held: float = 1.0) -> Span:
    ranks = ranks or (0,) * len(probabilities)
    return Span(np.log(np.asarray(probabilities, np.float32)), np.asarray(ranks, np.int32), math.log(held))


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
    assert target_confidence(np.log([0.1])) == pytest.approx(10)
    assert target_confidence(np.log([0.1**0.5] * 2)) == pytest.approx(31.6227766)
    assert target_confidence(np.log([0.1**0.25] * 4)) == pytest.approx(56.2341325)
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
    answers = ClozeAnswers(span(0.5), np.asarray([np.nan]), None, None, [], [], "x")
    score = score_cloze("a", " b", (), answers, Fragments(1, 1, 0, False, False))
    assert score.correct is None
    assert all(math.isnan(value) for value in score.metrics.values())
