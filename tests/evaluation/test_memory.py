"""Rows in memory, in the layout of CORE's files: `Evaluator(data={task: rows})`."""

import json
from pathlib import Path
from typing import Any

import pytest

import miron_jax
from miron_jax.definitions.data_files import read_examples
from miron_jax.errors import InputError
from miron_jax.evaluation.memory import inputs_of
from miron_jax.prompting.prompts import render
from miron_jax.tasks.core import SUITE
from tests.support.own_models import of_nnx, users_promotion
from tests.support.tiny_model import make_tokenizer, write_core_data

__all__ = ["users_promotion"]  # a fixture that every test here uses

ROWS = [{"query": f"the hill is {i}", "choices": ["hot", "cold"], "gold": i % 2} for i in range(4)]
HILLS = {"rows": ROWS, "type": "multiple_choice", "num_fewshot": 2, "delimiter": "\nAnswer: "}


def test_rows_of_a_known_task_ask_as_its_file_does(tmp_path: Path) -> None:
    """nanochat's evaluate_task takes the list of a file's dicts: the same examples, the same shots."""
    path = write_core_data(tmp_path) / "eval_data/world_knowledge/arc_easy.jsonl"
    rows = [*map(json.loads, path.read_text().splitlines())]
    inputs = inputs_of({"core/arc_easy": rows})
    [source] = inputs.sources
    assert [suite.name for suite in inputs.suites] == ["core"]
    published = next(task for task in SUITE.tasks if task.name == "core/arc_easy")
    examples = read_examples(published, tmp_path / "eval_data", True)
    assert source.examples == examples
    assert render(source.task, source.examples) == render(published, examples)


def test_rows_of_another_name_are_asked_by_cores_rules() -> None:
    """Shots are divided by a blank line, and the delimiter stands before each answer; gold of row i is i mod 2."""
    [source] = inputs_of({"hills": HILLS}).sources
    prompt = next(prompt for prompt in render(source.task, source.examples) if prompt.row == 0)
    blocks = (prompt.preamble + prompt.contexts[0]).split("\n\n")
    assert blocks[2] == "the hill is 0\nAnswer: "
    shots = {f"the hill is {i}\nAnswer: {('hot', 'cold')[i % 2]}" for i in (1, 2, 3)}
    assert set(blocks[:2]) < shots
    assert (prompt.continuations, prompt.gold) == (("hot", "cold"), 0)


@pytest.mark.slow
def test_an_evaluator_scores_rows_in_memory(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    evaluator = miron_jax.Evaluator(of_nnx(params=None), str(tmp_path), data={"hills": HILLS, "core/copa": ROWS})
    results = evaluator.run(of_nnx(0).params)
    assert {name: (task["n"], task["data"]["state"]) for name, task in results["tasks"].items()} == {
        "hills": (4, "no published hash"),
        "core/copa": (4, "no published hash"),
    }
    assert results["tasks"]["core/copa"]["data"]["published_rows"] == 100


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"core/copa": ROWS[0]}, "data: core/copa holds"),
        ({"core/copa": []}, "data: core/copa holds [], expected a list of dicts"),
        ({"core/copa": [{**ROWS[0], "gold": 2}]}, "data: core/copa, row 0: field 'gold' holds 2"),
        ({"core/copa": [{**ROWS[0], "x": {1}}]}, "its rows are no JSON"),
        ({"hills": ROWS}, "hills is no task of this program, and its rows is None: give a dict of rows, type"),
        ({"hills": {**HILLS, "num_fewshot": "2"}}, "its num_fewshot is '2'"),
        ({"hills": {**HILLS, "type": "choice"}}, "type is 'choice', expected one of multiple_choice"),
        ({"miron/en": ROWS}, "miron/en has no rows of one file"),
    ],
)
def test_rows_that_cannot_be_read_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        inputs_of(data)
    assert message in str(refused.value)


def test_data_takes_the_place_of_tasks() -> None:
    with pytest.raises(InputError, match="leave tasks out"):
        miron_jax.Evaluator("demo", tasks=["core"], data={"hills": HILLS})
