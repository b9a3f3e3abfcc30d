"""What programs compute, without a box: the text of values, where a program's text ends, pass@k, which problems are read."""

import collections
import datetime
import json
import sys
from array import array
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Problem
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.program_languages import LANGUAGES
from miron_jax.evaluation.task_kinds.programs import solution_of
from miron_jax.metrics.programs import NEXT_TOP_LEVEL_LINE, pass_at, score_programs
from miron_jax.runtime.sandbox.boxed.value import FRAMES, UNEQUAL, form_of
from miron_jax.tasks.gauntlet import programming

FORMS = [
    ("c.Counter('aab')", "{'b': 1, 'a': 2}", True), ("c.defaultdict(int, x=1)", "{'x': 1}", True),
    ("c.OrderedDict(b=1, a=2)", "{'a': 2, 'b': 1}", True), ("c.namedtuple('P', 'x y')(1, 2)", "(1, 2)", True),
    ("Fraction(1, 2)", "0.5", True), ("[True, 1.0, -0.0, 1 + 0j]", "[1, 1, 0, 1]", True),
    ("{1, 2}", "frozenset({2, 1})", True), ("float('-inf')", "float('-inf')", True), ("10**5000", "10**5000", True),
    (r"'\ud800 \u20ac'", r"'\ud800 €'", True), ("[1, 2]", "(1, 2)", False), ("{1: 2}", "{(1, 2)}", False),
    ("[1, [2]]", "[1, 2]", False), ("0.1 + 0.2", "0.3", False), ("'1'", "1", False), ("b'a'", "'a'", False),
    ("{2: 1, 1: [2]}.keys()", "{1, 2}", True), ("{1: 2}.items()", "{(1, 2)}", True), ("len", "max", False),
    ("c.UserList([1])", "[1]", True), ("c.UserDict(a=1)", "{'a': 1}", True), ("c.UserString('a')", "'a'", True),
    ("c.UserDict(a=1).keys()", "{'a'}", True), ("c.ChainMap({1: 2}, {3: 4})", "{1: 2, 3: 4}", True),
    ("MappingProxyType({1: 2})", "{1: 2}", True), ("memoryview(b'ab')", "b'ab'", True), ("...", "Ellipsis", True),
    ("range(0, 3, 2)", "range(0, 4, 2)", True), ("range(3)", "range(4)", False), ("range(2)", "[0, 1]", False),
    ("range(5, 5)", "range(0)", True), ("range(1)", "range(0, 9, 9)", True), ("c.deque([1])", "[1]", False),
    ("c.deque([1])", "c.deque([1], 5)", True), ("Decimal('inf')", "float('inf')", True), ("len", "len", True),
    ("Decimal('-inf')", "-1e999", True), ("Decimal('0.1')", "0.1", False), ("Decimal('0.5')", "Fraction(1, 2)", True),
    ("d.date(2020, 1, 2)", "d.date(2020, 1, 2)", True), ("d.date(2020, 1, 2)", "d.datetime(2020, 1, 2)", False),
    ("d.datetime(2020, 1, 2, 3)", "d.datetime(2020, 1, 2, 4)", False), ("d.time(1)", "d.time(1, 0)", True),
    ("d.datetime(2020, 1, 2, 3, tzinfo=UTC1)", "d.datetime(2020, 1, 2, 2, tzinfo=d.timezone.utc)", True),
    ("d.datetime(2020, 1, 2, 3, tzinfo=d.timezone.utc)", "d.datetime(2020, 1, 2, 3)", False),
    ("d.time(3, tzinfo=UTC1)", "d.time(2, tzinfo=d.timezone.utc)", True),
    ("d.timedelta(days=1)", "d.timedelta(hours=24)", True), ("d.timedelta(1)", "d.timedelta(2)", False),
    ("'a' * 3 * 10**6", "'aaa' * 10**6", True), ("'a' * 3 * 10**6", "'aaa' * 10**6 + 'b'", False),
    ("nested(300, 1)", "nested(300, 1.0)", True), ("nested(300, 1)", "nested(301, 1)", False),
]  # fmt: skip


def nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value]
    return value


NAMES = {
    "c": collections, "d": datetime, "Fraction": Fraction, "Decimal": Decimal, "MappingProxyType": MappingProxyType,
    "UTC1": datetime.timezone(datetime.timedelta(hours=1)), "nested": nested,
}  # fmt: skip


@pytest.mark.parametrize(("code", "expected", "is_equal"), FORMS)
def test_values_that_python_calls_equal_have_one_form(code: str, expected: str, is_equal: bool) -> None:
    """What the reference's `==` takes, exactly: subclasses by what they hold, numbers across types."""
    values = [eval(each, NAMES) for each in (code, expected)]
    forms = [form_of(value) for value in values]
    assert all(form[0] not in "!?" for form in forms)
    assert (forms[0] == forms[1]) == is_equal == (values[0] == values[1])


class _EqualToAll:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def test_values_without_a_form_equal_nothing_or_are_not_comparable() -> None:
    values = (float("nan"), Decimal("nan"), lambda: 0, object(), {1: 2}.values(), ValueError(1), [float("nan")])
    assert [form_of(value) for value in values] == [UNEQUAL] * 7
    assert form_of([_EqualToAll()]) == "?_EqualToAll"
    assert form_of(_EqualToAll) == UNEQUAL  # the class itself
    cycle: list[Any] = []
    cycle.append(cycle)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(FRAMES)  # as value.py does
    try:
        assert [form_of(value) for value in (nested(1001, 1), cycle)] == ["?nested more than 1000 deep"] * 2
        assert form_of(nested(1000, 1))[:2] == "[["
    finally:
        sys.setrecursionlimit(limit)
    assert form_of(memoryview(array("i", [1]))) == "?memoryview"
    compare = LANGUAGES["python"].compare
    assert [compare(value, "1/1") for value in (b"1/1", b"2/1", b"!", b"?X")] == [
        "passed", "wrong", "wrong", "not comparable",
    ]  # fmt: skip
    assert compare(b"!", "!") == "wrong"


def test_normal_forms_are_equal_exactly_where_values_are():
    values: list[Any] = [
        None, 0, 0.0, False, 1, 1.0, True, 2**70, 2.0**70, 0.5, "", "1", b"", b"1", [], [0], [0.0], (), (0,), (False,),
        set(), frozenset(), {0}, {False}, {}, {0: 1}, {0.0: True}, {0: 1}.keys(), {0: 1}.items(), range(0), range(0, 1),
        {"0": 1}, [[]], [()], ["a", "b"], ["a,b"], "[]", 1j, complex(1), memoryview(b"1"), bytearray(b"1"), Decimal(1),
        float("inf"), float("-inf"), Decimal("inf"), {1: {2, 3}}, {1: {3, 2}}, [None], "None", "é", "e\u0301",
        {("a", 1): [1]}, collections.UserList([0]), collections.deque([0]), array("b", [0]), int, "int", Ellipsis,
        datetime.date(1, 1, 1), datetime.datetime(1, 1, 1), datetime.time(0), datetime.timedelta(0), MappingProxyType({}),
    ]  # fmt: skip
    for a in values:
        for b in values:
            assert (form_of(a) == form_of(b)) == (a == b), (a, b)


def test_texts_are_cut_at_the_margin():
    assert NEXT_TOP_LEVEL_LINE.call("    return 1\n\n\ndef g():\n    pass") == "    return 1\n\n"
    assert NEXT_TOP_LEVEL_LINE.call("    a\n# note\n") == "    a"
    assert NEXT_TOP_LEVEL_LINE.call("    a\n}\n") == "    a\n}\n"
    assert NEXT_TOP_LEVEL_LINE.call("x = 1\ny = 2") == "x = 1"
    known = Problem(0, "t", "p:", "f", "python", ("1, 2",), ("3",), solution="  x")
    assert solution_of(known) == "\n  x"
    assert solution_of(replace(known, prompt="p:\n")) == "  x"


def test_pass_at_k_by_hand():
    # 5 programs, 2 of them right: one drawn passes with 2/5; of two drawn both wrong with 3/5 * 2/4.
    assert pass_at(1, 5, 2) == pytest.approx(0.4)
    assert pass_at(2, 5, 2) == pytest.approx(1 - 0.3)
    assert pass_at(3, 5, 2) == pytest.approx(0.9)  # one of the ten draws of three has the three wrong ones
    assert pass_at(4, 5, 2) == 1.0
    assert pass_at(1, 5, 0) == 0.0
    assert score_programs([True, False, False, False, False], 1).metrics == pytest.approx(
        {"accuracy": 0.2, "pass_at_1": 0.2, "pass_at_5": 1.0}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"language": "cobol"}, "'language' holds 'cobol'"),
        ({"test_inputs": "x"}, "'test_inputs' holds 'x'"),
        ({"test_outputs": ["1"]}, "2 test_inputs and 1 test_outputs"),
    ],
)
def test_bad_problems_are_refused(tmp_path: Path, changes: dict[str, Any], message: str):
    fields = {
        "task_id": "t", "prompt": "p", "entry_point": "f", "language": "python", "canonical_solution": "s",
        "test_inputs": ["1", "2"], "test_outputs": ["1", "2"],
    } | changes  # fmt: skip
    task = programming.SUITE.tasks[0]
    (tmp_path / "programming").mkdir()
    (tmp_path / task.file.path).write_text(json.dumps(fields) + "\n")
    with pytest.raises(InputError, match=message):
        read_examples(task, tmp_path, allow_changed=True)


@pytest.mark.parametrize(
    ("value", "ended"), [("Infinity", "passed"), ("NaN", "wrong"), ("[1, NaN]", "wrong"), ("[1, 2]", "passed")]
)
def test_a_number_of_cpp_that_equals_nothing_is_wrong(value: str, ended: str):
    assert LANGUAGES["c++"].compare(value.encode(), f"1e-06 {value}") == ended
