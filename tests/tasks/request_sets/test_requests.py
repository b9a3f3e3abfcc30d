"""Frozen request sets: every layout, the token rules, groups, what another program would read, wrong files."""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import render
from miron_jax.tasks.request_sets.requests_suite import read_suite
from miron_jax.tokens.requests import tokenize
from tests.support.command import Place, common, run, samples
from tests.support.tolerances import COMPONENT, FLOAT64, TOKEN
from tests.support.torch_folders import FOLDERS, tokenizer_of, torch_folder

pytestmark = pytest.mark.slow

PAIRS = [
    ("the sun is", " hot", 0), ("the sun is ", "hot", 0), ("on a green", " hill where rain falls", 1), ("", "the sun", 1),
    ("  ", "cold", 2), ("the small hill\n", "é over ñ ☀", 2), ("where", "s", 2),
]  # fmt: skip


def write(folder: Path, rows: list[dict[str, Any]], name: str = "requests.jsonl", **manifest: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    if manifest:
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def plain(pairs: list[tuple[str, str, int]] = PAIRS) -> list[dict[str, Any]]:
    return [
        {"task": f"part {task}", "doc_id": i, "context": context, "continuation": continuation}
        for i, (context, continuation, task) in enumerate(pairs)
    ]


def test_a_set_is_scored_and_its_tasks_are_averaged(miron: Any, place: Place, tmp_path: Path) -> None:
    groups = {
        "by_size": {"of": ["part 0", "part 1"], "weights": "by_size"},
        "all": {"of": ["by_size", "part 2"]},
        "stated": {"of": ["part 0", "part 2"], "weights": {"part 0": 3, "part 2": 1}},
    }
    rows = plain()[:4] + plain()[5:]
    counts = {f"part {i}": 2 for i in range(3)}
    folder = write(tmp_path / "set", rows, version="1", tasks=counts, groups=groups)
    results = run(miron, place.model, tmp_path / "out", f"--requests={folder}")
    value = [results["tasks"][f"requests/part_{i}"]["metrics"]["bits_per_byte"]["value"] for i in range(3)]
    for i, mean in enumerate(value):
        each = [sample["metrics"]["bits_per_byte"] for sample in samples(tmp_path / "out", f"requests/part_{i}")]
        assert mean == pytest.approx(sum(each) / len(each), rel=FLOAT64), "the mean of its questions"
    composites = {name: composite["value"] for name, composite in results["suites"]["requests"]["composites"].items()}
    by_size = (value[0] + value[1]) / 2
    expected = {"by_size": by_size, "all": (by_size + value[2]) / 2, "stated": (3 * value[0] + value[2]) / 4}
    assert composites == pytest.approx(expected, rel=FLOAT64)
    option = samples(tmp_path / "out", "requests/part_0")[1]["options"][0]
    bits = samples(tmp_path / "out", "requests/part_0")[1]["metrics"]["bits_per_byte"]
    assert bits == pytest.approx(-option["logprob"] / math.log(2) / len("hot"), rel=FLOAT64), "bytes as they stand"
    same = samples(tmp_path / "out", "requests/part_0")[0]["options"][0]
    assert option["token_logprobs"] == same["token_logprobs"], "the space belongs to the continuation"


def test_layouts_of_others_hold_the_same_requests(miron: Any, place: Place, tmp_path: Path) -> None:
    choices = [(" hot", 1), (" cold", 1), (" green", 1)]
    olmo = [
        {"task_name": "a:rc", "doc_id": 0, "label": gold, "request": {"context": "the sun is", "continuation": text}}
        for text, gold in choices
    ]
    write(tmp_path / "olmo" / "deep", olmo, "task-000-a-requests.jsonl")
    unconditional = [("", text) for text, _ in choices]
    arguments = {
        f"gen_args_{i}": {"arg_0": context, "arg_1": text}
        for i, (context, text) in enumerate([*(("the sun is", text) for text, _ in choices), *unconditional])
    }
    row = {"doc_id": 0, "doc": {"q": 1}, "target": "1", "arguments": arguments, "resps": [], "metrics": ["acc"]}
    write(tmp_path / "lm_eval" / "model", [row], "samples_a_2026-11-25T20-00-00.123456.jsonl")
    rows = [
        {"task": "a", "doc_id": 0, "context": "the sun is", "continuation": text, "gold": gold}
        for text, gold in choices
    ]
    write(tmp_path / "plain", rows)
    found = []
    for name, task in (("plain", "a"), ("olmo", "a:rc"), ("lm_eval", "a")):
        results = run(miron, place.model, tmp_path / f"out_{name}", f"--requests={tmp_path / name}")
        assert results["tasks"][f"requests/{task}"]["main"] == "accuracy"
        found += samples(tmp_path / f"out_{name}", f"requests/{task}")
    assert [sample["gold"] for sample in found] == [1, 1, 1]
    assert found[0]["options"] == found[1]["options"] == found[2]["options"]
    assert len(found[0]["options"]) == 3


def test_saved_requests_are_scored_alike(miron: Any, place: Place, tmp_path: Path) -> None:
    """`--save_requests` of tasks by lm-eval's rules, shots included, then `--requests`: the same log-probabilities."""
    rows = [
        {"q": f"the {word} hill is", "choices": ["hot", "cold rain"], "a": i % 2}
        for i, word in enumerate(["sun", "on"])
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({**row, "n": n}) + "\n" for n in range(3) for row in rows))
    own = {"data": "rows.jsonl", "question": "q", "rules": "lm_eval", "num_fewshot": 2}
    (tmp_path / "choose.yaml").write_text(json.dumps({"task": "choose", "choices": "choices", "gold": "a", **own}))
    more = {"task": "say/so", "kind": "continuation", "answer": "{{choices[a]}}", **own}
    (tmp_path / "say.yaml").write_text(json.dumps(more))
    run(miron, place.model, tmp_path / "out", f"--task_path={tmp_path}", "--save_requests")
    run(miron, place.model, tmp_path / "again", f"--requests={tmp_path / 'out' / 'requests'}")
    for task in ("own/choose", "own/say/so"):
        before, again = (
            samples(tmp_path / "out", task),
            samples(tmp_path / "again", f"requests/{task.replace('/', '_')}"),
        )
        assert len(before) == len(again) == 6
        for one, other in zip(before, again, strict=True):
            assert one["gold"] == other["gold"]
            for option, same in zip(one["options"], other["options"], strict=True):
                assert option["token_logprobs"] == pytest.approx(same["token_logprobs"], abs=TOKEN)


def test_saved_requests_of_core(miron: Any, place: Place, tmp_path: Path) -> None:
    ran = miron("eval", *common(place, tmp_path / "out", "--save_requests", "--limit=4"))
    assert ran.status == 0, ran.err
    folder = tmp_path / "out" / "requests"
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sum(manifest["tasks"].values()) == len(rows)
    assert set(manifest["tasks"]) == {"core/copa", "core/arc_easy", "core/winograd", "core/lambada_openai"}
    keys = {"task", "doc_id", "context", "continuation"}
    assert {frozenset(row) for row in rows} == {frozenset(keys), frozenset({*keys, "gold"})}, "Marin's, and choices"
    for sample in samples(tmp_path / "out", "core/copa"):
        pairs = [row for row in rows if (row["task"], row["doc_id"]) == ("core/copa", sample["id"])]
        assert [pair["gold"] for pair in pairs] == [sample["gold"]] * 2
        for pair, option in zip(pairs, sample["options"], strict=True):
            assert (pair["context"] + pair["continuation"]).endswith(option["text"])


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch, which computes the twin")
@pytest.mark.parametrize("kind", FOLDERS)
def test_fifty_one_components_against_a_twin_in_float64(miron: Any, tmp_path: Path, kind: str) -> None:
    """Marin's parity: every component within 2e-7 bits a byte of the same weights in float64, tokenized one by one."""
    model = torch_folder(kind, tmp_path / "model")
    words = ["the sun", "on a hill", "green", "rain falls ", "é ñ ☀", "", "hot\n", "where  "]
    rng = np.random.default_rng(5)
    rows = []
    for i in range(51 * (60 if kind == "llama" else 15)):  # llama's large head makes large errors: means of more
        context, continuation = (" ".join(rng.choice(words, rng.integers(few, few + 4))) for few in (0, 2))
        rows.append({"task": f"c{i % 51}", "doc_id": i, "context": context, "continuation": f" {continuation}"})
    folder = write(tmp_path / "set", rows)
    results = run(miron, model, tmp_path / "out", f"--requests={folder}")
    twin = _components(model, rows)
    assert len(twin) == 51
    for name, expected in twin.items():
        value = results["tasks"][f"requests/{name}"]["metrics"]["bits_per_byte"]["value"]
        assert abs(value - expected) <= COMPONENT, name
    macro = results["suites"]["requests"]["composites"]["macro_mean"]["value"]
    assert abs(macro - sum(twin.values()) / 51) <= COMPONENT


def _components(folder: Path, rows: list[dict[str, Any]]) -> dict[str, float]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    first = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    by_task: dict[str, list[float]] = {}
    for row in rows:
        context = row["context"].rstrip()
        whole = tokenizer(row["context"] + row["continuation"], add_special_tokens=False)["input_ids"]
        start = len(tokenizer(context, add_special_tokens=False)["input_ids"])
        if start >= len(whole):  # a token reaches over the boundary
            alone = tokenizer(context, add_special_tokens=False)["input_ids"]
            start = next(i for i, token in enumerate(whole) if alone[i] != token)
        before = [tokenizer.bos_token_id] if first or not context else []
        ids = torch.tensor([[*before, *whole]])
        with torch.no_grad():
            logprobs = model(ids).logits.double().log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
        total = float(logprobs[start + len(before) - 1 :].sum())
        bits = -total / math.log(2) / len(row["continuation"].encode())
        by_task.setdefault(row["task"], []).append(bits)
    return {name: sum(each) / len(each) for name, each in by_task.items()}


def test_lm_evals_files(tmp_path: Path) -> None:
    """A line for each filter is one question; a target of digits is a place, another one a text; two runs are refused."""

    def row(target: str, name: str) -> dict[str, Any]:
        arguments = {f"gen_args_{i}": {"arg_0": "one or", "arg_1": f" {text}"} for i, text in enumerate("123")}
        return {"doc_id": 0, "target": target, "arguments": arguments, "filter": name}

    write(tmp_path / "a", [row("1", "none"), row("1", "strict")], "samples_a_2026-11-25T20-00-00.1.jsonl")
    [task] = read_suite(tmp_path / "a").tasks
    [example] = read_examples(task, tmp_path)
    assert (example.gold, example.continuations) == (1, (" 1", " 2", " 3"))
    write(tmp_path / "b", [row("3", "none")], "samples_a_2026-11-25T20-00-00.1.jsonl")
    assert read_examples(read_suite(tmp_path / "b").tasks[0], tmp_path)[0].gold == 2, "no place 3: the text"
    write(tmp_path / "a", [row("1", "none")], "samples_a_2026-11-26T20-00-00.1.jsonl")
    with pytest.raises(InputError, match="holds the task a too: leave one of them"):
        read_suite(tmp_path / "a")


def test_saved_requests_of_the_gauntlet_have_its_spaces(miron: Any, place: Place, tmp_path: Path) -> None:
    """Its contexts end without the space that the tokenizer's words want: the continuation brings it."""
    flags = (
        f"--data_dir={place.data}",
        "--allow_changed_data",
        "--tasks=gauntlet/arc_easy",
        "--limit=2",
        "--save_requests",
    )
    run(miron, place.model, tmp_path / "out", *flags)
    rows = [json.loads(line) for line in (tmp_path / "out/requests/requests.jsonl").read_text().splitlines()]
    assert rows
    assert all(row["continuation"].startswith(" ") and not row["context"].endswith(" ") for row in rows)


def test_a_context_that_begins_with_bos_gets_no_second_one(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("llama")
    rows = [
        {"task": "a", "doc_id": 0, "context": "<s>the sun is", "continuation": " hot"},
        {"task": "a", "doc_id": 1, "context": "the sun is", "continuation": " hot"},
        {"task": "a", "doc_id": 2, "context": "", "continuation": "<s>the sun"},
    ]
    [task] = read_suite(write(tmp_path / "set", rows)).tasks
    requests = tokenize(render(task, read_examples(task, tmp_path)), task.profile, tokenizer, None, "a")
    first, second, third = (ids.tolist() for ids, _ in requests)
    assert first == second
    assert first[0] == tokenizer.bos_token_id
    assert third.count(tokenizer.bos_token_id) == 1
    assert int(requests.span_start[2]) == 1


ONE = {"task": "a", "doc_id": 0, "context": "the sun is", "continuation": " hot"}


@pytest.mark.parametrize(
    ("rows", "manifest", "sentence"),
    [
        ([{**ONE, "continuation": ""}], {}, "line 1: field 'continuation' is empty"),
        ([ONE, {"task": "a"}], {}, "line 2: field 'context' is missing"),
        ([{**ONE, "doc_id": None}], {}, "field 'doc_id' holds None, expected a whole number or a text"),
        ([ONE, {**ONE, "continuation": " cold"}], {}, "has 2 requests, and the right one is None: expected `gold`"),
        (
            [{**ONE, "gold": 2}, {**ONE, "gold": 2, "continuation": " x"}],
            {},
            "the right one is 2: expected `gold` from 0 to 1",
        ),
        ([ONE], {"tasks": {"a": 2}}, "it counts 2 requests of 'a', there are 1"),
        ([ONE], {"tasks": {"a": 1, "b": 3}}, "it counts 3 requests of 'b', there are 0"),
        (
            [ONE],
            {"groups": {"g": {"of": ["aa"]}}},
            "which is no task and no earlier group: did you mean 'a'",
        ),
        ([ONE], {"groups": {"a": {"of": ["a"]}}}, "group 'a' has the name of a task"),
        ([ONE], {"groups": {"g": {"of": ["a", "a"]}}}, "holds a member twice"),
        (
            [ONE],
            {"groups": {"g": {"of": ["a"], "weights": {"a": -1}}}},
            "the weight of 'a' is -1, expected equal, by_size",
        ),
        ([ONE], {"groups": {"g": {"of": []}}}, "is of \\[\\], expected a list"),
        ([ONE], {"groups": [1]}, "groups is \\[1\\], expected names"),
        ([ONE, ONE], {}, "doc_id 0 of a has this request twice"),
        ([], {}, "is empty"),
    ],
)
def test_wrong_sets_are_one_sentence(
    tmp_path: Path, rows: list[dict[str, Any]], manifest: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        read_suite(write(tmp_path / "set", rows, **manifest))


def test_groups_of_different_metrics_and_folders_without_requests(tmp_path: Path) -> None:
    choice = [{**ONE, "task": "b", "gold": 0}, {**ONE, "task": "b", "gold": 0, "continuation": " x"}]
    both = write(tmp_path / "set", [ONE, *choice])
    assert set(read_suite(both).composites({})) == {"macro_mean_accuracy", "macro_mean_bits_per_byte"}
    with pytest.raises(InputError, match="mixes accuracy with bits per byte, which requests/a has"):
        read_suite(write(both, [ONE, *choice], groups={"g": {"of": ["a", "b"]}}))
    with pytest.raises(InputError, match="there is no such folder"):
        read_suite(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has none of requests"):
        read_suite(tmp_path / "empty")
    rolling = {"doc_id": 0, "target": "x", "arguments": {"gen_args_0": {"arg_0": "a text", "arg_1": {"until": []}}}}
    with pytest.raises(InputError, match="completions and whole documents are no request set"):
        read_suite(write(tmp_path / "write", [rolling], "samples_a_2026.jsonl"))
