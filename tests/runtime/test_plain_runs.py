"""The judge's verdicts are those of a plain run: of published solutions, and of changed ones."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Problem
from miron_jax.evaluation.task_kinds.programs import Judge, solution_of
from miron_jax.runtime.processors import usable_processors
from miron_jax.runtime.sandbox import Sandbox
from miron_jax.tasks.gauntlet import programming
from tests.runtime.test_sandbox import box
from tests.support.changed_programs import passes_plainly, sample

__all__ = ["box"]  # a fixture

SECONDS = 4.0


def differing(box: Sandbox, programs: Sequence[tuple[Problem, str]]) -> list[tuple[str, str, bool]]:
    def plain(problem: Problem, text: str) -> bool:
        return passes_plainly(problem, problem.prompt + text, SECONDS * len(problem.inputs))

    verdicts = Judge(box, SECONDS).verdicts(programs)
    with ThreadPoolExecutor(usable_processors()) as threads:
        plain_runs = list(threads.map(plain, *zip(*programs, strict=True)))
    return [
        (problem.name, f"{verdict.ended} {text}", passed)
        for (problem, text), verdict, passed in zip(programs, verdicts, plain_runs, strict=True)
        if verdict.passed != passed
    ]


def problems_of(label: str, shared_data: Path) -> list[Problem]:
    folder = programming.locate(shared_data / "eval_bundle")
    [task] = [task for task in programming.SUITE.tasks if task.name.endswith(f"/{label}")]
    return read_examples(task, folder)


# Programs whose plain run keeps state between tests, or whose value depends on the hash seed, have no one verdict.
@pytest.mark.parametrize(
    ("label", "every", "count"),
    [
        pytest.param("human_eval", 16, 12, marks=pytest.mark.slow),
        pytest.param("human_eval_js", 16, 12, marks=pytest.mark.slow),
        pytest.param("human_eval", 1, 1000, marks=pytest.mark.long),
        pytest.param("human_eval_js", 1, 500, marks=pytest.mark.long),
    ],
)
def test_verdicts_equal_those_of_a_plain_run(box: Sandbox, shared_data: Path, label: str, every: int, count: int):
    problems = problems_of(label, shared_data)[::every]
    programs = [(problem, solution_of(problem)) for problem in problems]
    for problem, text in sample(problems, count, seed=1):
        program = f"\n\n{text}" if problem.language == "python" else text
        programs.append((problem, program))
    assert differing(box, programs) == []
