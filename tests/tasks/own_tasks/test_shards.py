"""Data in several files, and numbers as their file writes them: the same prompts, one digest, or one sentence."""

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from miron_jax.definitions.data_files import data_state, read_examples
from miron_jax.errors import InputError
from miron_jax.tasks import text
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from tests.support.needs import needs

ROWS: list[dict[str, Any]] = [{"q": f"q{i}", "c": ["no", "yes"], "a": i % 2, "text": f"t{i}"} for i in range(5)]
KEYS = "task: t\nquestion: q\nchoices: c\ngold: a\n"


def save_to_disk(folder: Path, *parts: list[Any]) -> None:
    """As Hugging Face's datasets 5.2 does, without what nothing here reads; the last file is not of the data set."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(parts):05}.arrow" for i in range(len(parts))]
    for name, part in zip([*names, "cache-1.arrow"], [*parts, ROWS], strict=True):
        table = pa.Table.from_pylist(part)
        with pa.OSFile(str(folder / name), "wb") as file, ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    state = {"_data_files": [{"filename": name} for name in names], "_indices_files": None, "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text('{"features": {}}')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five rows in two files, of every kind that has several."""
    for i, part in enumerate((ROWS[:3], ROWS[3:])):
        parquet.write_table(pa.Table.from_pylist(part), tmp_path / f"part-{i}.parquet")
        (tmp_path / f"[x] {i}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
        (tmp_path / f"d{i}").mkdir()
        shutil.copy(tmp_path / f"part-{i}.parquet", tmp_path / f"d{i}" / "p.parquet")
    save_to_disk(tmp_path / "dict" / "train", ROWS[:3], ROWS[3:])
    save_to_disk(tmp_path / "dict" / "test", ROWS[:1])
    (tmp_path / "dict" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pa.OSFile(str(tmp_path / "one.arrow"), "wb") as file:
        table = pa.Table.from_pylist(ROWS)
        with ipc.new_file(file, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as whole:
            whole.write_table(table)
    return tmp_path


def read(folder: Path, data: str, keys: str = KEYS) -> tuple[list[Any], str | None]:
    """Examples, and the digest of the data."""
    (folder / "t.yaml").write_text(f"{keys}data: {data}\n")
    [task] = read_suite([str(folder / "t.yaml")]).tasks
    return read_examples(task, folder), data_state(task, folder).git_blob_sha1


@pytest.mark.parametrize(
    "data",
    [
        "part-*.parquet", "part-[01].parquet", "d?/p.parquet", "'**/p.parquet'", "[part-0.parquet, part-1.parquet]",
        "['[x] 0.jsonl', '[x] 1.jsonl']", "'[[]x]*'", "dict/train", "dict/train/data-*.arrow", "one.arrow",
    ],
)  # fmt: skip
def test_files_are_one_after_the_other(data: str, folder: Path) -> None:
    examples, _ = read(folder, data)
    assert [(each.row, each.contexts, each.gold) for each in examples] == [(i, (f"q{i}",), i % 2) for i in range(5)]


def test_the_digest_covers_every_file_and_their_order(folder: Path) -> None:
    first, second = "part-0.parquet", "part-1.parquet"
    digests = [read(folder, f"[{names}]  # {'x' * (30 - len(names))}") for names in (f"{first}, {second}", first)]
    digests += [read(folder, data) for data in (f"[{second}, {first}]", "part-*.parquet", "dict/train")]
    assert [each.contexts[0] for each in digests[2][0]] == ["q3", "q4", "q0", "q1", "q2"]
    shutil.copy(folder / first, folder / second)
    digests.append(read(folder, "part-*.parquet"))
    shutil.copy(folder / "dict/test/data-00000-of-00001.arrow", folder / "dict/train/data-00001-of-00002.arrow")
    digests.append(read(folder, "dict/train"))
    assert len({digest for _, digest in digests}) == len(digests)


@pytest.mark.slow  # datasets takes seconds to import
def test_what_datasets_saves_is_what_it_loads(tmp_path: Path) -> None:
    """Shuffled, with labels of names, in three files."""
    datasets = needs("datasets")
    datasets.disable_progress_bars()
    labels = datasets.ClassLabel(names=["no", "yes"])
    given = datasets.Dataset.from_list(ROWS).cast_column("a", labels).shuffle(seed=1).select([4, 0, 3])
    datasets.DatasetDict({"test": given}).save_to_disk(tmp_path / "dict", num_shards={"test": 3})
    loaded = datasets.load_from_disk(tmp_path / "dict" / "test")
    examples, _ = read(tmp_path, "dict/test")
    assert [(*each.contexts, each.gold) for each in examples] == list(zip(loaded["q"], loaded["a"], strict=True))


def test_lines_of_a_python_files_tasks_are_those_of_an_editor(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("q\nyes\n\nno\n")
    (tmp_path / "t.py").write_text(PYTHON)
    [task] = read_suite([str(tmp_path / "t.py")]).tasks
    with pytest.raises(InputError, match=r"own/copa: .*a\.csv, line 4: a no; mend the line or fetch"):
        read_examples(task, tmp_path)


PYTHON = """
from dataclasses import replace
from miron_jax.definitions.records import DataFile
from miron_jax.tasks import core
def parse(fields, row):
    if fields["q"] == "no":
        raise ValueError("a no")
_copa = next(task for task in core.SUITE.tasks if task.name == "core/copa")
TASK = replace(_copa, name="copa", file=DataFile("a.csv", None, None), parse=parse)
"""


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("no-*.parquet", "data names {}/no-*.parquet, and no file has such a name"),
        ("[part-0.parquet, no.parquet]", "data names {}/no.parquet, and there is no such file"),
        ("[part-1.parquet, part-*.parquet]", "data names {}/part-1.parquet twice, expected once"),
        ("[]", "data is [], expected files that end in .jsonl, .json, .csv, .tsv, .parquet, .arrow, or a hub"),
        ("[1]", "data is [1], expected a list of texts"),
        ('"\\0*"', "and no file has such a name"),
        ("dict", "data names the folder {}/dict: it has the splits test, train: name the folder of one"),
        ("d0", "data names the folder {}/d0: it has no state.json of save_to_disk: name its files, as d0/*"),
        ("[part-0.parquet, one.arrow]", "own/t: {}/part-0.parquet and {}/one.arrow are of two kinds: name one of"),
        ("[part-0.parquet, other.parquet]", "{}/part-0.parquet and {}/other.parquet differ in the columns c, choices"),
        ("[part-0.parquet, bad.parquet]", "own/t: {}/bad.parquet, record 2: gold is 9, expected a place from 0 to 1"),
    ],
)
def test_other_files_are_one_sentence(data: str, sentence: str, folder: Path) -> None:
    others = [{**row, "choices": row["c"]} for row in ROWS]
    parquet.write_table(pa.Table.from_pylist(others).drop_columns("c"), folder / "other.parquet")
    parquet.write_table(pa.Table.from_pylist([ROWS[0], {**ROWS[1], "a": 9}]), folder / "bad.parquet")
    with pytest.raises(InputError) as error:
        read(folder, data)
    assert sentence.replace("{}", str(folder)) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"_data_files": [{"filename": "../test/state.json"}]}, "names 'state.json', which it lacks: save it again"),
        ({"_data_files": [{"filename": "x" * 300}]}, "which it lacks: save it again"),
        ({"_data_files": []}, "names 'train', which it lacks"),
        ({"_data_files": None}, "state.json names no files ('NoneType' object is not iterable): save it again"),
        ([], "state.json names no files (list indices must be"),
        ({"_data_files": [{"filename": "cache-1.arrow"}], "_indices_files": ["a"]}, "its rows have an order of their"),
    ],
)
def test_a_saved_folder_is_whole_or_refused(state: Any, sentence: str, folder: Path) -> None:
    (folder / "dict/train/state.json").write_text(json.dumps(state))
    with pytest.raises(InputError) as error:
        read(folder, "dict/train")
    assert sentence in str(error.value)


def test_saved_folders_are_texts(folder: Path) -> None:
    """One data set is a group, also as the folder itself; of a folder of splits each is one."""

    def texts(of: str) -> dict[str, list[str]]:
        return {
            task.name: [each.text for each in read_examples(task, folder)]
            for task in text.read_suite(folder / of).tasks
        }

    every = [row["text"] for row in ROWS]
    assert texts("dict") == {"text/test": every[:1], "text/train": every}
    assert texts("dict/train") == {"text/train": every}
    (folder / "group").mkdir()
    (folder / "dict").rename(folder / "group" / "dict")
    with pytest.raises(InputError, match="group/dict: it has the splits test, train: name the folder of one"):
        texts("group")


WRITTEN = ["1.50", "3.0", "1e3", "1E-7", "-0", "100000000000000000000.0", "12345678901234567890123", "7", "1e999"]


@pytest.mark.parametrize("name", ["n.jsonl", "n.json"])
def test_numbers_are_texts_as_their_file_writes_them(name: str, tmp_path: Path) -> None:
    """As options, answers, categories and in templates, also in lists; Python has 1.5, 1000.0, 1e-07, 0, 1e+20."""
    row = '{"q": 2.50, "c": [' + ", ".join(WRITTEN) + '], "a": 7, "m": {"x": [0.10, 1e3]}}'
    (tmp_path / name).write_text(f"[{row}, {row}]" if name == "n.json" else f"{row}\n{row}\n")
    keys = KEYS.replace("question: q", 'question: "{{q}} {{m.x | join}} {{m.x[0]}} {{q * 2}}"')
    [example, _] = read(tmp_path, name, keys + "gold_is: text\n")[0]
    assert example.continuations == tuple(WRITTEN)
    assert example.contexts == ("2.50 0.101e3 0.10 5.0",)
    assert example.gold == 7
    assert read(tmp_path, name, keys + "gold_is: place\n")[0][0].gold == 7
    answers = "task: t\nkind: continuation\nquestion: q\nanswer: q\ncategory: q\n"
    [example, _] = read(tmp_path, name, answers)[0]
    assert (example.contexts, example.continuations, example.category) == (("2.50",), ("2.50",), "2.50")
    parquet.write_table(pa.table({"q": [Decimal("2.50")]}), tmp_path / "d.parquet")
    assert read(tmp_path, "d.parquet", answers.replace("category: q\n", ""))[0][0].continuations == ("2.50",)
