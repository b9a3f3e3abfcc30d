"""A user's Python file -> its tasks: every `Task` that a name of the file holds, or a list of them.

Arrives: a file.  Leaves: `Task`s.  It runs the file: whoever names it trusts it.
"""

import importlib.util
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from miron_jax.definitions.records import Task
from miron_jax.errors import InputError


def read_python(path: Path, suite: str) -> list[Task[Any]]:
    """The tasks, named `suite`/NAME.  Raises InputError for a file that cannot be run or holds
    none."""
    name = f"miron_jax_task_{sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(
            f"--task_path={path} cannot be read: expected a Python file with a Task, or a .yaml "
            "file"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the file look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{path} cannot be run ({why:.200}): mend it") from None
    values = [value for key, value in vars(module).items() if not key.startswith("_")]
    several = [each for value in values if isinstance(value, list | tuple) for each in value]
    tasks = {id(task): task for task in (*values, *several) if isinstance(task, Task)}
    if not tasks:
        raise InputError(
            f"{path} holds no Task: expected a name such as TASK = Task(...) (docs/own_tasks.md)"
        )
    return [
        replace(
            task,
            name=f"{suite}/{task.name.removeprefix(f'{suite}/')}",
            made_of=(*task.made_of, path.resolve()),
        )
        for task in tasks.values()
    ]
