"""The judge of programs: runs their tests in a sandbox and decides which programs pass.

Arrives: `Problem`s and programs.  Leaves: a `Verdict` per program.  It deliberately does not know
models or scores.

A program passes if every test of its problem passes (composer 0.17.2, code evaluation).  Each test
is a separate process in a box that holds only the program and the tests' arguments, so a program
cannot read the right answer or the judge.  A box serves the next test only if nothing is left of
the one before.  A test's value comes out as text (program_languages.py) and is compared here.

A fault of the machine is no verdict of a program: one that could not be started is "not judged".
The clock of a program stops while it waits for a processor; one that waits too long runs again
alone, with more patience.  So does one that fails as it would where the machine cannot execute
it inside of its box; if it fails again, a program that is right decides whose fault it is.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from miron_jax.definitions.records import CPU_FACTOR, Problem, ProgramProfile
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.program_languages import LANGUAGES, Python, Ready
from miron_jax.runtime.processors import usable_processors
from miron_jax.runtime.sandbox.limits import Limits
from miron_jax.runtime.sandbox.sandbox import SYSTEM_PATH, Ran, Sandbox

TRIAL_SECONDS = 10.0
STARTING_SECONDS = 1.0  # allowance for the start of an interpreter
FOLDER_SHARE = 8  # memory, in bytes of files of a program's folder
PATIENCE_ALONE = 20.0  # in its wall time
WHY_LEN = 60  # characters of what a program says of its value
WRONG_LEN = 8000  # characters of a wrong text that samples keep; right ones are kept whole
STARVED = "it waited too long for a processor, alone too"
# statuses of a shell and of the dynamic linker that cannot execute a program
NOT_EXECUTED = (126, 127)
# what a shell and a compiler print that cannot start another program
CANNOT_START = ("Cannot fork", "g++: fatal error: ", "collect2: fatal error: ")

Ended = Literal[
    "passed",
    "wrong",
    "not comparable",
    "error",
    "time",
    "memory",
    "output",
    "answered",
    "nan",
    "not judged",
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a program."""

    passed: bool
    # wrong: it returned something else; not comparable: it returned what its own code compares, and
    # so has not passed; answered: expected values are not published; nan: the model answered NaN,
    # so there is no program; not judged: the machine failed, not the program
    ended: Ended
    # the end of what a failed run printed, or the reason why there is no verdict
    why: str = field(default="", compare=False)
    # under the rule "answers": str() of each returned value, or why there is none
    answers: tuple[str, ...] = ()
    # the machine may have failed it: it should run again alone
    is_doubtful: bool = field(default=False, compare=False)


def solution_of(problem: Problem) -> str:
    """The authors' solution as a completion of the prompt; it starts on a new line."""
    is_joined = problem.prompt.endswith("\n") or problem.solution.startswith("\n")
    if problem.code is not None or is_joined:
        return problem.solution
    return f"\n{problem.solution}"


def check_languages(judge: "Judge", problems: Sequence[Problem], task_name: str) -> None:
    """Raises InputError if a compiler or interpreter is missing, or if a right program does not
    pass within the limits of the task."""
    sandbox = judge.sandbox
    for language, problem in {problem.language: problem for problem in problems}.items():
        tool = LANGUAGES[language].tool
        if tool and sandbox.which(tool) is None:
            path = SYSTEM_PATH if sandbox.bwrap else "PATH"
            raise InputError(
                f"{task_name}: its programs are {language}, and {tool} is not in {path}: install "
                "it there"
            )
        verdict = judge.trial(problem)
        if not verdict.passed:
            reason = f"{verdict.ended}: {verdict.why}"
            raise InputError(
                f"{task_name}: a {language} program that is right does not pass here, with "
                f"memory_mb {judge.memory_mb} and processes {judge.processes} ({reason}): mend "
                "what that names, or leave the task out"
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
    # these as in ProgramProfile
    how: Literal["all_tests", "answers"] = "all_tests"
    cpu_seconds: float | None = None
    memory_mb: int = 2048
    output_mb: int = 1
    processes: int = 256
    # By id() of the problem; the reference to the problem keeps its id from being reused.
    _expected: dict[int, tuple[Problem, tuple[str, ...] | Ran]] = field(default_factory=dict)

    @classmethod
    def of(cls, sandbox: Sandbox, profile: ProgramProfile) -> "Judge":
        return cls(
            sandbox,
            profile.test_seconds,
            profile.judge,
            profile.cpu_seconds,
            profile.memory_mb,
            profile.output_mb,
            profile.processes,
        )

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
            if saved is not None and not verdict.is_doubtful:
                saved.put(self, due[key], key[1], verdict)
            return verdict

        alone = replace(self, sandbox=replace(self.sandbox, patience=PATIENCE_ALONE))
        with ThreadPoolExecutor(usable_processors()) as threads:
            if self.how == "all_tests":
                problems = {id(problem): problem for problem in due.values()}
                list(threads.map(self._evaluate, problems.values()))
                for key, problem in problems.items():
                    if _is_doubtful(self._expected[key][1]):
                        alone._evaluate_again(problem)
            verdicts |= zip(due, threads.map(judge, due), strict=True)
        for key, problem in due.items():
            if verdicts[key].is_doubtful:
                verdicts[key] = alone._judge_again(problem, key[1])
                if saved is not None:
                    saved.put(self, problem, key[1], verdicts[key])
        return [verdicts[id(problem), text] for problem, text in programs]

    def trial(self, problem: Problem) -> Verdict:
        """Judge a program that is right, of the same language."""
        prompt, solution = _TRIAL[problem.language]
        inputs = ("(1,)" if problem.language == "python" else "1",)
        trial = replace(
            problem,
            prompt=prompt,
            code=None,
            entry_point="f",
            inputs=inputs,
            outputs=("1",),
            solution=solution,
        )
        judge = replace(
            self,
            sandbox=replace(self.sandbox, patience=PATIENCE_ALONE),
            test_seconds=max(TRIAL_SECONDS, self.test_seconds),
            cpu_seconds=max(TRIAL_SECONDS, self.cpu_seconds or 0.0),
            how="all_tests",
            _expected={},
        )
        judge._evaluate(trial)
        return judge._judge(trial, solution)

    def _judge_again(self, problem: Problem, text: str) -> Verdict:
        """Of a program whose verdict was doubtful.  A doubtful "time" is want of a processor."""
        verdict = self._judge(problem, text)
        if not verdict.is_doubtful:
            return verdict
        why = STARVED if verdict.ended == "time" else self._why_no_trial(problem)
        return Verdict(False, "not judged", why) if why else verdict

    def _evaluate_again(self, problem: Problem) -> None:
        self._evaluate(problem)
        _, expected = self._expected[id(problem)]
        if _why_of_machine(expected) or not _is_doubtful(expected):
            return
        if why := self._why_no_trial(problem):
            self._expected[id(problem)] = problem, Ran("not started", 0, "", why)

    def _why_no_trial(self, problem: Problem) -> str:
        """Why a program that is right does not pass either; "": it passes."""
        trial = self.trial(problem)
        if trial.passed:
            return ""
        return f"a program that is right fails too ({trial.ended}: {trial.why})"

    def _evaluate(self, problem: Problem) -> None:
        if id(problem) in self._expected:
            _, before = self._expected[id(problem)]
            if not _why_of_machine(before) and not _is_doubtful(before):
                return
        expected = LANGUAGES[problem.language].expected(self.sandbox, problem)
        self._expected[id(problem)] = problem, expected
        if isinstance(expected, Ran) and expected.ended != "exit" and not _why_of_machine(expected):
            raise InputError(
                f"{problem.name}: evaluating its test_outputs ended by {expected.ended}: run where "
                "more of it is to be had, or leave the task out"
            )

    def _judge(self, problem: Problem, text: str) -> Verdict:
        if self.how == "answers":
            return self._answers(problem, text)
        return self._all_tests(problem, text)

    def _all_tests(self, problem: Problem, text: str) -> Verdict:
        language = LANGUAGES[problem.language]
        _, expected = self._expected[id(problem)]
        if why := _why_of_machine(expected):
            return Verdict(False, "not judged", f"evaluating its test_outputs: {why}")
        # outputs that are no expressions: no program passes, not even the authors'
        if isinstance(expected, Ran):
            return _failed(expected)
        ready = language.make_ready(self.sandbox, problem, problem.prompt + text)
        if isinstance(ready, Ran):
            return _failed(ready)
        for ran, right in zip(self._runs(problem, ready), expected, strict=True):
            if not ran.good or not ran.value:  # it may have ended before it could return
                return _failed(ran)
            compared = language.compare(ran.value, right)
            if compared == "not comparable":
                return Verdict(False, compared, f"its value is {_type_in(ran.value)}")
            if compared == "wrong":
                return Verdict(False, compared)
        return Verdict(True, "passed")

    def _answers(self, problem: Problem, text: str) -> Verdict:
        """Keeps the value of every test: submissions need it even if expected values are not
        published."""
        code = (problem.prompt if problem.code is None else problem.code) + text
        ready = _PYTHON.make_ready(self.sandbox, problem, code, "text")
        answers = tuple[str, ...]()
        is_doubtful = False
        for ran in self._runs(problem, ready):
            if ran.ended == "not started" or ran.is_starved:
                return _failed(ran)
            answers += (_answer(ran),)
            is_doubtful |= _is_doubtful(ran)
        if not problem.outputs:
            return Verdict(False, "answered", answers=answers, is_doubtful=is_doubtful)
        if answers == problem.outputs:
            return Verdict(True, "passed", answers=answers)
        short = tuple(map(_short, answers))
        return Verdict(False, "wrong", answers=short, is_doubtful=is_doubtful)

    def _runs(self, problem: Problem, ready: Ready) -> Iterator[Ran]:
        """Of each test."""
        language = LANGUAGES[problem.language]
        limits = self._limits()
        test = 0
        while test < len(problem.inputs):
            rans = language.run(self.sandbox, ready, problem, test, limits)
            yield from rans
            test += len(rans)

    def _limits(self) -> Limits:
        seconds = self.test_seconds + STARTING_SECONDS
        cpu_seconds = self.cpu_seconds or CPU_FACTOR * self.test_seconds
        memory_bytes = self.memory_mb << 20
        return Limits(
            seconds=seconds,
            cpu_seconds=cpu_seconds + STARTING_SECONDS,
            memory_bytes=memory_bytes,
            processes=self.processes,
            output_bytes=self.output_mb << 20,
            folder_bytes=memory_bytes // FOLDER_SHARE,
        )


_PYTHON = Python()


def _answer(ran: Ran) -> str:
    """str() of the value of one test, or why there is none."""
    if ran.ended == "time":
        return "timed out"
    # Without "=" the driver wrote nothing: the program ended before its function returned.
    if not ran.good or ran.value[:1] != b"=":
        return "failed"
    return ran.value[1:].decode("utf-8", "replace")


def _is_doubtful(ran: tuple[str, ...] | Ran) -> bool:
    """Whether a run may have failed for want of a processor, or because what should run in its box
    could not be executed.  The program may end in the same way."""
    if not isinstance(ran, Ran):
        return False
    is_executed = ran.status not in NOT_EXECUTED and not any(
        sign in ran.err for sign in CANNOT_START
    )
    return ran.is_starved or (ran.ended == "exit" and not ran.good and not is_executed)


def _why_of_machine(ran: tuple[str, ...] | Ran) -> str:
    """Why the machine could not run it; "": it ran."""
    if isinstance(ran, Ran) and ran.ended == "not started":
        return _last_of(ran)
    return STARVED if isinstance(ran, Ran) and ran.is_starved else ""


def _last_of(ran: Ran) -> str:
    return " ".join(ran.err.split())[-200:]


def _type_in(value: bytes) -> str:
    """What a value that is not comparable says of itself; the program may have written it."""
    return value[1 : 1 + WHY_LEN].decode("ascii", "replace")


def _short(answer: str) -> str:
    """A wrong answer, for samples and submissions."""
    return answer if len(answer) <= WRONG_LEN else f"{answer[:WRONG_LEN]}..."


def _failed(ran: Ran) -> Verdict:
    if ran.ended == "exit":
        return Verdict(False, "error", _last_of(ran), is_doubtful=_is_doubtful(ran))
    if ran.ended == "not started":
        return Verdict(False, "not judged", _last_of(ran))
    return Verdict(False, ran.ended, is_doubtful=ran.is_starved)
