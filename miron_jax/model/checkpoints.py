"""--model -> what it computes, and the checkpoints to score, one after the other.

Arrives: a RunConfig.  Leaves: an `Architecture`, `Checkpoint`s and their weights on the device.  It deliberately does not
know what is scored.  The next checkpoint is read while one is scored; of a run that is watched, new ones are waited for.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from miron_jax import demo
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.files.places import is_url, local_path, public
from miron_jax.files.store import SEEN_SECONDS
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import abstract
from miron_jax.model.hf_config import eos_token_ids, from_hf_config
from miron_jax.model.hf_files import has_tensors
from miron_jax.model.hf_reader import from_hub, resolve_model
from miron_jax.model.layout import put_weight
from miron_jax.model.own import OwnModel, code_of, is_factory, make_own, source_of
from miron_jax.model.remote import files_here, folder_at, here
from miron_jax.model.training_run import (
    Checkpoint,
    fingerprint,
    finite,
    load_step,
    load_tree,
    pick_steps,
    training_steps,
)
from miron_jax.runtime.devices import FSDP, MODEL, Placement
from miron_jax.runtime.hosts import Hosts
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer

POLL_SECONDS = 10.0  # between two looks at a run that is watched


class Architecture(NamedTuple):
    """What a model computes, whatever its weights."""

    config: ModelConfig | OwnModel
    network: Any  # nnx.GraphDef of a Decoder, or the OwnModel again
    tokenizer: Tokenizer
    eos_ids: tuple[int, ...]
    source: str | None = None  # names the code of a user's own model; None: config says all


class Found(NamedTuple):
    """Where a model's parts lie."""

    home: Path | None  # of config.json and tokenizer
    weights: Path | None  # a checkpoint, or the folder of a training run
    own: OwnModel | None


def find_model(config: RunConfig, weights: bool = True) -> Found:
    """Look for what --model names; a hub's files are fetched.  Raises InputError."""
    if is_factory(config.model):
        where = None if config.checkpoint is None else _folder(config.checkpoint)
        if where is not None and not where.is_dir():
            raise InputError(f"--checkpoint={config.checkpoint}: no such folder, expected an Orbax checkpoint or a run")
        return Found(None, where, make_own(config.model))
    if config.checkpoint is not None:
        raise InputError(
            f"--checkpoint={config.checkpoint} holds the weights of a model of your own, but --model={config.model} names "
            "no factory (package.module:factory): name the checkpoint's folder with --model"
        )
    if is_url(config.model):
        folder = folder_at(config.model, "--model")
    elif config.model == demo.NAME:
        demo.check()
        folder = demo.FOLDER
    else:
        folder = resolve_model(config.model, weights=weights)
    return Found(folder, folder, None)


def _folder(name: str) -> Path:
    return folder_at(name, "--checkpoint") if is_url(name) else local_path(name)


def architecture_of(config: RunConfig, found: Found) -> Architecture:
    """What the model computes, with its tokenizer."""
    if found.own is not None:
        tokenizer = config.tokenizer or found.own.tokenizer
        if tokenizer is None:
            raise InputError(f"--model={config.model}: its OwnModel has no tokenizer: give one there, or --tokenizer")
        tokenizer = tokenizer_at(str(tokenizer)) if isinstance(tokenizer, str | Path) else tokenizer
        check_vocabulary(tokenizer, found.own.vocab_size)
        return Architecture(found.own, found.own, tokenizer, found.own.eos_token_ids, code_of(config.model, found.own))
    assert found.home is not None
    home = files_here(_home(config, found))
    model = from_hf_config(home)
    network = abstract(model, jnp.dtype(config.dtype))[0]
    tokenizer = tokenizer_at(config.tokenizer) if config.tokenizer else load_tokenizer(str(home))
    check_vocabulary(tokenizer, model.vocab_size)
    return Architecture(model, network, tokenizer, eos_token_ids(home))


def tokenizer_at(name: str) -> Tokenizer:
    """Of a folder, or of a repository on the hub, with or without a revision."""
    is_folder = name.startswith(("/", ".", "~")) or local_path(name).is_dir()
    return load_tokenizer(name if is_folder else str(from_hub(name, "--tokenizer", weights=False)))


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Raises InputError for a tokenizer of another model.  Tokens that were added to it later may have no row: they are
    refused where they come up."""
    size = getattr(tokenizer, "vocab_size", 0)
    if size > vocab_size:
        raise InputError(
            f"the tokenizer has {size} tokens, but the model's vocabulary has {vocab_size}: name the model's own tokenizer "
            "with --tokenizer"
        )


def _home(config: RunConfig, found: Found) -> Path:
    """A run's folder, or where it has no config.json, that of its last step."""
    assert found.home is not None
    if (found.home / "config.json").is_file():
        return found.home
    steps = [checkpoint.folder for checkpoint in checkpoints_of(config, found) if checkpoint.folder]
    return steps[-1] if steps else found.home


def checkpoints_of(config: RunConfig, found: Found) -> list[Checkpoint]:
    """Those that are there now, in order of training."""
    if found.weights is None:
        return [Checkpoint(None, None)]
    whole = config.steps is None and not config.watch and has_tensors(found.weights)
    steps = [] if whole else training_steps(found.weights)
    if steps:
        picked = pick_steps(steps, config.steps, found.weights, strict=not config.watch)
        beside = _beside(config, found)
        return [Checkpoint(step, path, fingerprint(path, beside)) for step, path in picked]
    if config.watch:
        return []
    if config.steps is not None:
        raise InputError(
            f"--steps={config.steps}: {found.weights} holds no checkpoint in a folder named by its step, such as 1000 or "
            "checkpoint-1000; name the run's folder"
        )
    return [Checkpoint(None, found.weights, fingerprint(found.weights))]


def rounds(
    config: RunConfig,
    found: Found,
    say: Callable[[str], None],
    scored: Callable[[Checkpoint], bool],
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
) -> Iterator["Round"]:
    """Checkpoints to score, a list at a time, the same on all hosts; see `_rounds`."""
    if hosts.is_first:
        count = -1
        for count, now in enumerate(_rounds(config, found, say, scored)):
            hosts.agree(f"round/{count}", [checkpoint.step for checkpoint in now.checkpoints])
            yield now
        hosts.agree(f"round/{count + 1}")
        return
    for count in itertools.count():
        steps = hosts.agree(f"round/{count}")
        if steps is None:
            return
        yield Round(_seen(config, found, steps), None)


def _seen(config: RunConfig, found: Found, steps: list[int | None]) -> list[Checkpoint]:
    """The first host's checkpoints, as this one sees them."""
    start, every = time.monotonic(), replace(config, steps=None, watch=True)  # `latest` may be a later one by now
    while True:
        there = {
            checkpoint.step: checkpoint for checkpoint in checkpoints_of(every if steps != [None] else config, found)
        }
        lacking = [step for step in steps if step not in there]
        if not lacking:
            return [there[step] for step in steps]
        if time.monotonic() - start > SEEN_SECONDS:
            raise InputError(
                f"--model={public(config.model)}: step {lacking[0]}, which process 0 scores, is not seen here after "
                f"{SEEN_SECONDS:.0f} s: name a folder that all hosts share"
            )
        time.sleep(1.0)


def _rounds(
    config: RunConfig, found: Found, say: Callable[[str], None], scored: Callable[[Checkpoint], bool]
) -> Iterator["Round"]:
    """Checkpoints to score, a list at a time: those that are there, and of a run that is watched those that come.

    `scored`: whether a checkpoint's results are there already.  Ends when nothing new has come for --watch_timeout seconds;
    raises InputError where a checkpoint that came could not be read until then.
    """
    met: set[int | None] = set()
    broken: dict[int | None, tuple[str | None, InputError]] = {}
    last = time.monotonic()
    while True:
        fresh = []
        for checkpoint in checkpoints_of(config, found):
            unread = broken.get(checkpoint.step)
            if checkpoint.step in met or (unread and unread[0] == checkpoint.fingerprint):
                continue
            if scored(checkpoint):
                met.add(checkpoint.step)
                say(f"step {checkpoint.step} is scored already")
            else:
                fresh.append(checkpoint)
        if fresh:
            failures: list[tuple[Checkpoint, InputError]] = []
            yield Round(fresh, failures if config.watch else None)
            met.update(checkpoint.step for checkpoint in fresh)
            for checkpoint, error in failures:
                met.discard(checkpoint.step)
                broken[checkpoint.step] = (checkpoint.fingerprint, error)
                say(f"step {checkpoint.step} cannot be read yet: {error}")
            last = time.monotonic()
        if not config.watch:
            return
        if time.monotonic() - last > config.watch_timeout:
            unread_errors = [error for step, (_, error) in broken.items() if step not in met]
            if unread_errors:
                raise unread_errors[0]
            say(f"nothing new in {found.weights} for {config.watch_timeout:.0f} s")
            return
        if not fresh:
            time.sleep(min(POLL_SECONDS, config.watch_timeout))


def _beside(config: RunConfig, found: Found) -> list[Path]:
    """Files that a score depends on beside a step's own: config.json and tokenizer, the factory's code, the map of names."""
    files = [path for path in found.home.iterdir() if path.is_file()] if found.home is not None else []
    for given in (config.model if found.own else None, config.param_map):
        if given is not None:
            files.append(source_of(given) if is_factory(given) else local_path(given))
    tokenizer = local_path(config.tokenizer) if config.tokenizer else None
    if tokenizer is not None and tokenizer.is_dir():
        files += [path for path in tokenizer.iterdir() if path.is_file()]
    return [path for path in files if path.is_file()]


class Round(NamedTuple):
    """Checkpoints that were there at one look."""

    checkpoints: list[Checkpoint]
    failures: list[tuple[Checkpoint, InputError]] | None  # those that could not be read; None: that ends the run


def loaded(
    architecture: Architecture, config: RunConfig, now: Round, placement: Placement
) -> Iterator[tuple[Checkpoint, Any]]:
    """Weights of each checkpoint on the devices; the next ones are read while these are scored, where both fit."""
    with ThreadPoolExecutor(1) as reader:
        yield from _loaded(reader, architecture, config, now, placement)


def _loaded(
    reader: ThreadPoolExecutor, architecture: Architecture, config: RunConfig, now: Round, placement: Placement
) -> Iterator[tuple[Checkpoint, Any]]:
    waiting: Future[Any] | None = None
    for i, checkpoint in enumerate(now.checkpoints):
        try:
            state = load(architecture, config, checkpoint, placement) if waiting is None else waiting.result()
        except InputError as error:
            waiting = None
            if now.failures is None:
                raise
            now.failures.append((checkpoint, error))
            continue
        waiting = None
        on_device = sum(leaf.addressable_data(0).nbytes for leaf in jax.tree.leaves(state))
        room = Placement.of(state).free_bytes() > 2 * on_device
        if (
            i + 1 < len(now.checkpoints) and room and not placement.is_global
        ):  # there all hosts run the same in one order
            waiting = reader.submit(load, architecture, config, now.checkpoints[i + 1], placement)
        yield checkpoint, state
        del state  # before the next ones are read where there is no room for both


def load(architecture: Architecture, config: RunConfig, checkpoint: Checkpoint, placement: Placement) -> Any:
    """Weights of one checkpoint where they belong; those of a user's own model stay on a mesh that they come on."""
    try:
        return _load(architecture, config, checkpoint, placement)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise InputError(
            f"--model={public(config.model)}: the weights do not fit the memory of {placement.device}: split them over "
            "devices with --sharding=mesh --mesh=model=N, or take --dtype=bfloat16"
        ) from error


def _load(architecture: Architecture, config: RunConfig, checkpoint: Checkpoint, placement: Placement) -> Any:
    if not isinstance(architecture.config, OwnModel):
        assert checkpoint.folder is not None
        put = partial(put_weight, config=architecture.config, placement=placement)
        with here(checkpoint.folder) as folder:
            return load_step(folder, architecture.config, jnp.dtype(config.dtype), config.param_map, put)
    if placement.size(FSDP, MODEL) > 1:
        raise InputError(
            f"--model={config.model}: --mesh splits weights by the names that the engine's own decoder has, not those of "
            "your own model: name data alone, or give the factory's params on a mesh of yours"
        )
    state = _load_own(architecture.config, config, checkpoint)
    if placement.mesh is None or Placement.of(state).mesh is not None:
        return state
    return jax.tree.map(placement.share, state)


def _load_own(own: OwnModel, config: RunConfig, checkpoint: Checkpoint) -> Any:
    if own.params is None:
        raise InputError(
            f"--model={config.model}: its OwnModel has no params: give them, or their shapes and --checkpoint"
        )
    if checkpoint.folder is not None:
        with here(checkpoint.folder) as folder:
            return load_tree(folder, own.params, config.param_map)
    made = [leaf for leaf in jax.tree.leaves(own.params) if not isinstance(leaf, jax.ShapeDtypeStruct)]
    if len(made) < len(jax.tree.leaves(own.params)):
        raise InputError(f"--model={config.model}: its params are shapes without numbers: name them with --checkpoint")
    return finite(config.model, jax.tree.map(jnp.asarray, own.params))


def several(config: RunConfig, checkpoints: Sequence[Checkpoint]) -> bool:
    """Whether the same requests will be scored more than once."""
    return config.watch or len(checkpoints) > 1
