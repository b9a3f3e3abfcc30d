"""A run's numbers in layouts that others collect: Every Eval Ever's JSON, the Hub's
`.eval_results`.

Arrives: a `Run`.  Leaves: texts.  It deliberately computes no score.

Each number of a task bears `requests_sha256`: of a line "row digest" for each example, in the order
of the samples, where the digest is that of all its prompt (or text).  Equal hashes mean that the
same questions were asked in the same words.  A composite's is of the hashes of its tasks.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

import yaml

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.cloze import CLOZE_PROPORTIONS
from miron_jax.metrics.properties import LOWER_IS_BETTER, PROPORTIONS
from miron_jax.results.document import plain, strict_json
from miron_jax.results.records import CompositeResult
from miron_jax.results.run_folder import Run
from miron_jax.statistics.estimate import Estimate

EEE_SCHEMA = "0.2.2"  # of eval.schema.json in evaleval/every_eval_ever
NOT_STATED = "not stated"  # who ran it: for the user to fill in
PROPORTION_NAMES = PROPORTIONS | CLOZE_PROPORTIONS


def every_eval_ever(runs: Sequence[Run]) -> str:
    """One record of all numbers of a run that are defined."""
    run = _only(runs, "every_eval_ever")
    result = run.result
    now = str(int(time.time()))
    model = result.model
    details = {
        "step": result.step,
        "dtype": result.dtype,
        "weights": result.checkpoint.weights,
        "files": result.checkpoint.fingerprint,
        "tokenizer": result.checkpoint.tokenizer,
        "deployment_type": "local",
        "model_availability": "other",
    }
    library_version = result.environment.packages.get("miron-jax", "unknown")
    document = {
        "schema_version": EEE_SCHEMA,
        "evaluation_id": f"{'+'.join(result.suites)}/{model}/{now}",
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": "miron_jax",
            "source_type": "evaluation_run",
            "source_organization_name": NOT_STATED,
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "miron_jax", "version": library_version},
        "model_info": {"name": model, "id": model, "additional_details": _texts(details)},
        "evaluation_results": [*_results(run)],
    }
    return strict_json(plain(document), indent=1) + "\n"


def _results(run: Run) -> Iterator[JsonObject]:
    hashes = {name: requests_sha256(run, name) for name in run.tasks}
    for name, task in run.tasks.items():
        source = {
            "dataset_name": task.data.file or name,
            "source_type": "other",
            "additional_details": _texts(
                {"git_blob_sha1": task.data.git_blob_sha1, "commit": task.data.commit}
            ),
        }
        details = {"requests_sha256": hashes[name], "num_fewshot": task.num_fewshot}
        for metric, estimate in task.metrics.items():
            yield from _result(name, metric, estimate, source, details)
    for suite, result in run.result.suites.items():
        for name, composite in result.composites.items():
            tasks = sorted(composite.weights)
            details = {"requests_sha256": _of_all(hashes, tasks), "tasks": ", ".join(tasks)}
            source = {"dataset_name": suite, "source_type": "other"}
            yield from _result(suite, name, composite, source, details)


def _of_all(hashes: Mapping[str, str | None], tasks: Sequence[str]) -> str | None:
    """The hash of these tasks' hashes; None if one of them has none."""
    known = [*filter(None, map(hashes.get, tasks))]
    if len(known) < len(tasks):
        return None
    return sha256("".join(known).encode()).hexdigest()


def _result(
    evaluation: str,
    metric: str,
    number: Estimate | CompositeResult,
    source: JsonObject,
    details: Mapping[str, object],
) -> Iterator[JsonObject]:
    """The number with its uncertainty; nothing for one without a value."""
    if not math.isfinite(number.value):
        return
    config: JsonObject = {
        "metric_id": metric,
        "metric_name": metric,
        "lower_is_better": metric in LOWER_IS_BETTER,
    }
    if metric in PROPORTION_NAMES:
        config |= {"score_type": "continuous", "min_score": 0, "max_score": 1}
    uncertainty: JsonObject = {}
    if math.isfinite(number.stderr):
        uncertainty |= {"standard_error": {"value": number.stderr}}
    if number.ci95 is not None and all(map(math.isfinite, number.ci95)):
        low, high = number.ci95
        interval = {"lower": low, "upper": high, "confidence_level": 0.95}
        uncertainty |= {"confidence_interval": interval}
    if isinstance(number, Estimate):
        uncertainty |= {"num_samples": number.num_examples}
    yield {
        "evaluation_result_id": f"{evaluation}/{metric}",
        "evaluation_name": evaluation,
        "source_data": source,
        "metric_config": config,
        "score_details": {
            "score": number.value,
            "details": _texts(details),
            "uncertainty": uncertainty,
        },
    }


def hub_yaml(benchmarks: Mapping[str, tuple[str, str]], runs: Sequence[Run]) -> str:
    """The main metric of each task in `benchmarks`: task -> data set of the Hub, task_id there."""
    run = _only(runs, "hub_yaml")
    entries = []
    for name, (data_set, task_id) in benchmarks.items():
        if name not in run.tasks:
            raise InputError(
                f"--hub_tasks: {run.label} has no task {name!r}, expected one of "
                f"{', '.join(run.tasks)}"
            )
        task = run.tasks[name]
        if not math.isfinite(task.main_estimate.value):
            raise InputError(f"--hub_tasks: {name} of {run.label} has no value: leave it out")
        notes = {
            "metric": f"{name} {task.main_metric}",
            "num_fewshot": task.num_fewshot,
            "requests_sha256": requests_sha256(run, name),
        }
        of_hub = {"id": data_set, "task_id": task_id}
        if task.data.commit is not None:
            of_hub |= {"revision": task.data.commit}
        noted = ", ".join(f"{key} {value}" for key, value in _texts(notes).items())
        value = task.main_estimate.value
        entries.append({"dataset": of_hub, "value": value, "notes": f"miron_jax, {noted}"})
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)


def requests_sha256(run: Run, task: str) -> str | None:
    """The hash of what a task asked; None where an older version wrote no digests."""
    lines = list[str]()
    for example in run.examples(task, with_texts=False):
        if not example.digest:
            return None
        lines.append(f"{example.row} {example.digest}\n")
    return sha256("".join(lines).encode()).hexdigest()


def _only(runs: Sequence[Run], flag: str) -> Run:
    if len(runs) != 1:
        raise InputError(f"--{flag} is a file of one run, and {len(runs)} are named: name one")
    return runs[0]


def _texts(details: Mapping[str, object]) -> dict[str, str]:
    """What is known, as texts."""
    return {name: str(value) for name, value in details.items() if value is not None}
