"""The order in which a recurrent model reads rows: every node once, from the state of its path, with few states."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import CostModel, Plan
from miron_jax.planning.walks import EMPTY, GroupSize, Walk, deepest_path, schedule, segments_of
from tests.support.requests import requests_of

SIZES = (GroupSize(1, 4), GroupSize(4, 3), GroupSize(16, 2))
TOKENS = st.lists(st.integers(1, 3), min_size=2, max_size=60)


def plan_of(texts: list[list[int]]) -> Plan:
    cost = CostModel(flops_per_token=1e6, flops_per_pair=0.0, flops_per_program=1e9)
    return make_plan(requests_of([(text, 1) for text in texts]), cost)


def rows_of(plan: Plan) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Each row's first slot, and its nodes' position and subtree end."""
    bounds = zip(plan.node_offset[:-1].tolist(), plan.node_offset[1:].tolist(), strict=True)
    return [(1000 * r, plan.position[a:b], plan.subtree_end[a:b]) for r, (a, b) in enumerate(bounds)]


def texts_read(walk: Walk, token_of_slot: dict[int, int], num_states: int) -> tuple[dict[int, tuple[int, ...]], dict]:
    """Run the walk with texts for states: the text up to each slot, and the text of each state at the end."""
    state: dict[int, tuple[int, ...]] = {EMPTY: ()}
    at_slot: dict[int, tuple[int, ...]] = {}
    for g, size in enumerate(walk.group_size.tolist()):
        chunks = range(walk.group_first[g], walk.group_first[g + 1])
        assert 0 < len(chunks) <= SIZES[size].lanes
        before = dict(state)  # lanes of a group read their states before any is written
        written = [int(walk.chunk_to[q]) for q in chunks if walk.chunk_to[q] >= 0]
        assert len(set(written)) == len(written)
        assert EMPTY not in written
        for q in chunks:
            slot, length, to = int(walk.chunk_slot[q]), SIZES[size].tokens, int(walk.chunk_to[q])
            text = before[int(walk.chunk_from[q])]
            for i in range(length):
                assert slot + i not in at_slot, "read twice"
                text = (*text, token_of_slot[slot + i])
                at_slot[slot + i] = text
            if to >= 0:
                state[to] = text
    assert max((s for s in state if s < num_states), default=0) < num_states
    return at_slot, state


@settings(max_examples=60)
@given(st.lists(TOKENS, min_size=1, max_size=25), st.integers(0, 6), st.booleans())
def test_each_node_is_read_once_after_its_own_path(texts: list[list[int]], more_states: int, keeps: bool) -> None:
    plan = plan_of(texts)
    rows = rows_of(plan)
    rng = np.random.default_rng(len(texts))
    kept = [rng.permutation(len(position))[: rng.integers(1, 6)] for _, position, _ in rows] if keeps else []
    segments = segments_of(rows, kept)
    assert keeps or segments.depth == deepest_path(plan)
    num_states = segments.depth + 1 + more_states
    walk = schedule(segments, SIZES, num_states)
    token_of_slot, path_of_slot = {}, {}
    for r, (slot, position, _) in enumerate(rows):
        path: list[int] = []
        for node, depth in enumerate(position.tolist()):
            token = int(plan.token_ids[plan.node_offset[r] + node])
            path = [*path[:depth], token]
            token_of_slot[slot + node], path_of_slot[slot + node] = token, tuple(path)
    at_slot, state = texts_read(walk, token_of_slot, num_states)
    assert at_slot == path_of_slot
    kept_slots = [rows[r][0] + int(node) for r, nodes in enumerate(kept) for node in nodes]
    for i, slot in enumerate(kept_slots):
        assert state[num_states + i] == path_of_slot[slot]


def test_groups_are_full_where_rows_are_many() -> None:
    rng = np.random.default_rng(0)
    stems = [rng.integers(1, 300, 64).tolist() for _ in range(8)]
    plan = plan_of([[*stem, *rng.integers(1, 300, 9).tolist()] for stem in stems for _ in range(4)])
    segments = segments_of(rows_of(plan))
    walk = schedule(segments, SIZES, segments.depth + 20)
    lanes = np.diff(walk.group_first)
    computed = sum(SIZES[size].tokens * SIZES[size].lanes for size in walk.group_size.tolist())
    assert lanes.mean() > 1.9
    assert computed <= 2 * len(plan.position)
