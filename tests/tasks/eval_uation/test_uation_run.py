"""Eval-UA-tion from rows to results on a tiny model: every metric against a plain implementation of the scoring."""

import json
import math
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import AnswerProfile, Task
from miron_jax.engine.model import load_model
from miron_jax.engine.plain import score_plainly
from miron_jax.evaluation.records import Inputs
from miron_jax.files.readers import JsonObject
from miron_jax.inputs import find_inputs
from miron_jax.prompting.prompts import render
from miron_jax.report.console import console
from miron_jax.report.output import write_results
from miron_jax.report.robustness_table import print_robustness
from miron_jax.report.run_folder import read_runs
from miron_jax.run import evaluate
from miron_jax.task_kinds.interface import Source
from miron_jax.tasks.eval_uation.suite import SUITE, TEXT
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.tiny_model import make_model
from tests.support.tolerances import FLOAT64, TOKEN
from tests.support.uation_records import write

pytestmark = pytest.mark.slow

LIMIT = 2
ROOM = 4096  # tokens, more than any prompt here has: the models were trained at fewer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("uation") / "model")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("uation") / "data")


def run(model: Path, data: Path, output: Path, tasks: tuple[str, ...], **settings: Any) -> JsonObject:
    folders = tuple(
        (suite, str(data)) for suite in ("eval-ua-tion", "eval-ua-tion-text", "eval-ua-tion-text-refcompat")
    )
    config = RunConfig(str(model), tasks, data_dir=folders, output=str(output), **{"max_length": ROOM, **settings})
    return write_results(config, evaluate(config, find_inputs(config)), 1.0)


def samples(output: Path, name: str) -> list[JsonObject]:
    return [json.loads(line) for line in (output / "samples" / f"{name}.jsonl").read_text().splitlines()]


def plain(model: Path, pairs: list[tuple[str, str]]) -> list[tuple[float, bool]]:
    """(sum of log p, greedy) of each continuation; it begins after as many tokens as its context alone has."""
    tokenizer, loaded = load_tokenizer(str(model)), load_model(model, "float32")
    whole = [np.asarray(tokenizer(context + continuation)["input_ids"], np.int32) for context, continuation in pairs]
    starts = [len(tokenizer(context)["input_ids"]) for context, _ in pairs]
    by_pair: dict[int, tuple[float, bool]] = {}
    with jax.default_matmul_precision("highest"):
        for part in np.array_split(np.argsort([len(ids) for ids in whole], kind="stable"), 4):  # of like lengths
            scored, _ = score_plainly(loaded, [whole[i] for i in part], [starts[i] for i in part])
            sums = [(float(one.logprob.sum(dtype=np.float64)), bool((one.margin >= 0).all())) for one in scored]
            by_pair |= dict(zip(part.tolist(), sums, strict=True))
    return [by_pair[i] for i in range(len(pairs))]


def first_largest(values: list[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_every_number_against_the_plain_way(every: int, model: Path, data: Path, tmp_path: Path) -> None:
    results = run(model, data, tmp_path, ("eval-ua-tion",), limit=LIMIT)
    prompts_of = {task.name: render(task, read_examples(task, data), LIMIT)[:1] for task in SUITE.tasks[::every]}
    pairs = [
        (prompt.preamble + context, continuation)
        for prompts in prompts_of.values()
        for prompt in prompts
        for context, continuation in zip(prompt.contexts, prompt.continuations, strict=True)
    ]
    scores = iter(plain(model, pairs))
    for task in SUITE.tasks[::every]:
        assert isinstance(task, Task)
        prompts = prompts_of[task.name]
        cloze = task.name.endswith("_cloze")
        for prompt, sample in zip(prompts, samples(tmp_path, task.name)[:1], strict=True):
            expected_logprobs, num = list(islice(scores, len(prompt.contexts))), len(sample["options"])
            sums, beside = [logprob for logprob, _ in expected_logprobs[:num]], expected_logprobs[num:]
            lengths = [len(text.strip()) for text in prompt.continuations[:num]]
            assert [option["logprob"] for option in sample["options"]] == pytest.approx(sums, abs=TOKEN * max(lengths))
            neutral = [logprob for logprob, _ in beside[0 if cloze else 2 :]]
            assert sample["neutral_logprobs"] == pytest.approx(neutral, abs=TOKEN * max(lengths))
            by_sum, by_char = first_largest(sums), first_largest([a / b for a, b in zip(sums, lengths, strict=True)])
            gain = first_largest([a - b for a, b in zip(sums, neutral, strict=True)])
            expected = {
                "accuracy": float((by_char if cloze else by_sum) == prompt.gold),
                "accuracy_sum": float(by_sum == prompt.gold),
                "accuracy_char": float(by_char == prompt.gold),
                "accuracy_pmi": float(gain == prompt.gold),
            }
            assert {name: sample["metrics"][name] for name in expected} == expected
            assert cloze or sample["metrics"]["greedy_exact"] == float(beside[0][1] or beside[1][1])
            assert sample["num_shots"] == (0 if cloze else 3)
        entry = results["tasks"][task.name]
        assert entry["robustness"]["metrics"]["accuracy"]["value"] == entry["metrics"]["accuracy"]["value"]
        assert entry["baselines"]["random"] == pytest.approx(
            np.mean([1 / (len(p.contexts) - p.num_extra) for p in render(task, read_examples(task, data))]), abs=FLOAT64
        )
    human = results["tasks"]["eval-ua-tion/lmes_low"]["baselines"]
    assert (human["human"], human["random_published"]) == (0.97, 0.0943)
    assert results["tasks"]["eval-ua-tion/up_masked_refcompat"]["baselines"]["human"] is None
    assert results["tasks"]["eval-ua-tion/ua_cbt"]["baselines"]["most_frequent"] == 0.5


def test_greedy_exact_is_what_greedy_generation_writes(data: Path, tmp_path: Path) -> None:
    """The demo model ends its words with a full stop, so its completions serve as gold and the full stop as the ending."""
    name = "eval-ua-tion-text/lmes_catsmc"
    run(Path("demo"), data, tmp_path / "text", (name,), limit=3, steps="latest")
    texts = [sample["generated"].strip() for sample in samples(tmp_path / "text", name)]
    assert all(text.endswith(".") and text[:-1].isalpha() for text in texts), texts
    task = next(task for task in SUITE.tasks if task.name == "eval-ua-tion/lmes_catsmc")
    task = replace(task, profile=replace(task.profile, endings=("!", ".")))  # the second is what it writes
    for gold, expected in ((None, 1.0), ("ложка", 0.0)):
        config = RunConfig(
            "demo", (task.name,), limit=3, steps="latest", max_length=ROOM, output=str(tmp_path / "unused")
        )
        examples = [
            replace(example, continuations=(f" {gold or text[:-1]}", " дуб"), gold=0)
            for example, text in zip(read_examples(task, data), texts, strict=False)
        ]
        inputs = Inputs([Source(task, examples, DataState("no published hash", None))], {}, [])
        [scores] = evaluate(config, inputs).tasks
        assert [score.metrics["greedy_exact"] for score in scores.examples if score] == [expected] * 3


def test_results_count_the_shots_that_fit(model: Path, data: Path, tmp_path: Path) -> None:
    tasks = ("eval-ua-tion/lmes_low", "eval-ua-tion-text/lmes_low")
    whole = run(model, data, tmp_path / "whole", tasks)
    assert [whole["tasks"][name]["num_shots"] for name in tasks] == [{"3": 12}] * 2
    short = run(model, data, tmp_path / "short", tasks, max_length=None)  # the length that the model was trained at
    assert all(set(short["tasks"][name]["num_shots"]) < {"0", "1", "2"} for name in tasks)
    tokenizer = load_tokenizer(str(model))
    for name in tasks:
        task = next(task for suite in (SUITE, TEXT) for task in suite.tasks if task.name == name)
        assert isinstance(task, Task)
        prompts = render(task, read_examples(task, data))
        if isinstance(task.profile, AnswerProfile):
            texts = [[prompt.preamble + prompt.contexts[0]] for prompt in prompts]
            answers = [
                len(tokenizer(f" {example.accepted[0]}\n")["input_ids"]) for example in read_examples(task, data)
            ]
            beyond = max(answers) + task.profile.extra_tokens
        else:
            texts = [
                [prompt.preamble + a + b for a, b in zip(prompt.contexts, prompt.continuations, strict=True)]
                for prompt in prompts
            ]
            beyond = 0
        lengths = [max(len(tokenizer(text)["input_ids"]) for text in group) for group in texts]
        median = sorted(lengths)[len(lengths) // 2 - 1]
        cut = run(model, data, tmp_path / "cut", (name,), max_length=median + beyond)
        expected = [3 if length <= median else 2 for length in lengths]
        assert [sample["num_shots"] for sample in samples(tmp_path / "cut", name)] == expected
        assert cut["tasks"][name]["num_shots"] == {"2": expected.count(2), "3": expected.count(3)}
        assert cut["tasks"][name]["truncated"] == 0  # no token was cut, examples were left out whole


def test_both_text_suites(model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = ("eval-ua-tion-text/lmes_catsbin", "eval-ua-tion-text-refcompat/lmes_catsbin")
    results = run(model, data, tmp_path, tasks, limit=LIMIT)
    for name in tasks:
        entry = results["tasks"][name]
        assert entry["n"] == LIMIT
        assert entry["reference"]["gpt-4-1106-preview"] == 0.86
        assert entry["robustness"]["cluster"] == "categories and words"
        for sample in samples(tmp_path, name):
            assert sample["metrics"]["accuracy"] == float(sample["answer"] == sample["accepted"][0])
            assert sample["traits"]["gold"] == sample["accepted"][0]
    profiles = [results["tasks"][name]["profile"] for name in tasks]
    assert [profile["answer_normalizer"] for profile in profiles] == ["ukrainian", "lm_eval"]
    assert profiles[1]["stop"] == ["\n", "</s>"]
    print_robustness(console(), *read_runs([str(tmp_path)]))
    assert "eval-ua-tion-text/lmes_catsbin: accuracy" in capsys.readouterr().out
    assert not math.isnan(results["tasks"][tasks[0]]["metrics"]["accuracy"]["value"])
