"""An earlier run, which another one is compared with while it runs.

Arrives: a `Run`, the tasks of the run to come.  Leaves: their `Earlier`, or why the two cannot be
compared.  It deliberately does not know flags.
"""

from miron_jax.definitions.rules import printed
from miron_jax.errors import InputError
from miron_jax.evaluation.records import Inputs
from miron_jax.results.run_folder import Run
from miron_jax.results.same_rules import other_rule


def with_earlier(inputs: Inputs, run: Run) -> Inputs:
    """The same tasks with what the earlier run found for them.  Raises InputError for a task that
    it scored on other data, by other rules or another metric."""
    for source in inputs.sources:
        task = source.task
        earlier = run.tasks.get(task.name)
        if earlier is None:
            continue
        why = other_rule(earlier, source.data.git_blob_sha1, printed(task.profile))
        if not why and earlier.main_metric != task.main:
            why = f"its main metric differs: {earlier.main_metric} and {task.main}"
        if why:
            raise InputError(
                f"--against={run.folder} scored {task.name} otherwise: {why}: name a run by the "
                "same rules"
            )
    return inputs._replace(earlier=run.earlier({source.task.name for source in inputs.sources}))
