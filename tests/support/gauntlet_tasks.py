"""The published Gauntlet's tasks by their labels."""

from miron_jax.definitions.records import AnswerProfile, Task
from miron_jax.tasks.gauntlet import suite

TASKS = {task.name.partition("/")[2]: task for task in suite.SUITE.tasks}


def options_task(label: str) -> Task:
    task = TASKS[label]
    assert isinstance(task, Task)
    return task


def answer_task(label: str) -> Task[AnswerProfile]:
    task = TASKS[label]
    assert task.kind == "generation"
    return task
