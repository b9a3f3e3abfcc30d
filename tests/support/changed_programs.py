"""Changed programs, and how a plain run without a box judges them."""

import ast
import math
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from miron_jax.definitions.records import Problem

_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CONVERSIONS = ("str", "float", "tuple", "set", "sorted", "range", "iter")  # of what is returned
_TEXTS = [
    ("+", "-"),
    ("-", "+"),
    ("<", "<="),
    (">", ">="),
    ("===", "!=="),
    ("&&", "||"),
    ("0", "1"),
    ("1", "2"),
    ("true", "false"),
]


def changed_python(problem: Problem) -> list[str]:
    """Solutions with one operator, number or text changed each, in their order."""
    tree = ast.parse(problem.prompt + problem.solution)
    changed = list[str]()
    nodes: list[Any] = [*ast.walk(tree)]
    for node in nodes:
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _OPERATORS:
            before: Any = node.op
            other: Any = _OPERATORS[type(before)]()
            node.op = other
            changed.append(ast.unparse(tree))
            node.op = before
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in _OPERATORS:
            first = node.ops[0]
            node.ops[0] = _OPERATORS[type(first)]()
            changed.append(ast.unparse(tree))
            node.ops[0] = first
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            number = node.value
            node.value = not number if isinstance(number, bool) else number + 1
            changed.append(ast.unparse(tree))
            node.value = number
        elif isinstance(node, ast.Return) and node.value is not None:
            value = node.value
            for name in _CONVERSIONS:
                node.value = ast.Call(ast.Name(name), [value], [])
                changed.append(ast.unparse(tree))
            node.value = value
    return changed


def changed_text(problem: Problem) -> list[str]:
    """JavaScript with one sign changed each."""
    return [
        problem.solution[: place.start()] + new + problem.solution[place.end() :]
        for old, new in _TEXTS
        for place in re.finditer(re.escape(old), problem.solution)
    ]


def sample(problems: list[Problem], count: int, seed: int) -> Iterator[tuple[Problem, str]]:
    """Changed solutions (all of the program after an empty prompt where it is Python), at most `count`."""
    every = list[tuple[Problem, str]]()
    for problem in problems:
        if problem.language == "python":
            every += [(problem, text) for text in changed_python(problem)]
        else:
            every += [(problem, text) for text in changed_text(problem)]
    yield from random.Random(seed).sample(every, min(count, len(every)))


_PYTHON = """
import sys
inputs, outputs, code, name = eval(open("tests").read())
for text, output in zip(inputs, outputs):
    scope = {}
    exec(code, scope)
    try: expected = eval(output, {})
    except Exception: expected = output
    value = scope[name](*eval(text, {}))
    if not value == expected: sys.exit(1)
open("passed", "w").close()
"""


def passes_plainly(problem: Problem, code: str, seconds: float) -> bool:
    """Whether each test's value equals the expected one, in one process, within these seconds of a processor."""
    with tempfile.TemporaryDirectory() as folder:
        if problem.language == "python":
            tests = repr((problem.inputs, problem.outputs, code, problem.entry_point))
            (Path(folder) / "tests").write_text(tests)
            command = [sys.executable, "-I", "-c", _PYTHON]
        else:
            pairs = zip(problem.inputs, problem.outputs, strict=True)
            tests = "".join(
                f"if (JSON.stringify({problem.entry_point}({given})) !== JSON.stringify({value})) process.exit(1)\n"
                for given, value in pairs
            )
            (Path(folder) / "tests.js").write_text(f"{code}\n{tests}require('fs').writeFileSync('passed', '')\n")
            command = ["node", "tests.js"]
        try:
            limited = ["sh", "-c", f'ulimit -t {math.ceil(seconds)}; exec "$@"', "sh", *command]
            subprocess.run(limited, cwd=folder, capture_output=True, timeout=20 * seconds, check=False)
        except subprocess.TimeoutExpired:
            return False
        return (Path(folder) / "passed").exists()
