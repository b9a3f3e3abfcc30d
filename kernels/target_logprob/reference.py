"""The definition of target_logprob: all logits at once.  Computes in the dtype it is given (float64
in tests).

Shapes: hidden [S, D], weight [V, D], bias [V] or None, parent and target [E] int32; out logprob [E]
nats, rank [E].
"""

import jax
import jax.numpy as jnp


def target_logprob(
    hidden_SD: jax.Array,
    weight_VD: jax.Array,
    parent_E: jax.Array,
    target_E: jax.Array,
    *,
    bias_V: jax.Array | None = None,
    softcap: float | None = None,
    scale: float = 1.0,
) -> tuple[jax.Array, jax.Array]:
    """log p(target) and rank: how many tokens stand ahead of the target, equal logits ordered by
    lower id."""
    logits_EV = _logits(hidden_SD, weight_VD, bias_V, softcap, scale)[parent_E]
    chosen_E1 = jnp.take_along_axis(logits_EV, target_E[:, None], axis=1)
    logprob_E = chosen_E1[:, 0] - jax.nn.logsumexp(logits_EV, axis=1)
    id_1V = jnp.arange(logits_EV.shape[1], dtype=jnp.int32)[None]
    ahead_EV = (logits_EV > chosen_E1) | ((logits_EV == chosen_E1) & (id_1V < target_E[:, None]))
    return logprob_E, ahead_EV.sum(axis=1, dtype=jnp.int32)


def distribution(
    hidden_SD: jax.Array,
    weight_VD: jax.Array,
    parent_E: jax.Array,
    *,
    bias_V: jax.Array | None = None,
    softcap: float | None = None,
    scale: float = 1.0,
) -> jax.Array:
    """[E, 3]: the entropy of the distribution in which each target stands, - sum of p log p with
    0 log 0 = 0, log p of its most probable token, and the variance of log p."""
    logprob_EV = jax.nn.log_softmax(_logits(hidden_SD, weight_VD, bias_V, softcap, scale), axis=1)
    logprob_EV = logprob_EV[parent_E]
    p_EV = jnp.exp(logprob_EV)
    entropy_E = -jnp.where(p_EV == 0, 0.0, p_EV * logprob_EV).sum(axis=1)
    squares_EV = p_EV * (logprob_EV + entropy_E[:, None]) ** 2
    variance_E = jnp.where(p_EV == 0, 0.0, squares_EV).sum(axis=1)
    return jnp.stack([entropy_E, logprob_EV.max(axis=1), variance_E], axis=1)


def id_set_logprob(
    hidden_AD: jax.Array,
    weight_VD: jax.Array,
    sets_GV: jax.Array,
    set_A: jax.Array,
    *,
    bias_V: jax.Array | None = None,
    softcap: float | None = None,
    scale: float = 1.0,
) -> jax.Array:
    """log of the sum of p(v) over the ids v that row set_A[a] of sets_GV (bool [G, V]) holds, [A]
    nats."""
    logprob_AV = jax.nn.log_softmax(_logits(hidden_AD, weight_VD, bias_V, softcap, scale), axis=1)
    return jax.nn.logsumexp(jnp.where(sets_GV[set_A], logprob_AV, -jnp.inf), axis=1)


def _logits(
    hidden_SD: jax.Array,
    weight_VD: jax.Array,
    bias_V: jax.Array | None,
    softcap: float | None,
    scale: float,
) -> jax.Array:
    logits_SV = jnp.einsum("sd,vd->sv", hidden_SD, weight_VD)
    if bias_V is not None:
        logits_SV = logits_SV + bias_V[None]
    logits_SV = logits_SV * scale
    if softcap is not None:
        logits_SV = softcap * jnp.tanh(logits_SV / softcap)
    return logits_SV
