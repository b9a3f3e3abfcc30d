"""target_logprob in plain XLA: a chunk of parents through the head at a time, as many chunks as
there are, never more.

The number of chunks and of rounds is traced, so one compiled program serves any number of edges up
to its array sizes and the time follows the edges that are there.  Logits live for one chunk:
[chunk, V] float32.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from miron_jax.kernels.reductions import row_dot, row_max, row_sum

LOWEST = -1e30  # stands for the maximum of nothing
# Logits as far below the largest have a probability of 0 in float32; infinity times it is NaN.
NO_PROBABILITY = -200.0
DISTRIBUTION = 3  # numbers of a distribution: see `_distribution`
# rounds of at most this many targets pass over as many rows of logits instead of the whole chunk
NARROW = 8


@jax.named_scope("target_logprob")
def target_logprob(
    hidden_SD: jax.Array,
    weight_VD: jax.Array | None,
    target_E: jax.Array,
    round_start_R: jax.Array,
    chunk_round_C1: jax.Array,
    num_chunks: jax.Array,
    *,
    bias_V: jax.Array | None = None,
    softcap: float | None = None,
    scale: float = 1.0,
    vocab_size: int | None = None,
    chunk: int,
    with_distribution: bool = False,
) -> tuple[jax.Array, ...]:
    """Log-probability (nats, float32 [E]) and rank (int32 [E]) of each target, in the order of
    `layout.EdgeLayout`; if asked, of the distribution in which it stands too: entropy, largest
    log-probability and variance of log p (nats, nats, nats², float32 [E, 3]).

    hidden [S, D] holds the parents' states with S a multiple of `chunk`; arrays may be longer than
    what is in use: `num_chunks` (int32 scalar) says how many chunks are, and `round_start_R` needs
    one entry past the last round.
    """
    length = target_E.shape[0]
    target_P = jnp.pad(target_E, (0, chunk))  # the last round may read past its end
    carry = (
        jnp.zeros((length + chunk,), jnp.float32),
        jnp.zeros((length + chunk,), jnp.int32),
    )
    if with_distribution:
        carry += (jnp.zeros((length + chunk, DISTRIBUTION), jnp.float32),)

    def one_chunk(c: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        hidden_CD = jax.lax.dynamic_slice_in_dim(hidden_SD, c * chunk, chunk)
        logits_CV = head_logits(hidden_CD, weight_VD, bias_V, softcap, scale, vocab_size)
        of_parents = (_logsumexp(logits_CV),)
        if with_distribution:
            of_parents += (_distribution(logits_CV),)

        def one_round(r: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            start = round_start_R[r]
            stop = round_start_R[r + 1]
            narrow = min(NARROW, chunk)
            return jax.lax.cond(
                stop - start <= narrow,
                lambda: _write_round(
                    carry, logits_CV[:narrow], [x[:narrow] for x in of_parents], target_P, start
                ),
                lambda: _write_round(carry, logits_CV, of_parents, target_P, start),
            )

        return jax.lax.fori_loop(chunk_round_C1[c], chunk_round_C1[c + 1], one_round, carry)

    carry = jax.lax.fori_loop(jnp.int32(0), num_chunks, one_chunk, carry)
    return tuple(column[:length] for column in carry)


@jax.named_scope("id_set_logprob")
def id_set_logprob(
    hidden_AD: jax.Array,
    weight_VD: jax.Array | None,
    sets_GV: jax.Array,
    set_A: jax.Array,
    num_queries: jax.Array,
    *,
    bias_V: jax.Array | None = None,
    softcap: float | None = None,
    scale: float = 1.0,
    vocab_size: int | None = None,
    chunk: int,
) -> jax.Array:
    """Log of the probability (nats, float32 [A]) that the next token is any of the set's: row set_A
    of sets_GV (bool).

    A is a multiple of `chunk`; the first `num_queries` (int32 scalar) are in use, the others stay
    0.
    """

    def one_chunk(c: jax.Array, logprob_A: jax.Array) -> jax.Array:
        hidden_CD = jax.lax.dynamic_slice_in_dim(hidden_AD, c * chunk, chunk)
        logits_CV = head_logits(hidden_CD, weight_VD, bias_V, softcap, scale, vocab_size)
        chosen_CV = sets_GV[jax.lax.dynamic_slice_in_dim(set_A, c * chunk, chunk)]
        # by its own maximum, so that it cannot vanish
        in_set_C = _logsumexp(jnp.where(chosen_CV, logits_CV, -jnp.inf))
        own_C = in_set_C - _logsumexp(logits_CV)
        return jax.lax.dynamic_update_slice_in_dim(logprob_A, own_C, c * chunk, axis=0)

    num_chunks = (num_queries + chunk - 1) // chunk
    return jax.lax.fori_loop(
        jnp.int32(0), num_chunks, one_chunk, jnp.zeros(set_A.shape, jnp.float32)
    )


def _logsumexp(x_CV: jax.Array) -> jax.Array:
    """-inf where every entry is."""
    highest_C = jnp.maximum(row_max(x_CV), LOWEST)
    return highest_C + jnp.log(row_sum(jnp.exp(x_CV - highest_C[:, None])))


def _distribution(logits_CV: jax.Array) -> jax.Array:
    """[C, 3]: entropy = log sum of exp(x - max) - sum of exp(x - max) (x - max) / sum of
    exp(x - max), max - logsumexp, and the variance of x: the mean of (x - max)² less the square of
    the mean of x - max, each with weight exp(x - max).  XLA merges it with `_logsumexp`."""
    highest_C = jnp.maximum(row_max(logits_CV), LOWEST)
    below_CV = logits_CV - highest_C[:, None]
    weight_CV = jnp.exp(below_CV)
    sum_C = row_sum(weight_CV)
    below_CV = jnp.maximum(below_CV, NO_PROBABILITY)
    mean_below_C = row_dot(weight_CV, below_CV) / sum_C
    variance_C = row_dot(weight_CV, below_CV * below_CV) / sum_C - mean_below_C**2
    log_sum_C = jnp.log(sum_C)
    columns = (log_sum_C - mean_below_C, -log_sum_C, jnp.maximum(variance_C, 0.0))
    return jnp.stack(columns, axis=1)


def head_logits(
    hidden_CD: jax.Array,
    weight_VD: jax.Array | None,
    bias_V: jax.Array | None,
    softcap: float | None,
    scale: float,
    vocab_size: int | None = None,
) -> jax.Array:
    """Logits [C, V] float32 of hidden states [C, D]; the matmul runs in the head's dtype with
    float32 sums.

    Without a weight the hidden states are logits already, and D is V.  Rows of the weight past
    `vocab_size` only fill it up: their logits are -inf.
    """
    if weight_VD is None:
        logits_CV = hidden_CD.astype(jnp.float32)
    else:
        operand_CD = hidden_CD.astype(weight_VD.dtype)
        logits_CV = jnp.einsum(
            "cd,vd->cv", operand_CD, weight_VD, preferred_element_type=jnp.float32
        )
    if bias_V is not None:
        logits_CV += bias_V.astype(jnp.float32)[None]
    if scale != 1.0:
        logits_CV *= scale
    if softcap is not None:
        logits_CV = softcap * jnp.tanh(logits_CV / softcap)
    if vocab_size is not None and vocab_size < logits_CV.shape[1]:
        id_1V = jax.lax.broadcasted_iota(jnp.int32, (1, logits_CV.shape[1]), 1)
        logits_CV = jnp.where(id_1V < vocab_size, logits_CV, -jnp.inf)
    return logits_CV


def _write_round(
    carry: tuple[jax.Array, ...],
    logits_CV: jax.Array,
    of_parents: Sequence[jax.Array],
    target_P: jax.Array,
    start: jax.Array,
) -> tuple[jax.Array, ...]:
    """Score target_P[start:start + C] against rows 0 to C; what lies past the round's end is
    overwritten by the next.  `of_parents`: logsumexp of each row, and its distribution."""
    logsumexp_C, *distribution = of_parents
    target_C = jax.lax.dynamic_slice_in_dim(target_P, start, logits_CV.shape[0])
    chosen_C1 = jnp.take_along_axis(logits_CV, target_C[:, None], axis=1)
    id_1V = jax.lax.broadcasted_iota(jnp.int32, (1, logits_CV.shape[1]), 1)
    ahead_CV = (logits_CV > chosen_C1) | ((logits_CV == chosen_C1) & (id_1V < target_C[:, None]))
    rank_C = ahead_CV.sum(axis=1, dtype=jnp.int32)
    columns = (chosen_C1[:, 0] - logsumexp_C, rank_C, *distribution)
    return tuple(
        jax.lax.dynamic_update_slice_in_dim(so_far, column, start, axis=0)
        for so_far, column in zip(carry, columns, strict=True)
    )
