"""Solutions that an expert wrote, in a user's files: `--tasks=expert --data_dir=expert=FOLDER
--token_stats`.

Arrives: a folder of .jsonl files.  Leaves: a `Suite` with a task for each file.  It deliberately
does not know tokens.

A line has a `prompt` and a `solution`, of which every token is scored after the prompt as both
stand, and may have `expert_probs`: [text, probability] pairs whose texts joined are the solution,
what a strong model gave each of its own tokens.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from miron_jax.definitions.data_files import located_rows, parse_each
from miron_jax.definitions.records import DataFile, Profile, Solution, Suite, Task
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, shown
from miron_jax.files.regular import read_regular
from miron_jax.tasks.groups import plain_mean, written
from miron_jax.tasks.icl_rows import answer_text, checked_text
from miron_jax.tasks.request_sets.requests_suite import PROFILE

NAME = "expert"
_PROFILE = replace(PROFILE, protocol="expert solutions")
_REMEDY = "mend the file"


def read_suite(folder: Path) -> Suite[Task[Profile]]:
    """Raises InputError for a folder without such files."""
    paths = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    if not paths:
        raise InputError(
            f"--data_dir={NAME}={folder} holds no file that ends in .jsonl, expected files whose "
            "lines have a prompt and a solution"
        )
    tasks = []
    for path in paths:
        name = f"{NAME}/{written(path.stem)}"
        tasks.append(
            Task(
                name,
                NAME,
                _PROFILE,
                DataFile(str(path.resolve()), None, None),
                {"random": None, "human": None},
                parse=_solution,
                citation="",
                main="token_top5",
                examples=partial(_solutions, name, path),
            )
        )
    composites = plain_mean([task.name for task in tasks]).composites
    return Suite(NAME, tuple(tasks), composites, lambda data_dir, fetch: Path())


def _solutions(name: str, path: Path, _: Path) -> list[Solution]:
    try:
        content = read_regular(path)
    except OSError as error:
        raise InputError(f"{name}: {path} cannot be read ({error}): {_REMEDY}") from None
    rows = located_rows(content, path, name, remedy=_REMEDY)
    return parse_each(rows, _solution, f"{name}: {path}", f"; {_REMEDY}")


def _solution(record: JsonObject, row: int) -> Solution:
    prompt = checked_text(record.get("prompt"), "prompt")
    solution = answer_text(record.get("solution"), "solution")
    probs = _expert_probs(record.get("expert_probs"), solution)
    return Solution(row, (prompt,), (solution,), 0, expert_probs=probs)


def _expert_probs(value: Json, solution: str) -> tuple[tuple[str, float], ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(map(_is_pair, value)):
        raise ValueError(
            f"expert_probs is {shown(value)}, expected [text, probability] pairs, from 0 to 1"
        )
    joined = "".join(text for text, _ in value)
    if joined != solution:
        raise ValueError(
            f"the texts of expert_probs are {shown(joined)}, expected the solution, "
            f"{shown(solution)}"
        )
    return tuple((text, float(prob)) for text, prob in value)


def _is_pair(value: Json) -> bool:
    if not isinstance(value, list) or len(value) != 2 or isinstance(value[1], bool):
        return False
    text, prob = value
    return isinstance(text, str) and isinstance(prob, int | float) and 0 <= prob <= 1


# Its tasks are those of the folder that a run names.
SUITES = (Suite(NAME, (), lambda measured: {}, lambda data_dir, fetch: data_dir or Path()),)
