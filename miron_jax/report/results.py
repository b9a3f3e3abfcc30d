"""An Outcome -> results.json (schema 1) and one samples file a task.

Arrives: an Outcome and its RunConfig.  Leaves: files in the output folder, each whole or absent, results.json last.
It deliberately does not know how scores were made.  JSON is strict: what is not a finite number is null.
"""

import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from miron_jax import __version__
from miron_jax.aggregate import Estimate, Outcome, TaskScores, estimates, skipped, suite_composites
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.scores import Score
from miron_jax.task import Suite

SCHEMA = 1
RESULTS = "results.json"
_PACKAGES = ("jax", "jaxlib", "flax", "transformers", "tokenizers", "numpy")


def check_output(config: RunConfig) -> None:
    """Refuse a folder that holds another run, before anything is computed."""
    folder = Path(config.output)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--output={folder} is a file, expected a folder or a new name")
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"--output={folder}: {existing} cannot be written to: name a folder that can")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not config.resume:
        raise InputError(f"--output={folder} is not empty, and --noresume asks for a fresh folder: name another one")
    try:
        found = json.loads((folder / RESULTS).read_text())["config"]
    except FileNotFoundError:
        raise InputError(f"--output={folder} is not empty and holds no {RESULTS}: name another folder") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"--output={folder}: {RESULTS} cannot be read ({error}): name another folder") from None
    differing = sorted(key for key in {*found, *_config(config)} if found.get(key) != _config(config).get(key))
    if differing:
        key = differing[0]
        raise InputError(
            f"--output={folder} holds another run: its {key} is {found.get(key)!r}, now it is "
            f"{_config(config).get(key)!r}: name another folder"
        )


def write_results(config: RunConfig, outcome: Outcome, wall_seconds: float) -> dict[str, Any]:
    """Write samples, then results.json, which is returned."""
    folder = Path(config.output)
    results = _strict(results_of(config, outcome, wall_seconds))
    for task in outcome.tasks:
        path = folder / "samples" / f"{task.source.task.name}.jsonl"
        _write(path, "".join(f"{_dumps(_strict(sample))}\n" for sample in samples(task)))
    _write(folder / RESULTS, _dumps(results, indent=1) + "\n")
    return results


def results_of(config: RunConfig, outcome: Outcome, wall_seconds: float) -> dict[str, Any]:
    """The whole of results.json as a dict."""
    tasks = {task.source.task.name: _task(task, outcome, config.limit) for task in outcome.tasks}
    return {
        "schema": SCHEMA,
        "config": _config(config),
        "environment": _environment(),
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
        "self_check": asdict(outcome.check),
    }


def samples(task: TaskScores) -> Iterator[dict[str, Any]]:
    """One record an example, in the suite's own order."""
    chosen = task.source.task.kind != "language_modeling"
    for prompt, options, example in zip(task.prompts, task.options, task.examples, strict=True):
        sample = {
            "id": prompt.id,
            "row": prompt.row,
            "gold": prompt.gold,
            "prediction": example.prediction if chosen else None,
            "correct": example.correct,
            "options": [
                _option(prompt.contexts[i] if _differ(prompt.contexts) else "", prompt.continuations[i], option)
                for i, option in enumerate(options)
            ],
            "generated": None,
            "metrics": dict(example.metrics),
        }
        if not all(map(math.isfinite, example.metrics.values())):
            answers_nan = any(np.isnan(option.logprob).any() for option in options)
            sample["reason"] = "the model answers NaN" if answers_nan else "the gold option has no scored token"
        yield sample


def _differ(contexts: tuple[str, ...]) -> bool:
    return any(context != contexts[0] for context in contexts)


def _option(context: str, continuation: str, score: Score) -> dict[str, Any]:
    """A schema's options differ in their contexts: the last line of each tells them apart."""
    option = {
        "text": context.rsplit("\n", 1)[-1] + continuation,
        "logprob": float(score.logprob.sum(dtype=np.float64)) if len(score.logprob) else math.nan,
        "num_tokens": len(score.logprob),
        "token_logprobs": score.logprob.tolist(),
        "greedy": bool((score.rank == 0).all()),
    }
    return option if len(score.logprob) else {**option, "reason": "no scored token"}


def _task(task: TaskScores, outcome: Outcome, limit: int | None) -> dict[str, Any]:
    definition = task.source.task
    entry: dict[str, Any] = {
        "n": len(task.examples) - skipped(task),
        "metrics": {name: _estimate(found) for name, found in estimates(task).items()},
        "groups": {},
        "baselines": dict(definition.baselines),
        "profile": {**asdict(definition.profile), "bos_token": outcome.bos.how, "kind": definition.kind},
        "skipped": skipped(task),
        "tied": sum(example.tied for example in task.examples),
        "empty_span": sum(example.empty_span for example in task.examples),
        "truncated": task.truncated,
        "inexact_prefix": task.inexact_prefix,
        "beyond_trained_length": task.beyond_trained,
        "data": {"file": definition.file.path, **task.source.data._asdict()},
        "citation": definition.citation,
    }
    return entry if limit is None else {**entry, "limit": limit}


def _estimate(found: Estimate) -> dict[str, Any]:
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


def _composites(suite: Suite, outcome: Outcome) -> dict[str, Any]:
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
    return {
        "requests": totals.requests,
        "load_seconds": outcome.load_seconds,
        "unique_tokens": totals.unique_tokens,
        "padded_tokens": speed.batch_tokens,
        "plain_tokens": totals.plain_tokens,
        "programs": speed.programs,
        "compile_seconds": speed.compile_seconds,
        "device_seconds": speed.device_seconds,
        "wall_seconds": wall_seconds,
        "tokens_per_second": totals.unique_tokens / speed.device_seconds if speed.device_seconds else math.nan,
        "useful_flops": totals.useful_flops,
        "useful_flops_per_second": totals.useful_flops / speed.device_seconds if speed.device_seconds else math.nan,
        "share_of_peak": None,
    }


def _environment() -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "packages": {"miron-jax": __version__, **{name: version(name) for name in _PACKAGES}},
        "device": device.device_kind,
        "platform": device.platform,
        "num_devices": 1,
        "host": platform.processor() or platform.machine(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "matmul_precision": jax.config.jax_default_matmul_precision,
    }


def _config(config: RunConfig) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(config)))  # tuples become lists, as they are in the file


def _strict(value: Any) -> Any:
    """NaN and infinity become null, NumPy's numbers Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    return value


def _dumps(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)


def _write(path: Path, text: str) -> None:
    """The file appears under its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
