"""Requests -> tries: sorted so that requests with a shared prefix are neighbours, and cut into
subtries that fit rows.

Arrives: Requests, a CostModel.  Leaves: a `Trie` and the first sequence of each subtrie.  It
deliberately does not know rows.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from miron_jax.planning.records import CostModel
from miron_jax.tokens.ragged import blocks, gather
from miron_jax.tokens.records import Requests

# neighbours share a subtrie if that saves this share of the second one's nodes
WORTH_SHARING = 1 / 8
# smaller subtries are never cut: a repeated prefix costs more than a shorter row saves
CUT_ABOVE = 512


@dataclass(frozen=True, slots=True)
class Trie:
    """U distinct token sequences in sorted order; sequence u shares its first `shared[u]` nodes
    with its neighbour u - 1."""

    tokens: np.ndarray  # int32, sequences end to end in sorted order
    offset: np.ndarray  # int64 [U + 1]
    span_start: np.ndarray  # int32 [U], lowest span start of its requests
    common: np.ndarray  # int32 [U], tokens in common with u - 1
    shared: np.ndarray  # int32 [U], nodes in common with u - 1: a sequence's last token has no node
    request_sequence: np.ndarray  # int64 [R], -1: the span is empty
    # int32 [U], `CostModel.length_class` of each; empty if the cost has none
    rope_class: np.ndarray
    # last v < u with less shared
    previous_lower: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    # first v > u with less shared
    next_lower: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def length(self) -> np.ndarray:
        return np.diff(self.offset)


def sort_requests(requests: Requests, cost: CostModel) -> Trie:
    """Sort by token ids, drop exact duplicates and requests that score nothing, count common
    prefixes."""
    begin = requests.offsets[:-1]
    end = requests.offsets[1:]
    scored = np.flatnonzero(requests.span_start < end - begin)
    raw = requests.token_ids.astype(">u4").tobytes()  # big-endian bytes sort as the numbers do
    keys = [
        raw[a:b]
        for a, b in zip((begin[scored] * 4).tolist(), (end[scored] * 4).tolist(), strict=True)
    ]
    classes = np.zeros(len(keys), np.int32)
    if cost.length_class is not None:
        lengths, of_length = np.unique((end - begin)[scored], return_inverse=True)
        classes = np.asarray([*map(cost.length_class, lengths.tolist())], np.int32)[of_length]
        keys = [
            number.to_bytes(4, "big") + key
            for number, key in zip(classes.tolist(), keys, strict=True)
        ]
    order = np.asarray(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    del keys
    by_token = scored[order]
    tokens, offset = gather(requests.token_ids, begin[by_token], (end - begin)[by_token])
    common = _common_with_previous(tokens, offset)
    classes = classes[order]
    common[1:][classes[1:] != classes[:-1]] = 0
    length = np.diff(offset)
    is_new = np.ones(len(length), bool)
    is_new[1:] = (common[1:] < length[1:]) | (length[1:] != length[:-1])
    sequence = np.cumsum(is_new) - 1
    request_sequence = np.full(len(requests), -1, np.int64)
    request_sequence[by_token] = sequence
    first = np.flatnonzero(is_new)
    span_start = np.zeros(0, np.int32)
    if len(first):
        span_start = np.minimum.reduceat(requests.span_start[by_token], first)
    if len(first) < len(length):
        tokens, offset = gather(tokens, offset[first], length[first])
    common = common[first]
    length = length[first]
    shared = common.copy()
    shared[1:] = np.minimum(shared[1:], length[:-1] - 1)
    classes = classes[first] if cost.length_class is not None else np.zeros(0, np.int32)
    return Trie(tokens, offset, span_start, common, shared, request_sequence, classes)


def _common_with_previous(tokens: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Length of the common prefix of sequences u and u - 1; 0 for the first.  The same depth is
    length[u - 1] back."""
    length = np.diff(offset)
    back = np.concatenate([[0], length])[:-1]
    common = np.empty(len(length), np.int32)
    for a, b in blocks(offset):
        index = np.arange(offset[a], offset[b])
        depth = index - np.repeat(offset[a:b], length[a:b])
        back_each = np.repeat(back[a:b], length[a:b])
        differs = (depth >= back_each) | (tokens[index] != tokens[np.maximum(index - back_each, 0)])
        end = np.where(differs, depth, np.repeat(length[a:b], length[a:b]))
        common[a:b] = np.minimum.reduceat(end, offset[a:b] - offset[a])
    return common


def cut(trie: Trie, cost: CostModel) -> np.ndarray:
    """First sequence of each subtrie, int64.  Neighbours that share too little are cut apart, and
    so are long subtries where that costs less."""
    num_nodes = trie.length - 1
    if not len(num_nodes):
        return np.zeros(0, np.int64)
    if cost.sharing in ("none", "packed"):
        return np.arange(len(num_nodes))
    if cost.sharing == "path":
        return _cut_into_paths(num_nodes, trie, cost.max_slots)
    begins = trie.shared < np.maximum(num_nodes * WORTH_SHARING, 1)
    begins[0] = True
    first = np.flatnonzero(begins)
    added = num_nodes - trie.shared  # nodes that each sequence adds to its subtrie
    added[first] = num_nodes[first]
    total = np.add.reduceat(np.maximum(added, trie.length - trie.span_start), first)
    cuts = [first]
    stops = np.append(first[1:], len(num_nodes))
    for subtrie in np.flatnonzero(total > CUT_ABOVE):
        start = int(first[subtrie])
        stop = int(stops[subtrie])
        if stop - start > 1:
            cuts.append(
                start
                + _best_cuts(num_nodes[start:stop], trie.shared[start:stop], trie, start, cost)
            )
    return np.unique(np.concatenate(cuts))


def _cut_into_paths(num_nodes: np.ndarray, trie: Trie, max_slots: int | None) -> np.ndarray:
    """Cut so that the nodes of each subtrie are one path: each sequence is a prefix of the path, or
    continues it.

    Sequences are sorted, so the prefix that one has in common with the path is the least `shared`
    since the path's last sequence.  A row has at most as many edges as slots: under `max_slots` one
    context with many continuations takes several rows.
    """
    first = []
    depth = -1
    common = 0
    edges = 0
    added = edges_added(trie).tolist()
    alone = (trie.length - trie.span_start).tolist()
    for u, (size, shared) in enumerate(zip(num_nodes.tolist(), trie.shared.tolist(), strict=True)):
        common = min(common, shared)
        edges += added[u]
        if u == 0 or min(size, depth) > common or (max_slots is not None and edges > max_slots):
            first.append(u)
            depth = common = size
            edges = alone[u]
        elif size > depth:
            depth = common = size
    return np.asarray(first, np.int64)


def _best_cuts(
    num_nodes: np.ndarray, shared: np.ndarray, trie: Trie, start: int, cost: CostModel
) -> np.ndarray:
    """The cuts of one long subtrie whose rows cost least, over row lengths from one sequence up to
    the whole subtrie."""
    span = (trie.length - trie.span_start)[start : start + len(num_nodes)].tolist()
    longest_sequence = max(int(num_nodes.max()), max(span))
    whole = int(num_nodes[0] + (num_nodes - shared)[1:].sum())
    capacity = float(longest_sequence)
    best = np.zeros(0, np.int64)
    best_cost = np.inf
    sequences = num_nodes.tolist(), shared.tolist(), span
    while True:
        limit = min(int(capacity), max(cost.longest, longest_sequence))
        cuts, sizes = _fill(*sequences, limit)
        starts = [0, *cuts]
        before = shared.copy()
        before[starts] = 0
        seen = np.add.reduceat((num_nodes - before) * (num_nodes + before) / 2, starts)
        total = float(cost.row(np.asarray(sizes), seen / sizes).sum())
        if total < best_cost:
            best = np.asarray(cuts, np.int64)
            best_cost = total
        if limit >= whole or limit < int(capacity):
            return best
        capacity *= 1.5


def _fill(
    num_nodes: list[int], shared: list[int], span: list[int], limit: int
) -> tuple[list[int], list[int]]:
    """Fill subtries of at most `limit` nodes and edges in order: (cuts, size of each subtrie)."""
    cuts = []
    sizes = []
    size = num_nodes[0]
    edges = span[0]
    for i in range(1, len(num_nodes)):
        added = num_nodes[i] - shared[i]
        if size + added > limit or edges + span[i] > limit:
            cuts.append(i)
            sizes.append(size)
            size = num_nodes[i]
            edges = span[i]
        else:
            size = size + added
            edges = edges + span[i]
    return cuts, [*sizes, size]


def share_within(trie: Trie, subtrie_first: np.ndarray) -> Trie:
    """Drop sharing across cuts, and link every sequence to the nearest earlier and later ones that
    share less."""
    shared = trie.shared.copy()
    shared[subtrie_first] = 0
    values = shared.tolist()
    previous_lower = [-1] * len(values)
    next_lower = [len(values)] * len(values)
    stack: list[int] = []
    for u, value in enumerate(values):
        while stack and values[stack[-1]] > value:
            next_lower[stack.pop()] = u
        if stack and values[stack[-1]] == value:
            previous_lower[u] = previous_lower[stack[-1]]
        elif stack:
            previous_lower[u] = stack[-1]
        stack.append(u)
    common = trie.common.copy()
    common[subtrie_first] = 0
    links = {
        "previous_lower": np.asarray(previous_lower, np.int64),
        "next_lower": np.asarray(next_lower, np.int64),
    }
    return replace(trie, common=common, shared=shared, **links)


def subtrie_sizes(trie: Trie, subtrie_first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of each subtrie and an upper bound of its edges, int64."""
    if not len(subtrie_first):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    nodes = np.maximum(trie.length - 1 - trie.shared, 0)
    return np.add.reduceat(nodes, subtrie_first), np.add.reduceat(edges_added(trie), subtrie_first)


def edges_added(trie: Trie) -> np.ndarray:
    """Int64 [U], an upper bound of the edges that each sequence adds: those of the tokens that it
    does not share, and those of shared tokens that its neighbour does not score."""
    span_before = np.concatenate([[0], trie.span_start[:-1]])
    unshared = trie.length - np.maximum(trie.span_start, trie.common)
    return unshared + np.maximum(np.minimum(trie.common, span_before) - trie.span_start, 0)
