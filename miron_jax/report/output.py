"""The output folder: the check that it belongs to this run, and its files, written atomically with results.json last.

Arrives: an Outcome and its RunConfig.  Leaves: results.json, samples, curves.  It deliberately does not know their
contents.
"""

import io
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping

from miron_jax import __version__
from miron_jax.config import SETTINGS, RunConfig
from miron_jax.definitions.data_files import DataState
from miron_jax.errors import InputError
from miron_jax.evaluation import saved_requests
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.files.places import public
from miron_jax.files.readers import Json, JsonObject, parse_json
from miron_jax.files.store import Store
from miron_jax.model.training_run import Checkpoint
from miron_jax.report import other_layouts
from miron_jax.report.curves import draw_curves
from miron_jax.report.other_layouts import other_layout
from miron_jax.report.results import config_entry, each_leaf, results_of, strict, strict_json
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.journal import FOLDER
from miron_jax.task_kinds.text import BYTE_LOSSES

RESULTS, SAMPLES = "results.json", "samples"
STEP = "step_"  # folders of the checkpoints of one training run
CURVES = "curves.svg"
PARTIAL = ".partial"  # files while they are written
_ASKED_FOR = {saved_requests.FOLDER, BYTE_LOSSES, other_layouts.FOLDER, other_layouts.CSV}
_LEFT_BEHIND = {PARTIAL, SAMPLES, CURVES, FOLDER, "plan.json", *_ASKED_FOR}  # by an interrupted run or plan --topology


def check_output(config: RunConfig) -> Store:
    """The output folder.  Raises InputError if it holds another run or cannot be written to."""
    store = Store(config.output)
    try:
        _check_writable(store)
        entries = {name for name in store.names() if not name.startswith(".") or name == PARTIAL}
    except InputError:
        raise
    except Exception as error:  # every store has its own errors
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
    folder = "/".join(part for part in (store.name, below) if part)
    try:
        earlier = _results_in(store, below)["config"]
        before = {key: earlier.get(key) for key in _identity(config)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"--output={folder}: {RESULTS} cannot be read ({error}): name another folder") from None
    for key, now in _identity(config).items():
        if _resolved(before[key]) != _resolved(now):
            raise InputError(
                f"--output={folder} holds another run: its {key} is {before[key]!r}, now it is {now!r}: name another folder"
            )


def _results_in(store: Store, below: str) -> JsonObject:
    return parse_json(store.get(f"{below}/{RESULTS}" if below else RESULTS))


def _identity(config: RunConfig) -> JsonObject:
    """The settings that identify a run; its output folder and batch sizes do not."""
    chooses = (
        config.until is not None or config.budget is not None
    )  # which examples run, by an earlier run's numbers too
    entry = config_entry(config)
    return {key: value for key, value in entry.items() if SETTINGS[key].identity or (chooses and key == "against")}


def _resolved(setting: Json) -> Json:
    """A setting with real paths in place of existing ones, so that spellings of one folder are equal."""

    def real_path(leaf: Json) -> Json:
        path = os.path.expanduser(leaf) if isinstance(leaf, str) else None
        return os.path.realpath(path) if path is not None and os.path.exists(path) else leaf

    return each_leaf(setting, real_path)


def write_results(config: RunConfig, outcome: Outcome, wall_seconds: float, step: int | None = None) -> JsonObject:
    """Write samples and results.json, and return the latter.  `step`: of one checkpoint of several, in its own folder."""
    results = strict(results_of(config, outcome, wall_seconds))
    if step is not None:
        results["step"] = step

    def files() -> Iterator[tuple[str, bytes]]:
        for task in outcome.tasks:
            lines = "".join(f"{strict_json(strict(sample))}\n" for sample in task.samples())
            yield f"{task.source.task.name}.jsonl", lines.encode()

    store, below = Store(config.output), "" if step is None else f"{STEP}{step}"
    for name, content in _further_files(config, outcome, results):
        store.put(f"{below}/{name}" if below else name, content)
    _write(store, below, files(), results)
    return results


def _further_files(config: RunConfig, outcome: Outcome, results: JsonObject) -> Iterator[tuple[str, bytes]]:
    """What the run was asked to write beside results.json and samples."""
    by_name = {task.source.task.name: task for task in outcome.tasks}
    for task in outcome.tasks:
        yield from task.further_files()
    if config.results_format is not None:
        yield from other_layout(config.results_format, results, lambda name: map(strict, by_name[name].samples()))


def write_top(config: RunConfig, steps: Mapping[int, JsonObject], wall_seconds: float) -> JsonObject:
    """Write the last step's results and samples to the output folder too, with all `steps`; `wall_seconds`: of all."""
    store, last = Store(config.output), max(steps)
    results = {**steps[last], "steps": {str(step): f"{STEP}{step}/{RESULTS}" for step in sorted(steps)}}
    results["speed"] = {**results["speed"], "wall_seconds": wall_seconds}
    names = [f"{name}.jsonl" for name in results["tasks"]]
    if config.results_format is not None:

        def samples(name: str) -> Iterator[JsonObject]:
            lines = store.get(f"{STEP}{last}/{SAMPLES}/{name}.jsonl").splitlines()
            return map(parse_json, lines)

        for name, content in other_layout(config.results_format, results, samples):
            store.put(name, content)
    _write(store, "", ((name, store.get(f"{STEP}{last}/{SAMPLES}/{name}")) for name in names), results)
    return results


def write_curves(config: RunConfig, steps: Mapping[int, JsonObject]) -> str:
    """Write the picture of all steps; returns its path."""
    picture = io.BytesIO()
    draw_curves(steps, picture)
    Store(config.output).put(CURVES, picture.getvalue())
    return f"{public(config.output)}/{CURVES}"


def steps_there(config: RunConfig) -> dict[int, JsonObject]:
    """Results by step in the output folder, which `check_output` has checked."""
    store = Store(config.output)
    names = [name for name in store.names() if name.startswith(STEP) and store.has(f"{name}/{RESULTS}")]
    return {results["step"]: results for results in (_results_in(store, name) for name in names)}


def stored_results(
    config: RunConfig, checkpoint: Checkpoint, inputs: Inputs, answers: Answers | None = None
) -> JsonObject | None:
    """The results of an earlier run of this version on the same checkpoint and data; None if there are none.

    Those of a user's own model count only if it gave the same `answers`.
    """
    store, below = Store(config.output), f"{STEP}{checkpoint.step}"
    if checkpoint.step is None or checkpoint.fingerprint is None or not store.has(f"{below}/{RESULTS}"):
        return None
    results = _results_in(store, below)  # check_output has read it before
    same = results.get("checkpoint", {}).get("fingerprint") == checkpoint.fingerprint
    if answers is not None:
        try:
            same &= not answers.differ(Answers.of_json(results["checkpoint"]["answers"]))
        except (KeyError, TypeError, ValueError):
            same = False
    data = {source.task.name: source.data._asdict() for source in inputs.sources}
    same &= data == {
        name: {key: task["data"].get(key) for key in DataState._fields} for name, task in results["tasks"].items()
    }
    same &= not results.get("unanswered")  # such a run has failed
    return results if same and results["environment"]["packages"]["miron-jax"] == __version__ else None


def _write(store: Store, below: str, files: Iterable[tuple[str, bytes]], results: JsonObject) -> None:
    """Replace samples, then results.json.

    On a disk all files are written aside first and then renamed, so that a full disk loses nothing; an object store has no
    rename.
    """
    document = (strict_json(results, indent=1) + "\n").encode()
    lead = f"{below}/" if below else ""
    if store.is_remote:
        store.remove(f"{lead}{RESULTS}")
        for name, content in files:
            store.put(f"{lead}{SAMPLES}/{name}", content)
        store.put(f"{lead}{RESULTS}", document)
        return
    folder = store.root / below
    partial = folder / PARTIAL
    shutil.rmtree(partial, ignore_errors=True)
    (partial / SAMPLES).mkdir(parents=True)
    try:
        for name, content in files:
            path = partial / SAMPLES / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (partial / RESULTS).write_bytes(document)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    (folder / RESULTS).unlink(missing_ok=True)
    if (folder / SAMPLES).exists():
        (folder / SAMPLES).rename(partial / "replaced")
    (partial / SAMPLES).rename(folder / SAMPLES)
    (partial / RESULTS).rename(folder / RESULTS)
    shutil.rmtree(partial)
