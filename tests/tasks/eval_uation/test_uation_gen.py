"""eval-ua-tion-gen: the sets lack the known faults of the published ones; second solvers agree with all answers."""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from miron_jax.definitions.data_files import data_state, git_blob_sha1, read_examples
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import render
from miron_jax.tasks.generators.eval_uation_gen import sets, suite, table
from tests.support.uation_gen_rows import BY_NAME, ROWS, items, meta

# ---------------------------------------------------------------------------------------- what holds for every set


@pytest.mark.parametrize("name", BY_NAME)
def test_the_bytes_are_those_of_every_other_machine(name: str) -> None:
    """The hash in the code is that of the Python it was written with; CI runs this on another version too, and every
    interpreter has a hash seed of its own."""
    for split, blob in BY_NAME[name].splits.items():
        assert git_blob_sha1(table.jsonl(ROWS[name][split])) == blob, split
        assert table.frozen_rows(name, split) == ROWS[name][split], split


@pytest.mark.parametrize("name", BY_NAME)
def test_rows_satisfy_their_guarantees(name: str) -> None:
    """B.7: 160 of 400 rows of CATS-BIN came more than once; Cyrillic templates had a Latin y and a Latin A."""
    questions = []
    for split in ROWS[name]:
        for item, fields in zip(items(name, split), ROWS[name][split], strict=True):
            texts = fields.get("options") or fields.get("similar_titles") or item.options
            assert len({text.casefold() for text in texts}) == len(texts) >= 2
            assert name[:4] != "lmes" or name == "lmes_catsbin" or item.answer == fields["correctAnswer"]
            prose = " ".join(str(fields.get(key, "")) for key in ("question", "context", "ukr_text", "ukr_title"))
            assert unicodedata.is_normalized("NFC", prose)
            assert not re.search("[A-Za-z]", prose)
            questions.append(item.ask)
    assert len(set(questions)) == len(questions)  # in few-shot examples too


# --------------------------------------------------------------------------------------------------- trivial baselines


# Each gives a number to every option: the first largest is guessed.
TRIVIAL: dict[str, Callable[[Sequence[str], str], Sequence[Any]]] = {
    "first": lambda texts, before: [0] * len(texts),
    "last": lambda texts, before: range(len(texts)),
    "longest": lambda texts, before: [len(text) for text in texts],
    "shortest": lambda texts, before: [-len(text) for text in texts],
    "most_frequent": lambda texts, before: [before.count(text) for text in texts],
    "copied": lambda texts, before: [before.rfind(text) for text in texts],
}


@pytest.mark.parametrize("guess", TRIVIAL)
@pytest.mark.parametrize("name", BY_NAME)
def test_trivial_guesses_stay_at_chance(name: str, guess: str) -> None:
    train, right = items(name), []
    for item, fields in zip(train, ROWS[name]["train"], strict=True):
        texts = fields.get("options") or fields.get("similar_titles") or item.options
        # What the options come from: the question (story); in LOW the word.
        values = TRIVIAL[guess](texts, meta(fields, "word_raw") or item.before or item.ask)
        right.append(max(range(len(values)), key=values.__getitem__) == item.gold)
    chance = [1 / len(item.options) for item in train]
    error = math.sqrt(sum(p * (1 - p) for p in chance)) / len(chance)
    # 54 tests at chance: one of them exceeds 3.7 standard errors either way once in 80 sets.
    assert abs(sum(right) / len(right) - sum(chance) / len(chance)) <= 3.7 * error


# ------------------------------------------------------------------------------------------------------ files and suites


@pytest.mark.slow
def test_files_are_written_once_and_read_like_published_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path))
    folder = table.locate(None)
    assert folder == tmp_path / "eval-ua-tion-gen" / table.VERSION
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")}
    assert len(before) == 16
    assert table.locate(None, False) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")} == before
    for task in (*suite.GEN.tasks, suite.GEN_TEXT.tasks[-1]):
        assert data_state(task, folder).state == "as published"
        examples = read_examples(task, folder)
        assert len(examples) == task.file.rows
        prompts = render(task, examples, 5)
        shots = 0 if task.name.endswith("_cloze") else 3
        assert [prompt.num_shots for prompt in prompts] == [shots] * 5
        assert not task.human
        assert task.chance is not None
        assert task.chance(examples).keys() <= {"random", "most_frequent"}
    (folder / "lmes_low/train.jsonl").write_text("{}\n")
    low = next(task for task in suite.GEN.tasks if task.name.endswith("lmes_low"))
    with pytest.raises(InputError, match="is not the published file"):
        read_examples(low, folder)
    (folder / "lmes_wis/fewshot.jsonl").write_text("{}\n")
    wis = next(task for task in suite.GEN.tasks if task.name.endswith("lmes_wis"))
    with pytest.raises(InputError, match=r"is not what this program writes.*remove the folder"):
        read_examples(wis, folder)
    # Only changed files, such as those of an earlier version, are made anew.
    assert table.locate(None) == folder
    assert len(read_examples(low, folder)) == len(read_examples(wis, folder)) == 2000
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")}
    assert {path.parent.name for path in after if after[path] != before[path]} == {"lmes_low", "lmes_wis"}
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_export_has_every_set_twice(tmp_path: Path) -> None:
    paths = sets.export(tmp_path)
    assert len(paths) == 32
    assert {path.suffix for path in paths} == {".jsonl", ".parquet"}
    for lines, rows_file in zip(paths[::2], paths[1::2], strict=True):
        rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
        parquet_rows = parquet.read_table(rows_file).to_pylist()
        assert [{k: v for k, v in row.items() if v is not None} for row in parquet_rows] == rows
    assert table.locate(tmp_path / "eval-ua-tion-gen") == tmp_path / "eval-ua-tion-gen"
