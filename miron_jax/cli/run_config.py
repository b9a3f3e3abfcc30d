"""Parsed flags -> a RunConfig, and the values that other commands read in the same way.

Arrives: parsed flags.  Leaves: a `RunConfig`; folders.  It deliberately opens no file that
they name but that of --tasks=@FILE.
"""

from collections.abc import Callable, Collection

from absl import flags

from miron_jax.config import SETTINGS, RunConfig, parse_mesh
from miron_jax.errors import InputError
from miron_jax.files.places import local_path, place
from miron_jax.files.readers import parse_json
from miron_jax.files.regular import read_text

FLAGS = flags.FLAGS


def _tasks() -> tuple[str, ...]:
    """The names in --tasks; where it is absent, the suite that suits the other flags."""
    brought = {"own-gauntlet": FLAGS.icl_tasks, "own": FLAGS.task_path, "requests": FLAGS.requests}
    if FLAGS.tasks is None and any(brought.values()):
        return tuple(suite for suite, files in brought.items() if files)
    if FLAGS.tasks is None:
        return ("miron-gen",) if FLAGS.model == "demo" else ("core",)
    names = list[str]()
    for name in filter(None, FLAGS.tasks):
        names.extend(_tasks_in(name[1:]) if name.startswith("@") else [name])
    return tuple(names)


def _tasks_in(name: str) -> list[str]:
    """The tasks of a file that compare --subset has written.  Raises InputError."""
    try:
        document = parse_json(read_text(local_path(name)))
        tasks = isinstance(document, dict) and document.get("tasks")
        if not (tasks and isinstance(tasks, list) and {*map(type, tasks)} == {str}):
            raise ValueError("it has no list of names under tasks")
    except (OSError, ValueError) as error:
        raise InputError(
            f"--tasks=@{name} holds no tasks ({error!s:.120}): name a JSON file such as compare "
            "--subset writes"
        ) from None
    return tasks


def local(name: str | None) -> str | None:
    """Expand `~` in a name that is certainly a path; a name that may be a hub id or
    package.module:name stays as it is."""
    if name and name.startswith(("~", "file://")):
        return place(name)
    return name


def data_dir(flag: str = "data_dir") -> tuple[tuple[str, str], ...]:
    """--data_dir, or another flag that is written so, as (suite, folder) pairs."""
    from miron_jax.tasks.registry import SUITE_NAMES

    return _parse_data_dir(FLAGS[flag].value, SUITE_NAMES, flag)


def _parse_data_dir(
    text: str | None, suites: Collection[str], flag: str = "data_dir"
) -> tuple[tuple[str, str], ...]:
    """The pairs (suite, folder) of `folder` or `suite=folder,suite=folder`; suite "" stands for
    every suite.

    Raises InputError.
    """
    pairs: dict[str, str] = {}
    for part in text.split(",") if text else []:
        suite, equals, folder = part.partition("=")
        if not equals or "/" in suite:  # a folder's name may hold an equals sign
            suite = ""
            folder = part
        if suite and suite not in suites:
            raise InputError(
                f"--{flag}: {suite!r} in {part!r} is no suite, expected one of {', '.join(suites)}"
            )
        if not folder or suite in pairs:
            problem = "is named twice" if folder else "has no folder"
            raise InputError(
                f"--{flag}={text}: {suite or 'the folder for every suite'} {problem}: give each "
                "one once"
            )
        pairs[suite] = str(local_path(folder))
    return tuple(pairs.items())


def task_path() -> tuple[str, ...] | None:
    if FLAGS.task_path:
        return tuple(place(name) for name in FLAGS.task_path if name)
    return None


def rows(flag: str = "rows") -> tuple[int, ...] | None:
    """The numbers of --rows, or of another flag.  Raises InputError."""
    text = getattr(FLAGS, flag)
    values = text.split(",") if text else []
    for value in values:
        if not (value.isascii() and value.isdecimal()) or values.count(value) > 1:
            raise InputError(
                f"--{flag}={text}: {value!r} is not expected there; name lines of the data file, "
                f"from 0, once each: --{flag}=17,40"
            )
    return tuple(map(int, values)) or None


def output_beside(default: str) -> str:
    """--output; where it is absent, `default` instead of the folder that eval would use."""
    return default if FLAGS["output"].using_default_value else FLAGS.output


def _model() -> str | None:
    """--model; where it is absent, completions bear the name of their folder."""
    if "generated" in FLAGS and FLAGS.generated and FLAGS["model"].using_default_value:
        return place(FLAGS.generated)
    return local(FLAGS.model)


# Fields that are not simply the flag's value.
_PARSERS: dict[str, Callable[[], object]] = {
    "model": _model,
    "tasks": _tasks,
    "data_dir": data_dir,
    "output": lambda: place(FLAGS.output),
    "mesh": lambda: parse_mesh(FLAGS.mesh),
    "task_path": task_path,
    "rows": rows,
}


def run_config(tasks: tuple[str, ...] | None = None) -> RunConfig:
    """The configuration that the flags of the command describe; a field has the name of its flag.
    `tasks`: where no flag brings any."""

    brings = (FLAGS.tasks, FLAGS.icl_tasks, FLAGS.task_path, FLAGS.requests)

    def value(name: str) -> object:
        if name == "tasks" and tasks is not None and not any(each is not None for each in brings):
            return tasks
        if name in _PARSERS:
            return _PARSERS[name]()
        flag = getattr(FLAGS, name)
        if SETTINGS[name].is_path:
            return local(flag)
        return flag

    return RunConfig(**{name: value(name) for name in SETTINGS if name in FLAGS})  # pyright: ignore[reportArgumentType]
