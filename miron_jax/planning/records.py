"""The records of planning: the cost of rows, and a plan of them.

Arrives: nothing.  Leaves: `CostModel`, `Plan`.  It deliberately does not know how a plan is made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

# What a row holds.  forest: several tries; trees: one trie; packed: several requests, nothing
# shared; path: requests that are prefixes of one another, for models with causal attention only;
# none: one request.
Sharing = Literal["forest", "trees", "packed", "path", "none"]


@dataclass(frozen=True, slots=True)
class CostModel:
    """What a row costs, in FLOPs of the model's weight matmuls (slower kinds of work count for
    more)."""

    flops_per_token: float  # 2 x the weights that every token is multiplied with
    # attention of one query and one key over all layers, weighted by its relative slowness
    flops_per_pair: float
    flops_per_program: float  # compiling one more row length
    length_multiple: int = 32  # row lengths are multiples of this
    max_lengths: int = 8  # compiled programs
    longest: int = 4096  # longest row, except for a single longer request
    # In longer rows attention skips what nobody sees: a query meets the keys of its path, and as
    # many more as a block has.
    whole_up_to: int = 1024
    block: int = 256
    max_slots: int | None = None  # most slots of a row, padding included
    sharing: Sharing = "forest"
    # request length -> class; only requests of one class share nodes
    length_class: Callable[[int], int] | None = None

    @property
    def packs(self) -> bool:
        return self.sharing in ("forest", "packed")

    def row(self, length: np.ndarray | int, path: np.ndarray | float = np.inf) -> np.ndarray:
        """Cost of a row of `length` slots: linear work for each, attention over the causal half of
        the square, or over `path` keys a slot where it skips the others."""
        length = np.asarray(length, np.float64)
        keys = (length + self.length_multiple) / 2
        keys = np.where(length > self.whole_up_to, np.minimum(keys, path + self.block), keys)
        return length * (self.flops_per_token + keys * self.flops_per_pair)

    def rows_of(self, plan: "Plan") -> np.ndarray:
        """Cost of each row, float64 [rows]."""
        depth = np.add.reduceat(plan.position, plan.node_offset[:-1], dtype=np.int64)
        return self.row(plan.row_length, depth / np.diff(plan.node_offset))


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows end to end: row r has nodes node_offset[r]:node_offset[r + 1], and edges and id-set
    queries likewise.

    P nodes; E edges (a parent node and a target token, scored); A id-set queries (a node whose
    distribution is summed over a set of token ids); R requests, whose edges are
    request_edge[request_edge_offset[r]:request_edge_offset[r + 1]].
    """

    row_length: np.ndarray  # int32 [rows], slots of the row on the device, padding included
    node_offset: np.ndarray  # int64 [rows + 1]
    token_ids: np.ndarray  # int32 [P]
    position: np.ndarray  # int32 [P], depth: token position within the request
    subtree_end: np.ndarray  # int32 [P], row index just past the subtree
    edge_offset: np.ndarray  # int64 [rows + 1]
    # int32 [E], row index of the parent node; edges are sorted by parent, then target
    edge_parent: np.ndarray
    edge_target: np.ndarray  # int32 [E], token id
    request_edge_offset: np.ndarray  # int64 [R + 1]
    request_edge: np.ndarray  # int64
    query_offset: np.ndarray  # int64 [rows + 1]
    query_node: np.ndarray  # int32 [A], row index of the node
    query_set: np.ndarray  # int32 [A], index of the set
    # int64 [R], the query of each request, at the node before its span; -1: none
    request_query: np.ndarray
    # int32 [P], `CostModel.length_class` of the node's requests; empty if the cost has none
    rope_class: np.ndarray

    @property
    def num_rows(self) -> int:
        return len(self.row_length)

    @property
    def request_row(self) -> np.ndarray:
        """int64 [R]: the row that holds all edges of each request; -1: the request has no edge."""
        row = np.full(len(self.request_edge_offset) - 1, -1, np.int64)
        scored = np.flatnonzero(np.diff(self.request_edge_offset))
        first = self.request_edge[self.request_edge_offset[scored]]
        row[scored] = np.searchsorted(self.edge_offset, first, side="right") - 1
        return row

    def num_nodes(self, rows: list[int]) -> int:
        """Nodes of these rows."""
        return int((self.node_offset[np.asarray(rows) + 1] - self.node_offset[rows]).sum())

    @property
    def unique_tokens(self) -> int:
        """Nodes of the plan; a prefix that subtries repeat counts once for each."""
        return len(self.token_ids)

    @property
    def padded_tokens(self) -> int:
        return int(self.row_length.sum())

    @property
    def visible_pairs(self) -> int:
        """Visible query-key pairs: each node sees its ancestors and itself (windows aside)."""
        return int(self.position.sum(dtype=np.int64)) + len(self.position)

    @property
    def num_parents(self) -> int:
        """Distinct parent nodes: those that go through the output head."""
        return int(self.parents_of_rows.sum())

    @property
    def parents_of_rows(self) -> np.ndarray:
        """int64 [rows]: distinct parent nodes of each row."""
        row = np.repeat(np.arange(self.num_rows), np.diff(self.edge_offset))
        is_new = np.diff(row * (1 << 32) + self.edge_parent, prepend=-1) != 0
        return np.bincount(row[is_new], minlength=self.num_rows)
