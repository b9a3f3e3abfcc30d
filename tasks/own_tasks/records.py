"""A record of a user's data -> an example, by what the task's file takes from it.

Arrives: functions from a record to a value, a record.  Leaves: an `Example`, `Question` or `Problem`; ValueError for a
record that does not fit.  It deliberately does not know files.
"""

from collections.abc import Callable, Mapping
from typing import Any

from miron_jax.definitions.records import AnyExample, Example, Problem, Question
from miron_jax.files.readers import Json, JsonObject, shown
from miron_jax.tasks.icl_rows import answer_text, checked_text
from miron_jax.tasks.own_tasks.templates import Value

Takes = Mapping[str, Any]  # key -> a Value, or a list of them
LANGUAGES = ("python", "c++", "javascript")


def with_stripped_fields(parse: Callable[[JsonObject, int], AnyExample], record: JsonObject, row: int) -> AnyExample:
    """As composer does: texts of the record lose white space at both ends, those in lists do not."""
    fields = {key: value.strip() if isinstance(value, str) else value for key, value in record.items()}
    return parse(fields, row)


def choice(takes: Takes, record: JsonObject, row: int) -> Example:
    choices = takes["choices"]
    given = [each(record) for each in choices] if isinstance(choices, list) else choices(record)
    if not isinstance(given, list) or len(given) < 2:
        raise ValueError(f"choices are {shown(given)}, expected a list of at least two texts")
    texts = tuple(answer_text(text, f"choice {i + 1}") for i, text in enumerate(given))
    return Example(
        row, (_question(takes, record),), texts, _gold(takes["gold"](record), texts), _category(takes, record)
    )


def _gold(value: Json, choices: tuple[str, ...]) -> int:
    """The right choice: its place from 0, its text, or its letter (A is the first)."""
    place: int | None = None
    if isinstance(value, str):
        text = value.strip()
        if value in choices or text in choices:
            place = choices.index(value if value in choices else text)
        elif text.isdecimal():
            place = int(text)
        elif len(text) == 1 and "A" <= text <= "Z":
            place = ord(text) - ord("A")
    elif isinstance(value, int) and not isinstance(value, bool):
        place = value
    if place is None or not 0 <= place < len(choices):
        raise ValueError(
            f"gold is {shown(value)}, expected one of the choices, its letter, or its place from 0 to {len(choices) - 1}"
        )
    return place


def continuation(takes: Takes, record: JsonObject, row: int) -> Example:
    text = answer_text(takes["answer"](record), "answer")
    return Example(row, (_question(takes, record),), (text,), 0, _category(takes, record))


def question(takes: Takes, record: JsonObject, row: int) -> Question:
    given = takes["answer"](record)
    answers = tuple(answer_text(text, "answer") for text in (given if isinstance(given, list) else [given]))
    if not answers:
        raise ValueError("answer is an empty list, expected at least one text")
    return Question(
        row,
        (_question(takes, record),),
        answers[:1],
        0,
        _category(takes, record),
        accepted=tuple(dict.fromkeys(answers)),
        room_for=answers,
    )


def problem(takes: Takes, record: JsonObject, row: int) -> Problem:
    language = takes["language"](record) if "language" in takes else "python"
    if language not in LANGUAGES:
        raise ValueError(f"language is {shown(language)}, expected one of {', '.join(LANGUAGES)}")
    inputs, outputs = _tests(takes, record, "inputs"), _tests(takes, record, "outputs")
    if len(inputs) != len(outputs):
        raise ValueError(f"{len(inputs)} inputs and {len(outputs)} outputs, expected as many of both")
    return Problem(
        row,
        checked_text(takes["name"](record), "name") if "name" in takes else f"problem {row}",
        checked_text(takes["prompt"](record), "prompt"),
        checked_text(takes["entry_point"](record), "entry_point"),
        language,
        inputs,
        outputs,
        checked_text(takes["solution"](record), "solution"),
    )


def _tests(takes: Takes, record: JsonObject, key: str) -> tuple[str, ...]:
    tests = takes[key](record)
    if not isinstance(tests, list) or not tests or not all(isinstance(text, str) for text in tests):
        raise ValueError(f"{key} are {shown(tests)}, expected a list of texts")
    return tuple(tests)


def _question(takes: Takes, record: JsonObject) -> str:
    return checked_text(takes["question"](record), "question")


def _category(takes: Takes, record: JsonObject) -> str | None:
    if "category" not in takes:
        return None
    value: Value = takes["category"]
    return checked_text(value(record), "category")
