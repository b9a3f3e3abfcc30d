"""A run's output folder, read back: results.json, samples, the checkpoints of a training run.

Arrives: names of folders, local or in an object store.  Leaves: `Run`s.  It deliberately does not know what a metric means.
"""

import json
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

from miron_jax.definitions.rules import printed
from miron_jax.errors import InputError
from miron_jax.evaluation.records import Earlier
from miron_jax.files.readers import JsonObject, parse_json
from miron_jax.files.store import Store
from miron_jax.report.output import PARTIAL, RESULTS, SAMPLES, STEP
from miron_jax.report.results import SCHEMA
from miron_jax.runtime.journal import FOLDER as JOURNAL
from miron_jax.task_kinds.interface import Source

CHOSEN_IF_NO_MAIN = ("accuracy", "greedy_exact", "em", "bits_per_char")
FINISH = "run the same eval again to finish it"


@dataclass(frozen=True, slots=True)
class Run:
    """A run, or one checkpoint of a training run."""

    label: str  # of its folder, distinct among the runs that were read together
    store: Store
    below: str  # folder of the checkpoint in the store; ""
    results: JsonObject
    unfinished: str = ""  # a sentence where only some checkpoints are scored

    @property
    def folder(self) -> str:
        return f"{self.store.name}/{self.below}" if self.below else self.store.name

    @property
    def tasks(self) -> JsonObject:
        return self.results["tasks"]

    @property
    def step(self) -> int | None:
        return self.results.get("step")

    def path_of(self, name: str) -> str:
        """A file of the run, as its store names it."""
        return f"{self.below}/{name}" if self.below else name

    def samples(self, task: str) -> list[JsonObject]:
        """The samples of a task, in its order.  Raises InputError."""
        name = self.path_of(f"{SAMPLES}/{task}.jsonl")
        lines: list[bytes] = []
        try:
            lines = self.store.get(name).splitlines()
            return [_mapping(parse_json(line)) for line in lines]
        except FileNotFoundError:
            raise InputError(
                f"{self.store.name}/{name} is missing: copy the whole folder of the run, or {FINISH}"
            ) from None
        except ValueError as error:
            line = next((i for i, line in enumerate(lines) if not _is_object(line)), 0) + 1
            raise InputError(
                f"{self.store.name}/{name}: line {line} is no JSON object ({error!s:.80}): copy the run's folder again"
            ) from None

    def steps(self) -> "dict[int, Run]":
        """The checkpoints of a training run by their step, in order; empty if this is none."""
        folders = {int(step): str(PurePosixPath(file).parent) for step, file in self.results.get("steps", {}).items()}
        return {
            step: Run(f"{self.label} step {step}", self.store, below, _results(self.store, below))
            for step, below in sorted(folders.items())
        }


@contextmanager
def readable(runs: Sequence[Run]) -> Iterator[None]:
    """Turns what results.json of another version lacks into InputError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        where = runs[0].folder if len(runs) == 1 else f"one of {', '.join(run.folder for run in runs)}"
        raise InputError(
            f"{where}: its results.json is none of this version ({type(error).__name__}: {error!s:.80}): run eval again, or "
            "read it with the version that wrote it"
        ) from error


def read_runs(names: Sequence[str]) -> list[Run]:
    """Raises InputError for a folder that is no run, or one of another schema."""
    stores = [Store(name.rstrip("/") or name) for name in names]
    last = [PurePosixPath(store.name).name for store in stores]
    labels = [name if last.count(name) == 1 else store.name for name, store in zip(last, stores, strict=True)]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InputError(f"{twice} is named twice: name folders of different runs")
    return [_read(store, label) for store, label in zip(stores, labels, strict=True)]


def main_of(task: JsonObject) -> str:
    """The metric that stands for a task."""
    main = task.get("main")
    return main or next(
        (name for name in CHOSEN_IF_NO_MAIN if name in task["metrics"]), next(iter(task["metrics"]), "")
    )


def earlier_of(run: Run, tasks: Collection[str]) -> dict[str, Earlier]:
    """The main metric of every example of those `tasks` that the run has.  Raises InputError."""
    found = {}
    for name in [name for name in run.tasks if name in tasks]:
        samples, main = run.samples(name), main_of(run.tasks[name])
        values = {own["id"]: own["metrics"].get(main) for own in samples}
        known = {i: math.nan if value is None else float(value) for i, value in values.items()}
        found[name] = Earlier(known, {own["id"]: own.get("prompt_sha256", "") for own in samples})
    return found


def check_same_tasks(run: Run, sources: Sequence[Source]) -> None:
    """Raises InputError for a task that the earlier run scored on other data, by other rules or another metric."""
    for source in sources:
        task, entry = source.task, run.tasks.get(source.task.name)
        if entry is None:
            continue
        rules = json.loads(json.dumps(printed(task.profile)))
        other = next(
            (key for key, value in rules.items() if key != "max_length" and entry["profile"].get(key) != value), None
        )
        if entry["data"].get("git_blob_sha1") != source.data.git_blob_sha1:
            why = "on other data"
        elif other is not None:
            why = f"by another rule {other}: {entry['profile'].get(other)!r} instead of {rules[other]!r}"
        elif entry.get("main") != task.main:
            why = f"by {entry.get('main')} instead of {task.main}"
        else:
            continue
        raise InputError(f"--against={run.folder} scored {task.name} {why}: name a run by the same rules")


def _read(store: Store, label: str) -> Run:
    names = store.names()
    if RESULTS in names:
        return Run(label, store, "", _results(store, ""))
    steps = [name for name in names if name.startswith(STEP) and store.has(f"{name}/{RESULTS}")]
    if steps:
        by_step = {name: _results(store, name) for name in steps}
        last = max(by_step, key=lambda name: by_step[name]["step"])
        files = {str(results["step"]): f"{name}/{RESULTS}" for name, results in by_step.items()}
        done = f"{label} is unfinished: of its checkpoints {len(steps)} are scored, and only those count; {FINISH}"
        return Run(label, store, last, {**by_step[last], "steps": files}, done)
    if {JOURNAL, PARTIAL} & set(names):
        raise InputError(f"{store.name} holds an unfinished run, without results yet: {FINISH}")
    raise InputError(f"{store.name} {_state(store, names)}: name the --output folder of a finished eval")


def _state(store: Store, names: Sequence[str]) -> str:
    """Why a folder is no run."""
    if names:
        return f"holds no {RESULTS}"
    if store.root.is_file():
        return "is a file"
    return "is empty" if store.root.is_dir() else "is not there"


def _results(store: Store, below: str) -> JsonObject:
    name = f"{below}/{RESULTS}" if below else RESULTS
    try:
        results = _mapping(parse_json(store.get(name)))
        schema = results.get("schema")
        for part in ("tasks", "suites", "config"):
            _mapping(results[part])
        writer = results.get("environment", {}).get("packages", {}).get("miron-jax", "unknown")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"{store.name}/{name} is no results.json ({error!s:.120}): name the --output folder of a finished eval"
        ) from None
    if schema != SCHEMA:
        raise InputError(
            f"{store.name}/{name} has schema {schema!r}, expected {SCHEMA}: read it with the version that wrote it, "
            f"{writer}, or run eval again"
        )
    return results


def _mapping(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__}, expected an object")
    return value


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except ValueError:
        return False
