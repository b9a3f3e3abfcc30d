"""How fast is the planner on one core, how much does it pad, and does its memory grow with the
tokens?

    taskset -c 0 python benchmarks/bench_plan.py
    python benchmarks/bench_plan.py --suite=core --data_dir=FOLDER --model=MODEL [--helpers=1]
    python benchmarks/bench_plan.py --suite=core --data_dir=FOLDER --model=MODEL --hosts=8

Synthetic requests of three kinds: many-shot questions with four choices, short questions with two,
and continuations of one token.  Tokens a second count every token of every request (the plain
tokens); bytes a token are NumPy's and Python's peak by tracemalloc, in a separate run, at one and
at four times the size.

`--suite` plans all local tasks of a suite with a model's tokenizer, as a run does: once cold, which
keeps the plan in an empty folder, and once more from there, each in a process by itself.  Processor
seconds are those of all its threads, with the reading of the tokenizer; a peak is the resident
memory of one process.  With `--helpers` so many help with the cold plan.  With `--hosts` each
process of a run of so many plans its part and reads the others', one process at a time on one core;
none takes another's part.  The last line is JSON.
"""

import gc
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from absl import app, flags
from child import in_a_child

sys.path.append(str(Path(__file__).parents[1]))  # tests/ has a coordinator

from miron_jax.config import RunConfig
from miron_jax.evaluation.helpers import Helped
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run_tasks import RunTasks, summarize_plan
from miron_jax.files.kept import Job, KeptArrays, packed
from miron_jax.files.store import Store
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import CostModel, Plan
from miron_jax.planning.request_batches import Totals
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.processors import NEW_OBJECTS
from miron_jax.runtime.shared_arrays import FOLDER, SharedArrays
from miron_jax.tokens.records import Requests
from tests.support.coordinator import Coordinator

T = TypeVar("T")

SUITE = flags.DEFINE_string("suite", None, "plan this suite, not synthetic requests")
DATA_DIR = flags.DEFINE_multi_string("data_dir", [], "[SUITE=]FOLDER with its data")
HELPERS = flags.DEFINE_integer("helpers", 0, "processes beside the one that plans a suite cold")
HOSTS = flags.DEFINE_integer("hosts", 0, "measure each process of a run of so many")
MODEL = flags.DEFINE_string("model", "demo", "whose tokenizer and shapes count")
SMOLLM2 = CostModel(flops_per_token=2.1e8, flops_per_pair=2.1e5, flops_per_program=3e11)


class Kind(NamedTuple):
    questions: int
    context: int  # tokens, give or take a fifth
    choices: int
    answer: int  # tokens at most


KINDS = {
    "many shots": Kind(2000, 520, 4, 12),
    "short": Kind(20000, 20, 2, 6),
    "one token": Kind(20000, 90, 1, 1),
}


def make_requests(kind: Kind, times: int = 1) -> Requests:
    """Requests with random tokens: nothing is shared but the BOS and each question."""
    rng = np.random.default_rng(0)
    sequences: list[np.ndarray] = []
    starts: list[int] = []
    for length in rng.integers(
        kind.context * 4 // 5, kind.context * 6 // 5 + 1, kind.questions * times
    ):
        context = np.append(0, rng.integers(1, 49152, length)).astype(np.int32)
        for size in rng.integers(1, kind.answer + 1, kind.choices):
            sequences.append(
                np.concatenate([context, rng.integers(1, 49152, size).astype(np.int32)])
            )
            starts.append(len(context))
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in sequences])]).astype(np.int64)
    no_flags = np.zeros(len(starts), bool)
    return Requests(
        np.concatenate(sequences), offsets, np.asarray(starts, np.int32), no_flags, no_flags
    )


def seconds_of(requests: Requests, repeats: int = 5) -> tuple[float, Plan]:
    plan, seconds = make_plan(requests, SMOLLM2), []
    for _ in range(repeats):
        start = time.perf_counter()
        plan = make_plan(requests, SMOLLM2)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), plan


def bytes_a_token(requests: Requests) -> float:
    tracemalloc.start()
    make_plan(requests, SMOLLM2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / len(requests.token_ids)


def measure(kind: Kind) -> dict[str, float]:
    requests, larger = make_requests(kind), make_requests(kind, 4)
    seconds, plan = seconds_of(requests)
    return {
        "tokens": len(requests.token_ids),
        "tokens_per_second": len(requests.token_ids) / seconds,
        "padding": plan.padded_tokens / plan.unique_tokens - 1,
        "plain_over_unique": (len(requests.token_ids) - len(requests)) / plan.unique_tokens,
        "bytes_per_token": bytes_a_token(requests),
        "bytes_per_token_4x": bytes_a_token(larger),
    }


def measure_suite(config: RunConfig, folder: Path, num_helpers: int) -> dict[str, float]:
    """Plans a suite with what the folder keeps, and keeps what is new."""
    gc.set_threshold(NEW_OBJECTS)
    helped = Helped(config, KeptArrays(folder, print), num_helpers, print)
    inputs = find_inputs(config, runs=False)._replace(kept=helped)
    helped.begin()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    totals = summarize_plan(config, inputs)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    beside = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "processor_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "helpers_processor_seconds": beside.ru_utime + beside.ru_stime,
        "helpers_peak_mib": beside.ru_maxrss / 1024,
        "seconds": seconds,
        "peak_mib": after.ru_maxrss / 1024,
        "plain_tokens": totals.plain_tokens,
        "unique_tokens": totals.unique_tokens,
        "rows": totals.rows,
    }


class Alone(Hosts):
    """One process: it takes its own part, or with index 0 and `takes_all` everything."""

    takes_all = False

    def take(self, queue: str, lists: Sequence[Sequence[T]]) -> Iterator[T]:
        for index, items in enumerate(lists):
            if self.takes_all or index == self.index:
                yield from items


def plan_as_host(
    config: RunConfig, index: int, count: int, folder: Path, takes_all: bool
) -> dict[str, Any]:
    """Plans as this process of `--hosts`; the others' part lies in the folder already."""
    gc.set_threshold(NEW_OBJECTS)
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    published = folder / "published.json"
    others = json.loads(published.read_text()) if published.exists() else {}
    coordinator = Coordinator()
    coordinator.values = others
    hosts = Alone(index, count, coordinator, in_rounds=True)
    hosts.takes_all = takes_all
    kept = KeptArrays(folder / f"kept of {index}", print)
    shared = SharedArrays(kept, Store(str(folder)), hosts)
    inputs = find_inputs(config, runs=False)
    architecture = architecture_of(config, find_model(config, weights=False))
    before = time.process_time()
    if not takes_all:  # its part is not there
        shared._do = lambda job: _make(shared, job)
    tasks = RunTasks.of(config, inputs, architecture, shared)
    totals = Totals()
    for _ in tasks.request_batches(totals):
        pass
    wait(shared._working)  # its part lies there already, so it did not wait for it
    seconds = time.process_time() - before
    if takes_all:
        published.write_text(json.dumps(others))
    return {"processor_seconds": seconds, "unique_tokens": totals.unique_tokens}


def _make(shared: SharedArrays, job: Job) -> None:
    arrays = job.make()
    shared.put(job.key, arrays)
    shared._store.put(f"{FOLDER}/{job.key}.npz", packed(job.key, arrays))


def main_hosts(config: RunConfig) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = list[dict[str, Any]]()
        for index, takes_all in ((0, True), *((index, False) for index in range(HOSTS.value))):
            rows.append(
                in_a_child(3600, plan_as_host, config, index, HOSTS.value, Path(folder), takes_all)
            )
            if "failed" in rows[-1]:
                raise SystemExit(rows[-1]["failed"])
            shutil.rmtree(Path(folder) / f"kept of {index}", ignore_errors=True)
    everything, *each = (row["processor_seconds"] for row in rows)
    print(
        f"everything {everything:.1f} s of processor time, each of {HOSTS.value} processes:", *each
    )
    print(json.dumps({"benchmark": "bench_plan", "everything": everything, "hosts": each}))


def main_suite(suite: str) -> None:
    parts = (folder.rpartition("=") for folder in DATA_DIR.value)
    data_dirs = tuple((of_suite, folder) for of_suite, _, folder in parts)
    config = RunConfig(model=MODEL.value, tasks=tuple(suite.split(",")), data_dir=data_dirs)
    if HOSTS.value:
        main_hosts(config)
        return
    rows = {}
    with tempfile.TemporaryDirectory() as kept:
        for name in ("cold", "kept"):
            num_helpers = HELPERS.value if name == "cold" else 0
            rows[name] = in_a_child(3600, measure_suite, config, Path(kept), num_helpers)
            if "failed" in rows[name]:
                raise SystemExit(f"{name}: {rows[name]['failed']}")
    print(f"{suite:8} {'processor s':>12} {'s':>7} {'peak MiB':>9} {'tokens':>12} {'unique':>12}")
    for name, row in rows.items():
        print(
            f"{name:8} {row['processor_seconds']:12.1f} {row['seconds']:7.1f} "
            f"{row['peak_mib']:9.0f} {row['plain_tokens']:12,} {row['unique_tokens']:12,}"
        )
    print(json.dumps({"benchmark": "bench_plan", "suite": suite, **rows}))


def main(_: object) -> None:
    if SUITE.value:
        main_suite(SUITE.value)
        return
    rows = {name: measure(kind) for name, kind in KINDS.items()}
    print(
        f"{'requests':12} {'tokens':>9} {'Mtokens/s':>9} {'padding':>8} {'shared':>7} "
        f"{'bytes/token':>12} {'at 4x':>6}"
    )
    for name, row in rows.items():
        print(
            f"{name:12} {row['tokens']:9.0f} {row['tokens_per_second'] / 1e6:9.1f} "
            f"{100 * row['padding']:7.1f}% {row['plain_over_unique']:6.2f}x "
            f"{row['bytes_per_token']:12.0f} {row['bytes_per_token_4x']:6.0f}"
        )
    print(json.dumps({"benchmark": "bench_plan", "kinds": rows}))


if __name__ == "__main__":
    app.run(main)
