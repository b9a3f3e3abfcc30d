"""Tensor names of Hugging Face checkpoints, and how a tensor becomes a leaf of the decoder.

Arrives: a ModelConfig.  Leaves: a `Table`, the tensor name and layout of every leaf that a decoder
can have.  It deliberately does not know files.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from miron_jax.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Tensor:
    """The tensor, or the tensors, that one layer's leaf is read from."""

    # without the checkpoint's prefix; {} stands for the layer index, {part} for the index of a part
    name: str
    transposed: bool = False  # torch's Linear stores (out, in), the decoder (in, out)
    # outputs of the stored tensor, in the leaf's order; None: all, unchanged
    columns: tuple[int, ...] | None = None
    width: int = 0  # number of outputs of the stored tensor, where columns are selected
    # number of tensors that are the rows of the leaf; 0: one tensor is the whole leaf
    parts: int = 0
    # that the leaf stacks; None: all, if its name begins with layers/
    layers: tuple[int, ...] | None = None

    def stored_shape(self, leaf_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of each stored tensor for one layer's leaf of this shape."""
        shape = leaf_shape[1:] if self.parts else leaf_shape
        if self.columns is not None:
            shape = (*shape[:-1], self.width)
        return (*shape[:-2], *shape[:-3:-1]) if self.transposed else shape

    def names(self, layer: int) -> list[str]:
        """Names of one layer's tensors."""
        if not self.parts:
            return [self.name.format(layer)]
        return [self.name.format(layer, part=part) for part in range(self.parts)]


Table = dict[str, Tensor]  # leaf name -> its tensor


def of_layers(table: Table, layers: Iterable[int]) -> Table:
    """The same tensors, of some layers alone."""
    return {leaf: replace(source, layers=tuple(layers)) for leaf, source in table.items()}


# names of the head, which takes no prefix
HEADS = ("lm_head", "embed_out", "language_model.lm_head")
# Prefixes of all other tensors; a bare model has none.
PREFIXES = (
    "model.", "transformer.", "gpt_neox.", "backbone.", "model.language_model.",
    "language_model.model.", "",
)  # fmt: skip


def linear(
    leaf: str,
    tensor: str,
    transposed: bool = True,
    columns: np.ndarray | None = None,
    width: int = 0,
) -> Table:
    """Kernel and bias of a linear layer; the arguments are the fields of `Tensor`."""
    selected = None if columns is None else tuple(columns.tolist())
    return {
        f"{leaf}/kernel_IO": Tensor(f"{tensor}.weight", transposed, selected, width),
        f"{leaf}/bias_O": Tensor(f"{tensor}.bias", False, selected, width),
    }


def fused(tensor: str, leaf_widths: dict[str, int], transposed: bool = True) -> Table:
    """Linear layers that one tensor stores one after the other: leaf -> number of its outputs, in
    stored order."""
    table: Table = {}
    width = sum(leaf_widths.values())
    start = 0
    for leaf, leaf_width in leaf_widths.items():
        table |= linear(leaf, tensor, transposed, np.arange(start, start + leaf_width), width)
        start += leaf_width
    return table


def by_head(tensor: str, config: ModelConfig) -> Table:
    """Queries, keys and values in one tensor: of the first head, then of the next one, and so
    on."""
    size = config.num_heads * config.head_dim
    columns = (
        np.arange(3 * size)
        .reshape(config.num_heads, 3, config.head_dim)
        .transpose(1, 0, 2)
        .reshape(3, size)
    )
    table: Table = {}
    for name, of_name in zip("qkv", columns, strict=True):
        table |= linear(f"layers/attn/{name}", tensor, columns=of_name, width=3 * size)
    return table


def norm(leaf: str, tensor: str) -> Table:
    """Weight and bias of a norm."""
    return {f"{leaf}/weight": Tensor(f"{tensor}.weight"), f"{leaf}/bias": Tensor(f"{tensor}.bias")}


def half_split(config: ModelConfig, num_heads: int) -> np.ndarray:
    """Order of a stored projection's outputs that turns rotated neighbours, (x[2i], x[2i + 1]) of
    GPT-J and Cohere, into the decoder's half-split pairs; the products of queries and keys stay the
    same."""
    rotated = 2 * len(config.layer_ropes[0].frequencies)
    head = np.concatenate(
        [np.arange(0, rotated, 2), np.arange(1, rotated, 2), np.arange(rotated, config.head_dim)]
    )
    return (np.arange(num_heads)[:, None] * config.head_dim + head).ravel()


def experts(leaf: str, tensor: str, config: ModelConfig) -> Table:
    """The kernels of experts, each stored in a tensor of its own; {part} is the expert's index."""
    count = 0 if config.experts is None else config.experts.count
    return {leaf: Tensor(f"{tensor}.weight", transposed=True, parts=count)}


def llama_names(config: ModelConfig) -> Table:
    """Names of Llama's tensors, which most later families share."""
    return {
        "embedding_VD": Tensor("embed_tokens.weight"),
        **norm("final_norm", "norm"),
        **norm("layers/attn_norm", "layers.{}.input_layernorm"),
        **linear("layers/attn/q", "layers.{}.self_attn.q_proj"),
        **linear("layers/attn/k", "layers.{}.self_attn.k_proj"),
        **linear("layers/attn/v", "layers.{}.self_attn.v_proj"),
        **linear("layers/attn/out", "layers.{}.self_attn.o_proj"),
        **norm("layers/attn/q_norm", "layers.{}.self_attn.q_norm"),
        **norm("layers/attn/k_norm", "layers.{}.self_attn.k_norm"),
        **norm("layers/mlp_norm", "layers.{}.post_attention_layernorm"),
        **linear("layers/mlp/gate", "layers.{}.mlp.gate_proj"),
        **linear("layers/mlp/up", "layers.{}.mlp.up_proj"),
        **linear("layers/mlp/down", "layers.{}.mlp.down_proj"),
    }
