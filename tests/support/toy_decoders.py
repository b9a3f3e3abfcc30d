"""Configs of tiny decoders, seeded weights for them, and whether two states are the same to the bit."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import abstract
from miron_jax.model.decoder.rope import rope_of
from miron_jax.runtime.devices import Tree

CONFIG = ModelConfig(
    family="llama", vocab_size=31, d_model=12, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=6, d_ff=14,
    trained_length=32, num_positions=None, layer_ropes=(rope_of("default", {"rope_theta": 1e4}, 6),) * 2,
    layer_windows=(None,) * 2, norm_eps=1e-5, attn_scale=6**-0.5, tied_head=True,
)  # fmt: skip


def with_layers(config: ModelConfig, windows: tuple[int | None, ...], **more: Any) -> ModelConfig:
    """The config with a layer for each window."""
    ropes = config.layer_ropes[:1] * len(windows)
    return replace(config, num_layers=len(windows), layer_ropes=ropes, layer_windows=windows, **more)


LLAMA = with_layers(CONFIG, (None,) * 3, tied_head=False, vocab_size=29)
GEMMA = replace(
    LLAMA, family="gemma", tied_head=True, norm_offset=1.0, embedding_scale=12**0.5, embedding_scale_rounded=True,
    activation="gelu_tanh",
)  # fmt: skip
GEMMA2 = with_layers(
    GEMMA, (3, None) * 2, family="gemma2", post_norms=True, attn_softcap=20.0, final_softcap=10.0, attn_scale=5**-0.5,
)  # fmt: skip
GEMMA3 = with_layers(
    GEMMA2, (*(4,) * 5, None, 4, 4), family="gemma3_text", attn_softcap=None, final_softcap=None, qk_norm="head",
)  # fmt: skip

# Where the arrays of `named_by_a_user` (test_param_map) stand.
USERS_MAP = {
    "embedding_VD": "model/wte",
    "final_norm/weight": "model/ln",
    "head_VD": {"name": "model/out", "transposed": True},
    **{f"layers/attn/{name}/kernel_IO": f"model/blocks/{{}}/attn/{name}" for name in ("q", "k", "v")},
    "layers/attn/out/kernel_IO": {"name": "model/blocks/{}/proj", "transposed": True},
    **{f"layers/{norm}/weight": f"model/blocks/{{}}/norms/{i}" for i, norm in enumerate(("attn_norm", "mlp_norm"))},
    **{
        f"layers/mlp/{name}/kernel_IO": {"name": f"model/mlp/{name}", "layer_axis": 2}
        for name in ("gate", "up", "down")
    },
}


@functools.cache
def seeded(config: ModelConfig, dtype: DTypeLike = jnp.float32, seed: int = 3) -> Tree:
    """The state of a Decoder with weights that NumPy draws: nothing is compiled; no two norm weights are equal."""
    rng = np.random.default_rng(seed)

    def draw(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.asarray(rng.normal(size=leaf.shape, scale=0.3).astype(np.float32).astype(leaf.dtype))

    return jax.tree.map(draw, abstract(config, dtype)[1])


def arrays_of(config: ModelConfig) -> dict[str, Any]:
    """The same weights as NumPy arrays by name."""
    return jax.tree.map(np.asarray, nnx.to_pure_dict(seeded(config)))


def weights(dtype: DTypeLike = jnp.bfloat16) -> Tree:
    return seeded(CONFIG, dtype)


def pure() -> dict[str, Any]:
    """The same weights as a tree of dicts, as trainers save them."""
    return nnx.to_pure_dict(weights())


def same_bits(a: Tree, b: Tree) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)
