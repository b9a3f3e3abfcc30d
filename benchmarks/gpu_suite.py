"""One NVIDIA GPU, one command, no downloads: is the engine right there, and how fast?

    python benchmarks/gpu_suite.py --data_dir=BUNDLE            # under nine minutes
    python benchmarks/gpu_suite.py --data_dir=BUNDLE --smoke    # a tiny shape, on CPU too

The weights are random, in the shape of GPT-2 124M, saved by torch so that both sides read the same file; the tokenizer is
trained on the items' own text.  First the bare bfloat16 and float32 matmul rates, then every scored token against torch in
float32 at highest precision, then tokens a second in bfloat16: this engine, torch one example a forward (the plain way),
and torch in large batches sorted by length.  Torch runs stop after a time budget and are scaled by the places they ran,
padding included.  Without torch the parity is left out, without torch's CUDA the comparison, and the output says so.
Exit status 1 where float32 disagrees.  The last line is JSON.
"""

import importlib.util
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")  # jax takes memory at once; torch needs the other half

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from agreement import compare, score_each
from common import (
    Engine,
    EngineRun,
    PlainTorch,
    Source,
    Work,
    environment,
    every,
    joined,
    prepare,
    read_tasks,
    run,
    say,
    seconds_of,
    split,
    train_tokenizer,
)

from miron_jax.forward import Model
from miron_jax.model.decoder import abstract, random_params
from miron_jax.model.hf_config import from_hf_config
from miron_jax.run import load_model
from miron_jax.token_requests import Requests

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("limit", 200, "Examples of each task where speed is measured.", lower_bound=1)
flags.DEFINE_integer("parity_limit", 2, "Examples of each task compared with torch.", lower_bound=1)
flags.DEFINE_float("torch_seconds", 60, "Time budget of each torch run.")
flags.DEFINE_bool("smoke", False, "A tiny shape and two examples a task, on whatever device there is.")

TOLERANCE = 1e-4  # nats a scored token, float32 at highest precision
BATCH_PLACES = 16384  # torch in batches: float32 logits of this many places take 3.3 GB


class Shape(NamedTuple):
    """Sizes of a GPT-2."""

    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int


GPT2_124M = Shape(50257, 1024, 768, 12, 12)
TINY = Shape(509, 512, 48, 2, 4)


def main(_: Sequence[str]) -> None:
    start = time.perf_counter()
    shape = TINY if FLAGS.smoke else GPT2_124M
    if FLAGS.smoke:
        FLAGS.limit = 2
    elif jax.devices()[0].platform != "gpu":
        sys.exit(f"no NVIDIA GPU: jax sees {jax.devices()[0].device_kind}; --smoke runs a tiny shape on any device")
    has_torch = importlib.util.find_spec("torch") is not None
    peaks = {dtype: matmul_peak(dtype) for dtype in ("bfloat16", "float32")}
    say("bare matmul: " + ", ".join(f"{dtype} {rate / 1e12:.2f} TFLOP/s" for dtype, rate in peaks.items()))
    with tempfile.TemporaryDirectory() as folder:
        sources = read_tasks(FLAGS.data_dir, [])
        tokenizer = train_tokenizer(list(texts(sources)), shape.vocab_size, Path(folder))
        save_model(Path(folder), shape, has_torch)
        works = [prepare(source, FLAGS.limit, tokenizer, shape.n_positions) for source in sources]
        parity = measure_parity(folder, works, has_torch)
        speed = measure_speed(folder, works, peaks["bfloat16"])
        plain = measure_torch(folder, works, has_torch)
    report(peaks, parity, speed, plain, time.perf_counter() - start)


def texts(sources: Sequence[Source]) -> list[str]:
    """The text of the examples, to train a tokenizer on."""
    examples = [example for source in sources for example in source.examples[:2000]]
    return [text for example in examples for text in (*example.contexts, *example.continuations)]


def save_model(folder: Path, shape: Shape, has_torch: bool) -> None:
    """config.json and, with torch, weights: seeded, and with norms and biases away from their neutral values."""
    from transformers import GPT2Config

    config = GPT2Config(**shape._asdict())
    config.save_pretrained(folder)
    if not has_torch:
        return
    import torch
    from transformers import GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)


def load(folder: str, dtype: str) -> Model:
    """The saved weights; seeded random ones of the same shape where torch could save none."""
    if (Path(folder) / "model.safetensors").is_file():
        return load_model(Path(folder), dtype)
    config = from_hf_config(Path(folder))
    return Model(config, abstract(config, jnp.dtype(dtype))[0], random_params(config, jnp.dtype(dtype), seed=0))


def matmul_peak(dtype: str) -> float:
    """FLOPs a second of one large square product; float32 at the highest precision, as the engine uses it."""
    size, products = (256, 4) if FLAGS.smoke else (8192, 20)
    x, y = (jax.random.normal(jax.random.key(i), (size, size), jnp.float32).astype(dtype) for i in range(2))
    product = jax.jit(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32).astype(a.dtype))

    def run() -> None:
        jax.block_until_ready([product(x, y) for _ in range(products)])

    run()
    return 2.0 * size**3 * products / min(seconds_of(run)[0] for _ in range(3))


def measure_parity(folder: str, works: Sequence[Work], has_torch: bool) -> dict[str, Any]:
    """Every scored token of a few examples against torch, float32 on both sides, one option a forward."""
    if not has_torch:
        say("torch is not installed: no parity")
        return {"skipped": "torch is not installed", "wrong": [], "close": [], "largest": None}
    step = max(1, FLAGS.limit // FLAGS.parity_limit)
    few = [every(work, step) for work in works]
    scored = Engine(load(folder, "float32"), max_lengths=2).score(iter([joined(few)]))
    torch = PlainTorch.load(folder, "float32", torch_device())
    torch.torch.set_float32_matmul_precision("highest")
    found = [
        compare(work, ours, score_each(torch, work), TOLERANCE)
        for work, ours in zip(few, split(few, scored.answers), strict=True)
    ]
    nats = np.concatenate([one.nats for one in found])
    beyond = [
        f"{w.task.name}, request {r}: beyond tolerance" for w, one in zip(few, found, strict=True) for r in one.beyond
    ]
    numbers = {
        "torch_device": torch.device,
        "scored_tokens": len(nats),
        "tolerance": TOLERANCE,
        "largest": float(nats.max(initial=0)),
        "close": [line for one in found for line in one.close],
        "wrong": [line for one in found for line in one.wrong] + beyond,
    }
    say(
        f"parity: {len(nats)} scored tokens, largest difference {numbers['largest']:.1e} nats, {len(numbers['wrong'])} wrong"
    )
    return numbers


def measure_speed(folder: str, works: Sequence[Work], peak: float) -> dict[str, Any]:
    """This engine in bfloat16, compiled apart; median of three."""
    engine = Engine(load(folder, "bfloat16"), max_lengths=4)
    requests = joined(works)
    engine.compile(requests)
    timed: list[tuple[float, EngineRun]] = []
    for _ in range(3):
        timed.append(seconds_of(lambda: engine.score(iter([requests]))))
        say(f"miron_jax: {timed[-1][0]:.2f} s, of which on the device {timed[-1][1].device_seconds:.2f} s")
    totals = timed[-1][1].totals
    seconds = statistics.median(seconds for seconds, _ in timed)
    device = statistics.median(run.device_seconds for _, run in timed)
    return {
        "seconds": seconds,
        "device_seconds": device,
        "compile_seconds": engine.speed.compile_seconds,
        "programs": engine.speed.programs,
        "requests": totals.requests,
        "plain_tokens": totals.plain_tokens,
        "unique_tokens": totals.unique_tokens,
        "padded_tokens": totals.padded_tokens,
        "unique_tokens_per_second": totals.unique_tokens / device,
        "plain_tokens_per_second": totals.plain_tokens / seconds,
        "share_of_matmul_peak": totals.useful_flops / device / peak,
    }


def measure_torch(folder: str, works: Sequence[Work], has_torch: bool) -> dict[str, Any]:
    """Torch in bfloat16 on the same GPU, one example a forward and in large batches."""
    if not has_torch or (torch_device() == "cpu" and not FLAGS.smoke):
        say("torch with CUDA is not installed: nothing to compare the speed with")
        return {"skipped": "torch with CUDA is not installed"}
    torch = PlainTorch.load(folder, "bfloat16", torch_device())
    requests = joined(works)
    return {
        "one_example_a_forward": run_batches(torch, requests, example_batches(works)),
        "sorted_batches": run_batches(torch, requests, sorted_batches(requests)),
    }


def example_batches(works: Sequence[Work]) -> list[list[int]]:
    """Requests of each example, by their place in the joined works."""
    before = np.cumsum([0, *(len(work.requests) for work in works)])
    return [
        list(range(int(start + a), int(start + b)))
        for work, start in zip(works, before, strict=False)
        for a, b in itertools.pairwise(work.first)
    ]


def sorted_batches(requests: Requests) -> list[list[int]]:
    """Longest first, as many rows together as BATCH_PLACES allows."""
    length = np.diff(requests.offsets)
    batches: list[list[int]] = [[]]
    for r in np.argsort(-length, kind="stable").tolist():
        if batches[-1] and (len(batches[-1]) + 1) * length[batches[-1][0]] > BATCH_PLACES:
            batches.append([])
        batches[-1].append(r)
    return batches


def run_batches(torch: PlainTorch, requests: Requests, batches: list[list[int]]) -> dict[str, Any]:
    """Run batches in a shuffled order until the time budget is spent; scale to all of them by places."""
    places = [len(batch) * max(len(requests.tokens(r)) for r in batch) for batch in batches]
    order = np.random.default_rng(0).permutation(len(batches)).tolist()

    def score(b: int) -> None:
        torch.batch([requests.tokens(r) for r in batches[b]], [int(requests.span_start[r]) for r in batches[b]])

    for b in order[:3]:
        score(b)
    ran, start = 0, time.perf_counter()
    for b in order:
        score(b)
        ran += places[b]
        if time.perf_counter() - start > FLAGS.torch_seconds:
            break
    measured = time.perf_counter() - start
    plain_tokens = len(requests.token_ids) - len(requests)
    seconds = measured * sum(places) / ran
    say(f"torch: {seconds:.2f} s for {sum(places)} places in {len(batches)} batches, from {measured:.2f} s for {ran}")
    return {
        "seconds": seconds,
        "measured_seconds": measured,
        "places": sum(places),
        "plain_tokens_per_second": plain_tokens / seconds,
    }


def report(
    peaks: dict[str, float], parity: dict[str, Any], speed: dict[str, Any], plain: dict[str, Any], seconds: float
) -> None:
    print(f"\n{'bfloat16':32}{'seconds':>10}{'plain tokens/s':>18}{'times ours':>12}")
    print(f"{'miron_jax':32}{speed['seconds']:10.2f}{speed['plain_tokens_per_second']:18.0f}")
    for name in (name for name in plain if name != "skipped"):
        own = plain[name]
        own["ratio"] = own["seconds"] / speed["seconds"]
        label = "torch, " + name.replace("_", " ")
        print(f"{label:32}{own['seconds']:10.2f}{own['plain_tokens_per_second']:18.0f}{own['ratio']:11.2f}x")
    print(
        f"{speed['unique_tokens']} unique of {speed['plain_tokens']} plain tokens, "
        f"{speed['share_of_matmul_peak']:.1%} of the matmul peak; "
        f"{speed['programs']} programs compiled apart in {speed['compile_seconds']:.0f} s; all in {seconds:.0f} s"
    )
    for line in parity["wrong"]:
        print(f"WRONG: {line}")
    numbers = {
        "benchmark": "gpu_suite",
        "shape": (TINY if FLAGS.smoke else GPT2_124M)._asdict(),
        "limit": FLAGS.limit,
        "matmul_flops_per_second": peaks,
        "parity": parity,
        "miron_jax": speed,
        "torch": plain,
        "seconds": seconds,
        "environment": environment(),
    }
    print(json.dumps(numbers, allow_nan=False))
    if parity["wrong"]:
        sys.exit(1)


def torch_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    run(main)
