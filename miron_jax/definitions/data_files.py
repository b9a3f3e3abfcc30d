"""A task's data file: its comparison with the published one, and its examples.

Arrives: a task and the folder of its suite's files.  Leaves: `DataState` and the task's examples.
It deliberately does not know what an example means; the task's `parse` does.
"""

import codecs
import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from miron_jax.definitions.records import AnyExample, AnyTask, Task
from miron_jax.errors import InputError
from miron_jax.files.hub import commit_of
from miron_jax.files.readers import Json, JsonObject, RepeatedKey, parse_json
from miron_jax.files.regular import read_regular, unpacked

if TYPE_CHECKING:
    import pyarrow

ParsedRow = TypeVar("ParsedRow")
FETCH_AGAIN = "fetch the file again"
csv.field_size_limit(2**31 - 1)  # Python's own, 131,072 characters, is below a long document's
FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow")
MOST_VALUES = 30_000_000  # of a .parquet or .arrow file; published benchmarks have below a million
# records, the unit that is counted, and the number of each
_Read = tuple[list[Json], str, Sequence[int]]


class DataState(NamedTuple):
    """A task's file compared with the published one; only scores on the published one bear the
    suite's name."""

    state: Literal["missing", "as published", "changed", "no published hash", "generated"]
    git_blob_sha1: str | None  # of the file on disk
    commit: str | None = None  # of the hub's data set, if it was fetched from there
    labels: str | None = None  # as `git_blob_sha1`: of people's answers to its examples


class Located(NamedTuple):
    """A file's records and where each of them begins."""

    records: list[JsonObject]
    unit: str  # what the numbers count
    numbers: Sequence[int]  # of each record, from 1


def data_state(task: AnyTask, folder: Path | None) -> DataState:
    """Compares the file in `folder` with its published hash."""
    if task.file is None:
        return DataState("generated", None)
    path = task.file.below(folder or Path())
    if not path.exists():
        return DataState("missing", None)
    sha1 = _sha1_of(task, path)
    if further := getattr(task, "made_of", ()):
        hashes = [sha1, *(_sha1_of(task, each) for each in further if each.exists())]
        sha1 = git_blob_sha1("\n".join(hashes).encode())
    if task.file.git_blob_sha1 is None:
        one = next((file for file in sorted(path.rglob("*")) if file.suffix in FORMATS), path)
        return DataState("no published hash", sha1, commit_of(one))
    return DataState(
        "as published" if sha1 == task.file.git_blob_sha1 else "changed", sha1, commit_of(path)
    )


def _sha1_of(task: AnyTask, path: Path) -> str:
    """The hash of a file as git has it; of a folder, that of the names and hashes of the files
    below it."""
    if not path.is_dir():
        return git_blob_sha1(_read_bytes(task, path))
    names: list[str] = []
    for file in filter(Path.is_file, sorted(path.rglob("*"))):
        name = file.relative_to(path)
        if not any(part.startswith(".") for part in name.parts):
            names.append(f"{name} {git_blob_sha1(_read_bytes(task, file))}\n")
    return git_blob_sha1("".join(names).encode())


def read_examples(task: Task, folder: Path, allow_changed: bool = False) -> list[AnyExample]:
    """All examples of a task in file order.  Raises InputError for a changed file unless
    `allow_changed`."""
    path = task.file.below(folder)
    if task.examples is not None:
        if task.file.git_blob_sha1 is not None and not allow_changed:
            _check_published(task, path, _sha1_of(task, path))
        return task.examples(folder)
    content = _read_bytes(task, path)
    if not allow_changed:
        _check_published(task, path, git_blob_sha1(content))
    if path.suffix == ".gz":
        try:
            content = unpacked(content)
        except ValueError as error:
            raise InputError(
                f"{task.name}: {path} cannot be read ({error!s:.120}): {task.file.remedy}"
            ) from None
    rows = located_rows(content, path, task.name, task.file.rows, task.file.remedy)
    remedy = f"; mend the {rows.unit} or {task.file.remedy}"
    examples = parse_each(rows, task.parse, f"{task.name}: {path}", remedy)
    if task.arrange is None:
        return examples
    return task.arrange(examples, folder, task.profile.fewshot_draw)


def _check_published(task: Task, path: Path, sha1: str) -> None:
    if sha1 != (task.file.git_blob_sha1 or sha1):
        raise InputError(
            f"{task.name}: {path} is not the published file (git blob {sha1}, expected "
            f"{task.file.git_blob_sha1}): {task.file.remedy}, or pass --allow_changed_data to "
            "score it without the suite's name"
        )


def parse_each(
    rows: Located,
    parse: Callable[[JsonObject, int], ParsedRow],
    at: str,
    remedy: str,
    first: int = 0,
) -> list[ParsedRow]:
    """Every row parsed, counted from `first`, which may raise ValueError; raises InputError with
    `at`, the place of the row and `remedy`."""
    parsed = []
    for row, (record, number) in enumerate(zip(rows.records, rows.numbers, strict=True), first):
        try:
            parsed.append(parse(record, row))
        except ValueError as error:
            raise InputError(f"{at}, {rows.unit} {number}: {error}{remedy}") from None
    return parsed


def located_rows(
    content: bytes,
    path: Path,
    task_name: str,
    num_rows: int | None = None,
    remedy: str = FETCH_AGAIN,
) -> Located:
    """The JSON objects of a data file: one per line; a .json file may also be one array, or a table
    written by columns.  A row of a .csv, .tsv, .parquet or .arrow file is an object of its columns.

    A file without a published number of rows may have blank lines.  Raises InputError, which names
    the line.
    """
    try:
        read = _READERS[path.suffix](content) if path.suffix in _READERS else None
    except ValueError as error:
        raise InputError(f"{task_name}: {path} cannot be read ({error!s:.120}): {remedy}") from None
    is_by_line = read is None
    has_escapes = b"\\u" in content
    records, unit, numbers = _lines(content, skips_blank=num_rows is None) if read is None else read
    if not records:
        raise InputError(
            f"{task_name}: {path} is empty, expected {num_rows or 'at least 1'} lines: {remedy}"
        )
    checked = []
    for record, number in zip(records, numbers, strict=True):
        try:
            checked.append(_json_object(record) if is_by_line else _checked(record, has_escapes))
        except ValueError as error:
            raise InputError(
                f"{task_name}: {path}, {unit} {number}: {error}; mend the {unit} or {remedy}"
            ) from None
    return Located(checked, unit, numbers)


def _lines(content: bytes, skips_blank: bool) -> tuple[list[bytes], str, Sequence[int]]:
    # at "\n" alone: str.splitlines also splits at U+0085 and U+2028, which texts have
    lines = content.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").split(b"\n")
    if not content:
        lines = []
    numbers = [i + 1 for i, line in enumerate(lines) if line.strip() or not skips_blank]
    return [lines[number - 1] for number in numbers], "line", numbers


def _checked(record: Json, has_escapes: bool) -> JsonObject:
    if not isinstance(record, dict):
        raise ValueError(f"found a JSON {type(record).__name__}, expected one JSON object")
    if has_escapes and _has_lone_surrogate(record):
        raise ValueError("a text of it holds half a surrogate pair, expected whole characters")
    return record


def _has_lone_surrogate(value: Json) -> bool:
    r"""Whether a text in a JSON value cannot be UTF-8: JSON may write \ud83d alone."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return True
    return False


def _records(content: bytes) -> _Read | None:
    """The records of a file that is one JSON value; None: it is not one, so it has a record per
    line."""
    try:
        parse_json(content)
    except ValueError:
        return None
    value = parse_json(content, of_records=True)
    if isinstance(value, list):
        return _in_order(value)
    columns = list(value.values()) if isinstance(value, dict) else []
    if columns and all(
        isinstance(column, dict) and column.keys() == columns[0].keys() for column in columns
    ):
        return _in_order(
            [{name: column[row] for name, column in value.items()} for row in columns[0]]
        )
    return _in_order([value])


def _in_order(records: list[Json]) -> _Read:
    return records, "record", range(1, len(records) + 1)


def _table(content: bytes, delimiter: str) -> _Read:
    """The rows of a table with a first line of column names; all values are texts.

    Values are divided by semicolons where the first line has a semicolon and no comma: spreadsheets
    write such files where a comma stands before fractions.
    """
    text = content.decode("utf-8-sig")
    first = text.partition("\n")[0]
    if delimiter == "," and ";" in first and "," not in first:
        delimiter = ";"
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    read: dict[int, list[str]] = {}  # by the line where a row begins
    before = 0  # the last line of the row before
    try:
        for values in rows:
            if values:
                read[before + 1] = values
            before = rows.line_num
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: {error}") from None
    names = _named_once(read.pop(min(read, default=0), []))
    for number, values in read.items():
        if len(values) != len(names):
            raise ValueError(
                f"line {number} has another number of values than the {len(names)} columns"
            )
        if delimiter == "\t" and any({"\t", "\n"} <= set(value) for value in values):
            raise ValueError(f"line {number}: quotation marks take in tabs and further lines")
    return [dict(zip(names, each, strict=True)) for each in read.values()], "line", list(read)


def _named_once(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have one name, of {', '.join(names)}")
    return names


def _parquet(content: bytes) -> _Read:
    from pyarrow import BufferReader, parquet

    # not `read_table`, which imports pandas
    return _columns(lambda: parquet.ParquetFile(BufferReader(content)).read())


def _arrow(content: bytes) -> _Read:
    """The rows of an Arrow stream, as `save_to_disk` writes it, or of an Arrow file."""
    from pyarrow import BufferReader, ipc

    reader = ipc.open_file if content.startswith(b"ARROW1") else ipc.open_stream
    return _columns(lambda: reader(BufferReader(content)).read_all())


def _columns(read: "Callable[[], pyarrow.Table]") -> _Read:
    import pyarrow

    try:
        table = read()
        if sum(map(_num_values, table.columns)) > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES} values")
        table.validate(full=True)
        records = table.to_pylist()
    except (pyarrow.ArrowException, OSError, OverflowError, KeyError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    _named_once(table.column_names)
    return _in_order(records)


def _num_values(array: "pyarrow.ChunkedArray | pyarrow.Array") -> int:
    """With those inside lists and structs; a file may have any number of them in few bytes."""
    children = getattr(array, "chunks", ())
    if hasattr(array, "field"):
        children = map(array.field, range(array.type.num_fields))
    elif hasattr(array, "values"):
        children = [array.values]
    return len(array) + sum(map(_num_values, children))


_READERS: dict[str, Callable[[bytes], _Read | None]] = {
    ".json": _records,
    ".csv": partial(_table, delimiter=","),
    ".tsv": partial(_table, delimiter="\t"),
    ".parquet": _parquet,
    ".arrow": _arrow,
}


def git_blob_sha1(content: bytes) -> str:
    """The hash of these bytes that `git hash-object` prints."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _read_bytes(task: AnyTask, path: Path) -> bytes:
    try:
        return read_regular(path)
    except FileNotFoundError:
        remedy = "point --data_dir at a folder that holds it"
        raise InputError(f"{task.name}: data file {path} is missing: {remedy}") from None
    except OSError as error:
        raise InputError(
            f"{task.name}: data file {path} cannot be read ({error.strerror}): mend or replace it"
        ) from error


def _json_object(line: bytes) -> JsonObject:
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"byte {error.start + 1} is not UTF-8, expected one JSON object in UTF-8"
        ) from None
    if not text:
        raise ValueError("found a blank line, expected one JSON object")
    try:
        value = parse_json(text, of_records=True)
    except RepeatedKey:
        raise
    except json.JSONDecodeError as error:
        raise ValueError(
            f"found no valid JSON ({error.msg} at column {error.colno}), expected one JSON object"
        ) from None
    except ValueError as error:
        raise ValueError(f"found {error}, expected one flat JSON object") from None
    return _checked(value, "\\u" in text)
