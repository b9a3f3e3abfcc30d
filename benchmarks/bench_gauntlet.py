"""How long does the local Gauntlet take, and how much faster are its texts than HF generate?

    python benchmarks/bench_gauntlet.py --model=FOLDER --data_dir=BUNDLE --limit=20

float32.  This engine runs every benchmark whose file is there (programming left out), then the generation tasks alone.
The peer is transformers' generate on these tasks' prompts, token for token the same, --peer_batch at once, sorted by
length and padded on the left; each task's batches draw as many tokens as its answers have room for, or until all rows
have ended.  Compilation and loading stand apart; one run of each.  The last line is JSON.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags
from common import PlainTorch, environment, run, say, seconds_of

from miron_jax.config import RunConfig
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.inputs import find_inputs
from miron_jax.prompting.prompts import render
from miron_jax.run import evaluate
from miron_jax.task_kinds.generation import GenerationScores
from miron_jax.tokens.answer_requests import AnswerRequests, answer_requests
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("limit", 20, "Examples of each task, or of each of its categories.", lower_bound=1)
flags.DEFINE_integer("peer_batch", 8, "Prompts that the peer runs at once.", lower_bound=1)


def main(_: Sequence[str]) -> None:
    config = RunConfig(FLAGS.model, ("gauntlet",), data_dir=(("", FLAGS.data_dir),), limit=FLAGS.limit)
    inputs = find_inputs(config)
    generation = Inputs([own for own in inputs.sources if own.task.kind == "generation"], {}, inputs.suites)
    seconds, alone = seconds_of(lambda: evaluate(config, generation, say))
    texts = seconds - apart(alone)
    say(f"generation tasks alone: {texts:.1f} s")
    seconds, whole = seconds_of(lambda: evaluate(config, inputs, say))
    say(f"everything: {seconds - apart(whole):.1f} s")
    peer = peer_seconds(generation)
    document = summary(whole, seconds - apart(whole), alone, texts, peer)
    print(json.dumps(document | {"environment": environment()}, allow_nan=False))


def apart(outcome: Outcome) -> float:
    """Loading, compilation and self-check, which the peer has not, or not in these seconds."""
    assert outcome.generation is not None
    compiling = outcome.speed.compile_seconds + outcome.generation.compile_seconds
    return outcome.load_seconds + compiling + outcome.check.seconds


def peer_seconds(inputs: Inputs) -> dict[str, Any]:
    tokenizer, torch = load_tokenizer(FLAGS.model), PlainTorch.load(FLAGS.model, "float32")
    found: dict[str, Any] = {}
    for source in inputs.sources:
        task, prompts = source.task, render(source.task, source.examples, FLAGS.limit)
        asked = answer_requests(prompts, source.examples, task.profile, tokenizer, task.profile.max_length, task.name)
        peer_batch(torch, [(1, 2)], 2)  # warm
        start, drawn = time.perf_counter(), 0
        by_length = sorted(asked.prompts, key=len)
        for at in range(0, len(by_length), FLAGS.peer_batch):
            drawn += peer_batch(torch, by_length[at : at + FLAGS.peer_batch], asked.max_new_tokens)
        found[task.name] = told(asked, time.perf_counter() - start, drawn)
        say(f"  {task.name}: HF generate {found[task.name]['seconds']:.1f} s")
    return found


def told(asked: AnswerRequests, seconds: float, drawn: int) -> dict[str, Any]:
    return {"seconds": seconds, "max_new_tokens": asked.max_new_tokens, "prompts": len(asked.prompts), "drawn": drawn}


def peer_batch(torch: PlainTorch, prompts: Sequence[tuple[int, ...]], count: int) -> int:
    """Greedy tokens of some prompts; returns how many were drawn, padding after a row's end included."""
    longest = max(map(len, prompts))
    rows = torch.torch.tensor([[0] * (longest - len(ids)) + list(ids) for ids in prompts])
    mask = torch.torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    with torch.torch.inference_mode():
        out = torch.model.generate(
            rows, attention_mask=mask, do_sample=False, max_new_tokens=count, pad_token_id=0
        )  # fmt: skip
    return int(out.shape[0] * (out.shape[1] - longest))


def summary(whole: Outcome, seconds: float, alone: Outcome, texts: float, peer: dict[str, Any]) -> dict[str, Any]:
    assert whole.generation is not None
    assert alone.generation is not None
    totals, speed, generation = whole.totals, whole.speed, alone.generation
    drawn = sum(len(own) for task in alone.tasks if isinstance(task, GenerationScores) for own in task.drawn)
    peer_total = sum(own["seconds"] for own in peer.values())
    return {
        "benchmark": "bench_gauntlet",
        "model": Path(FLAGS.model).name,
        "limit": FLAGS.limit,
        "tasks": len(whole.tasks),
        "examples": sum(len(task.examples) for task in whole.tasks),
        "seconds": seconds,
        "apart_seconds": apart(whole),
        "requests": totals.requests,
        "plain_tokens": totals.plain_tokens,
        "unique_tokens": totals.unique_tokens,
        "padding_percent": 100 * (speed.batch_tokens / max(1, totals.unique_tokens) - 1),
        "scoring_programs": speed.programs,
        "generation_programs": whole.generation.programs,
        "scoring_device_seconds": speed.device_seconds,
        "generation": {
            "seconds": texts,
            "device_seconds": generation.device_seconds,
            "drawn": drawn,
            "slot_steps": generation.slot_steps,
            "busy_percent": 100 * generation.busy_steps / max(1, generation.slot_steps),
            "prompt_tokens": generation.prompt_tokens,
            "prefilled_tokens": generation.prefilled_tokens,
        },
        "peer": {"batch": FLAGS.peer_batch, "seconds": peer_total, "of_task": peer},
        "generation_ratio": peer_total / texts,
    }


if __name__ == "__main__":
    run(main)
