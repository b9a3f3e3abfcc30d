"""A problem and programs that a model wrote for it -> which of them pass.

Arrives: `Problem`s and texts.  Leaves: a verdict a text.  It deliberately does not know models or scores.

A program passes when every test of its problem does, each in a process of its own (composer 0.17.2, code evaluation):

    python      f(*eval(input)) == eval(output), exactly; an output that is no expression is compared as text
    c++         g++ -std=c++11; results are equal, floats and doubles to 1e-3, vectors of floats to 1e-4
    javascript  node; JSON.stringify of both is equal
"""

import json
import os
import re
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

from miron_jax.errors import InputError
from miron_jax.sandbox import SYSTEM_PATH, Limits, Sandbox
from miron_jax.task import Problem

COMPILE_SECONDS, TRIAL_SECONDS = 60.0, 10.0
COMPILED_BYTES = 64 << 20  # of each file that the compiler writes
TOOLS = {"c++": "g++", "javascript": "node"}


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


def cut_program(text: str, cut: Literal["next_top_level_line", "stop"] = "next_top_level_line") -> str:
    """A text up to the first line that begins at the margin: what follows the function is not part of it.  A stop string
    has cut it before."""
    if cut == "stop":
        return text
    return re.split(r"\n[A-Za-z0-9#`]", text, maxsplit=1)[0]


def solution_of(problem: Problem) -> str:
    """The authors' solution as a text that goes on from the prompt, on a line of its own."""
    before = problem.prompt if problem.code is None else problem.code
    joined = before.endswith("\n") or problem.solution.startswith("\n") or problem.code is not None
    return problem.solution if joined else f"\n{problem.solution}"


def check_languages(sandbox: Sandbox, problems: Sequence[Problem], task_name: str) -> None:
    """Raises InputError where a compiler or interpreter is missing, or a program that is right does not pass."""
    for language, own in {problem.language: problem for problem in problems}.items():
        tool = TOOLS.get(language)
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
        verdict = judge(sandbox, [(trial, solution)], TRIAL_SECONDS)[0]
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


def judge(
    sandbox: Sandbox,
    programs: Sequence[tuple[Problem, str]],
    test_seconds: float,
    how: Literal["all_tests", "answers"] = "all_tests",
) -> list[Verdict]:
    """One verdict a program (its problem, its text behind the prompt); equal ones are run once, several at a time."""
    place: dict[tuple[int, str], int] = {}  # by the problem itself and the text
    index = [place.setdefault((id(problem), text), len(place)) for problem, text in programs]
    first = dict(zip(index, programs, strict=True))
    one = _judge if how == "all_tests" else _compare_answers
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        found = list(threads.map(lambda key: one(sandbox, *first[key], test_seconds), range(len(place))))
    return [found[key] for key in index]


def _compare_answers(sandbox: Sandbox, problem: Problem, text: str, test_seconds: float) -> Verdict:
    """Keeps what every test returns: submissions want it, also where it is not known what it should be."""
    code = (problem.prompt if problem.code is None else problem.code) + text
    limits = Limits(seconds=(test_seconds + 1) * len(problem.inputs))
    job = {"entry_point": problem.entry_point, "tests": problem.inputs, "test_seconds": test_seconds}
    files = {"driver.py": _ANSWERS_DRIVER, "program": code}
    ran = sandbox.run([sandbox.python, "-I", "driver.py"], files, limits, json.dumps(job))
    if ran.ended != "exit" or not ran.good:
        lost = tuple("failed" for _ in problem.inputs)
        why = " ".join(ran.err.split())[-200:]
        return Verdict(False, "error" if ran.ended == "exit" else ran.ended, why, lost)
    answers = tuple(json.loads(ran.out.rsplit("\n", 2)[-2]))
    if not problem.outputs:
        return Verdict(False, "answered", answers=answers)
    right = answers == problem.outputs
    return Verdict(right, "passed" if right else "wrong", answers=answers)


def _judge(sandbox: Sandbox, problem: Problem, text: str, test_seconds: float) -> Verdict:
    code = problem.prompt + text
    compiling = COMPILE_SECONDS if problem.language == "c++" else 0.0
    most = COMPILED_BYTES if problem.language == "c++" else Limits().output_bytes  # g++ writes its assembly to a file
    limits = Limits(seconds=compiling + (test_seconds + 1) * len(problem.inputs), output_bytes=most)
    word = secrets.token_hex(8)
    files = {"driver.py": _DRIVER, "program": _FILES[problem.language](problem, code, word)}
    job = {
        "word": word,
        "language": problem.language,
        "entry_point": problem.entry_point,
        "tests": list(zip(problem.inputs, problem.outputs, strict=True)),
        "test_seconds": test_seconds,
        "compile_seconds": compiling,
    }
    ran = sandbox.run([sandbox.python, "-I", "driver.py"], files, limits, json.dumps(job))
    if ran.ended != "exit":
        return Verdict(False, ran.ended)
    said = ran.out.strip().rsplit("\n", 1)[-1]
    if said in ("wrong", "time"):
        return Verdict(False, said)
    # Every test, and the driver at its end, says a word that is made for this run: a program that ends early, or prints
    # in their place, has not passed.  One that looks for the word can find it: this is no judge of cheats.
    if said == f"{word} {len(problem.inputs)}" and ran.good:
        return Verdict(True, "passed")
    return Verdict(False, "error", " ".join(ran.err.split())[-200:])


def _python_file(problem: Problem, code: str, word: str) -> str:
    return code


def _cpp_file(problem: Problem, code: str, word: str) -> str:
    pairs = enumerate(zip(problem.inputs, problem.outputs, strict=True))
    cases = "".join(f"case {i}: same = issame({problem.entry_point}({a}), {b}); break;\n" for i, (a, b) in pairs)
    return f"""{_CPP_SAME}
{code}
int main(int argc, char** argv) {{
bool same = false;
switch (std::atoi(argv[1])) {{
{cases}}}
std::cout << (same ? "{word}" : "0");
return 0;
}}
"""


def _javascript_file(problem: Problem, code: str, word: str) -> str:
    pairs = zip(problem.inputs, problem.outputs, strict=True)
    tests = "".join(f"() => JSON.stringify({problem.entry_point}({a})) === JSON.stringify({b}),\n" for a, b in pairs)
    return f"{code}\nconsole.log([\n{tests}][Number(process.argv[2])]() ? {word!r} : 0)\n"


_FILES = {"python": _python_file, "c++": _cpp_file, "javascript": _javascript_file}

# The reference puts these headers and this `using` before every program.  The result's type alone chooses the comparison;
# the expected value converts to it, braces included.  A float meets a literal that is a double: to 1e-3, as doubles.
_CPP_SAME = """#include <algorithm>
#include <map>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>
using namespace std;
namespace same_as_result { template <class T> struct of { typedef T type; }; }
template <class T> bool issame(const T& a, const typename same_as_result::of<T>::type& b) { return a == b; }
template <> bool issame<float>(const float& a, const float& b) { return std::fabs(a - b) < 1e-3; }
template <> bool issame<double>(const double& a, const double& b) { return std::fabs(a - b) < 1e-3; }
template <class T> bool issame_all(const std::vector<T>& a, const std::vector<T>& b, double most) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) if (!(std::fabs(a[i] - b[i]) < most)) return false;
  return true;
}
typedef std::vector<float> issame_floats;
typedef std::vector<double> issame_doubles;
template <> bool issame<issame_floats>(const issame_floats& a, const issame_floats& b) { return issame_all(a, b, 1e-4); }
template <> bool issame<issame_doubles>(const issame_doubles& a, const issame_doubles& b) { return issame_all(a, b, 1e-3); }
"""

# What both drivers begin with.  They run inside the sandbox.
_IN_CHILD = """
import json, os, select, signal, subprocess, sys, time

MOST = 8000  # bytes that a test may tell
job = json.load(sys.stdin)


def in_child(tell):
    # What tell() returns in a process of its own, silent and bounded in time: None where its time is up, else bytes.
    told = os.pipe()
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_RDWR)
        os.dup2(silent, 0), os.dup2(silent, 1), os.dup2(silent, 2)
        job.clear()
        os.setpgid(0, 0)
        try:
            os.write(told[1], tell()[:MOST])
        finally:
            os._exit(0)
    os.close(told[1])
    try:
        until = time.monotonic() + job["test_seconds"]
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > until:
                return None
            time.sleep(0.002)
        return os.read(told[0], MOST) if select.select([told[0]], [], [], 0)[0] else b""
    finally:
        os.close(told[0])
        for kill, target in ((os.killpg, child), (os.kill, child)):
            try:
                kill(target, signal.SIGKILL)
            except OSError:
                pass
"""

# Every test in a process of its own, until one fails.
_DRIVER = f"""{_IN_CHILD}

def end(word):
    print(word)
    sys.exit(0)


def python_test(given, wanted):
    word, entry_point = job["word"].encode(), job["entry_point"]

    def tell():
        scope = {{}}
        exec(code, scope)
        result = scope[entry_point](*eval(given, {{}}))
        try:
            expected = eval(wanted, {{}})
        except Exception:
            expected = wanted
        return word if result == expected else b"0"

    heard = in_child(tell)
    return "time" if heard is None else {{word: "passed", b"0": "wrong"}}.get(heard, "error")


def command_test(command):
    try:
        done = subprocess.run(command, capture_output=True, timeout=job["test_seconds"], stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return "time"
    if done.returncode != 0:
        return "error"
    return "passed" if done.stdout.strip() == job["word"].encode() else "wrong"


if job["language"] == "python":
    code = open("program").read()
if job["language"] == "c++":
    compiler = ["g++", "-std=c++11", "-x", "c++", "program", "-o", "compiled"]
    try:
        built = subprocess.run(compiler, capture_output=True, timeout=job["compile_seconds"])
    except subprocess.TimeoutExpired:
        end("time")
    if built.returncode != 0:
        sys.stderr.write(built.stderr.decode(errors="replace"))
        end("error")
for i, (given, wanted) in enumerate(job["tests"]):
    if job["language"] == "python":
        word = python_test(given, wanted)
    else:
        start = ["node", "program"] if job["language"] == "javascript" else ["./compiled"]
        word = command_test([*start, str(i)])
    if word != "passed":
        end(word)
end("%s %d" % (job["word"], len(job["tests"])))
"""

# Every test in a process of its own, which tells str() of what the function returns for its named arguments.  The last
# line is the list of all answers.
_ANSWERS_DRIVER = f"""{_IN_CHILD}

code = open("program").read()


def answer(given):
    entry_point = job["entry_point"]

    def tell():
        scope = {{}}
        try:
            exec(code, scope)
            result = str(scope[entry_point](**eval(given, {{}})))
        except BaseException as error:
            result = "failed: %s: %s" % (type(error).__name__, error)
        return b"=" + result.encode("utf-8", "replace")

    heard = in_child(tell)
    if heard is None:
        return "timed out"
    return heard[1:].decode("utf-8", "replace") if heard else "failed"  # it ended before it could tell


print(json.dumps([answer(given) for given in job["tests"]]))
"""
