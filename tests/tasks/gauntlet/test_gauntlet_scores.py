"""The Gauntlet's scores: ties, answers in the model's own words, averages of categories and of all."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Measured
from miron_jax.metrics.answers import answer_of, normalize_gauntlet, score_answer
from miron_jax.metrics.choices import EXP_MEAN, MEAN, score_choices
from miron_jax.tasks.gauntlet import suite
from miron_jax.tasks.gauntlet.averages import Averages
from tests.support.gauntlet_tasks import answer_task, options_task
from tests.support.tolerances import printed


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return suite.locate(shared_data / "eval_bundle")


# Scores


def test_exp_makes_ties_that_the_first_choice_wins():
    def options(*losses: float) -> list[np.ndarray]:
        return [np.asarray([-loss], np.float32) for loss in losses]

    # Both above 88.7 nats: exp is infinite for both.  Both tiny: exp is 1 for both.
    for losses in ((120.0, 90.0), (2e-9, 1e-9)):
        by_exp = score_choices(options(*losses), ("a", "b"), 0, EXP_MEAN)
        assert (by_exp.prediction, by_exp.tied, by_exp.rounded) == (0, True, True)
        assert score_choices(options(*losses), ("a", "b"), 0, MEAN).prediction == 1
    plain = score_choices(options(2.0, 1.0), ("a", "b"), 0, EXP_MEAN)
    assert (plain.prediction, plain.tied, plain.rounded) == (1, False, False)


def test_a_uniform_model_scores_the_share_of_first_options(folder: Path):
    # Equal losses: the first option wins.  The shares are those that the published files imply.
    for label, (right, total) in {
        "bigbench_novel_concepts": (32, 32),
        "bigbench_strange_stories": (174, 174),
        "boolq": (1237, 3270),
        "piqa": (910, 1838),
        "copa": (55, 100),
        "winograd": (137, 273),
    }.items():
        examples = read_examples(options_task(label), folder)
        same = [np.full(3, -2.0, np.float32)] * 2
        scores = [
            score_choices(
                same * (len(e.continuations) // 2 or 1), ("a", "b") * (len(e.continuations) // 2 or 1), e.gold, EXP_MEAN
            )
            for e in examples
        ]
        assert (sum(bool(score.correct) for score in scores), len(scores)) == (right, total), label
        assert all(score.tied for score in scores)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer", "answer"),
        ("an Apple_pie, a  day!", "apple pie day"),
        ("3.5", "3 5"),
        ("-5", "5"),
        ("\u2018Theory\u2019 of the\tcase`s", "theory of case s"),
        ("(a", ""),
        ("$a$", ""),
    ],
)
def test_normalized_answers_by_hand(text: str, expected: str):
    assert normalize_gauntlet(text) == expected


def test_answers_by_hand():
    def right(text: str, *accepted: str, after: str = "") -> bool | None:
        profile = replace(answer_task("gsm8k").profile, answer_after=after)
        return score_answer(text, accepted, profile).correct

    assert right(" Paris, of course", "London", "paris")
    assert not right("In Paris", "paris")
    assert right("12", "1")  # a prefix is enough
    assert right("10\nQ: another?", "1", after=" #### ")
    assert right("so 3 #### 4", "4", after=" #### ")
    assert not right("so #### 4\nQ: x\nA: y #### 5", "4", after=" #### ")  # behind the last delimiter
    assert right("anything", "(a")  # normalizes to nothing
    assert answer_of("a #### b #### c", " #### ") == "c"


def test_only_two_known_answers_normalize_to_nothing(folder: Path):
    empty_rows = {
        label: [
            q.row for q in read_examples(answer_task(label), folder) if not all(map(normalize_gauntlet, q.accepted))
        ]
        for label in ("triviaqa_sm_sub", "gsm8k", "svamp", "aqua", "agi_eval_sat_math")
    }
    assert empty_rows == {"triviaqa_sm_sub": [2102], "gsm8k": [], "svamp": [], "aqua": [], "agi_eval_sat_math": [130]}


# Averages


def measured(accuracies: dict[str, float], num_examples: int = 100) -> dict[str, Measured]:
    return {name: Measured(value, num_examples) for name, value in accuracies.items()}


def test_core_average_of_a_published_run_from_its_categories():
    # llm-foundry, pull request 674, mpt-7b-instruct: five categories and their average.  One benchmark a category here,
    # whose accuracy is the category's own score: without a baseline the score is the accuracy.
    published = {
        "world_knowledge": 0.409036,
        "commonsense_reasoning": 0.311075,
        "language_understanding": 0.371509,
        "symbolic_problem_solving": 0.139737,
        "reading_comprehension": 0.264042,
        "safety": 0.158681,
    }
    averages = Averages({name: {f"t/{name}": 0.0} for name in published}, suite.AVERAGES.averages)
    composites = averages.composites(measured({f"t/{name}": value for name, value in published.items()}))
    assert composites["core_average"].value == pytest.approx(0.29908, abs=printed(5))
    assert composites.keys() == {*published, "core_average"}  # nothing partial where nothing is missing


def every(accuracy: float) -> dict[str, float]:
    return {name: accuracy for baselines in suite.AVERAGES.categories.values() for name in baselines}


def test_composites_by_hand():
    perfect = suite.AVERAGES.composites(measured(every(1.0)))
    assert {name: composite.value for name, composite in perfect.items()} == pytest.approx(dict.fromkeys(perfect, 1.0))
    assert len(perfect) == 7
    # At its baseline every benchmark adds nothing; one step above moves its category by 1 / (1 - b) / benchmarks, and
    # core_average by a fifth of that.
    chance = {name: b for baselines in suite.AVERAGES.categories.values() for name, b in baselines.items()}
    moved = suite.AVERAGES.composites(measured({**chance, "gauntlet/copa": 0.6}))
    assert moved["commonsense_reasoning"].value == pytest.approx(0.1 / 0.5 / 8)
    assert moved["core_average"].value == pytest.approx(0.1 / 0.5 / 8 / 5)
    assert moved["commonsense_reasoning"].weights["gauntlet/copa"] == pytest.approx(1 / 0.5 / 8)
    assert moved["core_average"].weights["gauntlet/copa"] == pytest.approx(1 / 0.5 / 8 / 5)
    assert "gauntlet/winogender_mc_male" not in moved["core_average"].weights  # safety is out


def test_a_missing_benchmark_leaves_null_and_a_partial_value():
    accuracies = every(0.5)
    del accuracies["gauntlet/copa"]
    composites = suite.AVERAGES.composites(measured(accuracies))
    for name in ("commonsense_reasoning", "core_average"):
        assert (composites[name].value, composites[name].complete, composites[name].missing) == (
            None,
            False,
            ("gauntlet/copa",),
        )
        assert composites[f"partial_{name}"].value is not None
        assert composites[f"partial_{name}"].missing == ("gauntlet/copa",)
    assert composites["world_knowledge"].complete
    assert "partial_world_knowledge" not in composites
    assert composites["safety"].complete
    # Seven of eight commonsense tasks at 0.5: four with a baseline of 0.5 add 0, three of 0.25 add a third each.
    assert composites["partial_commonsense_reasoning"].value == pytest.approx(3 * (0.25 / 0.75) / 7)
    # A category without any benchmark is missing too.
    others = {name: 0.5 for name in every(0.5) if name not in suite.AVERAGES.categories["world_knowledge"]}
    average = suite.AVERAGES.composites(measured(others))["core_average"]
    assert (average.value, set(average.missing)) == (None, {*suite.AVERAGES.categories["world_knowledge"]})
    nothing = suite.AVERAGES.composites({})
    assert all(composite.value is None for composite in nothing.values())


def test_weights_by_size():
    baselines = {"t/a": 0.0, "t/b": 0.5}
    sizes = {"t/a": Measured(0.5, 300), "t/b": Measured(1.0, 100)}

    def value(**rules: Any) -> float | None:
        return Averages({"c": baselines}, {}, **rules).composites(sizes)["c"].value

    assert value() == pytest.approx((0.5 + 1.0) / 2)
    assert value(weighting="SAMPLE_SZ") == pytest.approx((300 * 0.5 + 100 * 1.0) / 400)
    a, b = math.log2(300), math.log2(100)
    assert value(weighting="LOG_SAMPLE_SZ") == pytest.approx((a * 0.5 + b) / (a + b))
    assert value(rescale=False) == pytest.approx((0.5 + 0.5) / 2)
    assert value(rescale=False, subtract_baseline=False) == pytest.approx((0.5 + 1.0) / 2)
