"""What a task takes from each record: a field by its name, or a text by a Jinja template.

Arrives: a text of a task's file.  Leaves: a function from a record to a value; ValueError on a
record that lacks what it names.  It deliberately does not know tasks.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from miron_jax.files.readers import Json, JsonObject, shown
from miron_jax.tasks.own_tasks.gold import as_written

MOST_CHARS = 20_000  # of a template
MOST_LOOPS = 2  # one inside the other

_FIELD = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)
_FILLED = re.compile(r"\{[{%#]")
# What a template may call on a text, list or mapping, and the filters it has: none makes a text of
# any length, draws at random, or reads the machine.
_METHODS = frozenset({
    "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "lower", "upper", "title",
    "capitalize", "replace",
    "startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "count", "get",
    "items", "keys", "values",
})  # fmt: skip
_FILTERS = frozenset({
    "abs", "capitalize", "count", "default", "d", "first", "float", "int", "items", "join", "last",
    "length", "list",
    "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "select",
    "selectattr", "sort",
    "string", "sum", "title", "trim", "unique", "upper",
})  # fmt: skip


class _Environment(ImmutableSandboxedEnvironment):
    """Attributes that begin with an underscore, products of texts and powers are refused."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or not all(isinstance(side, int | float) for side in (left, right)):
            raise SecurityError(
                f"{operator} of {shown(left)} and {shown(right)} is not done in templates"
            )
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return super().is_safe_attribute(obj, attr, value) and (
            attr in _METHODS or not callable(value)
        )


def _written(value: object) -> object:
    """What stands in a text: never Python's form of a list, of a mapping or of a missing value."""
    if isinstance(as_written(value), str | bool | jinja2.Undefined):
        return value
    raise ValueError(f"it writes {shown(value)}, expected texts and numbers: join a list, or test")


_ENVIRONMENT = _Environment(
    undefined=jinja2.StrictUndefined, keep_trailing_newline=True, finalize=_written
)
_ENVIRONMENT.globals.clear()  # range, lipsum and others
_ENVIRONMENT.filters = {
    name: call for name, call in _ENVIRONMENT.filters.items() if name in _FILTERS
}


@dataclass(frozen=True, slots=True)
class Value:
    """What a task takes from a record."""

    text: str  # as the task's file has it
    of: Callable[[JsonObject], Json]
    is_literal: bool = False  # it is the text itself: no field's name, nothing to fill in

    def __call__(self, record: JsonObject) -> Json:
        return self.of(record)

    def among(self, names: Collection[str]) -> "Value":
        """The value in records with these fields: a text that is the name of one, as "Best Answer",
        is that field."""
        if self._names(names):
            return Value(self.text, lambda record: _field(record, self.text))
        return self

    def beside(self, names: Collection[str]) -> "Value":
        """The value in a list of texts.  Raises ValueError for a text that is a field's name."""
        if self._names(names):
            raise ValueError(
                f"{self.text!r} may be that text or the field of this name: write "
                f'"{{{{{self.text}}}}}" for the field, '
                f"\"{{{{'{self.text}'}}}}\" for the text"
            )
        return self

    def _names(self, names: Collection[str]) -> bool:
        return self.is_literal and self.text in names


def value_of(text: str) -> Value:
    """The value of a field whose name this is (`a.b`: of a mapping in it), or else the text that
    this template makes.

    Raises ValueError for a text that is no template.
    """
    if _FIELD.fullmatch(text):
        return Value(text, lambda record: _field(record, text))
    return text_of(text)


def text_of(text: str) -> Value:
    """The text that this template makes.  Raises ValueError for a text that is no template."""
    if len(text) > MOST_CHARS:
        raise ValueError(f"a template of {len(text)} characters, expected {MOST_CHARS} at most")
    try:
        if _loops(_ENVIRONMENT.parse(text)) > MOST_LOOPS:
            raise ValueError(f"a template with more than {MOST_LOOPS} loops inside one another")
        template = _ENVIRONMENT.from_string(text)
    except (jinja2.TemplateError, RecursionError) as error:
        raise ValueError(f"{shown(text)} is no template ({error})") from None

    def rendered(record: JsonObject) -> str:
        try:
            return template.render(record)
        except Exception as error:  # whatever a filter or a method says of a record's values
            raise ValueError(f"the template {shown(text)} cannot be filled ({error})") from None

    return Value(text, rendered, is_literal=not _FILLED.search(text))


def _loops(node: jinja2.nodes.Node) -> int:
    """How deep loops are nested below a node."""
    below = max(map(_loops, node.iter_child_nodes()), default=0)
    return below + isinstance(node, jinja2.nodes.For | jinja2.nodes.Macro | jinja2.nodes.CallBlock)


def _field(record: JsonObject, name: str) -> Json:
    if name in record:
        return record[name]
    value: Json = record
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            there = ", ".join(map(str, value)) if isinstance(value, dict) else shown(value)
            raise ValueError(f"field {name!r} is missing, found {there:.120}")
        value = value[part]
    return value
