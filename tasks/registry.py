"""All suites by name, and the choice of tasks that a command line asks for.

Arrives: patterns such as `core`, `core/arc_easy`, `core/arc_*`.  Leaves: `Task`s in published order.
It deliberately does not know whether a task's data are there.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from rapidfuzz import process

from miron_jax.definitions.records import AnyTask, Suite
from miron_jax.errors import InputError
from miron_jax.tasks import core, miron
from miron_jax.tasks.eval_uation import suite as eval_uation
from miron_jax.tasks.eval_uation_gen import sets as eval_uation_gen
from miron_jax.tasks.gauntlet import programming, yaml_files
from miron_jax.tasks.gauntlet import suite as gauntlet
from miron_jax.tasks.mera import suite as mera

_SUITES: tuple[Suite[AnyTask], ...] = (
    core.SUITE,
    gauntlet.SUITE,
    gauntlet.COT_FIX,
    programming.SUITE,
    miron.MIRON,
    miron.MIRON_GEN,
    miron.MIRON_GEN_PREFIXSPACE,
    mera.V1,
    mera.V12,
    eval_uation.SUITE,
    eval_uation.TEXT,
    eval_uation.TEXT_REFCOMPAT,
    eval_uation_gen.GEN,
    eval_uation_gen.GEN_TEXT,
)
SUITES: dict[str, Suite[AnyTask]] = {suite.name: suite for suite in _SUITES}
SUITE_NAMES = (*SUITES, yaml_files.NAME)


class Selection(NamedTuple):
    tasks: list[AnyTask]  # published order, each once
    by_name: frozenset[str]  # tasks asked for by full name: these must have their data


def suites(icl_tasks: str | None = None, eval_gauntlet: str | None = None) -> dict[str, Suite[AnyTask]]:
    """All suites; with a gauntlet of the user's own, read from these yaml files."""
    if icl_tasks is None:
        return SUITES
    own = yaml_files.read_suite(Path(icl_tasks), Path(eval_gauntlet) if eval_gauntlet else None)
    return {**SUITES, own.name: own}


def select(patterns: str, among: Mapping[str, Suite[AnyTask]] = SUITES) -> Selection:
    """Tasks that a comma list of suites, task names or globs asks for."""
    wanted = [pattern.strip() for pattern in patterns.split(",")]
    every = {task.name: task for suite in among.values() for task in suite.tasks}
    chosen = {name for pattern in wanted for name in _matches(pattern, every, among)}
    return Selection([task for name, task in every.items() if name in chosen], frozenset(wanted) & every.keys())


def _matches(pattern: str, every: dict[str, AnyTask], among: Mapping[str, Suite[AnyTask]]) -> list[str]:
    if pattern in among:
        return [task.name for task in among[pattern].tasks]
    found = [name for name in every if fnmatchcase(name, pattern)]
    if not found:
        nearest = process.extractOne(pattern, [*among, *every]) if pattern else None
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        raise InputError(f"--tasks: {pattern!r} is no suite, task or matching glob: {hint}`miron-jax tasks` lists them")
    return found


def export(
    folder: Path,
    items_per_category: int,
    own_articles: Path | None = None,
    spelled: bool = False,
    own_stories: Path | None = None,
) -> list[Path]:
    """All generated rows, or sets of a user's own articles and stories, as files; returns them.  `spelled`: number words of
    the articles are masked too."""
    if own_articles is not None or own_stories is not None:
        paths = [] if own_articles is None else eval_uation_gen.export_titles(folder, own_articles, spelled)
        return paths + ([] if own_stories is None else eval_uation_gen.export_stories(folder, own_stories))
    return [*miron.export(folder, items_per_category), *eval_uation_gen.export(folder)]
