"""Rules of a profile as objects: what runs, under the name that results print.

Arrives: nothing.  Leaves: `Rule`, and `printed`, a profile as it stands in results.json.  It deliberately knows no rule of
texts or tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

Call = TypeVar("Call", bound=Callable[..., Any], covariant=True)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Call]):
    name: str
    call: Call


def printed(profile: Any) -> dict[str, Any]:
    """Its fields, rules by their names: what a result says of a rule is read off the one that ran."""
    found = {field.name: getattr(profile, field.name) for field in fields(profile)}
    return {name: value.name if isinstance(value, Rule) else value for name, value in found.items()}


# Each token the most probable one, the lowest id among equals.
GREEDY = Rule("greedy", lambda: {"temperature": 0.0})

# No numbers over all examples together.
NOTHING = Rule("", lambda answered, weights: {})
