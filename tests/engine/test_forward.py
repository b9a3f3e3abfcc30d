"""The compiled path against the plain scorer, over batches, row lengths and row mates; its budgets."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine import model as model_module
from miron_jax.engine.batches import Shape, rows_a_batch
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model, load_model
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.records import Scores
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck, SelfCheckFailed
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import tpu
from miron_jax.kernels.forest_attention.choose import Choice
from miron_jax.model.costs import cost_model, useful_flops
from miron_jax.planning.plan import make_plan
from miron_jax.planning.request_batches import Totals, plan_request_batches, select
from miron_jax.runtime.progress import Lines
from miron_jax.tokens.records import Requests, concatenate
from tests.support.requests import requests_of, some_requests
from tests.support.tiny_model import make_model
from tests.support.tolerances import TOKEN

pytestmark = pytest.mark.newest


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(make_model(tmp_path_factory.mktemp("tiny")), "float32")


def score_all(model: Model, requests: Requests, num_batches: int = 1, dtype: str = "float32", **changes: Any) -> Scores:
    cost = replace(cost_model(model.config), **{"length_multiple": 16, "flops_per_program": 1e6, **changes})
    items = [(ids.tolist(), start) for ids, start in requests]
    members = np.array_split(np.arange(len(requests)), num_batches)
    batches = [requests_of([items[i] for i in batch]) for batch in members]
    forward, check = Forward(model, token_budget=256), SelfCheck(TOLERANCE[dtype])
    scored = list(score_request_batches(iter(batches), forward, cost, Totals(), check))
    assert check.requests >= min(8, len(requests))
    offsets = np.concatenate([[0], np.cumsum([len(s.rank) for scores in scored for s in scores])])
    columns = ([getattr(s, name) for s in scored] for name in ("logprob", "rank", "set_logprob"))
    return Scores(offsets, *(np.concatenate(column) for column in columns))


def test_forest_rows_score_as_plain_rows(model):
    requests = some_requests()
    scores = score_all(model, requests)
    with_span = [r for r in range(len(requests)) if requests.span_start[r] < len(requests.tokens(r))]
    plain, programs = score_plainly(
        model, [requests.tokens(r) for r in with_span], [int(requests.span_start[r]) for r in with_span]
    )
    assert programs <= 2
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
        (1, {"max_lengths": 1}),
        (1, {"length_multiple": 64}),
        (2, {"flops_per_pair": 1e9}),
        (1, {"flops_per_program": 1e15}),
        (1, {"sharing": "trees"}),
        (1, {"sharing": "packed"}),
        (1, {"sharing": "none"}),
    ],
)
def test_request_batches_and_lengths_move_no_score(model, num_batches, changes):
    requests = some_requests(3)
    one, other = score_all(model, requests), score_all(model, requests, num_batches, **changes)
    np.testing.assert_allclose(one.logprob, other.logprob, atol=TOKEN)
    assert (one.rank == other.rank).all()


def test_a_devices_own_attention_moves_no_score(model, monkeypatch):
    requests = some_requests(groups=4)
    expected = score_all(model, requests, max_lengths=1)
    monkeypatch.setattr(model_module, "choose", lambda device, heads, name, split: Choice("tpu"))
    monkeypatch.setattr(tpu, "forest_attention", partial(tpu.forest_attention, interpret=True))
    scores = score_all(model, requests, max_lengths=1)
    np.testing.assert_allclose(scores.logprob, expected.logprob, atol=TOKEN)
    np.testing.assert_array_equal(scores.rank, expected.rank)
    assert Forward(model).attention == "tpu"


def test_attention_asked_for_by_name_runs_or_is_an_error(model):
    assert Forward(model._replace(attention="xla")).attention == "xla"
    with pytest.raises(InputError, match=r"--attention=cudnn cannot be used here: .* float32; leave the flag out"):
        Forward(model._replace(attention="cudnn"))


def test_as_many_programs_as_row_lengths_and_none_for_a_second_plan(model):
    forward = Forward(model, token_budget=256)
    cost = replace(cost_model(model.config), length_multiple=16, flops_per_program=1e6)
    plan = make_plan(some_requests(5), cost)
    list(forward.run(plan))
    assert forward.speed.programs == len(set(plan.row_length.tolist())) <= cost.max_lengths
    again = make_plan(some_requests(6), replace(cost, max_lengths=len(forward.lengths)), forward.lengths)
    list(forward.run(again))
    assert forward.speed.programs == len(forward.lengths)


@pytest.mark.parametrize("num_batches", [1, 3])
def test_id_sets_are_summed_before_the_span(model: Model, num_batches: int):
    """Equal tokens with different sets are different questions; the sum equals that of the members scored one by one."""
    requests = some_requests(3, groups=4)
    rng = np.random.default_rng(0)
    id_sets = [rng.choice(331, size, replace=False) for size in (1, 7, 331, 20, 2)]
    id_set = rng.integers(-1, len(id_sets), len(requests)).astype(np.int32)
    both = concatenate([replace(requests, id_set=id_set), replace(requests, id_set=id_set[::-1].copy())])
    batches = [select(both, batch) for batch in np.array_split(np.arange(len(both)), num_batches)]
    cost = replace(cost_model(model.config), length_multiple=16, flops_per_program=1e6)
    forward = Forward(model, token_budget=256, id_sets=id_sets)
    scored = list(score_request_batches(iter(batches), forward, cost, Totals(), SelfCheck(TOLERANCE["float32"])))
    set_logprob = np.concatenate([scores.set_logprob for scores in scored])
    assert both.id_set is not None
    for r, index in enumerate(both.id_set.tolist()):
        ids, start = both.tokens(r), int(both.span_start[r])
        if index < 0 or start == len(ids):
            assert set_logprob[r] == 0
            continue
        members = [np.asarray([*ids[:start], v], np.int32) for v in id_sets[index]]
        plain, _ = score_plainly(model, members, [start] * len(members))
        assert abs(set_logprob[r] - np.logaddexp.reduce([float(p.logprob[0]) for p in plain])) < TOKEN


def test_more_asks_than_places(model: Model):
    """Forty tokens after one context, each with three sets: 120 id-set queries at one node of a row of 64."""
    items = [([0, 5, 9, token], 3) for token in range(10, 50) for _ in range(3)]
    requests = replace(requests_of(items), id_set=np.tile(np.arange(3, dtype=np.int32), 40))
    forward = Forward(model, token_budget=64, id_sets=[np.asarray(ids) for ids in ([1], [1, 2], [7, 8, 9])])
    [scores] = score_request_batches(
        iter([requests]), forward, cost_model(model.config), Totals(), SelfCheck(TOLERANCE["float32"])
    )
    assert len(set(scores.set_logprob.tolist())) == 3


@pytest.mark.parametrize(
    ("count", "full", "rows"), [(32, 5, 4), (39, 4, 3), (40, 4, 4), (3, 5, 3), (11, 3, 3), (7, 1, 1)]
)
def test_batches_leave_few_rows_empty(count: int, full: int, rows: int):
    row_length = np.full(count, 16)
    assert rows_a_batch(row_length, 1, full * 16 + 5, more=False) == {16: rows}


def test_batches_of_a_part_before_others_are_what_each_shard_gets():
    row_length = np.repeat([512, 2048], [600, 150])
    assert rows_a_batch(row_length, 1, 8192, more=True) == {512: 16, 2048: 4}
    assert rows_a_batch(row_length, 75, 8192, more=True) == {512: 8, 2048: 2}
    assert rows_a_batch(row_length, 1000, 8192, more=True) == {512: 1, 2048: 1}


def test_out_of_memory_halves_the_batch_and_goes_on(model, monkeypatch):
    requests = some_requests(7)
    plan = make_plan(requests, replace(cost_model(model.config), max_lengths=1, length_multiple=16))
    expected = {int(e): p for s in Forward(model, 1024).run(plan) for e, p in zip(s.edges, s.logprob, strict=True)}
    lines: list[str] = []
    forward = Forward(model, 1024, Lines(lines.append))
    real: Callable[[Shape], Any] = forward._program
    rows_at_first = max(rows_a_batch(plan.row_length, 1, 1024, more=False).values())

    def refuse_large(shape: Shape) -> Any:
        program = real(shape)
        if (
            shape.rows <= rows_at_first // 4 or not lines
        ):  # `lines` is empty until the ahead-of-time compilation is over
            return program

        def run(*_: Any) -> Any:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory left")

        return run

    monkeypatch.setattr(forward, "_program", refuse_large)
    scores = {int(e): p for s in forward.run(plan) for e, p in zip(s.edges, s.logprob, strict=True)}
    assert forward.speed.halvings == 2
    assert sum("out of memory" in line for line in lines) == 2
    assert scores.keys() == expected.keys()
    assert max(abs(scores[e] - expected[e]) for e in expected) < TOKEN


def test_other_device_errors_are_not_swallowed(model, monkeypatch):
    forward = Forward(model, 256)

    def broken(*_: Any) -> Any:
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    plan = make_plan(some_requests(), cost_model(model.config))
    forward.compile(plan)
    monkeypatch.setattr(forward, "_program", lambda shape: broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        list(forward.run(plan))


def test_the_self_check_fails_on_a_wrong_score(model):
    [batch] = plan_request_batches([some_requests()], cost_model(model.config), Totals())
    scores = score_all(model, batch.fresh)
    wrong = replace(scores, logprob=scores.logprob + np.float32(0.01))
    with pytest.raises(SelfCheckFailed, match="differs by"):
        SelfCheck(TOLERANCE["float32"]).compare(model, batch, wrong)
    broken = replace(scores, logprob=np.full_like(scores.logprob, np.nan))
    with pytest.raises(SelfCheckFailed, match="nan"):
        SelfCheck(TOLERANCE["float32"]).compare(model, batch, broken)
    misranked = replace(scores, rank=np.where(scores.rank == 0, 1, 0))
    with pytest.raises(SelfCheckFailed, match="contradicts"):
        SelfCheck(TOLERANCE["float32"]).compare(model, batch, misranked)


def test_a_model_that_answers_nan_passes_the_self_check_and_is_left_to_the_metrics(model):
    nan = jax.tree.map(lambda leaf: leaf * jnp.nan, model.state)
    scores = score_all(Model(model.config, model.graphdef, nan), some_requests(0, 2))
    assert np.isnan(scores.logprob).all()


def test_a_long_run_keeps_to_its_programs(model, monkeypatch):
    # Five batches whose requests grow; three lengths are expected, and the last batch has one request beyond them.
    monkeypatch.setattr("miron_jax.planning.request_batches.REQUEST_BATCH_TOKENS", 1)
    rng = np.random.default_rng(4)
    sizes = [(20, 60), (60, 110), (100, 160), (150, 200), (200, 250)]
    batches = [
        requests_of([([0, *rng.integers(1, 331, n).tolist()], n) for n in rng.integers(low, high, 12)])
        for low, high in sizes
    ]
    cost = replace(cost_model(model.config), length_multiple=8, flops_per_program=0.0, max_lengths=4)
    forward, check = Forward(model, token_budget=512), SelfCheck(TOLERANCE["float32"])
    scored = list(score_request_batches(iter(batches), forward, cost, Totals(), check, lengths=(64, 128, 200)))
    assert [len(scores) for scores in scored] == [12] * 5
    assert forward.speed.programs <= 4


def test_bfloat16_stays_within_its_stated_tolerance(tmp_path: Path):
    folder = make_model(tmp_path)
    requests = some_requests(2)
    exact = score_all(load_model(folder, "float32"), requests).logprob
    rounded = score_all(load_model(folder, "bfloat16"), requests, dtype="bfloat16").logprob
    assert 0 < np.abs(exact - rounded).max() < TOLERANCE["bfloat16"]


def test_useful_flops_by_hand(model):
    # Request B q a: two nodes, pairs 1 + 2, one parent.  Layer: q 24x24, k and v 24x8, out 24x24, three of 24x40.
    plan = make_plan(requests_of([([0, 5, 7], 2)]), cost_model(model.config))
    weights = 2 * (24 * 24 + 2 * 24 * 8 + 24 * 24 + 3 * 24 * 40)
    assert useful_flops(model.config, plan) == 2 * weights * 2 + (4 * 3 * 8 * 2) * 3 + 2 * 24 * 331


def test_backend_flag_is_set_where_it_applies():
    import os

    import jaxlib.version

    version = tuple(map(int, jaxlib.version.__version__.split(".")[:3]))
    applies = (0, 10, 2) <= version < (0, 12)
    assert ("--xla_cpu_experimental_ynn_fusion_type=" in os.environ.get("XLA_FLAGS", "")) == applies


def test_the_miscompiled_sum_of_jax_39103_is_right_here():
    # A vmapped matrix-vector product summed: 8 x 128 x 128 ones, exactly 2^17 with sound fusions.
    matrix, vectors = jnp.ones((8, 128, 128)), jnp.ones((8, 128))
    total = jax.jit(lambda a, b: jax.vmap(jnp.matmul)(a, b).sum())(matrix, vectors)
    assert float(total) == 8 * 128 * 128
