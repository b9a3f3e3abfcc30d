"""The first line of a run: model, tasks, devices, examples.

Arrives: the configuration, the selected tasks, devices.  Leaves: a sentence.  It deliberately reads
no data.
"""

import jax

from miron_jax import __version__
from miron_jax.config import RunConfig
from miron_jax.definitions.records import AnyTask, ClozeTask
from miron_jax.errors import some_of
from miron_jax.evaluation.records import Selected
from miron_jax.files.places import public

MOST_NAMES = 4
CATEGORIES = 4  # of a cloze task


def opening_line(config: RunConfig, selected: Selected, knows_devices: bool = True) -> str:
    """Model, tasks, as many examples as are known without their data, devices.

    `knows_devices`: False where jax must not start its backend yet: several processes start theirs
    together, and a user's own module may set its flags first.
    """
    counts = [_num_examples(config, task) for task in selected.tasks]
    examples = ""
    if None not in counts:
        examples = f", up to {sum(filter(None, counts)):,} examples"
    if config.generated:
        return (
            f"miron-jax {__version__}: completions in {public(config.generated)} for "
            f"{_names(selected)}{examples}"
        )
    devices = f"with {_devices()} " if knows_devices else ""
    return (
        f"miron-jax {__version__}: {public(config.model)} on {_names(selected)}{examples}, "
        f"{devices}in {config.dtype}"
    )


def _names(selected: Selected) -> str:
    """Whole suites by their names, other tasks by theirs."""
    names = list[str]()
    for suite in selected.suites:
        tasks = [task.name for task in suite.tasks if task.name in selected.names]
        if len(tasks) == len(suite.tasks) > 1:
            tasks = [f"{suite.name} ({len(tasks)} tasks)"]
        names += tasks
    return some_of(names, MOST_NAMES)


def _num_examples(config: RunConfig, task: AnyTask) -> int | None:
    """Examples that run if the data are those that were published; None: not known before they are
    read."""
    if config.rows is not None:
        return len(config.rows)
    rows = task.file and task.file.rows
    groups = 1
    if isinstance(task, ClozeTask):
        rows = task.rows if task.file else config.items_per_category
        groups = CATEGORIES
    if rows is None:
        return None
    return groups * min(rows, config.limit or rows)


def _devices() -> str:
    devices = jax.devices()
    kind = devices[0].device_kind if devices[0].platform != "cpu" else "CPU"
    return f"{len(devices)} {kind} device{'s' if len(devices) > 1 else ''}"
