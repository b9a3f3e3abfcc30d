"""The list of suites and tasks on screen: kinds, shots, baselines, and the state of data files.

Arrives: suites, --data_dir.  Leaves: a table on standard output.  It deliberately does not fetch
anything.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from miron_jax.definitions.data_files import data_state
from miron_jax.definitions.records import About, AnyTask, Suite, kind_word
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.report.numbers import shown
from miron_jax.report.tables.console import console, table_of


def print_tasks(
    suites: Iterable[Suite],
    data_dir: tuple[tuple[str, str], ...],
    about: Callable[[str], About | None],
) -> None:
    """Print one line per task, then one per benchmark: its tasks in several suites share a
    description."""
    out = console()
    numbers = ("shots", "random", "rows", "data")
    table = table_of(
        ("task", "kind"),
        numbers,
        ("licence", "data file"),
        gives_way=("data file", "random", "licence", "kind", "rows"),
    )
    benchmarks = dict[str, About]()
    for task, state in _states(suites, data_dir):
        shots = str(task.profile.num_fewshot)
        if (benchmark := about(task.name)) is not None:
            benchmarks[benchmark.name] = benchmark
        baseline = shown(task.baselines["random"], ".3f")
        documented = getattr(task.profile, "documented_num_fewshot", None)
        if documented is not None:
            shots += f" (document: {documented})"
        rows = str(getattr(task.file, "rows", None) or "")
        path = getattr(task.file, "path", "made by this program")
        licence = licence_of(task, about)
        table.add_row(task.name, kind_word(task), shots, baseline, rows, state, licence, path)
    out.print(table)
    descriptions = table_of(("benchmark", "year"), (), ("what it asks",))
    for benchmark in benchmarks.values():
        descriptions.add_row(benchmark.name, str(benchmark.year or ""), benchmark.asks)
    out.print(descriptions)
    out.print(
        "data are looked for in --data_dir, else in the cache; `miron-jax eval` fetches what it can"
    )


def licence_of(task: AnyTask, about: Callable[[str], About | None]) -> str:
    """The licence of a task's data, as its YAML file or its source's pages state it."""
    benchmark = about(task.name)
    return getattr(task, "licence", "") or getattr(benchmark, "licence", "not stated")


def tasks_json(
    suites: Iterable[Suite],
    data_dir: tuple[tuple[str, str], ...],
    about: Callable[[str], About | None],
) -> list[JsonObject]:
    """An object per task: name, kind, few-shot examples, baselines, rows and path of its data file,
    their state and licence."""
    return [
        {
            "task": task.name,
            "kind": task.kind,
            "num_fewshot": task.profile.num_fewshot,
            "baselines": dict(task.baselines),
            "rows": getattr(task.file, "rows", None),
            "file": getattr(task.file, "path", None),
            "data": state,
            "licence": licence_of(task, about),
        }
        for task, state in _states(suites, data_dir)
    ]


def _states(
    suites: Iterable[Suite], data_dir: tuple[tuple[str, str], ...]
) -> Iterator[tuple[AnyTask, str]]:
    """Each task with the state of its data: as published, changed, missing, to be fetched,
    generated."""
    for suite in suites:
        is_named = any(name and name in (suite.name, suite.files_of) for name, _ in data_dir)
        named = suite.named_folder(data_dir)
        folder = _folder(suite, named, is_named)
        for task in suite.tasks:
            if folder or not task.file:
                yield task, data_state(task, folder).state
            else:
                yield task, "to be fetched" if named is None else "missing"


def _folder(suite: Suite, data_dir: Path | None, by_name: bool) -> Path | None:
    """The suite's folder, or None.  A --data_dir that names the suite must hold its files; a shared
    one need not."""
    try:
        return suite.locate(data_dir, False)
    except InputError:
        if by_name:
            raise
        return None
