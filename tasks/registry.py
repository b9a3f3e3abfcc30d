"""All suites by name, and the choice of tasks that a command line asks for.

Arrives: the files of this folder; patterns such as `core`, `core/arc_easy`, `core/arc_*`.  Leaves: `Task`s in published
order.  It deliberately names no suite, and does not know whether a task's data are there.
"""

import pkgutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from rapidfuzz import process

from miron_jax import tasks
from miron_jax.definitions.records import AnyTask, Suite
from miron_jax.errors import InputError
from miron_jax.tasks import miron
from miron_jax.tasks.gauntlet import yaml_files
from miron_jax.tasks.generators.eval_uation_gen import sets as eval_uation_gen


def find_suites(folder: Path, package: str) -> dict[str, Suite[AnyTask]]:
    """The `SUITES` of each file in `folder`, and of each suite.py one or two levels below, in the order of their names.

    Raises InputError for a file that cannot be imported, and for a suite or task that two of them name.
    """
    found: dict[str, Suite[AnyTask]] = {}
    owner: dict[str, str] = {}  # of the names of suites and tasks: which file has them
    for path in sorted(_suite_files(folder), key=lambda path: path.parent.name if path.stem == "suite" else path.stem):
        file = path.relative_to(folder)
        name = ".".join((package, *file.with_suffix("").parts))
        try:
            own: tuple[Suite[AnyTask], ...] = getattr(import_module(name), "SUITES", ())
        except Exception as error:  # whatever a file of somebody's own raises
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"{path} cannot be imported ({why:.200}): mend it, or take it out of the folder") from None
        for suite in own:
            for taken in (suite.name, *(task.name for task in suite.tasks)):
                if taken in owner:
                    also = "names it twice" if owner[taken] == str(file) else f"{owner[taken]} has it too"
                    raise InputError(f"{path}: {taken} is no name of its own, {also}: give it another one")
                owner[taken] = str(file)
            found[suite.name] = suite
    return found


def _suite_files(folder: Path) -> list[Path]:
    names = [module.name for module in pkgutil.iter_modules([str(folder)]) if module.name != "registry"]
    packages = [folder, *(folder / name for name in names)]
    inner = [path / module.name / "suite.py" for path in packages for module in pkgutil.iter_modules([str(path)])]
    return [path for path in (*(folder / f"{name}.py" for name in names), *inner) if path.is_file()]


SUITES = find_suites(Path(tasks.__path__[0]), tasks.__name__)
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
