"""An earlier run, which another one is compared with while it runs.

Arrives: a `Run`, the tasks of the run to come.  Leaves: their `Earlier`, or why the two cannot be
compared.  It deliberately does not know flags.
"""

import json
from collections.abc import Sequence

from miron_jax.definitions.rules import printed
from miron_jax.errors import InputError
from miron_jax.evaluation.records import Inputs
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.results.document import LATER_RULES
from miron_jax.results.run_folder import Run


def with_earlier(inputs: Inputs, run: Run) -> Inputs:
    """The same tasks with what the earlier run found for them.  Raises InputError if it scored one
    otherwise."""
    check_same_tasks(run, inputs.sources)
    names = {source.task.name for source in inputs.sources}
    return inputs._replace(earlier=run.earlier(names))


def check_same_tasks(run: Run, sources: Sequence[LoadedTask]) -> None:
    """Raises InputError for a task that the earlier run scored on other data, by other rules or
    another metric."""
    for source in sources:
        task = source.task
        earlier = run.tasks.get(task.name)
        if earlier is None:
            continue
        rules = json.loads(json.dumps(printed(task.profile)))
        others = [
            key
            for key, rule in rules.items()
            if key != "max_length"
            and earlier.profile.get(key) != rule
            and not (key in LATER_RULES and key not in earlier.profile)
        ]
        if earlier.data.git_blob_sha1 != source.data.git_blob_sha1:
            why = "on other data"
        elif others:
            why = (
                f"by another rule {others[0]}: {earlier.profile.get(others[0])!r} instead of "
                f"{rules[others[0]]!r}"
            )
        elif earlier.main_metric != task.main:
            why = f"by {earlier.main_metric} instead of {task.main}"
        else:
            continue
        raise InputError(
            f"--against={run.folder} scored {task.name} {why}: name a run by the same rules"
        )
