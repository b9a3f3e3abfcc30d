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
from miron_jax.kernels.forest_attention.blocks import SKIP, WHOLE, block_kinds
from miron_jax.kernels.forest_attention.choose import AttentionChoice, Heads
from miron_jax.kernels.reductions import row_max, row_sum
from miron_jax.kernels.target_logprob import cases as head_cases
from miron_jax.kernels.target_logprob import reference as head_reference
from miron_jax.kernels.target_logprob import xla as head_xla
from miron_jax.kernels.target_logprob.layout import lay_out
from tests.support.tolerances import KERNEL, RANKS_APART, ROUNDING

newest = pytest.mark.newest
# Of attention's cases those that others are parts of: a compiler of today takes five seconds for each.
NEWEST_CASES = ("prime", "two_key_heads", "wide_group", "all", "long")


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


@newest
def test_reductions_over_the_last_axis() -> None:
    rng = np.random.default_rng(0)
    sizes = [1, 3, 16, 31, 48, 80, 96, 320, 576, 1000, 37 * 16, 49152]
    inputs = {size: (rng.normal(size=(2, 3, size)) - 9).astype(np.float32) for size in sizes}
    sums, maxima = jax.jit(lambda x: (jax.tree.map(row_sum, x), jax.tree.map(row_max, x)))(inputs)
    for size, x in inputs.items():
        expected = x.astype(np.float64).sum(axis=-1)
        np.testing.assert_allclose(sums[size], expected, rtol=ROUNDING, err_msg=f"sum over {size}")
        np.testing.assert_array_equal(maxima[size], x.max(axis=-1), err_msg=f"maximum over {size}")


ATTENTION_CASES = attention_cases.CASES | {
    "long": attention_cases.AttentionCase(1, 1090, 2, 1, 8, window=1050),  # larger blocks, more than 1,024 keys
    "sinks_of_later_heads": attention_cases.AttentionCase(
        1, 40, 4, 2, 128, sinks=True
    ),  # two steps of the TPU's kernel
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=newest) if name in NEWEST_CASES else name for name in ATTENTION_CASES]
)
def test_forest_attention_equals_its_definition(name: str) -> None:
    """Row by row, as a CPU does; all rows at once, with a mask that is built before; the TPU's kernel, interpreted."""
    case, rng = ATTENTION_CASES[name], np.random.default_rng(7)
    q = rng.normal(size=(case.rows, case.length, case.heads, case.head_dim))
    k, v = rng.normal(size=(2, case.rows, case.length, case.kv_heads, case.head_dim))
    places = random_forest(rng, case.rows, case.length)
    sinks_N = rng.normal(size=case.heads).astype(np.float32) if case.sinks else None
    rules: dict[str, Any] = {"scale": case.head_dim**-0.5, "window": case.window, "softcap": case.softcap}
    attend: Any = attention_xla._attend

    @jax.jit
    def computed(*rows: Any, sinks_N: jax.Array | None) -> dict[str, jax.Array]:
        more = rules | {"sinks_N": sinks_N}
        *_, subtree_end_BT, position_BT = rows
        bias_BTT = attention_xla.hidden_bias(subtree_end_BT, position_BT, case.window)
        return {
            "row by row": attention_xla.forest_attention(*rows, **more),
            "in blocks that are seen": jax.lax.map(lambda row: attention_xla._attend_seen_blocks(*row, **more), rows),
            "all rows, with a bias": attend(*rows, bias_BTT, **more, block=96),
            "in a GPU's blocks": attend(*rows, None, **more, block=256),
            "for TPU": attention_tpu.forest_attention(*rows, **more, block=128, interpret=True),
        }

    with jax.enable_x64(True):
        expected = jax.jit(partial(attention_reference.forest_attention, **rules))(q, k, v, *places, sinks_N=sinks_N)
    single = [x.astype(np.float32) for x in (q, k, v)]
    for how, out in computed(*single, *places, sinks_N=sinks_N).items():
        np.testing.assert_allclose(out, np.asarray(expected), atol=KERNEL, err_msg=how)


@newest
@pytest.mark.parametrize(
    ("dtype", "head_dim"), [("float32", 64), ("bfloat16", 80), ("bfloat16", 128), ("float32", 256)]
)
def test_forest_attention_lowers_for_tpu(dtype: str, head_dim: int) -> None:
    case = attention_cases.AttentionCase(2, 700, 4, 2, head_dim, window=100, softcap=30.0)
    shapes = [(case.heads, dtype), (case.kv_heads, dtype), (case.kv_heads, dtype)]
    rows = [jax.ShapeDtypeStruct((case.rows, case.length, heads, head_dim), dtype) for heads, dtype in shapes]
    seen = [jax.ShapeDtypeStruct((case.rows, case.length), jnp.int32)] * 2

    def attend(window: jax.Array, sinks_N: jax.Array, *arrays: jax.Array) -> jax.Array:
        return attention_tpu.forest_attention(*arrays, scale=0.1, window=window, softcap=case.softcap, sinks_N=sinks_N)

    sinks_N = jax.ShapeDtypeStruct((case.heads,), jnp.float32)
    traced = jax.jit(attend).trace(jax.ShapeDtypeStruct((), jnp.int32), sinks_N, *rows, *seen)
    assert "tpu_custom_call" in traced.lower(lowering_platforms=("tpu",)).as_text()


@newest
def test_a_gpu_takes_larger_blocks_of_queries() -> None:
    """Two matmuls a block: lowered for each platform, nothing compiled."""
    blocks = {"cpu": {}, "cuda": {}}
    for length in (64, 256, 300, 1024, 2048, 4096, 8192):
        rows = [jax.ShapeDtypeStruct((2, length, 2, 8), jnp.bfloat16)] * 3
        seen = [jax.ShapeDtypeStruct((2, length), jnp.int32)] * 2
        traced = jax.jit(partial(attention_xla.forest_attention, scale=0.1)).trace(*rows, *seen)
        for platform, of_length in blocks.items():
            text = traced.lower(lowering_platforms=(platform,)).as_text()
            of_length[length] = text.count("stablehlo.dot_general") / 2
    assert blocks["cpu"] == {64: 1, 256: 4, 300: 5, 1024: 16, 2048: 1, 4096: 1, 8192: 1}
    assert blocks["cuda"] == {64: 1, 256: 2, 300: 2, 1024: 4, 2048: 4, 4096: 8, 8192: 8}


@newest
def test_block_kinds_follow_the_dense_mask() -> None:
    """A block that somebody sees is never skipped, and one that needs a mask is never taken whole; without windows no block
    is masked in vain."""
    kinds_of = jax.jit(lambda end_BT, position_BT, window: block_kinds(end_BT, position_BT, window, 8, 4))
    index, whole_in_windows = np.arange(96), 0
    for seed in range(12):
        subtree_end, position = random_forest(np.random.default_rng(seed), 2, 96)
        for window in (None, *range(1, 50, 2)):
            visible = (index <= index[:, None]) & (index[:, None] < subtree_end[:, None])
            if window is not None:
                visible &= position[:, :, None] - position[:, None] < window
            blocks = visible.reshape(2, 12, 8, 24, 4)
            seen, whole = blocks.any(axis=(2, 4)), blocks.all(axis=(2, 4))
            kinds = np.asarray(kinds_of(subtree_end, position, None if window is None else np.int32(window)))
            case = f"seed {seed}, window {window}"
            assert not np.any(seen & (kinds == SKIP)), case
            assert np.all(whole | (kinds != WHOLE)), case
            assert window is not None or (np.all((kinds == WHOLE) == whole) and np.all((kinds == SKIP) != seen)), case
            whole_in_windows += int((kinds == WHOLE).sum()) if window else 0
    assert whole_in_windows > 100


@newest
def test_a_device_runs_its_default_attention_only_where_it_agrees():
    device, heads = jax.devices("cpu")[0], Heads(4, 2, 16, None, "float32")
    plain = attention_xla.forest_attention

    def wrong(*arrays: jax.Array, **rules: Any) -> jax.Array:
        return plain(*arrays, **rules) * 1.001

    def nan(*arrays: jax.Array, **rules: Any) -> jax.Array:
        return plain(*arrays, **rules).at[0, 7].set(jnp.nan)

    def refused(*arrays: jax.Array, **rules: Any) -> jax.Array:
        raise NotImplementedError("cuDNN is not detected.\nmore")

    assert attention_choice.choose(device, heads) == AttentionChoice("xla")
    for name, reason in (("cudnn", "does not take float32"), ("tpu", "fails here")):
        assert reason in str(attention_choice.choose(device, heads, name).why_not)
    assert attention_choice.tried("tpu", plain, device, heads) == AttentionChoice("tpu")
    for attend, reason in ((wrong, "off its definition"), (nan, "nan off"), (refused, "cuDNN is not detected.")):
        name, why_not = attention_choice.tried("tpu", attend, device, heads)
        assert name == "xla"
        assert reason in str(why_not)
        assert "\n" not in str(why_not)


@newest
@pytest.mark.parametrize(("dtype", "chunk"), [("float32", 128), ("bfloat16", 8)])
@pytest.mark.parametrize("name", head_cases.CASES)
def test_target_logprob_equals_its_definition(name: str, dtype: str, chunk: int) -> None:
    """In float64, on the same inputs: those of bfloat16 lose nothing to their sums."""
    case, rng = head_cases.CASES[name], np.random.default_rng(3)

    def draw(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) if case.levels is None else rng.integers(0, case.levels, shape)).astype(dtype)

    hidden, weight = draw(case.parents, case.width), draw(case.vocabulary, case.width)
    bias_V = rng.normal(size=case.vocabulary).astype(np.float32) if case.bias else None
    parent = rng.integers(0, case.parents, case.edges)
    parent[: case.busy] = 0
    target = rng.integers(0, case.vocabulary, case.edges).astype(np.int32)
    rules = {"softcap": case.softcap, "scale": case.scale}
    with jax.enable_x64(True):
        *double, bias64_V = jax.tree.map(lambda x: x.astype(np.float64), (hidden, weight, bias_V))
        define = jax.jit(partial(head_reference.target_logprob, **rules))
        expected, expected_rank = map(np.asarray, define(*double, parent, target, bias_V=bias64_V))
        spread = np.asarray(jax.jit(partial(head_reference.distribution, **rules))(*double, parent, bias_V=bias64_V))
    layout = lay_out(parent, target, chunk)
    num_chunks = len(layout.chunk_round_C1) - 1
    parents = np.zeros(num_chunks * chunk, np.int32)
    parents[: len(layout.parent_S)] = layout.parent_S
    rules |= {"chunk": chunk, "with_distribution": True}
    score = jax.jit(partial(head_xla.target_logprob, **rules))
    rounds = np.append(layout.round_start_R, case.edges).astype(np.int32), layout.chunk_round_C1.astype(np.int32)
    scored = score(
        hidden[parents].astype(np.float32), weight, layout.target_E, *rounds, np.int32(num_chunks), bias_V=bias_V
    )
    logprob, rank, *distribution = (np.asarray(x)[layout.edge_output_E] for x in scored)
    np.testing.assert_allclose(logprob, expected, atol=KERNEL)
    for computed in distribution:
        np.testing.assert_allclose(computed, spread, atol=KERNEL)
    # Ranks count float32 logits; where two logits lie within rounding the order may differ, so ask for nearly all equal.
    assert (rank != expected_rank).mean() <= (0.0 if case.levels else RANKS_APART)


@newest
def test_id_set_logprob_equals_its_definition() -> None:
    rng = np.random.default_rng(0)
    hidden, weight = (rng.normal(size=(rows, 24)) for rows in (16, 503))
    sets = rng.random((4, 503)) < np.asarray([[0.9], [0.1], [0.004], [0.0]])
    set_A = rng.integers(0, 4, 16).astype(np.int32)
    rules = {"softcap": 3.0, "scale": 0.5}
    with jax.enable_x64(True):
        expected = np.asarray(jax.jit(partial(head_reference.id_set_logprob, **rules))(hidden, weight, sets, set_A))
    single = [x.astype(np.float32) for x in (hidden, weight)]
    score = jax.jit(partial(head_xla.id_set_logprob, **rules, chunk=8))
    for used in (0, 1, 8, 13):
        computed = np.asarray(score(*single, sets, set_A, np.int32(used)))
        np.testing.assert_allclose(computed[:used], expected[:used], atol=KERNEL, err_msg=f"{used} queries")


@newest
def test_rank_and_logprob_by_hand() -> None:
    # Logits 0, ln 3, ln 3, ln 1 = 0: probabilities 1/8, 3/8, 3/8, 1/8.  Token 2 ties with 1, which has the lower id.
    # Rows of the head beyond the vocabulary of four count for nothing.
    weight = np.log(np.asarray([[1], [3], [3], [1], [9], [9]], np.float32))
    layout = lay_out(np.asarray([0, 0, 0, 0]), np.asarray([0, 1, 2, 3]), 2)
    logprob, rank = jax.jit(partial(head_xla.target_logprob, chunk=2, vocab_size=4))(
        np.ones((2, 1), np.float32), weight, layout.target_E, np.append(layout.round_start_R, 4).astype(np.int32),
        layout.chunk_round_C1, np.int32(1),
    )  # fmt: skip
    place = layout.edge_output_E
    np.testing.assert_allclose(np.asarray(logprob)[place], np.log([1 / 8, 3 / 8, 3 / 8, 1 / 8]), atol=ROUNDING)
    assert np.asarray(rank)[place].tolist() == [2, 0, 1, 3]


@newest
def test_the_heads_memory_is_flat_in_vocabulary_and_sources():
    assert [chunk_of(size) for size in (331, 50257, 65536, 128256, 262144)] == [1024, 1024, 1024, 512, 256]

    def temporary_bytes(vocabulary: int, parents: int) -> int:
        chunk, whole = chunk_of(vocabulary), jnp.int32
        shapes = [((parents, 64), jnp.bfloat16), ((vocabulary, 64), jnp.bfloat16), ((parents,), whole)]
        shapes += [((parents + 1,), whole), ((parents // chunk + 1,), whole), ((), whole)]
        score = jax.jit(partial(head_xla.target_logprob, chunk=chunk, softcap=30.0))
        compiled = score.lower(*(jax.ShapeDtypeStruct(*each) for each in shapes)).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    small, large = temporary_bytes(65536, 2048), temporary_bytes(262144, 8192)
    assert large < 1.2 * small
    assert large < 8192 * 262144 * 4 / 4, "never [parents, V]"


@newest
@settings(max_examples=40)
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
