"""How often the tests of `memorized` err, over simulated sets that no model has read, and how often they notice that a model
was trained on half of a set.  docs/memorized.md has the numbers: run with -s."""

from collections import Counter
from itertools import pairwise
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from miron_jax.engine.records import Score
from miron_jax.evaluation.memorized import Memorized, TaskRows
from tests.support.own_models import users_promotion

__all__ = ["users_promotion"]
LEVEL, CLEAN_SETS = 0.05, 2_000
MODELS, STEPS, WIDTH, VOCAB, LENGTH, NUM_ROWS = 12, 150, 128, 40, 32, 100
NAMES = [*map(str, range(NUM_ROWS))]
CONTEXT = 8  # tokens
BOS, SEPARATOR = 1, 2


@pytest.mark.long
def test_of_clean_sets_one_in_twenty_is_called_known() -> None:
    """Each token has a probability of its own wherever it stands, with heavy tails; each row is more or less probable as
    a whole, in every context by another amount; the later in a text, the more probable; a twin shares half with its row;
    two rows are of one cluster, which has its amount, and two twins of other rows likewise; where the model is sure the
    deviation of log p is as small as it gets."""
    rng = np.random.default_rng(58)
    lengths = rng.integers(LENGTH, 60, 200)
    ends = np.cumsum([3, *lengths])
    rows = [np.arange(a, b, dtype=np.int32) for a, b in pairwise(ends)]
    of_twins = int(ends[-1])
    twins: list[Any] = [row + of_twins for row in rows]
    clusters = np.stack([np.arange(201) // 2, 101 + rng.permutation(201) // 2])  # of rows, and of twins
    task = TaskRows("clean", rows, [*clusters[0, 1:].astype(str)], twins, [*clusters[1, 1:].astype(str)])
    tests = Memorized([task], (BOS,), (SEPARATOR,), 2048, 0, test_rows=600)
    requests = tests.requests
    ids = np.concatenate([scored[1:] for scored, _ in requests])
    row_of_id = np.repeat(np.arange(201), np.diff([0, *ends]))
    row_of_token = row_of_id[ids % of_twins]
    cluster = clusters[(ids >= of_twins).astype(int), row_of_token]
    segment = np.cumsum(np.diff(row_of_token, prepend=0) != 0)
    position = np.concatenate([np.arange(len(scored) - 1) for scored, _ in requests])
    offsets = np.cumsum([0, *(len(scored) - 1 for scored, _ in requests)]).tolist()
    starts = [start - 1 for _, start in requests]

    p_values: dict[str, list[float]] = {}
    family = 0
    for _ in range(CLEAN_SETS):
        of_ids, spread = rng.standard_t(3, (2, 2 * of_twins))
        of_rows = rng.standard_t(3, 201)
        of_clusters = rng.standard_t(3, 202)
        of_contexts = rng.standard_t(3, segment[-1] + 1)
        nats = of_ids[ids] + of_rows[row_of_token] + of_clusters[cluster] + 0.5 * of_contexts[segment]
        nats += 0.1 * np.log1p(position)
        logprob = -np.exp(np.clip(-nats, -20, 4)).astype(np.float32)
        entropy = np.abs(spread[ids])
        variance = np.exp(np.clip(4 * spread[ids] - 2, -20, 4))
        distribution = np.stack([entropy, entropy, variance], axis=1).astype(np.float32)
        scores = []
        for a, b, start in zip(offsets[:-1], offsets[1:], starts, strict=True):
            scores.append(Score(logprob[a + start : b], np.zeros(0, np.int32), 0.0, distribution[a + start : b]))
        [result] = tests.results(scores)
        family += any(each.holm <= LEVEL for each in result.tests)
        for each in result.tests:
            p_values.setdefault(each.test, []).append(each.difference.p_value)
    rates = {name: float(np.mean(np.asarray(values) <= LEVEL)) for name, values in p_values.items()}
    print(f"\nof {CLEAN_SETS} clean sets called known at {LEVEL}: {rates}, any by Holm {family / CLEAN_SETS}")
    assert rates.keys() == {"order", "twins", "guided prefix"}
    assert all(0.04 <= rate <= 0.06 for rate in rates.values())
    assert family / CLEAN_SETS <= 0.06


class Reader(nn.Module):
    """Reads the last CONTEXT tokens (Bengio et al. 2003)."""

    @nn.compact
    def __call__(self, token_ids: jax.Array) -> jax.Array:
        length = token_ids.shape[-1]
        padded = jnp.pad(token_ids, ((0, 0), (CONTEXT - 1, 0)))
        last = jnp.stack([padded[:, i : i + length] for i in range(CONTEXT)], axis=-1)
        x = nn.Embed(VOCAB, 16)(last).reshape(*token_ids.shape, -1)
        return nn.Dense(VOCAB)(nn.gelu(nn.Dense(WIDTH)(x)))


def trained(windows: jax.Array, seed: jax.Array) -> Any:
    """Parameters after STEPS steps on windows [N, T] of a file, ten at a time."""
    model, optimizer = Reader(), optax.adam(1e-2)

    def loss(params: Any, token_ids: jax.Array) -> jax.Array:
        logits: Any = model.apply(params, token_ids[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, token_ids[:, 1:]).mean()

    def step(carry: Any, key: jax.Array) -> Any:
        params, state = carry
        some = windows[jax.random.randint(key, (10,), 0, len(windows))]
        value, gradient = jax.value_and_grad(loss)(params, some)
        change, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, change), state), value

    params = model.init(jax.random.key(seed), windows[:1, :-1])
    keys = jax.random.split(jax.random.key(seed + 1000), STEPS)
    (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), keys)
    return params, losses


def scores_by(params: Any, tests: Memorized) -> list[Score]:
    """What the engine would give, of a batch of one length."""
    requests = [*tests.requests]
    longest = max(len(ids) for ids, _ in requests)
    padded = np.stack([np.pad(ids, (0, longest - len(ids))) for ids, _ in requests])
    logprob_RTV = np.asarray(jax.nn.log_softmax(jax.jit(Reader().apply)(params, padded[:, :-1])))
    p_RTV = np.exp(logprob_RTV)
    mean_RT = (p_RTV * logprob_RTV).sum(axis=-1)
    variance_RT = (p_RTV * (logprob_RTV - mean_RT[..., None]) ** 2).sum(axis=-1)
    target_RT = np.take_along_axis(logprob_RTV, padded[:, 1:, None], axis=-1)[..., 0]
    distribution = np.stack([-mean_RT, logprob_RTV.max(axis=-1), variance_RT], axis=-1)
    scores = []
    for i, (ids, start) in enumerate(requests):
        span = slice(start - 1, len(ids) - 1)
        scores.append(Score(target_RT[i, span], np.zeros(0, np.int32), 0.0, distribution[i, span]))
    return scores


@pytest.mark.long
def test_half_of_a_set_read_in_training_is_noticed() -> None:
    """Twelve models, each trained on the first 50 of 100 rows of random tokens, as a file of five rows at a time: more than
    nine in ten are noticed, by each test, and as few as by chance on the set that another model has read."""
    rng = np.random.default_rng(0)
    rows = rng.integers(3, VOCAB, (MODELS, NUM_ROWS, LENGTH)).astype(np.int32)
    twins = rng.integers(3, VOCAB, rows.shape).astype(np.int32)
    separated = np.pad(rows[:, : NUM_ROWS // 2], ((0, 0), (0, 0), (0, 1)), constant_values=SEPARATOR)
    starts = range(NUM_ROWS // 2 - 4)
    windows = np.stack([separated[:, start : start + 5].reshape(MODELS, -1)[:, :-1] for start in starts], axis=1)
    windows = np.pad(windows, ((0, 0), (0, 0), (1, 0)), constant_values=BOS)
    params, losses = jax.jit(jax.vmap(trained))(windows, jnp.arange(MODELS))
    print("\nloss after training", np.asarray(losses)[:, -10:].mean(axis=1).round(2))
    noticed, unread = Counter[str](), Counter[str]()
    for i in range(MODELS):
        of_model = jax.tree.map(lambda leaf, i=i: leaf[i], params)
        for counts, number in ((noticed, i), (unread, (i + 1) % MODELS)):
            task = TaskRows("half", [*rows[number]], NAMES, [*twins[number]], NAMES)
            tests = Memorized([task], (BOS,), (SEPARATOR,), 256, i)
            [result] = tests.results(scores_by(of_model, tests))
            counts.update({each.test: each.difference.p_value <= LEVEL for each in result.tests})
    print(f"of {MODELS} models noticed: {dict(noticed)}, where another has read the set: {dict(unread)}")
    assert noticed.keys() == {"order", "twins", "guided prefix"}
    assert all(count > 0.9 * MODELS for count in noticed.values())
    assert all(count <= 0.25 * MODELS for count in unread.values())
