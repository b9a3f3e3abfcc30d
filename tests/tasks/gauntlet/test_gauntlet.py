"""The Gauntlet: its table, few-shot sampling, wording and token ids, against published files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from miron_jax.definitions.data_files import DataState, data_state, git_blob_sha1, read_examples
from miron_jax.definitions.records import Example, Question
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.tasks.gauntlet import suite
from miron_jax.tasks.gauntlet.icl_task import IclTask, task_of
from miron_jax.tasks.gauntlet.table import CATEGORIES
from miron_jax.tokens.answer_requests import answer_requests
from miron_jax.tokens.records import LengthLimit
from miron_jax.tokens.requests import tokenize, tokenize_questions
from tests.support.gauntlet_tasks import TASKS, answer_task, options_task
from tests.support.tiny_tokenizer import TINY

LARGE = {"hellaswag", "squad", "coqa", "mmlu", "bigbench_elementary_math_qa", "bbq"}


@pytest.fixture(scope="module")
def goldens(shared_data: Path) -> JsonObject:
    return json.loads((shared_data / "goldens" / "core_gauntlet.json").read_text())


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return suite.locate(shared_data / "eval_bundle")


# The table


def test_table_equals_the_published_yamls(shared_data: Path):
    yamls = shared_data / "gauntlet_v0_1"
    published = yaml.safe_load((yamls / "tasks_v0.1.yaml").read_text())["icl_tasks"]
    gauntlet = yaml.safe_load((yamls / "eval_gauntlet_v0.1.yaml").read_text())["eval_gauntlet"]
    by_label = {entry["label"]: entry for entry in published}
    assert by_label.keys() == TASKS.keys()
    assert len(TASKS) == 49
    kinds = {"question_answering": "generation"}
    for label, entry in by_label.items():
        task, fields = TASKS[label], dict(entry)
        expected = {
            "label": label,
            "dataset_uri": f"eval/local_data/{task.file.path}",
            "num_fewshot": [task.profile.num_fewshot],
            "icl_task_type": task.kind,
        }
        fields["icl_task_type"] = kinds.get(fields["icl_task_type"], fields["icl_task_type"])
        delimiter, prelimiter = fields.pop("continuation_delimiter", " "), fields.pop("question_prelimiter", "")
        after, categories = fields.pop("cot_delimiter", ""), fields.pop("has_categories", False)
        assert fields == expected
        assert task.profile.delimiter == delimiter
        assert task.profile.prelimiter == ("Q: " if label == "aqua" else prelimiter)  # aqua's file lost its own
        assert (task.profile.categories == "macro") == categories
        if task.kind == "generation":
            assert task.profile.answer_after == after
    categories = {
        category["name"]: {f"gauntlet/{b['name']}": float(b["random_baseline"]) for b in category["benchmarks"]}
        for category in gauntlet["categories"]
    }
    assert suite.AVERAGES.categories == categories
    assert suite.AVERAGES.averages.keys() == gauntlet["averages"].keys()
    assert set(suite.AVERAGES.averages["core_average"]) == set(gauntlet["averages"]["core_average"])
    for entries in CATEGORIES.values():
        for entry in entries:
            shots = {b["name"]: b["num_fewshot"] for c in gauntlet["categories"] for b in c["benchmarks"]}
            assert shots[entry.label] == entry.num_fewshot


def test_files_are_the_published_ones_and_six_are_missing(folder: Path):
    states = {label: data_state(task, folder).state for label, task in TASKS.items()}
    assert {label for label, state in states.items() if state == "missing"} == LARGE
    assert {state for label, state in states.items() if label not in LARGE} == {"as published"}
    for label in sorted(TASKS.keys() - LARGE):
        task = TASKS[label]
        examples = read_examples(task, folder)
        assert len(examples) == task.file.rows, label


def test_degenerate_and_categorized_files_are_as_described(folder: Path):
    golds = {label: {e.gold for e in read_examples(options_task(label), folder)} for label in ("boolq", "siqa")}
    assert golds == {"boolq": {0, 1}, "siqa": {0, 1}}  # siqa of v0.4.0 said 0 throughout
    for label in ("bigbench_novel_concepts", "bigbench_strange_stories"):
        assert {example.gold for example in read_examples(options_task(label), folder)} == {0}
    sizes: dict[str | None, int] = {}
    for example in read_examples(options_task("jeopardy"), folder):
        sizes[example.category] = sizes.get(example.category, 0) + 1
    history = {"american_history": 413, "world_history": 373}
    assert sizes == {**history, "literature": 490, "science": 476, "word_origins": 365}


# Draws and wording


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
    alone = render(task_of(replace(entry, num_fewshot=0, delimiter=" so "), "x", None), examples)[0]
    assert (alone.preamble, alone.contexts) == ("", ("a ", "b"))  # no delimiter at all without few-shot examples
    opened = render(task_of(replace(entry, num_fewshot=0, prompt_string="P:", delimiter=" so "), "x", None), examples)[
        0
    ]
    assert (opened.preamble, opened.contexts) == ("P:", ("\na  so", "\nb so"))
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
    categories = {example.row: example.category for example in examples}
    category_by_context = {example.contexts[0]: example.category for example in examples}
    for prompt in few:
        for line in prompt.preamble.split("\nAnswer: "):
            text = line.split("\n")[-1]
            if text in category_by_context:
                assert category_by_context[text] == categories[prompt.row]


# Tokens


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


@pytest.mark.parametrize("spaced", [True, False])
def test_segments_are_tokenized_apart(spaced: bool):
    tokenizer = Prefixing(spaced)
    profile = options_task("arc_easy").profile
    prompt = Prompt(0, 0, ("\nquest", "\nquest"), ("an", " ans"), 0, "shots")
    requests = tokenize([prompt], profile, tokenizer, None, "t")

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    before = [0, *ids("shots"), *ids("\nquest")]  # the EOS behind the few-shot examples is dropped
    texts = (" an", " ans") if spaced else ("an", " ans")
    assert [tokens.tolist() for tokens, _ in requests] == [before + ids(text) for text in texts]
    assert requests.span_start.tolist() == [len(before)] * 2
    # Cut from the left, each option for itself, whatever the spans are.
    cut = tokenize([prompt], profile, tokenizer, 6, "t")
    assert [tokens.tolist() for tokens, _ in cut] == [(before + ids(text))[-6:] for text in texts]
    assert cut.truncated.tolist() == [True, True]
    with pytest.raises(InputError, match="needs one more before it"):
        tokenize([prompt], profile, tokenizer, len(ids(texts[1])), "t")


WORDS = st.text(alphabet="ab .\n", max_size=6)


@settings(max_examples=100)
@given(WORDS, WORDS.filter(bool), st.lists(WORDS.filter(lambda text: bool(text.strip())), min_size=1, max_size=3))
def test_segments_equal_the_twin(preamble: str, context: str, continuations: list[str]):
    profile = options_task("arc_easy").profile
    prompt = Prompt(0, 0, (context,) * len(continuations), tuple(continuations), 0, preamble)
    requests = tokenize([prompt], profile, TINY, None, "t")
    spaced = len(TINY(" a", add_special_tokens=False)["input_ids"]) == 1
    for (tokens, start), text in zip(requests, continuations, strict=True):
        opened = TINY(preamble)["input_ids"]
        opened = opened[:-1] if len(opened) > 1 and opened[-1] == TINY.eos_token_id else opened
        before = [*opened, *TINY(context, add_special_tokens=False)["input_ids"]]
        text = f" {text}" if spaced and not text.startswith(" ") else text
        assert tokens.tolist() == [*before, *TINY(text, add_special_tokens=False)["input_ids"]]
        assert start == len(before)


def test_a_span_without_a_token_before_it_is_an_error():
    class Bare(Prefixing):
        def __call__(self, text: Any, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, Any]:
            return super().__call__(text, add_special_tokens=False)

    prompt = Prompt(0, 7, ("", ""), ("a", "b"), 0)
    with pytest.raises(InputError, match=r"row 7.*no token before it.*no BOS"):
        tokenize([prompt], options_task("copa").profile, Bare(True), None, "t")


def test_answers_have_room_and_prompts_are_cut_at_the_front():
    task = answer_task("triviaqa_sm_sub")
    questions = [
        Question(0, ("who?",), ("abcd",), 0, accepted=("abcd",), room_for=("abcd", "abcdefgh")),
        Question(1, ("x?",), ("a",), 0, accepted=("a",), room_for=("a",)),
    ]
    prompts = render(task, questions, limit=1)
    requests = answer_requests(prompts, questions, task.profile, Prefixing(True), None, "t")
    assert (
        requests.max_new_tokens == 4 + 2
    )  # eight characters in pairs, BOS and EOS counted as the reference counts them
    whole = tokenize_questions(prompts, Prefixing(True))[0]
    assert requests.prompts == [whole]
    cut = answer_requests(prompts, questions, task.profile, Prefixing(True), 9, "t")
    assert (cut.prompts, cut.truncated) == ([whole[-3:]], 1)
    with pytest.raises(InputError, match="longest answer takes 6 tokens"):
        answer_requests(prompts, questions, task.profile, Prefixing(True), 6, "t")
    reasoning = replace(task.profile, extra_tokens=10)
    assert answer_requests(prompts, questions, reasoning, Prefixing(True), None, "t").max_new_tokens == 16


def test_the_length_limit_is_the_suites_unless_asked_otherwise():
    profile = TASKS["copa"].profile
    assert profile.max_length == 1024
    assert LengthLimit(None, None).of(profile) == 1024
    assert LengthLimit(2048, None).of(profile) == 2048
    assert LengthLimit(None, 512).of(profile) == 512
    assert LengthLimit(None, None).of(replace(profile, max_length=None)) is None


# Bad input


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


def test_a_users_own_file_has_no_published_hash(tmp_path: Path):
    content = json.dumps({"context": "a", "continuation": "b"}) + "\n"
    (tmp_path / "x.jsonl").write_text(content)
    task = task_of(IclTask("x", "language_modeling", 0, 0.0, "x.jsonl"), "t", None)
    assert data_state(task, tmp_path) == DataState("no published hash", git_blob_sha1(content.encode()))
    assert read_examples(task, tmp_path) == [Example(0, ("a",), ("b",), 0)]
