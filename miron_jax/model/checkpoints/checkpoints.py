"""The model that `--model` names, and its checkpoints to score, one after the other.

Arrives: a RunConfig.  Leaves: an `Architecture`, `Checkpoint`s and their weights on the devices.
It deliberately does not know what is scored.  The next checkpoint is read while one is scored; with
--watch, new ones are awaited.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.files.places import is_url, local_path, public
from miron_jax.files.store import SEEN_SECONDS
from miron_jax.model import demo
from miron_jax.model.checkpoints.hf_config import eos_token_ids, from_hf_config
from miron_jax.model.checkpoints.hf_files import has_tensors
from miron_jax.model.checkpoints.hf_reader import Put, from_hub, resolve_model, shapes_of
from miron_jax.model.checkpoints.remote import folder_at, local_config_files, local_copy
from miron_jax.model.checkpoints.training_run import (
    Checkpoint,
    check_finite,
    files_fingerprint,
    is_orbax,
    load_step,
    pick_steps,
    training_steps,
)
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import abstract
from miron_jax.model.decoder.sharding import put_weight
from miron_jax.model.families.family import KnownModel
from miron_jax.model.families.family_model import FamilyModel
from miron_jax.model.network import Network
from miron_jax.model.own import OwnModel, code_fingerprint, is_factory, make_own_model, source_file
from miron_jax.runtime.devices import ONE_COPY, Placement, Tree
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.progress import SILENT, Progress
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


class Round(NamedTuple):
    """The new checkpoints of one look at a training run."""

    checkpoints: list[Checkpoint]
    # collects those that cannot be read; None: that ends the run
    failures: list[tuple[Checkpoint, InputError]] | None


def find_model(config: RunConfig, weights: bool = True) -> ModelFiles:
    """Find the model that --model names, and download it from the hub if needed; without `weights`
    only its small files.

    Raises InputError for a name that is no model.
    """
    if is_factory(config.model):
        folder = None if config.checkpoint is None else checkpoint_folder(config.checkpoint)
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


def checkpoint_folder(checkpoint: str) -> Path:
    """The folder that --checkpoint names.  Raises InputError if it is not there."""
    remote = is_url(checkpoint)
    folder = folder_at(checkpoint, "--checkpoint") if remote else local_path(checkpoint)
    if not folder.is_dir():
        raise InputError(
            f"--checkpoint={checkpoint}: no such folder, expected an Orbax checkpoint or a run"
        )
    return folder


def architecture_of(config: RunConfig, files: ModelFiles) -> Architecture:
    """What the model computes, with its tokenizer.  Raises InputError if the two do not fit."""
    own_model = files.own_model
    if own_model is not None:
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
    tokenizer = tokenizer_at(config.tokenizer) if config.tokenizer else load_tokenizer(str(folder))
    check_vocabulary(tokenizer, model.vocab_size)
    eos_ids = eos_token_ids(folder)
    if isinstance(model, FamilyModel):
        return Architecture(model, model, tokenizer, eos_ids, model.description)
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
        return [Checkpoint(step, path, files_fingerprint(path, shared)) for step, path in selected]
    if config.watch:
        return []
    if config.steps is not None:
        raise InputError(
            f"--steps={config.steps}: {files.weights} holds no checkpoint in a folder named by its "
            "step, such as 1000 or checkpoint-1000; name the run's folder"
        )
    return [Checkpoint(None, files.weights, files_fingerprint(files.weights))]


def _shared_files(config: RunConfig, files: ModelFiles) -> list[Path]:
    """Files outside a step's folder that its score depends on: config.json, tokenizer, the
    factory's code, the param map."""
    folders = [files.config_folder] if files.config_folder is not None else []
    if config.tokenizer and local_path(config.tokenizer).is_dir():
        folders.append(local_path(config.tokenizer))
    paths = [path for folder in folders for path in folder.iterdir()]
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
) -> Iterator[Round]:
    """Checkpoints to score, a list at a time: those that exist and, with --watch, those that appear
    later.

    `scored` tells whether the results of a checkpoint exist already.  The first host looks, and all
    others follow it.  Ends when no new checkpoint has appeared for --watch_timeout seconds; raises
    InputError if one that has appeared still cannot be read then.
    """
    if hosts.is_first:
        count = -1
        for count, new in enumerate(_rounds_of_first_host(config, files, progress, scored)):
            hosts.agree(f"round/{count}", [checkpoint.step for checkpoint in new.checkpoints])
            yield new
        hosts.agree(f"round/{count + 1}")
        return
    for count in itertools.count():
        steps = hosts.agree(f"round/{count}")
        if steps is None:
            return
        yield Round(_await_steps(config, files, steps), None)


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
    config: RunConfig, files: ModelFiles, progress: Progress, scored: Callable[[Checkpoint], bool]
) -> Iterator[Round]:
    done: set[int | None] = set()
    # step -> fingerprint of its files, and the error
    failed: dict[int | None, tuple[str | None, InputError]] = {}
    last_new = time.monotonic()
    while True:
        new = []
        for checkpoint in checkpoints_of(config, files):
            step = checkpoint.step
            if step in done or (step in failed and failed[step][0] == checkpoint.fingerprint):
                continue
            if scored(checkpoint):
                done.add(step)
                progress.say(f"step {step} is scored already")
            else:
                new.append(checkpoint)
        if new:
            failures: list[tuple[Checkpoint, InputError]] = []
            yield Round(new, failures if config.watch else None)
            done.update(checkpoint.step for checkpoint in new)
            for checkpoint, error in failures:
                done.discard(checkpoint.step)
                failed[checkpoint.step] = (checkpoint.fingerprint, error)
                progress.warn(f"step {checkpoint.step} cannot be read yet: {error}")
            last_new = time.monotonic()
        if not config.watch:
            return
        if time.monotonic() - last_new > config.watch_timeout:
            for step, (_, error) in failed.items():
                if step not in done:
                    raise error
            progress.say(f"nothing new in {files.weights} for {config.watch_timeout:.0f} s")
            return
        if not new:
            time.sleep(min(POLL_SECONDS, config.watch_timeout))


def loaded(
    architecture: Architecture,
    config: RunConfig,
    new: Round,
    placement: Placement,
    progress: Progress = SILENT,
) -> Iterator[tuple[Checkpoint, Tree]]:
    """Each checkpoint with its weights on the devices.

    The next checkpoint is read while one is scored, if there is memory for both.  Raises InputError
    for weights that cannot be read, or appends them to `new.failures`.
    """
    with ThreadPoolExecutor(1) as reader:
        pending: Future[Tree] | None = None
        for checkpoint, following in zip(
            new.checkpoints, [*new.checkpoints[1:], None], strict=True
        ):
            try:
                progress.advance("loading")
                if pending is None:
                    state = load(architecture, config, checkpoint, placement, progress)
                else:
                    state = pending.result()
                progress.end("loading")
            except InputError as error:
                progress.end("loading")
                pending = None
                if new.failures is None:
                    raise
                new.failures.append((checkpoint, error))
                continue
            pending = None
            on_device = sum(leaf.addressable_data(0).nbytes for leaf in jax.tree.leaves(state))
            has_room = Placement.of(state).free_bytes() > 2 * on_device
            # On a global mesh all hosts must run the same programs in one order, so there nothing
            # is read ahead.
            if following is not None and has_room and not placement.is_global:
                pending = reader.submit(load, architecture, config, following, placement)
            yield checkpoint, state
            del state  # frees the memory before the next weights are read


def load(
    architecture: Architecture,
    config: RunConfig,
    checkpoint: Checkpoint,
    placement: Placement,
    progress: Progress = SILENT,
) -> Tree:
    """The weights of one checkpoint on the devices of `placement`, or on the mesh that a user's own
    model gives them.

    Raises InputError for weights that cannot be read or do not fit the devices' memory.
    """
    model = architecture.config
    check_one_copy(model, config, placement)
    try:
        if isinstance(model, OwnModel):
            progress.advance("loading")
            return _load_own(model, config, checkpoint, placement, progress)
        assert checkpoint.folder is not None
        put = _counted(partial(put_weight, config=model, placement=placement), model, progress)
        maps = (config.param_map, put, config.params_key)
        with local_copy(checkpoint.folder) as folder:
            return load_step(folder, model, jnp.dtype(config.dtype), *maps, progress)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        split = ", or split them with --sharding=mesh --mesh=model=N"
        if isinstance(model, Network):
            split = ""
        raise InputError(
            f"--model={public(config.model)}: the weights do not fit the memory of "
            f"{placement.device}: take --dtype=bfloat16{split}"
        ) from error
    finally:
        progress.end("loading")


def _counted(put: Put, model: KnownModel, progress: Progress) -> Put:
    """`put`, which also tells how many of the model's weights are on the devices."""
    placed = 0
    total = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes_of(model, jnp.float32)))
    progress.advance("loading", 0, total, "weights")

    def put_and_tell(path: str, host: np.ndarray) -> jax.Array:
        nonlocal placed
        on_devices = put(path, host)
        placed += host.size
        progress.advance("loading", placed, total, "weights")
        return on_devices

    return put_and_tell


def check_one_copy(model: ModelConfig | Network, config: RunConfig, placement: Placement) -> None:
    """Raises InputError for a mesh that splits the weights of a model other than the engine's
    decoder."""
    if isinstance(model, Network) and placement.size(*ONE_COPY) > 1:
        remedy = ""
        if isinstance(model, OwnModel):
            remedy = ", or give the factory's params on a mesh of yours"
        raise InputError(
            f"--model={public(config.model)}: --mesh splits weights by the names that the engine's "
            f"decoder has, not those of this model: name data alone{remedy}"
        )


def own_params(own_model: OwnModel, config: RunConfig) -> Tree:
    """The factory's params, or their shapes.  Raises InputError if there are none."""
    if own_model.params is None:
        raise InputError(
            f"--model={config.model}: its OwnModel has no params: give them, or their shapes and "
            "--checkpoint"
        )
    return own_model.params


def _load_own(
    own_model: OwnModel,
    config: RunConfig,
    checkpoint: Checkpoint,
    placement: Placement,
    progress: Progress,
) -> Tree:
    """The weights of a user's own model: those of the checkpoint, or those that the factory
    made."""
    params = own_params(own_model, config)
    for flag in ("param_map", "params_key"):
        if checkpoint.folder is None and getattr(config, flag) is not None:
            raise InputError(
                f"--{flag} says where an Orbax checkpoint holds the weights, expected --checkpoint "
                "beside it: name one, or leave the flag out"
            )
    if checkpoint.folder is not None:
        # imported here because Orbax is slow to import
        from miron_jax.model.checkpoints.orbax_reader import load_tree

        with local_copy(checkpoint.folder) as folder:
            maps = (config.param_map, config.params_key)
            state = check_finite(folder, load_tree(folder, params, *maps, progress=progress))
    elif any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(params)):
        raise InputError(
            f"--model={config.model}: its params are shapes without numbers: name them with "
            "--checkpoint"
        )
    else:
        state = check_finite(config.model, jax.tree.map(jnp.asarray, params))
    if placement.mesh is None or Placement.of(state).mesh is not None:
        return state
    return jax.tree.map(placement.share, state)
