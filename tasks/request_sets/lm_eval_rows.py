"""Sample lines of lm-evaluation-harness -> requests.

Arrives: the lines of a file.  Leaves: `FrozenRequest`s; InputError names file and line.  It
deliberately does not know folders.

    {doc_id, target, arguments: {gen_args_0: {arg_0, arg_1}, gen_args_1: ...}}

A line is a question, or a filter of it.

`target` is the place of the right choice, which lm-eval writes as a text, or the text of the
choice.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.data_files import Located
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, shown
from miron_jax.tasks.icl_rows import checked_text
from miron_jax.tasks.request_sets.records import (
    NO_PAIR,
    REMEDY,
    FrozenRequest,
    doc_id_field,
    parse_lines,
    place,
    scored_text,
)


class _Line(NamedTuple):
    doc_id: int | str
    pairs: list[tuple[str, str]]  # (context, continuation) of each choice
    target: str | int | None  # None: it is neither a place nor a text
    row: int

    @property
    def by_place(self) -> int | None:
        return place(self.target, len(self.pairs))

    @property
    def by_text(self) -> int | None:
        """The first choice with the text of `target`; None: there is none, or several whose
        contexts differ."""
        first: dict[str, int] = {}  # context -> choice
        for i, (context, continuation) in enumerate(self.pairs):
            if isinstance(self.target, str) and continuation.strip() == self.target.strip():
                first.setdefault(context, i)
        return min(first.values()) if len(first) == 1 else None


def lm_eval_requests(file: Path, rows: Located) -> list[FrozenRequest]:
    lines = _each_once(file, parse_lines(file, rows, _line))
    task = re.sub(r"^samples_|_[\dT:.-]+$", "", file.stem)
    golds = _golds(file, [line for line in lines if len(line.pairs) > 1])
    requests = []
    for line in lines:
        for pair in line.pairs:
            gold = golds.get(line.row)
            requests.append(FrozenRequest(task, line.doc_id, *pair, gold, file, line.row))
    return requests


def _line(fields: JsonObject, row: int) -> _Line:
    arguments = fields.get("arguments")
    each = _values(arguments)
    if not isinstance(each, list) or not each:
        raise ValueError(f"field 'arguments' holds {shown(arguments)}, expected a request")
    pairs = _conditional(list(map(_pair, each)))
    target = fields.get("target")
    if not isinstance(target, str | int):
        target = None
    return _Line(doc_id_field(fields), pairs, target, row)


def _values(fields: Json) -> Json:
    """The values of an object; a list is its own."""
    return list(fields.values()) if isinstance(fields, dict) else fields


def _conditional(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without the second half if it has no context: acc_mutual_info asks for every choice a second
    time so."""
    half = len(pairs) // 2
    has_context = [bool(context) for context, _ in pairs]
    if half > 1 and has_context == [True] * half + [False] * half:
        return pairs[:half]
    return pairs


def _pair(argument: Json) -> tuple[str, str]:
    values = _values(argument)
    if not isinstance(values, list) or len(values) != 2 or not isinstance(values[1], str):
        raise ValueError(
            f"its request is {shown(values)}, expected a context and a continuation: {NO_PAIR}"
        )
    return checked_text(values[0], "arg_0"), scored_text(values[1], "its continuation")


def _each_once(file: Path, lines: Sequence[_Line]) -> list[_Line]:
    """A question has a line for each filter; its lines are equal."""
    first_of: dict[int | str, _Line] = {}
    for line in lines:
        first = first_of.setdefault(line.doc_id, line)
        if (line.pairs, line.target) != (first.pairs, first.target):
            raise InputError(
                f"{file}, line {line.row + 1}: doc_id {line.doc_id!r} has other arguments or "
                f"another target than in line {first.row + 1}; {REMEDY}"
            )
    return list(first_of.values())


def _golds(file: Path, lines: Sequence[_Line]) -> dict[int, int | None]:
    """The right choice of each row, by one reading of digits for the whole file.

    Raises InputError if both readings are possible and differ.
    """
    digits = [line for line in lines if place(line.target) is not None]
    are_places = all(line.by_place is not None for line in digits)
    are_texts = all(line.by_text is not None for line in digits)
    differs = next((line for line in digits if line.by_place != line.by_text), None)
    if are_places and are_texts and differs is not None:
        assert differs.by_place is not None and differs.by_text is not None  # noqa: PT018
        by_place = differs.pairs[differs.by_place][1].strip()
        by_text = differs.pairs[differs.by_text][1].strip()
        raise InputError(
            f"{file}, line {differs.row + 1}: target is {differs.target!r}, which may be the place "
            f"of {by_place!r} or the text {by_text!r}, as in every line: write the set as "
            "requests.jsonl, where `gold` is a place"
        )
    golds = {line.row: line.by_text for line in lines}
    if are_places or not are_texts:
        golds |= {line.row: line.by_place for line in digits}
    return golds
