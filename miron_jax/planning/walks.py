"""Rows of a plan -> the order in which a model that carries a state reads them.

Arrives: position and subtree end of the nodes of some rows.  Leaves: a `Walk`: chunks of tokens in
groups, each chunk with the state that it starts from and the place of the state that it leaves.  It
deliberately does not know what a state is.

A recurrent model has no keys to hide from a branch: each branch starts from the state at the end of
what it shares.  Nodes are cut into segments, chains without a branch.  A segment is read once, in
chunks of a few sizes; chunks of one size run side by side in a group, whichever rows they come
from.  Chunks hold no padding, which would become part of a state.

    nodes      B q1 q2  a1 a2  b1        q2 has the branches a1 and b1
    segments   B q1 q2 | a1 a2 | b1
    states     0 -> 1     1 -> 2  1 -> -     0: before any token; -: nobody starts from it
"""

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

import numpy as np

from miron_jax.planning.records import Plan
from miron_jax.tokens.ragged import offsets_of

EMPTY = 0  # the state before any token


class GroupSize(NamedTuple):
    """Chunks of so many tokens run in groups of so many lanes."""

    tokens: int
    lanes: int


class Segments(NamedTuple):
    """Chains of nodes in depth-first order, rows end to end."""

    slot: np.ndarray  # int64 [N], slot of the first node
    length: np.ndarray  # int64 [N], nodes
    parent: np.ndarray  # int64 [N], the segment that it follows; -1: none
    ends_kept: np.ndarray  # int64 [N], index of the kept state after it; -1: its state is not kept
    depth: int  # most segments on a path


class Walk(NamedTuple):
    """Q chunks in G groups, int32."""

    chunk_slot: np.ndarray  # [Q], slot of the first token
    chunk_from: np.ndarray  # [Q], index of the state before it
    chunk_to: np.ndarray  # [Q], index of the state after it; -1: none
    group_first: np.ndarray  # [G + 1], first chunk of each group
    group_size: np.ndarray  # [G], index of its size


def segments_of(
    rows: Sequence[tuple[int, np.ndarray, np.ndarray]], kept: Sequence[np.ndarray] = ()
) -> Segments:
    """The segments of rows, each given by its first slot and its nodes' position and subtree end.

    `kept`: distinct nodes of each row after which the state is kept; kept states are numbered in
    their order.
    """
    columns = []
    parents = list[int]()
    deepest = 0
    num_kept = 0
    for r, (slot, position, subtree_end) in enumerate(rows):
        kept_of_node = np.full(len(position), -1, np.int64)
        if kept:
            kept_of_node[kept[r]] = num_kept + np.arange(len(kept[r]))
            num_kept += len(kept[r])
        follows = (
            (position[1:] == position[:-1] + 1)
            & (subtree_end[1:] == subtree_end[:-1])
            & (kept_of_node[:-1] < 0)
        )
        first = np.flatnonzero(np.concatenate([[len(position) > 0], ~follows]))
        last = np.append(first[1:], len(position)) - 1 if len(first) else first
        ends = subtree_end[last].tolist()
        before = len(parents)
        path = list[int]()
        for i, node in enumerate(first.tolist()):
            while path and ends[path[-1]] <= node:
                path.pop()
            parents.append(before + path[-1] if path else -1)
            path.append(i)
            deepest = max(deepest, len(path))
        columns.append((slot + first, last + 1 - first, kept_of_node[last]))
    columns.append((np.zeros(0, np.int64),) * 3)  # of no row at all
    slots, lengths, ends_kept = map(np.concatenate, zip(*columns, strict=True))
    return Segments(slots, lengths, np.asarray(parents, np.int64), ends_kept, deepest)


def nodes_of(plan: Plan, row: int) -> tuple[np.ndarray, np.ndarray]:
    """(position, subtree end) of a row's nodes."""
    nodes = slice(plan.node_offset[row], plan.node_offset[row + 1])
    return plan.position[nodes], plan.subtree_end[nodes]


def deepest_path(plan: Plan) -> int:
    """The most segments on a path of a plan's rows."""
    num_nodes = len(plan.position)
    row_start = np.repeat(plan.node_offset[:-1], np.diff(plan.node_offset))
    end = plan.subtree_end + row_start
    begins = np.ones(num_nodes, bool)
    begins[1:] = (plan.position[1:] != plan.position[:-1] + 1) | (end[1:] != end[:-1])
    # A node is on as many segments as begin at it or before it and whose subtrees hold it.
    change = begins.astype(np.int64) - np.bincount(end[begins], minlength=num_nodes + 1)[:num_nodes]
    return int(np.cumsum(change).max(initial=0))


def schedule(segments: Segments, sizes: Sequence[GroupSize], num_states: int) -> Walk:
    """Read every segment once.  `sizes`: ascending, the first of one token.

    States 1 to num_states - 1 are used again and again, kept ones follow them.  `num_states`
    exceeds `segments.depth`.
    """
    reading = _Reading(segments, sizes, num_states)
    groups = list[list[_Chunk]]()
    group_size = list[int]()
    while (taken := reading.next_group()) is not None:
        group_size.append(taken[0])
        groups.append(taken[1])
    slot, state_from, state_to = (
        np.asarray([*chain.from_iterable(groups)], np.int32).reshape(-1, 3).T
    )
    first = offsets_of([*map(len, groups)]).astype(np.int32)
    return Walk(slot, state_from, state_to, first, np.asarray(group_size, np.int32))


class _Chunk(NamedTuple):
    slot: int
    state_from: int
    state_to: int


class _Reading:
    """How far each segment is read.

    Earlier segments come first.  Only the first unfinished one may take any free state; another
    begins only where the longest path still has free states, so the first one can always go on.
    """

    def __init__(self, segments: Segments, sizes: Sequence[GroupSize], num_states: int) -> None:
        assert num_states > segments.depth, (
            "a state for each segment of the longest path, and the empty one"
        )
        self._sizes = sizes
        self._reserve = segments.depth
        self._num_states = num_states
        self._tokens = [size.tokens for size in sizes]
        self._slot = segments.slot.tolist()
        self._left = segments.length.tolist()
        self._parent = segments.parent.tolist()
        self._kept = segments.ends_kept.tolist()
        self._children: list[list[int]] = [[] for _ in self._parent]
        for i, parent in enumerate(self._parent):
            if parent >= 0:
                self._children[parent].append(i)
        # children that have not begun
        self._waiting = [*map(len, self._children)]
        self._state = [-1] * len(self._parent)  # of what is read of a segment; -1: none
        self._free = list(range(num_states - 1, EMPTY, -1))
        self._lead = 0  # the first unfinished segment
        # heaps: segments whose next chunk has this size
        self._ready: list[list[int]] = [[] for _ in sizes]
        for i, parent in enumerate(self._parent):
            if parent < 0:
                self._make_ready(i)

    def next_group(self) -> tuple[int, list[_Chunk]] | None:
        """(index of its size, chunks); full groups first, those of more tokens first.  None:
        everything is read."""
        order = sorted(range(len(self._sizes)), key=self._preference, reverse=True)
        for size in order:
            if chunks := self._take(size):
                return size, chunks
        assert self._lead == len(self._parent), "some segment can always go on"
        return None

    def _preference(self, size: int) -> tuple[float, int]:
        return min(1.0, len(self._ready[size]) / self._sizes[size].lanes), size

    def _take(self, size: int) -> list[_Chunk]:
        ready = self._ready[size]
        lanes = self._sizes[size].lanes
        taken = list[int]()
        blocked = list[int]()
        chunks = list[_Chunk]()
        while ready and len(chunks) < lanes and len(blocked) < lanes:
            i = heappop(ready)
            chunk = self._read(i, self._sizes[size].tokens)
            if chunk is None:
                blocked.append(i)
            else:
                taken.append(i)
                chunks.append(chunk)
        for i in blocked:
            heappush(ready, i)
        for i in taken:
            if self._left[i]:
                self._make_ready(i)
            else:
                for child in self._children[i]:
                    self._make_ready(child)
        while self._lead < len(self._left) and not self._left[self._lead]:
            self._lead += 1
        return chunks

    def _read(self, i: int, tokens: int) -> _Chunk | None:
        """Read so many tokens of a segment; None: too few states are free to begin it."""
        is_last = tokens == self._left[i]
        kept = self._kept[i]
        leaves_state = not is_last or (kept < 0 and bool(self._children[i]))
        parent = self._parent[i]
        before = self._state[i]
        if before < 0:
            before = self._state[parent] if parent >= 0 else EMPTY
            # nobody else reads it
            is_over = parent >= 0 and self._waiting[parent] == 1 and before < self._num_states
            if (
                leaves_state
                and not is_over
                and i != self._lead
                and len(self._free) <= self._reserve
            ):
                return None
            if parent >= 0:
                self._waiting[parent] -= 1
            if is_over:
                self._free.append(before)
            if leaves_state:
                self._state[i] = self._free.pop()
        elif not leaves_state:
            self._free.append(before)
        if is_last and kept >= 0:
            self._state[i] = self._num_states + kept
        elif not leaves_state:
            self._state[i] = -1
        chunk = _Chunk(self._slot[i], before, self._state[i])
        self._slot[i] += tokens
        self._left[i] -= tokens
        return chunk

    def _make_ready(self, i: int) -> None:
        """The next chunk is of the largest size that the segment fills."""
        heappush(self._ready[bisect_right(self._tokens, self._left[i]) - 1], i)
