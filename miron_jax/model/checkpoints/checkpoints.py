"""The model that `--model` names, and its checkpoints to score, one after the other.

Arrives: a RunConfig.  Leaves: an `Architecture`, and `Round`s of checkpoints; with --watch, new
ones are awaited.  It deliberately does not know what is scored, nor how weights are read
(loading.py).
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import jax.numpy as jnp
from flax import nnx

from miron_jax.config import RunConfig
from miron_jax.errors import InputError, some_of
from miron_jax.files.places import is_url, local_path, public
from miron_jax.files.store import SEEN_SECONDS
from miron_jax.model import demo
from miron_jax.model.checkpoints.averages import average_of, still_there
from miron_jax.model.checkpoints.hf_config import eos_token_ids, from_hf_config
from miron_jax.model.checkpoints.hf_files import has_tensors
from miron_jax.model.checkpoints.hf_reader import from_hub, resolve_model
from miron_jax.model.checkpoints.maxtext_settings import is_maxtext_config, maxtext_config
from miron_jax.model.checkpoints.remote import folder_at, local_config_files
from miron_jax.model.checkpoints.training_run import (
    Checkpoint,
    check_no_flax_files,
    is_orbax,
    pick_steps,
    training_steps,
)
from miron_jax.model.decoder.decoder import abstract
from miron_jax.model.families.family import KnownModel
from miron_jax.model.families.family_model import FamilyModel
from miron_jax.model.network import Network
from miron_jax.model.own import OwnModel, code_fingerprint, is_factory, make_own_model, source_file
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.progress import Progress
from miron_jax.runtime.timeline import spent_on
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer, taken_from, unlike_transformers

POLL_SECONDS = 10.0  # between two looks at a watched run


class Architecture(NamedTuple):
    """What a model computes, without its weights."""

    config: KnownModel | OwnModel
    network: nnx.GraphDef | Network  # of a Decoder, or the model itself
    tokenizer: Tokenizer
    eos_ids: tuple[int, ...]
    # fingerprint of the code of a user's own model; None: config is complete
    source: str | None = None


class ModelFiles(NamedTuple):
    """The parts of a model."""

    # holds config.json and tokenizer, or is the folder of a training run; None: own_model
    config_folder: Path | None
    # a checkpoint, or the folder of a training run; None: the factory makes them
    weights: Path | None
    own_model: OwnModel | None  # what a factory returns


@dataclass(frozen=True, slots=True)
class Round:
    """The new checkpoints of one look at a training run, and what has become of them."""

    checkpoints: list[Checkpoint]
    # which errors of one checkpoint leave it out instead of ending the run: none, those of one that
    # has been removed, or all
    excused: Literal["none", "gone", "all"] = "none"
    # whether this process may score a checkpoint, asked when its turn comes
    take: Callable[[Checkpoint], bool] = lambda checkpoint: True
    is_one: bool = False  # at most one is taken, as later ones may be there then
    read: list[Checkpoint] = field(default_factory=list)  # with the versions that were read
    failures: list[tuple[Checkpoint, InputError]] = field(default_factory=list)

    def taken(self) -> Iterator[Checkpoint]:
        """Those that this process scores."""
        return itertools.islice(filter(self.take, self.checkpoints), 1 if self.is_one else None)

    def fail(self, checkpoint: Checkpoint, error: InputError) -> None:
        """Collect the error of a checkpoint.  Raises it if it is not excused."""
        if self.excused == "none" or (self.excused == "gone" and checkpoint.is_there()):
            raise error
        self.failures.append((checkpoint, error))


@spent_on("load")
def find_model(config: RunConfig, weights: bool = True) -> ModelFiles:
    """Find the model that --model names, and download it from the hub if needed; without `weights`
    only its small files.

    Raises InputError for a name that is no model.
    """
    if is_factory(config.model):
        folder = None
        if config.checkpoint is None:
            check_without_checkpoint(config, "expected --checkpoint beside it: name one")
        else:
            folder = checkpoint_folder(config.checkpoint)
        return ModelFiles(None, folder, make_own_model(config.model))
    if config.checkpoint is not None:
        raise InputError(
            f"--checkpoint={config.checkpoint} holds the weights of a model of your own, but "
            f"--model={config.model} names no factory (package.module:factory): name the "
            "checkpoint's folder with --model"
        )
    if is_url(config.model):
        folder = folder_at(config.model, "--model")
    elif config.model == demo.NAME:
        demo.check()
        folder = demo.FOLDER
    else:
        folder = resolve_model(config.model, weights=weights)
    return ModelFiles(folder, folder, None)


def check_without_checkpoint(config: RunConfig, remedy: str) -> None:
    """Raises InputError for a setting of checkpoints that would not run, as the weights come from
    elsewhere."""
    does = {
        "checkpoint": "names weights",
        "param_map": "says where an Orbax checkpoint holds the weights",
        "params_key": "says where an Orbax checkpoint holds the weights",
        "steps": "selects checkpoints of a training run",
        "watch": "waits for checkpoints of a training run",
        "average": "is of checkpoints of a training run",
    }
    # MaxText's own config says what a model computes, whoever gives its weights
    if is_maxtext_config(config.param_map):
        del does["param_map"]
    for name in does:
        if getattr(config, name):
            raise InputError(f"--{name} {does[name]}, {remedy}, or leave the flag out")


def checkpoint_folder(checkpoint: str) -> Path:
    """The folder that --checkpoint names.  Raises InputError if it is not there."""
    remote = is_url(checkpoint)
    folder = folder_at(checkpoint, "--checkpoint") if remote else local_path(checkpoint)
    if not folder.is_dir():
        check_no_flax_files(folder)
        raise InputError(
            f"--checkpoint={checkpoint}: no such folder, expected an Orbax checkpoint or a run"
        )
    return folder


@spent_on("load")
def architecture_of(
    config: RunConfig, files: ModelFiles, tokenizer: Tokenizer | None = None
) -> Architecture:
    """What the model computes, with its tokenizer.  `tokenizer`: in place of those that the flags
    and the model name.  Raises InputError if the two do not fit."""
    own_model = files.own_model
    if own_model is not None:
        if tokenizer is None:
            tokenizer = config.tokenizer or own_model.tokenizer
        if tokenizer is None:
            raise InputError(
                f"--model={config.model}: its OwnModel has no tokenizer: give one there, or "
                "--tokenizer"
            )
        if isinstance(tokenizer, str | Path):
            tokenizer = tokenizer_at(str(tokenizer))
        check_vocabulary(tokenizer, own_model.vocab_size)
        code = code_fingerprint(config.model, own_model)
        return Architecture(own_model, own_model, tokenizer, own_model.eos_token_ids, code)
    folder = local_config_files(_config_folder(config, files))
    model = from_hf_config(folder)
    if tokenizer is None and config.tokenizer:
        tokenizer = tokenizer_at(config.tokenizer)
    elif tokenizer is None:
        # a relative path that is removed meanwhile would be asked for on the hub
        tokenizer = load_tokenizer(str(folder.absolute()))
    check_vocabulary(tokenizer, model.vocab_size)
    eos_ids = eos_token_ids(folder)
    if isinstance(model, FamilyModel):
        return Architecture(model, model, tokenizer, eos_ids, model.description)
    if config.param_map is not None and is_maxtext_config(config.param_map):
        model = maxtext_config(model, config.param_map, config.dtype)
    network = abstract(model, jnp.dtype(config.dtype))[0]
    return Architecture(model, network, tokenizer, eos_ids)


def tokenizer_at(name: str) -> Tokenizer:
    """The tokenizer of a local folder, or of a repository on the hub with or without a revision.
    Raises InputError."""
    is_folder = name.startswith(("/", ".", "~")) or local_path(name).is_dir()
    return load_tokenizer(name if is_folder else str(from_hub(name, "--tokenizer", weights=False)))


def say_tokenizer(tokenizer: Tokenizer, progress: Progress) -> None:
    """Name what the ids come from: a line for all users where transformers' AutoTokenizer gives
    other ids."""
    if line := unlike_transformers(tokenizer):
        progress.say(line)
    else:
        progress.detail(f"tokenizer: {taken_from(tokenizer)}")


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Raises InputError for a tokenizer with a larger vocabulary than the model.

    Tokens that were added to the tokenizer are not counted: they are refused when a text uses them.
    """
    size = getattr(tokenizer, "vocab_size", 0)
    if size > vocab_size:
        raise InputError(
            f"the tokenizer has {size} tokens, but the model's vocabulary has {vocab_size}: name "
            "the model's own tokenizer with --tokenizer, or mend vocab_size of your OwnModel"
        )


def _config_folder(config: RunConfig, files: ModelFiles) -> Path:
    """The folder of config.json: that of the run or, if it has none there, of its last step."""
    assert files.config_folder is not None
    if (files.config_folder / "config.json").is_file():
        return files.config_folder
    steps = (checkpoint.folder for checkpoint in checkpoints_of(config, files))
    *_, folder = files.config_folder, *filter(None, steps)
    if not (folder / "config.json").is_file():
        _check_no_step_of_run(folder, config)
    if is_orbax(folder, config.params_key) and not (folder / "config.json").is_file():
        name = config.model
        raise InputError(
            f"--model={name} holds Orbax checkpoints and no config.json, which would say what they "
            "compute: name the model's code and its weights, --model=module:function "
            f"--checkpoint={name} (miron-jax init model --checkpoint={name} writes such code to "
            "begin with), or put the Hugging Face config.json and tokenizer of these weights there"
        )
    return folder


def _check_no_step_of_run(folder: Path, config: RunConfig) -> None:
    """Raises InputError if a folder without config.json is a step of a run that has one: RUN/7 or
    RUN/checkpoints/7."""
    for run in folder.parents[:2]:
        if not (run / "config.json").is_file():
            continue
        for step, path in training_steps(run, config.params_key):
            if path == folder:
                raise InputError(
                    f"--model={public(config.model)} holds no config.json, expected one: that of "
                    f"its run lies in {run}: name the run and the step, --model={run} "
                    f"--steps={step}"
                )


def checkpoints_of(config: RunConfig, files: ModelFiles) -> list[Checkpoint]:
    """The checkpoints that --steps selects and that exist now, in order of training.

    Raises InputError, unless the run is watched, if some that were named are missing.
    """
    if files.weights is None:
        return [Checkpoint(None, None)]
    is_single = config.steps is None and not config.watch and has_tensors(files.weights)
    steps = [] if is_single else training_steps(files.weights, config.params_key)
    if steps:
        selected = pick_steps(steps, config.steps, files.weights, strict=not config.watch)
        shared = _shared_files(config, files)
        checkpoints = [Checkpoint.at(step, path, shared) for step, path in selected]
        return [checkpoint for checkpoint in checkpoints if checkpoint.version]
    if not is_single:
        check_no_flax_files(files.weights)
    if config.watch:
        return []
    if config.steps is not None:
        raise InputError(
            f"--steps={config.steps}: {files.weights} holds no checkpoint in a folder named by its "
            "step, such as 1000 or checkpoint-1000; name the run's folder"
        )
    return [Checkpoint.at(None, files.weights)]


def _shared_files(config: RunConfig, files: ModelFiles) -> list[Path]:
    """Files outside a step's folder that its score depends on: config.json, tokenizer, the
    factory's code, the param map."""
    folders = [files.config_folder] if files.config_folder is not None else []
    if config.tokenizer and local_path(config.tokenizer).is_dir():
        folders.append(local_path(config.tokenizer))
    paths: list[Path] = []
    for folder in folders:
        with suppress(FileNotFoundError):  # a trainer has removed it
            paths += folder.iterdir()
    for name in (config.model if files.own_model else None, config.param_map):
        if name is not None:
            paths.append(source_file(name) if is_factory(name) else local_path(name))
    return [path for path in paths if path.is_file()]


def rounds(
    config: RunConfig,
    files: ModelFiles,
    progress: Progress,
    scored: Callable[[Checkpoint], bool],
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    take: Callable[[Checkpoint], bool] = lambda checkpoint: True,
) -> Iterator[Round]:
    """Checkpoints to score, a list at a time: those that exist and, with --watch, those that appear
    later.

    `scored` tells whether the results of a checkpoint exist already, `take` whether this process
    may score it.  A step whose files have changed since they were read comes again, and one that
    has been removed is named once.  The first host looks, and all others follow it.  Ends when for
    --watch_timeout seconds each checkpoint was scored, by other processes too; raises InputError if
    one that is there still cannot be read then.  The average of --average comes last.
    """
    if hosts.is_first:
        count = -1
        excused = _excused(config, hosts)
        looks = _rounds_of_first_host(config, files, progress, scored, take, excused)
        for count, new in enumerate(looks):
            steps = [checkpoint.averaged_steps or checkpoint.step for checkpoint in new.checkpoints]
            hosts.agree(f"round/{count}", steps)
            yield new
        hosts.agree(f"round/{count + 1}")
        return
    for count in itertools.count():
        steps = hosts.agree(f"round/{count}")
        if steps is None:
            return
        if config.average is not None and isinstance(steps[0], list):
            averaged = tuple(_await_steps(config, files, steps[0]))
            yield Round([Checkpoint.average_of(config.average, averaged)])
        else:
            yield Round(_await_steps(config, files, steps))


def _excused(config: RunConfig, hosts: Hosts) -> Literal["none", "gone", "all"]:
    """Of several hosts all must score the same steps, and a step that is named must be there."""
    if config.watch:
        return "all"
    is_named = config.steps is not None and config.steps != "latest" and ":" not in config.steps
    return "none" if is_named or hosts.count > 1 else "gone"


def _await_steps(config: RunConfig, files: ModelFiles, steps: list[int | None]) -> list[Checkpoint]:
    """The checkpoints of these steps, which the first host has found, as soon as this host finds
    them.

    Raises InputError after SEEN_SECONDS.
    """
    start = time.monotonic()
    if steps != [None]:
        config = replace(config, steps=None, watch=True)  # `latest` may be a later step by now
    while True:
        by_step = {checkpoint.step: checkpoint for checkpoint in checkpoints_of(config, files)}
        missing = [step for step in steps if step not in by_step]
        if not missing:
            return [by_step[step] for step in steps]
        if time.monotonic() - start > SEEN_SECONDS:
            raise InputError(
                f"--model={public(config.model)}: step {missing[0]}, which process 0 scores, is "
                f"not seen here after {SEEN_SECONDS:.0f} s: name a folder that all hosts share"
            )
        time.sleep(1.0)


def _rounds_of_first_host(
    config: RunConfig,
    files: ModelFiles,
    progress: Progress,
    scored: Callable[[Checkpoint], bool],
    take: Callable[[Checkpoint], bool],
    excused: Literal["none", "gone", "all"],
) -> Iterator[Round]:
    average: Checkpoint | None = None
    if config.average is not None and not config.watch:
        average = _average_now(config, files)  # refused before a step is scored
    seen = _Seen(progress)
    last_new = time.monotonic()
    num_behind = 0
    while True:
        new = seen.new_of(checkpoints_of(config, files), scored)
        if config.watch and len(new) > 1 and len(new) != num_behind:
            steps = f"steps {new[0].step} to {new[-1].step}"
            progress.say(f"behind by {len(new)} checkpoints: {steps} have no results yet")
        num_behind = len(new)
        if config.newest_first or config.keep_up:
            new.reverse()
        if config.keep_up:
            new = seen.newest_of(new)
        look = Round(new, excused, take, config.newest_first)
        if look.checkpoints:
            yield look
            last_new = time.monotonic()
        seen.note(look)
        removed = seen.drop_removed()
        if not config.watch:
            if removed and not seen.done:
                raise removed[0]
            break
        if time.monotonic() - last_new > config.watch_timeout:
            for _, error in seen.failed.values():
                raise error
            seen.skipped.clear()
            seen.new_of(checkpoints_of(config, files), scored)  # those of other processes
            progress.say(f"nothing new in {files.weights} for {config.watch_timeout:.0f} s")
            break
        if not look.read:
            time.sleep(min(POLL_SECONDS, config.watch_timeout))
    if config.average is None:
        return
    average = average or _average_now(config, files)
    while not scored(average := still_there(average, progress)):
        look = Round([average], "none" if excused == "none" else "gone", take)
        yield look
        if look.read:
            return
        if config.watch:
            time.sleep(POLL_SECONDS)  # another process scores it
            average = _average_now(config, files)
    progress.say(f"{average.title} is scored already")


def _average_now(config: RunConfig, files: ModelFiles) -> Checkpoint:
    """The average of the steps that --steps selects, of all where it selects the last one.  Raises
    InputError if there are too few."""
    assert config.average is not None
    steps = config.steps
    if steps in (None, "latest"):  # a folder with steps may hold weights too
        assert files.weights is not None
        steps = ":" if training_steps(files.weights, config.params_key) else None
    checkpoints = checkpoints_of(replace(config, steps=steps), files)
    return average_of(config.average, checkpoints, str(files.weights))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What has become of the steps of a run so far, by step; a step with other files is new."""

    progress: Progress
    done: dict[int | None, str] = field(default_factory=dict)  # the version that was read
    skipped: dict[int | None, str] = field(default_factory=dict)  # the version that was left out
    failed: dict[int | None, tuple[Checkpoint, InputError]] = field(default_factory=dict)

    def new_of(
        self, checkpoints: list[Checkpoint], scored: Callable[[Checkpoint], bool]
    ) -> list[Checkpoint]:
        """Those that were neither read nor tried, and have no results."""
        new: list[Checkpoint] = []
        for checkpoint in checkpoints:
            step = checkpoint.step
            version = checkpoint.version
            if version in (self.done.get(step), self.skipped.get(step)):
                continue
            if step in self.failed and self.failed[step][0].version == version:
                continue
            if scored(checkpoint):
                self.done[step] = version
                self.progress.say(f"step {step} is scored already")
            else:
                new.append(checkpoint)
        return new

    def newest_of(self, new: list[Checkpoint]) -> list[Checkpoint]:
        """The first of these if it is the newest of all, else none; the others are left out from
        now on."""
        newest = max(filter(None, self.done), default=0)
        picked = [checkpoint for checkpoint in new[:1] if (checkpoint.step or 0) >= newest]
        skipped = new[len(picked) :]
        for checkpoint in skipped:
            self.skipped[checkpoint.step] = checkpoint.version
        if skipped:
            steps = some_of([checkpoint.step for checkpoint in reversed(skipped)], 8)
            self.progress.say(f"left out to keep up: steps {steps}")
        return picked

    def note(self, look: Round) -> None:
        """Keep which of its checkpoints were read, and which could not be."""
        for checkpoint in look.read:
            self.done[checkpoint.step] = checkpoint.version
            self.failed.pop(checkpoint.step, None)
        for checkpoint, error in look.failures:
            self.failed[checkpoint.step] = (checkpoint, error)
            if checkpoint.is_there():
                self.progress.warn(f"step {checkpoint.step} cannot be read yet: {error}")

    def drop_removed(self) -> list[InputError]:
        """Leave out those that failed and are no longer there; their errors."""
        errors: list[InputError] = []
        for step, (checkpoint, error) in [*self.failed.items()]:
            if not checkpoint.is_there():
                self.progress.warn(
                    f"step {step} has been removed before it was read, and is left out"
                )
                del self.failed[step]
                errors.append(error)
        return errors
