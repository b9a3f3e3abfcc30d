"""Processes that tokenize beside the one that plans give the same batches, whatever becomes of them."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.evaluation import helpers
from miron_jax.evaluation.helpers import Helped, Helping, receive
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run_tasks import RunTasks
from miron_jax.evaluation.task_kinds import choice
from miron_jax.files.kept import Job, KeptArrays
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
from miron_jax.planning.request_batches import RequestBatch, Totals
from miron_jax.results.document import config_of
from tests.evaluation.test_shared_planning import TASKS, assert_same
from tests.support.command import Place, common
from tests.support.processes import run


@pytest.fixture
def config(place: Place, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setattr(helpers, "LEAST_EXAMPLES", 0)
    folder = (("", str(place.data)),)
    return RunConfig(model=str(place.model), tasks=TASKS, data_dir=folder, allow_changed_data=True)


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Prompts of each call of this process."""
    calls = list[int]()
    original = choice.ChoiceKind.tokenized

    def count(kind: Any, prompts: Any) -> Any:
        calls.append(len(prompts))
        return original(kind, prompts)

    monkeypatch.setattr(choice.ChoiceKind, "tokenized", count)
    return calls


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process leaves all jobs to helpers, as long as there are some."""
    original = Helped._next

    def take(self: Helped, process: int) -> Any:
        return original(self, process) if process or not self._helpers else None

    monkeypatch.setattr(Helped, "_next", take)


def batches_of(config: RunConfig, kept: Any = None) -> list[RequestBatch]:
    inputs = find_inputs(config)._replace(kept=kept)
    if isinstance(kept, Helped):
        kept.begin()
    tasks = RunTasks.of(config, inputs, architecture_of(config, find_model(config, weights=False)))
    return [*tasks.request_batches(Totals())]


def ended(helped: Helped, processes: list[subprocess.Popen[bytes]]) -> bool:
    """Whether all of them end by themselves, soon."""
    until = time.monotonic() + 30
    while any(each.returncode is None for each in processes) and time.monotonic() < until:
        time.sleep(0.05)
    return all(each.returncode is not None for each in processes)


@pytest.mark.parametrize("keeps", [False, True])
def test_helpers_make_everything_and_end(
    config: RunConfig, tokenized: list[int], waits: None, keeps: bool, tmp_path: Path
) -> None:
    alone = batches_of(config)
    assert tokenized
    tokenized.clear()
    kept = KeptArrays(tmp_path / "plans", pytest.fail) if keeps else None
    helped = Helped(config, kept, 2, pytest.fail)
    processes = [*helped._helpers]
    assert_same(batches_of(config, helped), alone)
    assert not tokenized
    assert ended(helped, processes)
    assert (tmp_path / "plans").exists() == keeps
    if keeps:
        assert_same(batches_of(config, kept), alone)
        assert not tokenized


def test_both_work_at_the_same_time(config: RunConfig, tokenized: list[int]) -> None:
    alone = batches_of(config)
    tokenized.clear()
    assert_same(batches_of(config, Helped(config, None, 1, pytest.fail)), alone)
    assert tokenized


def test_a_configuration_arrives_as_it_was_sent(config: RunConfig) -> None:
    sent = replace(
        config,
        data_dir=(("", "/a b/\u0456\n"), ("core", "/c")),
        sharding="mesh",
        mesh=(("data", 4), ("model", 2)),
        rows=(3, 1),
        limit=7,
        token_stats=True,
        seed=2**40,
    )
    assert config_of(receive(BytesIO(json.dumps(asdict(sent)).encode() + b"\n"))) == sent


def test_arrays_arrive_as_they_were_sent(config: RunConfig, tmp_path: Path) -> None:
    """Those of the first promise, to the last bit: the rows of all later batches hang on them."""
    numbers = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-300, 300, 0.6)
    first = {
        "estimates": {"numbers": numbers, "none": np.zeros(0, np.int64), "longest": np.asarray(7)},
        "more": {"special": np.asarray([np.nan, np.inf, -0.0]), "places": np.asarray([0, 2**62])},
        "absent": None,
    }
    sent = BytesIO()
    helpers._send(sent, {key: helpers._lists(each) for key, each in first.items()})
    helping = Helping(tmp_path, BytesIO(sent.getvalue()), BytesIO())
    for key, arrays in first.items():
        received = helping.get(key)
        assert (received is None) == (arrays is None)
        for name, array in (arrays or {}).items():
            assert received is not None
            assert (received[name].dtype, received[name].shape) == (array.dtype, array.shape)
            assert received[name].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("line", "error"), [(b"", EOFError), (b"tru", EOFError), (b"tru\n", ValueError), (b"\xff\n", ValueError)]
)
def test_what_is_no_message_is_refused(line: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        receive(BytesIO(line))


def test_a_group_stays_with_its_process_until_another_has_nothing(config: RunConfig) -> None:
    """Of two groups of two jobs the dearer one is taken first, and the last job goes to whoever is idle."""
    helped = Helped(config, None, 0, pytest.fail)
    jobs = [Job(group + place, cost, dict, group) for group, cost in (("a", 5), ("b", 9)) for place in "12"]
    helped.promise(jobs)
    taken = [helped._next(process) for process in (1, 0, 1, 1, 0)]
    assert [job and job.key for job in taken] == ["b1", "a1", "b2", "a2", None]


def test_few_examples_need_no_help(
    config: RunConfig, tokenized: list[int], waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers, "LEAST_EXAMPLES", 10_000)
    helped = Helped(config, None, 1, pytest.fail)
    processes = [*helped._helpers]
    batches_of(config, helped)
    assert tokenized
    assert ended(helped, processes)


def test_at_the_end_helpers_go_before_their_folder(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that still writes would make it anew."""
    at_end = list[Callable[[], None]]()
    monkeypatch.setattr(helpers.atexit, "register", at_end.append)
    helped = Helped(config, None, 1, pytest.fail)
    [process] = helped._helpers
    folder = helped._shared.folder.parent
    assert folder.is_dir()
    is_there = list[bool]()
    monkeypatch.setattr(process, "wait", lambda wait=process.wait: is_there.append(folder.is_dir()) or wait())
    for close in at_end:
        close()
    assert is_there == [True]
    assert process.returncode is not None
    assert not folder.exists()
    process.__exit__(None, None, None)


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_helper_that_is_killed_costs_a_line(
    config: RunConfig, tokenized: list[int], waits: None, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is ready, with its first job, with one of the last."""
    alone = batches_of(config)
    tokenized.clear()
    lines = list[str]()

    def say(line: str) -> None:
        helped._helpers.clear()  # this process need no longer wait
        lines.append(line)

    helped = Helped(config, None, 1, say)
    [process] = helped._helpers
    taken = []
    original = Helped._next

    def kill_after(self: Helped, number: int) -> Any:
        job = original(self, number)
        taken.extend([job] if number and job else [])
        if len(taken) == after:
            process.kill()
        return job

    monkeypatch.setattr(Helped, "_next", kill_after)
    if not after:
        process.kill()
    assert_same(batches_of(config, helped), alone)
    assert lines == ["a process that helped to tokenize has ended: the run goes on without it"]
    assert tokenized


def test_a_helper_that_stands_still_is_not_waited_for(
    config: RunConfig, tokenized: list[int], waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = batches_of(config)
    tokenized.clear()
    helped = Helped(config, None, 1, pytest.fail)
    [process] = helped._helpers
    original = Helped._next

    def stop(self: Helped, number: int) -> Any:
        job = original(self, number)
        if number:
            os.kill(process.pid, signal.SIGSTOP)
            monkeypatch.setattr(helpers, "PATIENCE", 0.1)
            self._helpers.clear()
        return job

    monkeypatch.setattr(Helped, "_next", stop)
    assert_same(batches_of(config, helped), alone)
    assert tokenized
    process.kill()


def test_what_differs_in_a_helper_is_not_mixed_in(config: RunConfig, tokenized: list[int]) -> None:
    """A helper that has none of the keys is not asked again."""
    other = replace(config, max_length=24)
    alone = batches_of(config)
    tokenized.clear()
    helped = Helped(other, None, 1, pytest.fail)
    [process] = helped._helpers
    original = helped._job_before

    def wait_first(key: str) -> Any:
        until = time.monotonic() + 60
        while process.returncode is None and time.monotonic() < until:
            time.sleep(0.05)
        return original(key)

    helped._job_before = wait_first
    assert_same(batches_of(config, helped), alone)
    assert process.returncode is not None


def test_the_command_has_helpers_and_the_same_results(miron: Callable[..., Any], place: Place, tmp_path: Path) -> None:
    started = list[int]()

    def files(output: str, *flags: str) -> dict[str, str]:
        ran = run("-c", OF_ALL, "eval", *common(place, tmp_path / output, *flags), check=True)
        started.append(ran.stderr.count("STARTED"))
        folder = tmp_path / output / "samples"
        return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.jsonl")}

    alone = files("alone")
    assert alone
    assert files("helped", "--planner_processes=2") == alone
    assert files("kept", "--planner_processes=1", f"--compilation_cache={tmp_path / 'programs'}") == alone
    assert started == [0, 2, 1]


OF_ALL = """
import subprocess, sys
from miron_jax.evaluation import helpers
helpers.LEAST_EXAMPLES = 0
original = helpers._start
def start(*arguments):
    print("STARTED", file=sys.stderr)
    return original(*arguments)
helpers._start = start
from miron_jax.cli import main
main()
"""


@pytest.mark.parametrize("count", ["-1", "65"])
def test_a_count_that_is_none_is_refused(miron: Callable[..., Any], place: Place, tmp_path: Path, count: str) -> None:
    ran = miron("plan", *common(place, tmp_path / "out", f"--planner_processes={count}"))
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"miron-jax: --planner_processes is {count}, expected 0 to 64\n"
