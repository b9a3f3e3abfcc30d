"""Requests -> Plan: tries are cut and packed, then written out as rows.

Arrives: Requests and the cost of a token, of a visible pair and of a compiled program.  Leaves: a
`Plan`: rows of a few lengths whose nodes say what to compute, and edges that say what to score.  It
deliberately does not know models or devices, nor how many rows make a batch.

Requests are sorted, so that requests with a shared prefix are neighbours; the first `shared` nodes
of each one exist in its neighbour already.  A run of neighbours that share enough is a subtrie in
depth-first order; subtries are packed into rows.

    requests     B q1 q2 a1 a2    B q1 q2 b1 b2      (spans a1 a2 and b1 b2)
    nodes        B  q1  q2  a1  b1                   the last token of a request is a target only
    position     0   1   2   3   3                   depth in the trie
    subtree_end  5   5   5   4   5                   index past the subtree
    edges        2 -> a1   3 -> a2   2 -> b1   4 -> b2

Query q sees key k exactly when k <= q < subtree_end[k].
"""

from typing import NamedTuple

import numpy as np

from miron_jax.planning.packing import cheapest_length, choose_lengths, pack
from miron_jax.planning.records import CostModel, Plan
from miron_jax.planning.tries import Trie, cut, share_within, sort_requests, subtrie_sizes
from miron_jax.tokens.ragged import offsets_of
from miron_jax.tokens.records import Requests


class _Packing(NamedTuple):
    """Subtries in rows."""

    first: np.ndarray  # int64, first sequence of each subtrie
    num_nodes: np.ndarray  # int64, of each subtrie
    row: np.ndarray  # int64, of each subtrie
    slot: np.ndarray  # int64, first slot of each subtrie in its row
    row_length: np.ndarray  # int32, of each row


def make_plan(requests: Requests, cost: CostModel, lengths: tuple[int, ...] = ()) -> Plan:
    """Plan the requests.  `lengths` are row lengths compiled already: free to use, and counted in
    max_lengths."""
    trie = sort_requests(requests, cost)
    first = cut(trie, cost)
    trie = share_within(trie, first)
    num_nodes, num_edges = subtrie_sizes(trie, first)
    size = np.maximum(num_nodes, num_edges)
    opens = cheapest_length(size, choose_lengths(size, cost, lengths), cost)
    if cost.packs:
        rows = pack(size, num_nodes, opens)
    else:
        rows = np.arange(len(size)), np.zeros(len(size), np.int64), opens.astype(np.int32)
    return _write(requests, trie, _Packing(first, num_nodes, *rows))


def _write(requests: Requests, trie: Trie, packing: _Packing) -> Plan:
    """Write nodes, edges and id-set queries into the plan's flat arrays."""
    num_sequences = len(trie.span_start)
    # of each row
    num_nodes = np.bincount(packing.row, packing.num_nodes, len(packing.row_length)).astype(
        np.int64
    )
    node_offset = offsets_of(num_nodes)
    # of each sequence
    subtrie = np.searchsorted(packing.first, np.arange(num_sequences), side="right") - 1
    added = np.maximum(trie.length - 1 - trie.shared, 0)  # nodes of each sequence
    before = offsets_of(added)[:-1]
    local = before - before[packing.first][subtrie] if num_sequences else before
    row_index = packing.slot[subtrie] + local  # of each sequence's first node
    base = node_offset[packing.row[subtrie]] + row_index  # the same node in the flat arrays

    # Sequence u puts its tokens shared[u] to length - 1 side by side.
    within = np.arange(added.sum()) - np.repeat(before, added)
    node = np.repeat(base, added) + within
    depth = within + np.repeat(trie.shared, added)
    token_ids, position, subtree_end = (np.empty(node_offset[-1], np.int32) for _ in range(3))
    token_ids[node] = trie.tokens[np.repeat(trie.offset[:-1], added) + depth]
    position[node] = depth
    subtrie_end = (packing.slot + packing.num_nodes)[subtrie] if num_sequences else before
    subtree_end[node] = _subtree_end(trie, added, row_index, subtrie_end, np.append(subtrie, -1))
    rope_class = np.zeros(len(position) if len(trie.rope_class) else 0, np.int32)
    if len(trie.rope_class):
        rope_class[node] = np.repeat(trie.rope_class, added)

    parent, edge_target, request_edge_offset, request_edge = _edges(requests, trie, base)
    scored = np.flatnonzero(np.diff(request_edge_offset))
    first_parent = parent[request_edge[request_edge_offset[scored]]]
    query_node, query_set, request_query = _queries(requests, scored, first_parent)
    edge_offset, edge_parent = _by_row(parent, node_offset)
    query_offset, query_node = _by_row(query_node, node_offset)
    return Plan(
        row_length=packing.row_length,
        node_offset=node_offset,
        token_ids=token_ids,
        position=position,
        subtree_end=subtree_end,
        edge_offset=edge_offset,
        edge_parent=edge_parent,
        edge_target=edge_target,
        request_edge_offset=request_edge_offset,
        request_edge=request_edge,
        query_offset=query_offset,
        query_node=query_node,
        query_set=query_set,
        request_query=request_query,
        rope_class=rope_class,
    )


def _edges(
    requests: Requests, trie: Trie, base: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(parent, target, request_edge_offset, request_edge): an edge for every scored token, from the
    node of the token before it; requests share equal edges.  `base`: each sequence's first node in
    the flat arrays, which `parent` indexes too."""
    sequence = trie.request_sequence
    scored = np.flatnonzero(sequence >= 0)
    count = np.zeros(len(requests), np.int64)
    count[scored] = trie.length[sequence[scored]] - requests.span_start[scored]
    request_edge_offset = offsets_of(count)
    owner = np.repeat(sequence[scored], count[scored])
    target_depth = np.arange(request_edge_offset[-1]) - np.repeat(
        request_edge_offset[:-1] - requests.span_start, count
    )
    target = trie.tokens[trie.offset[owner] + target_depth]
    holder = _holder(trie, owner, target_depth - 1)
    parent = base[holder] + target_depth - 1 - trie.shared[holder]
    key, request_edge = np.unique(parent * (1 << 32) + target, return_inverse=True)
    return key >> 32, (key & 0xFFFFFFFF).astype(np.int32), request_edge_offset, request_edge


def _queries(
    requests: Requests, scored: np.ndarray, first_parent: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(node, set, each request's query), sorted by node and set; spans of the `scored` requests
    follow `first_parent`."""
    request_query = np.full(len(requests), -1, np.int64)
    id_set = np.zeros(0, np.int32) if requests.id_set is None else requests.id_set[scored]
    has_query = np.flatnonzero(id_set >= 0)
    key, query = np.unique(
        first_parent[has_query] * (1 << 32) + id_set[has_query], return_inverse=True
    )
    request_query[scored[has_query]] = query
    return key >> 32, (key & 0xFFFFFFFF).astype(np.int32), request_query


def _by_row(node: np.ndarray, node_offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted nodes of the flat arrays -> (how many come before each row, int64 [rows + 1]; their
    row indices, int32)."""
    offset = np.searchsorted(node, node_offset).astype(np.int64)
    return offset, (node - np.repeat(node_offset[:-1], np.diff(offset))).astype(np.int32)


def _subtree_end(
    trie: Trie,
    added: np.ndarray,
    row_index: np.ndarray,
    subtrie_end: np.ndarray,
    subtrie: np.ndarray,
) -> np.ndarray:
    """Row index past each node's subtree, nodes in sequence order.

    The subtree of sequence u's node at depth d ends where the first later sequence w of its subtrie
    with shared[w] <= d begins.  The walk from w to the next sequence that shares less cuts u's
    depths into a few runs of one value each.
    """
    u = np.flatnonzero(added)
    high = trie.length[u] - 1
    w = u + 1
    runs = []
    num_sequences = len(added)
    while len(u):
        inside = w < num_sequences
        inside[inside] = subtrie[w[inside]] == subtrie[u[inside]]
        w_inside = np.where(inside, w, 0)
        low = np.where(inside, np.clip(trie.shared[w_inside], trie.shared[u], high), trie.shared[u])
        runs.append((u, low, high - low, np.where(inside, row_index[w_inside], subtrie_end[u])))
        more = inside & (low > trie.shared[u])
        u = u[more]
        high = low[more]
        w = trie.next_lower[w_inside[more]]
    if not runs:
        return np.zeros(0, np.int32)
    u, low, length, subtree_end = map(np.concatenate, zip(*runs, strict=True))
    order = np.lexsort((low, u))
    return np.repeat(subtree_end[order], length[order])


def _holder(trie: Trie, owner: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """The sequence that added the node at `depth` on the path of `owner`: the last one up to it
    that shares no more."""
    holder = owner.copy()
    pending = np.flatnonzero(trie.shared[holder] > depth)
    while len(pending):
        holder[pending] = trie.previous_lower[holder[pending]]
        pending = pending[trie.shared[holder[pending]] > depth[pending]]
    return holder
