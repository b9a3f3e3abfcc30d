"""A task's data file: its comparison with the published one, and its examples.

Arrives: a task and the folder of its suite's files.  Leaves: `DataState` and the task's examples.  It deliberately
does not know what an example means; the task's `parse` does.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from miron_jax.definitions.records import AnyExample, AnyTask, Task
from miron_jax.errors import InputError
from miron_jax.files.hub import commit_of
from miron_jax.files.readers import Json, JsonObject, parse_json

Row = TypeVar("Row")
Parsed = TypeVar("Parsed")
FETCH_AGAIN = "fetch the file again"
FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


class DataState(NamedTuple):
    """A task's file compared with the published one; only scores on the published one bear the suite's name."""

    state: Literal["missing", "as published", "changed", "no published hash", "generated"]
    git_blob_sha1: str | None  # of the file on disk
    commit: str | None = None  # of the hub's data set, if it was fetched from there


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
    return DataState("as published" if sha1 == task.file.git_blob_sha1 else "changed", sha1, commit_of(path))


def _sha1_of(task: AnyTask, path: Path) -> str:
    """The hash of a file as git has it; of a folder, that of the names and hashes of the files below it."""
    if not path.is_dir():
        return git_blob_sha1(_read_bytes(task, path))
    below = ((file.relative_to(path), file) for file in sorted(path.rglob("*")) if file.is_file())
    files = [file for name, file in below if not any(part.startswith(".") for part in name.parts)]
    names = [f"{file.relative_to(path)} {git_blob_sha1(_read_bytes(task, file))}\n" for file in files]
    return git_blob_sha1("".join(names).encode())


def read_examples(task: Task, folder: Path, allow_changed: bool = False) -> list[AnyExample]:
    """All examples of a task in file order.  Raises InputError for a changed file unless `allow_changed`."""
    if task.examples is not None:
        return task.examples()
    path = task.file.below(folder)
    content = _read_bytes(task, path)
    sha1 = git_blob_sha1(content)
    if sha1 != (task.file.git_blob_sha1 or sha1) and not allow_changed:
        raise InputError(
            f"{task.name}: {path} is not the published file (git blob {sha1}, expected {task.file.git_blob_sha1}): "
            f"{FETCH_AGAIN}, or pass --allow_changed_data to score it without the suite's name"
        )
    rows = json_rows(content, path, task.name, task.file.rows)
    examples = parse_each(rows, task.parse, f"{task.name}: {path}, line", f"; mend the line or {FETCH_AGAIN}")
    return examples if task.arrange is None else task.arrange(examples, folder)


def parse_each(rows: Iterable[Row], parse: Callable[[Row, int], Parsed], at: str, remedy: str) -> list[Parsed]:
    """Every row parsed, which may raise ValueError; raises InputError with `at`, the number of the row and `remedy`."""
    parsed = []
    for row, content in enumerate(rows):
        try:
            parsed.append(parse(content, row))
        except ValueError as error:
            raise InputError(f"{at} {row + 1}: {error}{remedy}") from None
    return parsed


def json_rows(
    content: bytes, path: Path, task_name: str, num_rows: int | None = None, remedy: str = FETCH_AGAIN
) -> list[JsonObject]:
    """The JSON objects of a data file: one per line; a .json file may also be one array, or a table written by columns.  A
    row of a .csv, .tsv or .parquet file is an object of its columns.

    Raises InputError, which names the line.
    """
    try:
        records = _READERS[path.suffix](content) if path.suffix in _READERS else None
    except ValueError as error:
        raise InputError(f"{task_name}: {path} cannot be read ({error!s:.120}): {remedy}") from None
    is_by_line = records is None
    if records is None:
        records = content.removesuffix(b"\n").split(b"\n") if content else []
    if not records:
        raise InputError(f"{task_name}: {path} is empty, expected {num_rows or 'at least 1'} lines: {remedy}")
    unit, has_escapes = "line" if is_by_line else "record", b"\\u" in content
    return parse_each(
        records,
        lambda record, row: _json_object(record) if is_by_line else _checked(record, has_escapes),
        f"{task_name}: {path}, {unit}",
        f"; mend the {unit} or {remedy}",
    )


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


def _records(content: bytes) -> list[Json] | None:
    """The records of a file that is one JSON value; None: it is not one, so it has a record per line."""
    try:
        value = parse_json(content)
    except ValueError:
        return None
    if isinstance(value, list):
        return value
    columns = list(value.values()) if isinstance(value, dict) else []
    if columns and all(isinstance(column, dict) and column.keys() == columns[0].keys() for column in columns):
        return [{name: column[row] for name, column in value.items()} for row in columns[0]]
    return [value]


def _table(content: bytes, delimiter: str) -> list[Json]:
    """The rows of a table with a first line of column names; all values are texts."""
    rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter, strict=True)
    try:
        records = [dict(row) for row in rows]
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: {error}") from None
    names = rows.fieldnames or ()
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have one name, of {', '.join(names)}")
    for row, record in enumerate(records):
        if None in record or None in record.values():
            raise ValueError(f"row {row + 1} has another number of values than the {len(names)} columns")
    return records


def _parquet(content: bytes) -> list[Json]:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.read_table(pyarrow.BufferReader(content)).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(" ".join(str(error).split())) from None


_READERS: dict[str, Callable[[bytes], list[Json] | None]] = {
    ".json": _records,
    ".csv": partial(_table, delimiter=","),
    ".tsv": partial(_table, delimiter="\t"),
    ".parquet": _parquet,
}


def git_blob_sha1(content: bytes) -> str:
    """The hash of these bytes that `git hash-object` prints."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _read_bytes(task: AnyTask, path: Path) -> bytes:
    try:
        return path.read_bytes()
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
        raise ValueError(f"byte {error.start + 1} is not UTF-8, expected one JSON object in UTF-8") from None
    if not text:
        raise ValueError("found a blank line, expected one JSON object")
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"found no valid JSON ({error.msg} at column {error.colno}), expected one JSON object"
        ) from None
    except ValueError as error:
        raise ValueError(f"found {error}, expected one flat JSON object") from None
    return _checked(value, "\\u" in text)
