"""Guarded readers of untrusted JSON and YAML: any bytes give a value or a ValueError, and nothing else.

Arrives: bytes.  Leaves: plain values.  It deliberately does not know files, tasks or what the values mean: the caller adds
the file and the remedy to the message.
"""

import json
import re
import reprlib
from typing import Any

import yaml

Json = Any  # what a JSON or YAML document holds, of unknown shape until it is checked
JsonObject = dict[str, Json]

MOST_YAML_BYTES = 256 << 10  # published files are smaller than 40 KB; PyYAML takes seconds for more than this
MOST_DEPTH = 64
MOST_VALUES = 100_000  # with every alias written out


def parse_json(content: bytes | str) -> Json:
    """The value of a JSON text in UTF-8.  Raises ValueError, also for nesting beyond what Python can read."""
    try:
        return json.loads(content.decode("utf-8-sig") if isinstance(content, bytes) else content)
    except RecursionError:
        raise ValueError("JSON nested too deep to read") from None


def parse_yaml(content: bytes) -> Json:
    """The value of a YAML document of mappings, lists, texts, numbers, true, false and null.

    Dates, and numbers in other bases, are texts.  Raises ValueError for tags and merge keys, and for documents that are too
    large, are nested too deep or have too many aliases.
    """
    if len(content) > MOST_YAML_BYTES:
        raise ValueError(f"{len(content)} bytes, expected {MOST_YAML_BYTES} at most")
    try:
        loader = _Loader(content.decode("utf-8"))
        node = loader.get_single_node()
        _count(node, {}, 0)
        return None if node is None else loader.construct_document(node)
    except RecursionError:
        raise ValueError("nested too deep to read") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def shown(value: object) -> str:
    """The beginning of a value's repr, for a message; the value may be large or contain itself."""
    return _REPR.repr(value)


_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother, _REPR.maxlong = 3, 60, 60, 60


class _Loader(yaml.SafeLoader):
    """A loader without tags, with the scalars of JSON."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML reads it from the class

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        if getattr(event, "tag", None) not in (None, "!"):
            raise yaml.YAMLError(f"the tag {event.tag:.40}, expected none, in {event.start_mark}")  # pyright: ignore
        return super().compose_node(parent, index)


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"^[-+]?(?:0|[1-9][0-9]{0,17})$", "-+0123456789"),
    ("float", r"^[-+]?(?:[0-9]{1,18}\.[0-9]{0,30}|\.[0-9]{1,30}|[0-9]{1,18}(?=e))(?:e[-+]?[0-9]{1,3})?$", "-+.0123456789"),
):  # fmt: skip
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


def _count(node: yaml.Node | None, counted: dict[int, int], depth: int) -> int:
    """Number of values below a node, where an alias counts as a copy of its target."""
    if depth > MOST_DEPTH:
        raise ValueError(f"nested deeper than {MOST_DEPTH}")
    known = counted.get(id(node))
    if known is None:
        counted[id(node)] = MOST_VALUES  # for a node that contains itself
        children = node.value if isinstance(node, yaml.SequenceNode) else ()
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        known = counted[id(node)] = 1 + sum(_count(child, counted, depth + 1) for child in children)
    if known > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES} values, aliases written out")
    return known
