"""What the self-check chooses, and faults of the engine that lie in one program or one row only."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from miron_jax.engine import forward as forward_module
from miron_jax.engine import plain as plain_module
from miron_jax.engine import self_check
from miron_jax.engine.batches import Arrays, Batch, Shape, assemble
from miron_jax.engine.checked_requests import (
    CHECKED_AT_LEAST,
    CHECKED_UP_TO,
    COST_SHARE,
    PLAIN_PRICE,
    CheckedRequests,
)
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model, load_model
from miron_jax.engine.plain import PlainRow, PlainScore, moved_by_rounding, plain_length
from miron_jax.engine.records import Score, Scores
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import LOGIT_SHARE, TOLERANCE, SelfCheck
from miron_jax.errors import SelfCheckFailed
from miron_jax.model.config import RopeClasses
from miron_jax.model.costs import cost_model
from miron_jax.model.network import logit_size
from miron_jax.planning.records import CostModel, Plan
from miron_jax.planning.request_batches import RequestBatch, Totals, plan_request_batches, select
from miron_jax.tokens.records import Requests
from tests.support.plan_check import COST
from tests.support.requests import requests_of, some_requests
from tests.support.tiny_model import make_model

LENGTHS = (48, 80, 112)
ID_SETS = [np.asarray(ids, np.int32) for ids in ([7], [1, 2, 3], list(range(40, 90)))]


def planned(requests: Requests, lengths: tuple[int, ...] = (), cost: CostModel = COST) -> RequestBatch:
    [batch] = plan_request_batches([requests], cost, Totals(), lengths, ID_SETS)
    return batch


def chosen_requests(batch: RequestBatch, least_flops: float = math.inf) -> list[int]:
    return CheckedRequests(COST, least_flops).choose(batch)


Fault = Callable[[Arrays[np.ndarray], int], None]  # writes into the arrays of a batch with this many rows


def leak(arrays: Arrays[np.ndarray], num_rows: int) -> None:
    """Every node sees all nodes before it."""
    arrays.subtree_end_BT[:] = arrays.subtree_end_BT.shape[1]


def slot_for_position(arrays: Arrays[np.ndarray], num_rows: int) -> None:
    arrays.position_BT[:] = np.arange(arrays.position_BT.shape[1])


def spoil(arrays: Arrays[np.ndarray], row: int) -> None:
    arrays.token_ids_BT[row, 1:] = arrays.token_ids_BT[row, 1:] % 330 + 1


FAULTS: dict[str, Fault] = {
    "the mask leaks": leak,
    "the slot is the position": slot_for_position,
    "the first row has other tokens": lambda arrays, num_rows: spoil(arrays, 0),
    "the second row has other tokens": lambda arrays, num_rows: spoil(arrays, min(1, num_rows - 1)),
    "the last row has other tokens": lambda arrays, num_rows: spoil(arrays, num_rows - 1),
}


class Engine(NamedTuple):
    forward: Forward
    dtype: str
    is_peaked: bool

    def scored(self) -> tuple[SelfCheck, list[Scores]]:
        requests, model = some_requests(groups=40), self.forward.model
        id_set = np.random.default_rng(0).integers(-1, len(ID_SETS), len(requests)).astype(np.int32)
        batches, cost = [replace(requests, id_set=id_set)], cost_model(model.config)
        check = SelfCheck.of(model.config, model.state, self.dtype)
        scores = score_request_batches(batches, self.forward, cost, Totals(), check, lengths=LENGTHS)
        return check, list(scores)


@pytest.fixture(scope="module", params=[*TOLERANCE, "bfloat16, logits up to 93"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Logits are up to 9.3; ten times as large ones are as wrong in bfloat16, in units of their last place."""
    dtype, _, peaked = request.param.partition(", ")
    folder = make_model(tmp_path_factory.mktemp("tiny"), width=48)
    if peaked:
        tensors = load_file(folder / "model.safetensors")
        tensors["model.norm.weight"] *= np.float32(10)
        save_file(tensors, folder / "model.safetensors")
    return Engine(Forward(load_model(folder, dtype), token_budget=1024, id_sets=ID_SETS), dtype, bool(peaked))


def test_a_right_engine_passes(engine: Engine) -> None:
    check, _ = engine.scored()
    assert CHECKED_AT_LEAST <= check.requests <= 30
    assert check.programs == 1
    assert check.largest < check.largest_bound / 2
    assert (check.largest > TOLERANCE["bfloat16"]) == (check.largest_bound > 2) == engine.is_peaked
    if engine.dtype == "float32":
        assert check.largest_bound == TOLERANCE["float32"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_right_engine_with_logits_of_10_000_passes_and_a_faulty_one_fails(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_model(tmp_path / "tiny", width=48)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] *= np.float32(1000)
    save_file(tensors, folder / "model.safetensors")
    engine = Engine(Forward(load_model(folder, dtype), token_budget=1024, id_sets=ID_SETS), dtype, True)
    check, _ = engine.scored()
    assert TOLERANCE[dtype] < check.largest < check.largest_bound
    test_a_fault_in_rows_of_one_length_fails_the_run(engine, monkeypatch, 80, "the mask leaks")


def test_masked_tokens_do_not_widen_the_bound() -> None:
    """1/32 of the largest logit less the mean, of those that are not masked: (80 - 20) / 32 = 1.875."""
    check = SelfCheck(TOLERANCE["bfloat16"], LOGIT_SHARE["bfloat16"])
    for masked in ([-1e4], [-1e9], [-np.inf], [-1e9] * 90, [-np.inf] * 90, [-3e38] * 90):
        size = logit_size(np.asarray([[80.0, 0.0, -20.0, *masked], [1.0, 0.0, 0.0, *masked]], np.float32))
        assert check.bounds(np.zeros(2), np.asarray(size)).tolist() == [1.875, TOLERANCE["bfloat16"]]
    broken = np.asarray([np.nan, np.inf], np.float32)
    for logprob in (0.0, -np.inf, np.nan):
        assert check.bounds(np.full(2, logprob), broken).tolist() == [TOLERANCE["bfloat16"]] * 2
    assert check.largest_bound == 1.875


def test_the_bound_follows_logits_of_any_size() -> None:
    """The mean of 0 to -n is n / 2 below the largest, that of their upper half n / 4."""
    check = SelfCheck(TOLERANCE["float32"], LOGIT_SHARE["float32"])
    for scale in (1e4, 1e30):
        size = np.asarray(logit_size(np.linspace(-scale, 0, 101, dtype=np.float32)[None]))
        assert scale * 2**-18 <= check.bounds(np.zeros(1), size)[0] <= scale * 2**-17
    assert logit_size(np.full((1, 7), np.nan, np.float32)).tolist() == pytest.approx([np.nan], nan_ok=True)
    assert check.bounds(np.asarray([-1e9]), np.zeros(1)).tolist() == [256.0]  # 4 times 64, float32's step there


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_peaked_request_hides_no_fault_beside_it(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are 8 and 8e5: 0.5 % of the large one is no fault in bfloat16, and 0.5 nats of the small one are."""
    sizes, small = (np.asarray([8e5, 8e5]), np.asarray([8.0, 8.0])), 5e-3 if dtype == "bfloat16" else 5e-6
    zeros, rank = np.zeros(2), np.zeros(2, np.int32)
    plain = [PlainRow(2, (*map(jnp.asarray, (zeros, zeros, size, 0.0)),)) for size in sizes]
    monkeypatch.setattr(self_check, "launch_plainly", lambda *_: plain)
    no_lengths = SimpleNamespace(lengths_of=lambda ids: [0] * len(ids))
    monkeypatch.setattr(SelfCheck, "_checked_of", lambda *_: no_lengths)
    monkeypatch.setattr(self_check, "moved_by_rounding", lambda *_: np.zeros(2))
    requests = [(np.zeros(3, np.int32), 1)] * 2
    peaked = Score(np.asarray([small * 8e5, 0.0]), rank)
    for by_median in (False, True):
        check = SelfCheck(TOLERANCE[dtype], LOGIT_SHARE[dtype], by_median)
        check.compare_with(cast("Model", None), requests, [peaked, Score(zeros, rank)], ["peaked", "small"])
        faulty = Score(np.asarray([0.0, 0.5]), rank)
        if not by_median:
            with pytest.raises(SelfCheckFailed, match=r"small .* differs by 0.5 nats"):
                check.compare_with(cast("Model", None), requests, [peaked, faulty], ["peaked", "small"])
    faulty = Score(np.asarray([0.5, 0.5]), rank)
    with pytest.raises(SelfCheckFailed, match=r"the median of the checked tokens differs by 0.5 nats"):
        check.compare_with(cast("Model", None), requests, [peaked, faulty], ["peaked", "small"])
    empty = PlainRow(0, (*map(jnp.asarray, (zeros, zeros, zeros, 0.0)),))
    monkeypatch.setattr(self_check, "launch_plainly", lambda *_: [empty])
    SelfCheck(TOLERANCE[dtype]).compare_with(cast("Model", None), requests[:1], [Score(zeros[:0], rank[:0])], ["none"])


@pytest.mark.parametrize(
    ("dtype", "moved", "passes"), [("bfloat16", 0.21, True), ("bfloat16", 0.19, False), ("float32", 9.0, False)]
)
def test_a_token_that_rounding_moves_may_differ_by_three_times_that(
    dtype: str, moved: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It differs by 0.6 nats; the token before it by nothing."""
    zeros, rank = np.zeros(2), np.zeros(2, np.int32)
    monkeypatch.setattr(
        self_check, "launch_plainly", lambda *_: [PlainRow(2, (*map(jnp.asarray, (zeros, zeros, zeros, 0.0)),))]
    )
    monkeypatch.setattr(self_check, "moved_by_rounding", lambda *_: np.asarray([0.0, moved]))
    monkeypatch.setattr(SelfCheck, "_checked_of", lambda *_: SimpleNamespace(lengths_of=lambda ids: [0] * len(ids)))
    check = SelfCheck(TOLERANCE[dtype], LOGIT_SHARE[dtype])
    arguments = cast("Model", None), [(np.zeros(3, np.int32), 1)], [Score(np.asarray([0.0, 0.6]), rank)], ["sensitive"]
    if passes:
        return check.compare_with(*arguments)
    with pytest.raises(SelfCheckFailed, match=r"differs by 0\.6 nats"):
        check.compare_with(*arguments)


def test_rounding_moves_a_model_of_ten_times_the_logits_ten_times_as_far(tmp_path: Path) -> None:
    ids, moved = np.asarray([3, 5, 7, 9], np.int32), []
    for factor in (1, 10):
        folder = make_model(tmp_path / str(factor), width=48)
        tensors = load_file(folder / "model.safetensors")
        tensors["model.norm.weight"] *= np.float32(factor)
        save_file(tensors, folder / "model.safetensors")
        model = load_model(folder, "bfloat16")
        moved.append(moved_by_rounding(model, ids, 1, 64, np.zeros(0, np.int32)))
        with_set = moved_by_rounding(model, ids, 1, 64, np.arange(9, dtype=np.int32))
        assert with_set[:3].tolist() == moved[-1].tolist()
        assert with_set.shape == (4,)
    small, large = (each.mean() for each in moved)
    assert 0 < small < TOLERANCE["bfloat16"]
    assert 3 < large / small < 30


def test_a_masked_token_is_moved_by_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Infinity less infinity is no number."""
    zeros = jnp.zeros(2)
    row = PlainRow(2, (jnp.asarray([-jnp.inf, 0.0]), zeros, zeros, jnp.asarray(0.0)))
    monkeypatch.setattr(plain_module, "launch_plainly", lambda *_: [row])
    model = load_model(make_model(tmp_path / "tiny", width=48), "bfloat16")
    assert moved_by_rounding(model, np.asarray([3, 5, 7], np.int32), 1, 64, np.zeros(0, np.int32)).tolist() == [
        0.0,
        0.0,
    ]


def test_plain_programs_are_kept_for_later_weights_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network of a user's is part of a program's key, and may hold its weights."""
    monkeypatch.setattr(plain_module, "MOST_PROGRAMS", 2)
    monkeypatch.setattr(plain_module, "PROGRAMS", {})
    model = load_model(make_model(tmp_path / "tiny", width=48), "float32")
    lengths = []
    for num_tokens in (3, 70, 3, 130, 3):
        plain_module.score_plainly(model, [np.arange(num_tokens, dtype=np.int32)], [1])
        lengths.append([key[-2] for key in plain_module.PROGRAMS])
    assert lengths == [[64], [64, 128], [64, 128], [128, 192], [192, 64]]


@pytest.mark.parametrize("wrong", [(0, 0, 0.01), (1, 1, 0.002), (1, 0, np.nan), (2, 2, 0.02)])
def test_a_wrong_entropy_or_largest_probability_is_noticed(wrong: tuple[int, int, float]) -> None:
    """An entropy may differ by eight times what a log-probability may, a variance of 4 by 18 times; NaN only where both
    have it."""
    right = np.asarray([[5.0, -1.0, 4.0], [3.0, -2.0, 1.0], [0.0, 0.0, 4.0]])
    zeros, rank, check = np.zeros(3), np.zeros(3, np.int32), SelfCheck(TOLERANCE["float32"])
    plain, nothing = PlainScore(zeros, zeros, zeros, np.zeros(()), right), lambda: np.zeros(3)
    check._judge_distribution(Score(zeros, rank, 0.0, right + np.asarray([[5e-3, 5e-4, 5e-3]])), plain, "near", nothing)
    token, column, by = wrong
    faulty = right.copy()
    faulty[token, column] += by
    with pytest.raises(
        SelfCheckFailed, match=r"faulty has an entropy, largest log-probability or variance that differs"
    ):
        check._judge_distribution(Score(zeros, rank, 0.0, faulty), plain, "faulty", nothing)


@pytest.mark.parametrize(
    ("length", "fault"),
    [
        *((length, fault) for length in LENGTHS for fault in FAULTS if "tokens" in fault),
        (80, "the mask leaks"),
        (112, "the mask leaks"),
        (80, "the slot is the position"),  # in the other rows a text has no node that is moved away from its beginning
    ],
)
def test_a_fault_in_rows_of_one_length_fails_the_run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, length: int, fault: str
) -> None:
    def faulty(plan: Plan, rows: list[int], shape: Shape) -> Batch:
        batch = assemble(plan, rows, shape)
        if shape.length == length:
            FAULTS[fault](shape.unpack(batch.packed[0]), len(rows))
        return batch

    monkeypatch.setattr(forward_module, "assemble", faulty)
    with pytest.raises(SelfCheckFailed, match="differs by"):
        engine.scored()


def test_a_wrong_sum_over_id_sets_fails_the_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(plan: Plan, rows: list[int], shape: Shape) -> Batch:
        batch = assemble(plan, rows, shape)
        query_set_A = shape.unpack(batch.packed[0]).query_set_A
        query_set_A[:] = (query_set_A + 1) % len(ID_SETS)
        return batch

    monkeypatch.setattr(forward_module, "assemble", faulty)
    with pytest.raises(SelfCheckFailed, match="differs by"):
        engine.scored()


def places_of(batch: RequestBatch, requests: list[int]) -> set[tuple[int, str]]:
    """(row length, first, second or last row of it) of these requests."""
    places = set[tuple[int, str]]()
    for row in batch.plan.request_row[requests].tolist():
        length = int(batch.plan.row_length[row])
        rows = np.flatnonzero(batch.plan.row_length == length).tolist()
        names = {rows[0]: "first"}, {rows[min(1, len(rows) - 1)]: "second"}, {rows[-1]: "last"}
        places |= {(length, name) for place in names for of_row, name in place.items() if of_row == row}
    return places


@pytest.mark.parametrize(("groups", "lengths"), [(4, ()), (12, ()), (40, LENGTHS), (400, ()), (400, LENGTHS)])
def test_every_program_and_the_first_second_and_last_rows_are_checked(groups: int, lengths: tuple[int, ...]) -> None:
    batch = planned(some_requests(groups=groups), lengths)
    chosen, plan = chosen_requests(batch), batch.plan
    assert len(set(chosen)) == len(chosen)
    assert {length for length, _ in places_of(batch, chosen)} == set(plan.row_length.tolist())
    assert {name for _, name in places_of(batch, chosen)} == {"first", "second", "last"}
    num_tokens = np.diff(batch.fresh.offsets)
    assert num_tokens[chosen].max() == num_tokens[np.diff(plan.request_edge_offset) > 0].max(), "the longest"
    if groups == 400:
        assert places_of(batch, chosen) == places_of(batch, np.flatnonzero(plan.request_row >= 0).tolist())


def test_the_choice_hangs_on_plan_and_digests_alone() -> None:
    """The same requests in another order are the same rows, and the same ones of them are checked."""
    requests = some_requests(groups=40)
    first = planned(requests)
    turned = planned(select(requests, np.arange(len(requests))[::-1]))
    digests = [sorted(batch.digests[r] for r in chosen_requests(batch)) for batch in (first, turned)]
    assert digests[0] == digests[1]


def test_id_sets_and_rope_classes_are_checked_in_every_length() -> None:
    requests = some_requests(groups=40)
    id_set = np.where(np.arange(len(requests)) % 50 == 7, 0, -1).astype(np.int32)
    batch = planned(replace(requests, id_set=id_set), cost=replace(COST, length_class=RopeClasses(40, True).class_of))
    plan = batch.plan

    def kinds(some: list[int]) -> set[tuple[int, bool, bool]]:
        length, is_long = plan.row_length[plan.request_row[some]], np.diff(batch.fresh.offsets)[some] > 40
        return set(zip(length.tolist(), (plan.request_query[some] >= 0).tolist(), is_long.tolist(), strict=True))

    every = kinds(np.flatnonzero(plan.request_row >= 0).tolist())
    assert len(every) > 4
    assert kinds(chosen_requests(batch)) == every


def test_a_request_beside_siblings_is_checked_where_all_others_are_alone() -> None:
    items = [([first, *range(400, 410 + (first == 1))], 8) for first in range(1, 300)]  # the first one is the longest
    pair = [([300, 500, 501, *range(branch, branch + 5)], 3) for branch in (600, 700)]
    batch = planned(requests_of([*items, *pair]), lengths=(4096,))
    assert set(batch.plan.row_length.tolist()) == {4096}
    second = max(299, 300, key=lambda r: int(batch.plan.request_edge[batch.plan.request_edge_offset[r]]))
    assert second in chosen_requests(batch), "its row has a branch before it that it must not see"


def test_requests_too_long_for_dense_attention_are_checked_where_there_are_no_others() -> None:
    rng = np.random.default_rng(0)
    items = [(rng.integers(1, 331, length).tolist(), length - 2) for length in (CHECKED_UP_TO + 1, *[20] * 300)]
    assert 0 not in chosen_requests(planned(requests_of(items)))
    assert sorted(chosen_requests(planned(requests_of(items[:3])))) == [1, 2]
    assert chosen_requests(planned(requests_of(items[:1]))) == [0]


def test_a_short_run_checks_the_longest_and_the_one_with_most_row_mates() -> None:
    """The longest takes a row of 96 slots; another holds 24 requests of four nodes."""
    rng = np.random.default_rng(0)
    items = [(rng.integers(1, 331, length).tolist(), length - 1) for length in (97, *[5] * 24)]
    batch = planned(requests_of(items), (96,))
    assert np.bincount(batch.plan.request_row).tolist() in ([1, 24], [24, 1])
    chosen = chosen_requests(batch, float(COST_SHARE * COST.rows_of(batch.plan).sum()))
    assert len(chosen) == 2
    assert chosen[0] == 0
    slots = batch.plan.edge_parent[batch.plan.request_edge]
    assert slots[chosen[1]] == slots[1:].max(), "the last of its row sees whatever it must not see"


@pytest.mark.parametrize(("together", "processes"), [(1, 1), (4, 1), (1, 3), (4, 3)])
def test_a_long_run_pays_a_tenth_of_its_time_for_the_check(together: int, processes: int) -> None:
    """Batches of a run share it: what the first leaves is there for the second.  A call's other rows cost nothing."""
    rng = np.random.default_rng(0)
    lengths = [2000, *rng.integers(20, 300, 600).tolist()]
    batch = planned(requests_of([(rng.integers(1, 331, n).tolist(), n - 2) for n in lengths]))
    choice = CheckedRequests(COST, 1e-9, together=together, processes=processes)
    price, devices = 0.0, together * processes
    for _ in range(2):
        chosen = choice.choose(batch)
        num_tokens = np.diff(batch.fresh.offsets)[chosen]
        assert len(chosen) >= CHECKED_AT_LEAST
        assert choice.spent <= COST_SHARE * choice.planned
        assert num_tokens[0] == num_tokens.max()
        calls = Counter(choice.lengths_of(num_tokens.tolist()))
        price += PLAIN_PRICE["cpu"] * sum(COST.row(length) * -(-count // together) for length, count in calls.items())
    assert choice.planned == pytest.approx(2 * COST.rows_of(batch.plan).sum() / devices)
    assert choice.spent == pytest.approx(price)


@pytest.mark.parametrize(
    ("num_chosen", "together", "expected"),
    [(1, 1, 1), (3, 1, 2), (8, 1, 2), (21, 1, 6), (20, 4, 8), (8, 4, 4), (8, 16, 8)],
)
def test_later_weights_check_a_part_in_turn_which_fills_the_devices(
    num_chosen: int, together: int, expected: int
) -> None:
    choice = CheckedRequests(COST, together=together)
    parts = [choice.later([*range(num_chosen)], turn) for turn in range(1, 5)]
    assert [*map(len, parts)] == [expected] * 4
    assert {r for part in parts for r in part} == {*range(num_chosen)}, "all of them in four turns"


def test_a_run_has_two_plain_programs() -> None:
    """The second is for rows of a quarter; what is a little longer than the first is left out."""
    rng = np.random.default_rng(0)

    def batch_of(longest: int) -> RequestBatch:
        lengths = [longest, *rng.integers(20, 300, 600).tolist()]
        return planned(requests_of([(rng.integers(1, 331, n).tolist(), n - 2) for n in lengths]))

    program = COST.row(2048)
    choice = CheckedRequests(replace(COST, flops_per_program=float(program)), float(20 * program))
    for longest in (2000, 2500, 300):
        chosen = choice.choose(batch_of(longest))
        assert len(chosen) >= CHECKED_AT_LEAST
        assert choice.lengths == {2048, 512}
    choice.choose(batch_of(4097))
    assert choice.lengths == {2048, 512, 4160}, "but not what is twice as long: a session's next texts"
    assert choice.lengths_of([20, 512, 513, 4100]) == [512, 512, 2048, 4160]
    alone = CheckedRequests(replace(COST, flops_per_program=1e99))
    alone.choose(batch_of(2000))
    assert alone.lengths == {2048}
    assert [plain_length(n, 96) for n in (5, 90, 100)] == [64, 96, 100], "as many positions as are learned"
