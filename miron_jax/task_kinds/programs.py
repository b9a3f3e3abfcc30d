"""A problem and programs that a model wrote for it -> which of them pass.

Arrives: `Problem`s and texts.  Leaves: a verdict a text.  It deliberately does not know models or scores.

A program passes when every test of its problem does (composer 0.17.2, code evaluation), each in a box of its own, into which
nothing but the program and the test's arguments goes: a program that looks for the right answer, or for the judge, finds
neither.  What it returns comes out as text (program_languages.py) and is compared here.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

from miron_jax.definitions.records import Problem
from miron_jax.errors import InputError
from miron_jax.runtime.sandbox import SYSTEM_PATH, Limits, Ran, Sandbox
from miron_jax.task_kinds.program_languages import LANGUAGES, Python

TRIAL_SECONDS = 10.0
STARTING_SECONDS = 1.0  # that a box and an interpreter may take before a test begins


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a program."""

    passed: bool
    ended: Literal[
        "passed", "wrong", "error", "time", "memory", "answered", "nan"
    ]  # wrong: it ran and returned something else; answered: what it should return is not published; nan: the model
    # answered NaN, there is no program
    why: str = field(default="", compare=False)  # what the judge itself printed, where it could not judge
    answers: tuple[str, ...] = ()  # str() of what each test returned, or why it did not, where that is compared


def solution_of(problem: Problem) -> str:
    """The authors' solution as a text that goes on from the prompt, on a line of its own."""
    before = problem.prompt if problem.code is None else problem.code
    joined = before.endswith("\n") or problem.solution.startswith("\n") or problem.code is not None
    return problem.solution if joined else f"\n{problem.solution}"


def check_languages(sandbox: Sandbox, problems: Sequence[Problem], task_name: str) -> None:
    """Raises InputError where a compiler or interpreter is missing, or a program that is right does not pass."""
    for language, own in {problem.language: problem for problem in problems}.items():
        tool = LANGUAGES[language].tool
        if tool and sandbox.which(tool) is None:
            where = SYSTEM_PATH if sandbox.bwrap else "PATH"
            raise InputError(
                f"{task_name}: its programs are {language}, and {tool} is not in {where}: install it there"
            )
        prompt, solution = _TRIAL[language]
        inputs = ("(1,)" if language == "python" else "1",)
        trial = replace(
            own, prompt=prompt, code=None, entry_point="f", inputs=inputs, outputs=("1",), solution=solution
        )
        verdict = Judge(sandbox, TRIAL_SECONDS).verdicts([(trial, solution)])[0]
        if not verdict.passed:
            reason = f"{verdict.ended}: {verdict.why}"
            raise InputError(
                f"{task_name}: a {language} program that is right does not pass here ({reason}): mend what that names, or "
                "leave the task out"
            )


_TRIAL = {
    "python": ("def f(a):\n", "    return a\n"),
    "c++": ("int f(int a) {\n", "    return a;\n}\n"),
    "javascript": ("const f = (a) => {\n", "  return a\n}\n"),
}


@dataclass(frozen=True, slots=True)
class Judge:
    """Runs programs, several at a time; what their tests should return is evaluated once a problem."""

    sandbox: Sandbox
    test_seconds: float
    how: Literal["all_tests", "answers"] = "all_tests"  # as in ProgramProfile.judge
    _wanted: dict[int, tuple[Problem, tuple[str, ...] | Ran]] = field(
        default_factory=dict
    )  # by id, which the problem keeps

    def verdicts(self, programs: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """One a program (its problem, its text behind the prompt); equal ones are run once.

        Raises InputError where evaluating what a problem's tests should return takes too long or too much memory.
        """
        place: dict[tuple[int, str], int] = {}  # by the problem itself and the text
        index = [place.setdefault((id(problem), text), len(place)) for problem, text in programs]
        first = dict(zip(index, programs, strict=True))
        one = self._all_tests if self.how == "all_tests" else self._answers
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            if self.how == "all_tests":
                list(threads.map(self._evaluate, {id(problem): problem for problem, _ in programs}.values()))
            found = list(threads.map(lambda key: one(*first[key]), range(len(place))))
        return [found[key] for key in index]

    def _evaluate(self, problem: Problem) -> None:
        if id(problem) in self._wanted:
            return
        wanted = LANGUAGES[problem.language].wanted(self.sandbox, problem)
        if isinstance(wanted, Ran) and wanted.ended != "exit":
            raise InputError(
                f"{problem.name}: evaluating its test_outputs ended by {wanted.ended}: run where more of it is to be had, "
                "or leave the task out"
            )
        self._wanted[id(problem)] = problem, wanted

    def _all_tests(self, problem: Problem, text: str) -> Verdict:
        language, (_, wanted) = LANGUAGES[problem.language], self._wanted[id(problem)]
        if isinstance(wanted, Ran):  # outputs that are no expressions: no program passes, the authors' own neither
            return _failed(wanted)
        ready = language.make_ready(self.sandbox, problem, problem.prompt + text)
        if isinstance(ready, Ran):
            return _failed(ready)
        limits = Limits(seconds=self.test_seconds + STARTING_SECONDS)
        for test, right in enumerate(wanted):
            ran = language.run(self.sandbox, ready, problem, test, limits)
            if not ran.good or not ran.value:  # it may have ended before it could return
                return _failed(ran)
            if not language.same(ran.value, right):
                return Verdict(False, "wrong")
        return Verdict(True, "passed")

    def _answers(self, problem: Problem, text: str) -> Verdict:
        """Keeps what every test returns: submissions want it, also where it is not known what it should be."""
        code = (problem.prompt if problem.code is None else problem.code) + text
        ready = _PYTHON.make_ready(self.sandbox, problem, code)
        assert not isinstance(ready, Ran)
        limits = Limits(seconds=self.test_seconds + STARTING_SECONDS)
        answers = tuple(
            _answer(_PYTHON.text_of(self.sandbox, ready, problem, test, limits)) for test in range(len(problem.inputs))
        )
        if not problem.outputs:
            return Verdict(False, "answered", answers=answers)
        right = answers == problem.outputs
        return Verdict(right, "passed" if right else "wrong", answers=answers)


_PYTHON = Python()


def _answer(ran: Ran) -> str:
    """str() of what one test returned, or why it returned nothing."""
    if ran.ended == "time":
        return "timed out"
    # What does not begin so was not written by the driver: the program ended before it could return.
    return ran.value[1:].decode("utf-8", "replace") if ran.good and ran.value[:1] == b"=" else "failed"


def _failed(ran: Ran) -> Verdict:
    return Verdict(False, "error", _why(ran)) if ran.ended == "exit" else Verdict(False, ran.ended)


def _why(ran: Ran) -> str:
    return " ".join(ran.err.split())[-200:] if ran.ended == "exit" else ran.ended
