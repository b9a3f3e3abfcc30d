"""What does --dtype=bfloat16 cost in exactness, task by task?

    python benchmarks/bench_dtype.py --model=FOLDER --data_dir=EVAL_BUNDLE --tasks=core --limit=20

`miron-jax eval` runs twice, in float32 and in bfloat16, and the samples are compared: mean and
largest difference of the log-probabilities of scored tokens (nats), how many examples get another
answer (another choice, or greedy in only one of the two), both accuracies, and both runs' tokens a
second.  The last line is JSON.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags
from common import environment, run, run_eval, say

from miron_jax.files.readers import Json, JsonObject

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Model folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_string("tasks", "core", "Suites, tasks or globs.")
flags.DEFINE_integer("limit", 20, "Examples of each task.", lower_bound=1)

DTYPES = ("float32", "bfloat16")


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outputs = {dtype: Path(folder) / dtype for dtype in DTYPES}
        results = {dtype: evaluated(dtype, output) for dtype, output in outputs.items()}
        tasks = {name: compared(name, outputs, results) for name in results["float32"]["tasks"]}
    print(
        f"\n{'task':40}{'n':>6}{'mean nats':>11}{'largest':>9}{'flipped':>9}{'float32':>9}{'bfloat16':>9}"  # noqa: E501
    )
    for name, task in tasks.items():
        accuracies = "".join(
            f"{'' if value is None else f'{value:.3f}':>9}" for value in task["accuracy"].values()
        )
        print(
            f"{name:40}{task['n']:6}{task['mean']:11.4f}{task['largest']:9.3f}{task['flipped']:9}{accuracies}"
        )
    speed = {dtype: one["speed"]["tokens_per_second"] for dtype, one in results.items()}
    print("tokens a second: " + ", ".join(f"{dtype} {rate:.0f}" for dtype, rate in speed.items()))
    document = {
        "benchmark": "bench_dtype",
        "model": Path(FLAGS.model).name,
        "limit": FLAGS.limit,
        "tasks": tasks,
    }
    print(
        json.dumps(
            {**document, "tokens_per_second": speed, "environment": environment()}, allow_nan=False
        )
    )


def evaluated(dtype: str, output: Path) -> JsonObject:
    flags = [
        f"--model={FLAGS.model}",
        f"--data_dir={FLAGS.data_dir}",
        f"--tasks={FLAGS.tasks}",
        f"--limit={FLAGS.limit}",
    ]
    results = run_eval(output, *flags, f"--dtype={dtype}")
    say(f"{dtype}: {results['speed']['wall_seconds']:.0f} s")
    return results


def compared(name: str, outputs: dict[str, Path], results: dict[str, JsonObject]) -> JsonObject:
    """One task's samples in both dtypes, example by example."""
    exact, rounded = (
        [
            json.loads(line)
            for line in (output / "samples" / f"{name}.jsonl").read_text().splitlines()
        ]
        for output in outputs.values()
    )
    differences = [
        np.abs(np.subtract(one["token_logprobs"], other["token_logprobs"]))
        for sample, twin in zip(exact, rounded, strict=True)
        for one, other in zip(sample["options"], twin["options"], strict=True)
    ]
    nats = np.concatenate(differences) if differences else np.zeros(0)
    return {
        "n": len(exact),
        "scored_tokens": len(nats),
        "mean": float(nats.mean()) if len(nats) else 0.0,
        "largest": float(nats.max(initial=0)),
        "flipped": sum(
            answer(one) != answer(other) for one, other in zip(exact, rounded, strict=True)
        ),
        "accuracy": {
            dtype: one["tasks"][name]["metrics"].get("accuracy", {}).get("value")
            for dtype, one in results.items()
        },
    }


def answer(sample: JsonObject) -> Json:
    """The chosen choice; of a task without choices, whether the continuation is greedy."""
    if sample["prediction"] is not None:
        return sample["prediction"]
    return [option["greedy"] for option in sample["options"]]


if __name__ == "__main__":
    run(main)
