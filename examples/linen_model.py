"""The same transformer in Linen: miron-jax eval --model=linen_model:make --tasks=miron-gen"""

import jax
import jax.numpy as jnp
import miron_jax
from flax import linen as nn
from miron_jax.model import demo

VOCABULARY, WIDTH, LAYERS, HEADS, POSITIONS = 1280, 64, 2, 4, 512


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, visibility):
        batch, length, width = x.shape
        qkv = nn.Dense(3 * width)(nn.RMSNorm()(x)).reshape(batch, length, 3 * HEADS, -1)
        q, k, v = jnp.split(qkv, 3, axis=2)
        seen = visibility.attend(q, k, v, scale=q.shape[-1] ** -0.5)
        x = x + nn.Dense(width)(seen.reshape(batch, length, width))
        return x + nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(nn.RMSNorm()(x))))


class Model(nn.Module):
    def setup(self):
        self.tokens, self.places = nn.Embed(VOCABULARY, WIDTH), nn.Embed(POSITIONS, WIDTH)
        self.blocks, self.norm = [Block() for _ in range(LAYERS)], nn.RMSNorm()

    # [B, T] each -> hidden states [B, T, WIDTH]
    def __call__(self, token_ids, positions, visibility):
        x = self.tokens(token_ids) + self.places(positions)
        for block in self.blocks:
            x = block(x, visibility)
        return self.norm(x)


def make(seed: int = 0) -> miron_jax.OwnModel:
    model, visibility = Model(), miron_jax.Visibility.causal(1, 8)
    params = model.init(
        jax.random.key(seed), jnp.zeros((1, 8), jnp.int32), visibility.position_BT, visibility
    )
    return miron_jax.OwnModel(
        vocab_size=VOCABULARY,
        hidden=model.apply,
        head=lambda params: params["params"]["tokens"]["embedding"],  # [V, D]
        params=params,
        tokenizer=demo.FOLDER,
        num_positions=POSITIONS,
    )
