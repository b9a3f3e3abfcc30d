"""eval-ua-tion-gen: the sets lack the known faults of the published ones; second solvers agree with all answers."""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from miron_jax.definitions.data_files import data_state, git_blob_sha1, read_examples
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.prompting.prompts import render
from miron_jax.tasks.eval_uation.records import Item
from miron_jax.tasks.generators.eval_uation_gen import sets, suite
from miron_jax.tasks.generators.eval_uation_gen.words import alphabet_key
from tests.support.uation_gen_rows import BY_NAME, LMES, ROWS, SPLITS, items, meta

# ---------------------------------------------------------------------------------------- what holds for every set


def test_sizes() -> None:
    for name in LMES:
        assert len(ROWS[name]["train"]) >= 2000
        assert len(ROWS[name]["fewshot"]) == 100
    assert {name: len(files["train"]) for name, files in ROWS.items() if name not in LMES} == {
        "ua_cbt": 1020, "up_masked": 1000, "up_unmasked": 1000,
    }  # fmt: skip
    assert len(ROWS["ua_cbt"]["fewshot"]) == 30


@pytest.mark.parametrize("name", ROWS)
def test_the_bytes_are_those_of_every_other_machine(name: str) -> None:
    """The hash in the code is that of the Python it was written with; CI runs this on another version too, and every
    interpreter has a hash seed of its own."""
    assert git_blob_sha1(sets.jsonl(ROWS[name]["train"])) == BY_NAME[name].file.git_blob_sha1


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_gold_is_one_of_the_options_and_no_two_are_alike(name: str, split: str) -> None:
    for item, fields in zip(items(name, split), ROWS[name][split], strict=True):
        folded = [option.casefold() for option in item.options]
        assert len(set(folded)) == len(folded) >= 2
        texts = texts_of(item, fields)
        assert len({text.casefold() for text in texts}) == len(texts)
        if name in LMES and name != "lmes_catsbin":
            assert item.answer == fields["correctAnswer"]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_no_question_comes_twice(name: str, split: str) -> None:
    """B.7: 160 of 400 rows of CATS-BIN and 34 of 200 of CATS-MC came more than once."""
    questions = [item.ask for item in items(name, split)]
    assert len(set(questions)) == len(questions)


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_one_script_and_one_form_of_unicode(name: str, split: str) -> None:
    """B.7: Cyrillic templates had a Latin y and a Latin A."""
    for fields in ROWS[name][split]:
        texts = [value for value in fields.values() if isinstance(value, str)]
        assert all(unicodedata.is_normalized("NFC", text) for text in texts)
        prose = [str(fields.get(key, "")) for key in ("question", "context", "ukr_text", "ukr_title")]
        assert not re.search("[A-Za-z]", " ".join(prose)), prose


def test_few_shot_examples_share_nothing_with_questions() -> None:
    shared = {
        "lmes_low": {meta(row, "word_raw") for row in ROWS["lmes_low"]["train"]},
        "lmes_wordalpha": {meta(row, f"option_{i}") for row in ROWS["lmes_wordalpha"]["train"] for i in (0, 1)},
        "lmes_catsmc": {word for row in ROWS["lmes_catsmc"]["train"] for word in meta(row, "all_options")},
    }
    assert not shared["lmes_low"] & {meta(row, "word_raw") for row in ROWS["lmes_low"]["fewshot"]}
    assert not shared["lmes_wordalpha"] & {
        meta(r, f"option_{i}") for r in ROWS["lmes_wordalpha"]["fewshot"] for i in (0, 1)
    }
    assert not shared["lmes_catsmc"] & {
        word for row in ROWS["lmes_catsmc"]["fewshot"] for word in meta(row, "all_options")
    }
    assert not {item.cluster for item in items("lmes_wis")} & {item.cluster for item in items("lmes_wis", "fewshot")}
    for name in ("lmes_catsbin", "lmes_wordlength"):
        words_of = [{word for item in items(name, split) for word in item.cluster.split(": ")[-1].split()} for split in
                    ("train", "fewshot")]  # fmt: skip
        assert not words_of[0] & words_of[1]
    contexts = [{row["context"] for row in ROWS["ua_cbt"][split]} for split in ("train", "fewshot")]
    assert len(contexts[0]) == 170
    assert not contexts[0] & contexts[1]


# --------------------------------------------------------------------------------------------------- trivial baselines


def texts_of(item: Item, fields: JsonObject) -> Sequence[str]:
    return fields.get("options") or fields.get("similar_titles") or item.options


def read_before(item: Item, fields: JsonObject) -> str:
    """What the options come from: the question (story); in LOW the word."""
    return meta(fields, "word_raw") or item.before or item.ask


def words_shared(texts: Sequence[str]) -> list[int]:
    """Of each option, the words (letters, where options are words) that it shares with the others."""
    parts = [set(text.lower().split() if " " in text else text) for text in texts]
    return [sum(len(part & other) for other in parts) for part in parts]


def same_lengths(texts: Sequence[str]) -> list[int]:
    lengths = [len(text) for text in texts]
    return [lengths.count(length) for length in lengths]


# Each gives a number to every option: the first largest is guessed.
TRIVIAL: dict[str, Callable[[Sequence[str], str], Sequence[Any]]] = {
    "first": lambda texts, before: [0] * len(texts),
    "last": lambda texts, before: range(len(texts)),
    "longest": lambda texts, before: [len(text) for text in texts],
    "shortest": lambda texts, before: [-len(text) for text in texts],
    "most_frequent": lambda texts, before: [before.count(text) for text in texts],
    "copied": lambda texts, before: [before.rfind(text) for text in texts],
    "alphabetical": lambda texts, before: [text == min(texts, key=alphabet_key) for text in texts],
    "of_common_length": lambda texts, before: same_lengths(texts),
    "central": lambda texts, before: words_shared(texts),
}


@pytest.mark.parametrize("guess", TRIVIAL)
@pytest.mark.parametrize("name", ROWS)
def test_trivial_guesses_stay_at_chance(name: str, guess: str) -> None:
    train, right = items(name), []
    for item, fields in zip(train, ROWS[name]["train"], strict=True):
        values = TRIVIAL[guess](texts_of(item, fields), read_before(item, fields))
        right.append(max(range(len(values)), key=values.__getitem__) == item.gold)
    chance = [1 / len(item.options) for item in train]
    error = math.sqrt(sum(p * (1 - p) for p in chance)) / len(chance)
    # 72 tests at chance: one of them exceeds 3.7 standard errors either way once in 60 sets.
    assert abs(sum(right) / len(right) - sum(chance) / len(chance)) <= 3.7 * error


# ------------------------------------------------------------------------------------------------------ files and suites


@pytest.mark.slow
def test_files_are_written_once_and_read_like_published_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path))
    monkeypatch.setattr(sets.Generated, "files", lambda generated: ROWS[generated.name])
    folder = sets.locate(None)
    assert folder == tmp_path / "eval-ua-tion-gen" / sets.VERSION
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")}
    assert len(before) == 16
    assert sets.locate(None, False) == folder
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
    assert sets.locate(None) == folder
    assert len(read_examples(low, folder)) == len(read_examples(wis, folder)) == 2000
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")}
    assert {path.parent.name for path in after if after[path] != before[path]} == {"lmes_low", "lmes_wis"}
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_export_has_every_set_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets.Generated, "files", lambda generated: ROWS[generated.name])
    paths = sets.export(tmp_path)
    assert len(paths) == 32
    assert {path.suffix for path in paths} == {".jsonl", ".parquet"}
    for lines, table in zip(paths[::2], paths[1::2], strict=True):
        rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
        parquet_rows = parquet.read_table(table).to_pylist()
        assert [{k: v for k, v in row.items() if v is not None} for row in parquet_rows] == rows
    assert sets.locate(tmp_path / "eval-ua-tion-gen") == tmp_path / "eval-ua-tion-gen"


def test_chance_of_letters_and_words_is_named_by_its_formula() -> None:
    """The mean over rows of 1 / (different letters), not 1 / (mean letters)."""
    task = next(task for task in suite.GEN.tasks if task.name.endswith("lmes_low"))
    assert task.chance is not None
    examples = [task.parse(row, i) for i, row in enumerate(ROWS["lmes_low"]["train"])]
    assert task.chance(examples)["random"] == pytest.approx(np.mean([1 / len(i.options) for i in items("lmes_low")]))
