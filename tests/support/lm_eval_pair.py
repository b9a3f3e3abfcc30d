"""What the tests of the lm-eval adapter share: the same weights here and in HFLM, and a task of each output type."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="needs lm-eval, which the extra lm-eval installs")
pytest.importorskip("torch", reason="needs torch, with which HFLM computes")

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.models import huggingface
from lm_eval.tasks import TaskManager

from miron_jax.lm_eval import MironLM
from tests.support.tolerances import TOKEN
from tests.support.torch_folders import FOLDERS, torch_folder

# lm-eval's decorators hide what their functions take and give.
hflm: Any = huggingface.HFLM
simple_evaluate: Any = lm_eval.simple_evaluate
evaluate: Any = lm_eval.evaluate

TEXTS = (
    "the sun is hot and the rain is cold", " on a green hill", "where the small hill falls\n\nand the sun",
    "é over ñ ☀ hill", "hot", " ", "the  ", "a\tb\n", "rain rain rain rain", "",
)  # fmt: skip


@pytest.fixture(scope="module", params=FOLDERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[MironLM, Any]:
    """The same weights here and in HFLM.

    Its `logits_cache` answers requests whose tokens are equal as one, wherever their continuations begin: "the  " + "hot"
    and "the " + " hot" then get one sum, of two tokens and of one.  In a batch a completion goes on behind its EOS until all
    have ended, and its text has what came then.
    """
    folder = torch_folder(request.param, tmp_path_factory.mktemp(request.param))
    theirs = hflm(pretrained=str(folder), dtype="float32", device="cpu", batch_size=1, logits_cache=False)
    return MironLM(str(folder)), theirs


def asked(kind: Any, arguments: list[tuple[Any, ...]]) -> list[Any]:
    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def assert_same(ours: list[tuple[float, bool]], theirs: list[tuple[float, bool]], tokens: list[int]) -> None:
    for (logprob, greedy), (expected, is_greedy), count in zip(ours, theirs, tokens, strict=True):
        assert isinstance(logprob, float)
        assert type(greedy) is bool
        assert abs(logprob - expected) <= TOKEN * max(count, 1)
        assert greedy == is_greedy


def write_task(folder: Path, name: str, output_type: str, **more: Any) -> None:
    rows = [
        {
            "question": f"the sun is {word}", "choices": ["hot", "cold", "green hill", "a rain"], "gold": i % 4,
            "text": f"rain falls on the {word} hill where the sun is {word}", "answer": word,
        }
        for i, word in enumerate(["hot", "cold", "small", "green", "on a hill", "rain", "where"] * 2)
    ]  # fmt: skip
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps({**row, "id": i}) + "\n" for i, row in enumerate(rows)))
    task = {
        "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data), "train": str(data)}},
        "test_split": "test", "fewshot_split": "train", "output_type": output_type, "doc_to_text": "{{question}} and",
        "doc_to_target": "{{answer}}", **more,
    }  # fmt: skip
    (folder / f"{name}.yaml").write_text(json.dumps(task))  # YAML holds JSON


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> TaskManager:
    """One task of each output type, in local files."""
    folder = tmp_path_factory.mktemp("tasks")
    choices = {"doc_to_choice": "{{choices}}", "doc_to_target": "gold"}
    metrics = [{"metric": each} for each in ("acc", "acc_norm", "acc_mutual_info")]
    write_task(folder, "own_choice", "multiple_choice", **choices, metric_list=metrics)
    write_task(folder, "own_shots", "multiple_choice", **choices, num_fewshot=5)
    write_task(folder, "own_next", "loglikelihood", metric_list=[{"metric": "perplexity"}, {"metric": "acc"}])
    rolling = [{"metric": each} for each in ("word_perplexity", "byte_perplexity", "bits_per_byte")]
    write_task(
        folder, "own_text", "loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}", metric_list=rolling
    )
    generation = {"until": ["\n"], "max_gen_toks": 6, "do_sample": False}
    exact = [{"metric": "exact_match"}]
    write_task(folder, "own_write", "generate_until", generation_kwargs=generation, metric_list=exact, repeats=2)
    return TaskManager(include_path=str(folder), include_defaults=False)


NAMES = ["own_choice", "own_shots", "own_next", "own_text", "own_write"]


def values(results: Any) -> dict[str, float]:
    return {
        f"{task} {metric}": value
        for task, metrics in results["results"].items()
        for metric, value in metrics.items()
        if isinstance(value, float) and "stderr" not in metric
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_folder("llama", tmp_path_factory.mktemp("llama"))
