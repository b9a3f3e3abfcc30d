"""Data files as editors and programs write them: rows with their lines, or one sentence."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from miron_jax.definitions.data_files import located_rows
from miron_jax.errors import InputError

ROWS = [{"q": "a"}, {"q": "b"}]


@pytest.mark.parametrize(
    ("name", "content", "numbers"),
    [
        ("a.jsonl", '\ufeff{"q": "a"}\r\n{"q": "b"}\r\n', [1, 2]),
        ("a.jsonl", '\n{"q": "a"}\n \n\n{"q": "b"}\n\n', [2, 5]),
        ("a.jsonl", '{"q": "a"}\n{"q": "b"}', [1, 2]),
        ("a.json", '\ufeff[{"q": "a"},\r\n\r\n{"q": "b"}]\r\n', [1, 2]),
        ("a.json", '\ufeff{"q": "a"}\r\n\r\n{"q": "b"}\r\n', [1, 3]),  # a record a line
        ("a.json", '\ufeff{"q": {"0": "a", "1": "b"}}', [1, 2]),  # a table by columns
        ("a.csv", "\ufeffq\r\na\r\n\r\nb\r\n", [2, 4]),
    ],
)
def test_byte_order_marks_and_blank_lines_are_no_rows(name: str, content: str, numbers: list[int]) -> None:
    rows = located_rows(content.encode(), Path(name), "t")
    assert (rows.records, list(rows.numbers)) == (ROWS, numbers)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "a.jsonl",
            '{"q": "a"}\n\n{"q": "b", "q": "c"}',
            r"a\.jsonl, line 3: the key 'q' stands twice in \{'q': 'c'\}",
        ),
        ("a.jsonl", '{"q": [{"r": 1, "r": 1}]}', r"line 1: the key 'r' stands twice in \{'r': 1\}, expected once"),
        ("a.json", '{"q": "a"}\n{"q": "b", "q": "c"}', "line 2: the key 'q' stands twice"),
        ("a.json", '[{"q": "a"}, {"q": "b", "q": "c"}]', "cannot be read .the key 'q' stands twice in .'q': 'c'."),
        ("a.jsonl", '{"q": "a"}\r{"q": "b"}\r', "line 1: found no valid JSON .Extra data"),  # old Macs' line ends
        ("a.jsonl", "\ufeff\n \r\n", "a.jsonl is empty"),
    ],
)
def test_a_key_twice_is_refused_with_its_line(name: str, content: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        located_rows(content.encode(), Path(name), "t")


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pa.nulls(10**9), "cannot be read .it has more than 30000000 values.: fetch the file again"),
        (pa.ListArray.from_arrays(pa.array([0, 10**9], pa.int32()), pa.nulls(10**9)), "more than 30000000 values"),
        (pa.array([2**62], pa.timestamp("us")), "cannot be read .date value out of range."),
        (pa.array([1], pa.timestamp("us", "Mars/X")), "cannot be read ..Mars/X.."),
        (pa.array([b"\xff"]).view(pa.string()), "Invalid UTF8"),
    ],
)
def test_columns_that_have_no_rows_are_refused(column: Any, sentence: str) -> None:
    """The first two have 400 bytes."""
    for columns, reason in ({"a": column}, sentence), ({"a": pa.array([1]), "b": pa.array([1])}, "two columns have"):
        table = pa.table(columns)
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, pa.schema([field.with_name("a") for field in table.schema])) as writer:
            writer.write_table(table.rename_columns(["a"] * table.num_columns))
        with pytest.raises(InputError, match=reason):
            located_rows(stream.getvalue().to_pybytes(), Path("a.arrow"), "t")
