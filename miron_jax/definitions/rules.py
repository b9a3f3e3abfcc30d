"""Rules of a profile: functions with the names that results print.

Arrives: nothing.  Leaves: `Rule`, and `printed`, a profile's part of results.json.  It deliberately
knows no rule of texts or tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from miron_jax.files.readers import JsonObject

Call = TypeVar("Call", bound=Callable[..., Any], covariant=True)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Call]):
    name: str
    call: Call


# Metadata of a field that results leave out at its default: rules of later versions, which older
# results do not have.
LEFT_OUT = {"left_out": True}


def printed(profile: Any) -> JsonObject:
    """The fields of a profile (a dataclass) for results.json; a rule gives its name, so results
    name the rule that ran."""
    values: JsonObject = {}
    for field in fields(profile):
        value = getattr(profile, field.name)
        if field.metadata != LEFT_OUT or value != field.default:
            values[field.name] = printed_value(value)
    return values


def printed_value(value: Any) -> Any:
    """A field of a profile as JSON has it: a rule gives its name, a tuple is a list."""
    if isinstance(value, tuple):
        return [*map(printed_value, value)]
    return value.name if isinstance(value, Rule) else value


# Takes the most probable token, the lowest id among equals.
GREEDY = Rule("greedy", lambda: {"temperature": 0.0})

# Gives no numbers over all examples.
NOTHING = Rule("", lambda answered, weights: {})
