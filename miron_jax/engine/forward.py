"""Plan rows + weights -> log-probability and rank of every edge.  All compiled programs of scoring
are here.

Arrives: a model (graphdef and state), a Plan.  Leaves: `RowScores`, a batch of rows at a time.  It
deliberately does not know requests, tasks or text.

Letters: B rows of a shard, T slots of a row (padding on the right, each padding slot sees only
itself), F slots of a shard, S parent nodes, E edges, R rounds, C chunks of the head, A id-set
queries, G id sets.  A batch has one shard per copy of the weights (`runtime/devices.py`).  Host
arrays are int32; log-probabilities are float32 nats.

A program is compiled ahead of time for each row length in use: the one that runs first before the
others, which threads compile meanwhile.  A shard's inputs travel as one int32 vector.  The next
batch is put on the device while the last one runs, and results are fetched one batch late, so the
device never waits for the host.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.engine.batches import Batch, Shape, assemble, chunk_of, rows_by_length
from miron_jax.engine.model import ForwardSpeed, Graph, Model, RowScores, attention_of
from miron_jax.engine.records import no_distribution
from miron_jax.errors import InputError
from miron_jax.kernels.target_logprob.xla import DISTRIBUTION, id_set_logprob, target_logprob
from miron_jax.model.decoder.decoder import Decoder
from miron_jax.model.decoder.sharding import padded_vocabulary
from miron_jax.model.network import BoundNetwork, Network, bind
from miron_jax.model.stateful.walk import WalkArrays, group_sizes, states_for, walk_rows
from miron_jax.model.visibility import Visibility
from miron_jax.planning.records import Plan
from miron_jax.planning.walks import GroupSize, deepest_path
from miron_jax.runtime.compiling import in_thread
from miron_jax.runtime.devices import Placement, Tree, gathered, return_freed_memory
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.runtime.timeline import spent_on

IN_FLIGHT = 2  # batches on the device at once: one runs, one waits
# First token budget, slots: of a device's rows on CPU, where more gains nothing measurable and
# fewer pack the weights more often; of a shard elsewhere.
CPU_TOKENS, ACCELERATOR_TOKENS = 2048, 32768
# parent nodes of one pass through the head: their logits stay in the last-level cache
CPU_CHUNK = 48
FREE_SHARE = 0.8  # share of the free memory that a program may take

# logprob and rank of edges, logprob of id-set queries; if asked, distribution of edges
Outputs = tuple[jax.Array, ...]


class Rows(NamedTuple):
    """Rows of one length that run together, or in several batches where they do not fit."""

    plan: Plan
    rows: list[int]
    more: bool = False  # more plans are likely to follow


class _Flight(NamedTuple):
    """A batch on the device."""

    rows: Rows
    batch: Batch
    outputs: Outputs | Exception  # on their way to the host, or the error that the call raised
    started: float


class _Room(NamedTuple):
    """What a program has room for, beside rows."""

    num_sets: int  # id sets
    queries_per_row: int
    walk_sizes: tuple[GroupSize, ...]  # of a model that carries a state
    num_states: int
    num_tokens: int  # of the longest request, for such a state


class Forward:
    """The compiled programs of one model.  Row lengths stay compiled from plan to plan."""

    def __init__(
        self,
        model: Model,
        token_budget: int | None = None,
        progress: Progress = SILENT,
        id_sets: Sequence[np.ndarray] = (),
    ):
        """`id_sets`: token ids of each set that id-set queries name; the list may grow between
        plans."""
        self.placement = model.placement or Placement.of(model.state)
        self._split = self.placement.size(*self.placement.row_axes)
        on_cpu = self.placement.device.platform == "cpu"
        choice = attention_of(model)
        if choice.why_not:
            progress.say(f"attention in plain XLA: {choice.why_not}")
        self.attention: str = choice.name
        self.model = model
        self.progress = progress
        self.speed = ForwardSpeed(self.attention)
        default = CPU_TOKENS * self._split if on_cpu else ACCELERATOR_TOKENS
        self.token_budget = token_budget or default
        self._chunk = CPU_CHUNK if on_cpu else chunk_of(model.config.vocab_size)
        self._vocab_size = padded_vocabulary(model.config.vocab_size, self.placement)
        self.id_sets = id_sets
        # room of a state in tokens -> groups
        self._walk_sizes: dict[int, tuple[GroupSize, ...]] = {}
        # segments of a path, tokens of a request: the most in any plan so far
        self._depth = self._longest = 0
        # rows and sets in use -> bool [G, V], the last one only
        self._tables: dict[tuple[int, int], jax.Array] = {}
        self.programs: dict[Shape, jax.stages.Compiled] = {}  # compiled so far
        # row length and room -> seconds, of what a thread compiles
        self._compiling: dict[tuple[int, _Room], Future[float]] = {}
        self._num_counted = 0  # programs in `speed`, of all weights
        self._rows: dict[int, int] = {}  # row length -> rows of a shard
        self._room: tuple[Plan, _Room] | None = None  # that was asked for last

    @property
    def lengths(self) -> tuple[int, ...]:
        """Row lengths compiled so far."""
        return tuple(sorted(self._rows))

    def size(self, plan: Plan, more: bool = False, processes: int = 1) -> dict[int, int]:
        """Row length -> rows of a shard, for every row length of the plan.  A length keeps its
        first number of rows.

        `processes`: the number of processes that share the rows.
        """
        sizes = rows_by_length(
            plan.row_length, self.placement.shards * processes, self.token_budget, more
        )
        for length, rows in sizes.items():
            self._rows.setdefault(length, -(-rows // self._split) * self._split)
        return {length: self._rows[length] for length in sizes}

    def shape_of(self, plan: Plan, length: int) -> Shape:
        """The shape in which rows of this length of the plan are run; the length must be
        compiled."""
        return self._shape(length, self._room_for(plan))

    def shard_rows(self, length: int) -> int:
        """Rows of a shard in a batch of this length, which must be compiled."""
        return self._rows[length]

    def lengths_to_compile(
        self, plan: Plan, more: bool = False, rows: np.ndarray | None = None
    ) -> list[int]:
        """The lengths of these rows whose programs are missing; None: of all rows of the plan."""
        self.size(plan, more)
        room = self._room_for(plan)
        lengths = np.unique(plan.row_length if rows is None else plan.row_length[rows]).tolist()
        return [
            length
            for length in lengths
            if (length, room) not in self._compiling
            and self._shape(length, room) not in self.programs
        ]

    def compile(self, plan: Plan, more: bool = False, rows: np.ndarray | None = None) -> None:
        """Compile the missing programs for the row lengths of these rows; None: all rows of the
        plan."""
        self.compile_in_turn(plan, more, rows)
        for length, _ in [*self._compiling]:
            self._wait_for(length)

    @spent_on("compile")
    def compile_in_turn(
        self, plan: Plan, more: bool = False, rows: np.ndarray | None = None
    ) -> None:
        """The same, but return with the program that runs first; threads compile the others."""
        start = time.perf_counter()
        new = self.lengths_to_compile(plan, more, rows)[::-1]  # the longest rows run first
        if not new:
            return
        room = self._room_for(plan)
        free = self.placement.free_bytes()  # while nothing runs
        for i, length in enumerate(new):
            self.progress.advance("compiling", i, len(new), "programs")
            fit = partial(self._fit, length, room, free)
            # all hosts of one mesh compile in the same order
            if i == 0 or self.placement.is_global:
                self._count(length, fit())
            else:
                self._compiling[length, room] = in_thread(fit)
        self.progress.end("compiling")
        self.speed.compile_seconds += time.perf_counter() - start

    @spent_on("compile")
    def _wait_for(self, length: int) -> None:
        """Wait for the programs of these rows that threads compile."""
        start = time.perf_counter()
        waiting = [key for key in self._compiling if key[0] == length]
        for key in waiting:
            self._count(length, self._compiling.pop(key).result())
        if waiting:  # a checkpoint that compiles nothing says 0
            self.speed.compile_seconds += time.perf_counter() - start

    def _count(self, length: int, seconds: float) -> None:
        self._count_new()
        self.progress.detail(f"compiled {self._rows[length]} x {length} tokens in {seconds:.1f} s")
        return_freed_memory()

    def _count_new(self) -> None:
        num_programs = len(self.programs)
        self.speed.programs += num_programs - self._num_counted
        self._num_counted = num_programs

    def batches(self, plan: Plan, rows: np.ndarray) -> Iterator[list[int]]:
        """These rows in batches of one length each, longest first, as large as `shard_rows` is by
        then."""
        for length in np.unique(plan.row_length[rows])[::-1].tolist():
            waiting = rows[plan.row_length[rows] == length].tolist()
            while waiting:
                count = self._rows[length] * self.placement.shards
                yield waiting[:count]
                waiting = waiting[count:]

    def run(
        self, plan: Plan, more: bool = False, row_lists: Iterator[list[int]] | None = None
    ) -> Iterator[RowScores]:
        """Score lists of rows, each of one length, and take the next list when the device has room;
        None: every row once.

        Results come in batches, in any order.
        """
        if row_lists is None:
            self.compile(plan, more)
            row_lists = self.batches(plan, np.arange(plan.num_rows))
        in_turn = (Rows(plan, rows, more) for rows in row_lists)
        return self.run_all(partial(next, in_turn, None))

    def run_all(self, next_rows: Callable[[], Rows | None]) -> Iterator[RowScores]:
        """Score rows of one or more plans, and ask for the next ones when the device has room;
        None: there are none until results of others are taken."""
        again: deque[Rows] = deque()  # of batches that did not fit
        flying: deque[_Flight] = deque()
        last_ready = 0.0
        scored: RowScores | None = None  # yielded when the next batch is launched
        while True:
            while (
                len(flying) < IN_FLIGHT
                and (due := again.popleft() if again else next_rows()) is not None
            ):
                flying.append(self._launch_some(due, again))
            if scored is not None:
                yield scored
                scored = None
            if not flying:
                return
            due, batch, outputs, started = flying.popleft()
            try:
                logprob, rank, set_logprob, distribution = _fetch(outputs)
            except jax.errors.JaxRuntimeError as error:
                self._halve(batch.shape, error)
                again.append(due)
                continue
            now = time.perf_counter()
            self.speed.device_seconds += now - max(started, last_ready)
            self.speed.batches[batch.shape] += 1
            last_ready = now
            tokens = due.plan.num_nodes(batch.rows)
            self.speed.computed_tokens += tokens
            edge_scores = logprob[batch.edge_output], rank[batch.edge_output]
            of_sets = batch.queries, set_logprob[batch.query_output]
            scores = (*edge_scores, *of_sets, tokens, distribution[batch.edge_output])
            scored = RowScores(due.plan, batch.rows, batch.edges, *scores)

    def _launch_some(self, due: Rows, again: deque[Rows]) -> _Flight:
        """Launch as many of these rows as a batch has; the others go to `again`."""
        length = int(due.plan.row_length[due.rows[0]])
        self._wait_for(length)
        # rows dealt to another host
        if not any(shape.length == length for shape in [*self.programs]):
            self.compile(due.plan, due.more, np.asarray(due.rows))
        count = self._rows[length] * self.placement.shards
        if len(due.rows) > count:
            again.appendleft(due._replace(rows=due.rows[count:]))
        shape = self.shape_of(due.plan, length)
        return self._launch(due._replace(rows=due.rows[:count]), shape)

    def _shape(self, length: int, room: _Room) -> Shape:
        has_rope_class = self.model.config.rope_classes is not None
        layout = (
            self.placement.row_sharding,
            has_rope_class,
            self.placement.shards,
            self.attention,
        )
        walk = (room.walk_sizes, room.num_states, room.num_tokens)
        return Shape(
            self._rows[length],
            length,
            self._chunk,
            room.num_sets,
            room.queries_per_row,
            *layout,
            *walk,
            self.model.with_distribution,
            self.placement.device.platform == "cpu",
        )

    def _room_for(self, plan: Plan) -> _Room:
        """The room that a program for this plan needs, computed once a plan."""
        if self._room is None or self._room[0] is not plan:
            self._room = plan, self._new_room(plan)
        return self._room[1]

    def _new_room(self, plan: Plan) -> _Room:
        """The room that a program for this plan needs: powers of two, so that later plans fit, or
        zeros."""
        num_sets = queries_per_row = num_states = num_tokens = 0
        sizes: tuple[GroupSize, ...] = ()
        if len(plan.query_node):
            most = int(np.diff(plan.query_offset).max())
            num_sets = 1 << (len(self.id_sets) - 1).bit_length()
            queries_per_row = 1 << (most - 1).bit_length()
        config = self.model.config
        if isinstance(config, Network) and config.is_recurrent:
            self._depth = max(self._depth, deepest_path(plan))
            self._longest = max(self._longest, int(plan.position.max(initial=0)) + 1)
            num_tokens = 1 << (self._longest - 1).bit_length()
            num_tokens = min(num_tokens, config.num_positions or num_tokens)
            if num_tokens not in self._walk_sizes:
                on_cpu = self.placement.device.platform == "cpu"
                free = self.placement.free_bytes()
                self._walk_sizes[num_tokens] = group_sizes(
                    config, self.model.state, num_tokens, on_cpu, free
                )
            sizes = self._walk_sizes[num_tokens]
            num_states = states_for(self._depth, sizes)
        return _Room(num_sets, queries_per_row, sizes, num_states, num_tokens)

    def _sets_table(self, num_sets: int) -> jax.Array:
        """bool [num_sets, V]: which ids each set holds; V includes the padding that a mesh
        needs."""
        key = (num_sets, len(self.id_sets))
        if key not in self._tables:
            table = np.zeros((num_sets, self._vocab_size), bool)
            for row, ids in zip(table, self.id_sets, strict=False):
                row[ids] = True
            self._tables = {key: self.placement.share(table)}
        return self._tables[key]

    @spent_on("device")
    def _launch(self, rows: Rows, shape: Shape) -> _Flight:
        with spent_on("plan"):
            batch = assemble(rows.plan, rows.rows, shape)
        program = self._program(shape)
        self._count_new()
        # before the call: on CPU it may only return when the batch is done
        started = time.perf_counter()
        try:
            packed = batch.packed
            # on one device a program takes a host array itself, in a fifth of the time
            if self.placement.how != "one":
                packed = self.placement.put(packed)
            outputs = program(self.model.state, self._sets_table(shape.num_sets), packed)
            for output in outputs:
                output.copy_to_host_async()
        except jax.errors.JaxRuntimeError as error:
            outputs = error
        return _Flight(rows, batch, outputs, started)

    def _program(self, shape: Shape) -> jax.stages.Compiled:
        if shape not in self.programs:
            placement = self.placement
            packed_sharding = sets_sharding = None
            if placement.mesh is not None:
                packed_sharding = placement.split
                sets_sharding = placement.shared
            size = (shape.shards, shape.packed_size)
            packed = jax.ShapeDtypeStruct(size, jnp.int32, sharding=packed_sharding)
            sets = (shape.num_sets, self._vocab_size)
            sets_GV = jax.ShapeDtypeStruct(sets, bool, sharding=sets_sharding)
            score = partial(_score_shard, self.model.graphdef, shape)
            self.programs[shape] = placement.compile(score, (self.model.state, sets_GV), (packed,))
        return self.programs[shape]

    def _fit(self, length: int, room: _Room, free: float) -> float:
        """Compile this length, and halve its rows until the program's memory analysis says that it
        fits these bytes; returns the seconds."""
        start = time.perf_counter()
        while True:
            num_rows = self._rows[length]
            at_least = num_rows == self._split
            try:
                memory = self._program(self._shape(length, room)).memory_analysis()
            # a TPU's compiler refuses what its chip cannot hold
            except jax.errors.JaxRuntimeError as error:
                # Hosts of one mesh must all halve: a TPU's compiler tells all of them the same.
                apart = self.placement.is_global and self.placement.device.platform != "tpu"
                if "RESOURCE_EXHAUSTED" not in str(error) or at_least or apart:
                    raise
            else:
                needs = 0
                if memory is not None:
                    needs = memory.temp_size_in_bytes + memory.output_size_in_bytes
                if needs <= FREE_SHARE * free or at_least:
                    return time.perf_counter() - start
            # another thread may have halved them for another room
            self._rows[length] = min(self._rows[length], self._half(num_rows))

    def _half(self, rows: int) -> int:
        """Half the rows, rounded down to a multiple of the devices that split them."""
        return max(rows // 2 // self._split, 1) * self._split

    def _halve(self, shape: Shape, error: Exception) -> None:
        """Out of memory: halve the rows of this length from now on.  Any other error is raised, and
        so is this one if the rows cannot be halved."""
        if "RESOURCE_EXHAUSTED" not in str(error) or shape.rows == self._split:
            raise error
        if self.placement.is_global:
            raise InputError(
                f"out of memory at {shape.rows} rows of {shape.length} tokens, on a mesh that "
                "spans hosts, where no batch is halved: lower --token_budget, which is "
                f"{self.token_budget}"
            ) from error
        if shape.rows > self._rows[shape.length]:
            return  # this batch was launched before the last halving
        rows = self._rows[shape.length] = self._half(shape.rows)
        self.speed.halvings += 1
        self.progress.warn(
            f"out of memory: {rows} rows of {shape.length} tokens a batch from now on, not "
            f"{shape.rows}"
        )


@spent_on("device")
def _fetch(
    outputs: Outputs | Exception,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    if isinstance(outputs, Exception):
        raise outputs
    logprob, rank, set_logprob = (np.asarray(output).ravel() for output in outputs[:3])
    distribution = no_distribution(len(rank))
    if len(outputs) > 3:
        distribution = np.asarray(outputs[3]).reshape(len(rank), DISTRIBUTION)
    return logprob, rank, set_logprob, distribution


def _score_shard(
    network: Graph, shape: Shape, state: Tree, sets_GV: jax.Array, packed: jax.Array
) -> Outputs:
    """Log-probability and rank of every edge of a packed shard, in the layout's order;
    log-probability of every query."""
    by_rows = shape.row_sharding
    # XLA by itself splits what the head reads like the rows, and gathers it again at every pass.
    whole = partial(gathered, row_sharding=by_rows)
    arrays = shape.unpack(whole(packed))
    decoder = bind(network, state)
    head = decoder.head()
    # of a model that gives logits the hidden states are as wide as the vocabulary
    for_head = whole if head.weight_VD is not None else lambda x: x
    # Else XLA splits the packed array, and its pieces travel between devices.
    rows_3BT = [*map(whole, (arrays.token_ids_BT, arrays.position_BT, arrays.subtree_end_BT))]
    if by_rows is not None:
        rows_3BT = jax.lax.with_sharding_constraint(rows_3BT, by_rows)
    token_ids_BT, position_BT, subtree_end_BT = rows_3BT
    if shape.walk is not None:
        assert isinstance(decoder, BoundNetwork)
        hidden_FD, _ = walk_rows(
            decoder, token_ids_BT.reshape(-1), WalkArrays(*arrays.walk), shape.walk
        )
    else:
        traced = isinstance(decoder, Decoder)
        windows = decoder.config.layer_windows
        visibility = Visibility.of_batch(
            subtree_end_BT, position_BT, windows, traced, shape.attention
        )
        if shape.attends_by_row:
            visibility = replace(visibility, row_sharding=by_rows)
        more = (arrays.rope_class_BT,) if shape.has_rope_class else ()
        # the head reads rows of every device
        hidden_BTD = for_head(decoder(token_ids_BT, position_BT, visibility, *more))
        hidden_FD = hidden_BTD.reshape(shape.slots, -1)
    hidden_SD = for_head(hidden_FD[arrays.parent_S])
    rules = {**head.rules, "chunk": shape.chunk}
    edges = arrays.target_E, arrays.round_start_R, arrays.chunk_round_C, arrays.num_chunks_1[0]
    logprob_E, rank_E, *more = target_logprob(
        hidden_SD, head.weight_VD, *edges, **rules, with_distribution=shape.with_distribution
    )
    if not shape.num_sets:
        return logprob_E, rank_E, jnp.zeros(0, jnp.float32), *more
    hidden_AD = for_head(hidden_FD[arrays.query_node_A])
    queries = arrays.query_set_A, arrays.num_queries_1[0]
    of_sets = id_set_logprob(hidden_AD, head.weight_VD, sets_GV, *queries, **rules)
    return logprob_E, rank_E, of_sets, *more
