"""All suites by name, and the choice of tasks that a command line asks for.

Arrives: patterns such as `core`, `core/arc_easy`, `core/arc_*`.  Leaves: `Task`s in published order.
It deliberately does not know whether a task's data are there.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

from rapidfuzz import process

from miron_jax.errors import InputError
from miron_jax.task import ClozeTask, Suite, Task
from miron_jax.tasks import core, miron

SUITES: dict[str, Suite[Task | ClozeTask]] = {
    suite.name: suite for suite in (core.SUITE, miron.MIRON, miron.MIRON_GEN, miron.MIRON_GEN_PREFIXSPACE)
}


class Selection(NamedTuple):
    tasks: list[Task | ClozeTask]  # published order, each once
    by_name: frozenset[str]  # tasks asked for by full name: these must have their data


def select(patterns: str) -> Selection:
    """Tasks that a comma list of suites, task names or globs asks for."""
    wanted = [pattern.strip() for pattern in patterns.split(",")]
    every = {task.name: task for suite in SUITES.values() for task in suite.tasks}
    chosen = {name for pattern in wanted for name in _matches(pattern, every)}
    return Selection([task for name, task in every.items() if name in chosen], frozenset(wanted) & every.keys())


def _matches(pattern: str, every: dict[str, Task | ClozeTask]) -> list[str]:
    if pattern in SUITES:
        return [task.name for task in SUITES[pattern].tasks]
    found = [name for name in every if fnmatchcase(name, pattern)]
    if not found:
        nearest = process.extractOne(pattern, [*SUITES, *every]) if pattern else None
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        raise InputError(f"--tasks: {pattern!r} is no suite, task or matching glob: {hint}`miron-jax tasks` lists them")
    return found
