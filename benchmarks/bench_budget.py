"""What does a budget save over an equal limit on CORE?  Arithmetic over its real tasks.

    python benchmarks/bench_budget.py --model=FOLDER --data_dir=BUNDLE --accuracies=GPT2.csv       # a minute on two cores

Costs are the tokens of each task's examples, as the planner estimates them with the model's tokenizer; deviations come from
published accuracies (nanochat's CSV: `Task, Accuracy, Centered`).  For a budget of each share of all tokens: how many tokens
the equal `--limit` takes whose composite has the same standard error for the complete set.  No model runs.  The last line is
JSON.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags
from common import environment, run, say

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Measured
from miron_jax.inputs import find_inputs
from miron_jax.model.checkpoints import architecture_of, find_model
from miron_jax.model.costs import cost_model
from miron_jax.run import SCORING_PROGRAMS, RunTasks
from miron_jax.statistics.sequential import allocation
from miron_jax.tasks import core

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_string("accuracies", None, "nanochat's CSV of a model's accuracies.", required=True)

SHARES = (0.01, 0.03, 0.1, 0.3)


def main(arguments: Sequence[str]) -> None:
    config = RunConfig(FLAGS.model, ("core",), data_dir=(("", FLAGS.data_dir),), allow_changed_data=True)
    inputs = find_inputs(config, fetch=False)
    tasks = RunTasks.of(config, inputs, architecture_of(config, find_model(config, weights=False)))
    cost = cost_model(tasks.model, SCORING_PROGRAMS)
    lines = (line.split(",") for line in Path(FLAGS.accuracies).read_text(encoding="utf-8").splitlines()[1:])
    accuracy = {f"core/{name.strip()}": float(value) for name, value, *_ in lines if value.strip()}
    names = [kind.source.task.name for kind in tasks.kinds]
    composite = core.composites({name: Measured(accuracy[name], 10) for name in names})["CORE-18"]
    sizes = [len(kind.source.examples) for kind in tasks.kinds]
    costs = [float(np.mean(found.num_nodes)) for kind in tasks.kinds if (found := kind.sizes(cost)) is not None]
    deviations = [abs(composite.weights[name]) * math.sqrt(accuracy[name] * (1 - accuracy[name])) for name in names]

    def variance(numbers: Sequence[int]) -> float:
        parts = zip(deviations, numbers, sizes, strict=True)
        return sum(deviation**2 / n * (1 - n / size) for deviation, n, size in parts)

    def spent(numbers: Sequence[int]) -> float:
        return sum(n * own for n, own in zip(numbers, costs, strict=True))

    whole, results = spent(sizes), []
    for share in SHARES:
        numbers = allocation(deviations, costs, sizes, share * whole)
        limits = ([min(limit, size) for size in sizes] for limit in range(2, max(sizes) + 1))
        equal = next(own for own in limits if variance(own) <= variance(numbers))
        saved, stderr = spent(equal) / spent(numbers), math.sqrt(variance(numbers))
        error = f"stderr {stderr:.4f}"
        say(f"{share:.0%} of {whole / 1e6:.1f} M tokens: {error}; --limit={max(equal)} takes {saved:.2f}x the tokens")
        results.append({"share": share, "stderr": stderr, "equal_limit": max(equal), "times_fewer": saved})
    say(json.dumps({"benchmark": "bench_budget", "tokens": whole, "results": results, "environment": environment()}))


if __name__ == "__main__":
    run(main)
