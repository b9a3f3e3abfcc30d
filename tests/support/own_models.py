"""Models as a user writes them: Linen and NNX, both levels; a slow twin that scores one request after the other."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import miron_jax
from miron_jax.engine.model import Model
from miron_jax.model.own import OwnModel
from miron_jax.tokens.records import Requests
from tests.support.requests import requests_of

VOCAB, WIDTH, PLACES = 331, 24, 96


@pytest.fixture(autouse=True)
def users_promotion() -> Iterator[None]:
    """A user's model is written for jax's own promotion rules, not for this project's strict ones."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class Recurrent(nn.Module):
    """A Linen language model that is no transformer."""

    @nn.compact
    def __call__(self, token_ids: jax.Array) -> jax.Array:
        x = nn.Embed(VOCAB, WIDTH, name="tokens")(token_ids)
        x = nn.RNN(nn.GRUCell(WIDTH), name="cell")(x)
        return nn.Dense(VOCAB, name="head")(4 * x)


class Cell(nn.Module):
    """`Recurrent` one text at a time, from a carry and to one."""

    @nn.compact
    def __call__(self, carry: jax.Array, token_ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = nn.Embed(VOCAB, WIDTH, name="tokens")(token_ids[None])
        after, x = nn.RNN(nn.GRUCell(WIDTH), name="cell", return_carry=True)(x, initial_carry=carry[None])
        return nn.Dense(VOCAB, name="head")(4 * x)[0], after[0]


def bigrams(**changes: Any) -> OwnModel:
    """A table of the logits after each token: the smallest model there is, for what is wrapped around one."""
    table = jnp.asarray(np.random.default_rng(0).normal(size=(VOCAB, VOCAB)), jnp.float32)
    given = {"vocab_size": VOCAB, "logits": lambda params, ids: params[ids], "params": table}
    return OwnModel(**{**given, **changes})


def summing(**changes: Any) -> OwnModel:
    """A state that is the sum of the tokens' embeddings: as small, of models that carry one."""
    table = jnp.asarray(np.random.default_rng(1).normal(size=(VOCAB, WIDTH)), jnp.float32)
    given = {"vocab_size": VOCAB, "params": table, "state": empty_carry, "step": sums}
    return OwnModel(**{**given, **changes})


def empty_carry(params: Any, num_tokens: int) -> jax.Array:
    return jnp.zeros(WIDTH)


def sums(params: Any, carry: jax.Array, token_ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The step of `summing`."""
    x = carry + jnp.cumsum(params[token_ids], axis=0)
    return jnp.tanh(x) @ params.T, x[-1]


def stateful(**changes: Any) -> OwnModel:
    """The recurrent model by its state alone."""
    return replace(recurrent(), **{"state": empty_carry, "step": Cell().apply, "logits": None, **changes})


def with_hidden_steps(**changes: Any) -> OwnModel:
    """The recurrent model by its state and a head."""

    def step(params: Any, carry: jax.Array, token_ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        same = {"kernel": jnp.eye(WIDTH, VOCAB), "bias": jnp.zeros(VOCAB)}
        computed: Any = Cell().apply({"params": {**params["params"], "head": same}}, carry, token_ids)
        return computed[0][:, :WIDTH], computed[1]

    def head(params: Any) -> miron_jax.Head:
        return miron_jax.Head(params["params"]["head"]["kernel"].T, params["params"]["head"]["bias"])

    return stateful(**{"step": step, "head": head, **changes})


def with_cache(**changes: Any) -> OwnModel:
    """The NNX transformer, with a cache of keys and values for its texts."""
    graphdef = nnx_parts()[0]

    def state(params: Any, num_tokens: int) -> Any:
        return {"count": jnp.int32(0), "kv": jnp.zeros((2, 2, num_tokens, 2, WIDTH // 2))}

    def step(params: Any, state: Any, token_ids: jax.Array) -> tuple[jax.Array, Any]:
        model, count, kv = nnx.merge(graphdef, params), state["count"], state["kv"]
        position = count + jnp.arange(len(token_ids))
        back = position[:, None] - jnp.arange(kv.shape[2])[None]
        x = model.tokens(token_ids) + model.places(position)
        for i, layer in enumerate(model.qkv):
            q, k, v = jnp.split(layer(x).reshape(len(token_ids), 6, -1), 3, axis=1)
            kv = jax.lax.dynamic_update_slice(kv, jnp.stack([k, v])[None], (i, 0, count, 0, 0))
            logits = 0.35 * jnp.einsum("tnh,snh->nts", q, kv[i, 0])
            seen = (back >= 0) & ((back < 5) | (i > 0))
            weights = jax.nn.softmax(jnp.where(seen, logits, -jnp.inf))
            x = x + jnp.einsum("nts,snh->tnh", weights, kv[i, 1]).reshape(x.shape)
        return 3 * model.norm(x), {"count": count + len(token_ids), "kv": kv}

    return replace(of_nnx(), **{"state": state, "step": step, **changes})


class Attending(nn.Module):
    """A Linen transformer layer that takes visibility as a mask; `broken` names how it breaks its word."""

    broken: str = ""

    @nn.compact
    def __call__(self, token_ids: jax.Array, positions: jax.Array, visibility: Any) -> jax.Array:
        if self.broken == "places":
            positions = jnp.broadcast_to(jnp.arange(token_ids.shape[1]), token_ids.shape)
        x = nn.Embed(VOCAB, WIDTH)(token_ids) + nn.Embed(PLACES, WIDTH)(positions)
        mask = visibility.mask()
        if self.broken == "visibility":
            mask = jnp.tril(jnp.ones(mask.shape[1:], bool))[None] & (mask | True)
        if self.broken == "future":
            mask = mask | True
        x = x + nn.MultiHeadDotProductAttention(num_heads=3)(nn.LayerNorm()(x), mask=mask[:, None])
        return 3 * nn.LayerNorm()(x)


@cache
def recurrent_params() -> Any:
    return jax.jit(Recurrent().init)(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))


def recurrent(**changes: Any) -> OwnModel:
    return OwnModel(**{"vocab_size": VOCAB, "logits": Recurrent().apply, "params": recurrent_params(), **changes})


@cache
def attending_params() -> Any:
    ids, visibility = jnp.zeros((1, 4), jnp.int32), miron_jax.Visibility.causal(1, 4)
    body = jax.jit(Attending().init)(jax.random.key(1), ids, ids, visibility)
    return {"body": body, "head": jax.random.normal(jax.random.key(2), (WIDTH, VOCAB))}


def attending(broken: str = "", **changes: Any) -> OwnModel:
    model = Attending(broken)
    given = {
        "vocab_size": VOCAB, "num_positions": PLACES, "params": attending_params(),
        "hidden": lambda params, *batch: model.apply(params["body"], *batch), "head": lambda params: params["head"].T,
    }  # fmt: skip
    return OwnModel(**{**given, **changes})


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.tokens, self.places = nnx.Embed(VOCAB, WIDTH, rngs=rngs), nnx.Embed(PLACES, WIDTH, rngs=rngs)
        self.qkv = nnx.List([nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs) for _ in range(2)])
        self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)

    def __call__(self, token_ids: jax.Array, positions: jax.Array, visibility: Any) -> jax.Array:
        x = self.tokens(token_ids) + self.places(positions)
        for i, layer in enumerate(self.qkv):
            q, k, v = jnp.split(layer(x).reshape(*x.shape[:2], 6, -1), 3, axis=2)
            y = visibility.attend(q, k, v, scale=0.35, window=None if i else 5)
            x = x + y.reshape(x.shape)
        return 3 * self.norm(x)


@cache
def nnx_parts(seed: int = 0) -> tuple[Any, Any]:
    """(graphdef, params)."""
    return nnx.split(Nnx(nnx.Rngs(seed)))


def of_nnx(seed: int = 0, **changes: Any) -> OwnModel:
    graphdef, params = nnx_parts(seed)
    given = {
        "vocab_size": VOCAB, "num_positions": PLACES, "windows": (5, None), "params": params,
        "hidden": lambda params, *batch: nnx.merge(graphdef, params)(*batch),
        "head": lambda params: miron_jax.Head(params["tokens"]["embedding"][...], softcap=9.0),
    }  # fmt: skip
    return OwnModel(**{**given, **changes})


MODELS: dict[str, Callable[..., OwnModel]] = {
    "Linen, logits, recurrent": recurrent,
    "Linen, logits, learned positions": lambda: recurrent(num_positions=70),
    "Linen, hidden": attending,
    "NNX, hidden, windows, capped head": of_nnx,
    "Linen, state and step": stateful,
    "Linen, state, step and head": with_hidden_steps,
    "NNX, hidden and a cache": with_cache,
    "NNX, a cache alone": lambda: with_cache(hidden=None),
}


def model_of(model: OwnModel) -> Model:
    return Model(model, model, model.params)


def one_by_one(model: OwnModel, requests: Requests) -> list[np.ndarray]:
    """The slow twin: one request a call, numpy softmax in float64."""
    computed = []
    for ids, start in requests:
        computed.append(np.zeros(0))
        if start < len(ids):
            logits = logits_of(model, ids[:-1])  # the last token is a target only
            logits -= logits.max(axis=-1, keepdims=True)
            logprob = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
            computed[-1] = logprob[np.arange(start - 1, len(ids) - 1), ids[start:]]
    return computed


@partial(jax.jit, static_argnums=0)
def body(model: OwnModel, params: Any, row: jax.Array) -> jax.Array:
    """Logits or hidden states of one row."""
    if model.logits is not None:
        return model.logits(params, row)
    if model.hidden is None:
        assert model.state is not None
        assert model.step is not None
        return model.step(params, model.state(params, row.shape[1]), row[0])[0][None]
    length = row.shape[1]
    position = jnp.arange(length, dtype=jnp.int32)[None]
    visibility = miron_jax.Visibility(jnp.full((1, length), length, jnp.int32), position)
    return model.hidden(params, row, position, visibility)


def logits_of(model: OwnModel, ids: Any) -> np.ndarray:
    """[T, V] float64 of one sequence.  Padding on the right keeps it at one program; that nothing looks ahead is tested by
    itself."""
    length = len(ids)
    row = np.zeros((1, max(length, min(model.num_positions or 72, 72))), np.int32)
    row[0, :length] = ids
    hidden = np.asarray(body(model, model.params, row)[0, :length], np.float64)
    if model.head is None:
        return hidden
    head = model.head(model.params)
    if isinstance(head, miron_jax.Head):
        assert head.weight_VD is not None
        logits = hidden @ np.asarray(head.weight_VD, np.float64).T
        logits = logits if head.bias_V is None else logits + np.asarray(head.bias_V, np.float64)
        return logits if head.softcap is None else head.softcap * np.tanh(logits / head.softcap)
    return hidden @ np.asarray(head, np.float64).T


def some_requests() -> Requests:
    """Questions with choices, repeats, one-token choices, choices that begin one another, up to 70 tokens."""
    rng = np.random.default_rng(3)
    items: list[tuple[list[int], int]] = []
    for length in (1, 9, 31, 32, 62):
        stem = rng.integers(1, VOCAB, length).tolist()
        answer = rng.integers(1, VOCAB, 5).tolist()
        items += [([*stem, *answer[:n]], len(stem)) for n in (1, 3, 5)]
        items += [([*stem, int(token)], len(stem)) for token in rng.integers(1, VOCAB, 3)]
    return requests_of([*items, *items[:4]])


def with_nan(model: OwnModel, token: int) -> OwnModel:
    """The same, but its hidden states at one token are NaN."""
    inner = model.hidden
    assert inner is not None

    def hidden(params: Any, token_ids: jax.Array, positions: jax.Array, visibility: Any) -> jax.Array:
        computed = inner(params, token_ids, positions, visibility)
        # as an overflow in a layer would: whoever attends to the token in the next one, or to a mate of its row, is NaN too
        wrong = jnp.where((token_ids == token)[..., None], jnp.nan, 0.0)[:, :, None]
        return computed + visibility.attend(wrong, wrong, wrong, scale=1.0)[:, :, 0]

    return replace(model, hidden=hidden)
