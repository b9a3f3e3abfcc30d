"""What do more processes gain, what does the journal cost, and how evenly would a pod be loaded?

    python benchmarks/bench_scaling.py --model=FOLDER --data_dir=EVAL_BUNDLE

processes  `miron-jax eval` on CORE at --limit: one process pinned to one core against two processes
           pinned to a core each, taking turns, --repeats times, without a cache of compiled
           programs (of several processes only the first one would have it).  Medians of tokens a
           second of scoring (seconds of the slowest process, from its first batch to its last,
           without compilation) and of the whole command without loading, compilation and
           self-check.  Journal share: seconds that one process spent on its journal (waiting,
           fingerprints, and the thread that writes) over its wall seconds.
plan       `miron-jax plan`'s function on --requests requests of 50 tokens (questions with four
           choices), in its own process: seconds from text to plan, and the peak of its resident
           memory.
pod        the plan of full CORE, as far as its files are there, dealt out to --devices devices,
           eight a host.  Rows of a
           device; the busiest host over the mean, by predicted cost of its rows and by that of its
           batches with their empty slots; the latter over an even share of all rows' cost; bytes
           that go to a host's devices.

Nothing else should be running.  The last line is JSON.
"""

import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags
from common import environment, run, say

from miron_jax.config import RunConfig
from miron_jax.engine.batches import Shape, chunk_of, rows_by_length
from miron_jax.engine.forward import ACCELERATOR_TOKENS
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.parts import parts_of, requests_of, survey
from miron_jax.evaluation.run_tasks import length_limit, summarize_plan
from miron_jax.evaluation.task_kinds.interface import Setup
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.files.readers import JsonObject
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
from miron_jax.model.costs import cost_model
from miron_jax.planning.request_batches import Totals, plan_request_batches
from miron_jax.runtime.dealing import deal
from miron_jax.tokens.token_bytes import TokenBytes

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("limit", 8, "Examples of each task, for processes.")
flags.DEFINE_integer("repeats", 2, "Runs of one and of two processes.")
flags.DEFINE_integer("requests", 1_000_000, "Requests to tokenize and plan.")
flags.DEFINE_integer("devices", 1024, "Devices of the pod, eight a host.")
flags.DEFINE_list("parts", ["processes", "plan", "pod"], "What to measure.")
flags.DEFINE_string("plan_file", None, "Internal: tokenize and plan this file.")
DEVICES_A_HOST, CHOICES = 8, 4


def main(_: Sequence[str]) -> None:
    if FLAGS.plan_file:
        print(json.dumps(planned(Path(FLAGS.plan_file))))
        return
    measures = {"processes": processes, "plan": plan, "pod": pod}
    document = {name: measures[name]() for name in FLAGS.parts}
    print(
        json.dumps(
            {"benchmark": "bench_scaling", **document, "environment": environment()},
            allow_nan=False,
        )
    )


# Processes


def processes() -> JsonObject:
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[int, list[dict[str, float]]] = {1: [], 2: []}
        for repeat in range(FLAGS.repeats):
            for count, laps in runs.items():
                laps.append(evaluated(Path(folder) / f"{count}-{repeat}", count))
                say(f"{count} processes: {laps[-1]}")
    median = {
        count: {name: statistics.median(lap[name] for lap in laps) for name in laps[0]}
        for count, laps in runs.items()
    }
    return {
        "one": median[1],
        "two": median[2],
        "scoring": median[2]["tokens_per_second"] / (2 * median[1]["tokens_per_second"]),
        "whole": median[1]["rest_seconds"] / (2 * median[2]["rest_seconds"]),
        "journal_share": median[1]["journal_seconds"] / median[1]["wall_seconds"],
        "runs": runs,
    }


def evaluated(output: Path, count: int) -> dict[str, float]:
    """One run of `count` processes, each pinned to a core."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "miron_jax.cli",
        "eval",
        f"--model={FLAGS.model}",
        "--tasks=core",
    ]
    command += [
        f"--data_dir={FLAGS.data_dir}",
        f"--limit={FLAGS.limit}",
        f"--output={output}",
        "--compilation_cache=",
    ]
    more = [f"--coordinator=127.0.0.1:{port}", f"--num_processes={count}"] if count > 1 else []
    cores = sorted(os.sched_getaffinity(0))
    started = [
        subprocess.Popen(
            ["taskset", "-c", str(cores[i]), *command, *more,
                *([f"--process_id={i}"] if count > 1 else [])],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for i in range(count)
    ]  # fmt: skip
    for process in started:
        _, errors = process.communicate()
        assert process.returncode == 0, errors[-3000:]
    results = json.loads((output / "results.json").read_text())
    speed = results["speed"]
    excluded = speed["load_seconds"] + speed["compile_seconds"] + results["self_check"]["seconds"]
    return {
        "tokens_per_second": speed["tokens_per_second"],
        "rest_seconds": speed["wall_seconds"] - excluded,
        "wall_seconds": speed["wall_seconds"],
        "journal_seconds": speed["journal_seconds"],
    }


# A million requests


def plan() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "eval_data" / "commonsense_reasoning" / "copa.jsonl"
        path.parent.mkdir(parents=True)
        write_requests(path, FLAGS.requests)
        command = [
            sys.executable,
            __file__,
            f"--model={FLAGS.model}",
            f"--data_dir={folder}",
            f"--plan_file={path}",
        ]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


def write_requests(path: Path, count: int) -> None:
    """Questions with four choices, of the bundle's words, about fifty tokens each."""
    words = (
        (Path(FLAGS.data_dir) / "eval_data" / "language_understanding" / "lambada_openai.jsonl")
        .read_text()
        .split()
    )
    words = [word for word in words if word.isalpha()]
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count // CHOICES):
            question = " ".join(rng.choices(words, k=41))
            choices = [" ".join(rng.choices(words, k=5)) for _ in range(CHOICES)]
            file.write(
                json.dumps({"query": question, "choices": choices, "gold": rng.randrange(CHOICES)})
                + "\n"
            )


def planned(path: Path) -> dict[str, float]:
    """Seconds and memory of `miron-jax plan` once the file is read."""
    config = RunConfig(
        FLAGS.model, ("core/copa",), data_dir=(("", str(path.parents[2])),), allow_changed_data=True
    )
    inputs = find_inputs(config)
    start = time.perf_counter()
    totals = summarize_plan(config, inputs)
    return {
        "requests": totals.requests,
        "tokens_a_request": totals.plain_tokens / totals.requests + 1,
        "seconds": time.perf_counter() - start,
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


# A pod


def pod() -> JsonObject:
    config = RunConfig(FLAGS.model, ("core",), data_dir=(("", FLAGS.data_dir),))
    inputs = find_inputs(config)
    architecture = architecture_of(config, find_model(config, weights=False))
    model, tokenizer = architecture.config, architecture.tokenizer
    cost, limit, table = (
        cost_model(model),
        length_limit(config, model),
        TokenBytes(tokenizer, model.vocab_size),
    )
    setup = Setup(config, tokenizer, table, limit)
    kinds = [kind_of(source.task)(source, setup) for source in inputs.sources]
    surveyed = survey(kinds, cost)
    lengths = surveyed.lengths
    parts = parts_of(kinds, surveyed.order)
    hosts, totals, needed, sizes = FLAGS.devices // DEVICES_A_HOST, Totals(), 0.0, dict[int, int]()
    load, rows, sent, spent = (np.zeros(hosts) for _ in range(4))
    requests = (requests_of(part, model.vocab_size) for part in parts)
    for part in plan_request_batches(requests, cost, totals, lengths):
        row_length = part.plan.row_length
        each = cost.row(row_length)
        sizes = rows_by_length(row_length, FLAGS.devices, ACCELERATOR_TOKENS, part.more) | sizes
        needed += float(each.sum()) / FLAGS.devices
        for host, lists in enumerate(deal(row_length, each, hosts, DEVICES_A_HOST, sizes, load)):
            for batch in lists:
                length = int(row_length[batch[0]])
                rows[host] += len(batch)
                spent[host] += sizes[length] * float(each[batch[0]])
                sent[host] += (
                    4
                    * DEVICES_A_HOST
                    * Shape(sizes[length], length, chunk_of(model.vocab_size)).packed_size
                )
    return {
        "devices": FLAGS.devices,
        "tasks": len(inputs.sources),
        "unique_tokens": totals.unique_tokens,
        "rows_a_device": [float(rows.min()) / DEVICES_A_HOST, float(rows.max()) / DEVICES_A_HOST],
        "busiest_over_mean_of_rows": float(load.max() / load.mean()) - 1,
        "busiest_over_mean_of_batches": float(spent.max() / spent.mean()) - 1,
        "busiest_over_an_even_share": float(spent.max()) / needed - 1,
        "bytes_to_a_host": [float(sent.min()), float(sent.max())],
    }


if __name__ == "__main__":
    run(main)
