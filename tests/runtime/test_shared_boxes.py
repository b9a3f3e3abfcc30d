"""Python's tests share a box only while nothing is left of the one before, and end as if each had its own."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.records import Problem
from miron_jax.evaluation.task_kinds.program_languages import Python, _tests_of
from miron_jax.evaluation.task_kinds.programs import Judge
from miron_jax.runtime.sandbox import boxed
from miron_jax.runtime.sandbox.limits import Limits
from miron_jax.runtime.sandbox.sandbox import Ran, Sandbox
from tests.runtime.test_cheats import PYTHON_CHEATS
from tests.runtime.test_plain_runs import problems_of
from tests.runtime.test_sandbox import box
from tests.support.changed_programs import sample
from tests.support.corpus import right_programs

__all__ = ["box"]  # a fixture

NUM_TESTS = 3


def problem(outputs: tuple[str, ...], *inputs: str) -> Problem:
    return Problem(0, "t", "def f(a):\n", "f", "python", inputs or ("(1,)",) * len(outputs), outputs, solution="")


class Counting(Sandbox):
    """Counts its boxes."""

    __slots__ = ()

    def run(self, *given: object, **named: object) -> Ran:
        BOXES.append(given)
        return Sandbox.run(self, *given, **named)  # pyright: ignore[reportArgumentType]


BOXES: list[object] = []


def boxes_of(box: Sandbox, given: Problem, text: str, seconds: float = 5.0) -> tuple[str, int]:
    """How it ended, and the number of boxes beside the one of its expected values."""
    BOXES.clear()
    counting = Counting(box.bwrap, box.python, groups=box.groups)
    [verdict] = Judge(counting, seconds).verdicts([(given, text)])
    return verdict.ended, len(BOXES) - 1


LEFT = {
    # what a test leaves, and whether the next one needs another box
    "nothing": ("n = len(seen)", False),
    "names": ("import builtins; n = len(seen) + len(getattr(builtins, 'x', '')); seen.append(1); builtins.x = 'x'", False),
    "environment": ("import os; n = len(os.environ.get('X', '')); os.environ['X'] = 'x'", False),
    "a working folder": ("import os; n = int(os.getcwd() == '/'); os.chdir('/')", False),
    "a file": ("import os; n = len(os.listdir('.')); open('x', 'w').close()", True),
    "shared memory": ("import os; n = len(os.listdir('/dev/shm')) - 1; open('/dev/shm/x', 'w').close()", True),
    "a folder nobody may read": ("import os; n = len(os.listdir('.')); os.chmod('.', 0)", True),
    "a folder nobody may write": ("import os; n = 1 - os.access('.', os.W_OK); os.chmod('.', 0o500)", True),
    "less priority": ("import os; n = os.getpriority(0, os.getppid()); os.setpriority(0, os.getppid(), 5)", True),
    "another folder": ("import os; n = os.listdir('/dev/shm') != ['box']; os.rename('/dev/shm/box', '/dev/shm/x')", True),
    "shared memory nobody may write": (
        "import os; n = 1 - os.access('/dev/shm', os.W_OK); os.chmod('/dev/shm', 0o555)", True
    ),
    "a process": (
        "import os, time; n = len([p for p in os.listdir('/proc') if p.isdigit()]) - 3 - len(seen)\n"
        "    if not os.fork():\n        os.setsid()\n        time.sleep(9)\n        os._exit(0)",
        True,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LEFT))
def test_each_test_finds_what_the_first_one_found(box: Sandbox, name: str):
    text, needs_another = LEFT[name]
    given = replace(problem(("0",) * NUM_TESTS), prompt="seen = []\ndef f(a):\n")
    assert boxes_of(box, given, f"    {text}\n    return n\n") == ("passed", NUM_TESTS if needs_another else 1)


@pytest.mark.slow
def test_a_test_without_memory_is_no_fault_of_the_next(box: Sandbox):
    """Three processes of 60 MB exceed 100; whichever of them the kernel chooses."""
    text = "    import os, time\n    if a == 1:\n        for i in range(3):\n            if not os.fork(): break\n"
    text += "        x = bytearray(60 << 20)\n        time.sleep(0.5)\n    return a\n"
    given = problem(("1", "2", "3"), "{'a': 1}", "{'a': 2}", "{'a': 3}")
    judge = Judge(box, 5.0, how="answers", memory_mb=100)
    assert [verdict.answers for verdict in judge.verdicts([(given, text)])] == [("failed", "2", "3")]
    given = problem(("1",) * 3)
    text = "    x = bytearray(300 << 20)\n    return a\n"
    assert Judge(box, 5.0, memory_mb=100).verdicts([(given, text)])[0].ended in ("memory", "error")


@pytest.mark.slow
def test_a_failed_test_is_the_last(box: Sandbox):
    """It leaves no mark in the next one's box, which there is not."""
    assert boxes_of(box, problem(("2", "1")), "    return 1\n") == ("wrong", 1)
    assert boxes_of(box, problem(("1", "1")), "    raise ValueError\n") == ("error", 1)
    values = Python().run(box, Python().make_ready(box, problem(("1",) * 9), "f = 1"), problem(("1",) * 9), 0, Limits())
    assert [ran.status for ran in values] == [1]
    assert "TypeError" in values[0].err


@pytest.mark.slow
def test_the_clocks_start_again_with_each_test(box: Sandbox):
    """1.3 s of wall time and 2.2 s of processors a test, one second of which starts an interpreter."""
    sleeps = "    import time\n    time.sleep(a)\n    return 1\n"
    assert boxes_of(box, problem(("1", "1"), "(0.8,)", "(0.8,)"), sleeps, 0.3) == ("passed", 1)
    assert boxes_of(box, problem(("1", "1"), "(0.1,)", "(2.5,)"), sleeps, 0.3) == ("time", 1)
    computes = "    import time\n    while time.process_time() < a: pass\n    return 1\n"
    judge = Judge(box, 5.0, cpu_seconds=0.2)
    given = [(problem(("1",) * 2, "(0.9,)", f"({seconds},)"), computes) for seconds in (0.9, 3.0)]
    assert [verdict.ended for verdict in judge.verdicts(given)] == ["passed", "time"]


@pytest.mark.slow
def test_a_slow_test_is_judged_before_the_next_begins(box: Sandbox):
    """A wrong program costs what its first tests take, and not all of them."""
    slow = "    import time\n    time.sleep(1.2)\n    return 1\n"
    given = problem(("1",) * 9)
    assert len(Python().run(box, Python().make_ready(box, given, given.prompt + slow), given, 0, Limits())) == 1
    assert boxes_of(box, problem(("2",) * 9), slow) == ("wrong", 1)
    assert boxes_of(box, problem(("1",) * 2), slow) == ("passed", 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("    import os, signal\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 1\n", "error"),
        ("    import os\n    os.kill(os.getpid(), 11)\n", "error"),
        ("    import os\n    os._exit(0)\n", "error"),
        # values in the name of the process that started this one, which the kernel does not let it write
        ("    import os\n    for d in range(3, 9):\n        try: os.write(os.open(f'/proc/{os.getppid()}/fd/{d}', 1),"
         " b'0 3\\n2/1' * 3)\n        except OSError: pass\n    return 2\n", "wrong"),
    ],
)  # fmt: skip
def test_a_program_that_reaches_for_its_parent_gains_nothing(box: Sandbox, text: str, ended: str):
    assert boxes_of(box, problem(("1",) * NUM_TESTS), text)[0] == ended


ONE, ERROR = b"0 3\n1/1", b"1 0\n"
PASSED, FAILED = Ran("exit", 0, "", "", b"1/1"), Ran("exit", 1, "", "why")


@pytest.mark.parametrize(
    ("value", "box_ended", "rans"),
    [
        (ONE * 2, ("exit", 0), [PASSED] * 2),
        (ONE, ("exit", 0), [PASSED]),  # something was left: the next test has another box
        (ONE + ERROR, ("exit", 0), [PASSED, FAILED]),
        (ONE * 9, ("exit", 0), [PASSED] * 3),  # the program's
        (ONE, ("time", 137), [PASSED, Ran("time", 137, "", "why")]),
        (ONE + b"137 0\n", ("memory", 0), [PASSED, Ran("memory", 0, "", "why")]),
        (ONE * 2 + b"137 0\n", ("not started", 0), [PASSED] * 2 + [Ran("not started", 0, "", "why")]),
        (ONE + b"137 0\n", ("exit", 0), [PASSED, Ran("exit", 137, "", "why")]),
        (b"", ("exit", 0), [Ran("exit", 0, "", "why")]),
        (b"", ("not started", 1), [Ran("not started", 1, "", "why")]),
        (ONE + b"0 9\n1/1", ("memory", 137), [PASSED, Ran("memory", 137, "", "why")]),
        (b"0 -3\n1/1", ("exit", 0), [Ran("exit", 0, "", "why")]),
        (b"0 99999999999\n1/1", ("exit", 0), [Ran("exit", 0, "", "why")]),
        (b"0 " + b"9" * 5000 + b"\n", ("exit", 0), [Ran("exit", 0, "", "why")]),
        ("٣ ٣\n1/1".encode(), ("exit", 0), [Ran("exit", 0, "", "why")]),
        (ONE * 3, ("exit", 1), [PASSED] * 3),
    ],
)
def test_how_each_test_of_a_box_ended(value: bytes, box_ended: tuple[Any, int], rans: list[Ran]):
    """A program may write anything in place of values."""
    assert _tests_of(Ran(*box_ended, "", "why", value), Limits(rounds=3)) == rans


@pytest.mark.slow
def test_a_value_is_bounded_by_itself(box: Sandbox):
    given = problem(("",) * 3, "{'a': 90}", "{'a': 200}", "{'a': 9}")
    ready = Python().make_ready(box, given, "def f(a): return 'x' * a", "text")
    rans = Python().run(box, ready, given, 0, Limits(output_bytes=100))
    assert [(ran.ended, len(ran.value)) for ran in rans] == [("exit", 91), ("output", 101), ("exit", 10)]


def test_a_box_that_has_no_room_for_a_process_is_no_verdict_of_a_program(tmp_path: Path):
    """It ends as a shell does that cannot execute a program."""
    (tmp_path / "value.py").write_text((Path(boxed.__file__).parent / "value.py").read_text())
    (tmp_path / "program").write_text("def f(a): return a\n")
    (tmp_path / "input").write_text("['(1,)']")
    full = "import os, runpy\ndef full(): raise BlockingIOError\nos.fork = full\n"
    full += "runpy.run_path('value.py', run_name='__main__')"
    command = [sys.executable, "-c", full, "value", "f", "100"]
    started = ["sh", "-c", 'exec "$@" 3>/dev/null', "sh", *command]
    assert subprocess.run(started, cwd=tmp_path, check=False).returncode == 126


@pytest.mark.slow
def test_verdicts_equal_those_of_a_box_for_each_test(box: Sandbox, shared_data: Path):
    """Right programs, cheats and changed ones."""
    published = problems_of("human_eval", shared_data)[::24]
    programs = [(given, given.solution) for given in right_programs("python")[::8]]
    cheated = replace(problem(("42", "7"), "(40, 2)", "(3, 4)"), prompt="def f(a, b):\n")
    programs += [(cheated, text) for text in [*PYTHON_CHEATS.values()][::3]]
    programs += [(given, f"\n\n{text}") for given, text in sample(published, 8, seed=2)]
    judge = Judge(box, 2.0)
    verdicts = judge.verdicts(programs)
    alone = list[bool]()
    for given, text in programs:
        pairs = zip(given.inputs, given.outputs, strict=True)
        tests = [(replace(given, inputs=(i,), outputs=(o,)), text) for i, o in pairs]
        alone.append(all(verdict.passed for verdict in judge.verdicts(tests)))
    assert [verdict.passed for verdict in verdicts] == alone
    assert {True, False} == set(alone)
