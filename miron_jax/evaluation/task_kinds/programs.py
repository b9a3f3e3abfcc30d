"""The judge of programs: runs their tests in a sandbox and decides which programs pass.

Arrives: `Problem`s and programs.  Leaves: a `Verdict` per program.  It deliberately does not know
models or scores.

A program passes if every test of its problem passes (composer 0.17.2, code evaluation).  Each test
runs in a separate box that holds only the program and the test's arguments, so a program cannot
read the right answer or the judge.  Its value comes out as text (program_languages.py) and is
compared here.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

from miron_jax.definitions.records import Problem
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.program_languages import LANGUAGES, Python
from miron_jax.runtime.sandbox import SYSTEM_PATH, Limits, Ran, Sandbox

TRIAL_SECONDS = 10.0
STARTING_SECONDS = 1.0  # allowance for the start of a box and an interpreter


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a program."""

    passed: bool
    # wrong: it returned something else; answered: expected values are not published; nan: the model
    # answered NaN, so there is no program
    ended: Literal["passed", "wrong", "error", "time", "memory", "answered", "nan"]
    why: str = field(default="", compare=False)  # the end of what a failed run printed
    # under the rule "answers": str() of each returned value, or why there is none
    answers: tuple[str, ...] = ()


def solution_of(problem: Problem) -> str:
    """The authors' solution as a completion of the prompt; it starts on a new line."""
    is_joined = problem.prompt.endswith("\n") or problem.solution.startswith("\n")
    if problem.code is not None or is_joined:
        return problem.solution
    return f"\n{problem.solution}"


def check_languages(sandbox: Sandbox, problems: Sequence[Problem], task_name: str) -> None:
    """Raises InputError if a compiler or interpreter is missing, or if a right program does not
    pass."""
    for language, problem in {problem.language: problem for problem in problems}.items():
        tool = LANGUAGES[language].tool
        if tool and sandbox.which(tool) is None:
            path = SYSTEM_PATH if sandbox.bwrap else "PATH"
            raise InputError(
                f"{task_name}: its programs are {language}, and {tool} is not in {path}: install "
                "it there"
            )
        prompt, solution = _TRIAL[language]
        inputs = ("(1,)" if language == "python" else "1",)
        trial = replace(
            problem,
            prompt=prompt,
            code=None,
            entry_point="f",
            inputs=inputs,
            outputs=("1",),
            solution=solution,
        )
        verdict = Judge(sandbox, TRIAL_SECONDS).verdicts([(trial, solution)])[0]
        if not verdict.passed:
            reason = f"{verdict.ended}: {verdict.why}"
            raise InputError(
                f"{task_name}: a {language} program that is right does not pass here ({reason}): "
                "mend what that names, or leave the task out"
            )


_TRIAL = {
    "python": ("def f(a):\n", "    return a\n"),
    "c++": ("int f(int a) {\n", "    return a;\n}\n"),
    "javascript": ("const f = (a) => {\n", "  return a\n}\n"),
}


@dataclass(frozen=True, slots=True)
class Judge:
    """Runs programs, several at a time; evaluates the expected values of each problem once."""

    sandbox: Sandbox
    test_seconds: float
    how: Literal["all_tests", "answers"] = "all_tests"  # as in ProgramProfile.judge
    # By id() of the problem; the reference to the problem keeps its id from being reused.
    _expected: dict[int, tuple[Problem, tuple[str, ...] | Ran]] = field(default_factory=dict)

    def verdicts(self, programs: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """One verdict per program (its problem, its text after the prompt); equal programs run
        once.

        Raises InputError if evaluating a problem's expected values takes too much time or memory.
        """
        unique = {(id(problem), text): problem for problem, text in programs}
        judge = self._all_tests if self.how == "all_tests" else self._answers
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            if self.how == "all_tests":
                problems = {id(problem): problem for problem, _ in programs}
                list(threads.map(self._evaluate, problems.values()))
            judged = threads.map(lambda key: judge(unique[key], key[1]), unique)
            verdicts = dict(zip(unique, judged, strict=True))
        return [verdicts[id(problem), text] for problem, text in programs]

    def _evaluate(self, problem: Problem) -> None:
        if id(problem) in self._expected:
            return
        expected = LANGUAGES[problem.language].expected(self.sandbox, problem)
        if isinstance(expected, Ran) and expected.ended != "exit":
            raise InputError(
                f"{problem.name}: evaluating its test_outputs ended by {expected.ended}: run where "
                "more of it is to be had, or leave the task out"
            )
        self._expected[id(problem)] = problem, expected

    def _all_tests(self, problem: Problem, text: str) -> Verdict:
        language = LANGUAGES[problem.language]
        _, expected = self._expected[id(problem)]
        # outputs that are no expressions: no program passes, not even the authors'
        if isinstance(expected, Ran):
            return _failed(expected)
        ready = language.make_ready(self.sandbox, problem, problem.prompt + text)
        if isinstance(ready, Ran):
            return _failed(ready)
        limits = Limits(seconds=self.test_seconds + STARTING_SECONDS)
        for test, right in enumerate(expected):
            ran = language.run(self.sandbox, ready, problem, test, limits)
            if not ran.good or not ran.value:  # it may have ended before it could return
                return _failed(ran)
            if not language.same(ran.value, right):
                return Verdict(False, "wrong")
        return Verdict(True, "passed")

    def _answers(self, problem: Problem, text: str) -> Verdict:
        """Keeps the value of every test: submissions need it even if expected values are not
        published."""
        code = (problem.prompt if problem.code is None else problem.code) + text
        ready = _PYTHON.make_ready(self.sandbox, problem, code)
        assert not isinstance(ready, Ran)
        limits = Limits(seconds=self.test_seconds + STARTING_SECONDS)
        answers = tuple(
            _answer(_PYTHON.run(self.sandbox, ready, problem, test, limits, "text"))
            for test in range(len(problem.inputs))
        )
        if not problem.outputs:
            return Verdict(False, "answered", answers=answers)
        right = answers == problem.outputs
        return Verdict(right, "passed" if right else "wrong", answers=answers)


_PYTHON = Python()


def _answer(ran: Ran) -> str:
    """str() of the value of one test, or why there is none."""
    if ran.ended == "time":
        return "timed out"
    # Without "=" the driver wrote nothing: the program ended before its function returned.
    if not ran.good or ran.value[:1] != b"=":
        return "failed"
    return ran.value[1:].decode("utf-8", "replace")


def _failed(ran: Ran) -> Verdict:
    if ran.ended == "exit":
        return Verdict(False, "error", " ".join(ran.err.split())[-200:])
    return Verdict(False, ran.ended)
