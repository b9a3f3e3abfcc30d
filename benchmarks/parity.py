"""Is every number the same as torch's?  Real weights, real CORE items, float32 at highest matmul
precision.

    python benchmarks/parity.py --model=FOLDER --data_dir=BUNDLE --limit=4

This engine scores all items as one forest; torch runs one choice a forward, full logits,
log_softmax in float32, without a cache.  Compared: the log-probability of every scored token, every
greedy flag, every chosen choice.  Two answers whose scores are closer than twice the tolerance may
differ and are listed.

A request with a token beyond the tolerance is scored again by torch in float64.  If this engine is
within the tolerance of that, and no further from it than torch's float32 is, torch's rounding is at
fault: the request is listed and does not fail the run.  Exit status 1 if anything else differs.
The last line is JSON.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags
from agreement import Differences, Verdicts, compare, say_verdicts, score_each, score_one
from common import Engine, Work, environment, joined, prepare, read_tasks, run, say, split
from peers import PlainTorch

from miron_jax.engine.model import load_model
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_list(
    "tasks", [], "CORE labels, such as arc_easy; all whose files are there when empty."
)
flags.DEFINE_integer("limit", 5, "Examples of each task and number of shots.", lower_bound=1)
flags.DEFINE_list(
    "shots", ["native", "0"], "Few-shot examples: native (the suite's own count) or a number."
)
flags.DEFINE_float("tolerance", 1e-4, "Nats a scored token may differ by.")


def main(_: Sequence[str]) -> None:
    start = time.perf_counter()
    works = prepare_works()
    engine = Engine(load_model(Path(FLAGS.model), "float32"))
    scored = engine.score(iter([joined(works)]))
    engine_seconds = time.perf_counter() - start
    torch = PlainTorch.load(FLAGS.model, "float32")
    differences, beyond = [], []
    for work, ours in zip(works, split(works, scored.answers), strict=True):
        begin = time.perf_counter()
        theirs = score_each(torch, work)
        differences.append(compare(work, ours, theirs, FLAGS.tolerance))
        say(row(work, differences[-1], time.perf_counter() - begin))
        beyond += [(work, r, ours.logprob[r], theirs.logprob[r]) for r in differences[-1].beyond]
    report(works, differences, judge(torch, beyond), engine_seconds, time.perf_counter() - start)


def prepare_works() -> list[Work]:
    tokenizer = load_tokenizer(FLAGS.model)
    return [
        prepare(source, FLAGS.limit, tokenizer, None, shots)
        for source in read_tasks(FLAGS.data_dir, FLAGS.tasks)
        for shots in shot_counts(source)
    ]


def shot_counts(source: LoadedTask) -> list[int]:
    """Distinct counts of --shots; native is the suite's own."""
    native = source.task.profile.num_fewshot
    return list(dict.fromkeys(native if shots == "native" else int(shots) for shots in FLAGS.shots))


def judge(
    torch: PlainTorch, disputed: Sequence[tuple[Work, int, np.ndarray, np.ndarray]]
) -> Verdicts:
    """Score every disputed request by torch in float64, to which the model is converted in
    place."""
    verdicts = Verdicts([], [])
    if disputed:
        torch.model.double()
    for work, r, ours, theirs in disputed:
        truth, _, _ = score_one(torch, work.requests.tokens(r), int(work.requests.span_start[r]))
        our_error, their_error = (
            float(np.abs(ours - truth).max()),
            float(np.abs(theirs - truth).max()),
        )
        rounding = our_error <= min(FLAGS.tolerance, their_error)
        errors = f"{our_error:.1e} nats from float64 here, {their_error:.1e} in torch float32"
        (verdicts.torch_rounding if rounding else verdicts.wrong).append(
            f"{work.task.name}, request {r}: {errors}"
        )
    return verdicts


def row(work: Work, differences: Differences, seconds: float) -> str:
    shots = work.task.profile.num_fewshot
    nats = differences.nats
    return (
        f"{work.task.name:40} {shots:2} shots {len(work.prompts):4} examples {len(nats):6} scored "
        f"tokens  max {nats.max(initial=0):.1e}  torch {seconds:6.1f} s"
    )


def report(
    works: Sequence[Work],
    differences: Sequence[Differences],
    verdicts: Verdicts,
    engine_seconds: float,
    seconds: float,
) -> None:
    nats = np.concatenate([one.nats for one in differences])
    close = [line for one in differences for line in one.close]
    wrong = [line for one in differences for line in one.wrong] + verdicts.wrong
    title = f"differ, but are closer than {2 * FLAGS.tolerance:g} nats"
    say_verdicts(title, close, verdicts._replace(wrong=wrong))
    quantiles = (
        {str(q): float(np.quantile(nats, q)) for q in (0.5, 0.99, 0.999)} if len(nats) else {}
    )
    print(
        f"{len(nats)} scored tokens: largest difference {nats.max(initial=0):.2e} nats (tolerance "
        f"{FLAGS.tolerance:g}), median {quantiles.get('0.5', 0):.1e}, 99.9 % below "
        f"{quantiles.get('0.999', 0):.1e}; {sum(len(work.prompts) for work in works)} examples, "
        f"{len(wrong)} wrong"
    )
    numbers = {
        "benchmark": "parity",
        "model": Path(FLAGS.model).name,
        "limit": FLAGS.limit,
        "shots": FLAGS.shots,
        "tasks": sorted({work.task.name for work in works}),
        "examples": sum(len(work.prompts) for work in works),
        "scored_tokens": len(nats),
        "tolerance": FLAGS.tolerance,
        "largest": float(nats.max(initial=0)),
        "quantiles": quantiles,
        "close": close,
        "torch_rounding": verdicts.torch_rounding,
        "wrong": wrong,
        "engine_seconds": round(engine_seconds, 1),
        "seconds": round(seconds, 1),
        "environment": environment(),
    }
    print(json.dumps(numbers, allow_nan=False))
    if wrong or not len(nats):
        sys.exit(1)


if __name__ == "__main__":
    run(main)
