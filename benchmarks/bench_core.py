"""How fast is CORE here, beside two peers, on the same items, weights and dtype, in one process?

    python benchmarks/bench_core.py --model=FOLDER --data_dir=BUNDLE            # hours on two cores
    python benchmarks/bench_core.py --model=FOLDER --data_dir=BUNDLE --long_limit=240

Two workloads: 10-shot arc_challenge, and every CORE task whose file is there at --limit 50.  Three engines, float32:

    miron_jax   all items as one forest
    plain       torch, one example a forward (its options one padded batch), full logits, as nanochat does
    lm-eval     its own Hugging Face backend, handed the same token ids, at the best of batch sizes 1, 4 and 16

Seconds are end to end: rendering, tokenization, planning, forward passes, metrics; compilation and model loading apart.
miron_jax's self-check is off, as the peers have none.  The peers run every tenth example and their forward time is scaled
by the places that they would run over all of them, padding included, at the full set's own batches; rendering and
tokenization of all items count for them as measured here, with our tokenization.  Medians of the repeats, engines taking
turns.  The bare-matmul rate is the same weights multiplied alone, at the shapes of the batches that were run, in the same
process.  The last line is JSON.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from common import (
    Answers,
    Engine,
    EngineRun,
    LmEval,
    PlainTorch,
    Source,
    Work,
    bare_matmuls,
    environment,
    every,
    joined,
    layer_kernels,
    padded_by_example,
    padded_by_length,
    predictions,
    prepare,
    read_tasks,
    run,
    say,
    seconds_of,
    split,
    weight_bytes,
)

from miron_jax.engine.batches import Shape
from miron_jax.engine.model import Model, load_model
from miron_jax.metrics.choices import mean_losses
from miron_jax.model.hf_config import from_hf_config
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_list("tasks", [], "CORE labels of the wide workload; all whose files are there when empty.")
flags.DEFINE_string("long_task", "arc_challenge", "CORE label of the long workload.")
flags.DEFINE_list("workloads", ["long", "wide"], "Which to run: long (one task, many shots), wide (every task).")
flags.DEFINE_integer("limit", 50, "Examples of each task in the wide workload.", lower_bound=1)
flags.DEFINE_integer("long_limit", None, "Examples of the long workload; all when absent.", lower_bound=1)
flags.DEFINE_integer("repeats", 3, "Timed runs of each engine; medians are reported.", lower_bound=1)
flags.DEFINE_integer("peer_every", 10, "Peers run every n-th example.", lower_bound=1)
flags.DEFINE_bool("fast", False, "A smoke run: two examples a task, one repeat.")

BATCH_SIZES = (1, 4, 16)
CLOSE = 2e-4  # nats a token; options closer than this may be chosen differently (twice the parity tolerance)


class Workload(NamedTuple):
    name: str
    sources: list[Source]
    limit: int | None
    works: list[Work]  # every item: what miron_jax runs
    sample: list[Work]  # what the peers run


class Peer(NamedTuple):
    """One peer on one workload."""

    forward_seconds: float  # scaled to all items
    measured_seconds: float  # on the sample
    places: int  # tokens it would run over all items, padding included
    answers: list[Answers]  # to the sample


def main(_: Sequence[str]) -> None:
    if FLAGS.fast:
        FLAGS.limit, FLAGS.long_limit, FLAGS.repeats, FLAGS.peer_every = 2, 3, 1, 2
    tokenizer = load_tokenizer(FLAGS.model)
    peak = peak_memory_of_eval() if "wide" in FLAGS.workloads else None
    tasks = {"long": [FLAGS.long_task], "wide": FLAGS.tasks}
    names = {"long": FLAGS.long_task, "wide": f"CORE, limit {FLAGS.limit}"}
    limits = {"long": FLAGS.long_limit, "wide": FLAGS.limit}
    workloads = [
        make_workload(names[kind], read_tasks(FLAGS.data_dir, tasks[kind]), limits[kind], tokenizer)
        for kind in FLAGS.workloads
    ]
    model = load_model(Path(FLAGS.model), "float32")
    torch = PlainTorch.load(FLAGS.model, "float32")
    lm_eval = LmEval.around(torch, tokenizer)
    if lm_eval is None:
        print("lm-eval is not installed (pip install -e .[bench]): its column is missing")
    numbers = [measure(workload, model, torch, lm_eval, tokenizer) for workload in workloads]
    for one in numbers:
        print_table(one)
    memory = None
    if peak is not None:
        weights = weight_bytes(model)
        memory = {"peak_bytes": peak, "weight_bytes": weights, "bound_bytes": 2 * weights + 10**9}
        print(memory_line(memory))
    document = {
        "benchmark": "bench_core",
        "model": Path(FLAGS.model).name,
        "dtype": "float32",
        "repeats": FLAGS.repeats,
        "peer_every": FLAGS.peer_every,
        "data": {s.task.name: s.state for workload in workloads for s in workload.sources},
        "workloads": numbers,
        "memory": memory,
        "environment": environment(),
    }
    print(json.dumps(document, allow_nan=False))
    if any(one["wrong"] for one in numbers):
        sys.exit(1)


def memory_line(memory: dict[str, Any]) -> str:
    return (
        f"peak host memory {memory['peak_bytes'] / 1e9:.2f} GB in `miron-jax eval`, weights "
        f"{memory['weight_bytes'] / 1e9:.2f} GB, bound (2 x weights + 1 GB) {memory['bound_bytes'] / 1e9:.2f} GB"
    )


def make_workload(name: str, sources: list[Source], limit: int | None, tokenizer: Any) -> Workload:
    works = tokenized(sources, limit, tokenizer)
    return Workload(name, sources, limit, works, [every(work, FLAGS.peer_every) for work in works])


def tokenized(sources: list[Source], limit: int | None, tokenizer: Any) -> list[Work]:
    """CORE has no length limit of its own; learned positions set one."""
    learned = from_hf_config(Path(FLAGS.model)).num_positions
    return [prepare(source, limit, tokenizer, learned) for source in sources]


def measure(
    workload: Workload, model: Model, torch: PlainTorch, lm_eval: LmEval | None, tokenizer: Any
) -> dict[str, Any]:
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
        say(f"  plain {plain[-1].forward_seconds:.1f} s, scaled from {plain[-1].measured_seconds:.1f} s")
        if lm_eval and batch_size:
            harness.append(run_lm_eval(lm_eval, workload, batch_size))
            say(f"  lm-eval {harness[-1].forward_seconds:.1f} s, scaled from {harness[-1].measured_seconds:.1f} s")
        rates.append(matmul_rates(model, torch, runs[-1].engine.batches))
    # Medians on both sides: the rates are measured between the runs, so what slows the machine slows both.
    median = Rates(statistics.median(rate.xla for rate in rates), statistics.median(rate.torch for rate in rates))
    numbers = summarize(workload, runs, plain, harness, statistics.median(host), median)
    numbers["all_matmul_rates_xla"] = [rate.xla for rate in rates]
    numbers["compile_seconds"] = engine.speed.compile_seconds
    numbers["programs"] = engine.speed.programs
    numbers["lm_eval"]["batch_size"] = batch_size
    return numbers


class Timed(NamedTuple):
    seconds: float  # end to end, compilation apart
    engine: EngineRun
    chosen: list[list[int | None]]  # by work


def run_engine(engine: Engine, workload: Workload, tokenizer: Any) -> Timed:
    works: list[Work] = []

    def parts() -> Iterator[Requests]:
        works.extend(tokenized(workload.sources, workload.limit, tokenizer))
        yield joined(works)

    compiled, start = engine.speed.compile_seconds, time.perf_counter()
    scored = engine.score(parts())
    chosen = [predictions(work, own) for work, own in zip(works, split(works, scored.answers), strict=True)]
    seconds = time.perf_counter() - start - (engine.speed.compile_seconds - compiled)
    return Timed(seconds, scored, chosen)


def run_plain(torch: PlainTorch, workload: Workload) -> Peer:
    seconds, answers = seconds_of(lambda: torch.by_example(workload.sample))
    places = padded_by_example(workload.works)
    return Peer(seconds * places / padded_by_example(workload.sample), seconds, places, answers)


def best_batch_size(lm_eval: LmEval, workload: Workload) -> int:
    """The fastest on a third of the sample, in seconds a place of the full set."""
    pilot = Workload(workload.name, [], None, workload.works, [every(work, 3) for work in workload.sample])
    warm_up = [every(work, len(work.prompts)) for work in workload.sample[:1]]
    run_lm_eval(lm_eval, Workload("warm-up", [], None, warm_up, warm_up), BATCH_SIZES[-1])
    seconds = {size: run_lm_eval(lm_eval, pilot, size).forward_seconds for size in BATCH_SIZES}
    say("  lm-eval by batch size: " + ", ".join(f"{size}: {s:.1f} s" for size, s in seconds.items()))
    return min(seconds, key=seconds.__getitem__)


def run_lm_eval(lm_eval: LmEval, workload: Workload, batch_size: int) -> Peer:
    requests = joined(workload.sample)
    seconds, answers = seconds_of(lambda: lm_eval.score(requests, batch_size))
    places = padded_by_length(joined(workload.works), batch_size)
    scaled = seconds * places / padded_by_length(requests, batch_size)
    return Peer(scaled, seconds, places, split(workload.sample, answers))


class Rates(NamedTuple):
    """FLOPs a second of the layers' weight matmuls alone."""

    xla: float
    torch: float


def matmul_rates(model: Model, torch: PlainTorch, batches: Counter[Shape]) -> Rates:
    """Both libraries at the slots per batch that ran, each shape weighted by its number of batches."""
    kernels = layer_kernels(model)
    count: Counter[int] = Counter()
    for shape, number in batches.items():
        count[shape.slots] += number
    flops = {places: 2.0 * places * sum(kernel.size for kernel in kernels) for places in count}
    total = sum(flops[places] * number for places, number in count.items())
    ours = {places: median_of(bare_matmuls(kernels, places)) for places in count}
    theirs = {places: torch_seconds(torch, kernels, places) for places in count}
    return Rates(
        total / sum(ours[places] * number for places, number in count.items()),
        total / sum(theirs[places] * number for places, number in count.items()),
    )


def torch_seconds(torch: PlainTorch, kernels: list[np.ndarray], places: int) -> float:
    """The same products by torch's linear, which keeps a weight as (out, in)."""
    t = torch.torch
    layers = [[t.tensor(kernel[i].T.copy()) for kernel in kernels] for i in range(kernels[0].shape[0])]
    inputs = {kernel.shape[1]: t.ones((places, kernel.shape[1])) for kernel in kernels}

    def run() -> None:
        with t.inference_mode():
            for layer in layers:
                for weight in layer:
                    t.nn.functional.linear(inputs[weight.shape[1]], weight)

    return median_of(run)


def median_of(action: Callable[[], Any]) -> float:
    """Median of three after a warm-up."""
    action()
    return statistics.median(seconds_of(action)[0] for _ in range(3))


def summarize(
    workload: Workload, runs: list[Timed], plain: list[Peer], harness: list[Peer], host: float, rates: Rates
) -> dict[str, Any]:
    median = statistics.median
    totals = runs[-1].engine.totals
    seconds = median(run.seconds for run in runs)
    device = median(run.engine.device_seconds for run in runs)
    peers = {"plain": plain, "lm_eval": harness}
    end_to_end = {name: host + median(p.forward_seconds for p in found) for name, found in peers.items() if found}
    places = {name: found[-1].places for name, found in peers.items() if found}
    differing = {
        name: choices_that_differ(workload, runs[-1].chosen, found[-1].answers, plain[-1].answers)
        for name, found in peers.items()
        if found
    }
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
                "all_forward_seconds": [p.forward_seconds for p in found],
                "measured_seconds": [p.measured_seconds for p in found],
                "places": places.get(name),
                "ratio": end_to_end[name] / seconds if found else None,
                "places_ratio": places[name] / totals.unique_tokens if found else None,
            }
            for name, found in peers.items()
        },
        "useful_flops": totals.useful_flops,
        "useful_flops_per_second": totals.useful_flops / device,
        "matmul_rate_xla": rates.xla,
        "matmul_rate_torch": rates.torch,
        "share_of_matmul_rate": totals.useful_flops / device / rates.xla,
        "close": [line for lines in differing.values() for far, line in lines if far < CLOSE],
        "wrong": [line for lines in differing.values() for far, line in lines if far >= CLOSE],
    }


def choices_that_differ(
    workload: Workload, chosen: list[list[int | None]], peer: list[Answers], plain: list[Answers]
) -> list[tuple[float, str]]:
    """(how far apart the plain way holds the two, in nats a token; what differs) over the peers' examples."""
    found = []
    for work, ours, answers, scores in zip(workload.sample, chosen, peer, plain, strict=True):
        theirs = predictions(work, answers)
        for i, (here, there) in enumerate(zip(ours[:: FLAGS.peer_every], theirs, strict=True)):
            if here != there:
                far = _apart(scores.logprob[work.first[i] : work.first[i + 1]], here, there, work.prompts[i].gold)
                found.append((far, f"{work.task.name}, example {work.prompts[i].id}: {here} here, {there} there"))
    return found


def _apart(logprobs: list[np.ndarray], here: int | None, there: int | None, gold: int | None) -> float:
    if gold is None or here is None or there is None:
        return float("inf")  # a greedy flag carries no distance here: parity.py, which keeps the margins, is the judge
    losses = mean_losses(logprobs)
    return abs(float(losses[here]) - float(losses[there]))


def print_table(one: dict[str, Any]) -> None:
    print(
        f"\n{one['workload']}: {one['examples']} examples, {one['requests']} requests, {one['unique_tokens']} unique of "
        f"{one['plain_tokens']} plain tokens; peers ran {one['peer_examples']} examples"
    )
    print(f"{'':12}{'seconds':>10}{'examples/s':>12}{'places':>12}{'times ours':>12}{'places ratio':>14}")
    for name in ("miron_jax", "plain", "lm_eval"):
        own = one[name]
        if own["seconds"] is None:
            print(f"{name:12}{'not run':>10}")
            continue
        places = own.get("places", one["padded_tokens"])
        ratios = f"{own['ratio']:11.2f}x{own['places_ratio']:13.2f}x" if "ratio" in own else ""
        print(f"{name:12}{own['seconds']:10.1f}{one['examples'] / own['seconds']:12.2f}{places:12}{ratios}")
    print(
        f"matmul rate: XLA {one['matmul_rate_xla'] / 1e9:.0f} GFLOP/s, torch {one['matmul_rate_torch'] / 1e9:.0f}; useful "
        f"{one['useful_flops_per_second'] / 1e9:.0f} GFLOP/s, {one['share_of_matmul_rate']:.1%} of the XLA matmul rate"
    )
    print(
        f"compiled apart: {one['programs']} programs, {one['compile_seconds']:.1f} s; "
        f"lm-eval at batch size {one['lm_eval']['batch_size']}"
    )
    for title, lines in (("differ, but too close to call", one["close"]), ("CHOSEN DIFFERENTLY", one["wrong"])):
        print("\n".join([f"{title}: {len(lines)}", *(f"  {line}" for line in lines)]))


def peak_memory_of_eval() -> int:
    """Bytes resident at most in a `miron-jax eval` of the wide workload, self-check included.

    Called first: a child's record begins with what its parent held.
    """
    with tempfile.TemporaryDirectory() as folder:
        tasks = ",".join(f"core/{label}" for label in FLAGS.tasks) or "core"
        what = [f"--model={FLAGS.model}", f"--tasks={tasks}", f"--data_dir={FLAGS.data_dir}", f"--limit={FLAGS.limit}"]
        how = [f"--output={folder}/results", "--dtype=float32", "--allow_changed_data"]
        done = subprocess.run(
            [sys.executable, "-m", "miron_jax.cli", "eval", *what, *how], capture_output=True, text=True, check=False
        )
    if done.returncode:
        sys.exit(f"miron-jax eval of the wide workload failed:\n{done.stderr}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


if __name__ == "__main__":
    run(main)
