"""The plain scorer that the self-check compares with: one request per row, attention by its
definition.

Arrives: a model and a few requests.  Leaves: log-probabilities of their spans.  It deliberately
shares neither plan nor kernels with `forward.py`.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr
from jax.sharding import PartitionSpec, Sharding

from miron_jax.engine.model import Graph, Model, without_kernels
from miron_jax.engine.records import no_distribution
from miron_jax.kernels.forest_attention import reference
from miron_jax.kernels.target_logprob.xla import DISTRIBUTION
from miron_jax.model.decoder.decoder import Head
from miron_jax.model.network import bind, logit_size
from miron_jax.model.visibility import Visibility
from miron_jax.runtime.devices import Placement, Tree, gathered

# Lengths of rows are multiples of it, so that runs share programs; as many positions go through the
# head at once.
MULTIPLE = 64
DRAWS = 3  # of what rounding may do to a request
# of a number: bfloat16 rounds what is moved so to its neighbour, or the one behind
NOISE = 1.5 * 2**-8


class PlainVisibility(Visibility):
    """A `Visibility` whose attention is the dense definition, for the self-check."""

    def attend(
        self,
        q_BTNH: jax.Array,
        k_BTKH: jax.Array,
        v_BTKH: jax.Array,
        *,
        sinks_N: jax.Array | None = None,
        **rules: Any,
    ) -> jax.Array:
        """One head at a time: the dense logits of all heads at once would set the run's peak
        memory."""
        group = q_BTNH.shape[2] // k_BTKH.shape[2]
        k_BTNH, v_BTNH = (jnp.repeat(x, group, axis=2) for x in (k_BTKH, v_BTKH))
        q_NBT1H, k_NBT1H, v_NBT1H = (
            jnp.moveaxis(x.astype(jnp.float32)[:, :, :, None], 2, 0)
            for x in (q_BTNH, k_BTNH, v_BTNH)
        )
        sinks_N1 = None if sinks_N is None else sinks_N[:, None]

        def one_head(head: tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]) -> jax.Array:
            q, k, v, sinks_1 = head
            return reference.forest_attention(
                q, k, v, self.subtree_end_BT, self.position_BT, sinks_N=sinks_1, **rules
            )

        out_NBT1H = jax.lax.map(one_head, (q_NBT1H, k_NBT1H, v_NBT1H, sinks_N1))
        return jnp.moveaxis(out_NBT1H[:, :, :, 0], 0, 2)


class PlainScore(NamedTuple):
    """The scored span of one request, token by token."""

    logprob: np.ndarray  # float32 nats
    # float32 nats, log p less that of the best other token; negative if another token is ahead
    margin: np.ndarray
    logit_size: np.ndarray  # float32, the largest logit of its position less their mean
    # float32 [] nats, log p of all ids of the request's set together; -inf: it has none
    set_logprob: np.ndarray
    distribution: np.ndarray = np.zeros((0, 0), np.float32)  # as `Scores` has it


def plain_length(num_tokens: int, num_positions: int | None = None) -> int:
    """Slots of a plain row for so many tokens.  `num_positions`: that the model has learned."""
    rounded = -(-num_tokens // MULTIPLE) * MULTIPLE
    return max(num_tokens, min(rounded, num_positions or rounded))


class _Hashed:
    """A network as a key of `PROGRAMS`, hashed once: a graphdef takes a millisecond."""

    def __init__(self, network: Graph) -> None:
        self.network = network
        self._hash = hash(network)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.network == other.network


# By all that decides them, latest last: later weights use them too.  A network of a user's may hold
# its weights.
MOST_PROGRAMS = 16
PROGRAMS: dict[tuple[Hashable, ...], jax.stages.Compiled] = {}


class PlainProgram:
    """Scores requests a row of this length, with dense attention and the whole vocabulary at once
    at the scored positions: a row for each device, or for the devices that share its weights and
    not its rows."""

    def __init__(self, model: Model, length: int) -> None:
        self.model = model = without_kernels(model)
        self._placement = placement = model.placement or Placement.of(model.state)
        self._length = length
        leaves = tuple((x.shape, x.dtype, x.sharding) for x in jax.tree.leaves(model.state))
        of_jax = (
            jax.config.values[name] for name in ("jax_default_matmul_precision", "jax_enable_x64")
        )
        what = _Hashed(model.graphdef), model.with_distribution, *of_jax
        self._key = *what, placement, length, leaves

    @property
    def places(self) -> list[tuple[int, ...]]:
        """(shard, row of it) of each row of a call."""
        return [*np.ndindex(self._placement.row_places)]

    def compile(self) -> jax.stages.Compiled:
        """Compile it before its first call, which then finds it."""
        return self._program()

    def _program(self) -> jax.stages.Compiled:
        if self._key not in PROGRAMS:
            placement = self._placement
            sharding = None if placement.mesh is None else placement.split
            shapes = []
            for array in self._arrays([(np.zeros(1, np.int32), 1, None)]):
                shapes.append(jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding))
            what = self.model.graphdef, self.model.with_distribution, placement.row_sharding
            PROGRAMS[self._key] = placement.compile(
                partial(_score_plain, *what), (self.model.state,), (*shapes,), in_float32=True
            )
            for oldest in [*PROGRAMS][:-MOST_PROGRAMS]:
                del PROGRAMS[oldest]
        return PROGRAMS[self._key]

    def __call__(
        self, requests: Sequence[tuple[np.ndarray, int, np.ndarray | None]]
    ) -> tuple[jax.Array, ...]:
        """What `PlainScore` has, as arrays [shards, rows of a shard, row's length], on their way.

        `requests`: token ids, start of the span and id set of each, as many as `places` at most.
        """
        arrays = map(self._placement.put, self._arrays(requests))
        return self._program()(self.model.state, *arrays)

    def _arrays(
        self, requests: Sequence[tuple[np.ndarray, int, np.ndarray | None]]
    ) -> list[np.ndarray]:
        """The last request again in rows that are left over."""
        config = self.model.config
        shape = self._placement.row_places
        rows = np.zeros((*shape, self._length), np.int32)
        spans = np.zeros((*shape, 2), np.int32)
        in_set = np.zeros((*shape, config.vocab_size), bool)
        rope_class = np.zeros(shape, np.int32)
        for i, place in enumerate(self.places):
            token_ids, start, id_set = requests[min(i, len(requests) - 1)]
            rows[place][: len(token_ids)] = token_ids
            spans[place] = start, len(token_ids)
            if id_set is not None:
                in_set[place][id_set] = True
            if config.rope_classes is not None:
                rope_class[place] = config.rope_classes.class_of(len(token_ids))
        arrays = [rows, spans, in_set, rope_class]
        return arrays if config.rope_classes is not None else arrays[:-1]


class PlainRow(NamedTuple):
    """A request whose scores are on their way."""

    num_scored: int  # tokens
    outputs: tuple[jax.Array, ...]  # of the rows of its call
    place: tuple[int, ...] = ()  # its row among them

    def read(self) -> PlainScore:
        *columns, set_logprob = (np.asarray(output)[self.place] for output in self.outputs)
        logprob, margin, size, *more = (column[: self.num_scored] for column in columns)
        distribution = no_distribution(self.num_scored)
        if more:
            distribution = np.stack(more, axis=1)
        return PlainScore(logprob, margin, size, set_logprob, distribution)


def launch_plainly(
    model: Model,
    token_ids: list[np.ndarray],
    span_start: list[int],
    lengths: Sequence[int],
    id_sets: Sequence[np.ndarray] | None = None,
) -> Iterator[PlainRow]:
    """Start to score requests one per row, each when the iterator is asked for it, and with it
    later ones that the call has rows for.

    `lengths`: of each request's row.  `id_sets`: of each request, the token ids that are summed at
    the node before its span.
    """
    programs = {length: PlainProgram(model, length) for length in sorted({*lengths})}
    sets = id_sets or [None] * len(lengths)
    requests = [*zip(token_ids, span_start, sets, strict=True)]
    launched: dict[int, PlainRow] = {}
    due = 0
    for call in calls_of(model, lengths):
        program = programs[lengths[call[0]]]
        outputs = program([requests[i] for i in call])
        for i, place in zip(call, program.places, strict=False):
            launched[i] = PlainRow(len(token_ids[i]) - span_start[i], outputs, place)
        while due in launched:
            yield launched.pop(due)
            due += 1


def calls_of(model: Model, lengths: Sequence[int]) -> list[list[int]]:
    """Which requests go in each call: those with rows of one length, as many as the devices compute
    at a time.  `lengths`: of each request's row."""
    most = math.prod((model.placement or Placement.of(model.state)).row_places)
    calls: list[list[int]] = []
    last: dict[int, list[int]] = {}  # length -> its latest call
    for i, length in enumerate(lengths):
        if len(last.get(length, ())) % most == 0:
            last[length] = []
            calls.append(last[length])
        last[length].append(i)
    return calls


def moved_by_rounding(
    model: Model, token_ids: np.ndarray, start: int, length: int, id_set: np.ndarray
) -> np.ndarray:
    """By how much the plain log-probabilities of one request move, nats, where every weight is
    moved by one or two units in bfloat16's last place: the largest of DRAWS draws, float64 [scored
    tokens, and one more of the id set if it is not empty].

    0 where a draw is not finite, and on a mesh over processes, of which the one that asks cannot
    compute alone."""
    if (model.placement or Placement.of(model.state)).is_global:
        return np.zeros(1)
    model = model.on_one_device

    def scored(state: Tree) -> np.ndarray:
        moved = model._replace(state=state)
        [row] = launch_plainly(moved, [token_ids], [start], [length], [id_set])
        plain = row.read()
        of_set = np.reshape(plain.set_logprob, -1)[: min(1, len(id_set))]
        return np.append(plain.logprob, of_set).astype(np.float64)

    usual = scored(model.state)
    draws = [scored(_with_noise(model.state, np.uint32(i))) for i in range(1, DRAWS + 1)]
    with np.errstate(invalid="ignore"):  # infinity less infinity
        moved = np.max([np.abs(draw - usual) for draw in draws], axis=0)
    return np.where(np.isfinite(moved), moved, 0.0)


@jax.jit
def _with_noise(state: Tree, draw: jax.Array) -> Tree:
    """Every weight larger or smaller, by a hash of its place."""
    leaves, structure = jax.tree.flatten(state)

    def noisy(index: int, leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        place = draw * jnp.uint32(len(leaves)) + jnp.uint32(index)
        for axis in range(leaf.ndim):
            along = jax.lax.broadcasted_iota(jnp.uint32, leaf.shape, axis)
            place = (place ^ along) * jnp.uint32(0x9E3779B1)
        sign = 1.0 - 2.0 * (place >> jnp.uint32(31)).astype(jnp.float32)
        return (leaf.astype(jnp.float32) * (1.0 + NOISE * sign)).astype(leaf.dtype)

    return jax.tree.unflatten(structure, [*starmap(noisy, enumerate(leaves))])


def score_plainly(
    model: Model, token_ids: list[np.ndarray], span_start: list[int]
) -> tuple[list[PlainScore], int]:
    """Score requests one per row, as long as the longest needs.  Returns a score for each request
    and the number of programs."""
    longest = max(map(len, token_ids), default=0)
    lengths = [plain_length(longest, model.config.num_positions)] * len(token_ids)
    rows = launch_plainly(model, token_ids, span_start, lengths)
    return [row.read() for row in rows], len({*lengths})


def _score_plain(
    network: Graph,
    with_distribution: bool,
    row_sharding: Sharding | PartitionSpec | None,
    state: Tree,
    token_ids_BT: jax.Array,
    span_B2: jax.Array,
    in_set_BV: jax.Array,
    *rope_class_B: jax.Array,
) -> tuple[jax.Array, ...]:
    """Of a shard's rows: (log p, margin, size of the logits) of the tokens of each span, if asked
    (entropy, largest log p, variance of log p) of their distributions, and log p of a set in place
    of the first.  Padding is on the right, where causal attention never looks."""
    decoder = bind(network, state)
    length = token_ids_BT.shape[1]
    if row_sharding is not None:
        token_ids_BT = jax.lax.with_sharding_constraint(token_ids_BT, row_sharding)
    position_BT = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), token_ids_BT.shape)
    visibility = PlainVisibility(jnp.full_like(position_BT, length), position_BT)
    more = (jnp.broadcast_to(each[:, None], position_BT.shape) for each in rope_class_B)
    hidden_BTD = decoder(token_ids_BT, position_BT, visibility, *more)
    head = decoder.head()
    of_rows = hidden_BTD, token_ids_BT, span_B2, in_set_BV
    if head.weight_VD is not None:  # every device takes part in the head of each row
        of_rows = gathered(of_rows, row_sharding)
    return jax.lax.map(partial(_score_row, head, with_distribution), of_rows)


def _score_row(
    head: Head, with_distribution: bool, row: tuple[jax.Array, jax.Array, jax.Array, jax.Array]
) -> tuple[jax.Array, ...]:
    hidden_TD, token_ids_T, (start, stop), in_set_V = row
    length = len(token_ids_T)

    def scored(first: jax.Array) -> tuple[jax.Array, ...]:
        """Of MULTIPLE positions from this one, and log p of the set in place of the first."""
        position_N = jnp.minimum(first + jnp.arange(MULTIPLE), length - 1)
        logits_NV = head.logits(hidden_TD[position_N - 1])
        logprob_NV = jax.nn.log_softmax(logits_NV, axis=-1)
        target_N1 = token_ids_T[position_N][:, None]
        logprob_N = jnp.take_along_axis(logprob_NV, target_N1, axis=1)[:, 0]
        others_NV = jnp.where(
            jnp.arange(logits_NV.shape[1])[None] == target_N1, -jnp.inf, logprob_NV
        )
        set_V = jnp.pad(in_set_V, (0, logits_NV.shape[1] - len(in_set_V)))
        set_logprob = jax.nn.logsumexp(jnp.where(set_V, logprob_NV[0], -jnp.inf))
        margin_N = logprob_N - others_NV.max(axis=-1)
        more = ()
        if with_distribution:
            p_NV = jnp.exp(logprob_NV)
            entropy_N = entr(p_NV).sum(axis=-1)
            squares_NV = jnp.where(p_NV > 0, p_NV * (logprob_NV + entropy_N[:, None]) ** 2, 0.0)
            more = entropy_N, logprob_NV.max(axis=-1), squares_NV.sum(axis=-1)
        return logprob_N, margin_N, logit_size(logits_NV), *more, set_logprob

    def add(c: jax.Array, so_far: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        *columns, set_logprob = so_far
        *new, of_first = scored(start + c * MULTIPLE)
        columns = [
            jax.lax.dynamic_update_slice_in_dim(column, values, c * MULTIPLE, 0)
            for column, values in zip(columns, new, strict=True)
        ]
        return *columns, jnp.where(c == 0, of_first, set_logprob)

    room = jnp.zeros(-(-length // MULTIPLE) * MULTIPLE, jnp.float32)
    num_passes = (stop - start + MULTIPLE - 1) // MULTIPLE
    rooms = (room,) * (3 + DISTRIBUTION * with_distribution)
    with jax.named_scope("plain_head"):
        return jax.lax.fori_loop(0, num_passes, add, (*rooms, jnp.float32(0)))
