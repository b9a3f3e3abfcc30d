"""The Gauntlet: few-shot sampling, wording and token ids against published files; its scores and averages."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miron_jax.definitions.data_files import data_state, read_examples
from miron_jax.definitions.records import AnswerProfile, Measured, Problem, Question, Task
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.answers import answer_of, normalize_gauntlet, score_answer
from miron_jax.metrics.choices import EXP_MEAN, MEAN, score_choices
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.tasks.gauntlet import programming, suite
from miron_jax.tasks.gauntlet.averages import Averages
from miron_jax.tasks.gauntlet.icl_task import IclTask, task_of
from miron_jax.tokens.answer_requests import answer_requests, program_requests
from miron_jax.tokens.requests import tokenize, tokenize_questions
from miron_jax.tokens.truncation import LengthLimit
from tests.support.tiny_tokenizer import TINY
from tests.support.tolerances import printed

TASKS = {task.name.partition("/")[2]: task for task in suite.SUITE.tasks}
LARGE = {"hellaswag", "squad", "coqa", "mmlu", "bigbench_elementary_math_qa", "bbq"}


@pytest.fixture(scope="module")
def goldens(shared_data: Path) -> JsonObject:
    return json.loads((shared_data / "goldens" / "core_gauntlet.json").read_text())


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return suite.locate(shared_data / "eval_bundle")


def options_task(label: str) -> Task:
    task = TASKS[label]
    assert isinstance(task, Task)
    return task


def answer_task(label: str) -> Task[AnswerProfile]:
    task = TASKS[label]
    assert task.kind == "generation"
    return task


def test_files_are_the_published_ones_and_six_are_missing(folder: Path):
    for label, task in TASKS.items():
        assert data_state(task, folder).state == ("missing" if label in LARGE else "as published"), label
        if label not in LARGE:
            assert len(read_examples(task, folder)) == task.file.rows, label


def test_few_shot_sampling_matches_the_reference(goldens: JsonObject):
    for name, golden in goldens["composer_fewshot"].items():
        profile = TASKS[name.partition("/")[0]].profile
        assert profile.num_fewshot == golden["k"]
        drawn = list(profile.fewshot_draw.call(golden["N"], profile.num_fewshot))
        for idx, shots in golden["rows_as_iterated"]:
            assert drawn[idx] == shots, (name, idx)


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(0, 12))
def test_shots_never_include_the_item_itself(num_pool: int, num_fewshot: int):
    profile = replace(TASKS["arc_easy"].profile, num_fewshot=num_fewshot)
    drawn = list(profile.fewshot_draw.call(num_pool, profile.num_fewshot))
    assert len(drawn) == num_pool
    for idx, shots in enumerate(drawn):
        assert idx not in shots
        assert len(set(shots)) == len(shots)
        # One short where all others were drawn with the item: the reference then has no other to put in its place.
        assert len(shots) in {min(num_pool - 1, num_fewshot), min(num_pool - 1, num_fewshot) - 1}


def test_segments_are_the_published_ones(goldens: JsonObject, folder: Path):
    for label, golden in goldens["composer_rendered_segments_prefix_space_tokenizer"]["tasks"].items():
        task = TASKS[label]
        for prompt, expected in zip(render(task, read_examples(task, folder)), golden, strict=False):
            assert prompt.preamble == expected["preamble"]
            contexts = expected.get("contexts") or [expected["context"]] * len(prompt.contexts)
            assert list(prompt.contexts) == contexts, label
            spaced = [text if text.startswith(" ") else f" {text}" for text in prompt.continuations]
            if task.kind != "generation":
                of_each = expected["continuations"]
                assert spaced == (of_each * len(spaced) if len(of_each) == 1 else of_each), label


def test_wording_by_hand():
    entry = IclTask("x", "schema", 1, 0.5, "x.jsonl")
    task = task_of(entry, "x", None)
    rows = [
        {"context_options": ["a ", "b"], "continuation": " c ", "gold": 1},
        {"context_options": ["d", "e"], "continuation": "f", "gold": 0},
    ]
    examples = [task.parse(fields, row) for row, fields in enumerate(rows)]
    first = render(task, examples)[0]
    assert (first.preamble, first.contexts, first.continuations) == ("d f", ("\na ", "\nb"), ("c", "c"))
    for changes, expected in (
        ({}, ("", ("a ", "b"))),  # no delimiter at all without few-shot examples
        ({"prompt_string": "P:"}, ("P:", ("\na  so", "\nb so"))),
    ):
        zero = render(task_of(replace(entry, num_fewshot=0, delimiter=" so ", **changes), "x", None), examples)[0]
        assert (zero.preamble, zero.contexts) == expected
    question = IclTask("q", "generation", 1, 0.0, "q.jsonl", delimiter="\nA: ", prelimiter="Q: ", answer_after=" #### ")
    task = task_of(question, "q", None)
    rows = [{"context": " one? ", "answer": " 1 ", "chain_of_thought": "since"}, {"context": "two?", "answer": "2"}]
    questions = [task.parse(fields, row) for row, fields in enumerate(rows)]
    prompts = render(task, questions)
    assert (prompts[0].preamble, prompts[0].contexts) == ("Q: two?\nA: 2", ("\nQ: one?\nA:",))
    assert prompts[1].preamble == "Q: one?\nA: since #### 1"
    assert isinstance(questions[0], Question)
    assert questions[0].accepted == (" 1 ",)  # as it stands in the file; few-shot examples show it stripped


def test_a_limit_keeps_the_shots_and_applies_to_each_category(folder: Path):
    task = options_task("jeopardy")
    examples = read_examples(task, folder)
    everything, few = render(task, examples), render(task, examples, limit=3)
    assert [prompt.id for prompt in few] == list(range(15))
    assert {p.category for p in few} == {p.category for p in everything}
    by_row = {prompt.row: prompt for prompt in everything}
    assert all(replace(by_row[prompt.row], id=prompt.id) == prompt for prompt in few)
    category_of = {example.contexts[0]: example.category for example in examples}
    for prompt in few:
        shown = [part.split("\n")[-1] for part in prompt.preamble.split("\nAnswer: ")]
        assert {category_of[text] for text in shown if text in category_of} == {prompt.category}


class Prefixing:
    """A tokenizer that adds BOS and EOS, of pairs of characters (`spaced`: a space joins its word) or single ones."""

    is_fast = False
    eos_token_id = 1

    def __init__(self, spaced: bool):
        self.spaced = spaced

    def __call__(self, text: str | list[str], add_special_tokens: bool = True, verbose: bool = True) -> dict[str, Any]:
        if isinstance(text, list):
            return {"input_ids": [self(one_text, add_special_tokens)["input_ids"] for one_text in text]}
        pieces = [text[i : i + 2] for i in range(0, len(text), 2)] if self.spaced else list(text)
        ids = [2 + sum(ord(c) << 8 * i for i, c in enumerate(piece)) % 60000 for piece in pieces]
        return {"input_ids": [0, *ids, 1] if add_special_tokens else ids}


WORDS = st.text(alphabet="ab .\n", max_size=6)
TOKENIZERS: list[Any] = [TINY, Prefixing(True), Prefixing(False)]


@settings(max_examples=150)
@given(
    st.sampled_from(TOKENIZERS), WORDS, WORDS.filter(bool),
    st.lists(WORDS.filter(lambda text: bool(text.strip())), min_size=1, max_size=3), st.sampled_from([None, 8, 12]),
)  # fmt: skip
def test_segments_equal_the_twin(
    tokenizer: Any, preamble: str, context: str, continuations: list[str], most: int | None
):
    """Segments are tokenized apart; an EOS after the few-shot examples is dropped; each choice is cut from the left."""

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    prompt = Prompt(0, 0, (context,) * len(continuations), tuple(continuations), 0, shots=(preamble,))
    requests = tokenize([prompt], options_task("arc_easy").profile, tokenizer, most, "t")
    opened = tokenizer(preamble)["input_ids"]
    opened = opened[:-1] if len(opened) > 1 and opened[-1] == tokenizer.eos_token_id else opened
    before = [*opened, *ids(context)]
    for (tokens, start), text, is_cut in zip(requests, continuations, requests.truncated, strict=True):
        scored = ids(f" {text}" if len(ids(" a")) == 1 and not text.startswith(" ") else text)
        whole = [*before, *scored]
        assert tokens.tolist() == (whole[-most:] if most else whole)
        assert (len(tokens) - start, is_cut) == (len(scored), most is not None and len(whole) > most)


def test_a_span_without_a_token_before_it_is_an_error():
    class Bare(Prefixing):
        def __call__(self, text: Any, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, Any]:
            return super().__call__(text, add_special_tokens=False)

    prompt = Prompt(0, 7, ("", ""), ("a", "b"), 0)
    with pytest.raises(InputError, match=r"row 7.*no token before it.*no BOS"):
        tokenize([prompt], options_task("copa").profile, Bare(True), None, "t")
    prompt = Prompt(0, 0, ("\nquest", "\nquest"), ("an", " ans"), 0, shots=("shots",))
    with pytest.raises(InputError, match="needs one more before it"):
        tokenize([prompt], options_task("copa").profile, Prefixing(True), 2, "t")


def test_answers_have_room_and_prompts_are_cut_at_the_front():
    task = answer_task("triviaqa_sm_sub")
    questions = [
        Question(0, ("who?",), ("abcd",), 0, accepted=("abcd",), room_for=("abcd", "abcdefgh")),
        Question(1, ("x?",), ("a",), 0, accepted=("a",), room_for=("a",)),
    ]
    prompts = render(task, questions, limit=1)
    requests = answer_requests(prompts, questions, task.profile, Prefixing(True), None, "t")
    # Eight characters in pairs, BOS and EOS counted as the reference counts them.
    assert requests.max_new_tokens == 4 + 2
    whole = tokenize_questions(prompts, Prefixing(True))[0]
    assert requests.prompts == [whole]
    cut = answer_requests(prompts, questions, task.profile, Prefixing(True), 9, "t")
    assert (cut.prompts, cut.truncated) == ([whole[-3:]], [True])
    with pytest.raises(InputError, match="longest answer takes 6 tokens"):
        answer_requests(prompts, questions, task.profile, Prefixing(True), 6, "t")
    reasoning = replace(task.profile, extra_tokens=10)
    assert answer_requests(prompts, questions, reasoning, Prefixing(True), None, "t").max_new_tokens == 16


def test_limit_leaves_a_programs_room_alone():
    """The longest prompt and solution are those of the whole file: a run of one problem draws what a run of two does."""
    profile = programming.SUITE.tasks[0].profile
    problems = [
        Problem(row, f"{row}", prompt, "f", "python", (), (), solution)
        for row, (prompt, solution) in enumerate([("ab", "cd"), ("abcdefgh", "abcdef")])
    ]
    for max_length, room in ((None, 5), (9, 4)):
        computed = [
            program_requests(problems, limit, replace(profile, extra_tokens=0), Prefixing(True), max_length, "t")
            for limit in (None, 1)
        ]
        assert [each.max_new_tokens for each in computed] == [room] * 2
        assert [len(each.prompts) for each in computed] == [2, 1]


def test_the_length_limit_is_the_suites_unless_asked_otherwise():
    profile = TASKS["copa"].profile
    for limit, expected in (((None, None), 1024), ((2048, None), 2048), ((None, 512), 512)):
        assert LengthLimit(*limit).of(profile) == expected
    assert LengthLimit(None, None).of(replace(profile, max_length=None)) is None


QUESTION = IclTask("x", "generation", 0, 0.0, "x.jsonl")
CATEGORIZED = IclTask("x", "language_modeling", 0, 0.0, "x.jsonl", has_categories=True)


@pytest.mark.parametrize(
    ("entry", "fields", "message"),
    [
        (CATEGORIZED, {"context": "a", "continuation": "b"}, "'category' is missing"),
        (QUESTION, {"context": "a"}, "'answer' is missing"),
        (QUESTION, {"context": "a", "answer": 3}, "'answer' holds 3"),
        (QUESTION, {"context": "a", "answer": "b", "chain_of_thought": "c"}, "no cot_delimiter"),
        (QUESTION, {"context": "a", "answer": "b", "aliases": "c"}, "'aliases' holds 'c'"),
    ],
)
def test_bad_lines_are_refused(tmp_path: Path, entry: IclTask, fields: JsonObject, message: str):
    (tmp_path / "x.jsonl").write_text(json.dumps(fields) + "\n")
    with pytest.raises(InputError, match=rf"t: .*line 1: .*{message}"):
        read_examples(task_of(entry, "t", None), tmp_path)


# Scores and averages


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


def test_normalized_answers_by_hand():
    for text, expected in {
        "The answer": "answer", "an Apple_pie, a  day!": "apple pie day", "3.5": "3 5", "-5": "5", "(a": "", "$a$": "",
        "\u2018Theory\u2019 of the\tcase`s": "theory of case s",
    }.items():  # fmt: skip
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


def measured(accuracies: dict[str, float], num_examples: int = 100) -> dict[str, Measured]:
    return {name: Measured(value, num_examples) for name, value in accuracies.items()}


def test_core_average_of_a_published_run_from_its_categories():
    # llm-foundry, pull request 674, mpt-7b-instruct: five categories and their average.  One benchmark a category here,
    # whose accuracy is the category's own score: without a baseline the score is the accuracy.
    published = {
        "world_knowledge": 0.409036, "commonsense_reasoning": 0.311075, "language_understanding": 0.371509,
        "symbolic_problem_solving": 0.139737, "reading_comprehension": 0.264042, "safety": 0.158681,
    }  # fmt: skip
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
        composite, partial = composites[name], composites[f"partial_{name}"]
        assert (composite.value, composite.complete, composite.missing) == (None, False, ("gauntlet/copa",))
        assert partial.value is not None
        assert partial.missing == ("gauntlet/copa",)
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
    """Scores (accuracy - baseline) / (1 - baseline): 0.75, -0.5 and 1, of 256, 16 and one question."""
    baselines = {"t/a": 0.0, "t/b": 0.5, "t/c": 0.25}
    sizes = {"t/a": Measured(0.75, 256), "t/b": Measured(0.25, 16), "t/c": Measured(1.0, 1)}

    def value(**rules: Any) -> float:
        averages = Averages({"c": baselines, "d": {"t/a": 0.0}}, {"e": ("c", "d")}, **rules)
        composites = averages.composites(sizes)
        category = composites["c"].value
        assert category is not None
        assert composites["e"].value == pytest.approx((category + 0.75) / 2)  # categories count alike
        return category

    assert value() == pytest.approx((0.75 - 0.5 + 1) / 3)
    assert value(weighting="SAMPLE_SZ") == pytest.approx((256 * 0.75 - 16 * 0.5 + 1) / 273)
    # log2: 8, 4, and 0 for one question, which counts as 1
    assert value(weighting="LOG_SAMPLE_SZ") == pytest.approx((8 * 0.75 - 4 * 0.5 + 1) / 13)
    assert value(rescale=False) == pytest.approx((0.75 - 0.25 + 0.75) / 3)
    assert value(rescale=False, subtract_baseline=False) == pytest.approx((0.75 + 0.25 + 1.0) / 3)
