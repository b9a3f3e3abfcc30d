"""Log-probabilities of the whole vocabulary after every token, by the decoder alone: no plan, no kernel of the head."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import abstract
from miron_jax.model.visibility import Visibility


@functools.cache
def program(config: ModelConfig, dtype: Any) -> Any:
    """Rows -> the whole vocabulary's log-probabilities after every place."""
    graphdef, _ = abstract(config, dtype)

    @jax.jit
    def run(state: Any, token_ids: jax.Array, position: jax.Array, subtree_end: jax.Array) -> jax.Array:
        decoder = nnx.merge(graphdef, state)
        hidden_BTD, head = decoder(token_ids, position, Visibility(subtree_end, position)), decoder.head()
        assert hidden_BTD.dtype == jnp.float32
        operand = hidden_BTD.astype(head.weight_VD.dtype)
        logits = jnp.einsum("btd,vd->btv", operand, head.weight_VD, preferred_element_type=jnp.float32)
        logits = logits if head.bias_V is None else logits + head.bias_V[None, None]
        logits = logits * head.scale
        logits = logits if head.softcap is None else head.softcap * jnp.tanh(logits / head.softcap)
        return jax.nn.log_softmax(logits, axis=-1)

    return run


def logprobs(
    config: ModelConfig, state: Any, token_ids: np.ndarray, position: Any = None, subtree_end: Any = None
) -> np.ndarray:
    """Plain rows unless told otherwise."""
    rows, length = token_ids.shape
    position = np.tile(np.arange(length, dtype=np.int32), (rows, 1)) if position is None else position
    subtree_end = np.full_like(token_ids, length) if subtree_end is None else subtree_end
    run = program(config, jax.tree.leaves(state)[0].dtype)
    return np.asarray(run(state, *map(jnp.asarray, (token_ids, position, subtree_end))))
