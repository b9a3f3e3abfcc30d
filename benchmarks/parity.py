"""Is every number the same as torch's?  Real weights, real CORE items, float32 at highest matmul precision.

    python benchmarks/parity.py --model=FOLDER --data_dir=BUNDLE --limit=4

This engine scores all items as one forest; torch runs one option a forward, full logits, log_softmax in float32, and
keeps nothing between options.  Compared: the log-probability of every scored token, every greedy flag, every chosen
option.  Two answers whose scores lie closer than twice the tolerance may differ and are listed.

A request with a token beyond the tolerance is put to a third run, torch in float64.  Where this engine is within the
tolerance of that, and no further from it than torch's float32 is, torch's rounding is at fault: the request is listed and
does not fail the run.  Exit status 1 where anything else differs.  The last line is JSON.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags
from agreement import Differences, compare, score_each, score_one
from common import (
    Engine,
    PlainTorch,
    Source,
    Work,
    environment,
    joined,
    prepare,
    read_tasks,
    run,
    split,
)

from miron_jax.engine.model import load_model
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_list("tasks", [], "CORE labels, such as arc_easy; all whose files are there when empty.")
flags.DEFINE_integer("limit", 5, "Examples of each task and number of shots.", lower_bound=1)
flags.DEFINE_list("shots", ["native", "0"], "Worked examples: native (the suite's own count) or a number.")
flags.DEFINE_float("tolerance", 1e-4, "Nats a scored token may differ by.")


def main(_: Sequence[str]) -> None:
    start = time.perf_counter()
    works = prepare_works()
    engine = Engine(load_model(Path(FLAGS.model), "float32"))
    scored = engine.score(iter([joined(works)]))
    engine_seconds = time.perf_counter() - start
    torch = PlainTorch.load(FLAGS.model, "float32")
    found, rulings = [], []
    for work, ours in zip(works, split(works, scored.answers), strict=True):
        begin = time.perf_counter()
        theirs = score_each(torch, work)
        found.append(compare(work, ours, theirs, FLAGS.tolerance))
        print(row(work, found[-1], time.perf_counter() - begin), flush=True)
        rulings += [(work, r, ours.logprob[r], theirs.logprob[r]) for r in found[-1].beyond]
    verdicts = rule(torch, rulings)
    report(works, found, verdicts, engine_seconds, time.perf_counter() - start)


def prepare_works() -> list[Work]:
    tokenizer = load_tokenizer(FLAGS.model)
    sources = read_tasks(FLAGS.data_dir, FLAGS.tasks)
    return [
        prepare(source, FLAGS.limit, tokenizer, None, shots)
        for source in sources
        for shots in wanted_shots(source, FLAGS.shots)
    ]


def wanted_shots(source: Source, asked: Sequence[str]) -> list[int]:
    """Distinct shot counts; native is the suite's own."""
    native = source.task.profile.num_fewshot
    return list(dict.fromkeys(native if shots == "native" else int(shots) for shots in asked))


class Ruling(NamedTuple):
    line: str
    torch_is_off: bool  # this engine is within the tolerance of float64, and no further from it than torch's float32


def rule(torch: PlainTorch, disputed: Sequence[tuple[Work, int, np.ndarray, np.ndarray]]) -> list[Ruling]:
    """Put every disputed request to torch in float64."""
    rulings: list[Ruling] = []
    if not disputed:
        return rulings
    exact = PlainTorch(torch.model.double(), torch.torch, torch.device)
    for work, r, ours, theirs in disputed:
        truth, _, _ = score_one(exact, work.requests.tokens(r), int(work.requests.span_start[r]))
        here, there = float(np.abs(ours - truth).max()), float(np.abs(theirs - truth).max())
        line = f"{work.task.name}, request {r}: {here:.1e} nats from float64 here, {there:.1e} in torch float32"
        rulings.append(Ruling(line, here <= min(FLAGS.tolerance, there)))
    return rulings


def row(work: Work, found: Differences, seconds: float) -> str:
    shots = work.task.profile.num_fewshot
    return (
        f"{work.task.name:40} {shots:2} shots {len(work.prompts):4} examples {len(found.nats):6} scored tokens  "
        f"max {found.nats.max(initial=0):.1e}  torch {seconds:6.1f} s"
    )


def report(
    works: Sequence[Work],
    found: Sequence[Differences],
    rulings: Sequence[Ruling],
    engine_seconds: float,
    seconds: float,
) -> None:
    nats = np.concatenate([one.nats for one in found])
    close = [line for one in found for line in one.close]
    wrong = [line for one in found for line in one.wrong] + [r.line for r in rulings if not r.torch_is_off]
    off = [r.line for r in rulings if r.torch_is_off]
    for title, lines in (
        (f"differ, but lie closer than {2 * FLAGS.tolerance:g} nats", close),
        ("closer to float64 than torch's float32 is", off),
        ("WRONG", wrong),
    ):
        if lines:
            print("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
    quantiles = {str(q): float(np.quantile(nats, q)) for q in (0.5, 0.99, 0.999)} if len(nats) else {}
    print(
        f"{len(nats)} scored tokens: largest difference {nats.max(initial=0):.2e} nats (tolerance {FLAGS.tolerance:g}), "
        f"median {quantiles.get('0.5', 0):.1e}, 99.9 % below {quantiles.get('0.999', 0):.1e}; "
        f"{sum(len(work.prompts) for work in works)} examples, {len(wrong)} wrong"
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
        "torch_rounding": off,
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
