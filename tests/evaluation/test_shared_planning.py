"""The processes of a run render, tokenize and plan each a part of its tasks, and have the same batches."""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run_tasks import RunTasks
from miron_jax.evaluation.task_kinds import choice
from miron_jax.files.kept import KeptArrays
from miron_jax.files.store import Store
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
from miron_jax.planning import request_batches
from miron_jax.planning.records import Plan
from miron_jax.planning.request_batches import RequestBatch, Totals
from miron_jax.runtime import shared_arrays
from miron_jax.runtime.dealing import in_blocks
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.shared_arrays import SharedArrays
from miron_jax.tokens.records import Requests
from tests.support.command import Place
from tests.support.coordinator import Coordinator

TASKS = ("core/arc_easy", "core/copa", "core/winograd", "core/lambada_openai")
COUNT = 3


class EvenHosts(Hosts):
    """A process that is as fast as the others: it takes no part of theirs."""

    def take(self, queue: str, lists: Any) -> Iterator[Any]:
        yield from lists[self.index]


@pytest.fixture
def config(place: Place, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """Of a run of many pieces and several batches."""
    monkeypatch.setattr(request_batches, "LEAST_KEPT", 0)
    monkeypatch.setattr(choice, "PIECE_CHARS", 400)
    for module in (request_batches, "miron_jax.evaluation.parts"):
        monkeypatch.setattr(f"{getattr(module, '__name__', module)}.REQUEST_BATCH_TOKENS", 400)
    folder = (("", str(place.data)),)
    return RunConfig(model=str(place.model), tasks=TASKS, data_dir=folder, allow_changed_data=True)


class Counts(NamedTuple):
    tokenized: Counter[int]  # prompts by process; a few of them twice, as sizes are estimated
    plans: Counter[int]  # by requests


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    counts = Counts(Counter(), Counter())
    tokenized, make_plan = choice.ChoiceKind.tokenized, request_batches.make_plan

    def count_prompts(kind: Any, prompts: Sequence[Any]) -> Requests:
        counts.tokenized[kind.setup.kept._hosts.index if kind.setup.kept else 0] += len(prompts)
        return tokenized(kind, prompts)

    def count_plan(requests: Requests, *others: Any) -> Plan:
        counts.plans[len(requests)] += 1
        return make_plan(requests, *others)

    monkeypatch.setattr(choice.ChoiceKind, "tokenized", count_prompts)
    monkeypatch.setattr(request_batches, "make_plan", count_plan)
    return counts


def batches_of(config: RunConfig, shared: SharedArrays | None = None) -> list[RequestBatch]:
    """All batches of one process, which has read its data by itself."""
    architecture = architecture_of(config, find_model(config, weights=False))
    tasks = RunTasks.of(config, find_inputs(config), architecture, shared)
    batches = [*tasks.request_batches(Totals(), several=True)]
    if shared is not None:
        shared.remove()
    return batches


def in_hosts(
    configs: Sequence[RunConfig], folder: Path, kept: bool = False, of: type[Hosts] = EvenHosts
) -> list[list[RequestBatch]]:
    """The batches of each process of a run; processes are threads here."""
    client = Coordinator()
    shared = [
        SharedArrays(KeptArrays(folder / f"of {i}", pytest.fail) if kept else None, Store(str(folder)), hosts)
        for i, hosts in enumerate(of(i, len(configs), client, in_rounds=True) for i in range(len(configs)))
    ]
    with ThreadPoolExecutor(len(configs)) as threads:
        return [*threads.map(batches_of, configs, shared)]


def assert_same(received: Sequence[RequestBatch], expected: Sequence[RequestBatch]) -> None:
    assert len(received) == len(expected)
    for one, other in zip(received, expected, strict=True):
        assert one.digests == other.digests
        np.testing.assert_array_equal(one.distinct_idx, other.distinct_idx)
        for each in fields(Plan):
            np.testing.assert_array_equal(getattr(one.plan, each.name), getattr(other.plan, each.name))
        prompts = [[prompt for piece in batch.pieces for prompt in piece.examples] for batch in (one, other)]
        assert prompts[0] == prompts[1]


def test_each_process_makes_its_part_and_all_have_the_same_batches(
    config: RunConfig, counts: Counts, tmp_path: Path
) -> None:
    alone = batches_of(config)
    assert len(alone) > COUNT
    in_all = counts.tokenized.total()
    assert counts.plans.total() == len(alone)
    for received in in_hosts([config] * COUNT, tmp_path, kept=True):
        assert_same(received, alone)
    of_hosts = [counts.tokenized[i] - in_all * (i == 0) for i in range(COUNT)]
    assert sum(of_hosts) == in_all
    assert in_all / 8 < min(of_hosts) <= max(of_hosts) < 0.6 * in_all
    assert counts.plans.total() == 2 * len(alone)
    assert not (tmp_path / shared_arrays.FOLDER).exists()

    # what each has kept serves the others in the next run
    for received in in_hosts([config] * COUNT, tmp_path, kept=True):
        assert_same(received, alone)
    assert counts.tokenized.total() == 2 * in_all


def test_what_cannot_be_written_is_made_by_every_process(
    config: RunConfig, counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = batches_of(config)
    monkeypatch.setattr(Store, "put", lambda *_: (_ for _ in ()).throw(OSError("full")))
    for received in in_hosts([config] * 2, tmp_path):
        assert_same(received, alone)


def test_a_process_with_other_data_makes_all_by_itself(config: RunConfig, tmp_path: Path) -> None:
    other = replace(config, limit=5)
    received = in_hosts([config, other], tmp_path, of=Hosts)  # which take each other's part
    assert_same(received[0], batches_of(config))
    assert_same(received[1], batches_of(other))


def test_blocks_keep_the_order_and_cost_about_the_same() -> None:
    cost = np.random.default_rng(0).random(101).tolist()
    for count in (1, 2, 7, 200):
        blocks = in_blocks(range(101), cost, count)
        assert [item for block in blocks for item in block] == [*range(101)]
        assert max(sum(cost[i] for i in block) for block in blocks) <= sum(cost) / count + 1
