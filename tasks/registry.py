"""All suites by name, and the selection of tasks by the patterns of a command line.

Arrives: the files of this folder; patterns such as `core`, `core/arc_easy`, `core/arc_*`.  Leaves:
`Task`s in published order.  It deliberately names no suite, and does not know whether a task's data
exist.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rapidfuzz import process

from miron_jax import tasks
from miron_jax.definitions.records import AnyTask, SpecialTokens, Suite
from miron_jax.errors import InputError
from miron_jax.tasks import expert, miron, text
from miron_jax.tasks.gauntlet import yaml_files
from miron_jax.tasks.own_tasks import yaml_task
from miron_jax.tasks.request_sets import requests_suite

if TYPE_CHECKING:
    from miron_jax.tasks.generators.eval_uation_gen import sets

GROUP = "miron_jax.tasks"  # entry points of other packages' suites


def find_suites(folder: Path, package: str) -> dict[str, Suite[AnyTask]]:
    """The `SUITES` of each file in `folder`, and of each suite.py one or two levels below, in the
    order of their names.

    Raises InputError for a file that cannot be imported, and for a name that two suites or tasks
    have.
    """
    suites_by_name: dict[str, Suite[AnyTask]] = {}
    file_of: dict[str, str] = {}  # name of a suite or task -> the file that defines it
    for path in sorted(_suite_files(folder), key=_sort_name):
        file = str(path.relative_to(folder))
        module = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
        try:
            file_suites: tuple[Suite[AnyTask], ...] = getattr(import_module(module), "SUITES", ())
        except Exception as error:  # a user's file may raise anything
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(
                f"{path} cannot be imported ({why:.200}): mend it, or take it out of the folder"
            ) from None
        for suite in file_suites:
            for claimed in (suite.name, *(task.name for task in suite.tasks)):
                if claimed in file_of:
                    also = f"{file_of[claimed]} has it too"
                    if file_of[claimed] == file:
                        also = "names it twice"
                    raise InputError(
                        f"{path}: {claimed} is no name of its own, {also}: give it another one"
                    )
                file_of[claimed] = file
            suites_by_name[suite.name] = suite
    return suites_by_name


def _suite_files(folder: Path) -> list[Path]:
    paths = [*folder.glob("*.py"), *folder.glob("*/suite.py"), *folder.glob("*/*/suite.py")]
    return [path for path in paths if not path.name.startswith((".", "__init__", "registry"))]


def _sort_name(path: Path) -> str:
    return path.parent.name if path.stem == "suite" else path.stem


def installed_suites(known: Collection[str]) -> dict[str, Suite[AnyTask]]:
    """Suites of other packages, by their entry points of GROUP: each names a `Suite`, or a list of
    them.

    Raises InputError for one that cannot be loaded, or bears a name of `known`.
    """
    suites_by_name: dict[str, Suite[AnyTask]] = {}
    for entry in entry_points(group=GROUP):
        at = (
            f"the package {entry.dist.name if entry.dist else entry.value}, entry point "
            f"{entry.name} of {GROUP}"
        )
        try:
            loaded = entry.load()
        except Exception as error:  # another package's code may raise anything
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(
                f"{at} cannot be loaded ({why:.200}): mend it, or uninstall the package"
            ) from None
        for suite in loaded if isinstance(loaded, list | tuple) else [loaded]:
            if not isinstance(suite, Suite):
                raise InputError(
                    f"{at} is a {type(suite).__name__}, expected a Suite: mend it, or uninstall "
                    "the package"
                )
            if suite.name in known or suite.name in suites_by_name:
                raise InputError(
                    f"{at}: there is a suite {suite.name} already: give it another name"
                )
            suites_by_name[suite.name] = suite
    return suites_by_name


_OWN = find_suites(Path(tasks.__path__[0]), tasks.__name__)
SUITES = {**_OWN, **installed_suites(_OWN)}
SUITE_NAMES = (*SUITES, yaml_files.NAME)


class Selection(NamedTuple):
    tasks: list[AnyTask]  # published order, each once
    by_name: frozenset[str]  # tasks requested by full name: their data must exist


def suites(
    icl_tasks: str | None = None,
    eval_gauntlet: str | None = None,
    task_path: Sequence[str] = (),
    requests: str | None = None,
    texts: Path | None = None,
    stride: int | None = None,
    special_tokens: SpecialTokens = "control",
    solutions: Path | None = None,
) -> dict[str, Suite[AnyTask]]:
    """All suites, the user's gauntlet if `icl_tasks` names its yaml file, the user's tasks of
    `task_path`, those of the request set in the folder `requests`, the groups of documents in the
    folder `texts`, and the files in the folder `solutions`."""
    of_user: list[Suite[AnyTask]] = []
    if icl_tasks is not None:
        of_user.append(
            yaml_files.read_suite(Path(icl_tasks), Path(eval_gauntlet) if eval_gauntlet else None)
        )
    if task_path:
        of_user.append(yaml_task.read_suite(task_path))
    if requests is not None:
        of_user.append(requests_suite.read_suite(Path(requests)))
    if texts is not None:
        of_user.append(text.read_suite(texts, stride, special_tokens))
    if solutions is not None:
        of_user.append(expert.read_suite(solutions))
    return {**SUITES, **{suite.name: suite for suite in of_user}}


def select(patterns: str, among: Mapping[str, Suite[AnyTask]] = SUITES) -> Selection:
    """Tasks that match a comma-separated list of suites, task names, globs and composites, as
    core/CORE-18."""
    requested = [*map(str.strip, patterns.split(","))]
    tasks_by_name = _tasks_of(among)
    chosen = set[str]()
    for pattern in requested:
        chosen.update(_matches(pattern, tasks_by_name, among))
    selected = [task for name, task in tasks_by_name.items() if name in chosen]
    return Selection(selected, frozenset(requested) & tasks_by_name.keys())


def _tasks_of(among: Mapping[str, Suite[AnyTask]]) -> dict[str, AnyTask]:
    return {task.name: task for suite in among.values() for task in suite.tasks}


def named(among: Mapping[str, Suite[AnyTask]], words: Sequence[str]) -> dict[str, Suite[AnyTask]]:
    """The suites with those of their tasks whose names have one of the words in them, or match it
    as a glob; all without words.  Raises InputError for a word that no task has."""
    if not words:
        return dict(among)
    names = list(_tasks_of(among))
    chosen = set[str]()
    for word in map(str.lower, words):
        matching = [
            name for name in names if word in name.lower() or fnmatchcase(name.lower(), word)
        ]
        if not matching:
            nearest, *_ = process.extractOne(word, names)
            raise InputError(
                f"no task has {word!r} in its name: did you mean {nearest}? `miron-jax tasks` "
                "lists all"
            )
        chosen.update(matching)
    suites_by_name = {}
    for name, suite in among.items():
        kept = tuple(task for task in suite.tasks if task.name in chosen)
        suites_by_name[name] = replace(suite, tasks=kept)
    return suites_by_name


def _matches(
    pattern: str, tasks_by_name: dict[str, AnyTask], among: Mapping[str, Suite[AnyTask]]
) -> list[str]:
    if pattern in among and among[pattern].tasks:
        return [task.name for task in among[pattern].tasks]
    suite, _, composite = pattern.partition("/")
    of_nothing = among[suite].composites({}) if suite in among else {}
    if composite in of_nothing and of_nothing[composite].missing:
        return list(of_nothing[composite].missing)
    if pattern in (text.NAME, expert.NAME):
        raise InputError(
            f"--tasks: {pattern} wants --data_dir={pattern}=FOLDER, whose files are to be scored"
        )
    names = [name for name in tasks_by_name if fnmatchcase(name, pattern)]
    if not names:
        same = [name for name in tasks_by_name if name.partition("/")[2] == pattern]
        names = same or (list(tasks_by_name) if "/" in pattern else list(among))
        hint = ""
        if pattern:
            nearest, *_ = process.extractOne(pattern, names)
            hint = f"did you mean {nearest}? "
        raise InputError(
            f"--tasks: {pattern!r} is no suite, task or matching glob: {hint}`miron-jax tasks` "
            "lists them"
        )
    return names


def export(
    folder: Path,
    items_per_category: int,
    articles: Path | None = None,
    spelled: bool = False,
    stories: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    distractors: Path | None = None,
    templates: Path | None = None,
    words: Path | None = None,
    reviews: "sets.Reviews | None" = None,
) -> list[Path]:
    """Writes all generated rows, or sets made from a user's articles, stories, templates and words;
    returns the files.  `spelled`: also mask number words in the articles; `say`: receives what is
    left out; `distractors`: nouns that are further options of the stories' gaps; `reviews`: what
    people have made of the stories and their gaps."""
    from miron_jax.tasks.generators.eval_uation_gen import language, language_sets, sets

    of_user = language.Language(templates or language.UKRAINIAN, words)
    if articles is None and stories is None:
        if templates is not None or words is not None:
            has_items = miron.is_language(of_user.folder)
            made: list[language_sets.LanguageSet] = []
            if of_user.is_given or not has_items:
                made = language_sets.sets_of(of_user)
            has_words = language_sets.have_words(made)
            if words is not None and not has_words and not miron.has_word_forms(of_user.folder):
                raise InputError(
                    f"--words={words}: none of the sets of --templates={of_user.folder} has words "
                    "of a file: leave out --words"
                )
            paths: list[Path] = []
            if has_items:
                paths += miron.export_language(folder, of_user.folder, words, items_per_category)
            return [*paths, *sets.write_language(folder, made)]
        return [*miron.export(folder, items_per_category), *sets.export(folder)]
    paths = []
    if articles is not None:
        number_words: Collection[str] = ()
        if spelled:
            language_sets.check_folder(of_user)
            number_words = of_user.number_words
        paths += sets.export_titles(folder, articles, number_words)
    if stories is not None:
        of_people = reviews or sets.Reviews()
        paths += sets.export_stories(folder, stories, say, distractors, of_people)
    return paths
