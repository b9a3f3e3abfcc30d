"""How much processor time does the judge take beyond the programs that it runs?

    python benchmarks/bench_judge.py --data_dir=BUNDLE --every=8    # a minute on two cores

The authors' solutions of HumanEval are judged, and then run plainly: each test's command once, in
a separate folder, without a box.  Counted is the processor time of this process and of every
process under it.  The goal is 1.3 times the plain runs and 30 ms a program.  The last line is JSON.
"""

import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags
from common import environment, run, say

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Problem
from miron_jax.evaluation.task_kinds.program_languages import Python, Ready
from miron_jax.evaluation.task_kinds.programs import Judge, solution_of
from miron_jax.runtime.sandbox.sandbox import Sandbox
from miron_jax.tasks.gauntlet import programming

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("every", 1, "Take each problem of this distance.", lower_bound=1)

TEST_SECONDS = 10.0
FACTOR, ALLOWANCE = 1.3, 0.030  # the goal: times the plain runs, and seconds a program


def processor_seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Of this process and the processes under it; and the wall time."""

    def used() -> float:
        usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    begin = time.monotonic()
    before = used()
    work()
    return used() - before, time.monotonic() - begin


def run_plainly(sandbox: Sandbox, problem: Problem) -> None:
    ready = Python().make_ready(sandbox, problem, problem.prompt + solution_of(problem))
    assert isinstance(ready, Ready)
    for value in problem.inputs:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in {**ready.files, "input": value}.items():
                (Path(folder) / name).write_text(str(content), encoding="utf-8")
            command = [*ready.command, "value", problem.entry_point]
            # the value goes to descriptor 3
            subprocess.run(
                ["sh", "-c", 'exec "$@" 3>/dev/null', "sh", *command],
                cwd=folder,
                env={"PATH": os.environ["PATH"]},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )


def main(_: Sequence[str]) -> None:
    [task] = [task for task in programming.SUITE.tasks if task.name.endswith("/human_eval")]
    folder = programming.locate(Path(FLAGS.data_dir))
    problems = read_examples(task, folder)[:: FLAGS.every]
    sandbox = Sandbox.find()
    judge = Judge(sandbox, TEST_SECONDS)
    passed = list[bool]()

    def judge_all() -> None:
        verdicts = judge.verdicts([(problem, solution_of(problem)) for problem in problems])
        passed.extend(verdict.passed for verdict in verdicts)

    def run_all() -> None:
        for problem in problems:
            run_plainly(sandbox, problem)

    judged, judged_wall = processor_seconds(judge_all)
    plain, plain_wall = processor_seconds(run_all)
    num_runs = sum(len(problem.inputs) for problem in problems)
    goal = FACTOR * plain + ALLOWANCE * len(problems)
    goal_of_runs = FACTOR * plain + ALLOWANCE * num_runs
    say(
        f"{len(problems)} programs, {num_runs} tests, {sum(passed)} pass: judged in {judged:.1f} s "
        f"of processors ({judged_wall:.1f} s of wall time), run plainly in {plain:.1f} s "
        f"({plain_wall:.1f} s): {1000 * (judged - plain) / num_runs:.1f} ms more a test; the goal "
        f"is {goal:.1f} s, or {goal_of_runs:.1f} s with 30 ms a test"
    )
    numbers = {
        "programs": len(problems), "tests": num_runs, "judged_seconds": judged,
        "plain_seconds": plain, "goal_seconds": goal, "bounded_by": sandbox.bounded_by,
    }  # fmt: skip
    print(json.dumps(numbers | environment()))


if __name__ == "__main__":
    run(main)
