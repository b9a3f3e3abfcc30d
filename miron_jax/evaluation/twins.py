"""Twins of a task's rows: texts that no model has read, made as the rows were.

Arrives: a task with its rows, the folder of --twins or the name of this program's generators.
Leaves: for each row its twin.  It deliberately does not know tokens.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.prompting.row_texts import RowsAndTwins, RowText, row_texts

GENERATED = "generated"
# suite -> the one that has rows in its manner; a suite that makes its rows goes on making them
_SUITES = {
    "miron": "miron-gen",
    "miron-gen": "miron-gen",
    "miron-gen-prefixspace": "miron-gen-prefixspace",
    "eval-ua-tion": "eval-ua-tion-gen",
    "eval-ua-tion-text": "eval-ua-tion-gen-text",
}


def rows_and_twins(
    config: RunConfig, generated: bool, folders: Mapping[str, str] | None
) -> dict[str, RowsAndTwins]:
    """The rows of each task with their twins: generated ones, of folders, or none."""
    tasks = dict[str, RowsAndTwins]()
    for source in find_inputs(config).sources:
        name = source.task.name
        rows = row_texts(source.task, source.examples)
        twins = None
        if generated:
            twins = generated_twins(config, name, rows)
        elif folders:
            twins = read_twins(config, folders, name, rows)
        tasks[name] = RowsAndTwins(rows, twins, source.data.git_blob_sha1)
    return tasks


def generated_twins(config: RunConfig, name: str, rows: Sequence[RowText]) -> list[RowText | None]:
    """The twin of each row, the next one of its category; None where there is no further one.

    `name`: the task's.  Raises InputError for a task without a generator.
    """
    suite, _, of_suite = name.partition("/")
    if suite not in _SUITES:
        raise InputError(
            f"--twins={GENERATED}: {name} has no generator, only {', '.join(_SUITES)} have one: "
            "write twins of its rows into a folder, and name it, --twins=FOLDER"
        )
    groups = Counter(each.group for each in rows)
    most = max(groups.values())
    first = most * (_SUITES[suite] == suite)
    twin = f"{_SUITES[suite]}/{of_suite}"
    made = replace(
        config, tasks=(twin,), items_per_category=first + most, data_dir=(), task_path=None
    )
    [source] = find_inputs(made).sources
    waiting = defaultdict[str, list[RowText]](list)
    for each in row_texts(source.task, source.examples):
        waiting[each.group].append(each)
    twins = list[RowText | None]()
    counts = Counter[str]()
    for each in rows:
        further = waiting[each.group][first + counts[each.group] :][:1]
        counts[each.group] += 1
        twins.extend(further or [None])
    return twins


def read_twins(
    config: RunConfig, folders: Mapping[str, str], name: str, rows: Sequence[RowText]
) -> list[RowText | None] | None:
    """The twin of each row, in files that are laid out and named as the task's; None: the folders
    are of other suites.

    `folders`: suite -> folder, "" for every suite.  Raises InputError for twins of other rows.
    """
    folder = folders.get(name.partition("/")[0], folders.get(""))
    if folder is None:
        return None
    if not Path(folder).exists():
        raise InputError(
            f"--twins={folder} is not there, expected a folder laid out as the data of {name}"
        )
    paths = (folder,) if config.task_path else None
    data_dir = tuple(folders.items())
    given = replace(
        config, tasks=(name,), data_dir=data_dir, task_path=paths, allow_changed_data=True
    )
    try:
        [source] = find_inputs(given, fetch=False).sources
    except InputError as error:
        sentence = re.sub("--(data_dir|task_path)", "--twins", str(error))
        raise InputError(f"--twins, twins of {name}: {sentence}") from None
    if source.task.file is None:
        raise InputError(
            f"--twins={folder}: {name} makes its rows and reads no folder, expected "
            f"--twins={GENERATED}: leave it out of --tasks, or name folders as SUITE=FOLDER"
        )
    twins = row_texts(source.task, source.examples)
    expected = [each.name for each in rows]
    names = [each.name for each in twins]
    if len(names) != len(expected):
        raise InputError(
            f"--twins={folder}: {name} has {len(names)} rows there, {len(expected)} in its data, "
            "expected a twin of each row, in their order: complete the files"
        )
    if names != expected:
        [number, *_] = (i for i, name in enumerate(names) if name != expected[i])
        raise InputError(
            f"--twins={folder}: row {number} of {name} is {names[number]!r} there and "
            f"{expected[number]!r} in its data, expected each twin in its row's place: sort them"
        )
    if [each.text for each in twins] == [each.text for each in rows]:
        raise InputError(
            f"--twins={folder}: all {len(rows)} rows of {name} there are those of its data, "
            "expected texts that no model has read: name another folder"
        )
    return [*twins]
