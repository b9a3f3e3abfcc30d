"""A recurrent model in Linen: its state is what the text so far has left behind.

miron-jax eval --model=recurrent_model:make --tasks=miron-gen
"""

import jax
import jax.numpy as jnp
import miron_jax
from flax import linen as nn
from miron_jax.model import demo


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, carry, token_ids):  # [64], [T] -> [T, 1280], [64]
        rnn = nn.RNN(nn.GRUCell(64), return_carry=True)
        carry, x = rnn(nn.Embed(1280, 64)(token_ids), initial_carry=carry)
        return nn.Dense(1280)(x), carry


def make() -> miron_jax.OwnModel:
    model, carry = Recurrent(), jnp.zeros(64)
    params = model.init(jax.random.key(0), carry, jnp.zeros(8, jnp.int32))
    return miron_jax.OwnModel(
        vocab_size=1280,
        state=lambda params, num_tokens: carry,
        step=model.apply,
        params=params,
        tokenizer=demo.FOLDER,
    )
