"""Does the device wait for the host?  A run of eval, and every moment in which no batch was on it.

    python benchmarks/trace_idle.py --model=FOLDER --data_dir=BUNDLE --tasks=core --limit=50

The first lap compiles.  The second renders, tokenizes, plans, sends and fetches everything again
with the compiled programs, while one thread notes when each batch is handed to the device and when
it is done, and another one which function of this project every host thread is in.  The device is
idle while every batch that was handed to it is done, counted from the first batch on, without the
self-check.  The thread notes a batch's end when it gets the interpreter, up to 5 ms late, so
shorter waits may stay unseen.  The last line is JSON.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from common import PRINTED, environment, run, say, seconds_of
from device_clock import DeviceClock

from miron_jax.config import RunConfig
from miron_jax.engine.model import load_model
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import Evaluation
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Folder of the suite's data.", required=True)
flags.DEFINE_string("tasks", "core", "Suite or task.")
flags.DEFINE_integer("limit", None, "Examples of each task.", lower_bound=1)
flags.DEFINE_string("dtype", "float32", "float32 or bfloat16.")
flags.DEFINE_integer("gaps", 10, "How many of the longest waits are listed.", lower_bound=0)


def main(_: Sequence[str]) -> None:
    config = RunConfig(
        FLAGS.model, (FLAGS.tasks,), data_dir=(("", FLAGS.data_dir),), limit=FLAGS.limit,
        dtype=FLAGS.dtype,
        allow_changed_data=True,
    )  # fmt: skip
    inputs = find_inputs(config, fetch=False)
    architecture = architecture_of(config, find_model(config))
    state = load_model(Path(FLAGS.model), FLAGS.dtype).state
    evaluation = Evaluation(config, inputs, architecture, PRINTED, keep=False)
    evaluation.score(state)
    with DeviceClock() as clock:
        begun = time.perf_counter()
        seconds, outcome = seconds_of(lambda: evaluation.score(state))
    assert outcome is not None
    if not clock.flights:
        sys.exit(f"--tasks={FLAGS.tasks} scores nothing by log-probability: name tasks that do")
    gaps, first, wall = clock.gaps(), clock.first, clock.seconds
    idle = sum(gap.seconds for gap in gaps)
    say(
        f"{len(clock.flights)} batches in {wall:.2f} s; {idle:.3f} s without a batch on the "
        f"device: {idle / wall:.2%}"
    )
    listed = []
    for gap in gaps[: FLAGS.gaps]:
        names = dict(clock.within(gap).most_common(3))
        say(f"  {gap.start - first:8.3f} s  for {gap.seconds:6.3f} s  {names}")
        listed.append({"at": gap.start - first, "seconds": gap.seconds, "samples": names})
    document = {
        "benchmark": "trace_idle",
        "environment": environment(),
        "model": Path(FLAGS.model).name,
        "tasks": FLAGS.tasks,
        "limit": FLAGS.limit,
        "dtype": FLAGS.dtype,
        "batches": len(clock.flights),
        "unique_tokens": outcome.totals.unique_tokens,
        "seconds": seconds,
        "seconds_before_first_batch": first - begun,
        "seconds_from_first_batch": wall,
        "idle_seconds": idle,
        "idle_share": clock.idle_share,
        "gaps": listed,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    run(main)
