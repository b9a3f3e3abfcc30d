"""What the self-check chooses, and faults of the engine that lie in one program or one row only."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from miron_jax.engine import forward as forward_module
from miron_jax.engine.batches import Arrays, Batch, Shape, assemble
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import load_model
from miron_jax.engine.plain import PlainScore, PlainShape, by_shape
from miron_jax.engine.records import Scores
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import (
    CHECKED_AT_LEAST,
    CHECKED_UP_TO,
    LOGIT_SHARE,
    TOLERANCE,
    SelfCheck,
    SelfCheckFailed,
    chosen_requests,
)
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


def test_masked_tokens_do_not_widen_the_bound() -> None:
    """1/32 of the largest logit less the mean, of those that are not masked: (80 - 20) / 32 = 1.875."""
    check = SelfCheck(TOLERANCE["bfloat16"], LOGIT_SHARE)
    for masked in (-1e4, -1e9, -np.inf):
        size = logit_size(np.asarray([[80.0, 0.0, -20.0, masked], [1.0, 0.0, 0.0, masked]], np.float32))
        plain = PlainScore(np.zeros(2), np.zeros(2), np.asarray(size), np.zeros(()))
        assert check.bound([plain]) == 1.875
    broken = np.asarray([np.nan, np.inf], np.float32)
    assert check.bound([plain._replace(logit_size=broken)]) == TOLERANCE["bfloat16"]
    assert check.largest_bound == 1.875
    assert SelfCheck(TOLERANCE["float32"]).bound([plain]) == TOLERANCE["float32"]


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
    if groups == 400:  # large enough that a twentieth of its tokens pays for the rows of each length
        assert places_of(batch, chosen) == places_of(batch, np.flatnonzero(plan.request_row >= 0).tolist())
        assert num_tokens[chosen].sum() <= plan.unique_tokens / 10


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


def test_requests_too_long_for_dense_attention_are_chosen_by_their_digests_alone() -> None:
    rng = np.random.default_rng(0)
    items = [(rng.integers(1, 331, length).tolist(), length - 2) for length in (CHECKED_UP_TO + 1, *[20] * 300)]
    batch = planned(requests_of(items))
    assert 0 not in chosen_requests(batch)
    few = planned(requests_of(items[:3]))
    assert sorted(chosen_requests(few)) == [0, 1, 2]


def test_a_plain_program_is_added_where_it_saves_slots() -> None:
    for num_tokens, parts in (
        ([10, 11, 12, 90], [[0, 1, 2, 3]]),  # one program for 4 x 90 slots
        ([100, 110, 120, 2000], [[3], [0, 1, 2]]),  # 2,000 + 3 x 120 slots and a program, not 4 x 2,000 slots
        ([8000, 100, 120, 7990, 4000, 4000], [[3, 0], [4, 5], [1, 2]]),  # 4,000 more slots a row pay for each program
        ([700, 100], [[1, 0]]),
        ([5], [[0]]),
        ([], []),
    ):
        shapes = by_shape(num_tokens, [n - 3 for n in num_tokens])
        assert [part for part, _ in shapes] == parts, num_tokens
        assert [shape for _, shape in shapes] == [PlainShape(max(num_tokens[i] for i in part), 3) for part in parts]
