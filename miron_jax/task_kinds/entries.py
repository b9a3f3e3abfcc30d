"""Records -> JSON objects of results.json and samples files.

Arrives: `Estimate`s, `Score`s, a task's scores.  Leaves: plain dicts; a number that is not finite comes with a
reason.  It deliberately does not know what a metric means.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from miron_jax.definitions.records import Example, Problem
from miron_jax.definitions.rules import printed
from miron_jax.engine.records import Score
from miron_jax.files.places import public
from miron_jax.files.readers import JsonObject
from miron_jax.prompting.prompts import Prompt
from miron_jax.statistics.estimate import Estimate, TaskEstimates
from miron_jax.statistics.human_gaps import gaps
from miron_jax.task_kinds.interface import Facts, TaskScores


def option_entry(text: str, score: Score) -> JsonObject:
    scored = len(score.logprob) > 0
    option = {
        "text": text,
        "logprob": float(score.logprob.sum(dtype=np.float64)) if scored else math.nan,
        "num_tokens": len(score.logprob),
        "token_logprobs": score.logprob.tolist(),
        "greedy": bool((score.rank == 0).all()) if scored and not np.isnan(score.logprob).any() else None,
    }
    return option if scored else {**option, "reason": "no scored token"}


def estimate_entry(estimate: Estimate) -> JsonObject:
    entry: JsonObject = {"value": estimate.value, "stderr": estimate.stderr, "ci95": list(estimate.ci95)}
    if estimate.num_undefined:
        entry |= {"n": estimate.num_examples, "undefined": estimate.num_undefined}
    if not estimate.num_examples:
        entry["reason"] = "no example has a defined value"
    elif not math.isfinite(estimate.value):
        entry["reason"] = "an example is infinite"
    elif not math.isfinite(estimate.stderr):
        entry["reason"] = "one example has no deviation"
    return entry


def task_entry(scores: TaskScores, estimates: TaskEstimates, facts: Facts, of_kind: JsonObject) -> JsonObject:
    """A task's part of results.json.  `of_kind`: keys that only its kind has."""
    source, task = scores.source, scores.source.task
    chance = {} if task.chance is None else task.chance(source.examples)
    baselines = {**task.baselines, **chance}
    rows, published = len(source.examples), task.file.rows
    human = gaps(estimates.metrics, task.human, facts.config.human_baseline, rows, source.data)
    human_scores = {gap.metric: gap.human.value for gap in human}
    other_rows = {} if published in (None, rows) else {"rows": rows, "published_rows": published}
    entry: JsonObject = {
        "n": scores.num_examples - scores.num_skipped,
        "metrics": _metrics(estimates.metrics),
        "groups": {
            name: {"n": estimates.sizes[name], "metrics": _metrics(metrics)}
            for name, metrics in estimates.categories.items()
        },
        "baselines": {**baselines, "human": human_scores.get(task.main, baselines["human"])},
        "human": [asdict(gap) for gap in human],
        "rescaled": _rescaled(estimates.metrics.get("accuracy"), baselines["random"]),
        "profile": {
            **printed(task.profile),
            "bos_token": facts.bos.how if facts.bos and task.profile.bos == "always" else None,
            "max_length": facts.limit.of(task.profile),
        },
        "kind": task.kind,
        "main": task.main,
        "section": task.section,
        "skipped": scores.num_skipped,
        **of_kind,
        "data": {"file": public(task.file.path), **other_rows, **source.data._asdict()},
        "citation": task.citation,
    }
    if task.reference:
        entry["reference"] = dict(task.reference)
    if task.licence:
        entry["licence"] = task.licence
    if scores.sampled is not None:
        entry["sampled"] = scores.sampled._asdict()
    return with_limit(entry, facts)


def with_limit(entry: JsonObject, facts: Facts) -> JsonObject:
    return entry if facts.config.limit is None else {**entry, "limit": facts.config.limit}


def num_shots_entry(prompts: Sequence[Prompt]) -> JsonObject:
    """Number of few-shot examples -> prompts that keep so many; empty for tasks that do not count them."""
    kept = Counter(prompt.num_shots for prompt in prompts if prompt.num_shots is not None)
    return {"num_shots": {str(shots): kept[shots] for shots in sorted(kept)}} if kept else {}


def prompt_entry(prompt: Prompt, example: Example | None) -> JsonObject:
    """The keys of a sample that identify its example: the end of its prompt, a digest of all of it (16 digits), and the
    traits by which the robustness report groups it."""
    entry: JsonObject = {"id": prompt.id, "row": prompt.row, "prompt": prompt.tail, "prompt_sha256": prompt.digest}
    if prompt.category is not None:
        entry["category"] = prompt.category
    if prompt.num_shots is not None:
        entry["num_shots"] = prompt.num_shots
    if example is not None and example.cluster is not None:
        entry |= {"cluster": example.cluster, "swapped": example.swapped, "traits": dict(example.traits)}
    return entry


def answer_entry(correct: bool | None, generated: str | None, options: Sequence[JsonObject] = ()) -> JsonObject:
    """The keys of a sample whose example chooses nothing."""
    return {"gold": None, "prediction": None, "correct": correct, "options": list(options), "generated": generated}


def published_entry(example: Example | Problem | None) -> JsonObject:
    """The key of a sample that identifies its record in a submission."""
    return {} if example is None or example.published is None else {"meta": dict(example.published["meta"])}


def why_unscored(is_nan: bool, wants_classifiers: bool = False) -> str:
    if is_nan:
        return "the model answers NaN"
    if wants_classifiers:
        return "J wants three classifiers, which are not here"
    return "the right answer is not published: it cannot be scored here"


def _metrics(estimates: Mapping[str, Estimate]) -> JsonObject:
    return {name: estimate_entry(estimate) for name, estimate in estimates.items()}


def _rescaled(accuracy: Estimate | None, baseline: float | None) -> dict[str, float] | None:
    """(accuracy - b) / (1 - b): 0 is chance, 1 perfect, below chance negative."""
    if baseline is None or accuracy is None:
        return None
    scale = 1 / (1 - baseline)
    return {"value": (accuracy.value - baseline) * scale, "stderr": accuracy.stderr * scale}
