"""Requests -> Plan: tries cut and packed, then written out as rows.

Arrives: Requests and the cost of a token, of a visible pair and of a compiled program.  Leaves: a `Plan`, rows of a few
lengths whose places say what to compute, and edges that say what to score.  It deliberately does not know models or
devices, nor how many rows make a batch.

How: requests are sorted, so that equal beginnings are neighbours; `shared` tokens of each one stand in its neighbour
already.  A run of neighbours that shares enough is a `piece`, one trie in depth-first order; pieces are packed into rows.

    requests     B q1 q2 a1 a2    B q1 q2 b1 b2      (spans a1 a2 and b1 b2)
    places       B  q1  q2  a1  b1                   the last token of a request is a target only
    position     0   1   2   3   3                   depth in the trie
    subtree_end  5   5   5   4   5                   row index past the subtree: q sees k iff k <= q < subtree_end[k]
    edges        2 -> a1   3 -> a2   2 -> b1   4 -> b2
"""

import numpy as np

from miron_jax.planning.packing import cheapest_length, choose_lengths, pack
from miron_jax.planning.records import CostModel, Plan
from miron_jax.planning.tries import Trie, cut, piece_sizes, share_within, sort_requests
from miron_jax.ragged import offsets_of
from miron_jax.tokens.records import Requests


def make_plan(requests: Requests, cost: CostModel, lengths: tuple[int, ...] = ()) -> Plan:
    """Lay the requests out.  `lengths` are row lengths compiled already: free to use, and they count to max_lengths."""
    trie = sort_requests(requests, cost)
    piece_first = cut(trie, cost)
    trie = share_within(trie, piece_first)
    places, edges = piece_sizes(trie, piece_first)
    size = np.maximum(places, edges)
    chosen = choose_lengths(size, cost, lengths)
    opens = cheapest_length(size, chosen, cost)
    if cost.packs:
        piece_row, piece_start, row_length = pack(size, places, opens)
    else:
        piece_row, piece_start, row_length = np.arange(len(size)), np.zeros(len(size), np.int64), opens.astype(np.int32)
    return _write(requests, trie, piece_first, places, piece_row, piece_start, row_length)


def _write(
    requests: Requests,
    trie: Trie,
    piece_first: np.ndarray,
    piece_places: np.ndarray,
    piece_row: np.ndarray,
    piece_start: np.ndarray,
    row_length: np.ndarray,
) -> Plan:
    """Lay places, edges and each request's list of edges into the plan's flat arrays."""
    num_rows = len(row_length)
    used = np.bincount(piece_row, piece_places, num_rows).astype(np.int64)
    place_offset = offsets_of(used)
    num_sequences = len(trie.span_start)
    piece_of = np.searchsorted(piece_first, np.arange(num_sequences), side="right") - 1
    added = np.maximum(trie.length - 1 - trie.shared, 0)  # places of each sequence
    before = offsets_of(added)[:-1]
    local = before - before[piece_first][piece_of] if num_sequences else before
    row_index = piece_start[piece_of] + local  # row index of each sequence's first own place
    row_of = piece_row[piece_of]
    base = place_offset[row_of] + row_index  # the same in the flat arrays

    # Places: sequence u puts its tokens shared[u] to length - 1 side by side.
    within = np.arange(added.sum()) - np.repeat(before, added)
    place = np.repeat(base, added) + within
    depth = within + np.repeat(trie.shared, added)
    token_ids, position, subtree_end = (np.empty(place_offset[-1], np.int32) for _ in range(3))
    token_ids[place] = trie.tokens[np.repeat(trie.offset[:-1], added) + depth]
    position[place] = depth
    piece_end = (piece_start + piece_places)[piece_of] if num_sequences else before
    rope_class = np.zeros(len(position) if len(trie.rope_class) else 0, np.int32)
    if len(trie.rope_class):
        rope_class[place] = np.repeat(trie.rope_class, added)
    subtree_end[place] = _subtree_end(trie, added, row_index, piece_end, np.append(piece_of, -1))

    # Edges: every token of a span, from the place of the token before it; requests that ask twice share one.
    sequence = trie.request_sequence
    asked = np.flatnonzero(sequence >= 0)
    count = np.zeros(len(requests), np.int64)
    count[asked] = trie.length[sequence[asked]] - requests.span_start[asked]
    request_edge_offset = offsets_of(count)
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
        subtree_end=subtree_end,
        edge_offset=edge_offset,
        edge_source=(edge_place - place_offset[edge_row]).astype(np.int32),
        edge_target=edge_target,
        request_edge_offset=request_edge_offset,
        request_edge=request_edge,
        ask_offset=ask_offset,
        ask_source=(ask_place - place_offset[ask_row]).astype(np.int32),
        ask_set=ask_set,
        request_ask=request_ask,
        rope_class=rope_class,
    )


def _asks(requests: Requests, scored: np.ndarray, first_place: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(place, set, each request's ask), asks in order of place and set; `scored` requests' spans follow `first_place`."""
    request_ask = np.full(len(requests), -1, np.int64)
    id_set = np.zeros(0, np.int32) if requests.id_set is None else requests.id_set[scored]
    asking = np.flatnonzero(id_set >= 0)
    key, ask = np.unique(first_place[asking] * (1 << 32) + id_set[asking], return_inverse=True)
    request_ask[scored[asking]] = ask
    return key >> 32, (key & 0xFFFFFFFF).astype(np.int32), request_ask


def _subtree_end(
    trie: Trie, added: np.ndarray, row_index: np.ndarray, piece_end: np.ndarray, piece_of: np.ndarray
) -> np.ndarray:
    """Row index past each place's subtree, places in sequence order.

    The place of sequence u at depth d ends where the first later sequence w of its piece with shared[w] <= d begins.
    Going from w to the next one that shares less cuts u's depths into a few stretches with one `subtree_end` each.
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


def _holder(trie: Trie, owner: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """The sequence that put down the place at `depth` on the path of `owner`: the last one at or before it sharing less."""
    holder = owner.copy()
    lost = np.flatnonzero(trie.shared[holder] > depth)
    while len(lost):
        holder[lost] = trie.previous_lower[holder[lost]]
        lost = lost[trie.shared[holder[lost]] > depth[lost]]
    return holder
