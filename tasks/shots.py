"""Tasks with another number of few-shot examples than they state, under names of their own.

Arrives: a task, the number.  Leaves: the same task, as SUITE/TASK/N-shot if its number was another
one.  It deliberately does not know examples.  No composite takes a task under such a name, as
composites name their tasks.
"""

from dataclasses import replace

from miron_jax.definitions.records import AnyTask, Task, Wording, kind_word
from miron_jax.errors import InputError
from miron_jax.prompting.draws import NO_SHOTS
from miron_jax.tasks.gauntlet import suite as gauntlet
from miron_jax.tasks.gauntlet import yaml_files
from miron_jax.tasks.own_tasks import yaml_task

# suites whose rule of sampling is for any number
TAKE_ANY_NUMBER = (
    yaml_task.NAME,
    yaml_files.NAME,
    gauntlet.SUITE.name,
    gauntlet.COT_FIX.name,
    gauntlet.FIXED.name,
)


def with_num_fewshot(task: AnyTask, num_fewshot: int) -> AnyTask:
    """Raises InputError for a task whose number is fixed."""
    if why := _why_fixed(task):
        raise InputError(
            f"--num_fewshot={num_fewshot}: {task.name} {why}: leave the flag out, or choose tasks "
            f"of {', '.join(TAKE_ANY_NUMBER)}"
        )
    stated = task.profile.num_fewshot
    if stated == num_fewshot or not isinstance(task, Task):
        return task
    name = task.name.removesuffix(f"/{stated}-shot")
    profile = replace(task.profile, num_fewshot=num_fewshot, documented_num_fewshot=None)
    return replace(task, name=f"{name}/{num_fewshot}-shot", profile=profile, reference={})


def _why_fixed(task: AnyTask) -> str:
    """Why a task takes no other number of shots; "": it does."""
    suite = task.name.partition("/")[0]
    if not isinstance(task, Task) or not isinstance(task.profile, Wording):
        return f"is a {kind_word(task)} task, which asks without few-shot examples"
    if task.profile.fewshot_draw is NO_SHOTS:
        return "has prompts that are whole, with the few-shot examples in them"
    if suite in TAKE_ANY_NUMBER:
        return "arranges its few-shot examples itself" if task.arrange is not None else ""
    return (
        f"is published with {task.profile.num_fewshot or 'no'} few-shot examples by a fixed rule, "
        f"and the numbers of {suite} are of those alone"
    )
