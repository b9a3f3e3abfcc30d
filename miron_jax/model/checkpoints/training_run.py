"""Checkpoints in the folder of a training run.

Arrives: a folder that holds a folder for each step, and a selection of steps.  Leaves: steps with
their folders in order of training, and the weights of one.  It deliberately does not know what is
scored.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Self

from jax.typing import DTypeLike

from miron_jax.errors import InputError, some_of
from miron_jax.files.regular import open_regular
from miron_jax.model.checkpoints.array_tree import is_array_tree, is_temporary, library_of
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_files import has_tensors
from miron_jax.model.checkpoints.hf_reader import Put, load_hf, on_default_device
from miron_jax.model.checkpoints.plausible import check_finite
from miron_jax.model.checkpoints.remote import is_remote, seen_anew
from miron_jax.model.checkpoints.step_names import step_of
from miron_jax.model.checkpoints.unlike_trainers import unlike_trainer
from miron_jax.model.checkpoints.versions import VANISHED, FolderVersion, version_of
from miron_jax.model.families.family import KnownModel
from miron_jax.model.families.family_model import FamilyModel
from miron_jax.runtime.devices import Tree
from miron_jax.runtime.progress import SILENT, Progress

_MSGPACK_MAPS = bytes([*range(0x80, 0x90), 0xDE, 0xDF])  # first byte of a map in msgpack


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights to score."""

    step: int | None  # step of its training run; None: a model without steps, or an average
    folder: Path | None  # None: the weights are not read from files
    fingerprint: str | None = None  # of its files when they were read, or found
    version: str = ""  # of the files that its weights are read from (versions.py)
    shared: tuple[Path, ...] = ()  # files outside the folder that its score depends on
    average: str = ""  # the rule of --average, if its weights are an average
    averaged: tuple["Checkpoint", ...] = ()  # the steps that this is an average of

    @classmethod
    def at(cls, step: int | None, folder: Path, shared: Iterable[Path] = ()) -> Self:
        """The checkpoint with the version that its files have now."""
        version = version_of(folder, shared)
        return cls(step, folder, version.fingerprint, version.weights, tuple(shared))

    @property
    def title(self) -> str:
        if self.averaged:
            return f"average {self.average} of steps {some_of(self.averaged_steps, 8)}"
        return f"step {self.step}"

    @property
    def averaged_steps(self) -> list[int]:
        return [part.step for part in self.averaged if part.step is not None]

    def with_versions(self, versions: Sequence[FolderVersion]) -> "Checkpoint":
        """The checkpoint with the versions that were read, one for each step of an average."""
        if not self.averaged:
            [version] = versions
            return replace(self, fingerprint=version.fingerprint, version=version.weights)
        steps = tuple(
            part.with_versions([version])
            for part, version in zip(self.averaged, versions, strict=True)
        )
        return Checkpoint.average_of(self.average, steps)

    @classmethod
    def average_of(cls, rule: str, steps: tuple["Checkpoint", ...]) -> "Checkpoint":
        """The average of steps by a rule of --average."""
        read = [(part.step, part.fingerprint) for part in steps]
        fingerprint = blake2b(repr((rule, read)).encode(), digest_size=16).hexdigest()
        assert steps[-1].folder is not None
        return cls(None, steps[-1].folder.parent, fingerprint, average=rule, averaged=steps)

    def is_there(self) -> bool:
        """Whether its weights have not been removed since they were found."""
        if self.averaged:
            return all(part.is_there() for part in self.averaged)
        if self.folder is None or not self.version:
            return True
        return version_of(self.folder).weights != ""


def training_steps(folder: Path, params_key: str | None = None) -> list[tuple[int, Path]]:
    """(step, folder) of every finished checkpoint in a folder, or in its `steps` or `checkpoints`,
    in order of training.

    `params_key` may begin with the name of an Orbax item.  Raises InputError if two folders have
    the same step.
    """
    folder = seen_anew(folder)
    for parent in (folder, folder / "steps", folder / "checkpoints"):
        steps: list[tuple[int, Path]] = []
        for path in _entries(parent):
            step = step_of(path.name)
            if step is not None and _is_checkpoint(path, params_key):
                steps.append((step, path))
        steps.sort(key=itemgetter(0))
        for (step, first), (following, second) in pairwise(steps):
            if step == following:
                raise InputError(
                    f"{parent}: {first.name} and {second.name} are the same step; rename or remove "
                    "one"
                )
        if steps:
            return steps
    return []


def pick_steps(
    steps: list[tuple[int, Path]], selection: str | None, folder: Path, strict: bool = True
) -> list[tuple[int, Path]]:
    """The steps that --steps selects: `latest`, a list such as 1000,2000, or first:last:stride, any
    of which may be empty; None selects all.

    With `strict`, raises InputError if a step of a list is missing or nothing is selected.
    """
    if selection is None:
        return steps
    if selection == "latest":
        return steps[-1:]
    available = [step for step, _ in steps]
    if ":" in selection:
        first, last, stride = (
            int(part) if part else None for part in [*selection.split(":"), ""][:3]
        )
        start = available[0] if first is None else first
        end = available[-1] if last is None else last
        within = range(start, end + 1, abs(stride or 1))
        selected = {*filter(within.__contains__, available)}
        missing: list[int] = []
    else:
        selected = set(map(int, selection.split(",")))
        missing = sorted(selected - set(available))
    picked = [(step, path) for step, path in steps if step in selected]
    if strict and (missing or not picked):
        lacks = f"no step {missing[0]}" if missing else "none of these steps"
        raise InputError(
            f"--steps={selection}: {folder} has {lacks}, expected some of "
            f"{some_of(available, 8)}; name steps that are there"
        )
    return picked


def load_step(
    folder: Path,
    config: KnownModel,
    dtype: DTypeLike,
    param_map: str | None = None,
    put: Put = on_default_device,
    params_key: str | None = None,
    progress: Progress = SILENT,
) -> Tree:
    """Weights of a model from a Hugging Face folder, or from a step that Orbax, levanter or EasyDeL
    wrote; `put` copies each leaf to its devices.

    Raises InputError for weights that are damaged, not finite, or of another model than `config`.
    """
    trainer = param_map
    if is_array_tree(folder):
        trainer = library_of(folder)
    if trainer is not None and not isinstance(config, FamilyModel):
        for other in unlike_trainer(trainer, config):
            progress.say(
                f"{folder}: {trainer} {other}; scores follow config.json, and docs/checkpoints.md "
                "says what to write there to score as it trains"
            )
    if is_orbax(folder, params_key):
        from miron_jax.model.checkpoints.orbax_reader import load_orbax, load_tree

        if isinstance(config, FamilyModel):
            tree = config.shapes(dtype)
            state = load_tree(folder, tree, param_map, params_key, put, progress)
        else:
            state = load_orbax(folder, config, dtype, param_map, put, params_key, progress)
        return check_finite(folder, state)
    for flag, value in (
        ("param_map", param_map),
        ("params_key", None if is_array_tree(folder) else params_key),
    ):
        if value is not None:
            raise InputError(
                f"--{flag} names the arrays of an Orbax checkpoint, but the folder {folder} is "
                "none; leave the flag out"
            )
    if (folder / "config.json").is_file() and from_hf_config(folder) != config:
        raise InputError(
            f"{folder / 'config.json'}: another model than that of the run's other steps, expected "
            "the same; score it by itself"
        )
    return check_finite(folder, load_hf(folder, dtype, put, config, params_key).state)


def check_no_flax_files(place: Path) -> None:
    """Raises InputError for a run, or a file of one, that flax.training.checkpoints wrote without
    Orbax: a msgpack file a step."""
    if is_remote(place):
        return
    paths = [place] if place.is_file() else sorted(_entries(place))
    for path in paths:
        step = step_of(path.name)
        if step is None or not path.is_file():
            continue
        with open_regular(path) as file:
            first = file.read(1)
        if not first or first not in _MSGPACK_MAPS:
            continue
        run = path.absolute().parent
        target = run.with_name(f"{run.name}-orbax")
        code = (
            "from flax.training import checkpoints; import orbax.checkpoint as ocp; "
            f"ocp.PyTreeCheckpointer().save({str(target / str(step))!r}, "
            f"checkpoints.restore_checkpoint({str(path.absolute())!r}, None))"
        )
        raise InputError(
            f"{path}: is a file of msgpack, as flax.training.checkpoints writes a step without "
            f"Orbax, expected an Orbax checkpoint: save each step again, python -c "
            f"{shlex.quote(code)}, and name {target}"
        )


def _entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing if there is none, or no longer."""
    try:
        return [*folder.iterdir()] if folder.is_dir() else []
    except FileNotFoundError:
        return []


def _is_checkpoint(folder: Path, params_key: str | None) -> bool:
    try:
        if not folder.is_dir():
            return False
        if is_array_tree(folder):
            return not is_temporary(folder)
        if folder.name.startswith("run"):
            return False
        return has_tensors(folder) or is_orbax(folder, params_key)
    except OSError as error:
        if error.errno in VANISHED:
            return False
        raise


def is_orbax(folder: Path, params_key: str | None = None) -> bool:
    if has_tensors(folder) or is_array_tree(folder):
        return False
    from miron_jax.model.checkpoints.orbax_layout import is_checkpoint

    return is_checkpoint(folder, params_key)
