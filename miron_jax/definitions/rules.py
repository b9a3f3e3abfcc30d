"""Rules of a profile: functions with the names that results print.

Arrives: nothing.  Leaves: `Rule`, and `printed`, a profile's part of results.json.  It deliberately knows no rule of
texts or tokens.
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


def printed(profile: Any) -> JsonObject:
    """The fields of a profile (a dataclass) for results.json; a rule gives its name, so results name the rule that ran."""
    values = {field.name: getattr(profile, field.name) for field in fields(profile)}
    return {name: value.name if isinstance(value, Rule) else value for name, value in values.items()}


# Takes the most probable token, the lowest id among equals.
GREEDY = Rule("greedy", lambda: {"temperature": 0.0})

# Gives no numbers over all examples.
NOTHING = Rule("", lambda answered, weights: {})
