"""Requests and tasks of lm-eval, and what makes two answers the same."""

import json
from pathlib import Path
from typing import Any

import lm_eval
import pytest
from lm_eval.api.instance import Instance
from lm_eval.models import huggingface

from tests.support.tolerances import METRIC, METRIC_RELATIVE, TOKEN

# lm-eval's decorators hide what their functions take and give.
hflm: Any = huggingface.HFLM
simple_evaluate: Any = lm_eval.simple_evaluate
evaluate: Any = lm_eval.evaluate

TEXTS = (
    "the sun is hot and the rain is cold", " on a green hill", "where the small hill falls\n\nand the sun",
    "é over ñ ☀ hill", "hot", " ", "the  ", "a\tb\n", "rain rain rain rain", "",
)  # fmt: skip
NAMES = ["own_choice", "own_next", "own_text", "own_write"]


def asked(kind: Any, arguments: list[tuple[Any, ...]]) -> list[Any]:
    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def assert_same(ours: list[tuple[float, bool]], theirs: list[tuple[float, bool]], tokens: list[int]) -> None:
    for (logprob, greedy), (expected, is_greedy), count in zip(ours, theirs, tokens, strict=True):
        assert isinstance(logprob, float)
        assert type(greedy) is bool
        assert abs(logprob - expected) <= TOKEN * max(count, 1)
        assert greedy == is_greedy


def values(results: Any) -> dict[str, float]:
    """Every number of the results but standard errors."""
    return {
        f"{task} {metric}": value
        for task, metrics in results["results"].items()
        for metric, value in metrics.items()
        if isinstance(value, float) and "stderr" not in metric
    }


def assert_same_values(received: Any, expected: Any) -> None:
    assert values(received), "no numbers"
    assert values(received) == pytest.approx(values(expected), rel=METRIC_RELATIVE, abs=METRIC)


def write_tasks(folder: Path) -> Path:
    """A task of each output type (NAMES) and own_shots, with their data."""
    rows = [
        {
            "id": i, "question": f"the sun is {word}", "choices": ["hot", "cold", "green hill", "a rain"], "gold": i % 4,
            "text": f"rain falls on the {word} hill where the sun is {word}", "answer": word,
        }
        for i, word in enumerate(["hot", "cold", "small", "green", "on a hill", "rain", "where", "hot"])
    ]  # fmt: skip
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def metrics(*names: str) -> dict[str, Any]:
        return {"metric_list": [{"metric": name} for name in names]}

    choices = {"output_type": "multiple_choice", "doc_to_choice": "{{choices}}", "doc_to_target": "gold"}
    by_name: dict[str, dict[str, Any]] = {
        "own_choice": {**choices, **metrics("acc", "acc_norm", "acc_mutual_info")},
        "own_shots": {**choices, "num_fewshot": 5},
        "own_next": {"output_type": "loglikelihood", **metrics("perplexity", "acc")},
        "own_text": {
            "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
            **metrics("word_perplexity", "byte_perplexity", "bits_per_byte"),
        },
        "own_write": {
            "output_type": "generate_until", "repeats": 2, **metrics("exact_match"),
            "generation_kwargs": {"until": ["\n"], "max_gen_toks": 6, "do_sample": False},
        },
    }  # fmt: skip
    for name, more in by_name.items():
        task = {
            "task": name, "dataset_path": "json", "test_split": "test", "fewshot_split": "train",
            "dataset_kwargs": {"data_files": {"test": str(data), "train": str(data)}},
            "doc_to_text": "{{question}} and", "doc_to_target": "{{answer}}", **more,
        }  # fmt: skip
        (folder / f"{name}.yaml").write_text(json.dumps(task))  # YAML holds JSON
    return folder
