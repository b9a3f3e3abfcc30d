"""What planning produces: the cost of rows, and a plan of them.

Arrives: nothing.  Leaves: `CostModel`, `Plan`.  It deliberately does not know how a plan is made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

# What a row holds.  forest: several tries; trees: one trie; packed: several requests, nothing shared; path: requests that
# are beginnings of one another, for models that know causal attention alone; none: one request.
Sharing = Literal["forest", "trees", "packed", "path", "none"]


@dataclass(frozen=True, slots=True)
class CostModel:
    """What a row costs, in FLOPs of the model's weight matmuls (slower kinds of work count for more)."""

    flops_per_token: float  # 2 x the weights every token meets
    flops_per_pair: float  # attention of one query and one key over all layers, weighted by its relative slowness
    flops_per_program: float  # compiling one more row length
    length_multiple: int = 32  # row lengths are multiples of this
    max_lengths: int = 8  # compiled programs
    longest: int = 1 << 15  # no row is longer unless a single request is
    most_places: int | None = None  # no row has more, padding included
    sharing: Sharing = "forest"
    apart: Callable[[int], int] | None = None  # class of a request of so many tokens: only equal ones share places

    @property
    def packs(self) -> bool:
        return self.sharing in ("forest", "packed")

    def row(self, length: np.ndarray | int) -> np.ndarray:
        """A row of `length` places: linear work on each, attention over the causal half of the square."""
        length = np.asarray(length, np.float64)
        return length * self.flops_per_token + length * (length + self.length_multiple) / 2 * self.flops_per_pair


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows end to end: place arrays [P], edge arrays [E]; row r owns places place_offset[r]:place_offset[r + 1]."""

    row_length: np.ndarray  # int32 [rows], places the row has on the device, padding included
    place_offset: np.ndarray  # int64 [rows + 1]
    token_ids: np.ndarray  # int32 [P]
    position: np.ndarray  # int32 [P], depth in the trie
    subtree_end: np.ndarray  # int32 [P], row index just past the subtree
    edge_offset: np.ndarray  # int64 [rows + 1]
    edge_source: np.ndarray  # int32 [E], row index of the parent place; edges stand in (source, target) order
    edge_target: np.ndarray  # int32 [E], token id
    request_edge_offset: np.ndarray  # int64 [R + 1]
    request_edge: (
        np.ndarray
    )  # int64, edges of request r: request_edge[request_edge_offset[r]:request_edge_offset[r + 1]]
    ask_offset: np.ndarray  # int64 [rows + 1]; an ask is a place whose distribution is summed over a set of ids
    ask_source: np.ndarray  # int32 [A], row index of the place
    ask_set: np.ndarray  # int32 [A], which set
    request_ask: np.ndarray  # int64 [R], each request's ask, at the place before its span; -1: none
    rope_class: np.ndarray  # int32 [P], `CostModel.apart` of the requests at each place; empty where all are alike

    @property
    def num_rows(self) -> int:
        return len(self.row_length)

    @property
    def request_row(self) -> np.ndarray:
        """int64 [R]: the row that holds all edges of each request; -1 where it has none."""
        row = np.full(len(self.request_edge_offset) - 1, -1, np.int64)
        scored = np.flatnonzero(np.diff(self.request_edge_offset))
        first = self.request_edge[self.request_edge_offset[scored]]
        row[scored] = np.searchsorted(self.edge_offset, first, side="right") - 1
        return row

    def places_of(self, rows: list[int]) -> int:
        """Places in use in these rows."""
        return int((self.place_offset[np.asarray(rows) + 1] - self.place_offset[rows]).sum())

    @property
    def unique_tokens(self) -> int:
        """Places the plan computes, repeats at cuts included."""
        return len(self.token_ids)

    @property
    def padded_tokens(self) -> int:
        return int(self.row_length.sum())

    @property
    def visible_pairs(self) -> int:
        """Query-key pairs that a query may look at: each place sees its ancestors and itself (windows aside)."""
        return int(self.position.sum(dtype=np.int64)) + len(self.position)

    @property
    def num_sources(self) -> int:
        """Distinct places that go through the output head."""
        row = np.repeat(np.arange(self.num_rows), np.diff(self.edge_offset))
        return int((np.diff(row * (1 << 32) + self.edge_source, prepend=-1) != 0).sum())
