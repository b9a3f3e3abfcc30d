"""Faults that people reported of files as they come: readers of lines, tables and texts.  README.md lists the reports."""

import json
from pathlib import Path

import pytest

from miron_jax.definitions.data_files import located_rows
from miron_jax.errors import InputError
from miron_jax.tasks import text
from miron_jax.tasks.request_sets.requests_suite import read_suite
from tests.support.own_task import CHOICE, read_task

SEPARATORS = "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg"  # str.splitlines ends a line at each


def test_a_line_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    """huggingface/tau#354, bytedance/deer-flow#5423: U+2028 and its like stand unescaped in JSON, and cut records in two."""
    text_of_it = SEPARATORS.translate({0x0B: None, 0x0C: None, 0x1C: None})  # JSON escapes those three
    row = json.dumps({"q": text_of_it, "c": ["x", "y"], "a": "x"}, ensure_ascii=False)
    _, examples = read_task(tmp_path, CHOICE, f"{row}\r\n{row}\n")
    assert [example.contexts for example in examples] == [(text_of_it,)] * 2
    table = located_rows(f"q,a\n{SEPARATORS},x\n".encode(), Path("x.csv"), "t").records
    assert table == [{"q": SEPARATORS, "a": "x"}]
    documents = tmp_path / "texts"
    documents.mkdir()
    (documents / "x.jsonl").write_text(json.dumps({"text": text_of_it}, ensure_ascii=False) + "\n")
    [task] = text.read_suite(documents).tasks
    assert task.examples is not None
    assert [document.text for document in task.examples(Path())] == [text_of_it]
    (tmp_path / "set").mkdir()
    request = {"task": "t", "doc_id": 0, "context": text_of_it, "continuation": " x"}
    (tmp_path / "set" / "requests.jsonl").write_text(json.dumps(request, ensure_ascii=False) + "\n")
    [task] = read_suite(tmp_path / "set").tasks
    assert task.examples is not None
    assert [example.contexts for example in task.examples(Path())] == [(text_of_it,)]


def test_words_for_nothing_are_words_in_a_table(tmp_path: Path) -> None:
    """open-compass/VLMEvalKit#1559: pandas took the option "None" for a missing value; 35 right ones were not shown."""
    words = ["None", "NA", "N/A", "null", "nan", "NULL", "<NA>", "-", "1.0", "007"]
    keys = CHOICE.replace("choices: c", "choices: ['{{c}}', '{{d}}']").replace("task: x", "task: x\ngold_is: text")
    table = "q,c,d,a\n" + "".join(f"q,{word},y,{word}\n" for word in words)
    _, examples = read_task(tmp_path, keys, table, "x.csv")
    assert [example.continuations[0] for example in examples] == words
    assert {example.gold for example in examples} == {0}


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_a_long_document_fits_a_table(name: str) -> None:
    """biolab/orange3#2404, cldf/csvw#69: Python's reader stops at 131,072 characters."""
    between = "," if name == "x.csv" else "\t"
    for long in ("x" * 131_073, "x \n" * 100_000):
        [row] = located_rows(f'q{between}a\n"{long}"{between}y\n'.encode(), Path(name), "t").records
        assert row == {"q": long, "a": "y"}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ('He said "hi"\tx\n"She said\ty\nSo\tz\n', "unexpected end of data"),
        ('"She said\tx\n"So\ty\n', "expected after '\"'"),
        ('a\t"x\nb\ty"\nc\tz\n', "line 2: quotation marks take in tabs and further lines"),
        ('a\t"x\nb\ty\nc\tz"\nd\tw\n', "line 2: quotation marks take in tabs and further lines"),
    ],
)
def test_a_quotation_mark_swallows_no_rows(lines: str, sentence: str) -> None:
    """pytorch/text#612, #349, facebookresearch/pytext#376: rows up to the next mark became one value, without a word."""
    with pytest.raises(InputError) as error:
        located_rows(f"q\ta\n{lines}".encode(), Path("x.tsv"), "t")
    assert sentence in str(error.value)
    kept = 'He said "hi"\tx\n"""She said"\ty\n"one\nvalue"\tz\n"with\ttab"\tw\n'
    assert [row["q"] for row in located_rows(f"q\ta\n{kept}".encode(), Path("x.tsv"), "t").records] == [
        'He said "hi"', '"She said', "one\nvalue", "with\ttab",
    ]  # fmt: skip


@pytest.mark.parametrize("content", ["a\r\nb\r\n", "a\n\n b ", "\u0451\U0001f600\r", "a\ufeffb"])
def test_a_document_is_the_text_of_its_file(content: str, tmp_path: Path) -> None:
    """NVDLI/LDL#3, NatLibFi/Annif#307: a byte order mark became the first word.  All other bytes are the document's."""
    for folder, mark in (("plain", b""), ("marked", b"\xef\xbb\xbf")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_bytes(mark + content.encode())
        [task] = text.read_suite(tmp_path / folder).tasks
        assert task.examples is not None
        assert [document.text for document in task.examples(Path())] == [content]


def test_a_group_is_the_same_in_one_file_or_in_shards(tmp_path: Path) -> None:
    """karpathy/nanochat#541: the loss on "the last shard" was another number with another number of shards."""
    lines = [json.dumps({"text": f"document {i}", "id": f"d{i}"}) + "\n" for i in range(7)]
    (tmp_path / "one" / "g").mkdir(parents=True)
    (tmp_path / "three" / "g").mkdir(parents=True)
    (tmp_path / "one" / "g" / "all.jsonl").write_text("".join(lines))
    for shard, part in enumerate((lines[:3], lines[3:4], lines[4:])):
        (tmp_path / "three" / "g" / f"{shard}.jsonl").write_text("".join(part))
    both = []
    for folder in ("one", "three"):
        [task] = text.read_suite(tmp_path / folder).tasks
        assert task.examples is not None
        both.append((task.name, task.examples(Path())))
    assert both[0] == both[1]
