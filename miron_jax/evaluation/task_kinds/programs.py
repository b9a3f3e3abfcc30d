"""The judge of programs: runs their tests in a sandbox and decides which programs pass.

Arrives: `Problem`s and programs.  Leaves: a `Verdict` per program.  It deliberately does not know
models or scores.

A program passes if every test of its problem passes (composer 0.17.2, code evaluation).  Each test
runs in a separate box that holds only the program and the test's arguments, so a program cannot
read the right answer or the judge.  Its value comes out as text (program_languages.py) and is
compared here.

A fault of the machine is no verdict of a program: one that could not be started is "not judged".
The clock of a program stops while it waits for a processor; one that waits too long runs again
alone, with more patience.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from miron_jax.definitions.records import Problem
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.program_languages import LANGUAGES, Python
from miron_jax.runtime.box_watch import Limits
from miron_jax.runtime.processors import usable_processors
from miron_jax.runtime.sandbox import SYSTEM_PATH, Ran, Sandbox

TRIAL_SECONDS = 10.0
STARTING_SECONDS = 1.0  # allowance for the start of an interpreter
CPU_FACTOR = 4  # processor time of a program and its children, in wall time
PATIENCE_ALONE = 20.0  # in its wall time
STARVED = "it waited too long for a processor, alone too"

Ended = Literal[
    "passed", "wrong", "error", "time", "memory", "output", "answered", "nan", "not judged"
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a program."""

    passed: bool
    # wrong: it returned something else; answered: expected values are not published; nan: the model
    # answered NaN, so there is no program; not judged: the machine failed, not the program
    ended: Ended
    # the end of what a failed run printed, or the reason why there is no verdict
    why: str = field(default="", compare=False)
    # under the rule "answers": str() of each returned value, or why there is none
    answers: tuple[str, ...] = ()
    is_starved: bool = field(default=False, compare=False)  # it should run again alone


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
        if not verdict.passed and verdict.ended != "not judged":
            reason = f"{verdict.ended}: {verdict.why}"
            raise InputError(
                f"{task_name}: a {language} program that is right does not pass here ({reason}): "
                "mend what that names, or leave the task out"
            )


class SavedVerdicts(Protocol):
    """Verdicts of an earlier run, and where those of this one are kept."""

    def get(self, judge: "Judge", problem: Problem, text: str) -> Verdict | None:
        """None: the program is not judged yet."""
        ...

    def put(self, judge: "Judge", problem: Problem, text: str, verdict: Verdict) -> None: ...


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

    def verdicts(
        self,
        programs: Sequence[tuple[Problem, str]],
        saved: "SavedVerdicts | None" = None,
    ) -> list[Verdict]:
        """One verdict per program (its problem, its text after the prompt); equal programs run
        once, and those of `saved` verdicts do not run.

        Raises InputError if evaluating a problem's expected values takes too much time or memory.
        """
        unique = {(id(problem), text): problem for problem, text in programs}
        verdicts = dict[tuple[int, str], Verdict]()
        for key, problem in unique.items():
            if saved is not None and (verdict := saved.get(self, problem, key[1])) is not None:
                verdicts[key] = verdict
        due = {key: problem for key, problem in unique.items() if key not in verdicts}

        def judge(key: tuple[int, str]) -> Verdict:
            verdict = self._judge(due[key], key[1])
            if saved is not None and not verdict.is_starved:
                saved.put(self, due[key], key[1], verdict)
            return verdict

        with ThreadPoolExecutor(usable_processors()) as threads:
            if self.how == "all_tests":
                problems = {id(problem): problem for problem in due.values()}
                list(threads.map(self._evaluate, problems.values()))
            verdicts |= zip(due, threads.map(judge, due), strict=True)
        alone = replace(self, sandbox=replace(self.sandbox, patience=PATIENCE_ALONE))
        for key, problem in due.items():
            if verdicts[key].is_starved:
                verdict = alone._judge(problem, key[1])
                if verdict.is_starved:
                    verdict = Verdict(False, "not judged", STARVED)
                if saved is not None:
                    saved.put(self, problem, key[1], verdict)
                verdicts[key] = verdict
        return [verdicts[id(problem), text] for problem, text in programs]

    def _evaluate(self, problem: Problem) -> None:
        if id(problem) in self._expected:
            return
        expected = LANGUAGES[problem.language].expected(self.sandbox, problem)
        if isinstance(expected, Ran) and expected.ended == "not started":
            return
        if isinstance(expected, Ran) and expected.ended != "exit":
            raise InputError(
                f"{problem.name}: evaluating its test_outputs ended by {expected.ended}: run where "
                "more of it is to be had, or leave the task out"
            )
        self._expected[id(problem)] = problem, expected

    def _judge(self, problem: Problem, text: str) -> Verdict:
        if self.how == "answers":
            return self._answers(problem, text)
        return self._all_tests(problem, text)

    def _all_tests(self, problem: Problem, text: str) -> Verdict:
        if id(problem) not in self._expected:
            why = "no box could be started for the expected values of its tests"
            return Verdict(False, "not judged", why)
        language = LANGUAGES[problem.language]
        _, expected = self._expected[id(problem)]
        # outputs that are no expressions: no program passes, not even the authors'
        if isinstance(expected, Ran):
            return _failed(expected)
        ready = language.make_ready(self.sandbox, problem, problem.prompt + text)
        if isinstance(ready, Ran):
            return _failed(ready)
        limits = self._limits()
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
        limits = self._limits()
        answers = tuple[str, ...]()
        for test in range(len(problem.inputs)):
            ran = _PYTHON.run(self.sandbox, ready, problem, test, limits, "text")
            if ran.ended == "not started" or ran.is_starved:
                return _failed(ran)
            answers += (_answer(ran),)
        if not problem.outputs:
            return Verdict(False, "answered", answers=answers)
        right = answers == problem.outputs
        return Verdict(right, "passed" if right else "wrong", answers=answers)

    def _limits(self) -> Limits:
        seconds = self.test_seconds + STARTING_SECONDS
        return Limits(seconds=seconds, cpu_seconds=CPU_FACTOR * seconds)


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
    why = " ".join(ran.err.split())[-200:]
    if ran.ended == "exit":
        return Verdict(False, "error", why)
    if ran.ended == "not started":
        return Verdict(False, "not judged", why)
    return Verdict(False, ran.ended, is_starved=ran.is_starved)
