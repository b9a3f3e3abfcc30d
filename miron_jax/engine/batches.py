"""Rows of a Plan -> the arrays of one batch.

Arrives: a Plan and which of its rows run together.  Leaves: a `Batch` of host arrays in a compiled shape.  It
deliberately does not know the model.
"""

from typing import Any, NamedTuple

import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from miron_jax.kernels.forest_attention import Name
from miron_jax.kernels.target_logprob.layout import lay_out
from miron_jax.planning.records import Plan

# Of a pass through an accelerator's head: bytes of its float32 logits, whatever the vocabulary, and nodes at most.
LOGIT_BYTES, MOST_CHUNK = 1 << 28, 1024


class Arrays(NamedTuple):
    """One shard as the program reads it; the lengths of these parts follow from B and T alone."""

    token_ids_BT: Any
    position_BT: Any
    subtree_end_BT: Any
    source_S: Any  # places in the flattened shard, first num_sources in use
    target_E: Any
    round_start_R: Any
    chunk_round_C: Any
    num_chunks_1: Any
    ask_place_A: Any  # places in the flattened shard, first num_asks in use
    ask_set_A: Any
    num_asks_1: Any
    rope_class_BT: Any  # [0, 0] where the model has none


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
    has_rope_class: bool = False  # a request's length picks its rotary frequencies
    shards: int = 1
    attention: Name = "xla"

    @property
    def places(self) -> int:
        """Of a shard."""
        return self.rows * self.length

    @property
    def parts(self) -> Arrays:
        """Shapes of a shard's arrays.  A row of T places has at most T edges: B * T hold all sources, edges and rounds."""
        square, chunks = (self.rows, self.length), -(-self.places // self.chunk)
        sources, asks = (chunks * self.chunk,), (-(-self.rows * self.asks_a_row // self.chunk) * self.chunk,)
        layout = (sources, (self.places,), (self.places + 1,), (chunks + 1,), (1,))
        return Arrays(square, square, square, *layout, asks, asks, (1,), square if self.has_rope_class else (0, 0))

    @property
    def packed_size(self) -> int:
        return sum(int(np.prod(part)) for part in self.parts)

    def unpack(self, packed: Any) -> Arrays:
        """Views into the one vector that holds a shard's arrays end to end."""
        stops = np.cumsum([int(np.prod(part)) for part in self.parts]).tolist()
        starts = [0, *stops[:-1]]
        return Arrays(*(packed[a:b].reshape(part) for a, b, part in zip(starts, stops, self.parts, strict=True)))


class Batch(NamedTuple):
    shape: Shape
    rows: list[int]  # rows of the plan
    packed: np.ndarray  # int32 [shards, size], Arrays end to end
    edges: np.ndarray  # int64, edges of the plan
    edge_place: np.ndarray  # int64, where each stands in the program's outputs laid end to end
    asks: np.ndarray  # int64, asks of the plan
    ask_place: np.ndarray  # int64, the same of these


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


def assemble(plan: Plan, rows: list[int], shape: Shape) -> Batch:
    """Rows of the plan as one batch, dealt out to its shards."""
    packed = np.zeros((shape.shards, shape.packed_size), np.int32)
    edges, edge_place, asks, ask_place = [], [], [], []
    for s in range(shape.shards):
        own = assemble_shard(plan, rows[s :: shape.shards], shape, packed[s])
        edges.append(own.edges)
        edge_place.append(own.edge_place + s * shape.places)
        asks.append(own.asks)
        ask_place.append(np.arange(len(own.asks)) + s * shape.parts.ask_place_A[0])
    return Batch(shape, rows, packed, *map(np.concatenate, (edges, edge_place, asks, ask_place)))


class Shard(NamedTuple):
    edges: np.ndarray  # int64, edges of the plan
    edge_place: np.ndarray  # int64, where each stands in the shard's output
    asks: np.ndarray  # int64, asks of the plan, in the order of the shard's output


def assemble_shard(plan: Plan, rows: list[int], shape: Shape, packed: np.ndarray) -> Shard:
    """Write `packed`; places beyond a row, and rows beyond `rows`, are padding that sees only itself."""
    arrays = shape.unpack(packed)
    arrays.subtree_end_BT[:] = np.arange(1, shape.length + 1, dtype=np.int32)
    none = np.zeros(0, np.int64)
    edges, sources, asks, ask_places = [none], [none], [none], [none]  # a last batch may leave a shard without rows
    for b, row in enumerate(rows):
        places = slice(plan.place_offset[row], plan.place_offset[row + 1])
        used = places.stop - places.start
        arrays.token_ids_BT[b, :used] = plan.token_ids[places]
        arrays.position_BT[b, :used] = plan.position[places]
        arrays.subtree_end_BT[b, :used] = plan.subtree_end[places]
        if shape.has_rope_class:
            arrays.rope_class_BT[b, :used] = plan.rope_class[places]
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
    return Shard(edge, layout.edge_place_E, ask)
