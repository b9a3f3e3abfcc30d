"""Output folders of runs that never ran: results.json and samples as eval writes them, from made-up scores."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from miron_jax.results.document import plain
from miron_jax.statistics.estimate import estimate

PROFILE = {
    "protocol": "made up", "num_fewshot": 5, "categories": "pooled", "bos": "always", "bos_token": "declared",
    "max_length": 512,
}  # fmt: skip

# Texts that would do something if a browser took them for HTML, or a screen for commands.
NASTY = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>",
    '"><b>bold</b>', "{{ 7 * 7 }}", "<!--", "Слава! Ґанок; שלום \u202eevil\u202c 👩\u200d🚀",
    "control \x00\x07\x1b[31m \x7f",
)  # fmt: skip

Samples = Sequence[dict[str, Any]]


def samples_of(
    correct: Sequence[float], bits: Sequence[float] | None = None, **columns: Sequence[Any]
) -> list[dict[str, Any]]:
    """One sample for each entry of `correct`; `columns`: further keys."""
    choice = {"logprob": -2.5, "num_tokens": 2, "token_logprobs": [-2.0, -0.5], "greedy": False}
    return [
        {
            "id": i, "row": i, "prompt": f"Question {i}?\nAnswer:", "prompt_sha256": f"{i:016x}",
            "gold": i % 2, "prediction": i % 2 if right else 1 - i % 2, "correct": bool(right),
            "options": [{"text": text, **choice} for text in (" yes", " no")], "generated": None,
            "metrics": {"accuracy": right, **({} if bits is None else {"bits_per_byte": bits[i]})},
            **{name: values[i] for name, values in columns.items()},
        }
        for i, right in enumerate(correct)
    ]  # fmt: skip


def task_of(samples: Samples, **more: Any) -> dict[str, Any]:
    """The task's part of results.json."""
    names = dict.fromkeys(name for sample in samples for name in sample["metrics"])
    columns = {name: [sample["metrics"].get(name) for sample in samples] for name in names}
    means = {
        name: estimate([float("nan") if value is None else value for value in column], name == "accuracy")
        for name, column in columns.items()
    }
    return {
        "n": len(samples), "metrics": plain(means), "groups": {},
        "baselines": {"random": 0.5, "human": None}, "human": [], "rescaled": None, "profile": PROFILE,
        "kind": "multiple_choice", "main": "accuracy", "section": None, "skipped": 0, "citation": "nobody",
        "data": {"file": "made_up.jsonl", "state": "as published", "git_blob_sha1": "a" * 40, "commit": None}, **more,
    }  # fmt: skip


def composite(value: float | None, weights: Mapping[str, float], half: float = 0.2, **more: Any) -> dict[str, Any]:
    """`half`: of its interval, twice its standard error."""
    ci95, stderr = (None, None) if value is None else ([value - half, value + half], half / 2)
    return {"value": value, "stderr": stderr, "ci95": ci95, "weights": weights, "missing": [], **more}


def write_run(
    folder: Path, samples: Mapping[str, Samples], composites: Mapping[str, Any] | None = None,
    of_task: Mapping[str, Any] | None = None, **more: Any,
) -> Path:  # fmt: skip
    """A run's folder.  `composites`: of the suite of the first task; `of_task`: further keys of every task."""
    suites = dict.fromkeys(name.partition("/")[0] for name in samples)
    results = {
        "schema": 1,
        "config": {"model": folder.name, "dtype": "float32", "limit": None},
        "environment": {"packages": {"miron-jax": "0.1.0"}, "device": "cpu", "platform": "cpu", "num_devices": 1},
        "tasks": {name: task_of(each, **(of_task or {})) for name, each in samples.items()},
        "suites": {
            suite: {"composites": {} if i or composites is None else composites, "missing_data": {}}
            for i, suite in enumerate(suites)
        },
        "speed": {
            "requests": 10, "plain_tokens": 100, "unique_tokens": 50, "padded_tokens": 60, "computed_tokens": 50,
            "programs": 1, "tokens_per_second": 10.0, "wall_seconds": 9.0, "device_seconds": 5.0, "compile_seconds": 1.0,
            "load_seconds": 1.0,
        },
        "self_check": {"seconds": 1.0, "largest": 1e-6, "tokens": 8, "tolerance": 1e-3},
        "checkpoint": {"tokenizer": "t", "weights": folder.name},
        **more,
    }  # fmt: skip
    for name, each in samples.items():
        path = folder / "samples" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(plain(sample))}\n" for sample in each))
    (folder / "results.json").write_text(json.dumps(plain(results)))
    return folder


@contextmanager
def changed(folder: Path) -> Iterator[dict[str, Any]]:
    """The folder's results, which are written again with what the caller changes."""
    path = folder / "results.json"
    results = json.loads(path.read_text())
    yield results
    path.write_text(json.dumps(results))


def write_training_run(folder: Path, runs: Mapping[int, Mapping[str, Samples]]) -> Path:
    """A training run: step -> samples of its tasks."""
    for step, samples in runs.items():
        write_run(folder / f"step_{step}", samples, step=step)
    write_run(folder, runs[max(runs)], step=max(runs), steps={str(step): f"step_{step}/results.json" for step in runs})
    return folder


def hostile_run(folder: Path) -> Path:
    """Texts that would do something if a browser took them for HTML, in every place that a run has."""
    samples = samples_of([1, 0] * 4, bits=[1.0] * 8, category=list(NASTY), prompt=list(NASTY), reason=list(NASTY))
    for sample, text in zip(samples, NASTY, strict=True):
        sample["options"][0]["text"] = text
        sample["generated"] = text
    data = {"file": NASTY[2], "state": NASTY[0], "git_blob_sha1": "a" * 40}
    of_task = {"data": data, "citation": NASTY[1], "profile": {**PROFILE, "prompt_string": NASTY[2]}}
    composites = {NASTY[0]: composite(0.5, {"own/x": 1.0}, missing=[NASTY[1]])}
    return write_run(folder, {"own/x": samples}, composites, of_task, config={"model": NASTY[0]})
