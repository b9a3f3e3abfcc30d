"""Where weights lie in a Hugging Face checkpoint: tensors, cut into the leaves of the decoder.

Arrives: a ModelConfig.  Leaves: for every leaf that a decoder can have, the tensor's name and how it is cut out of it.  It
deliberately does not know files.
"""

from dataclasses import dataclass

import numpy as np

from miron_jax.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Source:
    """Where a leaf lies in a checkpoint."""

    name: str  # below the checkpoint's prefix; {} stands for the layer, {part} for the part
    transposed: bool = False  # torch's Linear keeps (out, in), the decoder (in, out)
    columns: tuple[int, ...] | None = None  # of the stored tensor's outputs, in the leaf's order; None: all as they are
    width: int = 0  # the stored tensor's outputs, where columns are picked
    parts: int = 0  # the leaf's rows are that many tensors; 0: one tensor is the leaf

    def stored_shape(self, leaf: tuple[int, ...]) -> tuple[int, ...]:
        shape = leaf[1:] if self.parts else leaf
        shape = shape if self.columns is None else (*shape[:-1], self.width)
        return shape[::-1] if self.transposed else shape

    def names(self, layer: int) -> list[str]:
        """The tensors of one layer's leaf."""
        if not self.parts:
            return [self.name.format(layer)]
        return [self.name.format(layer, part=part) for part in range(self.parts)]


HEADS = ("lm_head", "embed_out", "language_model.lm_head")  # above the prefix


PREFIXES = (
    "model.",
    "transformer.",
    "gpt_neox.",
    "model.language_model.",
    "language_model.model.",
    "",
)  # of everything but the head; the bare model has none


Table = dict[str, Source]


def linear(ours: str, theirs: str, transposed: bool = True, columns: np.ndarray | None = None, width: int = 0) -> Table:
    picked = None if columns is None else tuple(columns.tolist())
    return {
        f"{ours}/kernel_IO": Source(f"{theirs}.weight", transposed, picked, width),
        f"{ours}/bias_O": Source(f"{theirs}.bias", False, picked, width),
    }


def norm(ours: str, theirs: str) -> Table:
    return {f"{ours}/weight": Source(f"{theirs}.weight"), f"{ours}/bias": Source(f"{theirs}.bias")}


def llama_names(config: ModelConfig) -> Table:
    return {
        "embedding_VD": Source("embed_tokens.weight"),
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
