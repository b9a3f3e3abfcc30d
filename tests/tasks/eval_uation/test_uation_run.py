"""Eval-UA-tion from rows to results on a tiny model: every metric against a plain implementation of the scoring."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import Example, Question
from miron_jax.engine.model import load_model
from miron_jax.engine.plain import score_plainly
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.run_result import finished_run
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.files.readers import JsonObject
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.report.tables.console import console
from miron_jax.report.tables.robustness import print_robustness
from miron_jax.results.document import run_json
from miron_jax.results.run_folder import read_runs
from miron_jax.results.writing import write_finished
from miron_jax.runtime.timeline import Timeline
from miron_jax.tasks.eval_uation.suite import SUITE
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.tolerances import FLOAT64, TOKEN
from tests.support.uation_records import TASKS, catsmc, make_uation_model, write

pytestmark = pytest.mark.slow

LIKE_ANOTHER = ("/lmes_wordlength", "/up_unmasked", "/up_masked_refcompat")  # tasks of the same shape as another one
ROOM = 1024  # tokens, more than any prompt here has: the models were trained at fewer


class Files(NamedTuple):
    model: Path
    data: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("uation")
    data = write(folder / "data")
    return Files(make_uation_model(folder / "model", data), data)


def run(files: Files, output: Path, *tasks: str, **settings: Any) -> JsonObject:
    folders = tuple(
        (name, str(files.data)) for name in ("eval-ua-tion", "eval-ua-tion-text", "eval-ua-tion-text-refcompat")
    )
    config = RunConfig(
        str(files.model), tasks, data_dir=folders, output=str(output), **{"max_length": ROOM, **settings}
    )
    return run_json(write_finished(config, finished_run(config, evaluate(config, find_inputs(config))), Timeline().lap))


def samples(output: Path, name: str) -> list[JsonObject]:
    return [json.loads(line) for line in (output / "samples" / f"{name}.jsonl").read_text().splitlines()]


def plain(model: Path, prompts: Sequence[Prompt]) -> list[tuple[float, bool]]:
    """(sum of log p, greedy) of each continuation; it begins after as many tokens as its context alone has."""
    tokenizer, loaded = load_tokenizer(str(model)), load_model(model, "float32")
    pairs = [
        (prompt.preamble + context, continuation)
        for prompt in prompts
        for context, continuation in zip(prompt.contexts, prompt.continuations, strict=True)
    ]
    whole = [np.asarray(tokenizer(context + continuation)["input_ids"], np.int32) for context, continuation in pairs]
    starts = [len(tokenizer(context)["input_ids"]) for context, _ in pairs]
    with jax.default_matmul_precision("highest"):
        scored, _ = score_plainly(loaded, whole, starts)
    return [(float(one.logprob.sum(dtype=np.float64)), bool((one.margin >= 0).all())) for one in scored]


def first_largest(values: list[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def test_every_number_against_the_plain_way(files: Files, tmp_path: Path) -> None:
    results = run(files, tmp_path, "eval-ua-tion", limit=2)
    tasks = [task for task in SUITE.tasks if not task.name.endswith(LIKE_ANOTHER)]
    everything = {task.name: render(task, read_examples(task, files.data)) for task in tasks}
    scores = iter(plain(files.model, [prompts[0] for prompts in everything.values()]))
    for name, prompts in everything.items():
        prompt, sample, entry = prompts[0], samples(tmp_path, name)[0], results["tasks"][name]
        cloze = name.endswith("_cloze")
        expected_logprobs, num = list(islice(scores, len(prompt.contexts))), len(sample["options"])
        sums, beside = [logprob for logprob, _ in expected_logprobs[:num]], expected_logprobs[num:]
        lengths = [len(text.removeprefix(" ")) for text in prompt.continuations[:num]]
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
        assert {metric: sample["metrics"][metric] for metric in expected} == expected, name
        assert prompt.gold is not None
        num_bytes = len(prompt.continuations[prompt.gold].encode()) - 1  # the space is the delimiter
        bits = pytest.approx(-sums[prompt.gold] / math.log(2) / num_bytes, abs=TOKEN * max(lengths))
        assert sample["metrics"]["bits_per_byte"] == bits, name
        assert cloze or sample["metrics"]["greedy_exact"] == float(beside[0][1] or beside[1][1])
        assert (sample["num_shots"], entry["num_shots"]) == ((0, {"0": 2}) if cloze else (3, {"3": 2})), name
        assert entry["robustness"]["metrics"]["accuracy"]["value"] == entry["metrics"]["accuracy"]["value"]
        chance = np.mean([1 / (len(each.contexts) - each.num_extra) for each in prompts])
        assert entry["baselines"]["random"] == pytest.approx(chance, abs=FLOAT64)
    human = results["tasks"]["eval-ua-tion/lmes_low"]["baselines"]
    assert (human["human"], human["random_published"]) == (0.97, 0.0943)
    assert results["tasks"]["eval-ua-tion/up_masked_refcompat"]["baselines"]["human"] is None
    assert results["tasks"]["eval-ua-tion/ua_cbt"]["baselines"]["most_frequent"] == 0.5


def test_greedy_exact_is_what_greedy_generation_writes() -> None:
    """The demo model ends its words with a full stop, so its completions serve as gold and the full stop as the ending."""

    def scored(name: str, examples: list[Example], **rules: Any) -> Outcome:
        task = replace(TASKS[name], profile=replace(TASKS[name].profile, **rules))
        config = RunConfig("demo", (name,), steps="latest", output="unused")
        return evaluate(config, Inputs([LoadedTask(task, examples, DataState("no published hash", None))], {}, []))

    questions = [TASKS["eval-ua-tion-text/lmes_catsmc"].parse(catsmc(i), i) for i in range(2)]
    [written] = scored("eval-ua-tion-text/lmes_catsmc", [replace(each, shots=()) for each in questions]).tasks
    texts = [str(example.generated).strip() for example in written.kind.example_results(written)]
    assert all(text.index(".") == len(text) - 1 > 0 for text in texts), texts
    examples = [TASKS["eval-ua-tion/lmes_catsmc"].parse(catsmc(i), i) for i in range(2)]
    right, wrong = (
        [
            replace(example, row=row + 2 * k, continuations=(f" {gold}", " дуб"), gold=0, shots=())
            for row, (example, gold) in enumerate(zip(examples, golds, strict=True))
        ]
        for k, golds in enumerate(([text[:-1] for text in texts], ["вікно"] * 2))
    )
    # The second ending is what the model writes.
    [scores] = scored("eval-ua-tion/lmes_catsmc", [*right, *wrong], endings=("!", ".")).tasks
    assert [score.metrics["greedy_exact"] for score in scores.example_scores if score] == [1.0, 1.0, 0.0, 0.0]


def test_shots_that_fit_and_both_text_suites(files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = ("eval-ua-tion/lmes_wis", "eval-ua-tion-text/lmes_low")
    texts = ("eval-ua-tion-text/lmes_catsbin", "eval-ua-tion-text-refcompat/lmes_catsbin")
    tokenizer = load_tokenizer(str(files.model))

    def num_tokens(text: str) -> int:
        return len(tokenizer(text)["input_ids"])

    needed: dict[str, list[list[int]]] = {}  # tokens of each prompt with no shot to three shots, and what follows it
    for name in cut:
        task = TASKS[name]
        examples = read_examples(task, files.data)
        accepted = [text for each in examples if isinstance(each, Question) for text in each.accepted]
        room = max((num_tokens(f" {text}\n") + task.profile.extra_tokens for text in accepted), default=0)
        needed[name] = [
            [
                room + max(num_tokens("".join(prompt.shots[first:]) + a + b) for a, b in pairs)
                for first in range(len(prompt.shots), -1, -1)
            ]
            for prompt in render(task, examples)
            for pairs in [list(zip(prompt.contexts, prompt.continuations, strict=True))]
        ]
    limit = max(lengths[3] for lengths in needed[cut[1]]) - 1
    results = run(files, tmp_path, *cut, *texts, max_length=limit)
    for name in cut:
        expected = [max(n for n in range(4) if lengths[n] <= limit) for lengths in needed[name]]
        assert {*expected} == ({2, 3} if name == cut[1] else {2})
        assert [sample["num_shots"] for sample in samples(tmp_path, name)] == expected
        entry = results["tasks"][name]
        assert entry["num_shots"] == {str(shots): expected.count(shots) for shots in sorted({*expected})}
        assert entry["truncated"] == 0  # no token was cut, examples were left out whole
    for name in texts:
        entry = results["tasks"][name]
        assert entry["n"] == 12
        assert entry["reference"]["gpt-4-1106-preview"] == 0.86
        assert entry["robustness"]["cluster"] == "categories and words"
        for sample in samples(tmp_path, name):
            assert sample["metrics"]["accuracy"] == float(sample["answer"] == sample["accepted"][0])
            assert sample["traits"]["gold"] == sample["accepted"][0]
        assert not math.isnan(entry["metrics"]["accuracy"]["value"])
    profiles = [results["tasks"][name]["profile"] for name in texts]
    assert [profile["answer_normalizer"] for profile in profiles] == ["ukrainian", "lm_eval"]
    assert profiles[1]["stop"] == ["\n", "</s>"]
    print_robustness(console(), *read_runs([str(tmp_path)]))
    assert "eval-ua-tion-text/lmes_catsbin: accuracy" in capsys.readouterr().out
