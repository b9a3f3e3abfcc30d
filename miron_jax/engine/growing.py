"""One text that grows turn by turn: its keys and values are kept, and each turn reads only new
tokens.

Arrives: a model, the tokens of a turn's choices.  Leaves: one `Score` per choice.  It deliberately
does not know tasks or the wording of a turn.

The prefix that a turn shares with the cached tokens is not read again.  If a length limit has cut
off the beginning of the text, all of it is new.  Models without a cache, and models whose rotary
frequencies change as a text grows, read each turn whole with the plain scorer.

The program is a plain jit, not one of `Placement.compile`: a leading axis of shards would copy the
cache at every call.
"""

import time
from functools import partial
from itertools import starmap

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.engine.decode import decoder_of
from miron_jax.engine.model import Graph, Model
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.records import GrowingSpeed, Score
from miron_jax.kernels.target_logprob.xla import NO_PROBABILITY
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.cache import Cache
from miron_jax.model.visibility import Continuation
from miron_jax.runtime.devices import Placement, Tree
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.runtime.timeline import spent_on
from miron_jax.tokens.records import Requests

READ = 128  # tokens that a call takes in
# tokens that attention reads at a time; on an accelerator many small blocks would be many launches
CPU_BLOCK = 64
ACCELERATOR_BLOCK = 1024


class GrowingText:
    """The cache of one text of up to `num_tokens` tokens, on the devices that hold the weights."""

    def __init__(self, model: Model, num_tokens: int, progress: Progress = SILENT) -> None:
        self.model = model.on_one_device
        self.speed = GrowingSpeed()
        self._keeps = isinstance(model.config, ModelConfig) and model.config.rope_classes is None
        self._cached = np.zeros(0, np.int32)  # tokens whose keys and values are kept
        self._logits_V: np.ndarray | None = None  # after the last of them
        # takes in READ tokens; None: every turn is read whole
        self.program: jax.stages.Compiled | None = None
        if self._keeps:
            start = time.perf_counter()
            self._cache, self.program = self._compiled(num_tokens)
            self.speed.compile_seconds = time.perf_counter() - start
            progress.detail(
                f"compiled read {self._cache.num_positions}, {self.speed.compile_seconds:.1f} s"
            )

    @spent_on("compile")
    def _compiled(self, num_tokens: int) -> tuple[Cache, jax.stages.Compiled]:
        """An empty cache, or its shapes on devices that only compile, and the program that reads
        tokens into it."""
        model = self.model
        dtype = self.model.matrix_dtype
        assert isinstance(model.config, ModelConfig)
        placement = model.placement or Placement.of(model.state)
        block = CPU_BLOCK if placement.device.platform == "cpu" else ACCELERATOR_BLOCK
        blocks = -(-(num_tokens + READ) // block)
        # On a mesh over hosts all take part.
        whole = placement.shared if placement.is_global or placement.is_described else None
        zeros = jax.jit(
            partial(Cache.zeros, model.config, 1, blocks, block, dtype), out_shardings=whole
        )
        if placement.is_described:
            shapes = []
            for x in zeros.eval_shape():
                shapes.append(jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole))
            cache = Cache(*shapes)  # pyright: ignore[reportArgumentType]
        else:
            cache = zeros()
        call = jax.jit(partial(read, model.graphdef), donate_argnums=1, out_shardings=whole)
        one = np.zeros(1, np.int32)
        return cache, call.lower(
            model.state, cache, np.zeros((1, READ), np.int32), one, one
        ).compile()

    @spent_on("device")
    def score(self, choices: Requests) -> list[Score]:
        """Score one turn: every choice's scored span, float32 nats."""
        start = time.perf_counter()
        self.speed.turns += 1
        self.speed.plain_tokens += int((np.diff(choices.offsets) - 1).sum())
        scores = [*starmap(self._score, choices)] if self._keeps else self._plainly(choices)
        self.speed.seconds += time.perf_counter() - start
        return scores

    def _score(self, ids: np.ndarray, span_start: int) -> Score:
        logprobs: list[np.float32] = []
        ranks: list[int] = []
        distribution: list[tuple[float, ...]] = []
        for i in range(span_start, len(ids)):
            logits_V = self._logits_after(ids[:i])
            logprob, rank = _logprob_and_rank(logits_V, int(ids[i]))
            logprobs.append(logprob)
            ranks.append(rank)
            if self.model.with_distribution:
                distribution.append(_distribution(logits_V))
        columns = np.asarray(logprobs, np.float32), np.asarray(ranks, np.int32)
        width = self.model.distribution_size
        of_tokens = np.asarray(distribution, np.float32).reshape(len(ranks), width)
        return Score(*columns, distribution=of_tokens, token_ids=ids[span_start:])

    def _logits_after(self, ids: np.ndarray) -> np.ndarray:
        """Logits of the token after these, float32 [V]."""
        if self._logits_V is not None and np.array_equal(ids, self._cached):
            return self._logits_V
        most = min(len(ids) - 1, len(self._cached))  # the last token is read again for its logits
        differs = np.flatnonzero(ids[:most] != self._cached[:most])
        position = int(differs[0]) if len(differs) else most
        self.speed.read_tokens += len(ids) - position
        while position < len(ids):
            self._logits_V = self._read(ids[position : position + READ], position)
            position += READ
        self._cached = ids
        assert self._logits_V is not None
        return self._logits_V

    def _read(self, ids: np.ndarray, position: int) -> np.ndarray:
        assert position + len(ids) <= self._cache.num_positions, (
            "the cache silently drops tokens beyond its size"
        )
        tokens = np.zeros((1, READ), np.int32)
        tokens[0, : len(ids)] = ids
        counts = np.asarray([position], np.int32), np.asarray([len(ids)], np.int32)
        assert self.program is not None
        self._cache, logits_V = self.program(self.model.state, self._cache, tokens, *counts)
        return np.asarray(logits_V)

    def _plainly(self, choices: Requests) -> list[Score]:
        self.speed.read_tokens += int((np.diff(choices.offsets) - 1).sum())
        ids = [tokens for tokens, _ in choices]
        spans = [start for _, start in choices]
        scores, _ = score_plainly(self.model, ids, spans)
        return [
            Score(
                score.logprob,
                (score.margin < 0).astype(np.int32),
                distribution=score.distribution,
                token_ids=tokens[start:],
            )
            for score, (tokens, start) in zip(scores, choices, strict=True)
        ]


def read(
    network: Graph,
    state: Tree,
    cache: Cache,
    tokens_1T: jax.Array,
    position_1: jax.Array,
    count_1: jax.Array,
) -> tuple[Cache, jax.Array]:
    """Append the first `count` of these tokens after `position` cached ones: (cache, float32 logits
    [V] after the last)."""
    decoder = decoder_of(network, state)
    ahead_1T = jnp.arange(tokens_1T.shape[1], dtype=jnp.int32)[None]
    position_1T = position_1[:, None] + ahead_1T
    hidden_1TD, new = decoder.keeping(tokens_1T, position_1T, Continuation(position_1), past=cache)
    logits_1V = decoder.head().logits(jnp.take(hidden_1TD[0], count_1 - 1, axis=0))
    # padding is dropped
    kept_1T = jnp.where(ahead_1T < count_1[:, None], position_1T, cache.num_positions)
    return cache.with_tokens(new.key_LBTKH, new.value_LBTKH, kept_1T), logits_1V[0]


def _distribution(logits_V: np.ndarray) -> tuple[float, ...]:
    """Entropy, log p of the most probable token, nats, and variance of log p; sums in float64."""
    below_V = (logits_V - logits_V.max()).astype(np.float64)
    weight_V = np.exp(below_V)
    largest = -np.log(weight_V.sum())
    below_V = np.maximum(below_V, NO_PROBABILITY)
    mean_below = np.sum(weight_V * below_V) / weight_V.sum()
    variance = np.sum(weight_V * (below_V - mean_below) ** 2) / weight_V.sum()
    return float(-largest - mean_below), float(largest), float(variance)


def _logprob_and_rank(logits_V: np.ndarray, target: int) -> tuple[np.float32, int]:
    """log p in nats, its sum in float64; tokens ahead of the target, ties by lowest id."""
    logit = logits_V[target]
    highest = logits_V.max()
    logsumexp = float(highest) + float(
        np.log(np.exp((logits_V - highest).astype(np.float64)).sum())
    )
    ahead = int((logits_V > logit).sum()) + int((logits_V[:target] == logit).sum())
    return np.float32(float(logit) - logsumexp), ahead
