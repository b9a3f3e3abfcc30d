"""Results in the layouts of other programs: lm-eval's JSON and samples, nanochat's CSV.

Arrives: a `RunResult`, the examples of each task.  Leaves: files by name.  It deliberately does not
know how scores are computed.

Metrics keep their names: `accuracy` is by the rules of the task's own profile, which stand in
`configs`, and need not be what lm-eval calls acc.
"""

import json
import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.properties import LOWER_IS_BETTER
from miron_jax.report.numbers import shown
from miron_jax.results.document import plain
from miron_jax.results.output import LM_EVAL, NANOCHAT
from miron_jax.results.records import RunResult, TaskResult
from miron_jax.results.samples import ExampleResult, ExamplesOf


def other_layout(
    layout: str | None, run: RunResult, examples: ExamplesOf
) -> Iterator[tuple[str, bytes]]:
    """Names of files below the output folder, and their contents; none without a `layout`."""
    if layout == "nanochat":
        yield NANOCHAT, nanochat_csv(run).encode()
    elif layout is not None:
        name = written_model(run)
        # as lm-eval names its files, in local time
        date = datetime.now().isoformat().replace(":", "-")
        for task in run.tasks:
            lines = "".join(f"{_json(_sample(example))}\n" for example in examples(task))
            yield f"{LM_EVAL}/{name}/samples_{task.replace('/', '_')}_{date}.jsonl", lines.encode()
        yield (
            f"{LM_EVAL}/{name}/results_{date}.json",
            _json(lm_eval_results(run), indent=2).encode(),
        )


def check_layout(layout: str | None, suites: Iterable[str]) -> None:
    """Raises InputError for a layout that has no place for the suites of the run."""
    if layout == "nanochat" and "core" not in suites:
        raise InputError(
            "--results_format=nanochat is CORE's table: add core to --tasks, or leave it out"
        )


def nanochat_csv(run: RunResult) -> str:
    """`Task, Accuracy, Centered`, with the widths of nanochat's scripts/base_eval.py; what has no
    value is empty."""
    lines = [f"{'Task':<35}, {'Accuracy':<10}, {'Centered':<10}"]
    for name, task in run.tasks.items():
        if name.startswith("core/"):
            centered = getattr(task.rescaled, "value", None)
            numbers = f"{_six(task.metric('accuracy').value):<10}, {_six(centered):<10}"
            lines.append(f"{name.partition('/')[2]:<35}, {numbers}")
    composite = run.suites["core"].composites["CORE"].value
    return "\n".join([*lines, f"{'CORE':<35}, {'':<10}, {_six(composite):<10}", ""])


def _six(value: float | None) -> str:
    return shown(value, ".6f")


def written_model(run: RunResult) -> str:
    """The model's name as lm-eval writes it into file names."""
    return run.model.replace("/", "__").replace("~", "")


def lm_eval_results(run: RunResult) -> JsonObject:
    """The document that lm-eval 0.4.13 writes as results_*.json."""
    results: JsonObject = {}
    configs: JsonObject = {}
    shots: JsonObject = {}
    higher_is_better: JsonObject = {}
    samples: JsonObject = {}
    for name, task in run.tasks.items():
        results[name] = {"alias": name, **_metrics(task)}
        configs[name] = {"task": name, "metadata": {"version": 1}, **plain(task.profile)}
        shots[name] = task.num_fewshot
        higher_is_better[name] = {metric: metric not in LOWER_IS_BETTER for metric in task.metrics}
        samples[name] = {"original": task.n + task.skipped, "effective": task.n}
    return {
        "results": results,
        "group_subtasks": {suite: [*run.tasks_of(suite)] for suite in run.suites},
        "configs": configs,
        "versions": dict.fromkeys(run.tasks, 1),
        "n-shot": shots,
        "higher_is_better": higher_is_better,
        "n-samples": samples,
        "config": {
            "model": "miron_jax",
            "model_args": {"pretrained": run.model, "dtype": run.dtype},
            "model_sha": run.checkpoint.weights,
            "batch_size": None,
            "device": run.environment.device,
            "limit": run.limit,
            "random_seed": run.config["seed"],
        },
        "date": datetime.now().timestamp(),
        "git_hash": None,
        "transformers_version": run.environment.packages["transformers"],
        "lm_eval_version": _lm_eval_version(),
        "model_source": "miron_jax",
        "model_name": run.model,
        "model_name_sanitized": written_model(run),
        "total_evaluation_time_seconds": str(run.speed.wall_seconds),
    }


def _lm_eval_version() -> str | None:
    try:
        return version("lm_eval")
    except PackageNotFoundError:
        return None


def _metrics(task: TaskResult) -> JsonObject:
    numbers: JsonObject = {}
    for name, estimate in task.metrics.items():
        numbers[f"{name},none"] = _or_none(estimate.value)
        numbers[f"{name}_stderr,none"] = _or_none(estimate.stderr)
    return numbers


def _or_none(value: float) -> float | str:
    return value if math.isfinite(value) else "N/A"


def _sample(example: ExampleResult) -> JsonObject:
    """A line of lm-eval's samples; a document's responses are texts there."""
    responses = []
    arguments = {}
    for i, option in enumerate(example.options):
        responses.append([str(plain(option.logprob)), str(option.greedy)])
        arguments[f"gen_args_{i}"] = {"arg_0": None, "arg_1": option.text}
    if not responses:
        responses = [example.generated]
    metrics = dict(example.metrics)
    for name, value in metrics.items():
        if math.isinf(value):
            metrics[name] = math.nan
    gold = str(example.gold)
    return {
        "doc_id": example.id,
        "doc": {"row": example.row},
        "target": gold,
        "arguments": arguments,
        "resps": [[response] for response in responses],
        "filtered_resps": responses,
        "filter": "none",
        "metrics": list(example.metrics),
        "target_hash": sha256(gold.encode()).hexdigest(),
        **metrics,
    }


def _json(document: Any, indent: int | None = None) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False)
