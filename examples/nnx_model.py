"""A small transformer in NNX, scored where it stands:

miron-jax eval --model=nnx_model:make --tasks=miron-gen
"""

import jax.numpy as jnp
import miron_jax
from flax import nnx
from miron_jax.model import demo


class Block(nnx.Module):
    def __init__(self, width: int, heads: int, rngs: nnx.Rngs):
        self.heads = heads
        self.before = nnx.RMSNorm(width, rngs=rngs)
        self.between = nnx.RMSNorm(width, rngs=rngs)
        self.qkv = nnx.Linear(width, 3 * width, rngs=rngs)
        self.out = nnx.Linear(width, width, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x, visibility):
        batch, length, width = x.shape
        qkv = self.qkv(self.before(x)).reshape(batch, length, 3 * self.heads, -1)
        q, k, v = jnp.split(qkv, 3, axis=2)
        # or your own attention under visibility.mask()
        seen = visibility.attend(q, k, v, scale=q.shape[-1] ** -0.5)
        x = x + self.out(seen.reshape(batch, length, width))
        return x + self.down(nnx.gelu(self.up(self.between(x))))


class Model(nnx.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, rngs: nnx.Rngs):
        self.tokens = nnx.Embed(vocabulary, width, rngs=rngs)
        self.places = nnx.Embed(512, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, heads, rngs) for _ in range(layers)])
        self.norm = nnx.RMSNorm(width, rngs=rngs)

    def hidden(self, token_ids, positions, visibility):  # [B, T] each -> [B, T, width]
        x = self.tokens(token_ids) + self.places(positions)  # not arange: a row holds branches
        for block in self.blocks:
            x = block(x, visibility)
        return self.norm(x)


def make(seed: int = 0) -> miron_jax.OwnModel:
    graphdef, params = nnx.split(Model(1280, width=64, layers=2, heads=4, rngs=nnx.Rngs(seed)))
    return miron_jax.OwnModel(
        vocab_size=1280,
        hidden=lambda params, *batch: nnx.merge(graphdef, params).hidden(*batch),
        head=lambda params: nnx.merge(graphdef, params).tokens.embedding[...],  # [V, D]
        params=params,
        tokenizer=demo.FOLDER,  # a folder, a hub id or a transformers tokenizer
        num_positions=512,
    )
