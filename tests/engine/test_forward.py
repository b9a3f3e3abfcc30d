"""The compiled path against the plain scorer, over batches, row lengths and row mates; its budgets."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest

from miron_jax.engine import model as model_module
from miron_jax.engine.batches import Shape, assemble, rows_by_length
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model, load_model
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.records import Scores
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck, Unchecked
from miron_jax.errors import InputError, SelfCheckFailed
from miron_jax.kernels.forest_attention import tpu
from miron_jax.kernels.forest_attention.choose import AttentionChoice
from miron_jax.model.costs import cost_model, useful_flops
from miron_jax.planning.plan import make_plan
from miron_jax.planning.request_batches import Totals, plan_request_batches, select
from miron_jax.runtime.progress import Lines
from miron_jax.tokens.records import Requests, concatenate
from tests.support.generators import slow_logits
from tests.support.own_models import bigrams, model_of
from tests.support.requests import requests_of, some_requests
from tests.support.tiny_model import make_model, spoil_token
from tests.support.tolerances import TOKEN

pytestmark = pytest.mark.newest


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(make_model(tmp_path_factory.mktemp("tiny")), "float32")


UNCHECKED = Unchecked(0.0)


@pytest.fixture(scope="module")
def forward(model: Model) -> Forward:
    """Programs of two row lengths, which most tests use."""
    forward = Forward(model, token_budget=256)
    score(forward, some_requests(), lengths=(64, 128))
    return forward


def score(
    forward: Forward,
    requests: Requests,
    num_batches: int = 1,
    check: SelfCheck = UNCHECKED,
    lengths: tuple[int, ...] = (),
    **changes: Any,
) -> Scores:
    """Scores of all requests, in rows of these lengths or of those that are compiled already, if there are any."""
    cost = replace(cost_model(forward.model.config), **{"length_multiple": 16, "flops_per_program": 1e6, **changes})
    batches = [select(requests, members) for members in np.array_split(np.arange(len(requests)), num_batches)]
    lengths = lengths or forward.lengths
    scored = list(score_request_batches(iter(batches), forward, cost, Totals(), check, lengths=lengths))
    offsets = np.concatenate([[0], np.cumsum([len(s.rank) for scores in scored for s in scores])])
    columns = ([getattr(s, name) for s in scored] for name in ("logprob", "rank", "set_logprob", "distribution"))
    return Scores(offsets, *(np.concatenate(column) for column in columns))


def test_forest_rows_score_as_plain_rows(model: Model, forward: Forward) -> None:
    requests, check = some_requests(), SelfCheck(TOLERANCE["float32"])
    scores = score(forward, requests, check=check)
    assert check.requests >= 8
    with_span = np.flatnonzero(requests.span_start < np.diff(requests.offsets)).tolist()
    starts = requests.span_start[with_span].tolist()
    plain, programs = score_plainly(model, [requests.tokens(r) for r in with_span], starts)
    assert programs == 1
    greedy = 0
    for r, other in zip(with_span, plain, strict=True):
        np.testing.assert_allclose(scores[r].logprob, other.logprob, atol=TOKEN)
        assert np.abs(other.margin).min() > TOKEN, "no two tokens tie here, so every rank can be checked"
        assert ((scores[r].rank == 0) == (other.margin > 0)).all()
        greedy += int((scores[r].rank == 0).sum())
    assert greedy > 0
    empty = next(r for r in range(len(requests)) if r not in with_span)
    assert len(scores[empty].logprob) == 0


@pytest.mark.parametrize(
    ("num_batches", "changes"),
    [
        (4, {}),
        (2, {"flops_per_pair": 1e9}),
        (1, {"sharing": "trees"}),
        (1, {"sharing": "packed"}),
        (1, {"sharing": "none"}),
        (3, {"max_lengths": 1, "length_multiple": 64}),
    ],
)
def test_request_batches_and_lengths_move_no_score(model, forward, num_batches, changes):
    requests = some_requests(3)
    expected = score(forward, requests)
    programs = Forward(model, token_budget=256) if "max_lengths" in changes else forward
    scores = score(programs, requests, num_batches, **changes)
    np.testing.assert_allclose(scores.logprob, expected.logprob, atol=TOKEN)
    np.testing.assert_array_equal(scores.rank, expected.rank)
    assert programs.speed.programs == len(programs.lengths), "nothing is compiled for a second plan"


def test_a_devices_own_attention_moves_no_score(model, forward, monkeypatch):
    requests = some_requests(groups=4)
    expected = score(forward, requests)
    monkeypatch.setattr(model_module, "choose", lambda device, heads, name, split: AttentionChoice("tpu"))
    monkeypatch.setattr(tpu, "forest_attention", partial(tpu.forest_attention, interpret=True))
    with_kernel = Forward(model, token_budget=256)
    assert with_kernel.attention == "tpu"
    scores = score(with_kernel, requests, max_lengths=1)
    np.testing.assert_allclose(scores.logprob, expected.logprob, atol=TOKEN)
    np.testing.assert_array_equal(scores.rank, expected.rank)


def test_attention_asked_for_by_name_runs_or_is_an_error(model: Model) -> None:
    assert Forward(model._replace(attention="xla")).attention == "xla"
    with pytest.raises(InputError, match=r"--attention=cudnn cannot be used here: .* float32; leave the flag out"):
        Forward(model._replace(attention="cudnn"))


def test_as_many_programs_as_row_lengths_and_none_for_a_second_plan(model: Model) -> None:
    forward, cost = (
        Forward(model, token_budget=256),
        replace(cost_model(model.config), length_multiple=32, max_lengths=2),
    )
    plan = make_plan(some_requests(5), cost)
    list(forward.run(plan))
    assert forward.speed.programs == len(set(plan.row_length.tolist())) <= 2
    list(forward.run(make_plan(some_requests(6), replace(cost, max_lengths=len(forward.lengths)), forward.lengths)))
    assert forward.speed.programs == len(forward.lengths)


def test_the_program_that_runs_first_is_compiled_before_the_others(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Forward(model, token_budget=256)
    requests = requests_of(
        [([1, first, *range(2, n)], n - 1) for n in (30, 60, 90) for first in range(2 + n, 90 + n, 7)]
    )
    cost = replace(cost_model(model.config), length_multiple=32, max_lengths=3, flops_per_program=0.0)
    plan = make_plan(requests, cost, (32, 64, 96))
    lengths = sorted(set(plan.row_length.tolist()))
    assert len(lengths) > 1
    fit, may_end = forward._fit, threading.Event()
    begun: list[int] = []

    def fit_in_turn(length: int, *others: Any) -> float:
        begun.append(length)
        assert length == lengths[-1] or may_end.wait(60), "the others are not waited for"
        return fit(length, *others)

    monkeypatch.setattr(forward, "_fit", fit_in_turn)
    forward.compile_in_turn(plan)
    assert [shape.length for shape in forward.programs] == [lengths[-1]]
    assert forward.lengths_to_compile(plan) == []
    may_end.set()
    scored = [*forward.run(plan)]
    assert sorted(begun) == lengths
    assert sum(len(each.rows) for each in scored) == plan.num_rows
    assert forward.speed.programs == len(lengths)


def sum_over_set(model: Model, context: Sequence[int], ids: np.ndarray) -> float:
    """Log of the probability of all these tokens together after a context, in float64."""
    logits = slow_logits(model, context).astype(np.float64)
    return float(np.logaddexp.reduce(logits[ids]) - np.logaddexp.reduce(logits))


def test_id_sets_are_summed_before_the_span(model: Model) -> None:
    """Equal tokens with different sets are different questions; a later batch may bring sets of its own."""
    requests, rng = some_requests(3, groups=4), np.random.default_rng(0)
    id_sets = [rng.choice(331, size, replace=False) for size in (1, 7, 331, 20, 2)]
    id_set = rng.integers(-1, len(id_sets), len(requests)).astype(np.int32)
    both = concatenate([replace(requests, id_set=id_set), replace(requests, id_set=id_set[::-1].copy())])
    forward = Forward(model, token_budget=256, id_sets=id_sets)

    def check(asked: Requests, num_batches: int) -> None:
        scores = score(forward, asked, num_batches, max_lengths=1)
        assert asked.id_set is not None
        for r, index in enumerate(asked.id_set.tolist()):
            ids, start = asked.tokens(r), int(asked.span_start[r])
            none = index < 0 or start == len(ids)
            expected = 0.0 if none else sum_over_set(model, ids[:start].tolist(), id_sets[index])
            assert scores[r].set_logprob == pytest.approx(expected, abs=TOKEN), f"request {r}, set {index}"

    check(both, 1)
    check(both, 3)
    id_sets.append(rng.choice(331, 30, replace=False))  # the table of six sets has as many rows as that of five
    check(replace(requests, id_set=np.full(len(requests), 5, np.int32)), 1)


def test_entropy_and_largest_probability_of_a_bigram_model() -> None:
    """Logits after a token are its row of a table, with ties, ids without a probability, and NaN: all numbers by NumPy."""
    rng = np.random.default_rng(2)
    table = rng.integers(0, 4, (331, 331)).astype(np.float32)
    table[:, ::7], table[5], table[9, 3] = -np.inf, 0.0, np.nan
    model = model_of(bigrams(params=jnp.asarray(table)))
    forward = Forward(model._replace(with_distribution=True), token_budget=256)
    requests, check = some_requests(3), SelfCheck(TOLERANCE["float32"])
    scores = score(forward, requests, 2, check, lengths=(64, 128))
    assert check.requests >= 8
    seen = set[int]()
    for r, (ids, start) in enumerate(requests):
        before, target = ids[start - 1 : -1], ids[start:]
        logits = table[before].astype(np.float64)
        logprob = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        entropy = -(np.exp(logprob) * np.maximum(logprob, -1e3)).sum(axis=1)
        variance = (np.exp(logprob) * (np.maximum(logprob, -1e3) + entropy[:, None]) ** 2).sum(axis=1)
        expected = np.stack([entropy, logprob.max(axis=1), variance], axis=1)
        np.testing.assert_allclose(scores[r].distribution, expected[: len(target)], atol=TOKEN)
        seen |= {*before.tolist()}
    assert {5, 9} <= seen


def test_more_asks_than_places(model: Model) -> None:
    """Forty tokens after one context, each with three sets: 120 id-set queries at one node of a row of 64."""
    items = [([0, 5, 9, token], 3) for token in range(10, 50) for _ in range(3)]
    requests = replace(requests_of(items), id_set=np.tile(np.arange(3, dtype=np.int32), 40))
    id_sets = [np.asarray(ids) for ids in ([1], [1, 2], [7, 8, 9])]
    scores = score(Forward(model, token_budget=64, id_sets=id_sets), requests)
    expected = [sum_over_set(model, [0, 5, 9], ids) for ids in id_sets] * 40
    np.testing.assert_allclose(scores.set_logprob, expected, atol=TOKEN)


def test_edges_and_queries_of_each_shard_are_in_its_outputs(model: Model) -> None:
    """Outputs of all shards lie end to end, so those of a later shard begin where the first one's arrays end."""
    requests = some_requests(3)
    requests = replace(requests, id_set=(np.arange(len(requests)) % 5).astype(np.int32))
    plan = make_plan(requests, replace(cost_model(model.config), length_multiple=128, max_lengths=1))
    assert plan.num_rows > 2
    shape = Shape(-(-plan.num_rows // 2), 128, 8, num_sets=8, queries_per_row=128, shards=2)
    batch = assemble(plan, list(range(plan.num_rows)), shape)
    shards = [shape.unpack(packed) for packed in batch.packed]
    targets = np.concatenate([shard.target_E for shard in shards])
    sets = np.concatenate([shard.query_set_A for shard in shards])
    assert sorted(batch.edges.tolist()) == list(range(len(plan.edge_target)))
    assert sorted(batch.queries.tolist()) == list(range(len(plan.query_set)))
    np.testing.assert_array_equal(targets[batch.edge_output], plan.edge_target[batch.edges])
    np.testing.assert_array_equal(sets[batch.query_output], plan.query_set[batch.queries])


def test_batches_leave_few_rows_empty():
    for count, full, rows in ((32, 5, 4), (39, 4, 3), (40, 4, 4), (3, 5, 3), (11, 3, 3), (7, 1, 1)):
        assert rows_by_length(np.full(count, 16), 1, full * 16 + 5, more=False) == {16: rows}, (count, full)
    row_length = np.repeat([512, 2048], [600, 150])  # of a request batch before others: what each shard gets
    for shards, rows in ((1, {512: 16, 2048: 4}), (75, {512: 8, 2048: 2}), (1000, {512: 1, 2048: 1})):
        assert rows_by_length(row_length, shards, 8192, more=True) == rows, shards


def test_out_of_memory_halves_the_batch_and_goes_on(model, forward, monkeypatch):
    plan = make_plan(some_requests(7), replace(cost_model(model.config), max_lengths=1), forward.lengths[-1:])
    expected = {int(e): p for s in forward.run(plan) for e, p in zip(s.edges, s.logprob, strict=True)}
    lines: list[str] = []
    refusing = Forward(model, 1024, Lines(lines.append))
    real: Callable[[Shape], Any] = refusing._program
    rows_at_first = max(rows_by_length(plan.row_length, 1, 1024, more=False).values())

    def refuse_large(shape: Shape) -> Any:
        program = real(shape)
        # `lines` is empty until the ahead-of-time compilation is over.
        if shape.rows <= rows_at_first // 4 or not lines:
            return program

        def run(*_: Any) -> Any:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory left")

        return run

    monkeypatch.setattr(refusing, "_program", refuse_large)
    scores = {int(e): p for s in refusing.run(plan) for e, p in zip(s.edges, s.logprob, strict=True)}
    assert refusing.speed.halvings == 2
    assert sum("out of memory" in line for line in lines) == 2
    assert scores == pytest.approx(expected, abs=TOKEN)


def test_other_device_errors_are_not_swallowed(model: Model, forward: Forward, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    plan = make_plan(some_requests(), replace(cost_model(model.config), max_lengths=2), forward.lengths)
    monkeypatch.setattr(forward, "_program", lambda shape: broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        list(forward.run(plan))


def test_the_self_check_fails_on_a_wrong_score(model: Model, forward: Forward) -> None:
    [batch] = plan_request_batches([some_requests()], cost_model(model.config), Totals())
    scores, check = score(forward, batch.fresh), SelfCheck(TOLERANCE["float32"])
    check.compare(model, batch, scores)
    for change, message in ((0.01, "differs by"), (-0.01, "differs by"), (np.nan, "nan")):
        with pytest.raises(SelfCheckFailed, match=message):
            check.compare(model, batch, replace(scores, logprob=scores.logprob + np.float32(change)))
    with pytest.raises(SelfCheckFailed, match="contradicts"):
        check.compare(model, batch, replace(scores, rank=np.where(scores.rank == 0, 1, 0)))


def test_nan_stays_with_its_request(tmp_path: Path) -> None:
    """Requests of one row share a matmul with a token whose embedding is NaN: those with NaN are asked again, alone.

    The self-check scores all six plainly, and agrees: NaN is left to the metrics.
    """
    broken = load_model(spoil_token(make_model(tmp_path), 330), "float32")
    with_nan = [([0, 5, 330, 7, 8], 2), ([0, 330, 6], 2)]
    without = [([0, 5, 6, 7, 8], 2), ([0, 5, 6, 9], 3), ([0, 7], 1), ([0, 11, 12, 13, 14], 1)]
    check = SelfCheck(TOLERANCE["float32"])
    scores = score(Forward(broken, token_budget=64), requests_of([*with_nan, *without]), check=check, max_lengths=1)
    assert check.requests == 6
    for reduced in (np.all, np.any):
        assert [bool(reduced(np.isnan(s.logprob))) for s in scores] == [True] * 2 + [False] * 4


def test_a_long_run_keeps_to_its_programs(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    # Five batches whose requests grow; three lengths are expected, and the last batch has one request beyond them.
    monkeypatch.setattr("miron_jax.planning.request_batches.REQUEST_BATCH_TOKENS", 1)
    rng, batches = np.random.default_rng(4), list[Requests]()
    for low, high in ((20, 60), (60, 110), (100, 160), (150, 200), (200, 250)):
        lengths = rng.integers(low, high, 12)
        batches.append(requests_of([([0, *rng.integers(1, 331, n).tolist()], n) for n in lengths]))
    cost, forward = cost_model(model.config, max_lengths=4), Forward(model, token_budget=512)
    cost = replace(cost, length_multiple=8, flops_per_program=0.0)
    scored = score_request_batches(iter(batches), forward, cost, Totals(), UNCHECKED, lengths=(64, 128, 200))
    assert [len(scores) for scores in scored] == [12] * 5
    assert forward.speed.programs <= 4


def test_bfloat16_stays_within_its_stated_tolerance(forward: Forward, tmp_path: Path) -> None:
    requests, check = some_requests(2), SelfCheck(TOLERANCE["bfloat16"])
    exact = score(forward, requests).logprob
    rounding = Forward(load_model(make_model(tmp_path), "bfloat16"), token_budget=256)
    rounded = score(rounding, requests, check=check, max_lengths=1).logprob
    assert check.requests >= 8
    assert 0 < np.abs(exact - rounded).max() < TOLERANCE["bfloat16"]


def test_useful_flops_by_hand(model):
    # Request B q a: two nodes, pairs 1 + 2, one parent.  Layer: q 24x24, k and v 24x8, out 24x24, three of 24x40.
    plan = make_plan(requests_of([([0, 5, 7], 2)]), cost_model(model.config))
    weights = 2 * (24 * 24 + 2 * 24 * 8 + 24 * 24 + 3 * 24 * 40)
    assert useful_flops(model.config, plan) == 2 * weights * 2 + (4 * 3 * 8 * 2) * 3 + 2 * 24 * 331


def test_backend_flag_is_set_where_it_applies():
    version = tuple(map(int, jaxlib.version.__version__.split(".")[:3]))
    applies = (0, 10, 2) <= version < (0, 12)
    assert ("--xla_cpu_experimental_ynn_fusion_type=" in os.environ.get("XLA_FLAGS", "")) == applies


def test_the_miscompiled_sum_of_jax_39103_is_right_here():
    # A vmapped matrix-vector product summed: 8 x 128 x 128 ones, exactly 2^17 with sound fusions.
    matrix, vectors = np.ones((8, 128, 128), np.float32), np.ones((8, 128), np.float32)
    total = jax.jit(lambda a, b: jax.vmap(jnp.matmul)(a, b).sum())(matrix, vectors)
    assert float(total) == 8 * 128 * 128
