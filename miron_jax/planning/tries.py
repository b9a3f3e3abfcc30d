"""Requests -> tries: sorted so that equal beginnings are neighbours, cut where a longer row would not pay.

Arrives: Requests, a CostModel.  Leaves: a `Trie` and where its pieces begin.  It deliberately does not know rows.
"""

from dataclasses import dataclass, field

import numpy as np

from miron_jax.planning.records import CostModel
from miron_jax.ragged import blocks, gather
from miron_jax.tokens.records import Requests

WORTH_SHARING = 1 / 8  # neighbours share a piece when that saves this share of the second one's tokens
CUT_ABOVE = 512  # smaller pieces are never cut: a repeated prefix costs more than a shorter row saves


@dataclass(frozen=True, slots=True)
class Trie:
    """Distinct token sequences in sorted order; sequence u shares its first `shared[u]` places with its neighbour u - 1."""

    tokens: np.ndarray  # int32, sequences end to end in sorted order
    offset: np.ndarray  # int64 [U + 1]
    span_start: np.ndarray  # int32 [U], lowest span start of its requests
    common: np.ndarray  # int32 [U], tokens in common with u - 1
    shared: np.ndarray  # int32 [U], places in common with u - 1: the neighbour's last token has none
    request_sequence: np.ndarray  # int64 [R], -1 where the span is empty
    rope_class: np.ndarray  # int32 [U], class of each; empty where all are alike
    previous_lower: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # last v < u with less shared
    next_lower: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # first v > u with less shared

    @property
    def length(self) -> np.ndarray:
        return np.diff(self.offset)


def sort_requests(requests: Requests, cost: CostModel) -> Trie:
    """Sort by token ids, drop exact duplicates and requests that score nothing, count common beginnings."""
    begin, end = requests.offsets[:-1], requests.offsets[1:]
    asked = np.flatnonzero(requests.span_start < end - begin)
    raw = requests.token_ids.astype(">u4").tobytes()  # big-endian bytes sort as the numbers do
    bounds = list(zip((begin[asked] * 4).tolist(), (end[asked] * 4).tolist(), strict=True))
    keys = [raw[a:b] for a, b in bounds]
    classes = np.zeros(len(keys), np.int32)
    if cost.apart is not None:
        lengths, of_length = np.unique((end - begin)[asked], return_inverse=True)
        classes = np.asarray([cost.apart(length) for length in lengths.tolist()], np.int32)[of_length]
        keys = [own.to_bytes(4, "big") + key for own, key in zip(classes.tolist(), keys, strict=True)]
    order = np.asarray(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    del keys
    by_token = asked[order]
    tokens, offset = gather(requests.token_ids, begin[by_token], (end - begin)[by_token])
    common, classes = _common_with_previous(tokens, offset), classes[order]
    common[1:][classes[1:] != classes[:-1]] = 0
    length = np.diff(offset)
    is_new = np.ones(len(length), bool)
    is_new[1:] = (common[1:] < length[1:]) | (length[1:] != length[:-1])
    sequence = np.cumsum(is_new) - 1
    request_sequence = np.full(len(requests), -1, np.int64)
    request_sequence[by_token] = sequence
    first = np.flatnonzero(is_new)
    span_start = np.minimum.reduceat(requests.span_start[by_token], first) if len(first) else np.zeros(0, np.int32)
    if len(first) < len(length):
        tokens, offset = gather(tokens, offset[first], length[first])
    common, length = common[first], length[first]
    shared = common.copy()
    shared[1:] = np.minimum(shared[1:], length[:-1] - 1)
    rope_class = classes[first] if cost.apart is not None else np.zeros(0, np.int32)
    return Trie(tokens, offset, span_start, common, shared, request_sequence, rope_class)


def _common_with_previous(tokens: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Length of the common beginning of sequences u and u - 1; 0 for the first.  Depth d of u - 1 lies length(u-1) back."""
    length = np.diff(offset)
    back = np.concatenate([[0], length])[:-1]
    common = np.empty(len(length), np.int32)
    for a, b in blocks(offset):
        place = np.arange(offset[a], offset[b])
        depth = place - np.repeat(offset[a:b], length[a:b])
        back_each = np.repeat(back[a:b], length[a:b])
        differs = (depth >= back_each) | (tokens[place] != tokens[np.maximum(place - back_each, 0)])
        end = np.where(differs, depth, np.repeat(length[a:b], length[a:b]))
        common[a:b] = np.minimum.reduceat(end, offset[a:b] - offset[a])
    return common


def cut(trie: Trie, cost: CostModel) -> np.ndarray:
    """First sequence of each piece, int64.  Neighbours that share too little part; a long piece is cut where it pays."""
    placed = trie.length - 1
    if not len(placed):
        return np.zeros(0, np.int64)
    apart = trie.shared < np.maximum(placed * WORTH_SHARING, 1)
    apart[0] = True
    if cost.sharing in ("none", "packed"):
        return np.arange(len(placed))
    if cost.sharing == "path":
        return _cut_into_paths(placed, trie, cost.most_places)
    first = np.flatnonzero(apart)
    grown = placed - trie.shared  # places each sequence adds to its piece
    grown[first] = placed[first]
    total = np.add.reduceat(np.maximum(grown, trie.length - trie.span_start), first)
    cuts = [first]
    stops = np.append(first[1:], len(placed))
    for piece in np.flatnonzero(total > CUT_ABOVE):
        start, stop = int(first[piece]), int(stops[piece])
        if stop - start > 1:
            cuts.append(start + _best_cuts(placed[start:stop], trie.shared[start:stop], trie, start, cost))
    return np.unique(np.concatenate(cuts))


def _cut_into_paths(placed: np.ndarray, trie: Trie, most: int | None) -> np.ndarray:
    """A piece goes on as long as each sequence's places lie on one path: they end on it, or begin with all of it.

    Neighbours are sorted, so what a sequence has in common with the path is the least of what was shared since.  A row has
    room for as many edges as slots: where it has `most` slots, one context with many continuations takes several rows.
    """
    first, depth, common, edges = [], -1, 0, 0
    added, alone = edges_added(trie).tolist(), (trie.length - trie.span_start).tolist()
    for u, (size, own) in enumerate(zip(placed.tolist(), trie.shared.tolist(), strict=True)):
        common = min(common, own)
        edges += added[u]
        if u == 0 or min(size, depth) > common or (most is not None and edges > most):
            first.append(u)
            depth = common = size
            edges = alone[u]
        elif size > depth:
            depth = common = size
    return np.asarray(first, np.int64)


def _best_cuts(placed: np.ndarray, shared: np.ndarray, trie: Trie, start: int, cost: CostModel) -> np.ndarray:
    """Where to cut one long piece so that its rows cost least: tries row lengths from one sequence up to all of it."""
    span = (trie.length - trie.span_start)[start : start + len(placed)].tolist()
    longest_sequence = max(int(placed.max()), max(span))
    whole = int(placed[0] + (placed - shared)[1:].sum())
    capacity, best, best_cost = float(longest_sequence), np.zeros(0, np.int64), np.inf
    placed_list, shared_list = placed.tolist(), shared.tolist()
    while True:
        limit = min(int(capacity), max(cost.longest, longest_sequence))
        cuts, sizes = _fill(placed_list, shared_list, span, limit)
        total = float(cost.row(np.asarray(sizes)).sum())
        if total < best_cost:
            best, best_cost = np.asarray(cuts, np.int64), total
        if limit >= whole or limit < int(capacity):
            return best
        capacity *= 1.5


def _fill(placed: list[int], shared: list[int], span: list[int], limit: int) -> tuple[list[int], list[int]]:
    """Fill pieces of at most `limit` places (and edges) in order; returns the cuts and the size of each piece."""
    cuts, sizes, size, edges = [], [], placed[0], span[0]
    for i in range(1, len(placed)):
        grow = placed[i] - shared[i]
        if size + grow > limit or edges + span[i] > limit:
            cuts.append(i)
            sizes.append(size)
            size, edges = placed[i], span[i]
        else:
            size, edges = size + grow, edges + span[i]
    return cuts, [*sizes, size]


def share_within(trie: Trie, piece_first: np.ndarray) -> Trie:
    """Nothing is shared across a cut; link every sequence to the nearest ones around it that share less."""
    shared = trie.shared.copy()
    shared[piece_first] = 0
    values = shared.tolist()
    previous_lower, next_lower = [-1] * len(values), [len(values)] * len(values)
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
    common[piece_first] = 0
    return Trie(
        trie.tokens,
        trie.offset,
        trie.span_start,
        common,
        shared,
        trie.request_sequence,
        trie.rope_class,
        np.asarray(previous_lower, np.int64),
        np.asarray(next_lower, np.int64),
    )


def piece_sizes(trie: Trie, piece_first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of each piece and an upper bound of its edges, int64."""
    if not len(piece_first):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    places = np.maximum(trie.length - 1 - trie.shared, 0)
    return np.add.reduceat(places, piece_first), np.add.reduceat(edges_added(trie), piece_first)


def edges_added(trie: Trie) -> np.ndarray:
    """Int64 [U], an upper bound: those of a sequence's own tokens, and in its neighbour's part those that the neighbour did
    not ask for."""
    asked_before = np.concatenate([[0], trie.span_start[:-1]])
    own = trie.length - np.maximum(trie.span_start, trie.common)
    return own + np.maximum(np.minimum(trie.common, asked_before) - trie.span_start, 0)
