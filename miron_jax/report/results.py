"""An Outcome -> results.json (schema 1) and one samples file a task.

Arrives: an Outcome and its RunConfig.  Leaves: files in the output folder, each whole or absent, results.json last.
It deliberately does not know how scores were made.  JSON is strict: what is not a finite number is null.
"""

import io
import json
import math
import os
import platform
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from miron_jax import __version__
from miron_jax.aggregate import (
    AnswerScores,
    AnyScores,
    ClozeScores,
    Estimate,
    Inputs,
    Outcome,
    ProgramScores,
    TaskScores,
    is_unscored,
    skipped,
    suite_composites,
    task_estimates,
    unanswered,
)
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.gaps import gaps
from miron_jax.journal import FOLDER
from miron_jax.metrics.answers import compared, normalize
from miron_jax.metrics.choices import PROPORTIONS
from miron_jax.model.training_run import Checkpoint
from miron_jax.programs import Verdict
from miron_jax.prompts import Prompt
from miron_jax.report.cloze import cloze_composites, cloze_entry, cloze_samples
from miron_jax.report.curves import draw_curves
from miron_jax.report.entries import estimate_entry, option_entry
from miron_jax.robustness import robustness
from miron_jax.scores import Score
from miron_jax.store import Store
from miron_jax.task import AnyTask, ClozeTask, DataState, Example, Problem, Suite

SCHEMA = 1
# These move no score
_NOT_IDENTITY = (
    "output", "resume", "token_budget", "sharding", "mesh", "steps", "watch", "watch_timeout", "tensorboard", "wandb",
)  # fmt: skip
RESULTS, SAMPLES = "results.json", "samples"
STEP = "step_"  # folders of the checkpoints of one training run
CURVES = "curves.svg"
PARTIAL = ".partial"  # what is being written; whole or absent elsewhere
_LEFT_BEHIND = {PARTIAL, SAMPLES, CURVES, FOLDER}  # by a run that was interrupted
_PACKAGES = ("jax", "jaxlib", "flax", "transformers", "tokenizers", "numpy")


def check_output(config: RunConfig) -> Store:
    """The output folder.  Refuses one that holds another run or cannot be written to, before anything is computed."""
    store = Store(config.output)
    try:
        _check_writable(store)
        entries = {name for name in store.names() if not name.startswith(".") or name == PARTIAL}
    except InputError:
        raise
    except Exception as error:  # every store has errors of its own
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        remedy = "install what its store needs, or name another folder" if store.is_remote else "name another folder"
        raise InputError(f"--output={store.name} cannot be written to ({reason:.200}): {remedy}") from None
    if not config.resume and entries:
        raise InputError(
            f"--output={store.name} is not empty, and --noresume asks for a fresh folder: name another one"
        )
    for step in sorted(entry for entry in entries if entry.startswith(STEP)):
        if store.has(f"{step}/{RESULTS}"):
            _check_same_run(config, store, step)
    if RESULTS in entries:
        _check_same_run(config, store)
    elif {entry for entry in entries if not entry.startswith(STEP)} - _LEFT_BEHIND:
        raise InputError(f"--output={store.name} is not empty and holds no {RESULTS}: name another folder")
    return store


def _check_writable(store: Store) -> None:
    if store.is_remote:
        probe = f".{uuid.uuid4().hex}"
        store.put(probe, b"")
        store.remove(probe)
        return
    folder = store.root
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise InputError(f"--output={folder}: {existing} is a file, expected a folder or a new name")
    with tempfile.TemporaryFile(dir=existing):
        pass


def _check_same_run(config: RunConfig, store: Store, below: str = "") -> None:
    where = "/".join(part for part in (store.name, below) if part)
    try:
        found = _results_in(store, below)
        before = {key: found["config"].get(key) for key in _identity(config)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"--output={where}: {RESULTS} cannot be read ({error}): name another folder") from None
    for key, now in _identity(config).items():
        if _resolved(before[key]) != _resolved(now):
            raise InputError(
                f"--output={where} holds another run: its {key} is {before[key]!r}, now it is {now!r}: name another folder"
            )


def _results_in(store: Store, below: str) -> dict[str, Any]:
    return json.loads(store.get(f"{below}/{RESULTS}" if below else RESULTS))


def _identity(config: RunConfig) -> dict[str, Any]:
    """What makes a run this run; where it writes and how much it runs at once do not."""
    return {key: value for key, value in config_entry(config).items() if key not in _NOT_IDENTITY}


def _resolved(value: Any) -> Any:
    """Paths by the place they lead to, so that a folder may be spelled in several ways."""
    if isinstance(value, list):
        return [_resolved(entry) for entry in value]
    return os.path.realpath(value) if isinstance(value, str) and os.path.exists(value) else value


def write_results(config: RunConfig, outcome: Outcome, wall_seconds: float, step: int | None = None) -> dict[str, Any]:
    """Write samples and results.json, which is returned: see `_write`.

    A checkpoint of several goes into a folder of its own; `write_top` puts the last one above them.
    """
    results = strict(results_of(config, outcome, wall_seconds))
    if step is not None:
        results["step"] = step

    def files() -> Iterator[tuple[str, bytes]]:
        for task in outcome.tasks:
            lines = "".join(f"{_dumps(strict(sample))}\n" for sample in samples(task))
            yield f"{task.source.task.name}.jsonl", lines.encode()

    _write(Store(config.output), "" if step is None else f"{STEP}{step}", files(), results)
    return results


def write_top(config: RunConfig, steps: Mapping[int, Mapping[str, Any]], wall_seconds: float) -> dict[str, Any]:
    """The last step's results and samples once more at the top, with `steps` naming all; `wall_seconds` is the command's."""
    store, last = Store(config.output), max(steps)
    results = {**steps[last], "steps": {str(step): f"{STEP}{step}/{RESULTS}" for step in sorted(steps)}}
    results["speed"] = {**results["speed"], "wall_seconds": wall_seconds}
    names = [f"{name}.jsonl" for name in results["tasks"]]
    _write(store, "", ((name, store.get(f"{STEP}{last}/{SAMPLES}/{name}")) for name in names), results)
    return results


def write_curves(config: RunConfig, steps: Mapping[int, Mapping[str, Any]]) -> str:
    """The picture of all steps beside them; where it is."""
    picture = io.BytesIO()
    draw_curves(steps, picture)
    Store(config.output).put(CURVES, picture.getvalue())
    return f"{config.output}/{CURVES}"


def steps_there(config: RunConfig) -> dict[int, dict[str, Any]]:
    """Results of the steps that lie in the output folder, which `check_output` has found to be of this run."""
    store = Store(config.output)
    names = [name for name in store.names() if name.startswith(STEP) and store.has(f"{name}/{RESULTS}")]
    every = [_results_in(store, name) for name in names]
    return {results["step"]: results for results in every}


def stored_results(config: RunConfig, checkpoint: Checkpoint, inputs: Inputs) -> dict[str, Any] | None:
    """What an earlier run of this configuration and this version made of the same checkpoint and data, or None."""
    store, below = Store(config.output), f"{STEP}{checkpoint.step}"
    if checkpoint.step is None or checkpoint.fingerprint is None or not store.has(f"{below}/{RESULTS}"):
        return None
    found = _results_in(store, below)  # check_output has read it before
    same = found.get("checkpoint", {}).get("fingerprint") == checkpoint.fingerprint
    data = {source.task.name: source.data._asdict() for source in inputs.sources}
    same &= data == {
        name: {key: task["data"][key] for key in DataState._fields} for name, task in found["tasks"].items()
    }
    same &= not found.get("unanswered")  # such a run has failed
    return found if same and found["environment"]["packages"]["miron-jax"] == __version__ else None


def _write(store: Store, below: str, files: Iterable[tuple[str, bytes]], results: Mapping[str, Any]) -> None:
    """Samples and results.json, instead of what was there; results.json last.  On a disk all is written aside first and put
    in place at once, so that a full one loses nothing; an object store has no rename."""
    told = (_dumps(results, indent=1) + "\n").encode()
    lead = f"{below}/" if below else ""
    if store.is_remote:
        store.remove(f"{lead}{RESULTS}")
        for name, data in files:
            store.put(f"{lead}{SAMPLES}/{name}", data)
        store.put(f"{lead}{RESULTS}", told)
        return
    folder = store.root / below
    partial = folder / PARTIAL
    shutil.rmtree(partial, ignore_errors=True)
    (partial / SAMPLES).mkdir(parents=True)
    try:
        for name, data in files:
            path = partial / SAMPLES / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (partial / RESULTS).write_bytes(told)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    (folder / RESULTS).unlink(missing_ok=True)
    if (folder / SAMPLES).exists():
        (folder / SAMPLES).rename(partial / "replaced")
    (partial / SAMPLES).rename(folder / SAMPLES)
    (partial / RESULTS).rename(folder / RESULTS)
    shutil.rmtree(partial)


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
        "checkpoint": {
            "folder": None if outcome.checkpoint.folder is None else str(outcome.checkpoint.folder),
            "fingerprint": outcome.checkpoint.fingerprint,
        },
    }


def samples(task: AnyScores) -> Iterator[dict[str, Any]]:
    """One record an example, in the suite's own order."""
    if isinstance(task, ClozeScores):
        return cloze_samples(task)
    if isinstance(task, ProgramScores):
        return _program_samples(task)
    return _answer_samples(task) if isinstance(task, AnswerScores) else _samples(task)


def _program_samples(task: ProgramScores) -> Iterator[dict[str, Any]]:
    columns = (task.problems, task.programs, task.verdicts, task.ceiling, task.examples)
    for i, (problem, programs, verdicts, ceiling, example) in enumerate(zip(*columns, strict=True)):
        yield {
            "id": i,
            "row": problem.row,
            "name": problem.name,
            "gold": None,
            "prediction": None,
            "correct": example.correct,
            "options": [],
            "generated": None,
            "programs": [
                {"text": text, "ended": verdict.ended, **({"answers": verdict.answers} if verdict.answers else {})}
                for text, verdict in zip(programs, verdicts, strict=True)
            ],
            "ceiling": ceiling.ended,
            "metrics": dict(example.metrics),
            **_published(problem),
            **({"reason": _why_unscored(_has_nan(verdicts))} if example.correct is None else {}),
        }


def _has_nan(verdicts: list[Verdict]) -> bool:
    return any(verdict.ended == "nan" for verdict in verdicts)


def _answer_samples(task: AnswerScores) -> Iterator[dict[str, Any]]:
    profile = task.source.task.profile
    for i, (prompt, example) in enumerate(zip(task.prompts, task.examples, strict=True)):
        sample = {
            "id": prompt.id,
            "row": prompt.row,
            **_category(prompt),
            **_robust(prompt, task.questions[i]),
            "gold": None,
            "prediction": None,
            "correct": example.correct,
            "options": [],
            "generated": task.generated[i],
            "ended": task.ended[i],
            "answer": compared(task.generated[i], profile),
            "accepted": list(task.questions[i].accepted),
            "metrics": dict(example.metrics),
            **_published(task.questions[i]),
        }
        yield (
            {**sample, "reason": _why_unscored(task.ended[i] == "nan", profile.match)}
            if is_unscored(example)
            else sample
        )


def _why_unscored(nan: bool, match: str = "") -> str:
    if nan:
        return "the model answers NaN"
    if match == "detox":
        return "J wants three classifiers, which are not here"
    return "the right answer is not published: it cannot be scored here"


def _published(example: Example | Problem | None) -> dict[str, Any]:
    """What names the record in a submission."""
    return {} if example is None or example.published is None else {"meta": dict(example.published["meta"])}


def _category(prompt: Prompt) -> dict[str, str]:
    return {} if prompt.category is None else {"category": prompt.category}


def _robust(prompt: Prompt, example: Example | None) -> dict[str, Any]:
    """What the robustness report groups it by, and how many worked examples it has kept."""
    found: dict[str, Any] = {} if prompt.num_shots is None else {"num_shots": prompt.num_shots}
    if example is not None and example.cluster is not None:
        found |= {"cluster": example.cluster, "swapped": example.swapped, "traits": dict(example.traits)}
    return found


def _samples(task: TaskScores) -> Iterator[dict[str, Any]]:
    chosen = task.source.task.kind != "language_modeling"
    of_row = {example.row: example for example in task.source.examples}
    for prompt, options, example in zip(task.prompts, task.options, task.examples, strict=True):
        sample = {
            "id": prompt.id,
            "row": prompt.row,
            **_category(prompt),
            **_robust(prompt, of_row.get(prompt.row)),
            "gold": prompt.gold,
            "prediction": example.prediction if chosen else None,
            "correct": example.correct,
            "options": [
                option_entry(prompt.contexts[i] + prompt.continuations[i], option) for i, option in enumerate(options)
            ],
            **({"neutral_logprobs": list(example.neutral_logprobs)} if example.neutral_logprobs else {}),
            "generated": None,
            "metrics": dict(example.metrics),
            **_published(of_row.get(prompt.row)),
        }
        if not all(map(math.isfinite, example.metrics.values())):
            sample["reason"] = _reason(options, chosen and prompt.gold is None)
        yield sample


def _reason(options: list[Score], hidden: bool) -> str:
    """Why a metric of an example is null."""
    if hidden or any(np.isnan(option.logprob).any() for option in options):
        return _why_unscored(any(np.isnan(option.logprob).any() for option in options))
    if any(np.isinf(option.logprob).any() for option in options):
        return "the model gives a token no probability at all"
    return "the gold option has no scored token"


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
    return json.loads(json.dumps(asdict(config)))  # tuples become lists, as they are in the file


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


def _dumps(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
