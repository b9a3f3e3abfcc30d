"""The right choice as a user's data name it: one reading for a whole file.

Arrives: right answers as records have them, with their choices.  Leaves: the choice's place, the
reading; ValueError where a file has two meanings.  It deliberately does not know files or
templates.

A right answer "1" is the second of the choices "3", "5", "7" and may be the first or the second of
"1", "0", "2".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from miron_jax.files.readers import Json, shown

LABELS = "labels"  # of `gold_is` alone: several choices may be right, see `labelled`
Choices = tuple[str, ...]
Gold = tuple[Json, Choices]

_LETTER = re.compile(r"\(?([A-Za-z])[.):]?")
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


def as_written(value: Json) -> Json:
    """A number as its text, which is that of its file in JSON (1.50, 1e3); every other value as it
    is, that of a table's empty field (NaN) too."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    text = str(value)
    return text if text[-1].isdigit() else value


def _text(value: Json, choices: Choices) -> int | None:
    text = as_written(value)
    if not isinstance(text, str):
        return None
    if text in choices:
        return choices.index(text)
    stripped = [*map(str.strip, choices)]
    if text.strip() in stripped:
        return stripped.index(text.strip())
    return None


def _letter(value: Json, choices: Choices) -> int | None:
    letter = _LETTER.fullmatch(value.strip()) if isinstance(value, str) else None
    if letter:
        return _place(ord(letter[1].upper()) - ord("A"), choices)
    return None


def _place(value: Json, choices: Choices) -> int | None:
    text = as_written(value)
    is_place = isinstance(text, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", text)
    if is_place and int(text) < len(choices):
        return int(text)
    return None


def _truth(value: Json, choices: Choices) -> int | None:
    """Of two choices, one of which is true or yes and the other one false or no."""
    text = str(value) if isinstance(value, bool) else value
    truths = [_TRUTH.get(choice.strip().lower()) for choice in choices]
    is_truth = isinstance(text, str) and text.strip().lower() in ("true", "false")
    if is_truth and sorted(map(str, truths)) == ["False", "True"]:
        return truths.index(_TRUTH[text.strip().lower()])
    return None


def labelled(value: Json, choices: Choices) -> tuple[int, ...]:
    """Places of the right choices: `value` has 1 (right) or 0 for each of them.  Raises
    ValueError."""
    labels = [*value.values()] if isinstance(value, Mapping) else value
    if isinstance(labels, list) and len(labels) == len(choices):
        right = tuple(place for place, label in enumerate(labels) if label == 1)
        if 0 < len(right) < len(labels) and all(label in (0, 1) for label in labels):
            return right
    raise ValueError(
        f"gold is {shown(value)}, expected 1 (right) or 0 for each of the {len(choices)} choices, "
        "with both among them"
    )


# What a right answer may be: (as the record has it, choices) -> its place from 0; None: it is
# nothing of the kind.
READINGS: dict[str, Callable[[Json, Choices], int | None]] = {
    "text": _text, "letter": _letter, "place": _place, "truth": _truth,
}  # fmt: skip


def reading_of(golds: Sequence[Gold | None], place_of: Callable[[int], str]) -> str:
    """The one reading of a file's right answers; "": every reading that a record has gives the same
    choice.

    Raises ValueError, which names two records, if no reading fits all of them, or if as many could
    be read as another choice as speak for the reading that fits.
    """
    read: dict[int, dict[str, int]] = {}  # row -> its readings
    for row, gold in enumerate(golds):
        if gold is not None and (readings := readings_of(*gold)):
            read[row] = readings
    fitting = set(READINGS).intersection(*read.values())
    if not read:
        return ""
    if not fitting:
        first, second = _unlike(read)
        raise ValueError(
            f"gold is a {next(iter(read[first]))} in {place_of(first)} ({_value(golds, first)}) "
            f"and a {next(iter(read[second]))} in {place_of(second)} ({_value(golds, second)}), "
            f"expected one reading in the whole file: {', '.join(READINGS)}"
        )
    kept = next(filter(fitting.__contains__, READINGS))
    for other in READINGS:
        differ: list[int] = []
        for_kept: list[int] = []
        for row, readings in read.items():
            if other not in readings:
                for_kept.append(row)
            elif readings[other] != readings[kept]:
                differ.append(row)
        if differ and len(for_kept) <= len(differ):
            raise ValueError(
                f"gold of {place_of(differ[0])} ({_value(golds, differ[0])}) is one choice as a "
                f"{kept} and another as a {other}, {_second(differ, for_kept, kept, place_of)}one "
                f"reading holds for the whole file: say which, gold_is: {kept} or gold_is: {other}"
            )
    return kept


def _unlike(read: Mapping[int, Mapping[str, int]]) -> tuple[int, int]:
    """Two rows that have no reading in common.  They exist where all rows have none: every row has
    a reading of its own kind (letter, place, truth), the text, or both."""
    common = frozenset(READINGS)
    for last, readings in read.items():
        common = common.intersection(readings)
        if not common:
            return next(row for row in read if readings.keys().isdisjoint(read[row])), last
    raise AssertionError("a reading fits all rows")


def readings_of(value: Json, choices: Choices) -> dict[str, int]:
    """What a right answer may be, in the order of READINGS -> its place."""
    read = ((name, reading(value, choices)) for name, reading in READINGS.items())
    return {name: place for name, place in read if place is not None}


def _second(
    differ: Sequence[int], for_kept: Sequence[int], kept: str, place_of: Callable[[int], str]
) -> str:
    """A second record of the same kind, or one that only the reading that fits makes sense of."""
    if for_kept:
        return f"and that of {place_of(for_kept[0])} is a {kept} only; "
    return f"as is that of {place_of(differ[1])}; " if len(differ) > 1 else ""


def _value(golds: Sequence[Gold | None], row: int) -> str:
    gold = golds[row]
    return shown(gold[0]) if gold else ""
