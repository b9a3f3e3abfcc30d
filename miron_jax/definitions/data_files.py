"""A task's data file: whether it is the published one, and the examples in it.

Arrives: a task and the folder of its suite's files.  Leaves: `DataState` and the task's examples.  It deliberately
does not know what an example means: the task's own `parse` does.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from miron_jax.definitions.records import AnyTask, Task
from miron_jax.errors import InputError
from miron_jax.files.hub import commit_of
from miron_jax.files.readers import parse_json


class DataState(NamedTuple):
    """Whether a task's file is there and is the published one; only the published one may bear the suite's name."""

    state: Literal["missing", "as published", "changed", "no published hash", "generated"]
    git_blob_sha1: str | None  # of the file found
    commit: str | None = None  # of the hub's data set that it was fetched from


def data_state(task: AnyTask, folder: Path | None) -> DataState:
    """Compares the file under `folder` with the hash it was published under."""
    if task.file is None:
        return DataState("generated", None)
    below = folder or Path()
    path = task.file.below(below)
    if not path.is_file():
        return DataState("missing", None)
    found = git_blob_sha1(_read_bytes(task, path))
    if task.file.git_blob_sha1 is None:
        return DataState("no published hash", found, commit_of(path))
    return DataState("as published" if found == task.file.git_blob_sha1 else "changed", found, commit_of(path))


def read_examples(task: Task[Any], folder: Path, allow_changed: bool = False) -> list[Any]:
    """All examples of a task in file order; a file that is not as published is refused unless `allow_changed`."""
    path = task.file.below(folder)
    content = _read_bytes(task, path)
    found = git_blob_sha1(content)
    if found != (task.file.git_blob_sha1 or found) and not allow_changed:
        raise InputError(
            f"{task.name}: {path} is not the published file (git blob {found}, expected {task.file.git_blob_sha1}): "
            "fetch the file again, or pass --allow_changed_data to score it without the suite's name"
        )
    examples = [
        _example(task, path, row, fields)
        for row, fields in enumerate(json_rows(content, path, task.name, task.file.rows))
    ]
    return examples if task.arrange is None else task.arrange(examples, folder)


def json_rows(content: bytes, path: Path, task_name: str, rows: int | None = None) -> list[dict[str, Any]]:
    """The objects of a data file: one a line; of a .json file also those of one array, or of a table written by columns.

    Raises InputError, which names the line.
    """
    whole = _whole(content) if path.suffix == ".json" else None
    if whole is not None:
        if (torn := next((place for place, own in enumerate(whole) if _is_torn(own)), None)) is not None:
            raise InputError(
                f"{task_name}: {path}, record {torn + 1}: {_TORN}; mend the record or fetch the file again"
            )
        wrong = next((place for place, own in enumerate(whole) if not isinstance(own, dict)), None)
        if wrong is not None:
            raise InputError(
                f"{task_name}: {path}, record {wrong + 1}: found a JSON {type(whole[wrong]).__name__}, expected one JSON "
                "object; mend the record or fetch the file again"
            )
    lines = content.split(b"\n") if whole is None else whole
    if whole is None and lines[-1] == b"":
        lines.pop()  # the newline that ends the last line
    if not lines:
        expected = rows or "at least 1"
        raise InputError(f"{task_name}: {path} is empty, expected {expected} lines: fetch the file again")
    if whole is not None:
        return whole
    found = []
    for row, line in enumerate(lines):
        try:
            found.append(_json_object(line))
        except ValueError as error:
            raise InputError(
                f"{task_name}: {path}, line {row + 1}: {error}; mend the line or fetch the file again"
            ) from None
    return found


_TORN = "a text of it holds half a surrogate pair, expected whole characters"


def _is_torn(value: Any) -> bool:
    r"""Whether any text in it cannot be UTF-8: JSON may write \ud83d alone."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _whole(content: bytes) -> list[Any] | None:
    """The records of a file that is one JSON value; None: it is not, so it has one a line."""
    try:
        value = parse_json(content)
    except ValueError:
        return None
    if isinstance(value, list):
        return value
    columns = list(value.values()) if isinstance(value, dict) else []
    if columns and all(isinstance(own, dict) and own.keys() == columns[0].keys() for own in columns):
        return [{name: own[row] for name, own in value.items()} for row in columns[0]]
    return [value]


def git_blob_sha1(content: bytes) -> str:
    """The name git gives these bytes, as `git hash-object` prints it."""
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


def _example(task: Task[Any], path: Path, row: int, fields: dict[str, Any]) -> Any:
    try:
        return task.parse(fields, row)
    except ValueError as error:
        raise InputError(
            f"{task.name}: {path}, line {row + 1}: {error}; mend the line or fetch the file again"
        ) from None


def _json_object(line: bytes) -> dict[str, Any]:
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
    if not isinstance(value, dict):
        raise ValueError(f"found a JSON {type(value).__name__}, expected one JSON object")
    if "\\u" in text and _is_torn(value):
        raise ValueError(_TORN)
    return value
