"""A run's output folder, read back: results.json, samples, the checkpoints of a training run.

Arrives: names of folders, local or in an object store.  Leaves: `Run`s.  It deliberately does not
know what a metric means.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import NamedTuple, TypeVar

import orjson

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, parse_json
from miron_jax.files.store import Store
from miron_jax.results.document import SCHEMA, example_of, run_of, writer_of
from miron_jax.results.output import step_folders
from miron_jax.results.records import RunResult, TaskResult
from miron_jax.results.samples import ExampleResult
from miron_jax.results.whole import (
    PARTIAL_FOLDER,
    RESULTS,
    has_results,
    joined,
    pending,
    sample_content,
    sample_name,
)
from miron_jax.runtime.journal import FOLDER as JOURNAL

WAITS = (0.0, 0.1, 0.4)  # seconds until a run that changes is read again
T = TypeVar("T")
FINISH = "run the same eval again to finish it"


class Earlier(NamedTuple):
    """What an earlier run found for one task."""

    values: Mapping[int, float]  # example's id -> its main metric; NaN: none
    prompts: Mapping[int, str]  # -> digest of its prompt


@dataclass(frozen=True, slots=True)
class Run:
    """A run, or one checkpoint of a training run."""

    label: str  # of its folder, distinct among the runs that were read together
    store: Store
    below: str  # folder of the checkpoint in the store; ""
    result: RunResult
    unfinished: str = ""  # a sentence where only some checkpoints are scored

    @property
    def folder(self) -> str:
        return "/".join(filter(None, (self.store.name, self.below)))

    @property
    def tasks(self) -> Mapping[str, TaskResult]:
        return self.result.tasks

    def path_of(self, name: str) -> str:
        """A file of the run, as its store names it."""
        return joined(self.below, name)

    def examples(self, task: str, with_texts: bool = True) -> Iterator[ExampleResult]:
        """The examples of a task, in its order.  Raises InputError.

        `with_texts`: False leaves out options, prompts and what was generated, which take most of
        the time and memory.
        """
        name = self.path_of(sample_name(task))
        lines = self._samples(task).splitlines()
        for number, line in enumerate(lines, 1):
            try:
                fields = _parsed(line)
                if not with_texts and isinstance(fields, dict):
                    for text in ("options", "prompt", "generated"):
                        fields.pop(text, None)
                example = example_of(fields)
            except ValueError as error:
                raise InputError(
                    f"{self.store.name}/{name}: line {number} is no sample ({error!s:.80}): copy "
                    "the run's folder again"
                ) from None
            yield example

    def earlier(self, tasks: Collection[str]) -> dict[str, Earlier]:
        """The main metric of every example of those `tasks` that the run has.  Raises
        InputError."""
        by_task = {}
        for name in self.tasks.keys() & tasks:
            values = {}
            prompts = {}
            for example in self.examples(name):
                values[example.id] = example.metrics.get(self.tasks[name].main_metric, math.nan)
                prompts[example.id] = example.digest
            by_task[name] = Earlier(values, prompts)
        return by_task

    def _samples(self, task: str) -> bytes:
        """The samples that the results are of.  Raises InputError."""
        name = self.path_of(sample_name(task))
        file = self.result.samples.get(task)
        try:
            if file is None:
                return self.store.get(name)
            content = sample_content(self.store, self.below, task, file)
            if content is not None:
                return content
            self.store.get(name)  # raises if there is none
            raise RunChanged(
                f"{self.store.name}/{name} is not the file that {RESULTS} names (its size or "
                f"digest is another), as it is damaged or being written: {FINISH}"
            )
        except FileNotFoundError:
            raise InputError(
                f"{self.store.name}/{name} is missing: copy the whole folder of the run, or "
                f"{FINISH}"
            ) from None
        except OSError as error:  # a damaged results.json names tasks that are no names of files
            raise InputError(
                f"{self.store.name}/{name:.80} cannot be read ({error.strerror:.80}): copy the "
                "whole folder of the run again"
            ) from None

    def damages(self) -> Iterator[str]:
        """A sentence for each sample file that is not as the results say, of all checkpoints."""
        for run in (self, *self.steps().values()):
            for task in run.tasks:
                try:
                    if task in run.result.samples:
                        run._samples(task)
                    else:
                        name = f"{run.folder}/{sample_name(task)}"
                        yield f"{name} has no digest: an older version wrote it"
                except InputError as error:
                    yield str(error)

    def steps(self) -> "dict[int, Run]":
        """The checkpoints of a training run by their step, in order; empty if this is none."""
        folders = {
            int(step): str(PurePosixPath(file).parent) for step, file in self.result.steps.items()
        }
        return {
            step: Run(f"{self.label} step {step}", self.store, below, _result(self.store, below))
            for step, below in sorted(folders.items())
        }


def _parsed(line: bytes) -> Json:
    """A line of a samples file.  Raises ValueError."""
    # answers of programs, and records of others, may hold integers of more than 64 bits
    if b'"programs"' in line or b'"meta"' in line:
        return parse_json(line)
    try:
        return orjson.loads(line)  # five times as fast
    except ValueError:
        return parse_json(line)  # reads half of a surrogate pair, as older versions wrote them


class RunChanged(InputError):
    """Samples are of other results than those that were read: another run may be writing them."""


def reading_again(action: Callable[[], T]) -> T:
    """The result of an action that reads runs, which begins again while one is being written."""
    for seconds in WAITS:
        try:
            return action()
        except RunChanged:
            time.sleep(seconds)
    return action()


def read_runs(names: Sequence[str]) -> list[Run]:
    """Raises InputError for a folder that is no run, or one of another schema."""
    stores = [Store(name.rstrip("/") or name) for name in names]
    labels = [PurePosixPath(store.name).name for store in stores]
    count = Counter(labels)
    for i, store in enumerate(stores):
        if count[labels[i]] > 1:
            labels[i] = store.name
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InputError(f"{twice} is named twice: name folders of different runs")
    return [*map(_read, stores, labels)]


def _read(store: Store, label: str) -> Run:
    names = store.names()
    if has_results(store, ""):
        return Run(label, store, "", _result(store, ""))
    if steps := step_folders(store):
        by_folder = {name: _result(store, name) for name in steps}
        last = max(by_folder, key=lambda name: by_folder[name].step or 0)
        files = {str(result.step): f"{name}/{RESULTS}" for name, result in by_folder.items()}
        done = (
            f"{label} is unfinished: of its checkpoints {len(steps)} are scored, and only those "
            f"count; {FINISH}"
        )
        return Run(label, store, last, replace(by_folder[last], steps=files), done)
    if {JOURNAL, PARTIAL_FOLDER} & set(names):
        raise InputError(f"{store.name} holds an unfinished run, without results yet: {FINISH}")
    raise InputError(
        f"{store.name} {_state(store, names)}: name the --output folder of a finished eval"
    )


def _state(store: Store, names: Sequence[str]) -> str:
    """Why a folder is no run."""
    if names:
        return f"holds no {RESULTS}"
    if store.root.is_file():
        return "is a file"
    if store.root.is_dir():
        return "is empty"
    return "is not there"


def _result(store: Store, below: str) -> RunResult:
    name = joined(below, RESULTS)
    try:
        if (result := pending(store, below)) is not None:
            return result
        document = parse_json(store.get(name))
        if not isinstance(document, dict):
            raise ValueError(f"{type(document).__name__}, expected an object")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{store.name}/{name} is no results.json ({error!s:.120}): name the --output folder of "
            f"a finished eval, or {FINISH}"
        ) from None
    if document.get("schema") != SCHEMA:
        raise InputError(
            f"{store.name}/{name} has schema {document.get('schema')!r}, expected {SCHEMA}: read "
            f"it with the version that wrote it, {writer_of(document)}, or run eval again"
        )
    try:
        return run_of(document)
    except ValueError as error:
        raise InputError(
            f"{store.name}/{name} is no results.json of this version ({error!s:.120}): run eval "
            f"again, or read it with the version that wrote it, {writer_of(document)}"
        ) from None
