"""The planner against a slow obvious twin: the nodes that each node sees, computed from `subtree_end` alone."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miron_jax.model.config import RopeClasses
from miron_jax.planning.packing import choose_lengths
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import CostModel
from tests.support.plan_check import COST, check, distinct_nodes, plain_tokens
from tests.support.requests import requests_of

pytestmark = pytest.mark.newest


@st.composite
def forests(draw: st.DrawFn) -> list[tuple[list[int], int]]:
    """Requests that share prefixes, repeat, and are prefixes of one another, over a tiny vocabulary."""
    stems = draw(st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=4))
    items = []
    for _ in range(draw(st.integers(1, 14))):
        stem = draw(st.sampled_from(stems))
        ids = [9, *stem[: draw(st.integers(0, len(stem)))], *draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))]
        items.append((ids, draw(st.integers(1, len(ids)))))
    return items


@settings(max_examples=60)
@given(
    forests(),
    st.sampled_from([COST, CostModel(1.0, 1e3, 1e9, 8, 1, 16), CostModel(1e6, 0.0, 0.0, 4, 20)]),
    st.sampled_from([0, 4, 512]),
    st.sampled_from([(), (16,), (24, 64)]),
)
def test_every_request_lies_along_one_path_with_all_its_edges(items, cost, cut_above, lengths):
    requests = requests_of(items)
    if cut_above:
        requests = replace(requests, id_set=np.asarray([(len(ids) + start) % 3 - 1 for ids, start in items], np.int32))
    with patch("miron_jax.planning.tries.CUT_ABOVE", cut_above):  # small: even these tries are cut
        plan = make_plan(requests, cost, lengths)
    check(plan, requests)
    assert distinct_nodes(requests) <= plan.unique_tokens <= plain_tokens(requests)


@settings(max_examples=60)
@given(forests(), st.sampled_from([(), (16,), (24, 64)]))
def test_rows_without_branches_are_one_path_each(items, lengths):
    requests = requests_of(items)
    plan = make_plan(requests, replace(COST, sharing="path"), lengths)
    check(plan, requests)
    used = np.diff(plan.node_offset)
    assert plan.position.tolist() == [i for n in used.tolist() for i in range(n)]
    assert plan.subtree_end.tolist() == [n for n in used.tolist() for _ in range(n)]
    # A path that is a prefix of another one takes no row, and none comes twice.
    paths = {tuple(ids[:-1]) for ids, start in items if start < len(ids)}
    longest = {path for path in paths if not any(other[: len(path)] == path and other != path for other in paths)}
    rows = [plan.token_ids[a:b] for a, b in zip(plan.node_offset[:-1], plan.node_offset[1:], strict=True)]
    assert len(rows) <= len(paths)
    assert longest <= {tuple(row.tolist()) for row in rows}


@settings(max_examples=60)
@given(forests(), st.integers(0, 6), st.integers(1, 60))
def test_no_row_has_more_edges_than_a_model_has_positions(items, spare, repeats):
    """One context with many continuations needs more edges than slots: it takes several rows."""
    many = [([*items[0][0], 10 + i], len(items[0][0])) for i in range(repeats)]
    requests = requests_of([*items, *many])
    most = max(len(ids) for ids, _ in requests) - 1 + spare
    plan = make_plan(requests, replace(COST, sharing="path", max_slots=most))
    check(plan, requests)  # no row with more edges than slots
    assert plan.row_length.max() <= most
    # One path is cut only where its edges do not fit, never where its nodes do not.
    rows = make_plan(requests, replace(COST, sharing="path")).num_rows
    assert plan.num_rows <= rows + np.ceil(plan.request_edge_offset[-1] / most)


@settings(max_examples=25)
@given(forests(), st.randoms())
def test_order_of_requests_changes_no_row(items, random):
    shuffled = list(range(len(items)))
    random.shuffle(shuffled)
    one, other = make_plan(requests_of(items), COST), make_plan(requests_of([items[i] for i in shuffled]), COST)
    assert one.unique_tokens == other.unique_tokens
    assert one.row_length.tolist() == other.row_length.tolist()


def test_the_picture_in_the_docstring():
    plan = make_plan(requests_of([([9, 1, 2, 3, 4], 3), ([9, 1, 2, 5, 6], 3)]), COST)
    assert plan.token_ids.tolist() == [9, 1, 2, 3, 5]
    assert plan.position.tolist() == [0, 1, 2, 3, 3]
    assert plan.subtree_end.tolist() == [5, 5, 5, 4, 5]
    assert (plan.edge_parent.tolist(), plan.edge_target.tolist()) == ([2, 2, 3, 4], [3, 5, 4, 6])
    assert plan.num_parents == 3
    assert plan.visible_pairs == 1 + 2 + 3 + 4 + 4


@pytest.mark.parametrize(
    ("items", "num_nodes"),
    [
        ([([9, 7, letter], 2) for letter in range(4)], 2),  # the letters are targets only
        ([([9, 1, 2, 3], 2), ([9, 1, 2], 1), ([9, 1, 2, 3], 3)], 3),
        ([([9, 1], 2), ([9, 1], 2)], 0),  # nothing is scored
        ([], 0),
    ],
)
def test_nodes_of_small_plans_by_hand(items, num_nodes):
    requests = requests_of(items)
    plan = make_plan(requests, COST)
    check(plan, requests)
    assert (plan.unique_tokens, plan.num_rows) == (num_nodes, min(1, num_nodes))


def test_a_long_shared_prefix_is_cut_where_rows_get_cheaper():
    # 40 questions of 100 tokens after 300 shared ones, attention expensive: no single row of 4,300 slots.
    rng = np.random.default_rng(0)
    stem = [9, *rng.integers(0, 50, 299).tolist()]
    requests = requests_of([([*stem, *rng.integers(0, 50, 100).tolist()], 395) for _ in range(40)])
    plan = make_plan(requests, CostModel(1e6, 1e4, 1e6))
    assert 1 < plan.num_rows < 40
    assert plan.unique_tokens < 0.6 * plain_tokens(requests)
    check(plan, requests)


def test_a_long_row_pays_for_the_keys_of_its_paths() -> None:
    """80 questions of 50 tokens after 700 shared ones.  Where long rows skip what nobody sees, one row of all costs less
    than several that compute the 700 again; the longest row bounds it."""
    rng = np.random.default_rng(0)
    stem = rng.integers(0, 50, 700).tolist()
    requests = requests_of([([*stem, *rng.integers(0, 50, 50).tolist()], 745) for _ in range(80)])
    skips = CostModel(1e6, 4e3, 1e6, longest=1 << 15)
    rows = {}
    for name, cost in {
        "skips": skips,
        "never": replace(skips, whole_up_to=1 << 20),
        "short": replace(skips, longest=2048),
    }.items():
        plan = make_plan(requests, cost)
        check(plan, requests)
        rows[name] = plan.num_rows
    assert rows["skips"] == 1
    assert rows["never"] > 3
    assert rows["short"] == 3
    # by hand: 1,000 slots pay for the half of the square, 2,000 for a path of 700 and a block of 256
    assert CostModel(1.0, 1.0, 0.0).row(1000, 700) == 1000 * (1 + 1032 / 2)
    assert CostModel(1.0, 1.0, 0.0).row(2000, 700) == 2000 * (1 + 956)


def test_lengths_in_use_come_free_and_count():
    sizes = np.asarray([500] * 1000)
    assert choose_lengths(sizes, COST) == (504,)
    assert choose_lengths(sizes, CostModel(1e6, 1e3, 1e15, 8), (640,)) == (640,)
    assert len(choose_lengths(np.arange(10, 5000), CostModel(1e6, 1e3, 0.0, 8, max_lengths=5), (640, 5000))) <= 5


@pytest.mark.parametrize(
    ("questions", "context", "choices", "answer"), [(100, 520, 4, 12), (800, 25, 2, 6), (800, 90, 1, 2)]
)
def test_padding_is_small_and_nothing_shared_is_computed_twice(questions, context, choices, answer):
    rng = np.random.default_rng(1)
    items = []
    for _ in range(questions):
        ids = [9, *rng.integers(0, 40000, int(context * rng.uniform(0.8, 1.2))).tolist()]
        items += [
            ([*ids, *rng.integers(0, 40000, rng.integers(1, answer + 1)).tolist()], len(ids)) for _ in range(choices)
        ]
    requests = requests_of(items)
    plan = make_plan(requests, CostModel(2e8, 2e5, 3e11))
    assert plan.padded_tokens <= 1.09 * plan.unique_tokens
    assert plan.unique_tokens <= 1.05 * distinct_nodes(requests)


def test_only_requests_of_one_rope_class_share_nodes():
    # Up to 4 tokens are of class 0; B 1 2 3 4 5 and B 1 2 3 4 6 are of another one, and share 5 nodes of their own.
    short, long = [([9, 1, 2, 3], 2), ([9, 1, 2, 4], 2)], [([9, 1, 2, 3, 4, 5], 2), ([9, 1, 2, 3, 4, 6], 2)]
    requests = requests_of([short[0], long[0], short[1], long[1]])
    plan = make_plan(requests, replace(COST, length_class=RopeClasses(4, by_length=False).class_of))
    check(plan, requests)
    assert plan.unique_tokens == 3 + 5
    assert sorted(set(plan.rope_class.tolist())) == [0, 5]
    assert make_plan(requests, COST).unique_tokens == 5
    assert [RopeClasses(8, by_length=False).class_of(n) for n in (1, 8, 9, 10, 90)] == [0, 0, 9, 9, 9]
    assert [RopeClasses(8, by_length=True).class_of(n) for n in (1, 8, 9, 10, 90)] == [0, 0, 9, 10, 90]
