"""Results in the layouts of other programs: lm-eval's JSON and samples, nanochat's CSV.

Arrives: results.json, samples of each task.  Leaves: files by name.  It deliberately does not know how scores are computed.

Metrics keep their names: `accuracy` is by the rules of the task's own profile, which stand in `configs`, and need not be
what lm-eval calls acc.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import LOWER_IS_BETTER

Samples = Callable[[str], Iterable[JsonObject]]  # by name of the task
FOLDER, CSV = "lm_eval", "nanochat.csv"


def other_layout(layout: str, results: JsonObject, samples: Samples) -> Iterator[tuple[str, bytes]]:
    """Names of files below the output folder, and their contents."""
    if layout == "nanochat":
        yield CSV, nanochat_csv(results).encode()
        return
    name = written_model(results)
    date = datetime.now().isoformat().replace(":", "-")  # as lm-eval names its files, in local time
    for task in results["tasks"]:
        lines = "".join(f"{_json(_sample(sample))}\n" for sample in samples(task))
        yield f"{FOLDER}/{name}/samples_{task.replace('/', '_')}_{date}.jsonl", lines.encode()
    yield f"{FOLDER}/{name}/results_{date}.json", _json(lm_eval_results(results), indent=2).encode()


def check_layout(layout: str | None, suites: Iterable[str]) -> None:
    """Raises InputError for a layout that has no place for the suites of the run."""
    if layout == "nanochat" and "core" not in suites:
        raise InputError("--results_format=nanochat is CORE's table: add core to --tasks, or leave it out")


def nanochat_csv(results: JsonObject) -> str:
    """`Task, Accuracy, Centered`, with the widths of nanochat's scripts/base_eval.py; what has no value is empty."""
    lines = [f"{'Task':<35}, {'Accuracy':<10}, {'Centered':<10}"]
    for name, task in results["tasks"].items():
        if name.startswith("core/"):
            accuracy, centered = task["metrics"]["accuracy"]["value"], (task["rescaled"] or {}).get("value")
            lines.append(f"{name.partition('/')[2]:<35}, {_six(accuracy):<10}, {_six(centered):<10}")
    composite = results["suites"]["core"]["composites"]["CORE"]["value"]
    return "\n".join([*lines, f"{'CORE':<35}, {'':<10}, {_six(composite):<10}", ""])


def _six(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def written_model(results: JsonObject) -> str:
    """The model's name as lm-eval writes it into file names."""
    return str(results["config"]["model"]).replace("/", "__").replace("~", "")


def lm_eval_results(results: JsonObject) -> JsonObject:
    """The document that lm-eval 0.4.13 writes as results_*.json."""
    tasks, config = results["tasks"], results["config"]
    metrics = {name: _metrics(task) for name, task in tasks.items()}
    return {
        "results": {name: {"alias": name, **numbers} for name, numbers in metrics.items()},
        "group_subtasks": {
            suite: [name for name in tasks if name.startswith(f"{suite}/")] for suite in results["suites"]
        },
        "configs": {
            name: {"task": name, "metadata": {"version": 1}, **task["profile"]} for name, task in tasks.items()
        },
        "versions": dict.fromkeys(tasks, 1),
        "n-shot": {name: task["profile"]["num_fewshot"] for name, task in tasks.items()},
        "higher_is_better": {
            name: {metric: metric not in LOWER_IS_BETTER for metric in task["metrics"]} for name, task in tasks.items()
        },
        "n-samples": {
            name: {"original": task["n"] + task["skipped"], "effective": task["n"]} for name, task in tasks.items()
        },
        "config": {
            "model": "miron_jax",
            "model_args": {"pretrained": config["model"], "dtype": config["dtype"]},
            "model_sha": results["checkpoint"]["weights"],
            "batch_size": None,
            "device": results["environment"]["device"],
            "limit": config["limit"],
            "random_seed": config["seed"],
        },
        "date": datetime.now().timestamp(),
        "git_hash": None,
        "transformers_version": results["environment"]["packages"]["transformers"],
        "lm_eval_version": _lm_eval_version(),
        "model_source": "miron_jax",
        "model_name": config["model"],
        "model_name_sanitized": written_model(results),
        "total_evaluation_time_seconds": str(results["speed"]["wall_seconds"]),
    }


def _lm_eval_version() -> str | None:
    try:
        return version("lm_eval")
    except PackageNotFoundError:
        return None


def _metrics(task: JsonObject) -> JsonObject:
    numbers: JsonObject = {}
    for name, metric in task["metrics"].items():
        numbers[f"{name},none"] = "N/A" if metric["value"] is None else metric["value"]
        numbers[f"{name}_stderr,none"] = "N/A" if metric["stderr"] is None else metric["stderr"]
    return numbers


def _sample(sample: JsonObject) -> JsonObject:
    """A line of lm-eval's samples; a document's responses are texts there."""
    options = sample["options"]
    responses = [[option["logprob"], option["greedy"]] for option in options] or [sample["generated"]]
    texts = [option["text"] for option in options]
    known = {name: math.nan if value is None else value for name, value in sample["metrics"].items()}
    return {
        "doc_id": sample["id"],
        "doc": {"row": sample["row"]},
        "target": str(sample["gold"]),
        "arguments": {f"gen_args_{i}": {"arg_0": None, "arg_1": text} for i, text in enumerate(texts)},
        "resps": [[[str(part) for part in response]] if options else [response] for response in responses],
        "filtered_resps": [[str(part) for part in response] if options else response for response in responses],
        "filter": "none",
        "metrics": list(sample["metrics"]),
        "target_hash": sha256(str(sample["gold"]).encode()).hexdigest(),
        **known,
    }


def _json(document: Any, indent: int | None = None) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False)
