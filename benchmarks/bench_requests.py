"""How fast are frozen request sets and texts on this engine, compared with a runner that pads every
row to 1,024 tokens?

    python benchmarks/bench_requests.py --model=FOLDER --data_dir=BUNDLE      # a quarter of an hour on two cores

The set has the form of OLMoBaseEval-Easy's: of each task of CORE and of the Gauntlet, at most 51,
the gold continuations of some questions behind the same five questions with their answers (the
first five that have no more than MOST_CHARS characters).  The peer does as Marin's runner: task by
task, rows padded to a multiple of 1,024 tokens, the last one repeated until a batch is full, the
loss of every position; in torch, float32, on the first requests of some tasks; its time is scaled
by its rows.  The text: the questions of the set, a document a task, in windows of 1,024 tokens.
Seconds are end to end without loading and compilation.  The last line is JSON.
"""  # noqa: E501

import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags
from common import environment, run, say
from peers import PlainTorch

from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.records import Outcome
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.run_result import finished_run
from miron_jax.evaluation.run_tasks import RunTasks
from miron_jax.evaluation.task_kinds.interface import RequestTexts
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
from miron_jax.results.document import run_json
from miron_jax.tokens.records import Requests

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("limit", 8, "Questions of each task.", lower_bound=1)
flags.DEFINE_integer("peer_requests", 1, "Requests of each task that the peer runs.", lower_bound=1)
flags.DEFINE_integer("peer_tasks", 51, "Tasks that the peer runs.", lower_bound=1)

MOST_TASKS, SHOTS, PADDED, PEER_BATCH = 51, 5, 1024, 4
MOST_CHARS = 800  # of a question with its answer
SUITES = ("core", "gauntlet")


class Timed(NamedTuple):
    outcome: Outcome
    seconds: float  # end to end, without loading and compilation


def write_set(folder: Path) -> int:
    """requests.jsonl with gold of each question behind five others; returns the number of tasks."""
    bundle = tuple((suite, FLAGS.data_dir) for suite in SUITES)
    config = RunConfig(
        FLAGS.model, SUITES, data_dir=bundle, limit=SHOTS + 4 * FLAGS.limit, allow_changed_data=True
    )
    inputs = find_inputs(config, fetch=False)
    sources = [
        source._replace(
            task=replace(source.task, profile=replace(source.task.profile, num_fewshot=0))
        )
        for source in inputs.sources
    ]
    tasks = RunTasks.of(
        config, inputs._replace(sources=sources), architecture_of(config, find_model(config))
    )
    lines: list[str] = []
    num_tasks = 0
    for kind in tasks.kinds:
        by_doc: dict[int, list[RequestTexts]] = {}
        for pair in kind.pairs():
            by_doc.setdefault(pair.doc_id, []).append(pair)
        gold = [pairs[pairs[0].gold or 0] for pairs in by_doc.values()]
        gold = [pair for pair in gold if len(pair.context) + len(pair.continuation) <= MOST_CHARS]
        if len(gold) <= SHOTS or num_tasks == MOST_TASKS:
            continue
        num_tasks += 1
        shots = "".join(f"{pair.context}{pair.continuation}\n\n" for pair in gold[:SHOTS])
        for pair in gold[SHOTS : SHOTS + FLAGS.limit]:
            request = {
                "task": kind.source.task.name,
                "doc_id": pair.doc_id,
                "context": shots + pair.context,
            }
            lines.append(json.dumps({**request, "continuation": pair.continuation}) + "\n")
    (folder / "requests.jsonl").write_text("".join(lines))
    return num_tasks


def write_texts(folder: Path, requests: Path) -> None:
    texts: dict[str, list[str]] = {}
    for line in (requests / "requests.jsonl").read_text().splitlines():
        row = json.loads(line)
        texts.setdefault(row["task"], []).append(
            row["context"].rpartition("\n\n")[2] + row["continuation"]
        )
    for name, each in texts.items():
        (folder / f"{name.replace('/', '_')}.txt").write_text("\n\n".join(each))


def timed(config: RunConfig) -> Timed:
    start = time.perf_counter()
    outcome = evaluate(config, find_inputs(config))
    spent = time.perf_counter() - start
    return Timed(outcome, spent - outcome.load_seconds - outcome.speed.compile_seconds)


def tokenized(config: RunConfig) -> list[Requests]:
    """The requests of each task, as the engine has them."""
    tasks = RunTasks.of(config, find_inputs(config), architecture_of(config, find_model(config)))
    return [requests for kind in tasks.kinds for _, requests in kind.pieces()]


class Peer(NamedTuple):
    seconds: float  # scaled to all requests
    rows: int  # that were run
    largest: float  # bits a byte, by which a request differs from the engine's


def run_peer(torch: PlainTorch, tasks: Sequence[Requests], outcome: Outcome) -> Peer:
    """Rows of each task, padded; every batch has PEER_BATCH rows."""
    seconds, ran, all_rows, largest = 0.0, 0, 0, 0.0
    every = len(tasks) // min(len(tasks), FLAGS.peer_tasks)
    torch.batch([np.zeros(PADDED, np.int32)] * PEER_BATCH, [1] * PEER_BATCH)  # warm-up
    for index, requests in enumerate(tasks):
        all_rows += -(-len(requests) // PEER_BATCH) * PEER_BATCH
        if index % every:
            continue
        chosen = [(ids, start) for ids, start in requests][: FLAGS.peer_requests]
        batch = (chosen * PEER_BATCH)[:PEER_BATCH]
        length = -(-max(len(ids) for ids, _ in batch) // PADDED) * PADDED
        padded = [np.concatenate([ids, np.zeros(length - len(ids), np.int32)]) for ids, _ in batch]
        start = time.perf_counter()
        answers = torch.batch(padded, [first for _, first in batch])
        seconds += time.perf_counter() - start
        ran += PEER_BATCH
        for r, ((ids, first), example) in enumerate(
            zip(chosen, outcome.tasks[index].example_scores, strict=False)
        ):
            assert example is not None
            logprob = float(answers.logprob[r][: len(ids) - first].sum(dtype=np.float64))
            text = outcome.inputs.sources[index].examples[r].continuations[0]
            bits = -logprob / math.log(2) / len(text.encode())
            largest = max(largest, abs(bits - example.metrics["bits_per_byte"]))
    return Peer(seconds * all_rows / ran, ran, largest)


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        requests, texts = Path(folder) / "requests", Path(folder) / "texts"
        requests.mkdir()
        texts.mkdir()
        num_tasks = write_set(requests)
        of_set = RunConfig(FLAGS.model, ("requests",), requests=str(requests))
        ours, tasks = timed(of_set), tokenized(of_set)
        num_requests = sum(map(len, tasks))
        say(f"{num_tasks} tasks, {num_requests} requests: miron_jax {ours.seconds:.1f} s")
        peer = run_peer(PlainTorch.load(FLAGS.model, "float32"), tasks, ours.outcome)
        say(
            f"  padded {peer.seconds:.1f} s, scaled from {peer.rows} rows: "
            f"{peer.seconds / ours.seconds:.1f}x"
        )
        write_texts(texts, requests)
        of_text = RunConfig(
            FLAGS.model, ("text",), data_dir=(("text", str(texts)),), max_length=1024
        )
        text = timed(of_text)
        results = run_json(finished_run(of_text, text.outcome).result)
        outside = text.seconds - text.outcome.check.seconds
        document = {
            "benchmark": "bench_requests", "model": Path(FLAGS.model).name, "tasks": num_tasks,
            "requests": num_requests,
            "mean_tokens": sum(len(each.token_ids) for each in tasks) / num_requests,
            "unique_tokens": ours.outcome.totals.unique_tokens, "seconds": ours.seconds,
            "self_check_seconds": ours.outcome.check.seconds, "padded_seconds": peer.seconds,
            "padded_rows_run": peer.rows,
            "times_faster": peer.seconds / ours.seconds, "largest_bits_per_byte": peer.largest,
            "text": {
                "tokens": sum(task["tokens"] for task in results["tasks"].values()),
                "seconds": outside, "device_seconds": text.outcome.speed.device_seconds,
                "tokens_per_second": results["speed"]["tokens_per_second"],
                "beside_the_device": outside / text.outcome.speed.device_seconds - 1,
            },
            "environment": environment(),
        }  # fmt: skip
    print(json.dumps(document, allow_nan=False))


if __name__ == "__main__":
    run(main)
