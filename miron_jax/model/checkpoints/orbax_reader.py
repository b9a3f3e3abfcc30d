"""Weights of an Orbax checkpoint.

Arrives: a checkpoint folder and the ModelConfig of its model, or a tree of shapes.  Leaves: a state
with the structure of `decoder.abstract`, or of the tree.  It deliberately does not know
config.json, tokenizers, meshes or optimizers.

The tree on disk holds a Decoder's state as `nnx.to_pure_dict` returns it, or with nnx's level of
`value` below each name, anywhere in the tree (`orbax_weights.py`); the rest, such as an optimizer's
state, is never read.  A tree may also have MaxText's names (`maxtext_map.py`) or the user's own
(`param_map.py`).  Orbax silently returns a placeholder for a key that a checkpoint lacks, so keys,
shapes and dtypes are compared here before an array is read.  The format is JSON and arrays; nothing
is ever unpickled.
"""

import gc
import math
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.typing import DTypeLike

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.hf_reader import Put, on_default_device
from miron_jax.model.checkpoints.maxtext_map import is_maxtext, maxtext_map
from miron_jax.model.checkpoints.maxtext_settings import is_maxtext_config, maxtext_settings
from miron_jax.model.checkpoints.orbax_layout import listed
from miron_jax.model.checkpoints.orbax_mapped import below_root, mapped_reader
from miron_jax.model.checkpoints.orbax_tree import (
    INTEGERS,
    Leaves,
    OrbaxTree,
    ReadLeaf,
    checkpoint_of,
)
from miron_jax.model.checkpoints.orbax_weights import weights_of
from miron_jax.model.checkpoints.param_map import users_map
from miron_jax.model.checkpoints.plausible import check_one_copy
from miron_jax.model.checkpoints.presets import PRESETS
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import abstract, leaf_name
from miron_jax.model.families.family_model import Shapes
from miron_jax.model.network import is_key
from miron_jax.runtime.devices import Tree, return_freed_memory
from miron_jax.runtime.progress import SILENT, Progress

USE_ITS_CONFIG = "use the config.json of this checkpoint"
UNREAD_OF_MAXTEXT = (
    "its param_scan_axis is to stand in the file of --param_map, and a MaxText tree with fused "
    "kernels (fused_qkv, fused_mlp) is not read: convert it with MaxText's to_huggingface.py"
)


def load_orbax(
    folder: Path,
    config: ModelConfig,
    dtype: DTypeLike,
    param_map: str | None = None,
    put: Put = on_default_device,
    params_key: str | None = None,
    progress: Progress = SILENT,
) -> Tree:
    """Weights of a Decoder as an nnx.State, matrices in `dtype`, norms and biases in float32.

    `param_map` names the arrays of a tree that is neither a Decoder's nor MaxText's, or MaxText's
    config, for which `config` is a `maxtext_config`.  `put` copies each leaf to its devices.
    Weights are looked for below the path `params_key` of the tree alone, if one is given.  Raises
    InputError for a checkpoint that is damaged or does not fit the config.
    """
    tree = abstract(config, dtype)[1]
    return _load(folder, tree, param_map, config, put, params_key, progress)


def load_tree(
    folder: Path,
    tree: Tree,
    param_map: str | None = None,
    params_key: str | None = None,
    put: Put = on_default_device,
    progress: Progress = SILENT,
) -> Tree:
    """Weights of any model, with the structure, shapes and dtypes of `tree`: an nnx.State, Linen's
    variables, ...

    Its random keys and their counts are kept as they are (zeros, where it has their shapes alone):
    the scores of a model in evaluation mode do not depend on them.  Raises InputError as
    `load_orbax` does.
    """
    return _load(folder, tree, param_map, None, put, params_key, progress)


def _load(
    folder: Path,
    tree: Tree,
    param_map: str | None,
    config: ModelConfig | None,
    put: Put,
    params_key: str | None,
    progress: Progress,
) -> Tree:
    """The tree with an array of the checkpoint for each leaf, as `_reader` reads it."""
    checkpoint = checkpoint_of(folder, params_key, progress)
    flat, treedef = jax.tree_util.tree_flatten_with_path(tree)
    named = {leaf_name(path): leaf for path, leaf in flat}
    random = _random_state(named)
    leaves = {}
    for name, leaf in named.items():
        if name not in random:
            leaves[name] = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    optional = {name: leaf.shape for name, leaf in random.items()}
    read = _reader(checkpoint, leaves, optional, param_map, config)
    arrays = random | _restore(leaves, read, put)
    return jax.tree_util.tree_unflatten(treedef, [arrays[name] for name in named])


def _reader(
    checkpoint: OrbaxTree,
    leaves: Leaves,
    optional: Shapes,
    param_map: str | None,
    config: ModelConfig | None,
) -> ReadLeaf:
    """A function that reads a leaf by the user's names, by MaxText's, or by the model's own.

    `optional`: shapes of leaves that a user's map may name and that are not read.
    """
    is_config = is_maxtext_config(param_map)
    if param_map is not None and not is_config:
        return _reader_by_map(checkpoint, leaves, optional, param_map, config)
    if config is not None and is_maxtext(checkpoint.keys):
        return _reader_of_maxtext(checkpoint, leaves, param_map, config)
    if is_config:
        raise InputError(
            f"--param_map={param_map}: names a MaxText config, but {checkpoint.folder} holds no "
            "MaxText tree of a known architecture, expected one: leave the flag out, or name where "
            "the arrays are in a JSON file"
        )
    source = (
        "of the model's params; check the model's sizes, give the factory's params all that "
        "its scores depend on"
    )
    if config is not None:
        source = "that config.json describes; use the config.json of this checkpoint"
    return _plain_reader(checkpoint, leaves, source)


def _reader_by_map(
    checkpoint: OrbaxTree,
    leaves: Leaves,
    optional: Shapes,
    param_map: str,
    config: ModelConfig | None,
) -> ReadLeaf:
    stored = {name: checkpoint.arrays[key].shape for name, key in checkpoint.keys.items()}
    shapes = {name: leaf.shape for name, leaf in leaves.items()} | dict(optional)
    mapping = users_map(param_map, stored, shapes, config, optional)
    mapping, root = below_root(mapping, checkpoint.keys)
    if param_map in PRESETS:
        return mapped_reader(checkpoint, leaves, mapping, USE_ITS_CONFIG, root)
    return mapped_reader(checkpoint, leaves, mapping, "mend the map, or config.json")


def _reader_of_maxtext(
    checkpoint: OrbaxTree, leaves: Leaves, config_file: str | None, config: ModelConfig
) -> ReadLeaf:
    scale = config.embedding_scale
    if config.embedding_scale_rounded:
        scale = float(jnp.asarray(scale, leaves["embedding_VD"].dtype))
    settings = None
    if config_file is not None:
        settings = maxtext_settings(config_file, config.family)
    if settings is not None and settings.assumed:
        checkpoint.progress.say(
            f"--param_map={config_file}: MaxText's defaults are taken for what it lacks: "
            f"{', '.join(settings.assumed)}"
        )
    mapping = maxtext_map(checkpoint.folder, config, checkpoint.keys, scale, settings)
    return mapped_reader(checkpoint, leaves, mapping, f"{USE_ITS_CONFIG}; {UNREAD_OF_MAXTEXT}")


def _random_state(leaves: Mapping[str, Tree]) -> dict[str, jax.Array]:
    """The leaves that hold random keys, and nnx's counts beside them: .../key and .../count."""
    names = {name for name, leaf in leaves.items() if is_key(leaf)}
    counts = {f"{name.removesuffix('key')}count" for name in names if name.endswith("key")}
    return {
        name: jnp.zeros(leaf.shape, leaf.dtype)
        if isinstance(leaf, jax.ShapeDtypeStruct)
        else jnp.asarray(leaf)
        for name, leaf in leaves.items()
        if name in names | counts
    }


def _restore(leaves: Leaves, read: ReadLeaf, put: Put) -> dict[str, jax.Array]:
    """Every leaf on its devices.

    One leaf at a time: the host holds at most one beyond the copies.  Parallel reads would also
    print the errors of all others when one array is damaged.
    """
    arrays = {}
    with _checkpointer() as checkpointer:
        # Largest first: the additional memory of a read is then smallest when most leaves are
        # loaded.
        for name in sorted(leaves, key=lambda name: -math.prod(leaves[name].shape)):
            arrays[name] = jax.block_until_ready(put(name, read(checkpointer, name)))
            # Orbax leaves some buffers in reference cycles, which are young
            gc.collect(1)
            return_freed_memory()
    return arrays


def _checkpointer() -> ocp.Checkpointer:
    """A checkpointer of this process alone: by default Orbax waits for all processes of a job at
    each restore."""
    index = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"miron_jax_{index}"
    )
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _plain_reader(checkpoint: OrbaxTree, leaves: Leaves, source: str) -> ReadLeaf:
    """A function that reads the array with the name of a leaf.

    Raises InputError, which names the `source` of the leaves, unless all names, shapes and dtypes
    fit.
    """
    arrays = checkpoint.everything
    weights = weights_of(checkpoint.folder, arrays, leaves, checkpoint.home)
    missing = sorted(leaves.keys() - weights.keys.keys())
    extra: list[str] = []
    integers: list[str] = []
    for name, key in sorted(weights.extra.items()):
        if arrays[key].dtype in INTEGERS:
            integers.append(weights.prefix + name)
        else:
            extra.append(name)
    faults = [f"lacks {listed(missing)}"] if missing else []
    if extra:
        faults.append(f"has {listed(extra)} besides")
    if faults:
        raise InputError(
            f"{checkpoint.folder}: {' and '.join(faults)}, expected the {len(leaves)} arrays "
            f"{source}, save the model's weights alone, or say with --param_map where each lies, "
            "or with --params_key below what"
        )
    for name, leaf in leaves.items():
        stored = arrays[weights.keys[name]]
        checkpoint.check_dtype(name, stored, leaf)
        if stored.shape != leaf.shape:
            if stored.shape[1:] == leaf.shape:
                shapes = [arrays[key].shape for key in weights.keys.values()]
                check_one_copy(checkpoint.folder, shapes)
            raise InputError(
                f"{checkpoint.folder}: {name} has shape {list(stored.shape)}, expected "
                f"{list(leaf.shape)}; use the config.json, or the model, that belongs to this "
                "checkpoint"
            )
    checkpoint.tell(weights, integers)

    def read(checkpointer: ocp.Checkpointer, name: str) -> np.ndarray:
        host = checkpoint.read(checkpointer, arrays[weights.keys[name]])
        return host.astype(leaves[name].dtype, copy=False)

    return read
