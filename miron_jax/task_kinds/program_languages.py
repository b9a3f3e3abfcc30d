"""A language of programs -> how one is made ready, run on one test, and held against what it should return.

Arrives: `Problem`s, programs, a sandbox.  Leaves: values as text.  It deliberately does not know what passes.

A model's program and what it should return are never in one box.  Of a test, the arguments alone go in; what comes out is a
value as text, which is compared here:

    python      the normal form of f(*eval(input)), the same as that of eval(output); an output that is no expression is text
    c++         g++ -std=c++11; equal JSON, floats and doubles to 1e-3, vectors of floats to 1e-4
    javascript  node; equal JSON.stringify

Outputs are evaluated in boxes of their own, where no program of a model ever is; C++ ones beside the prompt, whose function
says the type that braces have not.  Some published ones are no expressions (HumanEval in C++: 4 of 161 problems).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from miron_jax.definitions.records import Problem
from miron_jax.runtime import boxed
from miron_jax.runtime.sandbox import Limits, Ran, Sandbox

COMPILE_SECONDS, OUTPUTS_SECONDS = 60.0, 30.0
COMPILED_BYTES = 64 << 20  # of each file that the compiler writes
_BOXED = Path(boxed.__file__).parent
_COMPILE = "g++ -std=c++11 -x c++ program -o compiled >&2"


@dataclass(frozen=True, slots=True)
class Ready:
    """A program that can be run: files of its box, and the command that runs one test."""

    files: Mapping[str, str | bytes]
    command: tuple[str, ...]  # the test's number follows where `files` hold all tests' arguments


class Language(Protocol):
    @property
    def tool(self) -> str | None:
        """That the system must have."""
        ...

    def make_ready(self, sandbox: Sandbox, problem: Problem, code: str) -> Ready | Ran:
        """The program, compiled where it is to be; how compiling it ended, where it failed."""
        ...

    def run(self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits) -> Ran:
        """One test in a box of its own; the value is what the function returned."""
        ...

    def wanted(self, sandbox: Sandbox, problem: Problem) -> tuple[str, ...] | Ran:
        """What each test should return; how evaluating it ended, where that failed."""
        ...

    def same(self, value: bytes, wanted: str) -> bool:
        """Whether a result is what is wanted."""
        ...


class Python:
    tool = None

    def make_ready(self, sandbox: Sandbox, problem: Problem, code: str) -> Ready | Ran:
        files = {"value.py": _boxed("value.py"), "program": code}
        return Ready(files, (sandbox.python, "-I", "value.py"))

    def run(self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits) -> Ran:
        return self._run(sandbox, ready, problem, test, limits, "value")

    def text_of(self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits) -> Ran:
        """As `run`, for named arguments; the value is "=" and str() of the result."""
        return self._run(sandbox, ready, problem, test, limits, "text")

    def _run(self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits, how: str) -> Ran:
        files = {**ready.files, "given": problem.inputs[test]}
        return sandbox.run([*ready.command, how, problem.entry_point], files, limits, quiet=True)

    def wanted(self, sandbox: Sandbox, problem: Problem) -> tuple[str, ...] | Ran:
        files = {"value.py": _boxed("value.py"), "given": json.dumps(problem.outputs)}
        ran = sandbox.run([sandbox.python, "-I", "value.py", "wanted"], files, Limits(seconds=OUTPUTS_SECONDS))
        return tuple(json.loads(ran.value)) if ran.good and ran.value else ran

    def same(self, value: bytes, wanted: str) -> bool:
        return wanted != "?" and value == wanted.encode()


class Cpp:
    tool = "g++"

    def make_ready(self, sandbox: Sandbox, problem: Problem, code: str) -> Ready | Ran:
        cases = "".join(
            f"case {i}: boxed::put(out, {problem.entry_point}({given})); break;\n"
            for i, given in enumerate(problem.inputs)
        )
        main = f"std::string out;\nswitch (std::atoi(argv[1])) {{\n{cases}}}\nboxed::tell(out);\n"
        ran = self._compile(sandbox, code, main, "cat compiled >&3")
        if not ran.good:
            return ran
        # Copied within, for a mount that executes nothing.
        command = "cp compiled run && chmod 700 run && exec ./run $0"
        return Ready({"compiled": ran.value}, ("sh", "-c", command))

    def run(self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits) -> Ran:
        return sandbox.run([*ready.command, str(test)], ready.files, limits, quiet=True)

    def wanted(self, sandbox: Sandbox, problem: Problem) -> tuple[str, ...] | Ran:
        pairs = enumerate(zip(problem.inputs, problem.outputs, strict=True))
        tests = "".join(
            f"typedef std::decay<decltype({problem.entry_point}({given}))>::type T{i};\n"
            f"boxed::wanted<T{i}>(out, {output});\n"
            for i, (given, output) in pairs
        )
        code = f"{problem.prompt}\nabort();\n}}\n"  # the function's type is all that is needed
        ran = self._compile(sandbox, code, f"std::string out;\n{tests}boxed::tell(out);\n", "exec ./compiled")
        return tuple(ran.value.decode().splitlines()) if ran.good and ran.value else ran

    def _compile(self, sandbox: Sandbox, code: str, main: str, then: str) -> Ran:
        program = f"{_boxed('values.hpp')}\n{code}\nint main(int argc, char** argv) {{\n{main}return 0;\n}}\n"
        limits = Limits(seconds=COMPILE_SECONDS, output_bytes=COMPILED_BYTES)
        return sandbox.run(["sh", "-c", f"{_COMPILE} && {then}"], {"program": program}, limits)

    def same(self, value: bytes, wanted: str) -> bool:
        most, text = wanted.split(" ", 1)
        if most == "0":
            return value == text.encode()
        try:
            found, right = (own if isinstance(own, list) else [own] for own in (json.loads(value), json.loads(text)))
            pairs = zip(found, right, strict=True)
            return all(abs(float(a) - b) < float(most) for a, b in pairs)
        except (ValueError, TypeError, OverflowError, RecursionError):  # what a program wrote in place of numbers
            return False


class JavaScript:
    tool = "node"

    def make_ready(self, sandbox: Sandbox, problem: Problem, code: str) -> Ready | Ran:
        tests = "".join(f"() => {problem.entry_point}({given}),\n" for given in problem.inputs)
        value = f"String(JSON.stringify([\n{tests}][Number(process.argv[2])]()))"
        return Ready({"program": f"{code}\nrequire('fs').writeSync(3, {value})\n"}, ("node", "program"))

    def run(self, sandbox: Sandbox, ready: Ready, problem: Problem, test: int, limits: Limits) -> Ran:
        return sandbox.run([*ready.command, str(test)], ready.files, limits, quiet=True)

    def wanted(self, sandbox: Sandbox, problem: Problem) -> tuple[str, ...] | Ran:
        outputs = "".join(f"String(JSON.stringify({output})),\n" for output in problem.outputs)
        program = f"require('fs').writeSync(3, JSON.stringify([\n{outputs}]))\n"
        ran = sandbox.run(["node", "program"], {"program": program}, Limits(seconds=OUTPUTS_SECONDS))
        return tuple(json.loads(ran.value)) if ran.good and ran.value else ran

    def same(self, value: bytes, wanted: str) -> bool:
        return value == wanted.encode("utf-8", "surrogatepass")


def _boxed(name: str) -> str:
    return (_BOXED / name).read_text(encoding="utf-8")


LANGUAGES: dict[str, Language] = {"python": Python(), "c++": Cpp(), "javascript": JavaScript()}
