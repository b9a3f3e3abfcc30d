"""Requests -> Plan: every unique token in a row once, as a forest of token tries.  NumPy only, no JAX.

Arrives: Requests and the cost of a token, of a visible pair and of a compiled program.  Leaves: a `Plan`, rows of a few
lengths whose places say what to compute, and edges that say what to score.  It deliberately does not know models or
devices, nor how many rows make a batch.

How: requests are sorted, so that equal beginnings are neighbours; `shared` tokens of each one stand in its neighbour
already.  A run of neighbours that shares enough is a `piece`, one trie in depth-first order; pieces are packed into rows.

    requests   B q1 q2 a1 a2    B q1 q2 b1 b2        (spans a1 a2 and b1 b2)
    places     B  q1  q2  a1  b1                     the last token of a request is a target only
    position   0   1   2   3   3                     depth in the trie
    until      5   5   5   4   5                     row index past the subtree: key k is seen by k <= q < until[k]
    edges      2 -> a1   3 -> a2   2 -> b1   4 -> b2
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

import numpy as np

from miron_jax.token_requests import Requests, blocks, gather

WORTH_SHARING = 1 / 8  # neighbours share a piece when that saves this share of the second one's tokens
CUT_ABOVE = 512  # smaller pieces are never cut: a repeated prefix costs more than a shorter row saves


# What a row may hold.  path: one path from its first token, for models that know nothing else; none: one request.
# What a row holds.  forest: several trees; trees: one; packed: several requests, nothing shared; path: one beginning of
# another; none: one request.
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
    until: np.ndarray  # int32 [P], row index just past the subtree
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
    stretch: np.ndarray  # int32 [P], class of the requests at each place (`CostModel.apart`); empty where all are alike

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


def make_plan(requests: Requests, cost: CostModel, lengths: tuple[int, ...] = ()) -> Plan:
    """Lay the requests out.  `lengths` are row lengths compiled already: free to use, and they count to max_lengths."""
    trie = _sort(requests, cost)
    piece_first = _cut(trie, cost)
    trie = _share_within(trie, piece_first)
    places, edges = _piece_sizes(trie, piece_first)
    size = np.maximum(places, edges)
    chosen = choose_lengths(size, cost, lengths)
    opens = np.asarray(chosen)[_cost_each(size, np.asarray(chosen), cost).argmin(axis=1)] if len(size) else size
    if cost.packs:
        piece_row, piece_start, row_length = _pack(size, places, opens)
    else:
        piece_row, piece_start, row_length = np.arange(len(size)), np.zeros(len(size), np.int64), opens.astype(np.int32)
    return _write(requests, trie, piece_first, places, piece_row, piece_start, row_length)


@dataclass(frozen=True, slots=True)
class _Trie:
    """Distinct token sequences in sorted order; sequence u shares its first `shared[u]` places with its neighbour u - 1."""

    tokens: np.ndarray  # int32, sequences end to end in sorted order
    offset: np.ndarray  # int64 [U + 1]
    span_start: np.ndarray  # int32 [U], lowest span start of its requests
    common: np.ndarray  # int32 [U], tokens in common with u - 1
    shared: np.ndarray  # int32 [U], places in common with u - 1: the neighbour's last token has none
    request_sequence: np.ndarray  # int64 [R], -1 where the span is empty
    stretch: np.ndarray  # int32 [U], class of each; empty where all are alike
    previous_lower: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # last v < u with less shared
    next_lower: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # first v > u with less shared

    @property
    def length(self) -> np.ndarray:
        return np.diff(self.offset)


def _sort(requests: Requests, cost: CostModel) -> _Trie:
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
    own_class = classes[first] if cost.apart is not None else np.zeros(0, np.int32)
    return _Trie(tokens, offset, span_start, common, shared, request_sequence, own_class)


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


def _cut(trie: _Trie, cost: CostModel) -> np.ndarray:
    """First sequence of each piece, int64.  Neighbours that share too little part; a long piece is cut where it pays."""
    placed = trie.length - 1
    if not len(placed):
        return np.zeros(0, np.int64)
    apart = trie.shared < np.maximum(placed * WORTH_SHARING, 1)
    apart[0] = True
    if cost.sharing in ("none", "packed"):
        return np.arange(len(placed))
    if cost.sharing == "path":
        return _cut_into_paths(placed, trie.shared)
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


def _cut_into_paths(placed: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """A piece goes on as long as each sequence's places lie on one path: they end on it, or begin with all of it.

    Neighbours are sorted, so what a sequence has in common with the path is the least of what was shared since.
    """
    first, depth, common = [], -1, 0
    for u, (size, own) in enumerate(zip(placed.tolist(), shared.tolist(), strict=True)):
        common = min(common, own)
        if u == 0 or min(size, depth) > common:
            first.append(u)
            depth = common = size
        elif size > depth:
            depth = common = size
    return np.asarray(first, np.int64)


def _best_cuts(placed: np.ndarray, shared: np.ndarray, trie: _Trie, start: int, cost: CostModel) -> np.ndarray:
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


def _share_within(trie: _Trie, piece_first: np.ndarray) -> _Trie:
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
    return _Trie(
        trie.tokens,
        trie.offset,
        trie.span_start,
        common,
        shared,
        trie.request_sequence,
        trie.stretch,
        np.asarray(previous_lower, np.int64),
        np.asarray(next_lower, np.int64),
    )


def _piece_sizes(trie: _Trie, piece_first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of each piece and an upper bound of its edges, int64."""
    if not len(piece_first):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    places = np.maximum(trie.length - 1 - trie.shared, 0)
    # A sequence adds the edges of its own tokens, and in its neighbour's part those that the neighbour did not ask for.
    asked_before = np.concatenate([[0], trie.span_start[:-1]])
    own = trie.length - np.maximum(trie.span_start, trie.common)
    below = np.maximum(np.minimum(trie.common, asked_before) - trie.span_start, 0)
    return np.add.reduceat(places, piece_first), np.add.reduceat(own + below, piece_first)


def choose_lengths(size: np.ndarray, cost: CostModel, lengths: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Row lengths for pieces of these sizes: added one at a time while one saves more than its program costs.

    A piece of size s in rows of length T costs row(T) / (T // s).  Lengths in `lengths` exist and cost nothing new.
    """
    if not len(size):
        return lengths
    step = cost.length_multiple
    most = cost.most_places or 1 << 31
    assert size.max() <= most, "no request has more tokens than the model has places"
    # In eights: fine enough, and the tables stay small
    sizes, counts = np.unique(np.minimum(-(-size // 8) * 8, most), return_counts=True)
    needed = min(int(-(-sizes[-1] // step) * step), most)
    candidates = np.unique(np.minimum([needed, *lengths, *_ladder(step, max(needed, 8 * step))], most))
    each = _cost_each(sizes, candidates, cost) * counts[:, None]
    chosen = [*lengths] if lengths and max(lengths) >= needed else [*lengths, needed]
    best = each[:, np.isin(candidates, chosen)].min(axis=1)
    while len(chosen) < cost.max_lengths:
        gains = (best[:, None] - np.minimum(best[:, None], each)).sum(axis=0)
        winner = int(np.argmax(gains))
        if gains[winner] <= cost.flops_per_program:
            break
        chosen.append(int(candidates[winner]))
        best = np.minimum(best, each[:, winner])
    return tuple(sorted(chosen))


def _cost_each(size: np.ndarray, lengths: np.ndarray, cost: CostModel) -> np.ndarray:
    """[sizes, lengths] cost of one piece's share of a row filled with its like; infinite where it does not fit."""
    fits = lengths[None, :] // np.maximum(size, 1)[:, None]
    fits = fits if cost.packs else np.minimum(fits, 1)
    return np.where(fits > 0, cost.row(lengths)[None, :] / np.maximum(fits, 1), np.inf)


def _ladder(step: int, longest: int) -> list[int]:
    """Candidate lengths: every multiple of `step` up to 16 steps, then about 7 % apart."""
    ladder, length = [], 0
    while length < longest:
        length += step * max(1, length // (16 * step))
        ladder.append(length)
    return ladder


def _pack(size: np.ndarray, places: np.ndarray, opens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best fit, largest pieces first.  Returns each piece's row and first place in it, and each row's length.

    A piece opens a row of length opens[piece], unless an open row has room; the fullest such row wins.
    """
    piece_row, piece_start = np.empty(len(size), np.int64), np.empty(len(size), np.int64)
    room_of_row: dict[int, list[int]] = {}  # room -> rows with just that much, a heap each
    rooms: list[int] = []  # the keys of room_of_row that hold rows, sorted
    row_length: list[int] = []
    used: list[int] = []
    for piece in np.argsort(-size, kind="stable").tolist():
        need = int(size[piece])
        at = bisect_left(rooms, need)
        if at < len(rooms):
            room = rooms[at]
            row = heappop(room_of_row[room])
            if not room_of_row[room]:
                del room_of_row[room], rooms[at]
        else:
            row, room = len(row_length), int(opens[piece])
            row_length.append(room)
            used.append(0)
        piece_row[piece], piece_start[piece] = row, used[row]
        used[row] += int(places[piece])
        left = room - need
        if left:
            if left not in room_of_row:
                room_of_row[left] = []
                insort(rooms, left)
            heappush(room_of_row[left], row)
    return piece_row, piece_start, np.asarray(row_length, np.int32)


def _write(
    requests: Requests,
    trie: _Trie,
    piece_first: np.ndarray,
    piece_places: np.ndarray,
    piece_row: np.ndarray,
    piece_start: np.ndarray,
    row_length: np.ndarray,
) -> Plan:
    """Lay places, edges and each request's list of edges into the plan's flat arrays."""
    num_rows = len(row_length)
    used = np.bincount(piece_row, piece_places, num_rows).astype(np.int64)
    place_offset = np.concatenate([[0], np.cumsum(used)]).astype(np.int64)
    num_sequences = len(trie.span_start)
    piece_of = np.searchsorted(piece_first, np.arange(num_sequences), side="right") - 1
    added = np.maximum(trie.length - 1 - trie.shared, 0)  # places of each sequence
    before = np.cumsum(added) - added
    local = before - before[piece_first][piece_of] if num_sequences else before
    row_index = piece_start[piece_of] + local  # row index of each sequence's first own place
    row_of = piece_row[piece_of]
    base = place_offset[row_of] + row_index  # the same in the flat arrays

    # Places: sequence u puts its tokens shared[u] to length - 1 side by side.
    within = np.arange(added.sum()) - np.repeat(before, added)
    place = np.repeat(base, added) + within
    depth = within + np.repeat(trie.shared, added)
    token_ids, position, until = (np.empty(place_offset[-1], np.int32) for _ in range(3))
    token_ids[place] = trie.tokens[np.repeat(trie.offset[:-1], added) + depth]
    position[place] = depth
    piece_end = (piece_start + piece_places)[piece_of] if num_sequences else before
    stretch = np.zeros(len(position) if len(trie.stretch) else 0, np.int32)
    if len(trie.stretch):
        stretch[place] = np.repeat(trie.stretch, added)
    until[place] = _until(trie, added, row_index, piece_end, np.append(piece_of, -1))

    # Edges: every token of a span, from the place of the token before it; requests that ask twice share one.
    sequence = trie.request_sequence
    asked = np.flatnonzero(sequence >= 0)
    count = np.zeros(len(requests), np.int64)
    count[asked] = trie.length[sequence[asked]] - requests.span_start[asked]
    request_edge_offset = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    owner = np.repeat(sequence[asked], count[asked])
    target_depth = np.arange(request_edge_offset[-1]) - np.repeat(request_edge_offset[:-1] - requests.span_start, count)
    target = trie.tokens[trie.offset[owner] + target_depth]
    holder = _holder(trie, owner, target_depth - 1)
    source = base[holder] + target_depth - 1 - trie.shared[holder]
    key, request_edge = np.unique(source * (1 << 32) + target, return_inverse=True)
    edge_place, edge_target = key >> 32, (key & 0xFFFFFFFF).astype(np.int32)
    edge_offset = np.searchsorted(edge_place, place_offset).astype(np.int64)
    edge_row = np.repeat(np.arange(num_rows), np.diff(edge_offset))
    first_place = edge_place[request_edge[request_edge_offset[:-1][count > 0]]]
    ask_place, ask_set, request_ask = _asks(requests, np.flatnonzero(count), first_place)
    ask_offset = np.searchsorted(ask_place, place_offset).astype(np.int64)
    ask_row = np.repeat(np.arange(num_rows), np.diff(ask_offset))
    return Plan(
        row_length=row_length,
        place_offset=place_offset,
        token_ids=token_ids,
        position=position,
        until=until,
        edge_offset=edge_offset,
        edge_source=(edge_place - place_offset[edge_row]).astype(np.int32),
        edge_target=edge_target,
        request_edge_offset=request_edge_offset,
        request_edge=request_edge,
        ask_offset=ask_offset,
        ask_source=(ask_place - place_offset[ask_row]).astype(np.int32),
        ask_set=ask_set,
        request_ask=request_ask,
        stretch=stretch,
    )


def _asks(requests: Requests, scored: np.ndarray, first_place: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(place, set, each request's ask), asks in order of place and set; `scored` requests' spans follow `first_place`."""
    request_ask = np.full(len(requests), -1, np.int64)
    id_set = np.zeros(0, np.int32) if requests.id_set is None else requests.id_set[scored]
    asking = np.flatnonzero(id_set >= 0)
    key, ask = np.unique(first_place[asking] * (1 << 32) + id_set[asking], return_inverse=True)
    request_ask[scored[asking]] = ask
    return key >> 32, (key & 0xFFFFFFFF).astype(np.int32), request_ask


def _until(
    trie: _Trie, added: np.ndarray, row_index: np.ndarray, piece_end: np.ndarray, piece_of: np.ndarray
) -> np.ndarray:
    """Row index past each place's subtree, places in sequence order.

    The place of sequence u at depth d ends where the first later sequence w of its piece with shared[w] <= d begins.
    Going from w to the next one that shares less cuts u's depths into a few stretches with one `until` each.
    """
    u = np.flatnonzero(added)
    high, w = trie.length[u] - 1, u + 1
    stretches = []
    num_sequences = len(added)
    while len(u):
        inside = w < num_sequences
        inside[inside] = piece_of[w[inside]] == piece_of[u[inside]]
        w_inside = np.where(inside, w, 0)
        low = np.where(inside, np.clip(trie.shared[w_inside], trie.shared[u], high), trie.shared[u])
        stretches.append((u, low, high - low, np.where(inside, row_index[w_inside], piece_end[u])))
        more = inside & (low > trie.shared[u])
        u, high, w = u[more], low[more], trie.next_lower[w_inside[more]]
    if not stretches:
        return np.zeros(0, np.int32)
    u, low, length, value = (np.concatenate(column) for column in zip(*stretches, strict=True))
    order = np.lexsort((low, u))
    return np.repeat(value[order], length[order])


def _holder(trie: _Trie, owner: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """The sequence that put down the place at `depth` on the path of `owner`: the last one at or before it sharing less."""
    holder = owner.copy()
    lost = np.flatnonzero(trie.shared[holder] > depth)
    while len(lost):
        holder[lost] = trie.previous_lower[holder[lost]]
        lost = lost[trie.shared[holder[lost]] > depth[lost]]
    return holder
