"""Right programs of everyday kinds, from text files: `# name: arguments -> value ;; arguments -> value`, then the code.

The line that begins the function `f` ends the prompt, what follows is the solution.
"""

import re
from pathlib import Path
from typing import Any

from miron_jax.definitions.records import Problem

FOLDER = Path(__file__).parent / "right_programs"
FILES = {"python": "python.txt", "c++": "cpp.txt", "javascript": "javascript.txt"}
_HEAD = re.compile(r"^(?:#|//) ([^:\n]+): (.+ -> .+)\n", re.MULTILINE)
_FUNCTION = re.compile(r"^(?:def f\(.*:|const f = .*\{|\S.* f\(.*\{)\n", re.MULTILINE)


def right_programs(language: Any) -> list[Problem]:
    _, *parts = _HEAD.split((FOLDER / FILES[language]).read_text(encoding="utf-8"))
    return [
        _problem(language, *fields)
        for fields in zip(range(len(parts)), parts[::3], parts[1::3], parts[2::3], strict=False)
    ]


def _problem(language: Any, row: int, name: str, tests: str, code: str) -> Problem:
    begin = _FUNCTION.search(code)
    assert begin, (language, name)
    pairs = [test.split(" -> ") for test in tests.split(" ;; ")]
    inputs = tuple(f"({inputs},)" if language == "python" else inputs for inputs, _ in pairs)
    outputs = tuple(output for _, output in pairs)
    prompt = code[: begin.end()]
    return Problem(row, name, prompt, "f", language, inputs, outputs, code[begin.end() :])
