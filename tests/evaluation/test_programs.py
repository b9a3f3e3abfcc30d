"""What programs compute, without a box: the text of values, where a program's text ends, pass@k, which problems are read."""

import collections
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Problem
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.programs import solution_of
from miron_jax.metrics.programs import NEXT_TOP_LEVEL_LINE, pass_at, score_programs
from miron_jax.runtime.boxed.value import NO_FORM, form_of
from miron_jax.tasks.gauntlet import programming

FORMS = [
    ("c.Counter('aab')", "{'b': 1, 'a': 2}", True), ("c.defaultdict(int, x=1)", "{'x': 1}", True),
    ("c.OrderedDict(b=1, a=2)", "{'a': 2, 'b': 1}", True), ("c.namedtuple('P', 'x y')(1, 2)", "(1, 2)", True),
    ("Fraction(1, 2)", "0.5", True), ("[True, 1.0, -0.0, 1 + 0j]", "[1, 1, 0, 1]", True),
    ("{1, 2}", "frozenset({2, 1})", True), ("float('-inf')", "float('-inf')", True), ("10**5000", "10**5000", True),
    (r"'\ud800 \u20ac'", r"'\ud800 €'", True), ("[1, 2]", "(1, 2)", False), ("{1: 2}", "{(1, 2)}", False),
    ("[1, [2]]", "[1, 2]", False), ("0.1 + 0.2", "0.3", False), ("'1'", "1", False), ("b'a'", "'a'", False),
]  # fmt: skip


@pytest.mark.parametrize(("code", "expected", "is_equal"), FORMS)
def test_values_that_python_calls_equal_have_one_form(code: str, expected: str, is_equal: bool) -> None:
    """What the reference's `==` takes, exactly: subclasses by what they hold, numbers across types."""
    forms = [form_of(eval(each, {"c": collections, "Fraction": Fraction})) for each in (code, expected)]
    assert NO_FORM not in forms
    assert (forms[0] == forms[1]) == is_equal


def test_what_equals_nothing_has_no_form() -> None:
    assert [form_of(value) for value in (float("nan"), len, object())] == [NO_FORM] * 3


def test_normal_forms_are_equal_exactly_where_values_are():
    values: list[Any] = [
        None, 0, 0.0, False, 1, 1.0, True, 2**70, 2.0**70, 0.5, "", "1", b"", b"1", [], [0], [0.0], (), (0,), (False,),
        set(), frozenset(), {0}, {False}, {}, {0: 1}, {0.0: True},
        {"0": 1}, [[]], [()], ["a", "b"], ["a,b"], "[]", 1j, complex(1),
        float("inf"), float("-inf"), {1: {2, 3}}, {1: {3, 2}}, [None], "None", "é", "e\u0301", {("a", 1): [1]},
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
