"""An Outcome -> results.json, schema 1, as a dict.

Arrives: an Outcome and its RunConfig.  Leaves: the document.  It deliberately does not know files or how scores were
made.  JSON is strict: what is not a finite number is null.
"""

import json
import math
import os
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from miron_jax import __version__
from miron_jax.config import RunConfig
from miron_jax.evaluation.records import AnswerScores, AnyScores, ClozeScores, Outcome, ProgramScores, TaskScores
from miron_jax.files.places import public
from miron_jax.metrics.answers import normalize
from miron_jax.metrics.choices import PROPORTIONS
from miron_jax.report.cloze import cloze_composites, cloze_entry
from miron_jax.report.entries import estimate_entry
from miron_jax.statistics.estimate import Estimate, skipped, suite_composites, task_estimates, unanswered
from miron_jax.statistics.gaps import gaps
from miron_jax.statistics.robustness import robustness
from miron_jax.task_kinds.records import AnyTask, ClozeTask, Suite

SCHEMA = 1
_PACKAGES = ("jax", "jaxlib", "flax", "transformers", "tokenizers", "numpy")


def results_of(config: RunConfig, outcome: Outcome, wall_seconds: float) -> dict[str, Any]:
    """The whole of results.json as a dict."""
    tasks = {task.source.task.name: _entry(task, outcome, config) for task in outcome.tasks}
    return {
        "schema": SCHEMA,
        "config": config_entry(config),
        "environment": environment(),
        "tasks": tasks,
        "suites": {
            suite.name: {
                "composites": _composites(suite, outcome),
                "missing_data": {
                    name: str(path)
                    for name, path in outcome.inputs.missing.items()
                    if name.startswith(f"{suite.name}/")
                },
            }
            for suite in outcome.inputs.suites
        },
        "speed": _speed(outcome, wall_seconds),
        "generation": None if outcome.generation is None else asdict(outcome.generation),
        "self_check": asdict(outcome.check),
        "unanswered": sum(len(unanswered(task)) for task in outcome.tasks),  # examples that the model answers with NaN
        "unverified": list(outcome.unverified),  # inputs that no checksum was there for
        "checkpoint": {
            "folder": None if outcome.checkpoint.folder is None else str(outcome.checkpoint.folder),
            "fingerprint": outcome.checkpoint.fingerprint,
            "weights": outcome.weights,
            "commits": dict(outcome.commits),
            "answers": outcome.answers,
            "implausible": list(outcome.implausible),
        },
    }


def _entry(task: AnyScores, outcome: Outcome, config: RunConfig) -> dict[str, Any]:
    if isinstance(task, ClozeScores):
        return cloze_entry(task, outcome, config.limit)
    return _task(task, outcome, config)


def _task(task: TaskScores | AnswerScores | ProgramScores, outcome: Outcome, config: RunConfig) -> dict[str, Any]:
    definition, found, limit = task.source.task, task_estimates(task), config.limit
    human = definition.human
    baselines = {**definition.baselines, **_chance(task)}
    rows = len(task.source.examples)
    drawn = gaps(found.metrics, human, config.human_baseline, rows, task.source.data, PROPORTIONS)
    of_main = {gap.metric: gap.human.value for gap in drawn}
    entry: dict[str, Any] = {
        "n": len(task.examples) - skipped(task),
        "metrics": _metrics(found.metrics),
        "groups": {name: {"n": found.sizes[name], "metrics": _metrics(own)} for name, own in found.categories.items()},
        "baselines": {**baselines, "human": of_main.get(definition.main, baselines["human"])},
        "human": [asdict(gap) for gap in drawn],
        "rescaled": _rescaled(found.metrics.get("accuracy"), baselines["random"]),
        "profile": {
            **asdict(definition.profile),
            "bos_token": outcome.bos.how if outcome.bos and definition.profile.bos == "always" else None,
            "max_length": outcome.length_limit.of(definition.profile),
        },
        "kind": definition.kind,
        "main": definition.main,  # the metric that composites take
        "section": definition.section,
        "skipped": skipped(task),
        **_of_kind(task),
        "beyond_trained_length": task.beyond_trained,
        "data": {"file": definition.file.path, **_rows(task), **task.source.data._asdict()},
        "citation": definition.citation,
        **_of_wording(task),
    }
    return entry if limit is None else {**entry, "limit": limit}


def _chance(task: TaskScores | AnswerScores | ProgramScores) -> Mapping[str, float]:
    """Baselines that depend on a task's examples."""
    if isinstance(task, ProgramScores) or task.source.task.chance is None:
        return {}
    return task.source.task.chance(task.source.examples)


def _of_wording(task: TaskScores | AnswerScores | ProgramScores) -> dict[str, Any]:
    """How far scores hang on wording, and how many worked examples prompts have kept, of tasks that tell."""
    if isinstance(task, ProgramScores):
        return {}
    kept = Counter(prompt.num_shots for prompt in task.prompts if prompt.num_shots is not None)
    found: dict[str, Any] = {"num_shots": {str(shots): kept[shots] for shots in sorted(kept)}} if kept else {}
    if task.source.task.reference:
        found["reference"] = dict(task.source.task.reference)
    told = robustness(task)
    return found if told is None else {**found, "robustness": told}


def _rows(task: TaskScores | AnswerScores | ProgramScores) -> dict[str, int]:
    """Where the file has another number of rows than its suite has published."""
    found, published = len(task.source.examples), task.source.task.file.rows
    return {} if published in (None, found) else {"rows": found, "published_rows": published}


def _metrics(found: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: estimate_entry(own) for name, own in found.items()}


def _rescaled(accuracy: Estimate | None, baseline: float | None) -> dict[str, float] | None:
    """(accuracy - b) / (1 - b): 0 is chance, 1 perfect, below chance negative."""
    if baseline is None or accuracy is None:
        return None
    scale = 1 / (1 - baseline)
    return {"value": (accuracy.value - baseline) * scale, "stderr": accuracy.stderr * scale}


def _of_kind(task: TaskScores | AnswerScores | ProgramScores) -> dict[str, Any]:
    """What only tasks of this kind have."""
    match task:
        case AnswerScores():
            return _of_answers(task)
        case ProgramScores():
            return _of_programs(task)
        case _:
            return _of_options(task)


def _of_programs(task: ProgramScores) -> dict[str, Any]:
    return {
        "max_new_tokens": task.max_new_tokens,
        "ended": dict(Counter(verdict.ended for own in task.verdicts for verdict in own)),
        "sandboxed": task.sandboxed,
        # Problems that the authors' own solutions pass: no program can be expected to score more.
        "ceiling": {"passed": sum(verdict.passed for verdict in task.ceiling), "n": len(task.ceiling)}
        if any(problem.outputs for problem in task.problems)
        else None,  # what the tests should give is not published
    }


def _of_options(task: TaskScores) -> dict[str, Any]:
    golds = [prompt.gold for prompt in task.prompts if prompt.gold is not None]
    return {
        "tied": sum(example.tied for example in task.examples),
        "rounded_to_a_tie": sum(example.rounded for example in task.examples),
        # What a model scores that finds all options equal: the first one wins.
        "first_option_accuracy": sum(gold == 0 for gold in golds) / len(golds) if golds else None,
        "empty_span": sum(example.empty_span for example in task.examples),
        "inexact_prefix": task.inexact_prefix,
        "truncated": task.truncated,
        **({} if task.growing is None else {"dialogue": asdict(task.growing)}),
    }


def _of_answers(task: AnswerScores) -> dict[str, Any]:
    empty = [
        own.row
        for own in task.questions
        if task.source.task.profile.match == "prefix" and not all(map(normalize, own.accepted))
    ]
    return {
        "max_new_tokens": task.max_new_tokens,
        "ended": dict(Counter(task.ended)),
        "always_right_rows": empty,  # an accepted answer that normalizes to nothing begins every text
        "truncated": task.truncated,
    }


def _composites(suite: Suite[AnyTask], outcome: Outcome) -> dict[str, Any]:
    tasks = [task for task in suite.tasks if isinstance(task, ClozeTask)]
    if tasks:
        return cloze_composites(Suite(suite.name, tuple(tasks), suite.composites, suite.locate), outcome)
    return {
        name: {
            "value": composite.value,
            "stderr": found.stderr if found else None,
            "ci95": list(found.ci95) if found else None,
            "complete": composite.complete,
            "missing": list(composite.missing),
        }
        for name, (composite, found) in suite_composites(suite, outcome).items()
    }


def _speed(outcome: Outcome, wall_seconds: float) -> dict[str, Any]:
    totals, speed = outcome.totals, outcome.speed
    computed = speed.computed_tokens / max(totals.unique_tokens, 1)
    return {
        "requests": totals.requests,
        "load_seconds": outcome.load_seconds,
        "unique_tokens": totals.unique_tokens,
        "padded_tokens": speed.batch_tokens,
        "plain_tokens": totals.plain_tokens,
        "programs": speed.programs,
        "attention": speed.attention,
        "compile_seconds": speed.compile_seconds,
        "device_seconds": speed.device_seconds,
        "wall_seconds": wall_seconds,
        "journal_seconds": outcome.journal_seconds,
        "computed_tokens": speed.computed_tokens,  # fewer than unique ones where a run goes on
        "tokens_per_second": speed.computed_tokens / speed.device_seconds if speed.device_seconds else math.nan,
        "useful_flops": totals.useful_flops,
        "useful_flops_per_second": totals.useful_flops * computed / speed.device_seconds if computed else math.nan,
        "share_of_peak": None,
    }


def environment() -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "packages": {"miron-jax": __version__, **{name: version(name) for name in _PACKAGES}},
        "device": device.device_kind,
        "platform": device.platform,
        "num_devices": jax.device_count(),
        "host": platform.processor() or platform.machine(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "matmul_precision": jax.config.values["jax_default_matmul_precision"],
    }


def config_entry(config: RunConfig) -> dict[str, Any]:
    """As it is written: tuples are lists, and no place tells credentials or whose home it is below."""
    return _public(json.loads(json.dumps(asdict(config))))


def _public(value: Any) -> Any:
    if isinstance(value, list):
        return [_public(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _public(entry) for key, entry in value.items()}
    return public(value) if isinstance(value, str) else value


def strict(value: Any) -> Any:
    """NaN and infinity become null, NumPy's numbers Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [strict(entry) for entry in value]
    return value


def strict_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
