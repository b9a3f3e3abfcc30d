"""What a request set consists of, and the fields that its layouts share.

Arrives: one JSON object.  Leaves: `FrozenRequest`s; ValueError names the field.  It deliberately
does not know layouts.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from miron_jax.definitions.data_files import Located
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, shown
from miron_jax.tasks.icl_rows import text_field

REMEDY = "write the set again"
NO_PAIR = "completions, chats and whole documents are no request set, take the file out"


T = TypeVar("T")


class FrozenRequest(NamedTuple):
    """A continuation to score behind its context.  Requests of one task with one `doc_id` are the
    choices of a question."""

    task: str
    doc_id: int | str
    context: str
    continuation: str
    gold: int | None  # which of its choices is right; None: not stated
    file: Path
    row: int  # line in the file, from 0


def parse_lines(file: Path, rows: Located, parse: Callable[[JsonObject, int], T]) -> list[T]:
    """Every row parsed, with its line from 0.  `parse` may raise ValueError, which becomes an
    InputError."""
    parsed = []
    for number, fields in zip(rows.numbers, rows.records, strict=True):
        try:
            parsed.append(parse(fields, number - 1))
        except ValueError as error:
            raise InputError(f"{file}, line {number}: {error}; {REMEDY}") from None
    return parsed


def continuation_field(fields: JsonObject) -> str:
    return scored_text(text_field(fields, "continuation"), "field 'continuation'")


def scored_text(text: str, location: str) -> str:
    if not text:
        raise ValueError(f"{location} is empty, expected a text to score")
    return text


def doc_id_field(fields: JsonObject) -> int | str:
    doc_id = fields.get("doc_id")
    if not isinstance(doc_id, int | str) or isinstance(doc_id, bool):
        raise ValueError(f"field 'doc_id' holds {shown(doc_id)}, expected a whole number or a text")
    return doc_id


def place(value: Json, num_choices: int | None = None) -> int | None:
    """A place from 0, digits included; None where the value is none."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,4}", value, re.ASCII):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < (num_choices or 10_000) else None
