"""Faults of the machine are none of the program: what could not start, or got no processor, is run again or not judged."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.records import Problem
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.program_languages import LANGUAGES
from miron_jax.evaluation.task_kinds.programs import PATIENCE_ALONE, STARVED, Judge, check_languages
from miron_jax.evaluation.task_kinds.saved_verdicts import JournalVerdicts
from miron_jax.files.store import Store
from miron_jax.runtime.journal import Journal
from miron_jax.runtime.sandbox import sandbox, watch
from miron_jax.runtime.sandbox.limits import Limits
from miron_jax.runtime.sandbox.sandbox import Ran, Sandbox
from miron_jax.runtime.sandbox.watch import Channel
from tests.conftest import REPOSITORY
from tests.runtime.test_sandbox import box
from tests.support.command import in_process
from tests.support.corpus import right_programs
from tests.support.tiny_model import make_model

__all__ = ["box"]  # a fixture

# A bubblewrap that fails as often as its file says, and then runs the launcher without a box.
FAILING = """#!/bin/sh
n=$(cat {count})
if [ $n -gt 0 ]; then echo $((n - 1)) > {count}; echo "no namespace {count}" >&2; exit 1; fi
while [ "$1 $2" != "--remount-ro /" ]; do [ "$1" = --json-status-fd ] && status=$2; shift; done
shift 2
cd {folder} && "$@"
echo "{{ \\"exit-code\\": $? }}" >/dev/fd/$status
"""


@pytest.mark.parametrize(("failures", "ended"), [(0, "exit"), (3, "exit"), (4, "not started")])
def test_a_box_that_cannot_start_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, ended: str
):
    """Before, each of these was a run of status 1, so that the program was judged an error."""
    monkeypatch.setattr(sandbox, "START_PAUSES", (0.0,) * 3)
    monkeypatch.setattr(sandbox, "user_switch", lambda folder: ([], None))
    (tmp_path / "count").write_text(str(failures))
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(FAILING.format(count=tmp_path / "count", folder=tmp_path))
    bwrap.chmod(0o755)
    ran = Sandbox(str(bwrap), sys.executable).run(["sh", "-c", "echo $0", "says"], {})
    assert ran.ended == ended
    if ended == "exit":
        assert (ran.status, ran.out) == (0, "says\n")
    else:
        assert ran.err == f"no namespace {tmp_path / 'count'}"


@pytest.mark.parametrize(
    ("command", "ended", "why"), [(["/nowhere/tool"], "not started", "No such file"), (["false"], "exit", "")]
)
def test_a_program_that_is_not_executed_is_told_from_one_that_fails(
    monkeypatch: pytest.MonkeyPatch, command: list[str], ended: str, why: str
):
    monkeypatch.setattr(sandbox, "START_PAUSES", ())
    ran = Sandbox(None, sys.executable).run(command, {})
    assert ran.ended == ended
    assert why in ran.err


def test_a_process_that_cannot_be_made_is_no_verdict(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(sandbox, "START_PAUSES", ())
    monkeypatch.setattr(sandbox.subprocess, "Popen", refuse)
    ran = Sandbox(None, sys.executable).run(["true"], {})
    assert (ran.ended, ran.err) == ("not started", "[Errno 11] Resource temporarily unavailable")


def problem(text: str = "1") -> Problem:
    return Problem(0, "t", "def f(a):\n", "f", "python", ("(1,)",), (text,), solution="    return a\n")


def one_test(value: bytes = b"1/1") -> Ran:
    """A box of one test with this value."""
    return Ran("exit", 0, "", "", b"0 %d\n%s" % (len(value), value))


class _Scripted(Sandbox):
    """Answers of a sandbox, by the program that it is to run; `ran` counts them."""

    __slots__ = ()

    def run(self, command: Sequence[str], files: Any, limits: Limits = Limits(), quiet: bool = False) -> Ran:  # noqa: B008
        if "program" not in files:
            return Ran("exit", 0, "", "", b'["1/1"]')
        is_alone = self.patience == PATIENCE_ALONE
        RUNS.append((files["program"], is_alone))
        right = one_test()
        starved = Ran("time", -9, "", "", is_starved=True)
        return {
            "right": right,
            "refused": Ran("not started", 1, "", "no namespaces"),
            "starved once": right if is_alone else starved,
            "starved": starved,
            "slow": Ran("time", -9, "", ""),
        }[files["program"].removeprefix(problem().prompt)]


RUNS: list[tuple[str, bool]] = []


@pytest.fixture
def runs() -> list[tuple[str, bool]]:
    RUNS.clear()
    return RUNS


@pytest.mark.parametrize(
    ("ends", "verdicts"),
    [
        (["starved", "right"], ["passed", "wrong"]),
        (["starved", "starved"], ["not judged", "not judged"]),
        (["refused"], ["not judged", "not judged"]),
        (["right"], ["passed", "wrong"]),
    ],
)
def test_expected_values_that_the_machine_could_not_evaluate(ends: list[str], verdicts: list[str]):
    """Before, want of a processor ended the run with an InputError; the next call evaluates them again."""
    evaluated = list[float]()

    class Box(Sandbox):
        def run(self, command: Sequence[str], files: Any, limits: Limits = Limits(), quiet: bool = False) -> Ran:  # noqa: B008
            if "program" in files:
                return one_test(b"1/1" if files["program"].endswith("right") else b"2/1")
            evaluated.append(self.patience)
            return {
                "right": Ran("exit", 0, "", "", b'["1/1"]'),
                "refused": Ran("not started", 1, "", "no namespaces"),
                "starved": Ran("time", -9, "", "", is_starved=True),
            }[ends[len(evaluated) - 1] if len(evaluated) <= len(ends) else "right"]

    judge = Judge(Box("bwrap", "python"), 1.0)
    one = problem()
    programs = [(one, text) for text in ("right", "wrong")]
    judged = judge.verdicts(programs)
    assert [verdict.ended for verdict in judged] == verdicts
    assert evaluated == [judge.sandbox.patience, PATIENCE_ALONE][: len(ends)]
    if "not judged" in verdicts:
        why = STARVED if ends[0] == "starved" else "no namespaces"
        assert judged[0].why == f"evaluating its test_outputs: {why}"
    assert [verdict.ended for verdict in judge.verdicts(programs)] == ["passed", "wrong"]


def test_expected_values_that_take_too_long_are_refused():
    class Box(Sandbox):
        def run(self, command: Sequence[str], files: Any, limits: Limits = Limits(), quiet: bool = False) -> Ran:  # noqa: B008
            return Ran("time", -9, "", "")

    with pytest.raises(InputError, match=r"^t: evaluating its test_outputs ended by time: run where"):
        Judge(Box("bwrap", "python"), 1.0).verdicts([(problem(), "right")])


@pytest.mark.parametrize("how", ["all_tests", "answers"])
@pytest.mark.parametrize(
    ("ends", "trial", "ended"),
    [
        ([(127, "")], (0, ""), "passed"),
        ([(126, ""), (127, "")], (127, "sh: exec: python: not found"), "not judged"),
        ([(127, ""), (127, "")], (0, ""), "failed"),  # the program's status
        ([(1, "g++: fatal error: cannot execute 'cc1plus'"), (2, "sh: Cannot fork")], (127, ""), "not judged"),
        ([(1, "NameError")], (127, ""), "failed"),
    ],
)
def test_what_could_not_be_executed_in_its_box_is_no_verdict(ends: Any, trial: Any, ended: str, how: Any):
    """Before, each was an error of the program; the trial tells a machine that executes nothing."""
    runs = list[tuple[int, str]]()

    class Box(Sandbox):
        def run(self, command: Sequence[str], files: Any, limits: Limits = Limits(), quiet: bool = False) -> Ran:  # noqa: B008
            if "program" not in files:
                return Ran("exit", 0, "", "", b'["1/1"]')
            status, err = trial
            if files["program"].endswith("right"):
                runs.append(ends[len(runs)] if len(runs) < len(ends) else (0, ""))
                status, err = runs[-1]
            value = b"=1" if "text" in command else b"1/1"
            return Ran("exit", status, "", err) if status else one_test(value)

    verdict = Judge(Box("bwrap", "python"), 1.0, how=how).verdicts([(problem(), "right")])[0]
    failed = "error" if how == "all_tests" else "wrong"
    assert verdict.ended == (failed if ended == "failed" else ended)
    assert len(runs) == len(ends) + (ended == "passed")
    if ended == "not judged":
        assert verdict.why == f"a program that is right fails too (error: {trial[1]})"


def test_a_trial_that_is_not_judged_is_said_before_weights_are_loaded():
    """Before, it passed in silence."""

    class Box(Sandbox):
        def run(self, command: Sequence[str], files: Any, limits: Limits = Limits(), quiet: bool = False) -> Ran:  # noqa: B008
            return Ran("not started", 1, "", "no namespaces")

    with pytest.raises(InputError, match=r"^t: a python program that is right does not pass here.*no namespaces"):
        check_languages(Judge(Box("bwrap", "python"), 1.0), [problem()], "t")


TEXTS = ["right", "refused", "starved once", "starved", "slow"]


def test_faults_of_the_machine_are_no_verdicts_of_programs(runs: list[tuple[str, bool]]):
    verdicts = Judge(_Scripted("bwrap", "python"), 1.0).verdicts([(problem(), text) for text in TEXTS])
    assert [verdict.ended for verdict in verdicts] == ["passed", "not judged", "passed", "not judged", "time"]
    assert [verdict.why for verdict in verdicts if verdict.ended == "not judged"] == ["no namespaces", STARVED]
    assert [text.split("\n")[1] for text, is_alone in runs if is_alone] == ["starved once", "starved"]


def test_a_run_that_goes_on_judges_only_what_has_no_verdict(tmp_path: Path, runs: list[tuple[str, bool]]):
    judge = Judge(_Scripted("bwrap", "python"), 1.0)
    programs = [(problem(), text) for text in TEXTS]
    with Journal(Store(str(tmp_path)), "key", "0") as journal:
        first = judge.verdicts(programs, JournalVerdicts(journal))
    runs.clear()
    with Journal(Store(str(tmp_path)), "key", "0") as journal:
        assert judge.verdicts(programs, JournalVerdicts(journal)) == first
        assert {text.split("\n")[1] for text, _ in runs} == {"refused", "starved"}
        runs.clear()
        judge.verdicts([(problem("2"), "right")], JournalVerdicts(journal))  # the problem has another right answer
        assert len(runs) == 1


@pytest.mark.parametrize(
    ("tree", "wall", "expected"),
    [
        ([(0.9, 0.0)], 0.9, None),
        ([(1.1, 0.0)], 1.1, False),
        ([(0.0, 0.0)], 1.1, False),  # it sleeps
        ([(0.6, 0.5)], 1.1, None),
        ([(0.6, 0.5), (0.0, 0.0)], 1.9, False),  # 1.4 s of its own
        ([(0.6, 1.5)], 2.1, True),
        ([(2.1, 0.0), (2.0, 0.0)], 0.9, False),  # five threads and more
    ],
)
def test_the_clock_of_a_program(monkeypatch: pytest.MonkeyPatch, tree: Any, wall: float, expected: bool | None):
    """Limits of 1 s of wall time and 4 s of processors; None: it goes on, else whether it is starved."""
    monkeypatch.setattr(watch, "seconds_without_processor", lambda process: process[1])
    cpu = sum(process[0] for process in tree)
    over = watch._time_is_over(tree, wall, cpu, Limits(seconds=1.0, cpu_seconds=4.0), 2.0)
    assert (over if over is None else over.is_starved) == expected


def test_a_pipe_keeps_its_first_bytes():
    with Channel(5) as channel:
        os.write(channel.write_end, b"abc")
        channel.take()
        assert (channel.text, channel.is_over, channel.is_closed) == ("abc", False, False)
        os.write(channel.write_end, b"defgh")
        channel.close_write_end()
        channel.take()
        assert (channel.text, channel.is_over, channel.is_closed) == ("abcde", True, True)


@pytest.mark.slow
def test_a_run_with_programs_that_are_not_judged_is_to_be_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Half of a problem's two programs cannot start: no mean has it, and the same command judges them alone."""
    row = {"prompt": "def f(a):\n", "entry_point": "f", "solution": "    return a\n", "inputs": ["1"], "outputs": ["1"]}
    rows = [{**row, "name": f"p{i}"} for i in range(2)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    keys = {key: key for key in rows[0]} | {"task": "t", "kind": "program", "data": "rows.jsonl", "num_samples": 2}
    (tmp_path / "t.yaml").write_text(json.dumps(keys))
    judged = list[str]()
    is_broken = True

    def run(self: Sandbox, command: Sequence[str], files: Any, limits: Any = None, quiet: bool = False) -> Ran:
        program = files.get("program")
        if program is None:
            return Ran("exit", 0, "", "", b'["1/1"]')
        if program.endswith("return a\n"):
            return one_test()
        judged.append(program)
        return Ran("not started", 0, "", "no memory") if is_broken and len(judged) == 2 else Ran("exit", 1, "", "")

    monkeypatch.setattr(Sandbox, "find", lambda allow_unsandboxed: Sandbox(None, "python", no_sandbox="denied"))
    monkeypatch.setattr(Sandbox, "run", run)
    flags = [f"--task_path={tmp_path / 't.yaml'}", f"--output={tmp_path / 'out'}", "--allow_code_execution"]
    flags += [f"--model={make_model(tmp_path / 'model')}", "--compilation_cache="]
    first = in_process("eval", *flags)
    assert first.status == 75, first.err
    assert "own/t: 1 examples are not judged" in first.err
    assert "no memory" in first.err
    task = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]["own/t"]
    assert (task["n"], task["skipped"], task["ended"]) == (1, 1, {"error": 3, "not judged": 1})
    assert task["not_judged"] == ["no memory"]
    assert (task["sandboxed"], task["no_sandbox"]) == (False, "denied")
    assert "1 programs were not judged (no memory)" in first.out
    again = [judged[1]]
    is_broken = False
    judged.clear()
    second = in_process("eval", *flags)
    assert second.status == 0, second.err
    assert judged == again
    task = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]["own/t"]
    assert (task["n"], task["skipped"], task["ended"]) == (2, 0, {"error": 4})
    assert "not_judged" not in task


# Real boxes


@pytest.mark.slow
@pytest.mark.parametrize("language", list(LANGUAGES))
def test_a_box_that_executes_nothing_gives_no_verdict(box: Sandbox, monkeypatch: pytest.MonkeyPatch, language: str):
    """The program that ends with the same status of its own accord has a verdict."""
    right = right_programs(language)[0]
    given = [(right, right.solution), (right, EXITS[language])]
    assert [(verdict.ended, verdict.why) for verdict in Judge(box, 5.0).verdicts(given)] == [
        ("passed", ""),
        ("error", ""),
    ]
    monkeypatch.setattr(sandbox, "_BOX_LAUNCHER", sandbox._BOX_LAUNCHER.replace('"$@"', "/nowhere"))
    verdicts = Judge(box, 5.0).verdicts(given)
    assert [verdict.ended for verdict in verdicts] == ["not judged"] * 2
    assert "not found" in verdicts[0].why


EXITS = {
    "python": "    import os\n    os._exit(127)\n",
    "javascript": "  process.exit(127)\n}\n",
    "c++": "_exit(127);\n}\n",
}


@pytest.mark.slow
def test_a_program_without_a_processor_runs_again_alone(box: Sandbox):
    """It takes 0.8 s of a processor that three others want too; 1.5 s of wall time are its limit."""
    cpu = next(iter(os.sched_getaffinity(0)))
    busy = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    neighbours = [subprocess.Popen([sys.executable, "-c", busy], start_new_session=True) for _ in range(3)]
    allowed = os.sched_getaffinity(0)
    text = "    import time\n    while time.process_time() < 0.8: pass\n    return a\n"
    try:
        os.sched_setaffinity(0, {cpu})
        [right, endless] = Judge(box, 0.5).verdicts([(problem(), text), (problem(), "    while True: pass\n")])
    finally:
        os.sched_setaffinity(0, allowed)
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    assert right.ended == "passed"
    assert endless.ended == "time"


ZOMBIES = """
import os, psutil
from miron_jax.runtime.sandbox.limits import Limits
from miron_jax.runtime.sandbox.sandbox import Sandbox
box = Sandbox.find()
for _ in range(20): assert box.run(["true"], {}).good
assert box.run(["sleep", "9"], {}, Limits(seconds=0.1)).ended == "time"
print(os.getpid() == 1, len(psutil.pids()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("init", [[], ["sh", "-c", '"$@"; exit $?', "sh"]])
def test_boxes_leave_no_zombies_to_a_container_without_an_init(box: Sandbox, init: list[str]):
    """Before, each left one, and the container's limit of processes ended the run."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", *init, sys.executable, "-c", ZOMBIES]
    ran = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=False
    )
    if "unshare" in ran.stderr:
        pytest.skip("needs unshare --pid: run the tests as root of a container that lets it")
    assert ran.stdout.split() == [str(not init), str(1 + bool(init))], ran.stderr


@pytest.mark.slow
def test_programs_may_write_what_nobody_reads(box: Sandbox):
    """Each of these failed: more than 1 MB of standard error, or of a file, or a compiled file of so many."""
    flood = "    import sys\n    sys.stderr.write('x' * (3 << 20))\n    print('x' * (3 << 20))\n    return a\n"
    file = "    open('x', 'w').write('x' * (3 << 20))\n    return a\n"
    memo = "int memo[1000][1000] = {{-1}};\nint f(int a) {\n"
    cpp = Problem(0, "t", memo, "f", "c++", ("1",), ("-1",), solution="return memo[0][0];\n}\n")
    given = [(problem(), flood), (problem(), file), (cpp, cpp.solution)]
    assert [verdict.ended for verdict in Judge(box, 5.0).verdicts(given)] == ["passed"] * 3
