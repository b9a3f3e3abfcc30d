"""JSON and YAML of any bytes: a value or one reason, in little time."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from miron_jax.errors import InputError
from miron_jax.files.readers import MOST_YAML_BYTES, RepeatedKey, parse_json, parse_yaml, shown
from miron_jax.tasks.gauntlet.yaml_files import read_suite

pytestmark = pytest.mark.newest


def test_bytes_that_are_no_json_have_a_reason():
    deep = (b"[" * 10**6, b'{"a":' * 10**6)
    for content in (b"", *deep, b"\xff", b"[1", b"9" * 5000, b"\x00", b'"\xed\xa0\x80"', b"nul", b"\xef\xbb\xbf"):
        with pytest.raises(ValueError, match=r".+"):
            parse_json(content)


@pytest.mark.parametrize(
    ("content", "key"),
    [(b'{"q": 1, "gold": 0, "gold": 1}', "gold"), (b'[{"a": {"b": 1, "b": 1}}]', "b"), (b'{"": 1, "": 2}', "")],
)
def test_a_key_twice_is_named_where_rows_are_read(content: bytes, key: str):
    """A parser takes the last one; configurations of models, which others wrote, stay as they are."""
    with pytest.raises(RepeatedKey, match=f"the key '{key}' stands twice in "):
        parse_json(content, of_records=True)
    assert parse_json(content) is not None
    assert parse_json(b'[{"a": 1}, {"a": {"a": 1}}]', of_records=True) == [{"a": 1}, {"a": {"a": 1}}]


YAML: list[tuple[bytes, Any]] = [
    (b"", None),
    (b"a: 1\nb: [true, null, 0.25, -3]", {"a": 1, "b": [True, None, 0.25, -3]}),
    (b"a: 2020-01-01", {"a": "2020-01-01"}),  # dates, other bases and sexagesimals are texts
    (b"a: [0x1F, 010, 1:20:30, 1_000, yes]", {"a": ["0x1F", "010", "1:20:30", "1_000", "yes"]}),
    (b"a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
    (b"<<: {a: 1}", {"<<": {"a": 1}}),  # no merging
    (b"a: '1'\nb: \"\\u00e9\"", {"a": "1", "b": "\u00e9"}),
    ("\ufeffa: 1\r\n\r\nb: 2\r\n".encode(), {"a": 1, "b": 2}),  # a byte order mark, line ends of Windows
    (b"a: {a: 1}\n'1': 1\n1: 2", {"a": {"a": 1}, "1": 1, 1: 2}),  # a text and a number are two keys
]


def test_yaml_has_jsons_values():
    for content, value in YAML:
        assert parse_yaml(content) == value


def test_yaml_without_its_tags_is_what_the_tags_would_take():
    """As Python programs dump an enum, a tuple and a class: nothing of it is made."""
    content = b"a: !!python/object/apply:os.system\n- ls\nb: !!python/tuple [1, !!str 2]\nc: !!python/name:os.system ''"
    assert parse_yaml(content, without_tags=True) == {"a": ["ls"], "b": [1, 2], "c": ""}
    for name, content in BOMBS.items():
        if name not in ("code", "a date", "a number"):
            with pytest.raises(ValueError):  # noqa: PT011 - the sentences are those of the next test
                parse_yaml(content, without_tags=True)


def doubled(first: bytes, line: str) -> bytes:
    """Each line nine times the one before it."""
    names = "abcdefghijklm"
    below = pairwise(names)
    return first + "".join(line % (name, name, ",".join([f"*{other}"] * 9)) for other, name in below).encode()


BOMBS = {
    "aliases": doubled(b"a: &a [x,x,x,x,x,x,x,x,x]\n", "%s: &%s [%s]\n"),
    "merge keys": doubled(b"a: &a {k: 1}\n", "%s: &%s {<<: [%s]}\n"),
    "itself": b"&a [*a]",
    "depth": b"[" * 100_000,
    "blocks": b"".join(b" " * n + b"a:\n" for n in range(600)),
    "size": b"a: " + b"x" * MOST_YAML_BYTES,
    "a number": b"a: !!int " + b"1:" * 50_000 + b"1",
    "code": b"!!python/object/apply:os.system [ls]",
    "a list as a key": b"? [1]\n: 2",
    "a date": b"!!timestamp 2020-99-99",
    "no text": b"\xff\xfe",
    "a control character": b"a: \x00",
    "two documents": b"a: 1\n---\nb: 2",
    "a key twice": b"a: 1\nb: {c: 1,\n  c: 2}",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_yaml_that_grows_or_is_none_has_a_reason(name: str, tmp_path: Path):
    start = time.thread_time()
    path = tmp_path / "tasks.yaml"
    path.write_bytes(BOMBS[name])
    with pytest.raises(InputError) as error:
        read_suite(path, None)
    assert time.thread_time() - start < 5
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)


def test_a_value_in_a_message_is_short():
    value: Any = ["x" * 10**6]
    for _ in range(60):
        value = [value] * 9
    assert len(shown(value)) < 2000
    assert shown("a") == "'a'"
