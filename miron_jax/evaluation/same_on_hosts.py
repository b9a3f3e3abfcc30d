"""What the processes of a training job must have in common before they score weights together.

Arrives: an Evaluation and weights on its devices.  Leaves: short values, one a field, which hosts
compare.  It deliberately does not know how they are exchanged.
"""

import json
from dataclasses import asdict
from hashlib import blake2b

import jax
import numpy as np

from miron_jax import __version__
from miron_jax.config import SETTINGS
from miron_jax.errors import InputError
from miron_jax.evaluation.run import Evaluation
from miron_jax.files.readers import Json
from miron_jax.model.checkpoints.fingerprint import tokenizer_fingerprint
from miron_jax.model.decoder.decoder import leaf_name
from miron_jax.runtime.devices import Tree


def lies_on_several_hosts(params: Tree) -> bool:
    """Whether some of the weights are on devices of other processes too.  Raises InputError if
    these are not all processes of the job."""
    arrays = [leaf for leaf in jax.tree.leaves(params) if isinstance(leaf, jax.Array)]
    processes = {device.process_index for leaf in arrays for device in leaf.sharding.device_set}
    if processes <= {jax.process_index()}:
        return False
    if len(processes) < jax.process_count():
        raise InputError(
            f"Evaluator.run: the weights lie on devices of the processes {sorted(processes)}, "
            f"expected all {jax.process_count()} of the job, or one: place them on a mesh of "
            "jax.devices()"
        )
    return True


def common_fields(evaluation: Evaluation) -> dict[str, Json]:
    """The version, every setting that is no path, and short digests of data and tokenizer."""
    config = json.loads(json.dumps(asdict(evaluation.config)))
    sources = [
        [source.task.name, source.data.git_blob_sha1, source.data.labels, len(source.examples)]
        for source in evaluation.inputs.sources
    ]
    return {
        "version": f"{__version__} (jax {jax.__version__})",
        **{name: value for name, value in config.items() if not SETTINGS[name].is_path},
        "row_axes": list(evaluation.row_axes),
        "data": _digest(sources),
        "tokenizer": tokenizer_fingerprint(evaluation.architecture.tokenizer)[:16],
    }


def fields_of_weights(state: Tree) -> dict[str, Json]:
    """Their mesh, and a digest of the names, shapes, dtypes and shardings of all leaves."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    sharding = leaves[0][1].sharding
    rows = [
        [leaf_name(path), leaf.shape, str(leaf.dtype), str(leaf.sharding)] for path, leaf in leaves
    ]
    return {"mesh": _mesh(sharding), "weights": _digest(rows)}


def _mesh(sharding: jax.sharding.Sharding) -> str:
    """The axes of its mesh and the devices in their order."""
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return str(sharding)
    mesh = sharding.mesh
    return (
        f"{dict(mesh.shape)} of devices {[device.id for device in np.asarray(mesh.devices).flat]}"
    )


def _digest(value: Json) -> str:
    return blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()
