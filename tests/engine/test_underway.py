"""The order of launches and reads of several request batches, counted on a fake device."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from miron_jax.engine import self_check, underway
from miron_jax.engine.batches import Shape
from miron_jax.engine.forward import IN_FLIGHT, Forward, Rows
from miron_jax.engine.model import Model, load_model
from miron_jax.engine.plain import PlainRow
from miron_jax.engine.records import Score, Scores
from miron_jax.engine.scores import _DistinctScores, score_planned
from miron_jax.engine.self_check import SelfCheck, Unchecked
from miron_jax.files.store import Store
from miron_jax.model.costs import cost_model
from miron_jax.planning.plan import Plan
from miron_jax.planning.request_batches import Totals, plan_request_batches
from miron_jax.runtime.journal import Journal
from tests.support.requests import some_requests
from tests.support.tiny_model import make_model


class FakeDevice(Forward):
    """Runs programs in the order of their launches, each one when its results are asked for."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, token_budget=256)
        self.launched: list[Plan] = []  # of each program
        self.num_read = 0
        self.queue_at_reads: list[int] = []  # programs that wait behind the one that is read
        self.yielded: list[Plan] = []
        self.launched_at_yields: list[int] = []

    @property
    def num_underway(self) -> int:
        return len({id(plan) for plan in self.launched} - {id(plan) for plan in self.yielded})

    @property
    def queue(self) -> int:
        return len(self.launched) - self.num_read

    def outputs(self, plan: Plan, *values: np.ndarray) -> tuple[Any, ...]:
        """Launch a program with these results."""
        self.launched.append(plan)
        assert self.num_underway <= 2
        return tuple(Output(self, len(self.launched), each) for each in values)

    def launch_plainly(self, _: Model, ids: Sequence[Any], firsts: Sequence[int], *__: Any) -> Iterator[PlainRow]:
        for tokens, first in zip(ids, firsts, strict=True):
            zeros = np.zeros(len(tokens))
            yield PlainRow(len(tokens) - first, self.outputs(self.launched[-1], zeros - 1, zeros, zeros, np.zeros(())))

    def _launch(self, rows: Rows, shape: Shape) -> Any:
        self.plan = rows.plan
        return super()._launch(rows, shape)

    def compile_in_turn(self, plan: Plan, more: bool = False, rows: np.ndarray | None = None) -> None:
        assert not (self.queue and self.lengths_to_compile(plan, more, rows)), "the device works while room is measured"
        super().compile_in_turn(plan, more, rows)

    def _fit(self, length: int, room: Any, free: int) -> float:
        self._program(self._shape(length, room))
        return 0.0

    def _program(self, shape: Shape) -> Any:
        def program(*_: Any) -> tuple[Any, ...]:
            return self.outputs(self.plan, np.full(shape.slots, -1.0), np.zeros(shape.slots, np.int32), np.zeros(0))

        return self.programs.setdefault(shape, program)  # type: ignore[arg-type]


class Output:
    def __init__(self, device: FakeDevice, number: int, values: np.ndarray) -> None:
        self.device, self.number, self.values = device, number, values

    def copy_to_host_async(self) -> None: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.device.num_read < self.number:
            self.device.num_read += 1
            assert self.number == self.device.num_read, "results are read in the order of launches"
            self.device.queue_at_reads.append(self.device.queue)
        return self.values


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(make_model(tmp_path_factory.mktemp("tiny")), "float32")


def scored(model: Model, parts: list[Any], patch: pytest.MonkeyPatch, journal: Journal | None = None) -> FakeDevice:
    """The device after all parts; the self-check's plain rows run on it too, as on an accelerator."""
    cost = replace(cost_model(model.config), length_multiple=16, flops_per_program=1e6)
    device = FakeDevice(model)
    patch.setattr(self_check, "launch_plainly", device.launch_plainly)
    patch.setattr(
        self_check,
        "_placement_of",
        lambda _: SimpleNamespace(device=SimpleNamespace(platform="gpu"), row_places=(1, 1)),
    )
    patch.setattr(self_check, "in_thread", lambda _: SimpleNamespace(result=lambda: None))
    num_settled = 0

    def settle() -> None:
        nonlocal num_settled
        num_settled += 1
        assert device.num_underway <= 1, "a part begins before the scores of the one before the last are taken"

    planned = plan_request_batches(iter(parts), cost, Totals(), (64, 128))
    check = SelfCheck(1e-3)
    for batch, _ in score_planned(planned, device, check, journal=journal, settle=settle):
        device.yielded.append(batch.plan)
        device.launched_at_yields.append(len(device.launched))
        is_last = len(device.yielded) == len(parts)
        assert device.queue == IN_FLIGHT or is_last or journal, "the device waits for metrics"
    assert len(device.yielded) == len(parts)
    assert num_settled > len(parts)
    assert check.requests >= 2 * len({*map(id, device.launched)}) or journal
    return device


def test_the_queue_is_never_empty_between_parts(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [some_requests(seed) for seed in (1, 2, 3, 4)]
    device = scored(model, parts, monkeypatch)
    assert len(device.launched) >= 3 * len(parts), "each part has several batches"
    assert min(device.queue_at_reads[:-1]) >= 1
    again = scored(model, parts, monkeypatch)
    assert again.queue_at_reads == device.queue_at_reads, "the order hangs on counts alone"
    monkeypatch.setattr(underway, "MOST_UNDERWAY", 1)
    with pytest.raises(AssertionError, match="waits for metrics"):
        scored(model, parts, monkeypatch)


def test_a_part_that_repeats_another_one_takes_no_place(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    device = scored(model, [some_requests(seed) for seed in (1, 2, 2, 3)], monkeypatch)
    assert len({*map(id, device.launched)}) == 3
    assert min(device.queue_at_reads[:-1]) >= 1


def test_parts_without_rows_are_yielded_before_others_begin(
    model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A resumed run: parts that the journal knows have nothing to launch."""
    parts = [some_requests(seed, groups=4) for seed in (1, 2, 3, 4)]
    monkeypatch.setattr(sys.modules[__name__], "SelfCheck", Unchecked)
    with Journal(Store(str(tmp_path)), "k", "0") as journal:
        scored(model, parts[:2], monkeypatch, journal)
    with Journal(Store(str(tmp_path)), "k", "0") as journal:
        device = scored(model, parts, monkeypatch, journal)
    assert len({*map(id, device.launched)}) == 2
    assert device.launched_at_yields[:2] == [0, 0]


def test_scores_of_requests_that_came_before_are_taken_from_the_batches_that_hold_them() -> None:
    """Against all batches end to end; some batches and some requests are empty."""
    rng = np.random.default_rng(3)
    distinct = _DistinctScores()
    every = list[Score]()
    for size in (3, 0, 5, 1, 4):
        batch = [
            Score(x, np.arange(len(x), dtype=np.int32), float(rng.normal()), np.zeros((len(x), 0), np.float32))
            for x in (rng.normal(size=rng.integers(0, 4)).astype(np.float32) for _ in range(size))
        ]
        if batch:
            distinct.append(Scores.of(batch))
        else:
            distinct.append(Scores.of([*every[:1]]).of_requests(0, 0))
        every += batch
        for chosen in (np.arange(len(every)), rng.integers(0, len(every), 9), np.zeros(0, np.int64)):
            for score, idx in zip(distinct.select(chosen), chosen.tolist(), strict=True):
                np.testing.assert_array_equal(score.logprob, every[idx].logprob)
                np.testing.assert_array_equal(score.rank, every[idx].rank)
                assert score.set_logprob == np.float32(every[idx].set_logprob)
