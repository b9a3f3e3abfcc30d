"""eval-ua-tion-gen: what scoring all sets by log-probability costs.

    python benchmarks/bench_uation.py --model=FOLDER --limit=50

The first --limit rows of every set are scored, with the suite's few-shot examples.  Unique tokens
are those that the engine computes, plain tokens those of one row a choice.  The last line is JSON.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from absl import flags
from common import PRINTED, environment, run, say, seconds_of

from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.run_tasks import summarize_plan
from miron_jax.evaluation.task_kinds.prompted import PromptedKind
from miron_jax.tasks.generators.eval_uation_gen.suite import GEN

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_integer("limit", 50, "Rows of each set.", lower_bound=1)


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as output:
        config = RunConfig(model=FLAGS.model, tasks=(GEN.name,), limit=FLAGS.limit, output=output)
        inputs = find_inputs(config)
        tasks: dict[str, dict[str, float]] = {}
        for source in inputs.sources:
            totals = summarize_plan(
                replace(config, tasks=(source.task.name,)), inputs._replace(sources=[source])
            )
            tasks[source.task.name] = {
                "unique_tokens": totals.unique_tokens,
                "plain_tokens": totals.plain_tokens,
            }
        seconds, outcome = seconds_of(lambda: evaluate(config, inputs, PRINTED))
    for scores in outcome.tasks:
        assert isinstance(scores.kind, PromptedKind)
        task = tasks[scores.source.task.name]
        task |= {
            name: estimate.value for name, estimate in scores.kind.estimates(scores).metrics.items()
        }
        say(
            f"{scores.source.task.name:34} accuracy {task['accuracy']:.3f}  "
            f"{task['plain_tokens']:8} plain  {task['unique_tokens']:8} unique  "
            f"{task['plain_tokens'] / task['unique_tokens']:5.1f}x"
        )
    totals, speed = outcome.totals, outcome.speed
    document = {
        "benchmark": "bench_uation",
        "environment": environment(),
        "model": Path(FLAGS.model).name,
        "limit": FLAGS.limit,
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
    print(json.dumps(document))


if __name__ == "__main__":
    run(main)
