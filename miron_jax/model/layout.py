"""Which axis of each weight of a Decoder is split over which axes of a mesh: rules on leaf names, for every family.

Arrives: a ModelConfig, a mesh's sizes, leaves by name.  Leaves: a PartitionSpec and a shape for each.  It deliberately
does not know devices.

    heads, feed-forward   over `model`: q, k, v, gate and up by their outputs, out and down by their inputs, so that a layer
                          needs one sum over devices for attention and one for the MLP
    vocabulary            over `model` and `fsdp`: embedding and head by their rows, filled up with rows of zeros
                          (`Head.vocab_size` cuts them off again), so that logits never leave the device that made them
    the other axis        of each matrix over `fsdp`
    norms, biases of outputs that are whole, learned positions: everywhere

An axis that its devices do not divide stays whole: no result depends on it.
"""

from typing import NamedTuple

import numpy as np
from jax.sharding import PartitionSpec

from miron_jax.model.config import ModelConfig
from miron_jax.runtime.devices import FSDP, MODEL, Placement

_BY_OUTPUT, _BY_INPUT = ("q", "k", "v", "gate", "up"), ("out", "down")


class LeafSharding(NamedTuple):
    spec: PartitionSpec
    shape: tuple[int, ...]  # with what fills it up


def layout_of(path: str, shape: tuple[int, ...], config: ModelConfig, placement: Placement) -> LeafSharding:
    """Of one leaf, named as `decoder.leaf_name` does."""
    if placement.how != "mesh":
        return LeafSharding(PartitionSpec(), shape)
    parts = path.split("/")
    if parts[0] in ("embedding_VD", "head_VD", "head_bias_V"):
        pieces = placement.size(MODEL, FSDP)
        axes = tuple(axis for axis in (FSDP, MODEL) if placement.size(axis) > 1)
        rest = (None,) * (len(shape) - 1)
        return LeafSharding(PartitionSpec(axes or None, *rest), (-(-shape[0] // pieces) * pieces, *shape[1:]))
    linear = parts[-2] if parts[-1] in ("kernel_IO", "bias_O") else ""
    if linear in _BY_OUTPUT:
        out = MODEL if _divides(linear, shape[-1], config, placement.size(MODEL)) else None
        return LeafSharding(_spec(parts[-1], shape, _fsdp(shape[-2], placement), out), shape)
    if linear in _BY_INPUT:
        inner = MODEL if _divides(linear, shape[-2], config, placement.size(MODEL)) else None
        return LeafSharding(_spec(parts[-1], shape, inner, _fsdp(shape[-1], placement)), shape)
    return LeafSharding(PartitionSpec(), shape)


def padded_vocabulary(vocab_size: int, placement: Placement) -> int:
    """Rows of the head as it lies on the mesh."""
    pieces = placement.size(MODEL, FSDP) if placement.how == "mesh" else 1
    return -(-vocab_size // pieces) * pieces


def heads_axis(config: ModelConfig, placement: Placement) -> str | None:
    """The axis that keys and values are split over by their heads."""
    split = placement.how == "mesh" and placement.size(MODEL) > 1
    return MODEL if split and config.num_kv_heads % placement.size(MODEL) == 0 else None


def put_weight(path: str, host: np.ndarray, config: ModelConfig, placement: Placement):
    """One leaf where it belongs."""
    return placement.put_weight(host, *layout_of(path, host.shape, config, placement))


def _spec(leaf: str, shape: tuple[int, ...], inner: str | None, out: str | None) -> PartitionSpec:
    lead = (None,) * (len(shape) - (2 if leaf == "kernel_IO" else 1))
    if leaf == "kernel_IO":
        return PartitionSpec(*lead, inner, out)
    return PartitionSpec(*lead, out if out == MODEL else None)


def _fsdp(size: int, placement: Placement) -> str | None:
    pieces = placement.size(FSDP)
    return FSDP if pieces > 1 and size % pieces == 0 else None


def _divides(linear: str, size: int, config: ModelConfig, pieces: int) -> bool:
    """Whole heads go to a device, and equal parts of the feed-forward."""
    whole = {"q": config.num_heads, "out": config.num_heads, "k": config.num_kv_heads, "v": config.num_kv_heads}
    return pieces > 1 and whole.get(linear, size) % pieces == 0
