"""Leaf shardings: how the axes of each weight of a Decoder are split over the axes of a mesh, by
leaf name.

Arrives: a ModelConfig, a mesh's sizes, leaves by name.  Leaves: a PartitionSpec and a padded shape
for each.  It deliberately does not know devices.

    heads, feed-forward   over `model`: q, k, v, gate and up by their outputs, out and down by their
                          inputs, so that a layer needs one sum over devices for attention and one
                          for the MLP
    vocabulary            over `model` and `fsdp`: embedding and head by their rows, padded with
                          rows of zeros (`Head.vocab_size` removes them), so that logits stay on the
                          device that computes them
    experts               over `expert`, and the feed-forward of each over `model`
    the other axis        of each matrix over `fsdp`
    norms, biases of outputs that are not split, learned positions: copied to every device

An axis whose size the number of devices does not divide is not split.  No result depends on the
split.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
from jax.stages import Compiled
from jax.tree_util import KeyPath

from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import leaf_name
from miron_jax.model.decoder.experts import Kernels, axes_of
from miron_jax.model.network import Network
from miron_jax.runtime.devices import EXPERT, FSDP, MODEL, Placement, Tree

_BY_OUTPUT = ("q", "k", "v", "gate", "up")
_BY_INPUT = ("out", "down")


class LeafSharding(NamedTuple):
    spec: PartitionSpec
    shape: tuple[int, ...]  # with padding


def layout_of(
    path: str, shape: tuple[int, ...], config: ModelConfig | Network, placement: Placement
) -> LeafSharding:
    """Sharding of the leaf that `decoder.leaf_name` names `path`; a model beside the decoder is
    copied to each device."""
    if placement.how != "mesh" or isinstance(config, Network):
        return LeafSharding(PartitionSpec(), shape)
    *_, linear, leaf = ["", *path.split("/")]
    if path in ("embedding_VD", "head_VD", "head_bias_V"):
        axes = tuple(axis for axis in (FSDP, MODEL) if placement.size(axis) > 1)
        rest = (None,) * (len(shape) - 1)
        padded = (padded_vocabulary(shape[0], placement), *shape[1:])
        return LeafSharding(PartitionSpec(axes or None, *rest), padded)
    if leaf in Kernels._fields:
        axis_of = {"E": EXPERT, "D": FSDP, "F": MODEL}
        axes = axes_of(leaf)
        sizes = zip(axes, shape[-len(axes) :], strict=True)
        split = [_if_divided(axis_of[axis], size, placement) for axis, size in sizes]
        return LeafSharding(PartitionSpec(*(None,) * (len(shape) - len(axes)), *split), shape)
    if leaf not in ("kernel_IO", "bias_O") or linear not in (*_BY_OUTPUT, *_BY_INPUT):
        return LeafSharding(PartitionSpec(), shape)
    # the axis over `model`, and the one over `fsdp`
    by_output = linear in _BY_OUTPUT
    split, other = (-1, -2) if by_output else (-2, -1)
    axis_of = {
        split: _if_divided(MODEL, _units(linear, shape[split], config), placement),
        other: _if_divided(FSDP, shape[other], placement),
    }
    if leaf == "bias_O":
        rest = (None,) * (len(shape) - 1)
        return LeafSharding(PartitionSpec(*rest, axis_of[-1] if by_output else None), shape)
    lead = (None,) * (len(shape) - 2)
    return LeafSharding(PartitionSpec(*lead, axis_of[-2], axis_of[-1]), shape)


def padded_vocabulary(vocab_size: int, placement: Placement) -> int:
    """Rows of the embedding and the head on the devices, with padding."""
    parts = placement.size(MODEL, FSDP) if placement.how == "mesh" else 1
    return -(-vocab_size // parts) * parts


def heads_axis(config: ModelConfig, placement: Placement) -> str | None:
    """The mesh axis that splits keys and values by their heads; None if they are not split."""
    if placement.how != "mesh":
        return None
    return _if_divided(MODEL, config.num_kv_heads, placement)


def put_weight(path: str, host: np.ndarray, config: ModelConfig | Network, placement: Placement):
    """Copy one leaf to its devices."""
    return placement.put_weight(host, *layout_of(path, host.shape, config, placement))


def placed_shapes(state: Tree, config: ModelConfig | Network, placement: Placement) -> Tree:
    """Shapes, dtypes and shardings of a state, or of its shapes, on these devices: programs compile
    for them."""

    def one(path: KeyPath, leaf: jax.Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        spec, shape = layout_of(leaf_name(path), leaf.shape, config, placement)
        sharding = SingleDeviceSharding(placement.device)
        if placement.mesh is not None:
            sharding = NamedSharding(placement.mesh, spec)
        return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=sharding)

    return jax.tree_util.tree_map_with_path(one, state)


def compile_copy(state: Tree, config: ModelConfig | Network, placement: Placement) -> Compiled:
    """The program that copies a state to another layout of its devices, which are in the same
    order."""
    placed = placed_shapes(state, config, placement)

    def padded(leaf: jax.Array, like: jax.ShapeDtypeStruct) -> jax.Array:
        more = [(0, size - had) for size, had in zip(like.shape, leaf.shape, strict=True)]
        return jnp.pad(leaf, more) if any(size for _, size in more) else leaf

    shardings = jax.tree.map(lambda like: like.sharding, placed)
    copy = jax.jit(lambda leaves: jax.tree.map(padded, leaves, placed), out_shardings=shardings)
    return copy.lower(state).compile()


def _if_divided(axis: str, size: int, placement: Placement) -> str | None:
    parts = placement.size(axis)
    return axis if parts > 1 and size % parts == 0 else None


def _units(linear: str, size: int, config: ModelConfig) -> int:
    """What an axis is split into: whole heads for attention, any columns for the MLP."""
    heads = {
        "q": config.num_heads,
        "out": config.num_heads,
        "k": config.num_kv_heads,
        "v": config.num_kv_heads,
    }
    return heads.get(linear, size)
