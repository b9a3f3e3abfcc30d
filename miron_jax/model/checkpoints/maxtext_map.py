"""Names of MaxText's arrays, and how each becomes a leaf of the decoder.

Arrives: the names on disk, a ModelConfig, `MaxTextSettings`.  Leaves: `Mapped` for each leaf.  It
deliberately does not read files or arrays.

The source is AI-Hypercomputer/maxtext 0.2.5: checkpoint_conversion/utils/param_mapping.py, models/.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.maxtext_settings import MaxTextSettings, check_family
from miron_jax.model.checkpoints.param_map import Change, LayerArray, Mapped, unchanged
from miron_jax.model.config import ModelConfig

# Norms of a layer -> MaxText's names
_LLAMA_NORMS = {
    "attn_norm": "pre_self_attention_layer_norm/scale",
    "mlp_norm": "post_self_attention_layer_norm/scale",
}
_GEMMA_NORMS = {
    "attn_norm": "pre_self_attention_norm{}/scale",
    "attn_post_norm": "post_self_attention_norm{}/scale",
    "mlp_norm": "pre_ffw_norm{}/scale",
    "mlp_post_norm": "post_ffw_norm{}/scale",
}


def is_maxtext(names: Collection[str]) -> bool:
    """Whether these are the names of a MaxText tree."""
    suffixes = ("token_embedder/embedding", "decoder/decoder_norm/scale")
    return all(any(f"/{name}".endswith(f"/{suffix}") for name in names) for suffix in suffixes)


def maxtext_map(
    folder: Path,
    config: ModelConfig,
    names: Collection[str],
    scale: float,
    settings: MaxTextSettings | None,
) -> dict[str, Mapped]:
    """The mapping of a Llama or Gemma; `scale` is the decoder's embedding scale in the run's dtype.

    MaxText stores kernels as (embed, heads, head), stacks layers or numbers them, and multiplies
    the attention scale into the query kernel, except for Gemma 3.  Its Gemma embedding includes the
    embedding scale, and its Gemma norms hold 1 + weight.  Vocabularies may be padded.  Raises
    InputError for another family, or without the settings of the config file.
    """
    check_family(folder, config.family)
    if settings is None:
        raise InputError(
            f"{folder}: a MaxText tree does not say how it rotates, caps and divides: name "
            "MaxText's own config, --param_map=config.yml, or a file of two lines, model_name: "
            "default and rope_type: default (docs/checkpoints.md has the other fields)"
        )
    root = _maxtext_root(folder, names)
    layer = _LayerNames(
        config,
        {name.removeprefix(root) for name in names if name.startswith(root)},
        root,
        settings.layer_axis,
    )
    change = _Changes(folder, config, scale, settings)
    embedding = LayerArray(f"{root}token_embedder/embedding")
    head = Mapped((LayerArray(f"{root}decoder/logits_dense/kernel"),), change.head)
    if settings.tied:
        head = Mapped((embedding,), change.tied_head)
    final_norm = LayerArray(f"{root}decoder/decoder_norm/scale")
    attention = "self_attention{}"
    mapped = {
        "embedding_VD": Mapped((embedding,), change.table),
        "final_norm/weight": Mapped((final_norm,), change.final_norm),
        "head_VD": head,
        "layers/attn/q/kernel_IO": layer(f"{attention}/query/kernel", change.query),
        "layers/attn/k/kernel_IO": layer(f"{attention}/key/kernel", change.key),
        "layers/attn/v/kernel_IO": layer(f"{attention}/value/kernel", change.value),
        "layers/attn/out/kernel_IO": layer(f"{attention}/out/kernel", change.out),
        "layers/attn/q_norm/weight": layer(f"{attention}/query_norm/scale", change.head_norm),
        "layers/attn/k_norm/weight": layer(f"{attention}/key_norm/scale", change.head_norm),
        "layers/mlp/gate/kernel_IO": layer("mlp{}/wi_0/kernel", unchanged),
        "layers/mlp/up/kernel_IO": layer("mlp{}/wi_1/kernel", unchanged),
        "layers/mlp/down/kernel_IO": layer("mlp{}/wo/kernel", unchanged),
    }
    norms = _LLAMA_NORMS
    if config.family.startswith("gemma"):
        norms = _GEMMA_NORMS
    for leaf, name in norms.items():
        mapped[f"layers/{leaf}/weight"] = layer(name, change.norm)
    return mapped


class _Changes(NamedTuple):
    """How a stored array becomes a leaf of the decoder, on the host."""

    folder: Path
    config: ModelConfig
    scale: float  # the decoder's embedding scale in the run's dtype
    settings: MaxTextSettings

    def table(self, x: np.ndarray) -> np.ndarray:
        return x[: self.config.vocab_size] / np.float32(self.scale)

    def head(self, x: np.ndarray) -> np.ndarray:
        return x.T[: self.config.vocab_size]

    def tied_head(self, x: np.ndarray) -> np.ndarray:
        """In float32, where the head is another table than the embedding."""
        return self.table(x.astype(jnp.bfloat16).astype(np.float32))

    def norm(self, x: np.ndarray) -> np.ndarray:
        return x - self.config.norm_offset

    def final_norm(self, x: np.ndarray) -> np.ndarray:
        """What multiplies the logits of a tied head, whose table holds `scale`, multiplies the norm
        before them."""
        of_logits = self.scale if self.settings.tied else 1.0
        if self.settings.divided:
            of_logits /= self.config.d_model**0.5
        return self.norm(x * np.float32(of_logits))

    def head_norm(self, x: np.ndarray) -> np.ndarray:
        return self._rotated(self.norm(x))

    def query(self, x: np.ndarray) -> np.ndarray:
        x = self._rotated(self._heads(x, self.config.num_heads))
        if self.config.family == "gemma3_text":
            return x
        return x.astype(np.float32) / np.float32(self.config.attn_scale)

    def key(self, x: np.ndarray) -> np.ndarray:
        return self._rotated(self._heads(x, self.config.num_kv_heads))

    def value(self, x: np.ndarray) -> np.ndarray:
        return self._heads(x, self.config.num_kv_heads)

    def out(self, x: np.ndarray) -> np.ndarray:
        return self._heads(x, self.config.num_heads, axis=0)

    def _rotated(self, x: np.ndarray) -> np.ndarray:  # [.., head]
        if not self.settings.interleaved:
            return x
        return np.concatenate([x[..., ::2], x[..., 1::2]], axis=-1)

    def _heads(self, x: np.ndarray, count: int, axis: int = 1) -> np.ndarray:
        """The kernel.  Raises InputError unless its axes from `axis` on are so many heads."""
        shape = (count, self.config.head_dim)
        if x.shape[axis : axis + 2] != shape:
            raise InputError(
                f"{self.folder}: an attention kernel of a layer has shape {list(x.shape)}, "
                f"expected {count} heads of {self.config.head_dim}; use the config.json that "
                "belongs to this checkpoint"
            )
        return x


def _maxtext_root(folder: Path, names: Iterable[str]) -> str:
    """The prefix of the weights' names; an optimizer's moments have the same names after another
    prefix.

    Raises InputError if several prefixes may be that of the weights.
    """
    suffix = "token_embedder/embedding"
    roots = {name.removesuffix(suffix) for name in names if f"/{name}".endswith(f"/{suffix}")}
    for root in ("params/params/", "params/", ""):
        if root in roots:
            return root
    if len(roots) != 1:
        raise InputError(
            f"{folder}: holds MaxText's names below {', '.join(sorted(roots))}, expected them "
            "once, or below params; save the weights alone"
        )
    return next(iter(roots))


class _LayerNames(NamedTuple):
    """Names of a layer's arrays in MaxText: Gemma 2 pairs layers (local, global), Gemma 3 scans
    blocks of six."""

    config: ModelConfig
    names: set[str]  # without the root
    root: str
    axis: int  # of layers

    def __call__(self, name: str, change: Change) -> Mapped:
        return Mapped(
            tuple(self._array(name, layer) for layer in range(self.config.num_layers)), change
        )

    def _array(self, name: str, layer: int) -> LayerArray:
        suffix = name.format("")
        index = layer
        if self.config.family == "gemma2":
            suffix = name.format("_global" if layer % 2 else "_local")
            index = layer // 2
        stacked = f"decoder/layers/{suffix}"
        if stacked in self.names:
            return LayerArray(self.root + stacked, self.axis, index)
        block, layer_of_block = divmod(layer, 6)
        in_block = f"decoder/layers/layers_{layer_of_block}/{suffix}"
        in_remainder = f"decoder/layers_remainder/layers_{layer_of_block}/{suffix}"
        if in_block in self.names and layer < self.config.num_layers - self.config.num_layers % 6:
            return LayerArray(self.root + in_block, self.axis, block)
        if in_remainder in self.names:
            return LayerArray(self.root + in_remainder)
        return LayerArray(f"{self.root}decoder/layers_{index}/{suffix}")
