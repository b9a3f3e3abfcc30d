"""Lines of in-context-learning files (multiple choice, schema, language modelling, questions) ->
examples.

Arrives: one JSON object.  Leaves: an `Example`; ValueError for an invalid line.  It deliberately
does not know wording or few-shot sampling.  The field names are MosaicML's, which CORE and the
Gauntlet share.
"""

from collections.abc import Callable
from typing import Literal

from miron_jax.definitions.records import Example
from miron_jax.files.readers import JsonObject

IclKind = Literal["multiple_choice", "schema", "language_modeling"]


def text_field(fields: JsonObject, key: str) -> str:
    if key not in fields:
        raise ValueError(f"field {key!r} is missing, expected a text")
    return checked_text(fields[key], f"field {key!r}")


def checked_text(value: object, location: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{location} holds {value!r:.40}, expected a text")
    return value


def answer_text(value: object, location: str) -> str:
    text = checked_text(value, location)
    if not text.strip():
        raise ValueError(f"{location} is empty ({text!r}), expected a text to score")
    return text


def options_field(fields: JsonObject, key: str) -> tuple[str, ...]:
    options = fields.get(key)
    if not isinstance(options, list) or len(options) < 2:
        problem = "is missing" if key not in fields else f"holds {options!r:.40}"
        raise ValueError(f"field {key!r} {problem}, expected a list of at least 2 texts")
    return tuple(answer_text(option, f"{key}[{i}]") for i, option in enumerate(options))


def gold_field(fields: JsonObject, num_options: int) -> int:
    gold = fields.get("gold")
    expected = f"expected a whole number from 0 to {num_options - 1}"
    if gold is None:
        raise ValueError(f"field 'gold' (the right answer) is missing, {expected}")
    if not isinstance(gold, int) or isinstance(gold, bool) or not 0 <= gold < num_options:
        raise ValueError(f"field 'gold' holds {gold!r:.40}, {expected}")
    return gold


def parse_multiple_choice(fields: JsonObject, row: int) -> Example:
    choices = options_field(fields, "choices")
    return Example(row, (text_field(fields, "query"),), choices, gold_field(fields, len(choices)))


def parse_schema(fields: JsonObject, row: int) -> Example:
    contexts = options_field(fields, "context_options")
    continuation = answer_text(text_field(fields, "continuation"), "field 'continuation'")
    return Example(row, contexts, (continuation,), gold_field(fields, len(contexts)))


def parse_language_modeling(fields: JsonObject, row: int) -> Example:
    continuation = answer_text(text_field(fields, "continuation"), "field 'continuation'")
    return Example(row, (text_field(fields, "context"),), (continuation,), 0)


PARSE: dict[IclKind, Callable[[JsonObject, int], Example]] = {
    "multiple_choice": parse_multiple_choice,
    "schema": parse_schema,
    "language_modeling": parse_language_modeling,
}
