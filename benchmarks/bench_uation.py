"""eval-ua-tion-gen: seconds to make each set, and what scoring all of them by log-probability costs.

    python benchmarks/bench_uation.py --model=FOLDER --limit=50

Each set is made three times; the median stands.  Then the first --limit rows of every set are scored, few-shot examples as
the suite draws them.  Unique tokens are what the engine computes, plain tokens what one row a candidate would.  The last
line is JSON.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from absl import flags
from common import environment, run, say, seconds_of

from miron_jax.config import RunConfig
from miron_jax.inputs import find_inputs
from miron_jax.run import evaluate, summarize_plan
from miron_jax.task_kinds.prompted import PromptedScores
from miron_jax.tasks.eval_uation_gen.sets import GENERATED
from miron_jax.tasks.eval_uation_gen.suite import GEN

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_integer("limit", 50, "Rows of each set.", lower_bound=1)


def main(_: Sequence[str]) -> None:
    made = {}
    for own in GENERATED:
        made[own.name] = median(seconds_of(lambda own=own: own.rows("train", own.num_rows))[0] for _ in range(3))
        say(f"{own.name:16} {own.num_rows:5} rows  {made[own.name]:6.3f} s")
    with tempfile.TemporaryDirectory() as output:
        config = RunConfig(model=FLAGS.model, tasks=(GEN.name,), limit=FLAGS.limit, output=output)
        inputs = find_inputs(config)
        tasks: dict[str, Any] = {}
        for source in inputs.sources:
            totals = summarize_plan(replace(config, tasks=(source.task.name,)), inputs._replace(sources=[source]))
            tasks[source.task.name] = {"unique_tokens": totals.unique_tokens, "plain_tokens": totals.plain_tokens}
        seconds, outcome = seconds_of(lambda: evaluate(config, inputs, say))
    for scores in outcome.tasks:
        assert isinstance(scores, PromptedScores)
        found = scores.estimates().metrics
        own = tasks[scores.source.task.name]
        own |= {name: estimate.value for name, estimate in found.items()}
        say(
            f"{scores.source.task.name:34} accuracy {own['accuracy']:.3f}  {own['plain_tokens']:8} plain  "
            f"{own['unique_tokens']:8} unique  {own['plain_tokens'] / own['unique_tokens']:5.1f}x"
        )
    totals, speed = outcome.totals, outcome.speed
    told = {
        "benchmark": "bench_uation",
        "environment": environment(),
        "model": Path(FLAGS.model).name,
        "limit": FLAGS.limit,
        "seconds_to_make": made,
        "tasks": tasks,
        "requests": totals.requests,
        "unique_tokens": totals.unique_tokens,
        "plain_tokens": totals.plain_tokens,
        "plain_over_unique": totals.plain_tokens / totals.unique_tokens,
        "seconds": seconds,
        "device_seconds": speed.device_seconds,
        "compile_seconds": speed.compile_seconds,
        "tokens_per_second": speed.computed_tokens / speed.device_seconds,
        "largest_difference": outcome.check.largest,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    run(main)
