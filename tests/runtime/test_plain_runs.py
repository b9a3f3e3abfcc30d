"""The judge's verdicts are those of a plain run, of published solutions and of changed ones, wherever it runs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Problem
from miron_jax.evaluation.task_kinds.programs import Judge, solution_of
from miron_jax.runtime.processors import usable_processors
from miron_jax.runtime.sandbox.group import BoxGroups, GroupLimits
from miron_jax.runtime.sandbox.sandbox import Sandbox
from miron_jax.tasks.gauntlet import programming
from tests.conftest import REPOSITORY
from tests.runtime.test_sandbox import UNPASSABLE, box
from tests.support.changed_programs import passes_plainly, sample

__all__ = ["box"]  # a fixture

SECONDS = 4.0


def differing(box: Sandbox, programs: Sequence[tuple[Problem, str]]) -> list[tuple[str, str, bool]]:
    def plain(problem: Problem, text: str) -> bool:
        return passes_plainly(problem, problem.prompt + text, SECONDS * len(problem.inputs))

    verdicts = Judge(box, SECONDS).verdicts(programs)
    with ThreadPoolExecutor(usable_processors()) as threads:
        plain_runs = list(threads.map(plain, *zip(*programs, strict=True)))
    return [
        (problem.name, f"{verdict.ended} {text}", passed)
        for (problem, text), verdict, passed in zip(programs, verdicts, plain_runs, strict=True)
        if verdict.passed != passed
    ]


def problems_of(label: str, shared_data: Path) -> list[Problem]:
    folder = programming.locate(shared_data / "eval_bundle")
    [task] = [task for task in programming.SUITE.tasks if task.name.endswith(f"/{label}")]
    return read_examples(task, folder)


# Programs whose plain run keeps state between tests, or whose value depends on the hash seed, have no one verdict.
@pytest.mark.parametrize(
    ("label", "every", "count"),
    [
        pytest.param("human_eval", 16, 12, marks=pytest.mark.slow),
        pytest.param("human_eval_js", 16, 12, marks=pytest.mark.slow),
        pytest.param("human_eval", 1, 1100, marks=pytest.mark.long),
        pytest.param("human_eval_js", 1, 500, marks=pytest.mark.long),
    ],
)
def test_verdicts_equal_those_of_a_plain_run(box: Sandbox, shared_data: Path, label: str, every: int, count: int):
    problems = problems_of(label, shared_data)[::every]
    programs = [(problem, solution_of(problem)) for problem in problems]
    for problem, text in sample(problems, count, seed=1):
        program = f"\n\n{text}" if problem.language == "python" else text
        programs.append((problem, program))
    assert differing(box, programs) == []


CONTAINED = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
from tests.runtime.test_plain_runs import failing_rows
from miron_jax.runtime.sandbox.sandbox import Sandbox
box = Sandbox.find()
if sys.argv[1] == "watch":
    box = replace(box, groups="absent")
print(json.dumps([os.getpid(), os.geteuid(), box.bounded_by, failing_rows(box, Path(sys.argv[2]))]))
"""
PLAIN_USER = 12345


def failing_rows(box: Sandbox, shared_data: Path) -> list[list[int]]:
    """Of right programs, and of those that return nothing."""
    problems = problems_of("human_eval", shared_data)[15::22]
    right = Judge(box, SECONDS).verdicts([(problem, solution_of(problem)) for problem in problems])
    empty = Judge(box, SECONDS).verdicts([(problem, "    return\n") for problem in problems])
    return [
        [problem.row for problem, verdict in zip(problems, verdicts, strict=True) if not verdict.passed]
        for verdicts in (right, empty)
    ]


def interpreter_for(user: int) -> list[str]:
    """This Python, or the system's with this one's packages, if the user cannot reach this one."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        command = ["env", f"PYTHONPATH={REPOSITORY}:{packages}", "PYTHONDONTWRITEBYTECODE=1", python]
        ran = subprocess.run([*switch(user), *command, "-c", "import psutil"], capture_output=True, check=False)
        if ran.returncode == 0:
            return command
    pytest.skip("needs a Python that a plain user can execute: install python3 under /usr")


def switch(user: int) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


@contextmanager
def delegated(groups: BoxGroups, user: int) -> Iterator[list[str]]:
    """What enters a group in which the user may make others; the command follows."""
    with groups.make(GroupLimits(4 << 30, 512, 4.0)) as group:
        for folder in group._folders:
            for path in (folder, *folder.iterdir()):
                os.chown(path, user, user)
        yield group.joined([])
        for folder in group._folders:
            for below in filter(Path.is_dir, folder.iterdir()):
                below.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize("bounded_by", ["cgroup", "watch"])
@pytest.mark.parametrize("user", [0, PLAIN_USER])
def test_a_container_without_an_init_changes_no_verdict(box: Sandbox, shared_data: Path, user: int, bounded_by: str):
    if os.geteuid() or not isinstance(box.groups, BoxGroups) or not shutil.which("setpriv"):
        pytest.skip(f"needs root, setpriv and a cgroup that may hold others ({box.groups}): run the tests as root")
    container = ["unshare", "--pid", "--fork", "--mount-proc", *switch(user), *interpreter_for(user)]
    with delegated(replace(box.groups, left=[]), user) as entered:
        command = [*entered, *container, "-c", CONTAINED, bounded_by, str(shared_data)]
        ran = subprocess.run(
            command, capture_output=True, text=True, cwd="/", env={"PATH": os.environ["PATH"]}, check=False
        )
    if "unshare" in ran.stderr:
        pytest.skip("needs unshare --pid: run the tests as root of a container that lets it")
    rows = list(range(15, 164, 22))
    failing = [[row for row in rows if row in UNPASSABLE], rows]
    assert json.loads(ran.stdout or "[]") == [1, user, bounded_by, failing], ran.stderr
