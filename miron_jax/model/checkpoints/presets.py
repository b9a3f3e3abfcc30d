"""Names of the trees that other libraries save, for `--param_map=NAME`.

Arrives: a ModelConfig and the shapes on disk.  Leaves: a mapping in the form of a user's own
(`param_map.py`).  It deliberately does not read arrays.

    gemma   google-deepmind/gemma 3.3, gemma/gm/nn, its flat and nested layouts; Kauldron saves the
            nested one below params
    tunix   google/tunix 0.1.7, tunix/models: Llama 3, Qwen 2 and 3, Gemma 1 to 3
"""

from collections.abc import Callable

import numpy as np

from miron_jax.files.readers import Json
from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family_model import Shapes

MapEntries = dict[str, Json]  # leaf -> its entry, of unknown shape until it is checked


def gemma(config: ModelConfig, shapes: Shapes) -> MapEntries:
    """Gemma 1 to 3.  Arrays of the vision encoder are not read."""
    layer = "layer_{}"
    gating = f"{layer}/mlp/gating_einsum"
    # Whether a part is (F, D), not (D, F): it differs between the sizes of a family.
    wide_first = any(
        name.endswith("layer_0/mlp/gating_einsum") and shape[1:] == (config.d_ff, config.d_model)
        for name, shape in shapes.items()
    )
    return _gemma_like(config, layer) | {
        "layers/mlp/gate/kernel_IO": {"name": gating, "change": _part(0, transposed=wide_first)},
        "layers/mlp/up/kernel_IO": {"name": gating, "change": _part(1, transposed=wide_first)},
        "layers/mlp/down/kernel_IO": f"{layer}/mlp/linear",
    }


def tunix(config: ModelConfig, shapes: Shapes) -> MapEntries:
    """Kernels are (D, heads, head) or (heads, head, D); Gemma keeps its library's order of them."""
    layer = "layers/{}"
    mlp = {}
    for leaf in ("gate", "up", "down"):
        mlp[f"layers/mlp/{leaf}/kernel_IO"] = f"{layer}/mlp/{leaf}_proj/kernel"
    if config.family == "gemma2":
        return _gemma_like(config, layer, "post_attn_norm") | mlp
    if config.family.startswith("gemma"):
        return _gemma_like(config, layer) | mlp
    return mlp | {
        "embedding_VD": {"name": "embedder/input_embedding", "change": _rows(config)},
        "head_VD": {"name": "lm_head/w", "change": lambda x: _rows(config)(x.T)},
        "final_norm/weight": "final_norm/w",
        "layers/attn_norm/weight": f"{layer}/input_layernorm/w",
        "layers/mlp_norm/weight": f"{layer}/post_attention_layernorm/w",
        "layers/attn/out/kernel_IO": f"{layer}/attn/o_proj/w",
        **{f"layers/attn/{leaf}/kernel_IO": f"{layer}/attn/{leaf}_proj/w" for leaf in "qkv"},
        **{f"layers/attn/{leaf}/bias_O": f"{layer}/attn/{leaf}_bias" for leaf in "qkv"},
        **{f"layers/attn/{leaf}/weight": f"{layer}/attn/{leaf}/w" for leaf in ("q_norm", "k_norm")},
    }


PRESETS: dict[str, Callable[[ModelConfig, Shapes], MapEntries]] = {"gemma": gemma, "tunix": tunix}
IGNORED = r"(.*/)?embedder/mm_.*|(.*/)?vision_encoder/.*"  # of presets: what takes no part in text


def _gemma_like(
    config: ModelConfig, layer: str, attn_post_norm: str = "post_attention_norm"
) -> MapEntries:
    """All but the MLP.  Queries are (heads, D, head), keys and values one array; so are all three
    where they are as many."""
    together = config.num_heads == config.num_kv_heads
    qkv = f"{layer}/attn/{'qkv' if together else 'kv'}_einsum/w"
    first = int(together)
    query = {"name": f"{layer}/attn/q_einsum/w", "change": _heads()}
    if together:
        query = {"name": qkv, "change": _heads(0)}
    return {
        "embedding_VD": {"name": "embedder/input_embedding", "change": _rows(config)},
        "final_norm/weight": "final_norm/scale",
        "layers/attn_norm/weight": f"{layer}/pre_attention_norm/scale",
        "layers/attn_post_norm/weight": f"{layer}/{attn_post_norm}/scale",
        "layers/mlp_norm/weight": f"{layer}/pre_ffw_norm/scale",
        "layers/mlp_post_norm/weight": f"{layer}/post_ffw_norm/scale",
        "layers/attn/q/kernel_IO": query,
        "layers/attn/k/kernel_IO": {"name": qkv, "change": _heads(first)},
        "layers/attn/v/kernel_IO": {"name": qkv, "change": _heads(first + 1)},
        "layers/attn/q_norm/weight": f"{layer}/attn/_query_norm/scale",
        "layers/attn/k_norm/weight": f"{layer}/attn/_key_norm/scale",
        "layers/attn/out/kernel_IO": f"{layer}/attn/attn_vec_einsum/w",
    }


def _heads(part: int | None = None) -> Callable[[np.ndarray], np.ndarray]:
    """(heads, D, head), or one part of several such, -> (D, heads, head)."""
    return lambda x: (x if part is None else x[part]).swapaxes(0, 1)


def _rows(config: ModelConfig) -> Callable[[np.ndarray], np.ndarray]:
    """A table of the vocabulary without the rows that pad it."""
    return lambda x: x[: config.vocab_size]


def _part(part: int, transposed: bool) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: x[part].T if transposed else x[part]
