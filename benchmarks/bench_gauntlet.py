"""How long does the local Gauntlet take, and how much faster are its texts than HF generate?

    python benchmarks/bench_gauntlet.py --model=FOLDER --data_dir=BUNDLE --limit=20

float32.  This engine runs every benchmark whose file is there (programming left out), then the
generation tasks alone.  The peer is transformers' generate on the same prompt tokens of these
tasks, --peer_batch at once, sorted by length and padded on the left; a batch generates as many
tokens as its task's answers may have, or until all rows have ended.  Compilation and loading are
not counted; one run of each.  The last line is JSON.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from common import PRINTED, environment, run, say, seconds_of
from peers import PlainTorch

from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.task_kinds.generation import GenerationRow
from miron_jax.files.readers import JsonObject
from miron_jax.prompting.prompts import render
from miron_jax.tokens.answer_requests import answer_requests
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer(
    "limit", 20, "Examples of each task, or of each of its categories.", lower_bound=1
)
flags.DEFINE_integer("peer_batch", 8, "Prompts that the peer runs at once.", lower_bound=1)


def main(_: Sequence[str]) -> None:
    config = RunConfig(
        FLAGS.model, ("gauntlet",), data_dir=(("", FLAGS.data_dir),), limit=FLAGS.limit
    )
    inputs = find_inputs(config)
    generation = Inputs(
        [source for source in inputs.sources if source.task.kind == "generation"], {}, inputs.suites
    )
    seconds, alone = seconds_of(lambda: evaluate(config, generation, PRINTED))
    alone_seconds = seconds - excluded_seconds(alone)
    say(f"generation tasks alone: {alone_seconds:.1f} s")
    seconds, whole = seconds_of(lambda: evaluate(config, inputs, PRINTED))
    seconds -= excluded_seconds(whole)
    say(f"everything: {seconds:.1f} s")
    document = summary(whole, seconds, alone, alone_seconds, peer_numbers(generation))
    print(json.dumps(document | {"environment": environment()}, allow_nan=False))


def excluded_seconds(outcome: Outcome) -> float:
    """Loading, compilation and self-check, which the peer's seconds do not include."""
    assert outcome.generation is not None
    compiling = outcome.speed.compile_seconds + outcome.generation.compile_seconds
    return outcome.load_seconds + compiling + outcome.check.seconds


def peer_numbers(inputs: Inputs) -> dict[str, JsonObject]:
    tokenizer, torch = load_tokenizer(FLAGS.model), PlainTorch.load(FLAGS.model, "float32")
    by_task: dict[str, JsonObject] = {}
    for source in inputs.sources:
        task, prompts = source.task, render(source.task, source.examples, FLAGS.limit)
        requests = answer_requests(
            prompts, source.examples, task.profile, tokenizer, task.profile.max_length, task.name
        )
        peer_batch(torch, [(1, 2)], 2)  # warm-up
        start, num_new = time.perf_counter(), 0
        by_length = sorted(requests.prompts, key=len)
        for i in range(0, len(by_length), FLAGS.peer_batch):
            num_new += peer_batch(
                torch, by_length[i : i + FLAGS.peer_batch], requests.max_new_tokens
            )
        seconds = time.perf_counter() - start
        sizes = {
            "max_new_tokens": requests.max_new_tokens,
            "prompts": len(by_length),
            "drawn": num_new,
        }
        by_task[task.name] = {"seconds": seconds, **sizes}
        say(f"  {task.name}: HF generate {seconds:.1f} s")
    return by_task


def peer_batch(torch: PlainTorch, prompts: Sequence[tuple[int, ...]], max_new_tokens: int) -> int:
    """Generate greedily; returns the number of new tokens, padding after a row's end included."""
    ids_BT, mask_BT = torch.left_padded(prompts)
    with torch.torch.inference_mode():
        out_BT = torch.model.generate(
            ids_BT,
            attention_mask=mask_BT,
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=0,
        )
    return int(out_BT.shape[0] * (out_BT.shape[1] - ids_BT.shape[1]))


def summary(
    whole: Outcome,
    seconds: float,
    alone: Outcome,
    alone_seconds: float,
    peer: dict[str, JsonObject],
) -> JsonObject:
    assert whole.generation is not None
    assert alone.generation is not None
    totals, speed, generation = whole.totals, whole.speed, alone.generation
    rows = [row for task in alone.tasks for row in task.rows]
    num_new = sum(len(row.completion.token_ids) for row in rows if isinstance(row, GenerationRow))
    peer_seconds = sum(task["seconds"] for task in peer.values())
    return {
        "benchmark": "bench_gauntlet",
        "model": Path(FLAGS.model).name,
        "limit": FLAGS.limit,
        "tasks": len(whole.tasks),
        "examples": sum(len(task.example_scores) for task in whole.tasks),
        "seconds": seconds,
        "apart_seconds": excluded_seconds(whole),
        "requests": totals.requests,
        "plain_tokens": totals.plain_tokens,
        "unique_tokens": totals.unique_tokens,
        "padding_percent": 100 * (speed.batch_tokens / max(1, totals.unique_tokens) - 1),
        "scoring_programs": speed.programs,
        "generation_programs": whole.generation.programs,
        "scoring_device_seconds": speed.device_seconds,
        "generation": {
            "seconds": alone_seconds,
            "device_seconds": generation.device_seconds,
            "drawn": num_new,
            "slot_steps": generation.slot_steps,
            "busy_percent": 100 * generation.busy_steps / max(1, generation.slot_steps),
            "prompt_tokens": generation.prompt_tokens,
            "prefilled_tokens": generation.prefilled_tokens,
        },
        "peer": {"batch": FLAGS.peer_batch, "seconds": peer_seconds, "of_task": peer},
        "generation_ratio": peer_seconds / alone_seconds,
    }


if __name__ == "__main__":
    run(main)
