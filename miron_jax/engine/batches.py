"""How many rows of a Plan make a batch (as the token budget of forward.py holds), and its arrays.

Arrives: a Plan and which of its rows run together.  Leaves: a `Batch` of host arrays in a compiled
shape.  It deliberately does not know the model.
"""

import math
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from miron_jax.kernels.target_logprob.layout import lay_out
from miron_jax.model.stateful.walk import WalkShape, write_walk
from miron_jax.planning.records import Plan
from miron_jax.planning.walks import GroupSize, nodes_of, schedule, segments_of

# One pass through an accelerator's head: bytes of its float32 logits, for every vocabulary size,
# and most nodes.
LOGIT_BYTES = 1 << 28
MOST_CHUNK = 1024

_Array = TypeVar("_Array", np.ndarray, jax.Array)


class Arrays(NamedTuple, Generic[_Array]):
    """The input arrays of one shard, int32, on the host or in a program; B and T alone decide their
    lengths."""

    token_ids_BT: _Array
    position_BT: _Array
    subtree_end_BT: _Array
    parent_S: _Array  # slots in the flattened shard; the first num_parents are in use
    target_E: _Array
    round_start_R: _Array
    chunk_round_C: _Array
    num_chunks_1: _Array
    query_node_A: _Array  # slots in the flattened shard; the first num_queries are in use
    query_set_A: _Array
    num_queries_1: _Array
    rope_class_BT: _Array  # [0, 0] if request lengths select no frequencies
    walk: tuple[_Array, ...] = ()  # `WalkShape.array_shapes` of a model that carries a state


NUM_ARRAYS = len(Arrays._fields) - 1  # without those of a walk


def chunk_of(vocab_size: int) -> int:
    """Nodes of one pass through an accelerator's head: the power of two whose logits take
    LOGIT_BYTES."""
    return min(MOST_CHUNK, max(64, 1 << (LOGIT_BYTES // (4 * vocab_size)).bit_length() - 1))


class Shape(NamedTuple):
    """The static sizes that one program is compiled for."""

    rows: int  # of a shard
    length: int  # slots of a row
    chunk: int  # parent nodes of one pass through the head
    num_sets: int = 0  # id sets that the program has room for; 0: no id-set queries
    queries_per_row: int = 0  # id-set queries of one row that it has room for
    row_sharding: NamedSharding | PartitionSpec | None = None  # of a shard's rows, over a mesh
    has_rope_class: bool = False  # a request's length selects its rotary frequencies
    shards: int = 1
    attention: str = "xla"
    walk_sizes: tuple[GroupSize, ...] = ()  # of a model that carries a state
    num_states: int = 0
    num_tokens: int = 0  # of the longest request, for its state
    with_distribution: bool = False  # numbers of the distribution at every edge too
    # attention takes one row after another, so that XLA does not split them
    attends_by_row: bool = False

    @property
    def walk(self) -> WalkShape | None:
        """How a model that carries a state reads a shard; None: the model carries none."""
        if not self.walk_sizes:
            return None
        return WalkShape(self.walk_sizes, self.slots, self.num_states, 0, self.num_tokens)

    @property
    def slots(self) -> int:
        """Slots of one shard."""
        return self.rows * self.length

    @property
    def num_queries(self) -> int:
        """Id-set queries of one shard that the program has room for: whole chunks."""
        return -(-self.rows * self.queries_per_row // self.chunk) * self.chunk

    @property
    def array_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of `Arrays`.  A row of T slots has at most T edges, so B * T slots hold all
        parents, edges and rounds."""
        square = (self.rows, self.length)
        chunks = -(-self.slots // self.chunk)
        parents = (chunks * self.chunk,)
        queries = (self.num_queries,)
        layout = (parents, (self.slots,), (self.slots + 1,), (chunks + 1,), (1,))
        walk = self.walk.array_shapes if self.walk else ()
        rope_class = square if self.has_rope_class else (0, 0)
        return (square, square, square, *layout, queries, queries, (1,), rope_class, *walk)

    @property
    def packed_size(self) -> int:
        return sum(map(math.prod, self.array_shapes))

    def unpack(self, packed: _Array) -> Arrays[_Array]:
        """Views into the one vector that holds a shard's arrays end to end."""
        stops = list(accumulate(map(math.prod, self.array_shapes)))
        bounds = zip([0, *stops[:-1]], stops, self.array_shapes, strict=True)
        arrays = [packed[a:b].reshape(shape) for a, b, shape in bounds]
        return Arrays(*arrays[:NUM_ARRAYS], walk=tuple(arrays[NUM_ARRAYS:]))  # pyright: ignore[reportCallIssue]


class Batch(NamedTuple):
    """Rows of a plan, packed for the shards of one call."""

    shape: Shape
    rows: list[int]  # rows of the plan
    packed: np.ndarray  # int32 [shards, size], Arrays end to end
    edges: np.ndarray  # int64, edges of the plan
    edge_output: np.ndarray  # int64, index of each edge in the outputs of all shards, end to end
    queries: np.ndarray  # int64, id-set queries of the plan
    query_output: np.ndarray  # int64, index of each query in those outputs


def rows_by_length(
    row_length: np.ndarray, shards: int, token_budget: int, more: bool
) -> dict[int, int]:
    """Row length -> rows of one shard's batch, for the rows of a plan, whose lengths are int
    [rows].

    The number leaves fewest empty rows in the last batch.  If `more` plans follow, it is as large
    as the budget and the expected share of each shard allow.
    """
    lengths, counts = (column.tolist() for column in np.unique(row_length, return_counts=True))
    # slots of one length, on average
    share = int(row_length.sum()) // (shards * max(1, len(lengths)))
    sizes = {}
    for length, count in zip(lengths, counts, strict=True):
        full = max(1, token_budget // length)
        if more:
            sizes[length] = max(1, min(full, share // length))
        else:
            sizes[length] = _fullest(-(-count // shards), full)
    return sizes


def _fullest(count: int, full: int) -> int:
    """Rows of each batch, between half of `full` and `full`, that leave fewest of the last batch
    empty for `count` rows."""
    if count <= full:
        return count
    return min(range(full, full // 2, -1), key=lambda rows: -(-count // rows) * rows)


def assemble(plan: Plan, rows: list[int], shape: Shape) -> Batch:
    """Rows of the plan as one batch, dealt out to its shards."""
    packed = np.zeros((shape.shards, shape.packed_size), np.int32)
    edges = []
    edge_output = []
    queries = []
    query_output = []
    for s in range(shape.shards):
        shard = assemble_shard(plan, rows[s :: shape.shards], shape, packed[s])
        edges.append(shard.edges)
        edge_output.append(shard.edge_output + s * shape.slots)
        queries.append(shard.queries)
        query_output.append(np.arange(len(shard.queries)) + s * shape.num_queries)
    return Batch(
        shape, rows, packed, *map(np.concatenate, (edges, edge_output, queries, query_output))
    )


class Shard(NamedTuple):
    """What the outputs of one shard stand for."""

    edges: np.ndarray  # int64, edges of the plan
    edge_output: np.ndarray  # int64, index of each edge in the shard's output
    queries: np.ndarray  # int64, id-set queries of the plan, in the order of the shard's output


def assemble_shard(plan: Plan, rows: list[int], shape: Shape, packed: np.ndarray) -> Shard:
    """Write `packed` in place.  Slots beyond a row's end, and rows beyond `rows`, are padding that
    sees only itself."""
    arrays = shape.unpack(packed)
    arrays.subtree_end_BT[:] = np.arange(1, shape.length + 1, dtype=np.int32)
    none = np.zeros(0, np.int64)
    # a last batch may leave a shard without rows
    edges, parents, queries, query_nodes = [none], [none], [none], [none]
    for b, row in enumerate(rows):
        nodes = slice(plan.node_offset[row], plan.node_offset[row + 1])
        used = nodes.stop - nodes.start
        arrays.token_ids_BT[b, :used] = plan.token_ids[nodes]
        arrays.position_BT[b, :used] = plan.position[nodes]
        arrays.subtree_end_BT[b, :used] = plan.subtree_end[nodes]
        if shape.has_rope_class:
            arrays.rope_class_BT[b, :used] = plan.rope_class[nodes]
        edges.append(np.arange(plan.edge_offset[row], plan.edge_offset[row + 1]))
        parents.append(plan.edge_parent[edges[-1]] + b * shape.length)
        queries.append(np.arange(plan.query_offset[row], plan.query_offset[row + 1]))
        query_nodes.append(plan.query_node[queries[-1]] + b * shape.length)
    edge = np.concatenate(edges)
    layout = lay_out(np.concatenate(parents), plan.edge_target[edge], shape.chunk)
    arrays.parent_S[: len(layout.parent_S)] = layout.parent_S
    arrays.target_E[: len(edge)] = layout.target_E
    num_rounds = len(layout.round_start_R)
    num_chunks = len(layout.chunk_round_C1) - 1
    arrays.round_start_R[:num_rounds] = layout.round_start_R
    arrays.round_start_R[num_rounds] = len(edge)
    arrays.chunk_round_C[: num_chunks + 1] = layout.chunk_round_C1
    arrays.num_chunks_1[0] = num_chunks
    query = np.concatenate(queries)
    arrays.query_node_A[: len(query)] = np.concatenate(query_nodes)
    arrays.query_set_A[: len(query)] = plan.query_set[query]
    arrays.num_queries_1[0] = len(query)
    if shape.walk is not None:
        segments = segments_of(
            [(b * shape.length, *nodes_of(plan, row)) for b, row in enumerate(rows)]
        )
        write_walk(schedule(segments, shape.walk_sizes, shape.num_states), arrays.walk)
    return Shard(edge, layout.edge_output_E, query)
