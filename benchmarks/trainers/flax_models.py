"""Two users' models, Linen and NNX, which both the script of Flax and miron_jax import."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx
from saved import TOKEN_IDS, VOCAB

WIDTH, HEADS, LAYERS, POSITIONS = 32, 4, 2, 256


def seen(qkv: jax.Array) -> jax.Array:
    """Causal attention; qkv is [B, T, 3 * WIDTH]."""
    q, k, v = jnp.split(qkv.reshape(*qkv.shape[:2], 3 * HEADS, WIDTH // HEADS), 3, axis=2)
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(*qkv.shape[:2], WIDTH)


class LinenModel(linen.Module):
    @linen.compact
    def __call__(self, token_ids: jax.Array) -> jax.Array:
        places = linen.Embed(POSITIONS, WIDTH, name="places")
        x = linen.Embed(VOCAB, WIDTH, name="tokens")(token_ids)
        x = x + places(jnp.arange(token_ids.shape[1]))
        for i in range(LAYERS):
            qkv = linen.Dense(3 * WIDTH, name=f"qkv_{i}")(linen.RMSNorm(name=f"norm_{i}")(x))
            x = x + linen.Dense(WIDTH, name=f"out_{i}")(seen(qkv))
        return linen.Dense(VOCAB, name="head")(linen.RMSNorm(name="norm")(x))


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.qkv = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs)
        self.out = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x + self.drop(self.out(seen(self.qkv(self.norm(x)))))


class NnxModel(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.tokens = nnx.Embed(VOCAB, WIDTH, rngs=rngs)
        self.places = nnx.Embed(POSITIONS, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, VOCAB, rngs=rngs)

    def __call__(self, token_ids: jax.Array) -> jax.Array:
        x = self.tokens(token_ids) + self.places(jnp.arange(token_ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def own_model(logits: Any, params: Any) -> Any:
    """The record that miron_jax takes; its own environment alone has the package."""
    import miron_jax

    return miron_jax.OwnModel(
        vocab_size=VOCAB, logits=logits, params=params, num_positions=POSITIONS
    )


def make_linen() -> Any:
    model = LinenModel()
    shapes = jax.eval_shape(model.init, jax.random.key(0), TOKEN_IDS)
    return own_model(model.apply, shapes)


def make_nnx() -> Any:
    model = NnxModel(nnx.Rngs(0))
    model.eval()
    graphdef, params, others = nnx.split(model, nnx.Param, ...)
    return own_model(lambda params, ids: nnx.merge(graphdef, params, others)(ids), params)
