"""Flags that are read -> a RunConfig, and the few values that other commands read alike.

Arrives: parsed flags.  Leaves: a `RunConfig`; folders.  It deliberately does not open what they name.
"""

from collections.abc import Callable
from typing import Any

from absl import flags

from miron_jax.config import SETTINGS, RunConfig, parse_data_dir, parse_mesh
from miron_jax.files.places import place

FLAGS = flags.FLAGS


def _tasks_asked() -> tuple[str, ...]:
    """What --tasks names; absent, the suite that goes with the other flags."""
    if FLAGS.tasks is None and FLAGS.icl_tasks:
        return ("own-gauntlet",)
    if FLAGS.tasks is None:
        return ("miron-gen",) if FLAGS.model == "demo" else ("core",)
    return tuple(name for name in FLAGS.tasks if name)


def local(name: str | None) -> str | None:
    """A path that is one for certain with `~` written out; what may be a hub id or package.module:name as it is."""
    return place(name) if name and name.startswith(("~", "file://")) else name


def data_dir() -> tuple[tuple[str, str], ...]:
    """--data_dir as pairs; only here are the suites asked for their names."""
    from miron_jax.tasks.registry import SUITE_NAMES

    return parse_data_dir(FLAGS.data_dir, SUITE_NAMES)


def output_beside(default: str) -> str:
    """--output, or a folder that no run of eval is to find its place taken in."""
    return default if FLAGS["output"].using_default_value else FLAGS.output


# Flags whose field is not what absl reads; the other places may be hub ids or module names.
_READ: dict[str, Callable[[], Any]] = {
    "tasks": _tasks_asked,
    "data_dir": data_dir,
    "output": lambda: place(FLAGS.output),
    "mesh": lambda: parse_mesh(FLAGS.mesh),
}


def run_config() -> RunConfig:
    """Each field from the flag of its name."""

    def value(name: str) -> Any:
        if name in _READ:
            return _READ[name]()
        given = getattr(FLAGS, name)
        return local(given) if SETTINGS[name].place else given

    return RunConfig(**{name: value(name) for name in SETTINGS})
