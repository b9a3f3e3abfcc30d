"""A plan against the definition: the nodes that each node sees, computed from `subtree_end` alone."""

import numpy as np

from miron_jax.planning.records import CostModel, Plan
from miron_jax.tokens.records import Requests

COST = CostModel(flops_per_token=1e6, flops_per_pair=1e3, flops_per_program=1e4, length_multiple=8)


def visible_path(plan: Plan, row: int, node: int) -> list[int]:
    """Row indices of the nodes that a node sees, by the definition: k <= node < subtree_end[k]."""
    subtree_end = plan.subtree_end[plan.node_offset[row] : plan.node_offset[row + 1]]
    return [k for k in range(node + 1) if node < subtree_end[k]]


def plain_tokens(requests: Requests) -> int:
    """Nodes if every request with a scored span were a separate row."""
    return sum(len(ids) - 1 for ids, start in requests if start < len(ids))


def check(plan: Plan, requests: Requests) -> None:
    for r, (ids, start) in enumerate(requests):
        edges = plan.request_edge[plan.request_edge_offset[r] : plan.request_edge_offset[r + 1]]
        assert len(edges) == len(ids) - start
        row = int(plan.request_row[r])
        for depth, edge in zip(range(start, len(ids)), edges, strict=True):
            assert plan.edge_offset[row] <= edge < plan.edge_offset[row + 1], "an edge of another row"
            assert plan.edge_target[edge] == ids[depth]
            path = visible_path(plan, row, int(plan.edge_parent[edge]))
            seen = plan.token_ids[plan.node_offset[row] + np.asarray(path)]
            assert seen.tolist() == ids[:depth].tolist(), "the parent does not see exactly the tokens before its target"
            assert plan.position[plan.node_offset[row] + np.asarray(path)].tolist() == list(range(depth))
    for request, id_set in enumerate([] if requests.id_set is None else requests.id_set.tolist()):
        query = int(plan.request_query[request])
        edges = plan.request_edge[slice(*plan.request_edge_offset[request:][:2])]
        if id_set < 0 or not len(edges):
            assert query == -1
            continue
        row = plan.request_row[request]
        assert plan.query_offset[row] <= query < plan.query_offset[row + 1], "a query is in another row than its edges"
        assert (plan.query_node[query], plan.query_set[query]) == (plan.edge_parent[edges[0]], id_set)
    for row in range(plan.num_rows):
        used = plan.node_offset[row + 1] - plan.node_offset[row]
        edges = slice(plan.edge_offset[row], plan.edge_offset[row + 1])
        pairs = set(zip(plan.edge_parent[edges].tolist(), plan.edge_target[edges].tolist(), strict=True))
        assert len(pairs) == edges.stop - edges.start <= plan.row_length[row], "an edge twice, or more than fit"
        assert 0 < used <= plan.row_length[row]
        for node in range(used):
            assert plan.position[plan.node_offset[row] + node] == len(visible_path(plan, row, node)) - 1


def distinct_nodes(requests: Requests) -> int:
    """Nodes of one trie over all requests: distinct prefixes of requests with a scored span."""
    child: dict[tuple[int, int], int] = {}  # (node, token) -> node
    for ids, start in requests:
        node = 0
        for token in ids[:-1].tolist() if start < len(ids) else ():
            node = child.setdefault((node, token), len(child) + 1)
    return len(child)
