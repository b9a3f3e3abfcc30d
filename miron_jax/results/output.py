"""The output folder of a run: may it be resumed, and how its files replace earlier ones.

Arrives: a RunConfig, `RunResult`s and `ExampleResult`s.  Leaves: files, or the results of an
earlier run of the same configuration.  It deliberately does not know what the numbers mean.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from miron_jax import __version__
from miron_jax.config import SETTINGS, RunConfig
from miron_jax.definitions.data_files import DataState
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, parse_json
from miron_jax.files.store import Store
from miron_jax.results.document import (
    config_json,
    each_leaf,
    example_json,
    run_json,
    run_of,
    strict_json,
)
from miron_jax.results.records import RunResult
from miron_jax.results.samples import ExamplesOf
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.journal import FOLDER as JOURNAL

RESULTS = "results.json"
SAMPLES = "samples"
STEP = "step_"  # folders of the checkpoints of one training run
CURVES = "curves.svg"
PARTIAL = ".partial"  # files while they are written
# What a run was asked to write beside its results.
REQUESTS = "requests"
BYTE_LOSSES = "byte_losses"
LM_EVAL = "lm_eval"
NANOCHAT = "nanochat.csv"
_ASKED_FOR = (REQUESTS, BYTE_LOSSES, LM_EVAL, NANOCHAT)
PLAN = "plan.json"  # of plan --topology
# by a run cut short
_LEFT_BEHIND = {PARTIAL, SAMPLES, CURVES, JOURNAL, PLAN, *_ASKED_FOR}


WhyNot = Callable[[int], str | None]


def check_output(config: RunConfig, why_not_grown: WhyNot = lambda limit: "") -> Store:
    """The output folder.  Raises InputError if it holds another run or cannot be written to.

    `why_not_grown`: takes the smaller --limit of an earlier run, and says in some words, or none,
    why this run cannot go on from it; None: it can.
    """
    store = Store(config.output)
    try:
        _check_writable(store)
        entries = {name for name in store.names() if not name.startswith(".") or name == PARTIAL}
    except InputError:
        raise
    except Exception as error:  # every store has its own errors
        reason = (
            getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        )
        remedy = "name another folder"
        if store.is_remote:
            remedy = f"install what its store needs, or {remedy}"
        raise InputError(
            f"--output={store.name} cannot be written to ({reason:.200}): {remedy}"
        ) from None
    if not config.resume and entries:
        raise InputError(
            f"--output={store.name} is not empty, and --noresume asks for a fresh folder: name "
            "another one"
        )
    steps = {entry for entry in entries if entry.startswith(STEP)}
    for step in sorted(steps):
        if store.has(f"{step}/{RESULTS}"):
            _check_same_run(config, store, why_not_grown, step)
    if RESULTS in entries:
        _check_same_run(config, store, why_not_grown)
    elif entries - steps - _LEFT_BEHIND:
        raise InputError(
            f"--output={store.name} is not empty and holds no {RESULTS}: name another folder"
        )
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
        raise InputError(
            f"--output={folder}: {existing} is a file, expected a folder or a new name"
        )
    with tempfile.TemporaryFile(dir=existing):
        pass


def _check_same_run(config: RunConfig, store: Store, why_not: WhyNot, below: str = "") -> None:
    folder = "/".join(filter(None, (store.name, below)))
    try:
        earlier = _result_in(store, below).config
    except (OSError, ValueError) as error:
        raise InputError(
            f"--output={folder}: {RESULTS} cannot be read ({error}): name another folder"
        ) from None
    for key, now in _identity(config).items():
        before = earlier.get(key)
        if _resolved(before) == _resolved(now):
            continue
        why: str | None = ""
        if key == "limit" and before is not None and (now is None or before < now):
            why = why_not(before)
        if why is not None:
            raise InputError(
                f"--output={folder} holds another run: its {key} is {before!r}, now it is {now!r}"
                f"{f', and {why}' if why else ''}: name another folder"
            )


def leave_smaller_run(config: RunConfig, store: Store) -> None:
    """Remove what a run of a smaller --limit was asked for beside its results, and its results of
    steps: they would stand beside those of this run.  Its journal stays."""
    steps = [f"{name}/" for name in store.names() if name.startswith(STEP)]
    for below in (*steps, ""):
        if not store.has(f"{below}{RESULTS}"):
            continue
        if _result_in(store, below.rstrip("/")).config.get("limit") == config.limit:
            continue
        for name in _ASKED_FOR:
            store.remove_below(f"{below}{name}")
        if steps:
            store.remove(f"{below}{RESULTS}")


def _result_in(store: Store, below: str) -> RunResult:
    """Raises OSError, ValueError."""
    return run_of(parse_json(store.get(joined(below, RESULTS))))


def joined(below: str, name: str) -> str:
    """A file in a folder of the store; "": at its top."""
    return f"{below}/{name}" if below else name


def _identity(config: RunConfig) -> JsonObject:
    """The settings that identify a run; its output folder and batch sizes do not."""
    entry = config_json(config)
    return {
        key: value
        for key, value in entry.items()
        # an earlier run's numbers decide which examples run
        if SETTINGS[key].identity or (config.is_sampled and key == "against")
    }


def _resolved(setting: Json) -> Json:
    """A setting with real paths in place of existing ones, so that spellings of one folder are
    equal."""

    def real_path(leaf: Json) -> Json:
        if isinstance(leaf, str) and os.path.exists(path := os.path.expanduser(leaf)):
            return os.path.realpath(path)
        return leaf

    return each_leaf(setting, real_path)


def write_run(
    store: Store,
    result: RunResult,
    examples: ExamplesOf,
    further: Iterable[tuple[str, bytes]] = (),
) -> None:
    """Write samples and results.json, of one checkpoint of several in a folder of its own.

    `examples`: of a task, by its name.  `further`: files that the run was asked to write beside
    them, written first.
    """

    def samples() -> Iterator[tuple[str, bytes]]:
        for task in result.tasks:
            lines = "".join(f"{strict_json(example_json(example))}\n" for example in examples(task))
            yield f"{task}.jsonl", lines.encode()

    below = "" if result.step is None else f"{STEP}{result.step}"
    for name, content in further:
        store.put(joined(below, name), content)
    _write(store, below, samples(), result)


def write_top(
    store: Store,
    steps: Mapping[int, RunResult],
    wall_seconds: float,
    further: Iterable[tuple[str, bytes]] = (),
) -> RunResult:
    """Write the last step's results and samples to the output folder too, with all `steps`;
    `wall_seconds`: of all."""
    last = steps[max(steps)]
    files = {str(step): f"{STEP}{step}/{RESULTS}" for step in sorted(steps)}
    result = replace(last, steps=files, speed=replace(last.speed, wall_seconds=wall_seconds))
    for name, content in further:
        store.put(name, content)
    names = [f"{task}.jsonl" for task in result.tasks]
    samples = ((name, store.get(f"{STEP}{last.step}/{SAMPLES}/{name}")) for name in names)
    _write(store, "", samples, result)
    return result


def steps_there(config: RunConfig) -> dict[int, RunResult]:
    """Results by step in the output folder, which `check_output` has checked."""
    store = Store(config.output)
    results = [_result_in(store, name) for name in step_folders(store)]
    return {result.step: result for result in results if result.step is not None}


def step_folders(store: Store) -> list[str]:
    """Those with results."""
    names = store.names()
    return [name for name in names if name.startswith(STEP) and store.has(f"{name}/{RESULTS}")]


def stored_result(
    config: RunConfig,
    step: int,
    fingerprint: str,
    data: Mapping[str, DataState],
    answers: Answers | None,
) -> RunResult | None:
    """The results of an earlier run of this version on the same checkpoint and data; None if there
    are none.

    `fingerprint`: of the checkpoint's files.  `answers`: of a user's own model, whose results count
    only if it gave the same.
    """
    store = Store(config.output)
    below = f"{STEP}{step}"
    if not store.has(f"{below}/{RESULTS}"):
        return None
    result = _result_in(store, below)  # check_output has read it before
    weights = result.checkpoint
    of_data = {
        name: (task.data.state, task.data.git_blob_sha1, task.data.commit)
        for name, task in result.tasks.items()
    }
    is_same = (
        weights.fingerprint == fingerprint
        and of_data == {name: tuple(state) for name, state in data.items()}
        and not result.unanswered  # such a run has failed
        and result.config.get("limit") == config.limit  # else it may have been grown
        and result.environment.packages.get("miron-jax") == __version__
    )
    if not is_same:
        return None
    if answers is not None and (weights.answers is None or answers.differ(weights.answers)):
        return None
    return result


def _write(
    store: Store, below: str, samples: Iterable[tuple[str, bytes]], result: RunResult
) -> None:
    """Replace samples, then results.json.

    On a disk all files are written aside first and then renamed, so that a full disk loses nothing;
    an object store has no rename.
    """
    document = (strict_json(run_json(result), indent=1) + "\n").encode()
    if store.is_remote:
        store.remove(joined(below, RESULTS))
        for name, content in samples:
            store.put(joined(below, f"{SAMPLES}/{name}"), content)
        store.put(joined(below, RESULTS), document)
        return
    folder = store.root / below
    partial = folder / PARTIAL
    shutil.rmtree(partial, ignore_errors=True)
    (partial / SAMPLES).mkdir(parents=True)
    try:
        for name, content in samples:
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
