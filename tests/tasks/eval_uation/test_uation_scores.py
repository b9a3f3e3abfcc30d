"""What a scored prompt of Eval-UA-tion is worth: cut prompts, equal answers, further scores, baselines, completions."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miron_jax.metrics.choices import (
    CHAR,
    FIRST,
    SUM,
    AskedChoices,
    ChoiceRules,
    ExampleScore,
    score_choices,
    score_examples,
)
from miron_jax.metrics.spans import Spans
from miron_jax.prompting.prompts import Prompt
from miron_jax.tasks.eval_uation.records import joined_draws
from miron_jax.tasks.eval_uation.suite import TEXT, TEXT_REFCOMPAT
from miron_jax.tasks.eval_uation.ukrainian import as_lm_eval, comparable
from miron_jax.tokens.detokenize import drops_first_space
from miron_jax.tokens.truncation import LengthLimit, fitting
from tests.support.uation_records import TASKS


def test_lists_of_one_draw_are_one_cluster() -> None:
    """The authors' lists show five words of a category, or four of the same five with an odd word."""
    five, four, others, other = "д: a, b, c, d, e", "д: a, b, c, d", "д: a, b, c, y, z", "р: a, b, c, d"
    assert joined_draws([five, four, other, "д: b, c, d, e", others, "д: "]) == [five, five, other, five, others, "д: "]


def test_whole_examples_stay_within_the_trained_length() -> None:
    profile = TASKS["eval-ua-tion/lmes_low"].profile
    assert LengthLimit(None, None, 256).of(profile) == 256
    assert LengthLimit(512, None, 256).of(profile) == 512  # asked for
    assert LengthLimit(None, 128, 256).of(profile) == 128
    assert LengthLimit(None, None, 256).of(replace(profile, truncation="keep_last")) is None


class Characters:
    """A tokenizer of single characters."""

    is_fast = False
    bos_token_id, bos_token = 0, "<s>"

    def __init__(self, puts_bos: bool):
        self.puts_bos = puts_bos

    def __call__(self, text: Any, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, Any]:
        if isinstance(text, list):
            return {"input_ids": [self(one_text, add_special_tokens)["input_ids"] for one_text in text]}
        first = [0] if add_special_tokens and self.puts_bos else []
        return {"input_ids": [*first, *map(ord, text)]}


SHOTS = st.lists(st.text(alphabet="аб\n", min_size=1, max_size=9), max_size=4)


@settings(max_examples=20, deadline=None)
@given(SHOTS, st.lists(st.text(alphabet="вг", min_size=1, max_size=6), min_size=1, max_size=3), st.booleans())
def test_truncation_removes_whole_shots(shots: list[str], options: list[str], puts_bos: bool) -> None:
    """At every limit.  A leak that the length cuts away is none, whatever the rule (issue 54)."""
    profile = TASKS["eval-ua-tion/lmes_low"].profile
    prompt = Prompt(0, 0, ("д:",) * len(options), tuple(options), 0, tuple(shots), num_shots=len(shots))
    longest = puts_bos + 2 + max(map(len, options))
    for limit in range(2, longest + sum(map(len, shots)) + 2):
        [kept] = fitting([prompt], profile, Characters(puts_bos), limit)
        # The slow twin: as many of the last examples as fit.
        fits = [n for n in range(len(shots) + 1) if longest + sum(map(len, shots[len(shots) - n :])) <= limit]
        most = max(fits, default=0)
        assert kept.preamble == "".join(shots[len(shots) - most :]), limit
        assert (kept.num_shots, len(kept.shots)) == (most, most)
        assert (kept.contexts, kept.continuations) == (prompt.contexts, prompt.continuations)
        for leak in range(1, len(shots) + 1):
            shortest = 2 + min(map(len, options)) + sum(map(len, shots[-leak:]))
            leaking = replace(prompt, leak=leak)
            [kept] = fitting([leaking], profile, Characters(puts_bos), limit)
            assert kept.leak == (leak if leak <= most else 0), limit
            [kept] = fitting([leaking], replace(profile, truncation="keep_last"), Characters(puts_bos), limit)
            assert kept == replace(prompt, leak=leak if shortest <= limit else 0)
    assert fitting([prompt], replace(profile, truncation="keep_last"), Characters(puts_bos), 2) == [prompt]


@pytest.mark.parametrize(
    ("answer", "gold", "ours", "lm_eval", "lm_eval_no_space"),
    [
        (" так", "так", True, False, True),  # a tokenizer that keeps the first space
        ("п'ята", "пята", True, True, True),
        ("п'ята", "п’ята", True, False, False),
        ("п'ята", "пʼята", True, False, False),
        ("\u0410", "A", True, False, False),  # a Cyrillic letter of the same look
        ("\u0432", "B", True, False, False),
        ("«Так».", "так", True, False, False),
        ("Так.", "так", True, True, True),
        ("\u0438\u0306од", "\u0439од", True, False, False),  # NFD
        ("кіт і пес", "кіт", False, False, False),
        ("так ні", "такні", False, False, True),
        ("а", "о", False, False, False),
        ("с", "с", True, True, True),
    ],
)
def test_what_compares_as_equal(answer: str, gold: str, ours: bool, lm_eval: bool, lm_eval_no_space: bool) -> None:
    assert (comparable(answer) == comparable(gold)) is ours
    assert (as_lm_eval(answer, False) == as_lm_eval(gold, False)) is lm_eval
    assert (as_lm_eval(answer, True) == as_lm_eval(gold, True)) is lm_eval_no_space


def test_lookalike_folding_keeps_letters_distinct() -> None:
    alphabet = "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя"
    assert len({comparable(letter) for letter in alphabet}) == 33
    assert comparable("вода") == "вода"  # a word's letters are its own
    for cyrillic, latin in zip("АВСЕІКМНОРТХ", "ABCEIKMHOPTX", strict=True):
        assert comparable(cyrillic) == comparable(latin) == comparable(f" {cyrillic.lower()}.")


def test_additional_scores_by_hand() -> None:
    options, texts = [np.array([-1.0], np.float32), np.array([-0.5, -2.0], np.float32)], ("ab", "abcdef")

    def scored(endings: list[tuple[np.ndarray, np.ndarray]], neutral: list[np.ndarray]) -> ExampleScore:
        logprobs = [*options, *(each for each, _ in endings), *neutral]
        ranks = [np.zeros(len(each), np.int32) for each in logprobs]
        ranks[2 : 2 + len(endings)] = [each for _, each in endings]
        asked = AskedChoices(texts, 1, len(endings) + len(neutral))
        return score_examples([asked], Spans.of_each(logprobs, ranks), ChoiceRules(SUM, FIRST, len(endings)))[0]

    scores = scored([], [np.array([-0.25], np.float32), np.array([-3.0], np.float32)])
    assert scores.metrics["accuracy"] == 0.0  # -1.0 against -2.5
    assert scores.metrics["accuracy_char"] == 1.0  # -1 / 2 against -2.5 / 6
    assert scores.metrics["accuracy_pmi"] == 1.0  # -0.75 against 0.5
    assert scores.neutral_logprobs == (-0.25, -3.0)
    assert "greedy_exact" not in scores.metrics
    logprobs = np.array([-0.1, -0.2], np.float32)
    right, wrong = (logprobs, np.array([0, 0], np.int32)), (logprobs, np.array([0, 1], np.int32))
    for endings, expected in (([right], 1.0), ([wrong], 0.0), ([wrong, right], 1.0), ([wrong, wrong], 0.0)):
        assert scored(endings, []).metrics["greedy_exact"] == expected
    broken = scored(
        [right, (np.array([np.nan, -1], np.float32), np.array([0, 0], np.int32))],
        [np.array([np.nan], np.float32)] * 2,
    )
    assert math.isnan(broken.metrics["greedy_exact"])
    assert math.isnan(broken.metrics["accuracy_pmi"])
    assert score_choices(options, texts, 1, CHAR).prediction == 1


def test_what_a_sum_is_divided_by() -> None:
    """A Cyrillic letter is one character and two bytes."""

    def sums(*values: float) -> list[np.ndarray]:
        return [np.array([value], np.float32) for value in values]

    assert score_choices(sums(-1.0, -2.5), ("a", "abc"), 1, CHAR).prediction == 1  # -1 / 1 against -2.5 / 3
    # -4 / 4 bytes against -3.3 / 3 bytes; by characters it would be -4 / 2 against -3.3 / 3.
    assert score_choices(sums(-4.0, -3.3), ("\u0430\u0431", "abc"), 0, SUM).metrics["accuracy_bytes"] == 1.0


@pytest.mark.parametrize("drops", [True, False])
def test_refcompat_decodes_completions_alone(drops: bool) -> None:
    class Decoding(Characters):
        def __len__(self) -> int:
            return 128

        def get_vocab(self) -> dict[str, int]:
            return {chr(i): i for i in range(128)}

        def decode(self, ids: list[int], **_: bool) -> str:
            text = "".join(map(chr, ids))
            return text.removeprefix(" ") if drops else text

    assert drops_first_space(Decoding(False)) is drops
    assert {task.profile.decoded for task in TEXT_REFCOMPAT.tasks} == {"alone"}
    assert {task.profile.decoded for task in TEXT.tasks} == {"after_prompt"}
