"""Guarded readers of JSON and YAML that others wrote: any bytes give a value or a ValueError, no
other error.

Arrives: bytes.  Leaves: plain values.  It deliberately does not know files, tasks or what the
values mean: the caller adds the file and the remedy to the reason.
"""

import json
import re
import reprlib
from collections import Counter
from itertools import chain
from typing import Any, TypeGuard

import yaml

Json = Any  # the value of a JSON or YAML document, of unknown shape until it is checked
JsonObject = dict[str, Json]

# the published files have below 40 KB; PyYAML takes seconds for more than this
MOST_YAML_BYTES = 256 << 10
MOST_DEPTH = 64
MOST_VALUES = 100_000  # with every alias written out


class RepeatedKey(ValueError):
    """An object of a text has a key twice, of which a parser would take the last one without a
    word."""


class WrittenNumber(float):
    """A number whose text is that of its file, where Python has another one: 1.50, 1e3, -0."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def parse_json(content: bytes | str, of_records: bool = False) -> Json:
    """The value of a JSON text in UTF-8.  `of_records`: its numbers keep their texts, and an object
    with a key twice raises RepeatedKey.

    Raises ValueError, also for nesting beyond what Python can read.
    """
    text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
    try:
        return _RECORDS.decode(text) if of_records else json.loads(text)
    except RecursionError:
        raise ValueError("JSON nested too deep to read") from None


def _integer(text: str) -> int | WrittenNumber:
    return WrittenNumber(text) if text == "-0" else int(text)


def _with_keys_once(pairs: list[tuple[str, Json]]) -> JsonObject:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedKey(
            f"the key {shown(repeated)} stands twice in {shown(fields)}, expected once"
        )
    return fields


_RECORDS = json.JSONDecoder(
    object_pairs_hook=_with_keys_once, parse_float=WrittenNumber, parse_int=_integer
)


def parse_yaml(content: bytes, without_tags: bool = False) -> Json:
    """The value of a YAML document of mappings, lists, texts, numbers, true, false and null.

    Raises ValueError for tags, merge keys, a key twice, and a document that is too large, too deep
    or has too many aliases.  Dates, and numbers in other bases, are texts.  `without_tags` drops
    tags, and what a tag would make remains its plain content: `!!python/tuple [1]` is [1].
    """
    if len(content) > MOST_YAML_BYTES:
        raise ValueError(f"{len(content)} bytes, expected {MOST_YAML_BYTES} at most")
    try:
        loader = (_TaglessLoader if without_tags else _Loader)(content.decode("utf-8"))
        node = loader.get_single_node()
        _count(node, {}, 0)
        return None if node is None else loader.construct_document(node)
    except RecursionError:
        raise ValueError("nested too deep to read") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def are_texts(value: Json) -> TypeGuard[list[str]]:
    """Whether a value is a list of one text or more."""
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def shown(value: Json) -> str:
    """The beginning of a value's repr, for messages; safe for values that are large or contain
    themselves."""
    return _REPR.repr(value)


_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother, _REPR.maxlong = 3, 60, 60, 60


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses tags and knows only the scalars of JSON."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own way

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if getattr(event, "tag", None) not in (None, "!"):
            tag = f"the tag {event.tag:.40}"  # pyright: ignore
            raise yaml.YAMLError(f"{tag}, expected none, in {event.start_mark}")
        return super().compose_node(parent, index)


class _TaglessLoader(_Loader):
    """The same, for files whose tags are dropped."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        if getattr(event, "tag", None) is not None:
            event.tag = None  # pyright: ignore
            is_plain = getattr(event, "style", None) is None
            # of a scalar, without a tag: whether it is a number or the like, and whether a text
            event.implicit = (is_plain, not is_plain)  # pyright: ignore
        return super().compose_node(parent, index)


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"^[-+]?(?:0|[1-9][0-9]{0,17})$", "-+0123456789"),
    ("float", r"^[-+]?(?:[0-9]{1,18}\.[0-9]{0,30}|\.[0-9]{1,30}|[0-9]{1,18}(?=e))"
              r"(?:e[-+]?[0-9]{1,3})?$", "-+.0123456789"),
):  # fmt: skip
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


def _count(node: Any, counted: dict[int, int], depth: int) -> int:
    """The number of values below a node; an alias counts each time that it occurs."""
    if depth > MOST_DEPTH:
        raise ValueError(f"nested deeper than {MOST_DEPTH}")
    num_values = counted.get(id(node))
    if num_values is None:
        counted[id(node)] = MOST_VALUES  # refuses a node that contains itself
        children = node.value if isinstance(node, yaml.SequenceNode) else ()
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            children = [*chain.from_iterable(node.value)]
        num_values = counted[id(node)] = 1 + sum(
            _count(child, counted, depth + 1) for child in children
        )
    if num_values > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES} values, aliases written out")
    return num_values


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if (key.tag, key.value) in seen:
            line = key.start_mark.line + 1
            raise RepeatedKey(
                f"the key {shown(key.value)} stands twice, again in line {line}, expected once"
            )
        seen.add((key.tag, key.value))
