"""Runs the authors' solutions of a user's task, for `miron-jax tasks --check`.

Arrives: a task and its problems.  Leaves: sentences on solutions that do not pass.  It deliberately
does not know what a model writes.
"""

from collections.abc import Iterator, Sequence

from miron_jax.definitions.records import Problem, ProgramProfile, Task
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.programs import Judge, check_languages, solution_of
from miron_jax.runtime.sandbox.sandbox import Sandbox

WHY_LEN = 100  # characters of what a failed solution printed last


def bounds_of_programs() -> str:
    """A line on what counts the memory of programs here; "" where they cannot run."""
    try:
        sandbox = Sandbox.find()
    except InputError:
        return ""
    if sandbox.bounded_by == "cgroup":
        return "memory of programs: counted by the kernel (cgroup)"
    return (
        f"memory of programs: watched from outside, as no cgroup can be made ({sandbox.no_cgroup})"
    )


def failing_solutions(task: Task[ProgramProfile], problems: Sequence[Problem]) -> Iterator[str]:
    try:
        judge = Judge.of(Sandbox.find(), task.profile)
        check_languages(judge, problems, task.name)
        verdicts = judge.verdicts([(problem, solution_of(problem)) for problem in problems])
    except InputError as error:
        yield f"the authors' solutions did not run: {error}"
        return
    groups = {"have a solution that does not pass": [], "have a solution that was not judged": []}
    failing, not_judged = groups.values()
    for i, verdict in enumerate(verdicts):
        if verdict.ended == "not judged":
            not_judged.append(i)
        elif not verdict.passed:
            failing.append(i)
    for what, places in groups.items():
        if places:
            first = verdicts[places[0]]
            why = f": {first.why[-WHY_LEN:]}" if first.why else ""
            yield (
                f"{len(places)} of {len(problems)} examples {what}, the first is record "
                f"{problems[places[0]].row + 1} ({first.ended}{why})"
            )
