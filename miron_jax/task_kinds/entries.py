"""Records -> the JSON objects that stand for them, and a task's part of results.json.

Arrives: an `Estimate`, a `Score`, all that a task has scored.  Leaves: plain dicts; a number that is not finite has a reason
beside it.  It deliberately does not know what a metric means.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from miron_jax.definitions.records import Example, Problem
from miron_jax.definitions.rules import printed
from miron_jax.engine.records import Score
from miron_jax.metrics.choices import PROPORTIONS
from miron_jax.prompting.prompts import Prompt
from miron_jax.statistics.estimate import Estimate, TaskEstimates
from miron_jax.statistics.gaps import gaps
from miron_jax.task_kinds.interface import Facts, Source


def option_entry(text: str, score: Score) -> dict[str, Any]:
    scored = len(score.logprob) > 0
    option = {
        "text": text,
        "logprob": float(score.logprob.sum(dtype=np.float64)) if scored else math.nan,
        "num_tokens": len(score.logprob),
        "token_logprobs": score.logprob.tolist(),
        "greedy": bool((score.rank == 0).all()) if scored and not np.isnan(score.logprob).any() else None,
    }
    return option if scored else {**option, "reason": "no scored token"}


def estimate_entry(found: Estimate) -> dict[str, Any]:
    entry: dict[str, Any] = {"value": found.value, "stderr": found.stderr, "ci95": list(found.ci95)}
    if found.num_undefined:
        entry |= {"n": found.num_examples, "undefined": found.num_undefined}
    if not found.num_examples:
        entry["reason"] = "no example has a defined value"
    elif not math.isfinite(found.value):
        entry["reason"] = "an example is infinite"
    elif not math.isfinite(found.stderr):
        entry["reason"] = "one example has no deviation"
    return entry


def task_entry(
    source: Source, found: TaskEstimates, num_scored: int, num_skipped: int, facts: Facts, of_kind: Mapping[str, Any]
) -> dict[str, Any]:
    """A task's part of results.json.  `of_kind`: what only tasks of its kind have."""
    task = source.task
    chance = {} if task.chance is None else task.chance(source.examples)
    baselines = {**task.baselines, **chance}
    rows, published = len(source.examples), task.file.rows
    drawn = gaps(found.metrics, task.human, facts.config.human_baseline, rows, source.data, PROPORTIONS)
    of_main = {gap.metric: gap.human.value for gap in drawn}
    other_rows = {} if published in (None, rows) else {"rows": rows, "published_rows": published}
    entry: dict[str, Any] = {
        "n": num_scored,
        "metrics": _metrics(found.metrics),
        "groups": {name: {"n": found.sizes[name], "metrics": _metrics(own)} for name, own in found.categories.items()},
        "baselines": {**baselines, "human": of_main.get(task.main, baselines["human"])},
        "human": [asdict(gap) for gap in drawn],
        "rescaled": _rescaled(found.metrics.get("accuracy"), baselines["random"]),
        "profile": {
            **printed(task.profile),
            "bos_token": facts.bos.how if facts.bos and task.profile.bos == "always" else None,
            "max_length": facts.limit.of(task.profile),
        },
        "kind": task.kind,
        "main": task.main,  # the metric that composites take
        "section": task.section,
        "skipped": num_skipped,
        **of_kind,
        "data": {"file": task.file.path, **other_rows, **source.data._asdict()},
        "citation": task.citation,
    }
    if task.reference:
        entry["reference"] = dict(task.reference)
    return with_limit(entry, facts)


def with_limit(entry: dict[str, Any], facts: Facts) -> dict[str, Any]:
    return entry if facts.config.limit is None else {**entry, "limit": facts.config.limit}


def num_shots_entry(prompts: Sequence[Prompt]) -> dict[str, Any]:
    """How many worked examples prompts have kept, of tasks that count them."""
    kept = Counter(prompt.num_shots for prompt in prompts if prompt.num_shots is not None)
    return {"num_shots": {str(shots): kept[shots] for shots in sorted(kept)}} if kept else {}


def prompt_entry(prompt: Prompt, example: Example | None) -> dict[str, Any]:
    """Where a sample's example stands, and what the robustness report groups it by."""
    found: dict[str, Any] = {"id": prompt.id, "row": prompt.row}
    if prompt.category is not None:
        found["category"] = prompt.category
    if prompt.num_shots is not None:
        found["num_shots"] = prompt.num_shots
    if example is not None and example.cluster is not None:
        found |= {"cluster": example.cluster, "swapped": example.swapped, "traits": dict(example.traits)}
    return found


def published_entry(example: Example | Problem | None) -> dict[str, Any]:
    """What names the record in a submission."""
    return {} if example is None or example.published is None else {"meta": dict(example.published["meta"])}


def why_unscored(is_nan: bool, wants_classifiers: bool = False) -> str:
    if is_nan:
        return "the model answers NaN"
    if wants_classifiers:
        return "J wants three classifiers, which are not here"
    return "the right answer is not published: it cannot be scored here"


def _metrics(found: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: estimate_entry(own) for name, own in found.items()}


def _rescaled(accuracy: Estimate | None, baseline: float | None) -> dict[str, float] | None:
    """(accuracy - b) / (1 - b): 0 is chance, 1 perfect, below chance negative."""
    if baseline is None or accuracy is None:
        return None
    scale = 1 / (1 - baseline)
    return {"value": (accuracy.value - baseline) * scale, "stderr": accuracy.stderr * scale}
