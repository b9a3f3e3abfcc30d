"""How fast is CORE, compared with two peers, on the same items, weights and dtype, in one process?

    python benchmarks/bench_core.py --model=FOLDER --data_dir=BUNDLE            # hours on two cores
    python benchmarks/bench_core.py --model=FOLDER --data_dir=BUNDLE --long_limit=240

Two workloads: 10-shot arc_challenge, and every CORE task whose file is there at --limit 50.  Three
engines, float32:

    miron_jax   all items as one forest
    plain       torch, one example a forward (its choices one padded batch), full logits, as nanochat does
    lm-eval     its own Hugging Face backend on the same token ids, at the best of batch sizes 1, 4 and 16

Seconds are end to end: rendering, tokenization, planning, forward passes, metrics, without
compilation and model loading. miron_jax's self-check is off, as the peers have none.  The peers run
every tenth example.  Their forward time is scaled by the slots that they would run over all
examples, padding included, at the full set's own batches; this project's rendering and tokenization
of all items is added.  Medians of the repeats, engines taking turns.  The bare-matmul rate is the
same weights multiplied alone, at the shapes of the batches that were run, in the same process.  The
last line is JSON.
"""  # noqa: E501

import json
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from absl import flags
from agreement import loss_gap, say_lists
from common import (
    Answers,
    Engine,
    EngineRun,
    Work,
    bare_matmuls,
    environment,
    every,
    joined,
    layer_kernels,
    median_seconds,
    predictions,
    prepare,
    read_tasks,
    run,
    run_eval,
    say,
    seconds_of,
    split,
)
from peers import LmEval, PlainTorch, padded_by_example, padded_by_length

from miron_jax.engine.batches import Shape
from miron_jax.engine.model import Model, load_model
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.files.readers import JsonObject
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_list(
    "tasks", [], "CORE labels of the wide workload; all whose files are there when empty."
)
flags.DEFINE_string("long_task", "arc_challenge", "CORE label of the long workload.")
flags.DEFINE_list(
    "workloads", ["long", "wide"], "Which to run: long (one task, many shots), wide (every task)."
)
flags.DEFINE_integer("limit", 50, "Examples of each task in the wide workload.", lower_bound=1)
flags.DEFINE_integer(
    "long_limit", None, "Examples of the long workload; all when absent.", lower_bound=1
)
flags.DEFINE_integer(
    "repeats", 3, "Timed runs of each engine; medians are reported.", lower_bound=1
)
flags.DEFINE_integer("peer_every", 10, "Peers run every n-th example.", lower_bound=1)
flags.DEFINE_bool("fast", False, "A smoke run: two examples a task, one repeat.")

BATCH_SIZES = (1, 4, 16)
# nats a token; of choices closer than this either may be chosen (twice the parity tolerance)
CLOSE = 2e-4


class Workload(NamedTuple):
    name: str
    sources: list[LoadedTask]
    limit: int | None
    works: list[Work]  # every item: what miron_jax runs
    sample: list[Work]  # what the peers run


class Peer(NamedTuple):
    """One peer on one workload."""

    forward_seconds: float  # scaled to all items
    measured_seconds: float  # on the sample
    num_slots: int  # that it would run over all items, padding included
    answers: list[Answers]  # to the sample


def main(_: Sequence[str]) -> None:
    if FLAGS.fast:
        FLAGS.limit, FLAGS.long_limit, FLAGS.repeats, FLAGS.peer_every = 2, 3, 1, 2
    tokenizer = load_tokenizer(FLAGS.model)
    peak = peak_memory_of_eval() if "wide" in FLAGS.workloads else None
    arguments: dict[str, tuple[str, list[str], int | None]] = {
        "long": (FLAGS.long_task, [FLAGS.long_task], FLAGS.long_limit),
        "wide": (f"CORE, limit {FLAGS.limit}", FLAGS.tasks, FLAGS.limit),
    }
    workloads = [make_workload(*arguments[kind], tokenizer) for kind in FLAGS.workloads]
    model = load_model(Path(FLAGS.model), "float32")
    torch = PlainTorch.load(FLAGS.model, "float32")
    lm_eval = LmEval.around(torch, tokenizer)
    if lm_eval is None:
        print("lm-eval is not installed (pip install -e .[bench]): its column is missing")
    numbers = [measure(workload, model, torch, lm_eval, tokenizer) for workload in workloads]
    for workload_numbers in numbers:
        print_table(workload_numbers)
    memory = None
    if peak is not None:
        weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model.state))
        memory = {"peak_bytes": peak, "weight_bytes": weights, "bound_bytes": 2 * weights + 10**9}
        print(
            f"peak host memory {peak / 1e9:.2f} GB in `miron-jax eval`, weights "
            f"{weights / 1e9:.2f} GB, bound (2 x weights + 1 GB) {memory['bound_bytes'] / 1e9:.2f} "
            "GB"
        )
    document = {
        "benchmark": "bench_core",
        "model": Path(FLAGS.model).name,
        "dtype": "float32",
        "repeats": FLAGS.repeats,
        "peer_every": FLAGS.peer_every,
        "data": {s.task.name: s.data.state for workload in workloads for s in workload.sources},
        "workloads": numbers,
        "memory": memory,
        "environment": environment(),
    }
    print(json.dumps(document, allow_nan=False))
    if any(workload_numbers["wrong"] for workload_numbers in numbers):
        sys.exit(1)


def make_workload(
    name: str, labels: list[str], limit: int | None, tokenizer: Tokenizer
) -> Workload:
    sources = read_tasks(FLAGS.data_dir, labels)
    works = tokenized(sources, limit, tokenizer)
    return Workload(name, sources, limit, works, [every(work, FLAGS.peer_every) for work in works])


def tokenized(sources: list[LoadedTask], limit: int | None, tokenizer: Tokenizer) -> list[Work]:
    """Prepare every task.  CORE sets no length limit; a model with learned positions does."""
    learned = from_hf_config(Path(FLAGS.model)).num_positions
    return [prepare(source, limit, tokenizer, learned) for source in sources]


def measure(
    workload: Workload,
    model: Model,
    torch: PlainTorch,
    lm_eval: LmEval | None,
    tokenizer: Tokenizer,
) -> JsonObject:
    """All engines on one workload, taking turns."""
    say(f"{workload.name}: {sum(len(work.prompts) for work in workload.works)} examples")
    engine = Engine(model)
    engine.compile(joined(workload.works))
    torch.by_example([every(work, len(work.prompts)) for work in workload.sample[:1]])  # warm-up
    batch_size = best_batch_size(lm_eval, workload) if lm_eval else None
    host, runs, plain, harness, rates = [], [], [], [], []
    for repeat in range(FLAGS.repeats):
        host.append(seconds_of(lambda: tokenized(workload.sources, workload.limit, tokenizer))[0])
        runs.append(run_engine(engine, workload, tokenizer))
        say(f"  miron_jax {runs[-1].seconds:.1f} s (run {repeat + 1})")
        plain.append(run_plain(torch, workload))
        say(
            f"  plain {plain[-1].forward_seconds:.1f} s, scaled from "
            f"{plain[-1].measured_seconds:.1f} s"
        )
        if lm_eval and batch_size:
            harness.append(run_lm_eval(lm_eval, workload, batch_size))
            say(
                f"  lm-eval {harness[-1].forward_seconds:.1f} s, scaled from "
                f"{harness[-1].measured_seconds:.1f} s"
            )
        rates.append(matmul_rates(model, torch, runs[-1].engine.batches))
    # The rates are measured between the runs, so what slows the machine slows both; medians of both
    # are compared.
    median = Rates(
        statistics.median(rate.xla for rate in rates),
        statistics.median(rate.torch for rate in rates),
    )
    numbers = summarize(workload, runs, plain, harness, statistics.median(host), median)
    numbers["all_matmul_rates_xla"] = [rate.xla for rate in rates]
    numbers["compile_seconds"] = engine.speed.compile_seconds
    numbers["programs"] = engine.speed.programs
    numbers["lm_eval"]["batch_size"] = batch_size
    return numbers


class Timed(NamedTuple):
    seconds: float  # end to end, without compilation
    engine: EngineRun
    chosen: list[list[int | None]]  # by work


def run_engine(engine: Engine, workload: Workload, tokenizer: Tokenizer) -> Timed:
    works: list[Work] = []

    def parts() -> Iterator[Requests]:
        works.extend(tokenized(workload.sources, workload.limit, tokenizer))
        yield joined(works)

    compiled, start = engine.speed.compile_seconds, time.perf_counter()
    scored = engine.score(parts())
    chosen = [
        predictions(work, answers)
        for work, answers in zip(works, split(works, scored.answers), strict=True)
    ]
    seconds = time.perf_counter() - start - (engine.speed.compile_seconds - compiled)
    return Timed(seconds, scored, chosen)


def run_plain(torch: PlainTorch, workload: Workload) -> Peer:
    seconds, answers = seconds_of(lambda: torch.by_example(workload.sample))
    slots = padded_by_example(workload.works)
    return Peer(seconds * slots / padded_by_example(workload.sample), seconds, slots, answers)


def best_batch_size(lm_eval: LmEval, workload: Workload) -> int:
    """The fastest on a third of the sample, in seconds a slot of the full set."""
    pilot = Workload(
        workload.name, [], None, workload.works, [every(work, 3) for work in workload.sample]
    )
    warm_up = [every(work, len(work.prompts)) for work in workload.sample[:1]]
    run_lm_eval(lm_eval, Workload("warm-up", [], None, warm_up, warm_up), BATCH_SIZES[-1])
    seconds = {size: run_lm_eval(lm_eval, pilot, size).forward_seconds for size in BATCH_SIZES}
    say(
        "  lm-eval by batch size: " + ", ".join(f"{size}: {s:.1f} s" for size, s in seconds.items())
    )
    return min(seconds, key=seconds.__getitem__)


def run_lm_eval(lm_eval: LmEval, workload: Workload, batch_size: int) -> Peer:
    requests = joined(workload.sample)
    seconds, answers = seconds_of(lambda: lm_eval.score(requests, batch_size))
    slots = padded_by_length(joined(workload.works), batch_size)
    scaled = seconds * slots / padded_by_length(requests, batch_size)
    return Peer(scaled, seconds, slots, split(workload.sample, answers))


class Rates(NamedTuple):
    """FLOPs a second of the layers' weight matmuls alone."""

    xla: float
    torch: float


def matmul_rates(model: Model, torch: PlainTorch, batches: Counter[Shape]) -> Rates:
    """Both libraries at the slots of the batches that were run, each shape weighted by how often it
    was."""
    kernels = layer_kernels(model)
    count: Counter[int] = Counter()
    for shape, number in batches.items():
        count[shape.slots] += number
    total = sum(2.0 * slots * number for slots, number in count.items()) * sum(
        kernel.size for kernel in kernels
    )
    return Rates(
        total
        / sum(
            median_seconds(bare_matmuls(kernels, slots), 3) * number
            for slots, number in count.items()
        ),
        total
        / sum(torch_seconds(torch, kernels, slots) * number for slots, number in count.items()),
    )


def torch_seconds(torch: PlainTorch, kernels: list[np.ndarray], slots: int) -> float:
    """The same products by torch's linear, which keeps a weight as (out, in)."""
    t = torch.torch
    layers = [
        [t.tensor(kernel[i].T.copy()) for kernel in kernels] for i in range(kernels[0].shape[0])
    ]
    inputs = {kernel.shape[1]: t.ones((slots, kernel.shape[1])) for kernel in kernels}

    def run() -> None:
        with t.inference_mode():
            for layer in layers:
                for weight in layer:
                    t.nn.functional.linear(inputs[weight.shape[1]], weight)

    return median_seconds(run, 3)


def summarize(
    workload: Workload,
    runs: list[Timed],
    plain: list[Peer],
    harness: list[Peer],
    host: float,
    rates: Rates,
) -> JsonObject:
    median = statistics.median
    totals = runs[-1].engine.totals
    seconds = median(run.seconds for run in runs)
    device = median(run.engine.device_seconds for run in runs)
    peers = {"plain": plain, "lm_eval": harness}
    end_to_end = {
        name: host + median(p.forward_seconds for p in laps) for name, laps in peers.items() if laps
    }
    slots = {name: laps[-1].num_slots for name, laps in peers.items() if laps}
    differing = [
        line
        for laps in peers.values()
        if laps
        for line in choices_that_differ(
            workload, runs[-1].chosen, laps[-1].answers, plain[-1].answers
        )
    ]
    return {
        "workload": workload.name,
        "examples": sum(len(work.prompts) for work in workload.works),
        "peer_examples": sum(len(work.prompts) for work in workload.sample),
        "requests": totals.requests,
        "plain_tokens": totals.plain_tokens,
        "unique_tokens": totals.unique_tokens,
        "padded_tokens": totals.padded_tokens,
        "row_lengths": {str(length): rows for length, rows in sorted(totals.lengths.items())},
        "host_seconds": host,
        "miron_jax": {
            "seconds": seconds,
            "all_seconds": [run.seconds for run in runs],
            "device_seconds": device,
            "unique_tokens_per_second": totals.unique_tokens / device,
        },
        **{
            name: {
                "seconds": end_to_end.get(name),
                "all_forward_seconds": [p.forward_seconds for p in laps],
                "measured_seconds": [p.measured_seconds for p in laps],
                "places": slots.get(name),
                "ratio": end_to_end[name] / seconds if laps else None,
                "places_ratio": slots[name] / totals.unique_tokens if laps else None,
            }
            for name, laps in peers.items()
        },
        "useful_flops": totals.useful_flops,
        "useful_flops_per_second": totals.useful_flops / device,
        "matmul_rate_xla": rates.xla,
        "matmul_rate_torch": rates.torch,
        "share_of_matmul_rate": totals.useful_flops / device / rates.xla,
        "close": [line for gap, line in differing if gap < CLOSE],
        "wrong": [line for gap, line in differing if gap >= CLOSE],
    }


def choices_that_differ(
    workload: Workload, chosen: list[list[int | None]], peer: list[Answers], plain: list[Answers]
) -> list[tuple[float, str]]:
    """(nats a token between the two choices in plain torch, what differs) over the peers'
    examples."""
    differing = []
    for work, ours, answers, scores in zip(workload.sample, chosen, peer, plain, strict=True):
        theirs = predictions(work, answers)
        for i, (our_choice, their_choice) in enumerate(
            zip(ours[:: FLAGS.peer_every], theirs, strict=True)
        ):
            if our_choice == their_choice:
                continue
            # Greedy flags (no gold choice) have no margin here; parity.py keeps the margins and
            # judges those.
            logprobs = scores.logprob[work.first[i] : work.first[i + 1]]
            no_gold = work.prompts[i].gold is None
            gap = float("inf") if no_gold else loss_gap(logprobs, our_choice, their_choice)
            label = f"{work.task.name}, example {work.prompts[i].id}"
            differing.append((gap, f"{label}: {our_choice} here, {their_choice} there"))
    return differing


def print_table(numbers: JsonObject) -> None:
    counts = f"{numbers['unique_tokens']} unique of {numbers['plain_tokens']} plain tokens"
    print(
        f"\n{numbers['workload']}: {numbers['examples']} examples, {numbers['requests']} requests, "
        f"{counts}; peers ran {numbers['peer_examples']} examples"
    )
    print(
        f"{'':12}{'seconds':>10}{'examples/s':>12}{'slots':>12}{'times ours':>12}{'slots ratio':>14}"  # noqa: E501
    )
    for name in ("miron_jax", "plain", "lm_eval"):
        engine = numbers[name]
        if engine["seconds"] is None:
            print(f"{name:12}{'not run':>10}")
            continue
        slots = engine.get("places", numbers["padded_tokens"])
        ratios = (
            f"{engine['ratio']:11.2f}x{engine['places_ratio']:13.2f}x" if "ratio" in engine else ""
        )
        print(
            f"{name:12}{engine['seconds']:10.1f}{numbers['examples'] / engine['seconds']:12.2f}{slots:12}{ratios}"  # noqa: E501
        )
    xla, torch, useful = (
        numbers[name] / 1e9
        for name in ("matmul_rate_xla", "matmul_rate_torch", "useful_flops_per_second")
    )
    print(
        f"matmul rate: XLA {xla:.0f} GFLOP/s, torch {torch:.0f}; useful {useful:.0f} GFLOP/s, "
        f"{numbers['share_of_matmul_rate']:.1%} of the XLA matmul rate"
    )
    print(
        f"compiled: {numbers['programs']} programs, {numbers['compile_seconds']:.1f} s; "
        f"lm-eval at batch size {numbers['lm_eval']['batch_size']}"
    )
    say_lists(
        {"differ, but too close to call": numbers["close"], "CHOSEN DIFFERENTLY": numbers["wrong"]}
    )


def peak_memory_of_eval() -> int:
    """Peak resident bytes of a `miron-jax eval` of the wide workload, self-check included.

    It is called first: a child's record begins with the memory of its parent.
    """
    with tempfile.TemporaryDirectory() as folder:
        tasks = ",".join(f"core/{label}" for label in FLAGS.tasks) or "core"
        flags = [
            f"--model={FLAGS.model}",
            f"--tasks={tasks}",
            f"--data_dir={FLAGS.data_dir}",
            f"--limit={FLAGS.limit}",
        ]
        run_eval(folder, *flags, "--dtype=float32")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


if __name__ == "__main__":
    run(main)
