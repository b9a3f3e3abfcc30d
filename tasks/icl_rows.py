"""Lines of in-context-learning files (multiple choice, schema, language modelling, questions) -> examples.

Arrives: one JSON object.  Leaves: an `Example` or a `Question`; ValueError says what is wrong with the line.  It
deliberately does not know wording or draws.  The field names are MosaicML's, which CORE and the Gauntlet share.
"""

from collections.abc import Callable
from typing import Any, Literal

from miron_jax.definitions.records import Example

Kind = Literal["multiple_choice", "schema", "language_modeling"]


def text_field(fields: dict[str, Any], key: str) -> str:
    if key not in fields:
        raise ValueError(f"field {key!r} is missing, expected a text")
    return checked_text(fields[key], f"field {key!r}")


def checked_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where} holds {value!r:.40}, expected a text")
    return value


def answer_text(value: object, where: str) -> str:
    text = checked_text(value, where)
    if not text.strip():
        raise ValueError(f"{where} is empty ({text!r}), expected a text to score")
    return text


def options_field(fields: dict[str, Any], key: str, check: Callable[[object, str], str]) -> tuple[str, ...]:
    options = fields.get(key)
    if not isinstance(options, list) or len(options) < 2:
        found = "is missing" if key not in fields else f"holds {options!r:.40}"
        raise ValueError(f"field {key!r} {found}, expected a list of at least 2 texts")
    return tuple(check(option, f"{key}[{i}]") for i, option in enumerate(options))


def gold_field(fields: dict[str, Any], num_options: int) -> int:
    gold = fields.get("gold")
    expected = f"expected a whole number from 0 to {num_options - 1}"
    if gold is None:
        raise ValueError(f"field 'gold' (the right answer) is missing, {expected}")
    if not isinstance(gold, int) or isinstance(gold, bool) or not 0 <= gold < num_options:
        raise ValueError(f"field 'gold' holds {gold!r:.40}, {expected}")
    return gold


def parse_multiple_choice(fields: dict[str, Any], row: int) -> Example:
    choices = options_field(fields, "choices", answer_text)
    return Example(row, (text_field(fields, "query"),), choices, gold_field(fields, len(choices)))


def parse_schema(fields: dict[str, Any], row: int) -> Example:
    contexts = options_field(fields, "context_options", answer_text)
    continuation = answer_text(text_field(fields, "continuation"), "field 'continuation'")
    return Example(row, contexts, (continuation,), gold_field(fields, len(contexts)))


def parse_language_modeling(fields: dict[str, Any], row: int) -> Example:
    continuation = answer_text(text_field(fields, "continuation"), "field 'continuation'")
    return Example(row, (text_field(fields, "context"),), (continuation,), 0)


PARSE: dict[Kind, Callable[[dict[str, Any], int], Example]] = {
    "multiple_choice": parse_multiple_choice,
    "schema": parse_schema,
    "language_modeling": parse_language_modeling,
}
