"""Plan rows + weights -> log-probability and rank of every edge.  Every jit of scoring is here.

Arrives: a model (graphdef and state), a Plan.  Leaves: `RowScores`, a batch of rows at a time.  It deliberately does
not know requests, tasks or text.

Letters: B rows of a shard, T places of a row (padding on the right, each padding place sees only itself), S sources,
E edges, R rounds, C chunks of the head.  A batch has as many shards as the weights lie in copies (`parallel.py`).  Host
arrays are int32; log-probabilities are float32 nats.

A program is compiled ahead of time for each row length in use.  A shard's inputs travel as one int32 vector; the next
batch is placed while the last one runs, and results are fetched one batch late, so the device does not wait for the host.
"""

import ctypes
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from miron_jax.costs import stretch_of
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import Name
from miron_jax.kernels.forest_attention.choose import Choice, Heads, choose
from miron_jax.kernels.target_logprob.layout import lay_out
from miron_jax.kernels.target_logprob.xla import id_set_logprob, target_logprob
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import Decoder
from miron_jax.model.layout import padded_vocabulary
from miron_jax.model.own import OwnModel, bind
from miron_jax.model.visibility import Visibility
from miron_jax.parallel import FSDP, MODEL, Placement
from miron_jax.plan import Plan

IN_FLIGHT = 2  # batches on the device at once: one runs, one waits
CPU_TOKENS, ACCELERATOR_TOKENS = 2048, 32768  # places a shard to begin with; more gains nothing measurable on CPU
CPU_CHUNK = 48  # sources a pass through the head: their logits stay in the last cache
LOGIT_BYTES, MOST_CHUNK = (
    1 << 28,
    1024,
)  # elsewhere: of a pass's float32 logits, whatever the vocabulary; and its sources
FREE_SHARE = 0.8  # share of the free memory that a program may take for itself


class Model(NamedTuple):
    config: ModelConfig | OwnModel
    graphdef: Any  # nnx.GraphDef of a Decoder, or the OwnModel again
    state: Any  # weights on the devices
    placement: Placement | None = None  # None: what their own places say
    attention: Name | None = None  # what is to compute it; None: the device's own

    @property
    def on_one_device(self) -> "Model":
        """The same for what is done once and not by every device, where one device has all weights."""
        if self.placement is None or self.placement.how != "pmap":
            return self
        return self._replace(state=self.placement.on_one_device(self.state), placement=None)


def attention_of(model: Model) -> Choice:
    """What computes attention: the device's own where one device has whole rows and heads, and it agrees with the
    definition.  A user's own model, and weights that are split, take plain XLA.

    Raises InputError where the one that `model` asks for by name is not what runs.
    """
    config, placement = model.config, model.placement or Placement.of(model.state)
    split = placement.how == "given" or placement.is_global or placement.size(FSDP, MODEL) > 1
    if isinstance(config, OwnModel) or split:
        choice = Choice("xla")
    else:
        dtype = max(jax.tree.leaves(model.state), key=lambda leaf: leaf.size).dtype
        heads = Heads(config.num_heads, config.num_kv_heads, config.head_dim, config.attn_softcap, str(dtype))
        choice = choose(placement.device, heads, model.attention)
    if model.attention not in (None, choice.name):
        why = choice.why_not or "a model of your own, and weights that are split over devices, take xla"
        raise InputError(f"--attention={model.attention} cannot be used here: {why}; leave the flag out")
    return choice


class RowScores(NamedTuple):
    rows: list[int]  # of the plan
    edges: np.ndarray  # int64 [n], the plan's edges that these are
    logprob: np.ndarray  # float32 [n], nats
    rank: np.ndarray  # int32 [n], tokens ahead of the target; 0 is greedy
    asks: np.ndarray  # int64 [m], the plan's asks that these are
    set_logprob: np.ndarray  # float32 [m], nats: log p of all ids of the ask's set together
    tokens: int  # places of the plan that this batch computed, padding apart


@dataclass(slots=True)
class Speed:
    """What the forward passes took; grows while they run."""

    attention: Name = "xla"
    device_seconds: float = 0.0
    compile_seconds: float = 0.0
    batches: Counter["Shape"] = field(default_factory=Counter)  # batches run of each shape
    programs: int = 0
    halvings: int = 0  # times a batch did not fit and was halved
    computed_tokens: int = 0  # places of the plan that were computed; fewer than it has where a run goes on
    elsewhere_tokens: int = 0  # places of other hosts' batches

    @property
    def batch_tokens(self) -> int:
        """Places of all batches, rows that fill up a last batch included."""
        return self.elsewhere_tokens + sum(shape.shards * shape.places * count for shape, count in self.batches.items())

    @property
    def told(self) -> tuple[int, int, float]:
        """What another host adds up."""
        return self.computed_tokens, self.batch_tokens, self.device_seconds

    def add(self, others: Iterable[tuple[int, int, float]]) -> None:
        """Hosts work side by side: tokens of all, seconds of the slowest."""
        for computed, batches, seconds in others:
            self.computed_tokens += computed
            self.elsewhere_tokens += batches
            self.device_seconds = max(self.device_seconds, seconds)


class _Arrays(NamedTuple):
    """One shard as the program reads it; the lengths of these parts follow from B and T alone."""

    token_ids_BT: Any
    position_BT: Any
    until_BT: Any
    source_S: Any  # places in the flattened shard, first num_sources in use
    target_E: Any
    round_start_R: Any
    chunk_round_C: Any
    num_chunks_1: Any
    ask_place_A: Any  # places in the flattened shard, first num_asks in use
    ask_set_A: Any
    num_asks_1: Any
    stretch_BT: Any  # [0, 0] where the model has none


def chunk_of(vocab_size: int) -> int:
    """Sources a pass through the head of an accelerator: a power of two, so many that their logits take LOGIT_BYTES."""
    return min(MOST_CHUNK, max(64, 1 << (LOGIT_BYTES // (4 * vocab_size)).bit_length() - 1))


class Shape(NamedTuple):
    """What one program is compiled for."""

    rows: int  # of a shard
    length: int
    chunk: int  # sources a pass through the head
    num_sets: int = 0  # id sets that the program has room for; 0: no place asks
    asks_a_row: int = 0  # asks of one row that it has room for
    row_sharding: NamedSharding | PartitionSpec | None = None  # of a shard's rows, over a mesh
    stretched: bool = False  # a request's length picks its rotary frequencies
    shards: int = 1
    attention: Name = "xla"

    @property
    def places(self) -> int:
        """Of a shard."""
        return self.rows * self.length

    @property
    def parts(self) -> _Arrays:
        """Shapes of a shard's arrays.  A row of T places has at most T edges: B * T hold all sources, edges and rounds."""
        square, chunks = (self.rows, self.length), -(-self.places // self.chunk)
        sources, asks = (chunks * self.chunk,), (-(-self.rows * self.asks_a_row // self.chunk) * self.chunk,)
        layout = (sources, (self.places,), (self.places + 1,), (chunks + 1,), (1,))
        return _Arrays(square, square, square, *layout, asks, asks, (1,), square if self.stretched else (0, 0))

    @property
    def packed_size(self) -> int:
        return sum(int(np.prod(part)) for part in self.parts)

    def unpack(self, packed: Any) -> _Arrays:
        """Views into the one vector that holds a shard's arrays end to end."""
        stops = np.cumsum([int(np.prod(part)) for part in self.parts]).tolist()
        starts = [0, *stops[:-1]]
        return _Arrays(*(packed[a:b].reshape(part) for a, b, part in zip(starts, stops, self.parts, strict=True)))


class _Batch(NamedTuple):
    shape: Shape
    rows: list[int]  # rows of the plan
    packed: np.ndarray  # int32 [shards, size], _Arrays end to end
    edges: np.ndarray  # int64, edges of the plan
    edge_place: np.ndarray  # int64, where each stands in the program's outputs laid end to end
    asks: np.ndarray  # int64, asks of the plan
    ask_place: np.ndarray  # int64, the same of these


class _Flight(NamedTuple):
    batch: _Batch
    outputs: Any  # logprobs and ranks on their way to the host, or the error that the call raised
    started: float


class Forward:
    """The compiled programs of one model.  Row lengths stay compiled from plan to plan."""

    def __init__(
        self,
        model: Model,
        token_budget: int | None = None,
        say: Callable[[str], None] = lambda line: None,
        id_sets: Sequence[np.ndarray] = (),
    ):
        """`id_sets` are the token ids of each set that a plan may ask for; it may grow between plans."""
        self.placement = model.placement or Placement.of(model.state)
        self._split = self.placement.size(*self.placement.row_axes)
        on_cpu = self.placement.device.platform == "cpu"
        choice = attention_of(model)
        if choice.why_not:
            say(f"attention in plain XLA: {choice.why_not}")
        self.attention: Name = choice.name
        self.model, self.say, self.speed = model, say, Speed(self.attention)
        self.token_budget = token_budget or (CPU_TOKENS if on_cpu else ACCELERATOR_TOKENS)
        self._chunk = CPU_CHUNK if on_cpu else chunk_of(model.config.vocab_size)
        self.id_sets = id_sets
        self._tables: dict[tuple[int, int], jax.Array] = {}  # rows and sets in use -> bool [G, V], the last one only
        self._programs: dict[Shape, Any] = {}
        self._rows: dict[int, int] = {}  # length -> rows a batch

    @property
    def lengths(self) -> tuple[int, ...]:
        """Row lengths compiled so far."""
        return tuple(sorted(self._rows))

    def size(self, plan: Plan, more: bool = False, processes: int = 1) -> dict[int, int]:
        """Rows of a shard for every row length of the plan; a length keeps what it once has.

        `processes`: that share the rows.
        """
        sizes = rows_a_batch(plan.row_length, self.placement.shards * processes, self.token_budget, more)
        for length, rows in sizes.items():
            self._rows.setdefault(length, -(-rows // self._split) * self._split)
        return {length: self._rows[length] for length in sizes}

    def rows_a_batch(self, length: int) -> int:
        """Rows of a shard in a batch of this length, which is compiled."""
        return self._rows[length]

    def compile(self, plan: Plan, more: bool = False, rows: np.ndarray | None = None) -> None:
        """Compile a program for every row length of the plan's rows (absent: all) that has none."""
        self.size(plan, more)
        room = self._room_for_asks(plan)
        lengths = np.unique(plan.row_length if rows is None else plan.row_length[rows]).tolist()
        new = [length for length in lengths if self._shape(length, room) not in self._programs]
        for i, length in enumerate(new):
            start = time.perf_counter()
            self._fit(length, room)
            seconds = time.perf_counter() - start
            self.speed.compile_seconds += seconds
            self.say(f"compiled {i + 1} of {len(new)}: {self._rows[length]} x {length} tokens, {seconds:.1f} s")
        if new:
            return_freed_memory()

    def batches(self, plan: Plan, rows: np.ndarray) -> Iterator[list[int]]:
        """These rows, longest first, as many of one length at a time as a batch holds now."""
        for length in np.unique(plan.row_length[rows])[::-1].tolist():
            waiting = rows[plan.row_length[rows] == length].tolist()
            while waiting:
                count = self._rows[length] * self.placement.shards
                yield waiting[:count]
                waiting = waiting[count:]

    def run(self, plan: Plan, more: bool = False, taken: Iterator[list[int]] | None = None) -> Iterator[RowScores]:
        """Score the rows that are taken, lists of one length each, as the device gets to them; absent: every row once.
        Results come in batches, in any order."""
        if taken is None:
            self.compile(plan, more)
            taken = self.batches(plan, np.arange(plan.num_rows))
        room = self._room_for_asks(plan)
        again: deque[list[int]] = deque()  # batches that did not fit, in halves
        flying: deque[_Flight] = deque()
        last_ready = 0.0
        while True:
            while len(flying) < IN_FLIGHT and (rows := again.popleft() if again else next(taken, None)) is not None:
                length = int(plan.row_length[rows[0]])
                if not any(shape.length == length for shape in self._programs):  # rows that another host had
                    self.compile(plan, more, np.asarray(rows))
                count = self._rows[length] * self.placement.shards
                if len(rows) > count:
                    again.appendleft(rows[count:])
                flying.append(self._launch(plan, rows[:count], self._shape(length, room)))
            if not flying:
                return
            batch, outputs, started = flying.popleft()
            try:
                logprob, rank, set_logprob = _fetch(outputs)
            except jax.errors.JaxRuntimeError as error:
                self._halve(batch.shape, error)
                again.append(batch.rows)
                continue
            now = time.perf_counter()
            self.speed.device_seconds += now - max(started, last_ready)
            self.speed.batches[batch.shape] += 1
            last_ready = now
            tokens = plan.places_of(batch.rows)
            self.speed.computed_tokens += tokens
            yield RowScores(
                batch.rows,
                batch.edges,
                logprob[batch.edge_place],
                rank[batch.edge_place],
                batch.asks,
                set_logprob[batch.ask_place],
                tokens,
            )

    def _shape(self, length: int, room: tuple[int, int]) -> Shape:
        stretched = stretch_of(self.model.config) is not None
        own = self.placement
        layout = (own.row_sharding, stretched, own.shards, self.attention)
        return Shape(self._rows[length], length, self._chunk, *room, *layout)

    def _room_for_asks(self, plan: Plan) -> tuple[int, int]:
        """Id sets and asks a row of a program for this plan: powers of two, so that a later plan finds room; or none."""
        if not len(plan.ask_source):
            return 0, 0
        most = int(np.diff(plan.ask_offset).max())
        return 1 << (len(self.id_sets) - 1).bit_length(), 1 << (most - 1).bit_length()

    def _sets_table(self, num_sets: int) -> jax.Array:
        """bool [num_sets, V]: which ids each set holds; V as the head lies on its mesh."""
        key = (num_sets, len(self.id_sets))
        if key not in self._tables:
            table = np.zeros((num_sets, self._vocab_size), bool)
            for row, ids in zip(table, self.id_sets, strict=False):
                row[ids] = True
            self._tables = {key: self.placement.share(table)}
        return self._tables[key]

    @property
    def _vocab_size(self) -> int:
        return padded_vocabulary(self.model.config.vocab_size, self.placement)

    def _launch(self, plan: Plan, rows: list[int], shape: Shape) -> _Flight:
        batch = _assemble(plan, rows, shape)
        program = self._program(shape)
        started = time.perf_counter()  # before the call: on CPU it may only return when the batch is done
        try:
            packed = self.placement.put(batch.packed)
            outputs = program(self.model.state, self._sets_table(shape.num_sets), packed)
            for output in outputs:
                output.copy_to_host_async()
        except jax.errors.JaxRuntimeError as error:
            outputs = error
        return _Flight(batch, outputs, started)

    def _program(self, shape: Shape) -> Any:
        if shape not in self._programs:
            own = self.placement
            on_mesh = own.mesh is not None
            size = (shape.shards, shape.packed_size)
            packed = jax.ShapeDtypeStruct(size, jnp.int32, sharding=own.split if on_mesh else None)
            sets = (shape.num_sets, self._vocab_size)
            sets_GV = jax.ShapeDtypeStruct(sets, bool, sharding=own.shared if on_mesh else None)
            score = partial(_score_shard, self.model.graphdef, shape)
            self._programs[shape] = own.compile(score, (self.model.state, sets_GV), (packed,))
            self.speed.programs += 1
        return self._programs[shape]

    def _fit(self, length: int, room: tuple[int, int]) -> None:
        """Compile this length, with half the rows as often as the program's own memory analysis says it cannot fit."""
        while True:
            memory = self._program(self._shape(length, room)).memory_analysis()
            needs = memory.temp_size_in_bytes + memory.output_size_in_bytes if memory is not None else 0
            if needs <= FREE_SHARE * self.placement.free_bytes() or self._rows[length] == self._split:
                return
            self._rows[length] = self._half(self._rows[length])

    def _half(self, rows: int) -> int:
        """Half the rows; their number stays a multiple of the parts that they are split into."""
        return max(rows // 2 // self._split, 1) * self._split

    def _halve(self, shape: Shape, error: Exception) -> None:
        """Out of memory: half the rows of this length from now on.  Any other error, or one row that fails, is raised."""
        if "RESOURCE_EXHAUSTED" not in str(error) or shape.rows == self._split:
            raise error
        if self.placement.is_global:
            raise InputError(
                f"out of memory at {shape.rows} rows of {shape.length} tokens, on a mesh that spans hosts, where no batch "
                f"is halved: lower --token_budget, which is {self.token_budget}"
            ) from error
        if shape.rows > self._rows[shape.length]:
            return  # it flew before the last halving
        rows = self._rows[shape.length] = self._half(shape.rows)
        self.speed.halvings += 1
        self.say(f"out of memory: {rows} rows of {shape.length} tokens a batch from now on, not {shape.rows}")


def return_freed_memory() -> None:
    """glibc keeps what a compiler has freed, 0.2 GB after eight programs on CPU, until it is asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def rows_a_batch(row_length: np.ndarray, shards: int, token_budget: int, more: bool) -> dict[int, int]:
    """Rows of a shard's batch for every length of a plan's rows, int [rows].

    They leave the last batch fullest; where `more` plans are to follow, they are as many as the budget allows and every
    shard is likely to get.
    """
    lengths, counts = (own.tolist() for own in np.unique(row_length, return_counts=True))
    share = int(row_length.sum()) // (shards * max(1, len(lengths)))  # places of one length, on average
    sizes = {}
    for length, count in zip(lengths, counts, strict=True):
        full = max(1, token_budget // length)
        sizes[length] = max(1, min(full, share // length)) if more else _fullest(-(-count // shards), full)
    return sizes


def _fullest(count: int, full: int) -> int:
    """Rows of each batch, half of `full` to `full`, so that `count` rows leave fewest places of the last one empty."""
    if count <= full:
        return count
    return min(range(full, full // 2, -1), key=lambda rows: -(-count // rows) * rows)


def _fetch(outputs: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if isinstance(outputs, Exception):
        raise outputs
    logprob, rank, set_logprob = (np.asarray(own).ravel() for own in outputs)
    return logprob, rank, set_logprob


def _assemble(plan: Plan, rows: list[int], shape: Shape) -> _Batch:
    """Rows of the plan as one batch, dealt out to its shards."""
    packed = np.zeros((shape.shards, shape.packed_size), np.int32)
    edges, edge_place, asks, ask_place = [], [], [], []
    for s in range(shape.shards):
        own = _assemble_shard(plan, rows[s :: shape.shards], shape, packed[s])
        edges.append(own.edges)
        edge_place.append(own.edge_place + s * shape.places)
        asks.append(own.asks)
        ask_place.append(np.arange(len(own.asks)) + s * shape.parts.ask_place_A[0])
    return _Batch(shape, rows, packed, *map(np.concatenate, (edges, edge_place, asks, ask_place)))


class _Shard(NamedTuple):
    edges: np.ndarray  # int64, edges of the plan
    edge_place: np.ndarray  # int64, where each stands in the shard's output
    asks: np.ndarray  # int64, asks of the plan, in the order of the shard's output


def _assemble_shard(plan: Plan, rows: list[int], shape: Shape, packed: np.ndarray) -> _Shard:
    """Write `packed`; places beyond a row, and rows beyond `rows`, are padding that sees only itself."""
    arrays = shape.unpack(packed)
    arrays.until_BT[:] = np.arange(1, shape.length + 1, dtype=np.int32)
    none = np.zeros(0, np.int64)
    edges, sources, asks, ask_places = [none], [none], [none], [none]  # a last batch may leave a shard without rows
    for b, row in enumerate(rows):
        places = slice(plan.place_offset[row], plan.place_offset[row + 1])
        used = places.stop - places.start
        arrays.token_ids_BT[b, :used] = plan.token_ids[places]
        arrays.position_BT[b, :used] = plan.position[places]
        arrays.until_BT[b, :used] = plan.until[places]
        if shape.stretched:
            arrays.stretch_BT[b, :used] = plan.stretch[places]
        edges.append(np.arange(plan.edge_offset[row], plan.edge_offset[row + 1]))
        sources.append(plan.edge_source[edges[-1]] + b * shape.length)
        asks.append(np.arange(plan.ask_offset[row], plan.ask_offset[row + 1]))
        ask_places.append(plan.ask_source[asks[-1]] + b * shape.length)
    edge = np.concatenate(edges)
    layout = lay_out(np.concatenate(sources), plan.edge_target[edge], shape.chunk)
    arrays.source_S[: len(layout.source_S)] = layout.source_S
    arrays.target_E[: len(edge)] = layout.target_E
    num_rounds, num_chunks = len(layout.round_start_R), len(layout.chunk_round_C1) - 1
    arrays.round_start_R[:num_rounds] = layout.round_start_R
    arrays.round_start_R[num_rounds] = len(edge)
    arrays.chunk_round_C[: num_chunks + 1] = layout.chunk_round_C1
    arrays.num_chunks_1[0] = num_chunks
    ask = np.concatenate(asks)
    arrays.ask_place_A[: len(ask)] = np.concatenate(ask_places)
    arrays.ask_set_A[: len(ask)] = plan.ask_set[ask]
    arrays.num_asks_1[0] = len(ask)
    return _Shard(edge, layout.edge_place_E, ask)


def _score_shard(
    graphdef: Any, shape: Shape, state: Any, sets_GV: jax.Array, packed: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Log-probability and rank of every edge of a packed shard, in the layout's order; log-probability of every ask."""
    arrays = shape.unpack(packed)
    decoder = bind(graphdef, state)
    rows_3BT = [arrays.token_ids_BT, arrays.position_BT, arrays.until_BT]
    if shape.row_sharding is not None:
        rows_3BT = jax.lax.with_sharding_constraint(rows_3BT, shape.row_sharding)
    token_ids_BT, position_BT, until_BT = rows_3BT
    traced = isinstance(decoder, Decoder)
    windows = decoder.config.layer_windows
    visibility = Visibility.of_batch(until_BT, position_BT, windows, traced, shape.attention)
    more = (arrays.stretch_BT,) if shape.stretched else ()
    hidden_BTD = decoder(token_ids_BT, position_BT, visibility, *more)
    if isinstance(shape.row_sharding, PartitionSpec):  # the head takes a source whichever device had its row
        hidden_BTD = jax.lax.with_sharding_constraint(hidden_BTD, PartitionSpec())
    hidden_SD = hidden_BTD.reshape(shape.places, -1)[arrays.source_S]
    head = decoder.head()
    rules = {**head.rules, "chunk": shape.chunk}
    logprob_E, rank_E = target_logprob(
        hidden_SD,
        head.weight_VD,
        arrays.target_E,
        arrays.round_start_R,
        arrays.chunk_round_C,
        arrays.num_chunks_1[0],
        **rules,
    )
    if not shape.num_sets:
        return logprob_E, rank_E, jnp.zeros(0, jnp.float32)
    hidden_AD = hidden_BTD.reshape(shape.places, -1)[arrays.ask_place_A]
    asked_A = id_set_logprob(hidden_AD, head.weight_VD, sets_GV, arrays.ask_set_A, arrays.num_asks_1[0], **rules)
    return logprob_E, rank_E, asked_A
