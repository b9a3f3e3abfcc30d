"""Which kinds of task there are: every file of this folder that has `KINDS`.

Arrives: a task.  Leaves: its kind.  It deliberately names no kind.
"""

import pkgutil
from functools import cache
from importlib import import_module

from miron_jax import task_kinds
from miron_jax.definitions.records import AnyTask
from miron_jax.task_kinds.interface import TaskKind


def kind_of(task: AnyTask) -> type[TaskKind]:
    found = _kinds()
    assert task.kind in found, f"{task.name} is of the kind {task.kind}, expected one of {', '.join(found)}"
    return found[task.kind]


@cache
def _kinds() -> dict[str, type[TaskKind]]:
    found: dict[str, type[TaskKind]] = {}
    for module in pkgutil.iter_modules(task_kinds.__path__, f"{task_kinds.__name__}."):
        found |= getattr(import_module(module.name), "KINDS", {})
    return found
