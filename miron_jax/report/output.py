"""The output folder: which run it holds, and its files, each whole or absent, results.json last.

Arrives: an Outcome and its RunConfig.  Leaves: results.json, samples, curves.  It deliberately does not know what is
in them.
"""

import io
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from miron_jax import __version__
from miron_jax.config import SETTINGS, RunConfig
from miron_jax.definitions.data_files import DataState
from miron_jax.errors import InputError
from miron_jax.evaluation.records import (
    Inputs,
    Outcome,
)
from miron_jax.files.places import public
from miron_jax.files.readers import parse_json
from miron_jax.files.store import Store
from miron_jax.model.training_run import Checkpoint
from miron_jax.report.curves import draw_curves
from miron_jax.report.results import config_entry, results_of, strict, strict_json
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.journal import FOLDER

RESULTS, SAMPLES = "results.json", "samples"
STEP = "step_"  # folders of the checkpoints of one training run
CURVES = "curves.svg"
PARTIAL = ".partial"  # what is being written; whole or absent elsewhere
_LEFT_BEHIND = {PARTIAL, SAMPLES, CURVES, FOLDER}  # by a run that was interrupted


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
    return parse_json(store.get(f"{below}/{RESULTS}" if below else RESULTS))


def _identity(config: RunConfig) -> dict[str, Any]:
    """What makes a run this run; where it writes and how much it runs at once do not."""
    return {key: value for key, value in config_entry(config).items() if SETTINGS[key].identity}


def _resolved(value: Any) -> Any:
    """Paths by the place they lead to, so that a folder may be spelled in several ways."""
    if isinstance(value, list):
        return [_resolved(entry) for entry in value]
    if not isinstance(value, str):
        return value
    written_out = os.path.expanduser(value)
    return os.path.realpath(written_out) if os.path.exists(written_out) else value


def write_results(config: RunConfig, outcome: Outcome, wall_seconds: float, step: int | None = None) -> dict[str, Any]:
    """Write samples and results.json, which is returned: see `_write`.

    A checkpoint of several goes into a folder of its own; `write_top` puts the last one above them.
    """
    results = strict(results_of(config, outcome, wall_seconds))
    if step is not None:
        results["step"] = step

    def files() -> Iterator[tuple[str, bytes]]:
        for task in outcome.tasks:
            lines = "".join(f"{strict_json(strict(sample))}\n" for sample in task.samples())
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
    return f"{public(config.output)}/{CURVES}"


def steps_there(config: RunConfig) -> dict[int, dict[str, Any]]:
    """Results of the steps that lie in the output folder, which `check_output` has found to be of this run."""
    store = Store(config.output)
    names = [name for name in store.names() if name.startswith(STEP) and store.has(f"{name}/{RESULTS}")]
    every = [_results_in(store, name) for name in names]
    return {results["step"]: results for results in every}


def stored_results(
    config: RunConfig, checkpoint: Checkpoint, inputs: Inputs, answers: Answers | None = None
) -> dict[str, Any] | None:
    """What an earlier run of this configuration and this version made of the same checkpoint and data, or None; of a
    user's own model only where it answered the same."""
    store, below = Store(config.output), f"{STEP}{checkpoint.step}"
    if checkpoint.step is None or checkpoint.fingerprint is None or not store.has(f"{below}/{RESULTS}"):
        return None
    found = _results_in(store, below)  # check_output has read it before
    same = found.get("checkpoint", {}).get("fingerprint") == checkpoint.fingerprint
    if answers is not None:
        try:
            same &= not answers.differ(Answers.of_json(found["checkpoint"]["answers"]))
        except (KeyError, TypeError, ValueError):
            same = False
    data = {source.task.name: source.data._asdict() for source in inputs.sources}
    same &= data == {
        name: {key: task["data"].get(key) for key in DataState._fields} for name, task in found["tasks"].items()
    }
    same &= not found.get("unanswered")  # such a run has failed
    return found if same and found["environment"]["packages"]["miron-jax"] == __version__ else None


def _write(store: Store, below: str, files: Iterable[tuple[str, bytes]], results: Mapping[str, Any]) -> None:
    """Samples and results.json, instead of what was there; results.json last.  On a disk all is written aside first and put
    in place at once, so that a full one loses nothing; an object store has no rename."""
    told = (strict_json(results, indent=1) + "\n").encode()
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
