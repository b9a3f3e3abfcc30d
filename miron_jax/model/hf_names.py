"""Where the weights of each family lie in a Hugging Face checkpoint.

Arrives: a ModelConfig.  Leaves: for every leaf that its decoder can have, the tensor's name and how it is cut out of it.
It deliberately does not know files.
"""

from collections.abc import Callable, Mapping
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

_Table = dict[str, Source]


def tensor_names(config: ModelConfig) -> Mapping[str, Source]:
    """Leaf -> source, for every leaf that the family can have; a config uses those that its decoder has."""
    return _TABLES[config.family](config)


def _linear(
    ours: str, theirs: str, transposed: bool = True, columns: np.ndarray | None = None, width: int = 0
) -> _Table:
    picked = None if columns is None else tuple(columns.tolist())
    return {
        f"{ours}/kernel_IO": Source(f"{theirs}.weight", transposed, picked, width),
        f"{ours}/bias_O": Source(f"{theirs}.bias", False, picked, width),
    }


def _norm(ours: str, theirs: str) -> _Table:
    return {f"{ours}/weight": Source(f"{theirs}.weight"), f"{ours}/bias": Source(f"{theirs}.bias")}


def _llama(config: ModelConfig) -> _Table:
    return {
        "embedding_VD": Source("embed_tokens.weight"),
        **_norm("final_norm", "norm"),
        **_norm("layers/attn_norm", "layers.{}.input_layernorm"),
        **_linear("layers/attn/q", "layers.{}.self_attn.q_proj"),
        **_linear("layers/attn/k", "layers.{}.self_attn.k_proj"),
        **_linear("layers/attn/v", "layers.{}.self_attn.v_proj"),
        **_linear("layers/attn/out", "layers.{}.self_attn.o_proj"),
        **_norm("layers/attn/q_norm", "layers.{}.self_attn.q_norm"),
        **_norm("layers/attn/k_norm", "layers.{}.self_attn.k_norm"),
        **_norm("layers/mlp_norm", "layers.{}.post_attention_layernorm"),
        **_linear("layers/mlp/gate", "layers.{}.mlp.gate_proj"),
        **_linear("layers/mlp/up", "layers.{}.mlp.up_proj"),
        **_linear("layers/mlp/down", "layers.{}.mlp.down_proj"),
    }


def _gemma_later(config: ModelConfig) -> _Table:
    """Norms before and after (Gemma 2 and 3); OLMo 2 and 3 have those after alone, under the same names."""
    return _llama(config) | {
        **_norm("layers/attn_post_norm", "layers.{}.post_attention_layernorm"),
        **_norm("layers/mlp_norm", "layers.{}.pre_feedforward_layernorm"),
        **_norm("layers/mlp_post_norm", "layers.{}.post_feedforward_layernorm"),
    }


def _stablelm(config: ModelConfig) -> _Table:
    """Each head's norm is a tensor of its own."""
    return _llama(config) | {
        "layers/attn/q_norm/weight": Source(
            "layers.{}.self_attn.q_layernorm.norms.{part}.weight", parts=config.num_heads
        ),
        "layers/attn/k_norm/weight": Source(
            "layers.{}.self_attn.k_layernorm.norms.{part}.weight", parts=config.num_kv_heads
        ),
    }


def _phi3(config: ModelConfig) -> _Table:
    """Queries, keys and values are one tensor, one after the other; so are gate and up."""
    q, k = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    all_three, both = np.arange(q + 2 * k), np.arange(2 * config.d_ff)
    qkv, gate_up = "layers.{}.self_attn.qkv_proj", "layers.{}.mlp.gate_up_proj"
    return _llama(config) | {
        **_linear("layers/attn/q", qkv, columns=all_three[:q], width=q + 2 * k),
        **_linear("layers/attn/k", qkv, columns=all_three[q : q + k], width=q + 2 * k),
        **_linear("layers/attn/v", qkv, columns=all_three[q + k :], width=q + 2 * k),
        **_linear("layers/mlp/gate", gate_up, columns=both[: config.d_ff], width=len(both)),
        **_linear("layers/mlp/up", gate_up, columns=both[config.d_ff :], width=len(both)),
    }


def _nanochat(config: ModelConfig) -> _Table:
    return _llama(config) | {
        **_linear("layers/mlp/up", "layers.{}.mlp.fc1"),
        **_linear("layers/mlp/down", "layers.{}.mlp.fc2"),
    }


def _gpt_neox(config: ModelConfig) -> _Table:
    """Each head's query, key and value stand side by side."""
    size = config.num_heads * config.head_dim
    of_part = np.arange(3 * size).reshape(config.num_heads, 3, config.head_dim).transpose(1, 0, 2).reshape(3, size)
    qkv = "layers.{}.attention.query_key_value"
    return {
        "embedding_VD": Source("embed_in.weight"),
        **_norm("final_norm", "final_layer_norm"),
        **_norm("layers/attn_norm", "layers.{}.input_layernorm"),
        **_linear("layers/attn/q", qkv, columns=of_part[0], width=3 * size),
        **_linear("layers/attn/k", qkv, columns=of_part[1], width=3 * size),
        **_linear("layers/attn/v", qkv, columns=of_part[2], width=3 * size),
        **_linear("layers/attn/out", "layers.{}.attention.dense"),
        **_norm("layers/mlp_norm", "layers.{}.post_attention_layernorm"),
        **_linear("layers/mlp/up", "layers.{}.mlp.dense_h_to_4h"),
        **_linear("layers/mlp/down", "layers.{}.mlp.dense_4h_to_h"),
    }


def _gpt2(config: ModelConfig) -> _Table:
    """Conv1D keeps (in, out); queries, keys and values are one tensor."""
    size = config.num_heads * config.head_dim
    qkv, all_three = "h.{}.attn.c_attn", np.arange(3 * size)
    return {
        "embedding_VD": Source("wte.weight"),
        "position_PD": Source("wpe.weight"),
        **_norm("final_norm", "ln_f"),
        **_norm("layers/attn_norm", "h.{}.ln_1"),
        **_linear("layers/attn/q", qkv, False, all_three[:size], 3 * size),
        **_linear("layers/attn/k", qkv, False, all_three[size : 2 * size], 3 * size),
        **_linear("layers/attn/v", qkv, False, all_three[2 * size :], 3 * size),
        **_linear("layers/attn/out", "h.{}.attn.c_proj", False),
        **_norm("layers/mlp_norm", "h.{}.ln_2"),
        **_linear("layers/mlp/up", "h.{}.mlp.c_fc", False),
        **_linear("layers/mlp/down", "h.{}.mlp.c_proj", False),
    }


def _gptj(config: ModelConfig) -> _Table:
    """Its pairs are neighbours, (x[2i], x[2i + 1]): q and k are put into the decoder's order, which changes no product."""
    rotated = 2 * len(config.layer_ropes[0].frequencies)
    head = np.concatenate([np.arange(0, rotated, 2), np.arange(1, rotated, 2), np.arange(rotated, config.head_dim)])
    order = (np.arange(config.num_heads)[:, None] * config.head_dim + head).ravel()
    return {
        "embedding_VD": Source("wte.weight"),
        **_norm("final_norm", "ln_f"),
        **_norm("layers/attn_norm", "h.{}.ln_1"),
        **_linear("layers/attn/q", "h.{}.attn.q_proj", columns=order, width=len(order)),
        **_linear("layers/attn/k", "h.{}.attn.k_proj", columns=order, width=len(order)),
        **_linear("layers/attn/v", "h.{}.attn.v_proj"),
        **_linear("layers/attn/out", "h.{}.attn.out_proj"),
        **_linear("layers/mlp/up", "h.{}.mlp.fc_in"),
        **_linear("layers/mlp/down", "h.{}.mlp.fc_out"),
    }


_TABLES: Mapping[str, Callable[[ModelConfig], _Table]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _llama,
    "qwen3": _llama,
    "gemma": _llama,
    "gemma2": _gemma_later,
    "gemma3_text": _gemma_later,
    "olmo2": _gemma_later,
    "olmo3": _gemma_later,
    "granite": _llama,
    "stablelm": _stablelm,
    "phi3": _phi3,
    "nanochat": _nanochat,
    "gpt_neox": _gpt_neox,
    "gpt2": _gpt2,
    "gptj": _gptj,
}
