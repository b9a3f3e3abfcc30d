"""One text that grows turn by turn: its keys and values stay, each turn reads what is new.

Arrives: a model, a turn's options in tokens.  Leaves: a `Score` an option.  It deliberately does not know tasks or how a
turn is worded.

A turn's tokens are compared with those that the cache holds: what both begin with is not read again.  Where a length limit
has cut the text's beginning off, all of it is new.  Models that keep no keys and values, and those whose rotary frequencies
change as a text grows, read each turn whole, the plain way.

The program is a plain jit: one that takes the cache with a leading axis and reshapes it, as `Placement.compile` does for
slots, copies all of it at every call.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from miron_jax.engine.decode import decoder_of
from miron_jax.engine.model import Model
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.records import Score
from miron_jax.model.cache import Cache
from miron_jax.model.config import ModelConfig
from miron_jax.model.costs import rope_classes_of
from miron_jax.model.visibility import Continuation
from miron_jax.tokens.records import Requests

READ = 128  # tokens that a call takes in
CPU_BLOCK = 64  # places that attention reads at a time; on an accelerator many small blocks would be many launches
ACCELERATOR_BLOCK = 1024


@dataclass(slots=True)
class GrowingSpeed:
    """Grows with the text."""

    turns: int = 0
    read_tokens: int = 0  # that the model took in, padding apart
    plain_tokens: int = 0  # one row an option
    seconds: float = 0.0  # compiling apart
    compile_seconds: float = 0.0


class GrowingText:
    """The cache of one text of up to `num_tokens` tokens, on one device, or where the weights lie split."""

    def __init__(self, model: Model, num_tokens: int, say: Callable[[str], None] = lambda line: None) -> None:
        self.model, self.speed = model.on_one_device, GrowingSpeed()
        self._keeps = isinstance(model.config, ModelConfig) and rope_classes_of(model.config) is None
        self._known = np.zeros(0, np.int32)  # tokens whose keys and values are kept
        self._logits_V: np.ndarray | None = None  # behind the last of them
        if self._keeps:
            start = time.perf_counter()
            self._cache, self._read_call = self._compiled(num_tokens)
            self.speed.compile_seconds = time.perf_counter() - start
            say(f"compiled read {self._cache.num_places}, {self.speed.compile_seconds:.1f} s")

    def _compiled(self, num_tokens: int) -> tuple[Cache, Any]:
        model, dtype = self.model, self.model.state["embedding_VD"][...].dtype
        assert isinstance(model.config, ModelConfig)
        on_cpu = next(iter(jax.tree.leaves(model.state)[0].devices())).platform == "cpu"
        block = CPU_BLOCK if on_cpu else ACCELERATOR_BLOCK
        blocks = -(-(num_tokens + READ) // block)
        placement = model.placement
        whole = None
        if placement is not None and placement.is_global:  # of several hosts: all of them take part
            assert placement.mesh is not None
            whole = NamedSharding(placement.mesh, PartitionSpec())
        cache = jax.jit(partial(Cache.zeros, model.config, 1, blocks, block, dtype), out_shardings=whole)()
        call = jax.jit(partial(read, model.graphdef), donate_argnums=1, out_shardings=whole)
        one = np.zeros(1, np.int32)
        return cache, call.lower(model.state, cache, np.zeros((1, READ), np.int32), one, one).compile()

    def score(self, options: Requests) -> list[Score]:
        """A turn: every option's scored span, float32 nats."""
        start = time.perf_counter()
        self.speed.turns += 1
        self.speed.plain_tokens += int((np.diff(options.offsets) - 1).sum())
        found = [self._score(ids, span) for ids, span in options] if self._keeps else self._plainly(options)
        self.speed.seconds += time.perf_counter() - start
        return found

    def _score(self, ids: np.ndarray, span_start: int) -> Score:
        pairs = [_logprob_and_rank(self._behind(ids[:place]), int(ids[place])) for place in range(span_start, len(ids))]
        return Score(np.asarray([p for p, _ in pairs], np.float32), np.asarray([r for _, r in pairs], np.int32))

    def _behind(self, ids: np.ndarray) -> np.ndarray:
        """Logits of the token behind these, float32 [V]."""
        if self._logits_V is not None and np.array_equal(ids, self._known):
            return self._logits_V
        most = min(len(ids) - 1, len(self._known))  # the last token is read again: its logits are asked for
        differs = np.flatnonzero(ids[:most] != self._known[:most])
        place = int(differs[0]) if len(differs) else most
        self.speed.read_tokens += len(ids) - place
        while place < len(ids):
            self._logits_V = self._read(ids[place : place + READ], place)
            place += READ
        self._known = ids
        assert self._logits_V is not None
        return self._logits_V

    def _read(self, ids: np.ndarray, place: int) -> np.ndarray:
        assert place + len(ids) <= self._cache.num_places, "a place past the last one would be dropped without a word"
        tokens = np.zeros((1, READ), np.int32)
        tokens[0, : len(ids)] = ids
        position, count = (np.asarray([value], np.int32) for value in (place, len(ids)))
        self._cache, logits_V = self._read_call(self.model.state, self._cache, tokens, position, count)
        return np.asarray(logits_V)

    def _plainly(self, options: Requests) -> list[Score]:
        self.speed.read_tokens += int((np.diff(options.offsets) - 1).sum())
        ids, spans = [tokens for tokens, _ in options], [start for _, start in options]
        found, _ = score_plainly(self.model, ids, spans)
        return [Score(own.logprob, (own.margin < 0).astype(np.int32)) for own in found]


def read(
    graphdef: Any, state: Any, cache: Cache, tokens_1T: jax.Array, position_1: jax.Array, count_1: jax.Array
) -> tuple[Cache, jax.Array]:
    """The first `count` of these tokens behind `position` kept places: (the cache with theirs, float32 logits [V] behind the
    last of them)."""
    decoder = decoder_of(graphdef, state)
    ahead_1T = jnp.arange(tokens_1T.shape[1], dtype=jnp.int32)[None]
    place_1T = position_1[:, None] + ahead_1T
    hidden_1TD, own = decoder.keeping(tokens_1T, place_1T, Continuation(position_1), past=cache)
    logits_1V = decoder.head().logits(jnp.take(hidden_1TD[0], count_1 - 1, axis=0))
    kept_1T = jnp.where(ahead_1T < count_1[:, None], place_1T, cache.num_places)  # padding is dropped
    return cache.with_tokens(own.key_LBTKH, own.value_LBTKH, kept_1T), logits_1V[0]


def _logprob_and_rank(logits_V: np.ndarray, target: int) -> tuple[np.float32, int]:
    """log p in nats, its sum in float64; tokens ahead of the target, ties by lowest id."""
    own, highest = logits_V[target], logits_V.max()
    logsumexp = float(highest) + float(np.log(np.exp((logits_V - highest).astype(np.float64)).sum()))
    ahead = int((logits_V > own).sum()) + int((logits_V[:target] == own).sum())
    return np.float32(float(own) - logsumexp), ahead
