"""Right programs of everyday kinds pass, whatever they use and whatever else the machine does."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from miron_jax.definitions.records import Problem
from miron_jax.evaluation.task_kinds.program_languages import Cpp, Ready
from miron_jax.evaluation.task_kinds.programs import Judge
from miron_jax.runtime.sandbox.sandbox import Ran, Sandbox
from tests.runtime.test_sandbox import box
from tests.support.corpus import FILES, right_programs

__all__ = ["box"]  # a fixture

EVERY = {"python": 6, "javascript": 6, "c++": 18}  # of the sample
TIMES = 20
NEIGHBOURS = 8


# Memory that forks share is allowed where a control group counts it: /proc does not show it.
COUNTED = ("memory shared by forks",)


def programs_for(box: Sandbox, language: str) -> list[Problem]:
    programs = right_programs(language)
    return [each for each in programs if box.bounded_by == "cgroup" or each.name not in COUNTED]


def failing(judge: Judge, problems: list[Problem]) -> dict[str, tuple[str, str]]:
    verdicts = judge.verdicts([(problem, problem.solution) for problem in problems])
    pairs = zip(problems, verdicts, strict=True)
    return {problem.name: (verdict.ended, verdict.why) for problem, verdict in pairs if not verdict.passed}


def test_there_are_two_hundred_kinds():
    names = {language: [problem.name for problem in right_programs(language)] for language in FILES}
    assert sum(map(len, names.values())) >= 200
    assert [language for language, each in names.items() if len(set(each)) < len(each)] == []


@pytest.mark.slow
@pytest.mark.parametrize("language", list(FILES))
def test_a_sample_of_right_programs_passes(box: Sandbox, language: str):
    assert failing(Judge(box, 10.0), programs_for(box, language)[:: EVERY[language]]) == {}


LIMITS = {
    "python": ("300 open files", "threads", "much standard error", "a file of 20 MB", "a value of 2 MB",
               "multiprocessing", "shared value and lock", *COUNTED),
    "javascript": ("a left timer", "a left interval", "WebAssembly.Memory", "two WebAssembly memories",
                   "300 open files", "names of globals"),
    "c++": ("a table of a million numbers",),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("language", list(LIMITS))
def test_no_limit_that_nobody_asked_for_fails_a_right_program(box: Sandbox, language: str):
    problems = [problem for problem in programs_for(box, language) if problem.name in LIMITS[language]]
    missing = set(LIMITS[language]) - {problem.name for problem in problems}
    assert missing <= (set() if box.bounded_by == "cgroup" else set(COUNTED))
    assert failing(Judge(box, 10.0), problems) == {}


@pytest.fixture
def neighbours() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(NEIGHBOURS)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.parametrize("language", list(FILES))
def test_right_programs_pass_every_time_under_busy_neighbours(
    box: Sandbox, neighbours: None, language: str, monkeypatch: pytest.MonkeyPatch
):
    """C++ is compiled once."""
    compiled = Cpp.make_ready
    problems = programs_for(box, language)
    by_code = {problem.prompt + problem.solution: problem for problem in problems}

    @cache
    def compile_once(code: str) -> Ready | Ran:
        return compiled(Cpp(), box, by_code[code], code)

    monkeypatch.setattr(Cpp, "make_ready", lambda self, sandbox, problem, code: compile_once(code))
    judge = Judge(box, 5.0)
    assert [failing(judge, problems) for _ in range(TIMES)] == [{}] * TIMES
