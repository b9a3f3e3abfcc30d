"""The output folder of a run: may it be resumed, and which results of earlier runs count.

Arrives: a RunConfig, the folder.  Leaves: the results of an earlier run of the same configuration,
a folder without what a killed run has left.  It deliberately does not know what the numbers mean,
nor how results are written.
"""

import os
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from miron_jax import __version__
from miron_jax.config import SETTINGS, RunConfig
from miron_jax.definitions.data_files import DataState
from miron_jax.errors import InputError
from miron_jax.files.claims import FOLDER as CLAIMS
from miron_jax.files.durable import PARTIAL_SUFFIX, names_in, remove
from miron_jax.files.places import is_url, local_path
from miron_jax.files.readers import Json, JsonObject, parse_json
from miron_jax.files.store import Store
from miron_jax.results.details import ProgramDetails
from miron_jax.results.document import (
    LATER_SETTINGS,
    config_json,
    each_leaf,
    strict_json,
)
from miron_jax.results.records import RunResult, TaskResult
from miron_jax.results.whole import (
    PARTIAL_FOLDER,
    RESULTS,
    SAMPLES,
    damaged_samples,
    has_results,
    joined,
    pending,
    result_in,
    settle,
)
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.journal import FOLDER as JOURNAL

STEP = "step_"  # folders of the checkpoints of one training run
AVERAGE = "average_"  # and of their averages
CURVES = "curves.svg"
# What a run was asked to write beside its results.
REQUESTS = "requests"
BYTE_LOSSES = "byte_losses"
LM_EVAL = "lm_eval"
NANOCHAT = "nanochat.csv"
_ASKED_FOR = (REQUESTS, BYTE_LOSSES, LM_EVAL, NANOCHAT)
PLAN = "plan.json"  # of plan --topology
# by a run cut short
_LEFT_BEHIND = {PARTIAL_FOLDER, SAMPLES, CURVES, JOURNAL, PLAN, *_ASKED_FOR}


WhyNot = Callable[[int], str | None]


def check_output(config: RunConfig, why_not_grown: WhyNot = lambda limit: "") -> Store:
    """The output folder.  Raises InputError if it holds another run or cannot be written to.

    `why_not_grown`: takes the smaller --limit of an earlier run, and says in some words, or none,
    why this run cannot go on from it; None: it can.
    """
    store = Store(config.output)
    try:
        _check_writable(store)
        entries = {
            name for name in store.names() if not name.startswith(".") or name == PARTIAL_FOLDER
        }
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
    steps = {entry for entry in entries if entry.startswith((STEP, AVERAGE))}
    is_output = bool({JOURNAL, SAMPLES, *steps} & entries)
    for step in sorted(steps):
        if store.has(f"{step}/{RESULTS}"):
            _check_same_run(config, store, why_not_grown, step, is_output)
    if RESULTS in entries:
        _check_same_run(config, store, why_not_grown, "", is_output)
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


def _check_same_run(
    config: RunConfig, store: Store, why_not: WhyNot, below: str, is_output: bool
) -> None:
    """`is_output`: the folder has more of a run, so that results of no whole JSON are damaged ones,
    which are written again."""
    folder = "/".join(filter(None, (store.name, below)))
    try:
        if is_output and _is_damaged(store, below):
            return
        earlier = result_in(store, below).config
    except (OSError, ValueError) as error:
        raise InputError(
            f"--output={folder}: {RESULTS} cannot be read ({error}): name another folder"
        ) from None
    for key, now in {**dict.fromkeys(LATER_SETTINGS), **_identity(config)}.items():
        if not SETTINGS[key].identity and key != "against":
            continue
        before = earlier.get(key)
        if _resolved(before) == _resolved(now):
            continue
        # until 2026-11-28 results left out a tokenizer that an Evaluator was given
        if key == "tokenizer" and before is None and str(now).startswith("given "):
            continue
        why: str | None = ""
        if key == "limit" and before is not None and (now is None or before < now):
            why = why_not(before)
        if why is not None:
            raise InputError(
                f"--output={folder} holds another run: its {key} is {before!r}, now it is {now!r}"
                f"{f', and {why}' if why else ''}: name another folder"
            )


def folder_of(step: int | None, average: str = "") -> str:
    """The folder of one checkpoint of several, or of an `average` of them, in the output folder."""
    if average:
        return f"{AVERAGE}{average.replace(':', '-')}"
    return "" if step is None else f"{STEP}{step}"


def mend_output(store: Store, below: str = "") -> list[str]:
    """Finish or remove what a killed run has left, and name what is damaged, which is scored again
    from the journal as far as that goes.  For the run that holds the lock, or the process that has
    claimed the checkpoint whose folder is `below`.  Raises OSError."""
    folders = [below]
    if not below:
        store.remove_below(CLAIMS)
        folders += [name for name in store.names() if name.startswith((STEP, AVERAGE))]
    _remove_partial_files(store, folders)
    lines: list[str] = []
    for below in folders:
        if done := settle(store, below):
            lines.append(f"{'/'.join(filter(None, (store.name, below)))}: {done}")
        if not store.has(joined(below, RESULTS)):
            continue
        if _is_damaged(store, below):
            damaged = [f"{store.name}/{joined(below, RESULTS)} is damaged"]
        else:
            reads = _is_last(store, below)
            damaged = damaged_samples(store, below, result_in(store, below), reads)
        lines += [f"{each}: it is written again, with the journal's scores" for each in damaged]
    return lines


def _remove_partial_files(store: Store, folders: Sequence[str]) -> None:
    """Remove files that killed runs were writing."""
    if store.is_remote:
        return
    for below in folders:
        for folder in (store.root / below, *_folders_asked_for(store.root / below)):
            for name in names_in(folder):
                is_hidden = name.startswith(".") and name != PARTIAL_FOLDER
                if is_hidden and name.endswith(PARTIAL_SUFFIX):
                    remove(folder / name)


def _folders_asked_for(folder: Path) -> Iterator[Path]:
    """The journal's folders, and those of files that a run was asked for."""
    for name in (JOURNAL, *_ASKED_FOR):
        for parent, _, _ in os.walk(folder / name):
            yield Path(parent)


def _is_damaged(store: Store, below: str) -> bool:
    """Whether results.json is empty, cut or no JSON, and no whole one is about to replace it.
    Raises OSError."""
    try:
        document = parse_json(store.get(joined(below, RESULTS)))
    except ValueError:
        return pending(store, below) is None
    return not isinstance(document, dict)


def leave_smaller_run(config: RunConfig, store: Store) -> None:
    """Remove what a run of a smaller --limit was asked for beside its results, and its results of
    steps: they would stand beside those of this run.  Its journal stays."""
    steps = [f"{name}/" for name in store.names() if name.startswith((STEP, AVERAGE))]
    for below in (*steps, ""):
        if not store.has(f"{below}{RESULTS}") or _is_damaged(store, below.rstrip("/")):
            continue
        if result_in(store, below.rstrip("/")).limit == config.limit:
            continue
        for name in _ASKED_FOR:
            store.remove_below(f"{below}{name}")
        if steps:
            store.remove(f"{below}{RESULTS}")


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


def steps_there(config: RunConfig) -> dict[int, RunResult]:
    """Results by step in the output folder, which `check_output` has checked; damaged ones are left
    out."""
    store = Store(config.output)
    results: dict[int, RunResult] = {}
    for name in step_folders(store):
        result = _whole_result(store, name)
        if result is not None and result.step is not None:
            results[result.step] = result
    return results


def step_folders(store: Store) -> list[str]:
    """Those with results."""
    names = store.names()
    return [name for name in names if name.startswith(STEP) and has_results(store, name)]


def _is_last(store: Store, below: str) -> bool:
    """Whether this is the last step's folder, whose samples `write_top` copies."""
    steps = [name for name in store.names() if name.startswith(STEP)]
    return below == max(steps, key=lambda name: (len(name), name), default="")


def _whole_result(store: Store, below: str) -> RunResult | None:
    """The results of a folder, if they and their samples are whole."""
    try:
        result = result_in(store, below)
    except ValueError:
        return None
    damaged = damaged_samples(store, below, result, reads=_is_last(store, below))
    return None if any(damaged) else result


def stored_result(
    config: RunConfig,
    below: str,
    fingerprint: str,
    data: Mapping[str, DataState],
    answers: Answers | None,
) -> RunResult | None:
    """The results of an earlier run of this version on the same checkpoint and data; None if there
    are none, or if a file of them is damaged.

    `below`: the checkpoint's folder.  `fingerprint`: of its files.  `answers`: of a user's own
    model, whose results count only if it gave the same.
    """
    store = Store(config.output)
    if not has_results(store, below):
        return None
    result = _whole_result(store, below)
    if result is None:
        return None
    weights = result.checkpoint
    is_same = (
        weights.fingerprint == fingerprint
        and _is_of(result, config, data)
        and not result.unanswered  # such a run has failed
        and result.environment.packages.get("miron-jax") == __version__
        and not any(_not_judged(task) for task in result.tasks.values())
    )
    if not is_same:
        return None
    if answers is not None and (weights.answers is None or answers.differ(weights.answers)):
        return None
    return result


def has_asked_for(config: RunConfig, below: str) -> bool:
    """Whether what a run is asked to write beside the results of a checkpoint is there."""
    wanted = {
        f"{REQUESTS}/manifest.json": config.save_requests,  # written last
        f"{below}/{BYTE_LOSSES}": config.save_byte_losses,
        f"{below}/{LM_EVAL}": config.results_format == "lm_eval",
        f"{below}/{NANOCHAT}": config.results_format == "nanochat",
    }
    store = Store(config.output)
    return all((store.root / name).exists() for name, is_wanted in wanted.items() if is_wanted)


def tag_of(config: RunConfig) -> str:
    """What processes share that may write to one output folder together."""
    entry = strict_json({"version": __version__, **_identity(config)})
    return blake2b(entry.encode(), digest_size=16).hexdigest()


def _not_judged(task: TaskResult) -> bool:
    return isinstance(task.details, ProgramDetails) and bool(task.details.not_judged)


def dropped_steps(
    config: RunConfig, data: Mapping[str, DataState], scored: Collection[int]
) -> dict[int, RunResult]:
    """Whole results of earlier commands, whose checkpoints the trainer has removed since, among
    the steps that --steps selects; beside the steps that are `scored`."""
    dropped: dict[int, RunResult] = {}
    for step, result in steps_there(config).items():
        folder = result.checkpoint.folder
        if step in scored or folder is None or not _is_of(result, config, data):
            continue
        if not is_url(folder) and not local_path(folder).exists():
            dropped[step] = result
    if not dropped or config.steps == "latest":
        return {}
    # imported here because it imports jax, which a report does not need
    from miron_jax.model.checkpoints.training_run import pick_steps

    steps = [(step, Path()) for step in sorted({*scored, *dropped})]
    selected = pick_steps(steps, config.steps, Path(), strict=False)
    return {step: dropped[step] for step, _ in selected if step in dropped}


def _is_of(result: RunResult, config: RunConfig, data: Mapping[str, DataState]) -> bool:
    """Whether results are of these data and labels and as many examples; --limit may have grown."""
    of_data = {
        name: (task.data.state, task.data.git_blob_sha1, task.data.commit, task.data.labels)
        for name, task in result.tasks.items()
    }
    return (
        of_data == {name: tuple(state) for name, state in data.items()}
        and result.limit == config.limit
    )
