"""Plan rows + weights -> log-probability and rank of every edge.  Every jit of scoring is here.

Arrives: a model (graphdef and state), a Plan.  Leaves: `RowScores`, a batch of rows at a time.  It deliberately does
not know requests, tasks or text.

Letters: B rows of a shard, T places of a row (padding on the right, each padding place sees only itself), S sources,
E edges, R rounds, C chunks of the head.  A batch has as many shards as the weights lie in copies (`runtime/devices.py`).
Host arrays are int32; log-probabilities are float32 nats.

A program is compiled ahead of time for each row length in use.  A shard's inputs travel as one int32 vector; the next
batch is placed while the last one runs, and results are fetched one batch late, so the device does not wait for the host.
"""

import ctypes
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from miron_jax.engine.batches import Batch, Shape, assemble, chunk_of, rows_a_batch
from miron_jax.engine.model import Model, RowScores, Speed, attention_of
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import Name
from miron_jax.kernels.target_logprob.xla import id_set_logprob, target_logprob
from miron_jax.model.costs import rope_classes_of
from miron_jax.model.decoder import Decoder
from miron_jax.model.layout import padded_vocabulary
from miron_jax.model.own import bind
from miron_jax.model.visibility import Visibility
from miron_jax.planning.records import Plan
from miron_jax.runtime.devices import Placement

IN_FLIGHT = 2  # batches on the device at once: one runs, one waits
CPU_TOKENS, ACCELERATOR_TOKENS = 2048, 32768  # places a shard to begin with; more gains nothing measurable on CPU
CPU_CHUNK = 48  # sources a pass through the head: their logits stay in the last cache
FREE_SHARE = 0.8  # share of the free memory that a program may take for itself


class _Flight(NamedTuple):
    batch: Batch
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
        has_rope_class = rope_classes_of(self.model.config) is not None
        own = self.placement
        layout = (own.row_sharding, has_rope_class, own.shards, self.attention)
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
        batch = assemble(plan, rows, shape)
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


def _fetch(outputs: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if isinstance(outputs, Exception):
        raise outputs
    logprob, rank, set_logprob = (np.asarray(own).ravel() for own in outputs)
    return logprob, rank, set_logprob


def _score_shard(
    graphdef: Any, shape: Shape, state: Any, sets_GV: jax.Array, packed: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Log-probability and rank of every edge of a packed shard, in the layout's order; log-probability of every ask."""
    arrays = shape.unpack(packed)
    decoder = bind(graphdef, state)
    rows_3BT = [arrays.token_ids_BT, arrays.position_BT, arrays.subtree_end_BT]
    if shape.row_sharding is not None:
        rows_3BT = jax.lax.with_sharding_constraint(rows_3BT, shape.row_sharding)
    token_ids_BT, position_BT, subtree_end_BT = rows_3BT
    traced = isinstance(decoder, Decoder)
    windows = decoder.config.layer_windows
    visibility = Visibility.of_batch(subtree_end_BT, position_BT, windows, traced, shape.attention)
    more = (arrays.rope_class_BT,) if shape.has_rope_class else ()
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
