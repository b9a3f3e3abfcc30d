"""Programming languages: preparing a program, running one test of it, and comparing its value with
the expected one.

Arrives: `Problem`s, programs, a sandbox.  Leaves: values as text.  It deliberately does not know
which programs pass.

A model's program and its expected values are never in one box.  A box gets only the arguments; a
test's value comes out as text, which is compared here:

    python      the normal form of f(*eval(input)) equals that of eval(output); an output that is
                no expression is text; a value without a form is not comparable
    c++         g++ -std=c++11; equal JSON, floats and doubles to 1e-3, vectors of floats to 1e-4
    javascript  node; equal JSON.stringify

Outputs are evaluated in separate boxes without a model's program; C++ ones together with the
prompt, whose function gives the type that braces lack.  Some published ones are no expressions
(HumanEval in C++: 4 of 161 problems).
"""

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from miron_jax.definitions.records import Problem
from miron_jax.errors import InputError
from miron_jax.runtime.sandbox import boxed
from miron_jax.runtime.sandbox.boxed.value import NOT_COMPARABLE, UNEQUAL
from miron_jax.runtime.sandbox.limits import Limits
from miron_jax.runtime.sandbox.sandbox import Ran, Sandbox

COMPILE_SECONDS = 60.0
COMPILED_BYTES = 64 << 20  # of a compiled program
OUTPUTS = Limits(seconds=30.0, output_bytes=COMPILED_BYTES)  # of all expected values of a problem
_HEADER = re.compile(rb"(\d{1,9}) (\d{1,15})\n")  # of a test's value: status, length
KILLED = 128 + signal.SIGKILL  # exit status
_BOXED = Path(boxed.__file__).parent
_COMPILE = "g++ -std=c++11 -x c++ program -o compiled >&2"


Compared = Literal["passed", "wrong", "not comparable"]


@dataclass(frozen=True, slots=True)
class Ready:
    """A program ready to run: files of its box, and the command that runs one test."""

    files: Mapping[str, str | bytes]
    command: tuple[str, ...]  # what `run` adds follows


class Language(Protocol):
    @property
    def tool(self) -> str | None:
        """The compiler or interpreter that the system must have."""
        ...

    def make_ready(self, sandbox: Sandbox, problem: Problem, code: str) -> Ready | Ran:
        """The program, compiled if necessary; the failed run if compilation failed."""
        ...

    def run(
        self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits
    ) -> list[Ran]:
        """Run this test in a separate box, and those after it as long as that is as good as a box
        for each; `Ran.value` is what the function returned."""
        ...

    def expected(self, sandbox: Sandbox, problem: Problem) -> tuple[str, ...] | Ran:
        """The expected value of each test; the failed run if evaluating them failed."""
        ...

    def compare(self, value: bytes, expected: str) -> Compared:
        """A test's value with the expected one; it is not comparable if the program itself decides
        what equals it."""
        ...


class Python:
    tool = None

    def make_ready(
        self, sandbox: Sandbox, problem: Problem, code: str, how: str = "value"
    ) -> Ready:
        """`how`: "text" is for named arguments, and `Ran.value` is "=" and str() of the result."""
        files = {"value.py": _boxed("value.py"), "program": code}
        return Ready(files, (sandbox.python, "-I", "value.py", how, problem.entry_point))

    def run(
        self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits
    ) -> list[Ran]:
        # without a box nobody tells whether a test has left something behind
        inputs = problem.inputs[test:] if sandbox.bwrap else problem.inputs[test : test + 1]
        files = {**ready.files, "input": ascii(inputs)}
        command = [*ready.command, str(limits.output_bytes)]
        # one process forks those of the tests
        limits = replace(limits, rounds=len(inputs), processes=limits.processes + 1)
        return _tests_of(sandbox.run(command, files, limits, quiet=True), limits)

    def expected(self, sandbox: Sandbox, problem: Problem) -> tuple[str, ...] | Ran:
        files = {"value.py": _boxed("value.py"), "input": json.dumps(problem.outputs)}
        ran = sandbox.run([sandbox.python, "-I", "value.py", "expected"], files, OUTPUTS)
        if not ran.good or not ran.value:
            return ran
        forms = tuple(json.loads(ran.value))
        for output, form in zip(problem.outputs, forms, strict=True):
            if form.startswith(NOT_COMPARABLE):
                raise InputError(
                    f"{problem.name}: the test output {output!r:.60} cannot be compared "
                    f"({form[1:]}), expected a value of Python's own types: write str() of it"
                )
        return forms

    def compare(self, value: bytes, expected: str) -> Compared:
        if value.startswith(NOT_COMPARABLE.encode()):
            return "not comparable"
        return _compared(expected != UNEQUAL and value == expected.encode())


class Cpp:
    tool = "g++"

    def make_ready(self, sandbox: Sandbox, problem: Problem, code: str) -> Ready | Ran:
        cases = "".join(
            f"case {i}: boxed::put(out, {problem.entry_point}({arguments})); break;\n"
            for i, arguments in enumerate(problem.inputs)
        )
        main = (
            "std::string out;\nswitch (std::atoi(argv[1])) "
            f"{{\n{cases}}}\nboxed::write_and_exit(out);\n"
        )
        ran = self._compile(sandbox, code, main, "cat compiled >&3")
        if not ran.good:
            return ran
        return Ready({"compiled": ran.value}, ("./compiled",))

    def run(
        self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits
    ) -> list[Ran]:
        return [sandbox.run([*ready.command, str(test)], ready.files, limits, quiet=True)]

    def expected(self, sandbox: Sandbox, problem: Problem) -> tuple[str, ...] | Ran:
        pairs = enumerate(zip(problem.inputs, problem.outputs, strict=True))
        tests = "".join(
            f"typedef std::decay<decltype({problem.entry_point}({arguments}))>::type T{i};\n"
            f"boxed::put_expected<T{i}>(out, {output});\n"
            for i, (arguments, output) in pairs
        )
        code = f"{problem.prompt}\nabort();\n}}\n"  # only the function's type is needed
        ran = self._compile(
            sandbox,
            code,
            f"std::string out;\n{tests}boxed::write_and_exit(out);\n",
            "exec ./compiled",
        )
        return tuple(ran.value.decode().splitlines()) if ran.good and ran.value else ran

    def _compile(self, sandbox: Sandbox, code: str, main: str, then: str) -> Ran:
        program = (
            f"{_boxed('values.hpp')}\n{code}\nint main(int argc, char** argv) {{\n{main}return "
            "0;\n}\n"
        )
        limits = Limits(
            seconds=COMPILE_SECONDS, cpu_seconds=COMPILE_SECONDS, output_bytes=COMPILED_BYTES
        )
        command = ["sh", "-c", f"{_COMPILE} && {then}"]
        return sandbox.run(command, {"program": program}, limits, shown="g++")

    def compare(self, value: bytes, expected: str) -> Compared:
        tolerance, text = expected.split(" ", 1)
        is_text = value == text.encode()
        if tolerance == "0" or (is_text and b"NaN" not in value):  # infinities have no difference
            return _compared(is_text)
        try:
            numbers = map(json.loads, (value, text))
            lists = (entry if isinstance(entry, list) else [entry] for entry in numbers)
            pairs = zip(*lists, strict=True)
            return _compared(all(abs(float(a) - b) < float(tolerance) for a, b in pairs))
        # A program may write anything in place of numbers.
        except (ValueError, TypeError, OverflowError, RecursionError):
            return "wrong"


class JavaScript:
    tool = "node"

    def make_ready(self, sandbox: Sandbox, problem: Problem, code: str) -> Ready | Ran:
        tests = "".join(
            f"() => {problem.entry_point}({arguments}),\n" for arguments in problem.inputs
        )
        # by globalThis: the program may have names such as `process` for itself
        chosen = f"[\n{tests}][globalThis.Number(globalThis.process.argv[2])]()"
        value = f"globalThis.String(globalThis.JSON.stringify({chosen}))"
        # Ended at once, so that no timer which the program has left goes on.
        write = f"require('fs').writeFileSync(3, {value})\nglobalThis.process.exit(0)\n"
        return Ready({"program": f"{code}\n{write}"}, ("node", "program"))

    def run(
        self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits
    ) -> list[Ran]:
        return [sandbox.run([*ready.command, str(test)], ready.files, limits, quiet=True)]

    def expected(self, sandbox: Sandbox, problem: Problem) -> tuple[str, ...] | Ran:
        outputs = "".join(f"String(JSON.stringify({output})),\n" for output in problem.outputs)
        program = f"require('fs').writeSync(3, JSON.stringify([\n{outputs}]))\n"
        ran = sandbox.run(["node", "program"], {"program": program}, OUTPUTS)
        return tuple(json.loads(ran.value)) if ran.good and ran.value else ran

    def compare(self, value: bytes, expected: str) -> Compared:
        return _compared(value == expected.encode("utf-8", "surrogatepass"))


def _tests_of(ran: Ran, limits: Limits) -> list[Ran]:
    """How each test of a box ended (boxed/value.py); the one that ended the box is the last."""
    rans = list[Ran]()
    rest = ran.value
    while (header := _HEADER.match(rest)) and len(rans) < limits.rounds:
        status = int(header[1])
        end = header.end() + int(header[2])
        value = rest[header.end() : end]
        if len(rest) < end:
            break
        ended = "output" if len(value) > limits.output_bytes else "exit"
        rans.append(Ran(ended, status, "", ran.err if status else "", value))
        rest = rest[end:]
    # the kernel killed the last test for want of memory, whether it was the program's fault or not
    if rans and rans[-1].status == KILLED and ran.ended in ("memory", "not started"):
        rans[-1] = ran._replace(value=b"")
    elif not rans or (len(rans) < limits.rounds and not ran.good):
        rans.append(ran._replace(value=b""))
    return rans


def _compared(is_equal: bool) -> Compared:
    return "passed" if is_equal else "wrong"


def _boxed(name: str) -> str:
    return (_BOXED / name).read_text(encoding="utf-8")


LANGUAGES: dict[str, Language] = {"python": Python(), "c++": Cpp(), "javascript": JavaScript()}
