"""Faults that people reported of metrics, intervals and means, tried on numbers worked out by hand or by another formula.
README.md lists the reports."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from miron_jax.definitions.records import Measured
from miron_jax.errors import InputError
from miron_jax.evaluation.composites import composite_result
from miron_jax.metrics.answers import exact_match, token_f1
from miron_jax.metrics.choices import CHAR, MEAN, SUM, score_choices
from miron_jax.metrics.programs import pass_at, score_programs
from miron_jax.statistics.estimate import estimate, ratio, whole_set_estimates
from miron_jax.tasks.groups import GroupMembers, read_groups
from miron_jax.tasks.mera.metrics import AnsweredRecord, f1_macro, grade_norm, macro_f1, matthews
from tests.support.own_task import CHOICE, prompts_of, read_task, rows
from tests.support.tolerances import FLOAT64, SIMULATED


def spans(*losses: Sequence[float]) -> list[np.ndarray]:
    """Log-probabilities of the tokens of each choice."""
    return [-np.asarray(loss, np.float32) for loss in losses]


# --------------------------------------------------------------------------------------------------------------- choices


def test_choices_of_unlike_many_tokens_have_each_their_own_mean() -> None:
    """huggingface/lighteval#1170: tokens of choices were padded to one length, and a list was shorter than the choices.

    4, 27, 6, 34 with a space token each: means 1.5, 1.6, 1.4 and 2; sums 3, 4.8, 2.8 and 6; with padding by a third
    token the means of the first and third were 1 and .93, and the second's stayed."""
    logprobs = spans([1.0, 2.0], [0.8, 2.0, 2.0], [0.6, 2.2], [1.0, 3.0, 2.0])
    texts = ("4", "27", "6", "34")
    assert score_choices(logprobs, texts, 2, MEAN).prediction == 2
    assert score_choices(spans([3.0], [1.6, 1.6, 1.6]), ("4", "27"), 1, MEAN).prediction == 1, "1.6 a token, not 3"
    assert score_choices(spans([3.0], [1.6, 1.6, 1.6]), ("4", "27"), 1, SUM).prediction == 0


def test_lengths_do_not_count_the_space_before_a_choice(tmp_path: Path) -> None:
    """allenai/OLMo-core#243: one was taken off each length for a space that some tasks lacked.

    2 / 1 and 4.2 / 3 letters: 2 and 1.4, the longer one; with the space in it 2 / 2 and 4.2 / 4: 1 and 1.05, the other."""
    keys = CHOICE + "rules: lm_eval\nnormalizer: char\n"
    [prompt] = prompts_of(tmp_path, keys, rows("x", c=["x", "xyz"]))
    assert score_choices(spans([2.0], [4.2]), prompt.continuations, 0, CHAR).prediction == 1
    assert score_choices(spans([2.0], [4.2]), (" x", " xyz"), 0, CHAR).prediction == 0


def test_a_tie_is_right_for_one_right_choice_alone() -> None:
    """stanford-crfm/helm#737, EleutherAI/lm-evaluation-harness#2007: a largest score equal to the right one's counted, so
    that a model that tells nothing apart had 1."""
    for losses in ([2.0] * 4, [3.0, 2.0, 2.0, 3.0]):
        scored = [score_choices(spans(*([loss] for loss in losses)), tuple("abcd"), gold, SUM) for gold in range(4)]
        assert sum(each.metrics["accuracy"] for each in scored) == 1
        assert all(each.tied for each in scored)


# --------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("text", "right", "f1", "em"),
    [
        (
            "Paris Paris Paris Paris Paris",
            "Paris",
            2 / 6,
            0.0,
        ),  # UKGovernmentBEIS/inspect_ai#5473: sets of words gave 1
        ("Paris", "Paris Paris", 2 / 3, 0.0),
        ("c b", "b c", 1.0, 0.0),
        ("A", "A", 1.0, 1.0),  # stanford-crfm/helm#4315: an article alone gave 0
        ("An", "B", 0.0, 0.0),
        ("", "B", 0.0, 0.0),
        ("the cat", "a cat!", 1.0, 1.0),
    ],
)
def test_words_count_as_often_as_they_stand(text: str, right: str, f1: float, em: float) -> None:
    assert token_f1(text, [right]) == pytest.approx(f1, rel=FLOAT64)
    assert exact_match(text, [right]) == em
    assert token_f1(text, ["no words of it", right]) == pytest.approx(f1, rel=FLOAT64), "the best, not the mean"


# ------------------------------------------------------------------------------------------- numbers over a whole set


def test_macro_f1_is_the_mean_of_the_labels_f1_over_the_whole_set() -> None:
    """flairNLP/flair#486: F1 of mean precision and mean recall; apache/mxnet#9830: the mean of batches' F1.

    golds aaabab, answers aabcab: a has precision 1 and recall 3/4, so 6/7; b 1/2 and 1/2; c has none: the mean is 19/42.
    Of mean precision 1/2 and mean recall 5/12 the F1 is 5/11."""
    golds, answers = list("aaabab"), list("aabcab")
    assert macro_f1(answers, golds, np.ones(6)) == pytest.approx(19 / 42, rel=FLOAT64)
    records = [AnsweredRecord(answer, gold) for answer, gold in zip(answers, golds, strict=True)]
    whole = f1_macro(records, np.ones(6))
    assert whole == pytest.approx({"f1_macro": 19 / 42, "score": (19 / 42 + 4 / 6) / 2}, rel=FLOAT64)
    halves = [f1_macro(records[i::2], np.ones(3))["f1_macro"] for i in (0, 1)]
    assert sum(halves) / 2 != pytest.approx(19 / 42, rel=FLOAT64), "the mean of batches is another number"
    by_weight = f1_macro(records[:4], np.array([2.0, 1.0, 1.0, 1.0]))
    assert by_weight == pytest.approx(f1_macro([records[0], *records[:4]], np.ones(5)), rel=FLOAT64)


def test_a_correlation_of_constant_answers_is_zero_not_undefined() -> None:
    """benhamner/Metrics#13: 0 / 0 where all is in one cell; scikit-learn, which MERA's site calls, gives 0."""
    yes, no = np.ones(6, bool), np.zeros(6, bool)
    mixed = np.array([True, False] * 3)
    for answers, golds in ((yes, yes), (no, no), (yes, no), (yes, mixed), (mixed, yes)):
        assert matthews(answers, golds, np.ones(6)) == 0
    assert matthews(mixed, mixed, np.ones(6)) == 1
    assert matthews(mixed, ~mixed, np.ones(6)) == -1


def test_pass_at_k_is_the_share_of_draws_with_a_right_program(tmp_path: Path) -> None:
    """openai/human-eval#35, nuprl/MultiPL-E#40: fewer programs than k gave 1, even with none right; paiml/aprender#2118:
    one greedy program a problem, counted as many programs of one problem, gave pass@100 of 1."""
    for n, right in itertools.product(range(1, 7), range(7)):
        passed = [i < right for i in range(n)]
        for k in range(1, n + 1) if right <= n else ():
            draws = list(itertools.combinations(passed, k))
            assert pass_at(k, n, right) == pytest.approx(sum(map(any, draws)) / len(draws), rel=FLOAT64)
    assert score_programs([True], 1).metrics == {"accuracy": 1.0, "pass_at_1": 1.0}
    assert score_programs([False] * 3, 3).metrics == {"accuracy": 0.0, "pass_at_1": 0.0, "pass_at_3": 0.0}
    keys = "task: x\nkind: program\ndata: x.jsonl\nprompt: q\nentry_point: q\ninputs: i\noutputs: o\nsolution: q\n"
    with pytest.raises(InputError, match="pass_at_k is 5, expected at most num_samples, 3"):
        read_task(tmp_path, keys + "num_samples: 3\npass_at_k: 5\n", rows("x"))


def test_a_run_of_some_records_is_divided_by_theirs() -> None:
    """EvolvingLMMs-Lab/lmms-eval#918: sums over a limited run, divided by the size of the whole set.

    Of MERA's exam, v1.2 states each record's points; v1 states none, and its site divides by the 34 of a variant."""
    half = [
        AnsweredRecord("", "", "1", points=2.0, most_points=3.0),
        AnsweredRecord("", "", "1", points=1.0, most_points=1.0),
    ]
    assert grade_norm(half, np.ones(2))["grade_norm"] == 3 / 4
    assert estimate([1.0, 0.0, 1.0], proportion=True).value == pytest.approx(2 / 3)


# ------------------------------------------------------------------------------------------------ intervals and groups


def test_one_example_has_no_bootstrap_error_and_many_have_that_of_their_mean() -> None:
    """openai/evals#1834: half of the values drawn without replacement, and none at all of a single one.  The error of a
    mean has a closed form, sqrt(p (1 - p) / n)."""

    def mean(values: Sequence[float], weights: np.ndarray) -> dict[str, float]:
        return {"mean": float((np.asarray(values) * weights).sum() / weights.sum())}

    for right, n in ((30, 100), (30, 40), (3, 9)):
        whole = whole_set_estimates(mean, [1.0] * right + [0.0] * (n - right), 2)["mean"]
        share = right / n
        assert whole.stderr == pytest.approx(math.sqrt(share * (1 - share) / n), rel=SIMULATED)
        assert (whole.value, whole.num_examples, whole.num_undefined) == (share, n, 2)
    one = whole_set_estimates(mean, [1.0], 0)["mean"]
    assert (one.value, one.num_examples) == (1.0, 1)
    assert all(map(math.isnan, (one.stderr, *one.ci95))), "it was 0, as if nothing were unknown"


TASKS = {"a": (0.5, 100), "b": (0.8, 20), "c": (0.25, 400)}  # accuracy, questions


@pytest.mark.parametrize(
    ("groups", "weights"),
    [
        ({"g": {"of": ["a", "b", "c"]}}, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
        ({"g": {"of": ["a", "b", "c"], "weights": "by_size"}}, {"a": 100 / 520, "b": 20 / 520, "c": 400 / 520}),
        # EleutherAI/lm-evaluation-harness#1427, #1521: a group of groups counts each question once.
        (
            {"ab": {"of": ["a", "b"], "weights": "by_size"}, "g": {"of": ["ab", "c"], "weights": "by_size"}},
            {"a": 100 / 520, "b": 20 / 520, "c": 400 / 520},
        ),
        ({"ab": {"of": ["a", "b"]}, "g": {"of": ["ab", "c"]}}, {"a": 1 / 4, "b": 1 / 4, "c": 1 / 2}),
    ],
)
def test_a_groups_error_is_of_the_mean_that_it_states(groups: dict, weights: dict[str, float]) -> None:
    """EleutherAI/lm-evaluation-harness#3882: the plain mean of tasks beside the error of the mean over all questions."""
    sizes = {name: size for name, (_, size) in TASKS.items()}
    read = read_groups(groups, GroupMembers(sizes, {name: name for name in TASKS}), Path("g.yaml"))
    composite = read.composites({name: Measured(*task) for name, task in TASKS.items()})["g"]
    of_tasks = {
        name: estimate([1.0] * round(value * size) + [0.0] * round((1 - value) * size), proportion=True)
        for name, (value, size) in TASKS.items()
    }
    whole = composite_result(composite, of_tasks)
    assert composite.value == pytest.approx(sum(weight * TASKS[name][0] for name, weight in weights.items()))
    variance = sum(weights[name] ** 2 * value * (1 - value) / size for name, (value, size) in TASKS.items())
    assert whole.stderr == pytest.approx(math.sqrt(variance), rel=FLOAT64)
    if "by_size" in str(groups):  # the accuracy over all questions
        assert composite.value == pytest.approx((50 + 16 + 100) / 520)


def test_what_a_model_does_not_answer_is_neither_wrong_nor_out_of_sight() -> None:
    """UKGovernmentBEIS/inspect_ai#3707, #4286: 80 right of 90 that ran was 88.9 %, and nothing said that 10 had failed;
    FrontierCS/Frontier-CS#161: programs that do not compile left the denominator.  A program that fails is wrong."""
    share = estimate([1.0] * 80 + [0.0] * 10 + [math.nan] * 10, proportion=True)
    assert (share.value, share.num_examples, share.num_undefined) == (80 / 90, 90, 10)
    broken = score_choices([np.array([np.nan], np.float32), *spans([1.0])], ("x", "y"), 1)
    assert (broken.correct, broken.prediction) == (None, None)
    assert all(map(math.isnan, broken.metrics.values()))
    assert score_programs([False, True], 1).metrics["accuracy"] == 0.5


def test_a_loss_does_not_hang_on_how_documents_are_dealt() -> None:
    """Lightning-AI/litgpt#599, PrimeIntellect-ai/prime-rl#1850: the mean of the shards' means, or the first one alone."""
    rng = np.random.default_rng(0)
    nats, num_bytes = rng.uniform(5, 500, 12), rng.integers(3, 400, 12).astype(np.float64)
    whole = ratio(nats, num_bytes)
    assert whole.value == pytest.approx(nats.sum() / num_bytes.sum(), rel=FLOAT64)
    order = rng.permutation(12)
    assert ratio(nats[order], num_bytes[order]).value == pytest.approx(whole.value, rel=FLOAT64)
    shards = [ratio(nats[part], num_bytes[part]).value for part in (slice(2), slice(2, 5), slice(5, None))]
    assert float(np.mean(shards)) != pytest.approx(whole.value, rel=FLOAT64), "and the mean of shards is another number"
