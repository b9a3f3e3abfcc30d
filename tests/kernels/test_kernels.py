"""Each operation against its definition in float64, on the cases that benchmarks use too."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miron_jax.engine.batches import chunk_of
from miron_jax.kernels.forest_attention import cases as attention_cases
from miron_jax.kernels.forest_attention import choose as attention_choice
from miron_jax.kernels.forest_attention import reference as attention_reference
from miron_jax.kernels.forest_attention import tpu as attention_tpu
from miron_jax.kernels.forest_attention import xla as attention_xla
from miron_jax.kernels.forest_attention.blocks import MASKED, SKIP, WHOLE, block_kinds
from miron_jax.kernels.forest_attention.choose import Choice, Heads
from miron_jax.kernels.reductions import row_max, row_sum
from miron_jax.kernels.target_logprob import cases as head_cases
from miron_jax.kernels.target_logprob import reference as head_reference
from miron_jax.kernels.target_logprob import xla as head_xla
from miron_jax.kernels.target_logprob.layout import lay_out
from tests.support.tolerances import KERNEL, RANKS_APART, ROUNDING

pytestmark = pytest.mark.newest


def random_forest(rng: np.random.Generator, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """subtree_end, position [B, T]: tries grown by going on from a random open ancestor, then padding."""
    subtree_end, position = np.empty((rows, length), np.int32), np.zeros((rows, length), np.int32)
    for b in range(rows):
        used = int(rng.integers(length // 2, length + 1))
        path: list[int] = []
        for place in range(length):
            keep = 0 if place >= used else len(path) if rng.random() < 0.8 else int(rng.integers(0, len(path) + 1))
            for closed in path[keep:]:
                subtree_end[b, closed] = place
            path = [*path[:keep], place]
            position[b, place] = keep
        for left in path:
            subtree_end[b, left] = length
    return subtree_end, position


@pytest.mark.parametrize("size", [1, 3, 16, 31, 48, 80, 96, 320, 576, 1000, 37 * 16, 49152])
def test_reductions_over_the_last_axis(size):
    x = np.random.default_rng(size).normal(size=(2, 3, size)).astype(np.float32)
    np.testing.assert_allclose(jax.jit(row_sum)(x), x.astype(np.float64).sum(axis=-1), atol=ROUNDING * size**0.5)
    np.testing.assert_array_equal(jax.jit(row_max)(x), x.max(axis=-1))


def attention_of(case: attention_cases.Case) -> tuple[list[jax.Array], dict[str, Any], np.ndarray]:
    """q, k, v, subtree_end, position in single precision; the rules; what the definition gives in float64."""
    rng = np.random.default_rng(7)
    q = rng.normal(size=(case.rows, case.length, case.heads, case.head_dim))
    k, v = rng.normal(size=(2, case.rows, case.length, case.kv_heads, case.head_dim))
    subtree_end, position = random_forest(rng, case.rows, case.length)
    sinks = rng.normal(size=case.heads).astype(np.float32) if case.sinks else None
    sinks_N = None if sinks is None else jnp.asarray(sinks)
    rules: dict[str, Any] = {
        "scale": case.head_dim**-0.5, "window": case.window, "softcap": case.softcap, "sinks_N": sinks_N,
    }  # fmt: skip
    with jax.enable_x64(True):
        double = (jnp.asarray(q), jnp.asarray(k), jnp.asarray(v), jnp.asarray(subtree_end), jnp.asarray(position))
        expected = np.asarray(attention_reference.forest_attention(*double, **rules))
    single = [jnp.asarray(x, jnp.float32) for x in (q, k, v)]
    return [*single, jnp.asarray(subtree_end), jnp.asarray(position)], rules, expected


@pytest.mark.parametrize("name", attention_cases.CASES)
@pytest.mark.parametrize("block", [None, 16])
@pytest.mark.parametrize("rows_at_once", [False, True])  # True: what other devices than a CPU run
def test_forest_attention_equals_its_definition(name, block, rows_at_once):
    arrays, rules, expected = attention_of(attention_cases.CASES[name])
    if rows_at_once:
        q, k, v, subtree_end, position = arrays
        found = attention_xla._attend(q, k, v, subtree_end, position, None, **rules, block=block)
    else:
        found = attention_xla.forest_attention(*arrays, **rules, block=block)
    np.testing.assert_allclose(np.asarray(found), expected, atol=KERNEL)


@pytest.mark.parametrize("name", attention_cases.CASES)
def test_forest_attention_for_tpu_equals_its_definition(name):
    arrays, rules, expected = attention_of(attention_cases.CASES[name])
    found = attention_tpu.forest_attention(*arrays, **rules, block=128, interpret=True)
    np.testing.assert_allclose(np.asarray(found), expected, atol=KERNEL)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
def test_forest_attention_lowers_for_tpu(dtype, head_dim):
    case = attention_cases.Case(2, 700, 4, 2, head_dim, window=100, softcap=30.0)
    shapes = [(case.heads, dtype), (case.kv_heads, dtype), (case.kv_heads, dtype)]
    rows = [jax.ShapeDtypeStruct((case.rows, case.length, heads, head_dim), dtype) for heads, dtype in shapes]
    seen = [jax.ShapeDtypeStruct((case.rows, case.length), jnp.int32)] * 2

    def attend(window: jax.Array, sinks_N: jax.Array, *arrays: jax.Array) -> jax.Array:
        return attention_tpu.forest_attention(*arrays, scale=0.1, window=window, softcap=case.softcap, sinks_N=sinks_N)

    sinks_N = jax.ShapeDtypeStruct((case.heads,), jnp.float32)
    traced = jax.jit(attend).trace(jax.ShapeDtypeStruct((), jnp.int32), sinks_N, *rows, *seen)
    assert "tpu_custom_call" in traced.lower(lowering_platforms=("tpu",)).as_text()


@given(seed=st.integers(0, 10_000), window=st.sampled_from([None, 1, 5, 40]))
@settings(max_examples=60, deadline=None)
def test_block_kinds_follow_the_dense_mask(seed, window):
    subtree_end, position = random_forest(np.random.default_rng(seed), 2, 96)
    kinds = np.asarray(block_kinds(jnp.asarray(subtree_end), jnp.asarray(position), window, 16, 8))
    visible = np.asarray(attention_reference.visible_pairs(jnp.asarray(subtree_end), jnp.asarray(position), window))
    blocks = visible.reshape(2, 6, 16, 12, 8)
    seen, whole = blocks.any(axis=(2, 4)), blocks.all(axis=(2, 4))
    assert not np.any(seen & (kinds == SKIP))
    assert np.all(whole | (kinds != WHOLE))
    if window is None:
        assert np.all((kinds == WHOLE) | ~whole)


def test_blocks_of_other_branches_are_skipped():
    # A prefix of two blocks, then branches of one block each: every branch sees the prefix whole, and of itself a triangle.
    subtree_end = np.asarray([[48] * 16 + [24] * 8 + [32] * 8 + [40] * 8 + [48] * 8], np.int32)
    position = np.asarray([[*range(16), *[*range(16, 24)] * 4]], np.int32)
    kinds = np.asarray(block_kinds(jnp.asarray(subtree_end), jnp.asarray(position), None, 8, 8))[0]
    expected = np.full((6, 6), SKIP)
    expected[2:, :2] = WHOLE
    expected[1, 0] = WHOLE
    np.fill_diagonal(expected, MASKED)
    np.testing.assert_array_equal(kinds, expected)


def test_a_device_runs_its_default_attention_only_where_it_agrees():
    device, heads = jax.devices("cpu")[0], Heads(4, 2, 16, None, "float32")
    plain = attention_xla.forest_attention

    def wrong(*arrays: jax.Array, **rules: Any) -> jax.Array:
        return plain(*arrays, **rules) * 1.001

    def nan(*arrays: jax.Array, **rules: Any) -> jax.Array:
        return plain(*arrays, **rules).at[0, 7].set(jnp.nan)

    def refused(*arrays: jax.Array, **rules: Any) -> jax.Array:
        raise NotImplementedError("cuDNN is not detected.\nmore")

    assert attention_choice.choose(device, heads) == Choice("xla")
    for name, reason in (("cudnn", "does not take float32"), ("tpu", "fails here")):
        assert reason in str(attention_choice.choose(device, heads, name).why_not)
    assert attention_choice.tried("tpu", plain, device, heads) == Choice("tpu")
    for attend, reason in ((wrong, "off its definition"), (nan, "nan off"), (refused, "cuDNN is not detected.")):
        name, why_not = attention_choice.tried("tpu", attend, device, heads)
        assert name == "xla"
        assert reason in str(why_not)
        assert "\n" not in str(why_not)


def test_attention_by_hand():
    # Two places that see each other only downwards, values 1 and 3, equal keys: place 1 gets their mean, 2.
    ones = jnp.ones((1, 2, 1, 1))
    value = jnp.asarray([[[[1.0]], [[3.0]]]])
    subtree_end, position = jnp.asarray([[2, 2]], jnp.int32), jnp.asarray([[0, 1]], jnp.int32)
    out = attention_xla.forest_attention(ones, ones, value, subtree_end, position, scale=1.0)
    assert out.ravel().tolist() == [1.0, 2.0]
    alone = attention_xla.forest_attention(ones, ones, value, jnp.asarray([[1, 2]], jnp.int32), position, scale=1.0)
    assert alone.ravel().tolist() == [1.0, 3.0]


def test_nan_reaches_the_result():
    x = jnp.ones((1, 3, 1, 2))
    subtree_end, position = jnp.full((1, 3), 3, jnp.int32), jnp.arange(3, dtype=jnp.int32)[None]
    out = attention_xla.forest_attention(x.at[0, 1].set(jnp.nan), x, x, subtree_end, position, scale=1.0)
    assert np.isnan(np.asarray(out)).any(axis=(0, 2, 3)).tolist() == [False, True, False]


def score(
    case: head_cases.Case, chunk: int, dtype: str = "float32"
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """(logprob, rank) in edge order: by the kernel on inputs of `dtype`, by the definition in float64 on the same."""
    rng = np.random.default_rng(3)
    draw = (
        (lambda s: rng.normal(size=s))
        if case.levels is None
        else (lambda s: rng.integers(0, case.levels or 1, s) * 1.0)
    )
    hidden, weight = draw((case.parents, case.width)), draw((case.vocabulary, case.width))
    hidden, weight = (np.asarray(jnp.asarray(x, dtype), np.float64) for x in (hidden, weight))
    bias = rng.normal(size=case.vocabulary) if case.bias else None
    parent = rng.integers(0, case.parents, case.edges)
    parent[: case.busy] = 0
    target = rng.integers(0, case.vocabulary, case.edges).astype(np.int32)
    rules = {"softcap": case.softcap, "scale": case.scale}
    with jax.enable_x64(True):
        expected = head_reference.target_logprob(
            jnp.asarray(hidden), jnp.asarray(weight), jnp.asarray(parent), jnp.asarray(target),
            bias_V=None if bias is None else jnp.asarray(bias), **rules,
        )  # fmt: skip
    layout = lay_out(parent, target, chunk)
    num_chunks = len(layout.chunk_round_C1) - 1
    parents = np.zeros(num_chunks * chunk, np.int32)
    parents[: len(layout.parent_S)] = layout.parent_S
    found = head_xla.target_logprob(
        jnp.asarray(hidden[parents], jnp.float32),
        jnp.asarray(weight, dtype),
        jnp.asarray(layout.target_E),
        jnp.asarray(np.append(layout.round_start_R, case.edges).astype(np.int32)),
        jnp.asarray(layout.chunk_round_C1),
        jnp.int32(num_chunks),
        bias_V=None if bias is None else jnp.asarray(bias, jnp.float32),
        chunk=chunk,
        **rules,
    )
    return tuple(np.asarray(x)[layout.edge_output_E] for x in found), tuple(np.asarray(x) for x in expected)


@pytest.mark.parametrize("name", head_cases.CASES)
@pytest.mark.parametrize("chunk", [8, 128])
def test_target_logprob_equals_its_definition(name, chunk):
    case = head_cases.CASES[name]
    (logprob, rank), (expected_logprob, expected_rank) = score(case, chunk)
    np.testing.assert_allclose(logprob, expected_logprob, atol=KERNEL)
    # Ranks count float32 logits; where two logits lie within rounding the order may differ, so ask for nearly all equal.
    assert (rank != expected_rank).mean() <= (0.0 if case.levels else RANKS_APART)


@pytest.mark.parametrize("num_queries", [0, 1, 8, 13])
def test_id_set_logprob_equals_its_definition(num_queries):
    rng = np.random.default_rng(num_queries)
    hidden, weight = rng.normal(size=(16, 24)), rng.normal(size=(503, 24))
    sets, own = rng.random((4, 503)) < np.asarray([[0.9], [0.1], [0.004], [0.0]]), rng.integers(0, 4, 16)
    with jax.enable_x64(True):
        expected = head_reference.id_set_logprob(
            jnp.asarray(hidden), jnp.asarray(weight), jnp.asarray(sets), jnp.asarray(own), softcap=3.0, scale=0.5
        )
    found = head_xla.id_set_logprob(
        jnp.asarray(hidden, jnp.float32), jnp.asarray(weight, jnp.float32), jnp.asarray(sets),
        jnp.asarray(own, jnp.int32), jnp.int32(num_queries), softcap=3.0, scale=0.5, chunk=8,
    )  # fmt: skip
    np.testing.assert_allclose(np.asarray(found)[:num_queries], np.asarray(expected)[:num_queries], atol=KERNEL)


def test_rank_and_logprob_by_hand():
    # Logits 0, ln 3, ln 3, ln 1 = 0: probabilities 1/8, 3/8, 3/8, 1/8.  Token 2 ties with 1, which has the lower id.
    weight = jnp.log(jnp.asarray([[1.0], [3.0], [3.0], [1.0]]))
    layout = lay_out(np.asarray([0, 0, 0, 0]), np.asarray([0, 1, 2, 3]), 2)
    logprob, rank = head_xla.target_logprob(
        jnp.ones((2, 1)), weight, jnp.asarray(layout.target_E),
        jnp.asarray(np.append(layout.round_start_R, 4).astype(np.int32)), jnp.asarray(layout.chunk_round_C1),
        jnp.int32(1), chunk=2,
    )  # fmt: skip
    place = layout.edge_output_E
    np.testing.assert_allclose(np.asarray(logprob)[place], np.log([1 / 8, 3 / 8, 3 / 8, 1 / 8]), atol=ROUNDING)
    assert np.asarray(rank)[place].tolist() == [2, 0, 1, 3]


@pytest.mark.parametrize("name", head_cases.CASES)
def test_bfloat16_inputs_lose_nothing_to_their_sums(name):
    (logprob, _), (expected, _) = score(head_cases.CASES[name], 8, "bfloat16")
    np.testing.assert_allclose(logprob, expected, atol=KERNEL)


def test_the_heads_memory_is_flat_in_vocabulary_and_sources():
    def temporary_bytes(vocabulary: int, parents: int) -> int:
        chunk, whole = chunk_of(vocabulary), jnp.int32
        shapes = [((parents, 64), jnp.bfloat16), ((vocabulary, 64), jnp.bfloat16), ((parents,), whole)]
        shapes += [((parents + 1,), whole), ((parents // chunk + 1,), whole), ((), whole)]
        score = jax.jit(partial(head_xla.target_logprob, chunk=chunk, softcap=30.0))
        compiled = score.lower(*(jax.ShapeDtypeStruct(*own) for own in shapes)).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    small, large = temporary_bytes(65536, 2048), temporary_bytes(262144, 8192)
    assert large < 1.2 * small
    assert large < 8192 * 262144 * 4 / 4, "never [parents, V]"


def test_chunks_of_the_head_by_vocabulary():
    assert [chunk_of(size) for size in (331, 50257, 65536, 128256, 262144)] == [1024, 1024, 1024, 512, 256]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), unique=True, max_size=40), st.integers(1, 5))
def test_layout_keeps_every_edge_and_its_source(edges, chunk):
    parent, target = np.asarray([s for s, _ in edges], np.int64), np.asarray([t for _, t in edges], np.int64)
    layout = lay_out(parent, target, chunk)
    assert sorted(layout.parent_S.tolist()) == sorted(set(parent.tolist()))
    assert layout.target_E[layout.edge_output_E].tolist() == target.tolist()
    stops = [*layout.round_start_R.tolist(), len(edges)]
    place_of_edge = {int(place): e for e, place in enumerate(layout.edge_output_E)}
    for c in range(len(layout.chunk_round_C1) - 1):
        for r in range(layout.chunk_round_C1[c], layout.chunk_round_C1[c + 1]):
            for row, place in enumerate(range(stops[r], stops[r + 1])):
                assert layout.parent_S[c * chunk + row] == parent[place_of_edge[place]]
