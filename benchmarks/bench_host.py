"""How much does the host do for a checkpoint beside the device?

    python benchmarks/bench_host.py --data_dir=BUNDLE [--model=FOLDER] [--limit=300]

Programs that score are replaced by ones that answer at once with random log-probabilities, and
nothing is self-checked: what is left is the host's.  Two checkpoints of --tasks are scored, and
their results written.  Processor seconds (user and system, all threads) a thousand examples, by
stage; the second checkpoint --repeats times, of which the least counts.  Batches are as large as on
an accelerator.  Counted too: how often a batch is read while none waits behind it, so that a device
would have nothing to do; once, at the end, cannot be avoided.  The last line is JSON.
"""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import flags
from common import Returned, environment, run, say

from miron_jax.config import RunConfig
from miron_jax.engine import forward
from miron_jax.engine.batches import Shape
from miron_jax.engine.forward import ACCELERATOR_TOKENS, Forward
from miron_jax.engine.self_check import SelfCheck, Unchecked
from miron_jax.evaluation import run as evaluation_run
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run_result import finished_run
from miron_jax.evaluation.session import architecture_with, files_of, state_of
from miron_jax.results.writing import write_finished
from miron_jax.runtime.timeline import Timeline

LAUNCH = forward.Forward._launch
FETCH = forward._fetch

FLAGS = flags.FLAGS
flags.DEFINE_string("model", "demo", "Hugging Face folder.")
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_list("tasks", ["core"], "Tasks of every checkpoint.")
flags.DEFINE_integer("limit", 300, "Examples of a task.")
flags.DEFINE_integer("repeats", 5, "Runs of the second checkpoint.", lower_bound=1)


class Output:
    """An array that the device has computed."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def copy_to_host_async(self) -> None: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._values


class StubbedForward(Forward):
    """Scores that cost the device nothing: random log-probabilities, and ranks of 0 or 1."""

    def _program(self, shape: Shape) -> Any:
        if shape not in self.programs:
            rng = np.random.default_rng(0)
            num_edges = shape.slots * shape.shards
            logprob = -rng.exponential(3.0, num_edges).astype(np.float32)
            rank = rng.integers(0, 2, num_edges, np.int32)
            set_logprob = np.full(shape.num_queries * shape.shards, -1.0, np.float32)
            outputs = (Output(logprob), Output(rank), Output(set_logprob))
            self.programs[shape] = lambda state, sets, packed: outputs  # pyright: ignore[reportArgumentType]
        return self.programs[shape]

    def _fit(self, length: int, room: Any, free: int) -> float:
        self._program(self._shape(length, room))
        return 0.0


class Stages:
    """Processor seconds by stage, and batches in the queue of the device."""

    def __init__(self) -> None:
        self.seconds = defaultdict[str, float](float)
        self.waiting = 0  # batches that are launched and not read
        self.num_empty = 0  # reads behind which no batch waited

    def launch(self, *arguments: Any) -> Any:
        self.waiting += 1
        return LAUNCH(*arguments)

    def fetch(self, *arguments: Any) -> Any:
        self.waiting -= 1
        self.num_empty += self.waiting == 0
        return FETCH(*arguments)

    def timed(self, stage: str, function: Callable[..., Returned]) -> Callable[..., Returned]:
        """The function, whose processor seconds in its thread count as this stage's."""

        def call(*arguments: Any, **named: Any) -> Returned:
            start = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[stage] += time.thread_time() - start

        return call

    def whole(self, stage: str, action: Callable[[], Returned]) -> Returned:
        """Runs the action; its seconds in all threads, without those of stages in it, are this
        stage's."""
        before = sum(self.seconds.values())
        start = time.process_time()
        result = action()
        within = sum(self.seconds.values()) - before
        self.seconds[stage] += time.process_time() - start - within
        return result


def main(_: Sequence[str]) -> None:
    evaluation_run.Forward = StubbedForward
    SelfCheck.of = lambda *_, **more: Unchecked(np.inf)  # pyright: ignore[reportAttributeAccessIssue]
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(
            FLAGS.model,
            tuple(FLAGS.tasks),
            data_dir=(("", FLAGS.data_dir),),
            limit=FLAGS.limit,
            output=folder,
            token_budget=ACCELERATOR_TOKENS,
            allow_changed_data=True,
        )
        cold = Stages()
        files = files_of(FLAGS.model, config)
        architecture = architecture_with(FLAGS.model, files, None, config)
        state = state_of(files, architecture, config, None)
        inputs = cold.whole("read", lambda: find_inputs(config))
        evaluation = cold.whole(
            "prepare", lambda: evaluation_run.Evaluation(config, inputs, architecture)
        )
        num_examples = checkpoint(evaluation, state, config, 1, cold)
        laps = [Stages() for _ in range(FLAGS.repeats)]
        for step, lap in enumerate(laps, 2):
            checkpoint(evaluation, state, config, step, lap)
    second = min(laps, key=lambda lap: sum(lap.seconds.values()))
    document = {
        "examples": num_examples,
        "cold": _printed("cold", cold, num_examples),
        "second": _printed("second", second, num_examples),
        "empty_queue_of_each": [lap.num_empty for lap in laps],
        "second_of_each": [sum(lap.seconds.values()) for lap in laps],
        "environment": environment(),
    }
    print(json.dumps(document, allow_nan=False))


def checkpoint(
    evaluation: evaluation_run.Evaluation, state: Any, config: RunConfig, step: int, stages: Stages
) -> int:
    """Score weights and write their results; returns the number of examples."""
    StubbedForward._launch = stages.timed("launch", stages.launch)
    forward._fetch = stages.fetch
    for kind in evaluation._tasks.kinds:
        kind.rows_of = stages.timed("metrics", type(kind).rows_of.__get__(kind))
    outcome = stages.whole("score", lambda: evaluation.score(state))
    assert outcome is not None
    finished = stages.whole("results", lambda: finished_run(config, outcome, step))
    stages.whole("files", lambda: write_finished(config, finished, Timeline().lap))
    return sum(len(scores.rows) for scores in outcome.tasks)


def _printed(name: str, stages: Stages, num_examples: int) -> dict[str, float]:
    each = {stage: 1000 * seconds / num_examples for stage, seconds in stages.seconds.items()}
    total = sum(stages.seconds.values())
    listed = ", ".join(f"{stage} {seconds:.4f}" for stage, seconds in each.items())
    say(f"{name}: {total:.3f} s of {num_examples} examples; s a thousand: {listed}")
    return {**each, "all": 1000 * total / num_examples, "seconds": total}


if __name__ == "__main__":
    run(main)
