"""Weights of checkpoints, brought to the devices: each of one version of its files.

Arrives: checkpoints in whose folders a trainer may write.  Leaves: their weights, the next
checkpoint's while one is scored.  It deliberately does not know how checkpoints are found.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.files.places import public
from miron_jax.files.regular import NOT_REGULAR
from miron_jax.model.checkpoints.averages import Sums, in_float32
from miron_jax.model.checkpoints.checkpoints import Architecture, Round
from miron_jax.model.checkpoints.hf_reader import Put, on_default_device, shapes_of
from miron_jax.model.checkpoints.plausible import check_finite
from miron_jax.model.checkpoints.remote import local_copy
from miron_jax.model.checkpoints.training_run import Checkpoint, load_step
from miron_jax.model.checkpoints.versions import FolderVersion, settled_version, version_of
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.sharding import put_weight
from miron_jax.model.families.family import KnownModel
from miron_jax.model.network import Network
from miron_jax.model.own import OwnModel
from miron_jax.runtime.devices import ONE_COPY, Placement, Tree
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.runtime.timeline import counted_in_thread, spent_on


class Loaded(NamedTuple):
    checkpoint: Checkpoint  # with the version of its files that was read
    state: Tree


def loaded(
    architecture: Architecture,
    config: RunConfig,
    new: Round,
    placement: Placement,
    progress: Progress = SILENT,
) -> Iterator[Loaded]:
    """Each checkpoint with its weights on the devices.

    The next checkpoint is read while one is scored, if there is memory for both.  Raises InputError
    for weights that cannot be read, unless that is excused.
    """
    with ThreadPoolExecutor(1, initializer=counted_in_thread()) as reader:
        pending: Future[Loaded] | None = None
        taken = new.taken()
        following = next(taken, None)
        while following is not None:
            checkpoint = following
            following = None
            try:
                progress.advance("loading")
                with spent_on("load"):
                    if pending is None:
                        read, state = load(architecture, config, checkpoint, placement, progress)
                    else:
                        read, state = pending.result()
            except InputError as error:
                new.fail(checkpoint, error)
                following = next(taken, None)
                continue
            finally:
                pending = None
                progress.end("loading")
            new.read.append(read)
            on_device = sum(leaf.addressable_data(0).nbytes for leaf in jax.tree.leaves(state))
            has_room = Placement.of(state).free_bytes() > 2 * on_device
            # On a global mesh all hosts must run the same programs in one order, so there nothing
            # is read ahead.
            if has_room and not placement.is_global:
                following = next(taken, None)
                if following is not None:
                    pending = reader.submit(load, architecture, config, following, placement)
            yield Loaded(read, state)
            del state  # frees the memory before the next weights are read
            following = following or next(taken, None)


@spent_on("load")
def load(
    architecture: Architecture,
    config: RunConfig,
    checkpoint: Checkpoint,
    placement: Placement,
    progress: Progress = SILENT,
) -> Loaded:
    """The weights of one checkpoint, or an average of several, on the devices of `placement`, or on
    the mesh that a user's own model gives them.

    Weights whose files change meanwhile are read again once.  Raises InputError if they change
    again, and for weights that cannot be read or do not fit the devices' memory.
    """
    steps = checkpoint.averaged or (checkpoint,)
    folders = [step.folder for step in steps if step.folder is not None]
    if not folders:
        return Loaded(checkpoint, _load(architecture, config, checkpoint, placement, progress))
    changed: Path | None = None
    for _ in range(2):
        versions: list[FolderVersion] = []
        for folder, step in zip(folders, steps, strict=True):
            version = settled_version(folder, step.shared)
            if step.version and not version.weights:
                raise _removed(folder)
            if version.odd:
                raise InputError(f"{version.odd}: {NOT_REGULAR}; remove it")
            versions.append(version)
        try:
            state = _load(architecture, config, checkpoint, placement, progress)
        except InputError:
            changed = _changed(folders, versions)
            if changed is None:
                raise
            continue
        changed = _changed(folders, versions)
        if changed is None:
            return Loaded(checkpoint.with_versions(versions), state)
        del state
        progress.detail(f"{changed} has changed while it was read")
    for folder, step in zip(folders, steps, strict=True):
        if not step.is_there():
            raise _removed(folder)
    raise InputError(
        f"{changed}: its files changed while they were read, twice, expected those of a checkpoint "
        "that is finished; wait for its writer, or name a copy"
    )


def _removed(folder: Path) -> InputError:
    return InputError(
        f"{folder}: was removed before it was read, expected a checkpoint that stays; name another"
    )


def _changed(folders: Sequence[Path], versions: Sequence[FolderVersion]) -> Path | None:
    """The first folder whose weights are of another version by now."""
    for folder, version in zip(folders, versions, strict=True):
        if version_of(folder).weights != version.weights:
            return folder
    return None


def _load(
    architecture: Architecture,
    config: RunConfig,
    checkpoint: Checkpoint,
    placement: Placement,
    progress: Progress = SILENT,
) -> Tree:
    """The weights of one checkpoint.  Raises InputError for weights that cannot be read or do not
    fit the devices' memory."""
    model = architecture.config
    check_one_copy(model, config, placement)
    is_own = isinstance(model, OwnModel)
    try:
        shapes = own_params(model, config) if is_own else shapes_of(model, jnp.dtype(config.dtype))
        if checkpoint.folder is None:
            state = _given(config, shapes)
        elif not checkpoint.averaged:
            state = _read(model, config, checkpoint.folder, placement, progress)
        else:
            state = _averaged(model, config, checkpoint, placement, progress, shapes)
        if not is_own or placement.mesh is None or Placement.of(state).mesh is not None:
            return state
        return jax.tree.map(placement.share, state)
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
    except OSError as error:
        where = error.filename or checkpoint.folder
        raise InputError(
            f"{where}: cannot be read ({error.strerror or error}), expected a whole checkpoint; "
            "copy it again, or name another"
        ) from error
    finally:
        progress.end("loading")


def _read(
    model: KnownModel | OwnModel,
    config: RunConfig,
    folder: Path,
    placement: Placement,
    progress: Progress,
    sums: Sums | None = None,
) -> Tree:
    """The weights in a folder; with `sums`, the sums of an average with them, in float32."""
    with local_copy(folder) as copy:
        if isinstance(model, OwnModel):
            # imported here because Orbax is slow to import
            from miron_jax.model.checkpoints.orbax_reader import load_tree

            progress.advance("loading")
            params = own_params(model, config)
            put = on_default_device
            if sums is not None:
                params = in_float32(params)
                put = sums.adding(put)
            maps = (config.param_map, config.params_key, put, progress)
            return check_finite(copy, load_tree(copy, params, *maps))
        dtype = jnp.dtype(config.dtype)
        put = _counted(partial(put_weight, config=model, placement=placement), model, progress)
        if sums is not None:
            dtype = jnp.dtype(jnp.float32)
            put = sums.adding(put)
        return load_step(copy, model, dtype, config.param_map, put, config.params_key, progress)


def _averaged(
    model: KnownModel | OwnModel,
    config: RunConfig,
    average: Checkpoint,
    placement: Placement,
    progress: Progress,
    shapes: Tree,
) -> Tree:
    """The average of checkpoints, which are read one after the other."""
    sums = Sums(average.average)
    leaves: list[jax.Array] = []
    treedef = None
    for step in average.averaged:
        progress.detail(f"averaging: {step.folder}")
        assert step.folder is not None
        del leaves[:]  # they are in the sums
        leaves, treedef = jax.tree.flatten(
            _read(model, config, step.folder, placement, progress, sums)
        )
    assert treedef is not None
    sums.round_in_place(leaves, [leaf.dtype for leaf in jax.tree.leaves(shapes)])
    return jax.tree.unflatten(treedef, leaves)


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


def _given(config: RunConfig, params: Tree) -> Tree:
    """The weights that a user's factory made.  Raises InputError if they are shapes alone."""
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(params)):
        raise InputError(
            f"--model={config.model}: its params are shapes without numbers: name them with "
            "--checkpoint"
        )
    return check_finite(config.model, jax.tree.map(jnp.asarray, params))
