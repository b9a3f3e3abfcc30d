"""The table of task kinds: the `KINDS` of every file of this folder.

Arrives: a task.  Leaves: its kind.  It deliberately names no kind.
"""

import pkgutil
from functools import cache
from importlib import import_module

from miron_jax.definitions.records import AnyTask
from miron_jax.evaluation import task_kinds
from miron_jax.evaluation.task_kinds.interface import TaskKind


def kind_of(task: AnyTask) -> type[TaskKind]:
    kinds = _kinds()
    assert task.kind in kinds, (
        f"{task.name} is of the kind {task.kind}, expected one of {', '.join(kinds)}"
    )
    return kinds[task.kind]


@cache
def _kinds() -> dict[str, type[TaskKind]]:
    kinds: dict[str, type[TaskKind]] = {}
    for module in pkgutil.iter_modules(task_kinds.__path__, f"{task_kinds.__name__}."):
        kinds |= getattr(import_module(module.name), "KINDS", {})
    return kinds
