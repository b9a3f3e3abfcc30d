"""Several right answers: labels of a user's data, and the probability that the right ones have together."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import miron_jax
from miron_jax.errors import InputError
from miron_jax.metrics.choices import SUM, AskedChoices, ChoiceRules, score_examples
from miron_jax.metrics.spans import Spans
from tests.support.command import samples
from tests.support.own_models import bigrams, users_promotion
from tests.support.own_task import read_task
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import FLOAT64, ROUNDING, TOKEN

__all__ = ["users_promotion"]  # a fixture that every test here uses
KEYS = "task: x\ndata: x.jsonl\nquestion: q\nchoices: t.choices\ngold: t.labels\ngold_is: labels\nrules: lm_eval\n"
RECORD = {"q": "so", "t": {"choices": ["hot", "cold", "sun", "rain"], "labels": [1, 1, 0, 0]}}


def test_mass_of_the_right_choices_by_hand() -> None:
    """lm-eval's truthfulqa_mc2: right .2 + .1 of .2 + .1 + .05 + .15 is .6.  The best choice is right, though not the
    first right one; and where every probability is below float64's least, the shares are still theirs."""
    logprobs = [np.log(np.asarray([p], np.float32)) for p in (0.1, 0.2, 0.05, 0.15)]
    [example] = score_examples([AskedChoices("abcd", 0, also_right=(1,))], Spans.of_each(logprobs), ChoiceRules(SUM))
    assert example.metrics["right_mass"] == pytest.approx(0.3 / 0.5, abs=ROUNDING)
    assert (example.prediction, example.correct, example.metrics["accuracy_sum"]) == (1, True, 1.0)
    p_true, p_false = (
        np.exp([float(each.sum()) for each in logprobs[:2]]),
        np.exp([float(each.sum()) for each in logprobs[2:]]),
    )
    assert example.metrics["right_mass"] == pytest.approx(sum(p_true / (sum(p_true) + sum(p_false))), rel=FLOAT64)
    rare = Spans.of_each([each - np.float32(2000) for each in logprobs])
    asked = [AskedChoices("abcd", 2, also_right=()), AskedChoices("abcd", 2)]
    one, plain = score_examples(asked, rare.at(np.arange(8) % 4), ChoiceRules(SUM))
    assert one.metrics["right_mass"] == pytest.approx(0.1, abs=TOKEN)
    assert {**plain.metrics, "right_mass": one.metrics["right_mass"]} == one.metrics
    assert (one.correct, plain.correct) == (False, False)
    broken = Spans.of_each([*logprobs[:3], np.asarray([np.nan], np.float32)])
    [example] = score_examples(asked[:1], broken, ChoiceRules(SUM))
    assert math.isnan(example.metrics["right_mass"])


@pytest.mark.slow
def test_labels_of_truthfulqa_and_of_big_bench(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "tokenizer")
    _, [example] = read_task(tmp_path, KEYS, [RECORD])
    assert (example.gold, example.also_right) == (0, (1,))
    scores = {"q": "so", "s": {"hot": 0, "cold": 1, "sun": 1}}
    of_scores = KEYS.replace("t.choices", "s").replace("t.labels", "s")
    _, [example] = read_task(tmp_path, of_scores, [scores])
    assert (example.continuations, example.gold, example.also_right) == (("hot", "cold", "sun"), 1, (2,))
    given = bigrams(), str(tmp_path / "tokenizer"), ["own"]
    options = {"task_path": [str(tmp_path / "x.yaml")], "output": tmp_path / "out"}
    evaluator = miron_jax.Evaluator(*given, save_requests=True, **options)
    result = evaluator.run(step=1)["tasks"]["own/x"]
    [sample] = samples(tmp_path / "out/step_1", "own/x")
    hot, *right = (math.exp(option["logprob"]) for option in sample["options"])
    assert sample["metrics"]["right_mass"] == pytest.approx(sum(right) / (hot + sum(right)), rel=FLOAT64)
    assert (result["main"], sample["gold"], sample["also_right"]) == ("right_mass", 1, [2])
    assert not (tmp_path / "out/requests/requests.jsonl").read_text(), "a frozen set has one right choice"


@pytest.mark.parametrize("labels", [[1, 1, 1, 1], [0, 0, 0, 0], [1, 0], [0.5, 1, 0, 0], "hot", None])
def test_wrong_labels_are_refused(labels: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected 1 .right. or 0 for each of the 4 choices, with both among them"):
        read_task(tmp_path, KEYS, [{**RECORD, "t": {**RECORD["t"], "labels": labels}}])
