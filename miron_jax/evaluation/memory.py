"""Tasks whose rows are in memory, in the layout of CORE's files.

Arrives: lists of dicts by the task's name.  Leaves: `Inputs`.  It deliberately does not know
models.

    {"core/copa": rows}                                              by that task's rules
    {"hills": {"rows": rows, "type": "multiple_choice", "num_fewshot": 0, "delimiter": " "}}
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from miron_jax.definitions.data_files import DataState, Located, git_blob_sha1, parse_each
from miron_jax.definitions.records import Suite, Task
from miron_jax.errors import InputError
from miron_jax.evaluation.records import Inputs
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.files.readers import Json, JsonObject, shown
from miron_jax.tasks import registry
from miron_jax.tasks.core import task_of_rows

FIELDS = {"rows": list, "type": str, "num_fewshot": int, "delimiter": str}


def inputs_of(data: Mapping[str, Json]) -> Inputs:
    """Raises InputError."""
    known = {task.name: (task, suite) for suite in registry.SUITES.values() for task in suite.tasks}
    sources = list[LoadedTask]()
    suites: dict[str, Suite] = {}
    unpublished = list[Task]()
    for name, given in data.items():
        if name in known:
            task, suite = known[name]
            suites[suite.name] = suite
            if not isinstance(task, Task) or task.arrange is not None or task.examples is not None:
                raise InputError(f"data: {name} has no rows of one file: give its folder, data_dir")
            sources.append(_loaded(replace(task, file=replace(task.file, path=name)), given))
        else:
            fields = _checked(name, given)
            task = task_of_rows(name, fields["type"], fields["num_fewshot"], fields["delimiter"])
            unpublished.append(task)
            sources.append(_loaded(task, fields["rows"]))
    if unpublished:
        suites["own"] = Suite(
            "own", tuple(unpublished), lambda measured: {}, lambda folder, fetch: Path()
        )
    return Inputs(sources, {}, list(suites.values()), tuple(data))


def _checked(name: str, given: Json) -> JsonObject:
    """What a task of another name needs beside its rows.  Raises InputError."""
    fields = {}
    if isinstance(given, Mapping):
        fields = dict(given)
    for key, kind in FIELDS.items():
        value = fields.get(key)
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            raise InputError(
                f"data: {name} is no task of this program, and its {key} is {shown(value)}: give a "
                f"dict of {', '.join(FIELDS)}, or the full name of a task such as core/copa"
            )
    return fields


def _loaded(task: Task, rows: Sequence[JsonObject]) -> LoadedTask:
    """Raises InputError for a row that the task cannot read."""
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"data: {task.name} holds {shown(rows)}, expected a list of dicts")
    try:
        content = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"data: {task.name}: its rows are no JSON ({error!s:.120})") from None
    located = Located(rows, "row", range(len(rows)))
    examples = parse_each(located, task.parse, f"data: {task.name}", ": mend the row")
    return LoadedTask(task, examples, DataState("no published hash", git_blob_sha1(content)))
