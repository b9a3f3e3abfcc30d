"""How fast are lm-eval's tasks on this engine, compared with lm-eval's Hugging Face backend (HFLM)?

    python benchmarks/bench_lm_eval.py --model=FOLDER --data_dir=BUNDLE      # half an hour on two cores

Two workloads, made of the bundle's files as lm-eval tasks: 5-shot arc_easy, and ten multiple-choice
tasks of which every second one has 5 shots.  Both run in one process through
`lm_eval.simple_evaluate`, float32, engines taking turns.  HFLM runs the first examples of each task
at its best batch size, and its time is scaled by the number of requests.  Seconds are end to end
without loading and compilation; `harness` is the part outside the model.  Equal values of the
metrics on the examples that both run are checked.  The last line is JSON.
"""  # noqa: E501

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lm_eval
from absl import flags
from common import environment, run, say
from lm_eval.models import huggingface
from lm_eval.tasks import TaskManager

from miron_jax.lm_eval import MironLM

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("limit", 200, "Examples of the 5-shot task.", lower_bound=1)
flags.DEFINE_integer("mix_limit", 50, "Examples of each of the ten tasks.", lower_bound=1)
flags.DEFINE_integer("peer_every", 5, "HFLM runs the first 1/n of the examples.", lower_bound=1)
flags.DEFINE_integer("repeats", 3, "Timed runs; medians are reported.", lower_bound=1)

FILES = (
    "world_knowledge/arc_easy", "world_knowledge/arc_challenge",
    "commonsense_reasoning/openbook_qa",
    "commonsense_reasoning/piqa", "commonsense_reasoning/commonsense_qa",
    "commonsense_reasoning/siqa",
    "symbolic_problem_solving/logi_qa", "reading_comprehension/boolq",
    "world_knowledge/bigbench_misconceptions",
    "symbolic_problem_solving/agi_eval_lsat_ar",
)  # fmt: skip
BATCH_SIZES = (1, 4, 16)
simple_evaluate: Any = lm_eval.simple_evaluate  # its decorator hides what it takes and gives
hflm: Any = huggingface.HFLM


class Timed(NamedTuple):
    seconds: float  # end to end, without compilation
    of_model: float
    requests: int
    results: Any


def write_tasks(folder: Path) -> tuple[list[str], TaskManager]:
    """A task for each file that is there."""
    names = []
    for i, file in enumerate(FILES):
        data = (Path(FLAGS.data_dir) / "eval_data" / f"{file}.jsonl").resolve()
        if not data.is_file():
            continue
        names.append(f"own_{Path(file).name}")
        task = {
            "task": names[-1], "dataset_path": "json", "test_split": "test",
            "fewshot_split": "test",
            "dataset_kwargs": {"data_files": {"test": str(data)}}, "output_type": "multiple_choice",
            "doc_to_text": "{{query}}\nAnswer:", "doc_to_choice": "{{choices}}",
            "doc_to_target": "gold",
            "num_fewshot": 5 * ((i + 1) % 2),
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        }  # fmt: skip
        (folder / f"{Path(file).name}.yaml").write_text(json.dumps(task))  # YAML holds JSON
    return names, TaskManager(include_path=str(folder), include_defaults=False)


def timed(model: Any, names: Sequence[str], limit: int, tasks: TaskManager) -> Timed:
    """One run; the model's own time is that of its loglikelihood calls."""
    spent, count, loglikelihood = 0.0, 0, model.loglikelihood

    def watched(requests: Any, *more: Any, **options: Any) -> Any:
        nonlocal spent, count
        start = time.perf_counter()
        answers = loglikelihood(requests, *more, **options)
        spent, count = spent + time.perf_counter() - start, count + len(requests)
        return answers

    model.loglikelihood = watched
    compiled, start = compile_seconds(model), time.perf_counter()
    results = simple_evaluate(
        model=model,
        tasks=list(names),
        limit=limit,
        task_manager=tasks,
        bootstrap_iters=0,
        log_samples=True,
    )
    compiled = compile_seconds(model) - compiled
    seconds = time.perf_counter() - start - compiled
    model.loglikelihood = loglikelihood
    return Timed(seconds, spent - compiled, count, results)


def compile_seconds(model: Any) -> float:
    return model.session.forward.speed.compile_seconds if isinstance(model, MironLM) else 0.0


def measure(
    names: Sequence[str], limit: int, ours: MironLM, theirs: Any, tasks: TaskManager
) -> dict[str, Any]:
    few = max(1, limit // FLAGS.peer_every)
    timed(ours, names, limit, tasks)  # compiles
    sizes = {
        size: at_batch_size(theirs, size, lambda: timed(theirs, names, max(1, few // 4), tasks))
        for size in BATCH_SIZES
    }
    best = min(sizes, key=lambda size: sizes[size].seconds)
    say(
        f"  HFLM's batch size: {best}, of "
        f"{ {size: round(each.seconds, 1) for size, each in sizes.items()} }"
    )
    ours_runs, peer = [], []
    for _ in range(FLAGS.repeats):
        ours_runs.append(timed(ours, names, limit, tasks))
        peer.append(at_batch_size(theirs, best, lambda: timed(theirs, names, few, tasks)))
        scaled = peer[-1].seconds * ours_runs[-1].requests / peer[-1].requests
        say(
            f"  miron_jax {ours_runs[-1].seconds:.1f} s, HFLM {scaled:.1f} s, scaled from "
            f"{peer[-1].seconds:.1f} s"
        )
    seconds = statistics.median(each.seconds for each in ours_runs)
    scaled = (
        statistics.median(each.seconds for each in peer) * ours_runs[0].requests / peer[0].requests
    )
    return {
        "tasks": list(names), "limit": limit, "requests": ours_runs[0].requests,
        "peer_requests": peer[0].requests,
        "seconds": seconds,
        "harness_seconds": statistics.median(each.seconds - each.of_model for each in ours_runs),
        "hflm_seconds": scaled, "hflm_batch_size": best, "times_faster": scaled / seconds,
        "differing": differing(ours_runs[0].results, peer[0].results),
    }  # fmt: skip


def at_batch_size(model: Any, size: int, action: Callable[[], Timed]) -> Timed:
    model.batch_size_per_gpu = size
    return action()


def differing(ours: Any, theirs: Any) -> dict[str, float]:
    """Of the examples that both ran: the largest difference of a log-likelihood, and how many are
    judged otherwise."""
    largest, judged = 0.0, 0
    for name, samples in theirs["samples"].items():
        by_doc = {sample["doc_id"]: sample for sample in ours["samples"][name]}
        for sample in samples:
            pairs = zip(by_doc[sample["doc_id"]]["resps"], sample["resps"], strict=True)
            largest = max(largest, *(abs(float(a[0][0]) - float(b[0][0])) for a, b in pairs))
            judged += by_doc[sample["doc_id"]]["acc"] != sample["acc"]
    return {"largest_nats": largest, "judged_otherwise": judged}


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        names, tasks = write_tasks(Path(folder))
        ours = MironLM(FLAGS.model)
        theirs = hflm(pretrained=FLAGS.model, dtype="float32", device="cpu", batch_size=1)
        workloads = []
        for chosen, limit in ((names[:1], FLAGS.limit), (names, FLAGS.mix_limit)):
            say(f"{', '.join(chosen)}: {limit} examples each")
            workloads.append(measure(chosen, limit, ours, theirs, tasks))
        document = {
            "benchmark": "bench_lm_eval", "model": Path(FLAGS.model).name, "repeats": FLAGS.repeats,
            "workloads": workloads, "environment": environment(),
        }  # fmt: skip
    print(json.dumps(document, allow_nan=False))


if __name__ == "__main__":
    run(main)
