"""The document results.json, schema 1.

Arrives: an Outcome and its RunConfig.  Leaves: the document.  It deliberately does not know files or how scores are
computed.  JSON is strict: a number that is not finite is null.
"""

import json
import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version

import jax
import numpy as np

from miron_jax import __version__
from miron_jax.config import RunConfig
from miron_jax.definitions.records import AnyTask, Suite
from miron_jax.evaluation.composites import suite_composites
from miron_jax.evaluation.records import Outcome
from miron_jax.files.places import public
from miron_jax.files.readers import Json, JsonObject
from miron_jax.task_kinds.interface import Facts

SCHEMA = 1
_PACKAGES = ("jax", "jaxlib", "flax", "transformers", "tokenizers", "numpy")


def results_of(config: RunConfig, outcome: Outcome, wall_seconds: float) -> JsonObject:
    facts = Facts(config, outcome.length_limit, outcome.bos)
    tasks = {task.source.task.name: task.entry(facts) for task in outcome.tasks}
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
        "self_check": outcome.check.json(),
        "unanswered": sum(len(task.unanswered) for task in outcome.tasks),  # examples that the model answers with NaN
        **({} if outcome.decided is None else {"decided": dict(outcome.decided)}),
        "unverified": list(outcome.unverified),  # inputs without a checksum
        "checkpoint": {
            "folder": None if outcome.checkpoint.folder is None else str(outcome.checkpoint.folder),
            "fingerprint": outcome.checkpoint.fingerprint,
            "weights": outcome.weights,
            "commits": dict(outcome.commits),
            "tokenizer": outcome.tokenizer,
            "answers": outcome.answers,
            "implausible": list(outcome.implausible),
        },
    }


def _composites(suite: Suite[AnyTask], outcome: Outcome) -> JsonObject:
    return {
        name: {
            "value": composite.value,
            "stderr": estimate.stderr if estimate else None,
            "ci95": list(estimate.ci95) if estimate else None,
            "complete": composite.complete,
            "missing": list(composite.missing),
            "weights": dict(composite.weights),  # d value / d metric of each task
            **({"metric": composite.metric} if composite.metric else {}),
        }
        for name, (composite, estimate) in suite_composites(suite, outcome).items()
    }


def _speed(outcome: Outcome, wall_seconds: float) -> JsonObject:
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
        "computed_tokens": speed.computed_tokens,  # fewer than unique ones in a resumed run
        "tokens_per_second": speed.computed_tokens / speed.device_seconds if speed.device_seconds else math.nan,
        "useful_flops": totals.useful_flops,
        "useful_flops_per_second": totals.useful_flops * computed / speed.device_seconds if computed else math.nan,
        "share_of_peak": None,
    }


def environment() -> JsonObject:
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


def config_entry(config: RunConfig) -> JsonObject:
    """The configuration as JSON, without credentials or home folders in its paths."""
    document = json.loads(json.dumps(asdict(config)))
    return each_leaf(document, lambda leaf: public(leaf) if isinstance(leaf, str) else leaf)


def strict(value: Json) -> Json:
    """NaN and infinity as None, NumPy's numbers as Python's."""
    return each_leaf(value, _finite)


def _finite(leaf: Json) -> Json:
    leaf = leaf.item() if isinstance(leaf, np.generic) else leaf
    return None if isinstance(leaf, float) and not math.isfinite(leaf) else leaf


def each_leaf(value: Json, change: Callable[[Json], Json]) -> Json:
    """A value whose mappings and lists hold what `change` returns for each of their leaves."""
    if isinstance(value, Mapping):
        return {key: each_leaf(entry, change) for key, entry in value.items()}
    return [each_leaf(entry, change) for entry in value] if isinstance(value, list | tuple) else change(value)


def strict_json(value: Json, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
