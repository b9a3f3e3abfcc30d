import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from miron_jax.runtime import timeline as timelines
from miron_jax.runtime.compiling import in_thread
from miron_jax.runtime.timeline import ACTIVITIES, Timeline, Times, counted_in_thread, since_start, spent_on
from tests.support.processes import start


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spent(times: Times) -> dict[str, float]:
    assert [*times.main] == [*ACTIVITIES]
    assert all(seconds >= 0 for seconds in times.main.values())
    return {activity: seconds for activity, seconds in times.main.items() if seconds}


def test_an_activity_within_another_stops_its_seconds_and_all_sum_to_the_time(clock: Clock) -> None:
    with Timeline(before=2.0, clock=clock).running() as timeline:
        clock.passes(1)
        with spent_on("load"):
            clock.passes(4)
            with spent_on("import"):
                clock.passes(8)
            with spent_on("load"):
                clock.passes(16)
            clock.passes(32)
            inside = timeline.total()
        clock.passes(64)
        assert spent(inside) == {"import": 10, "load": 52, "other": 1}
        assert spent(timeline.total()) == {"import": 10, "load": 52, "other": 65}
        assert sum(timeline.total().main.values()) == clock.now - 100 + 2


def test_an_exception_ends_its_activity(clock: Clock) -> None:
    @spent_on("plan")
    def fails() -> None:
        clock.passes(1)
        with spent_on("device"):
            clock.passes(2)
            raise ValueError("planned badly")

    with Timeline(clock=clock).running() as timeline:
        for _ in range(2):  # a decorated function is counted at each call
            with pytest.raises(ValueError, match="badly"):
                fails()
        clock.passes(4)
        assert spent(timeline.total()) == {"plan": 2, "device": 4, "other": 4}


def test_laps_sum_to_the_total(clock: Clock) -> None:
    def steps() -> Iterator[int]:
        for step in range(2):
            with spent_on("device"):
                clock.passes(8)
            yield step

    laps = []
    with Timeline(clock=clock).running() as timeline:
        for _ in steps():
            clock.passes(1)  # of the caller, not of the generator
            with spent_on("write"):
                laps.append(spent(timeline.lap()))
                clock.passes(2)  # what is written after the lap counts in the next one
        assert laps == [{"device": 8, "other": 1}, {"device": 8, "write": 2, "other": 1}]
        assert spent(timeline.total()) == {"device": 16, "write": 4, "other": 2}


def test_threads_count_beside_the_main_thread(clock: Clock) -> None:
    def tokenizes() -> None:
        with spent_on("tokenize"):
            clock.passes(3)

    with Timeline(clock=clock).running() as timeline:
        with ThreadPoolExecutor(1, initializer=counted_in_thread()) as pool, spent_on("wait_for_host"):
            pool.submit(tokenizes).result()
        with ThreadPoolExecutor(1) as pool:  # nobody counts what this one does
            pool.submit(tokenizes).result()
        in_thread(lambda: clock.passes(5)).result()
        while not timeline.total().in_threads.get("compile"):  # its thread may still be ending
            time.sleep(0.01)
        times = timeline.total()
        assert spent(times) == {"wait_for_host": 3, "other": 8}
        assert times.in_threads == {"tokenize": 3, "compile": 5}
    tokenizes()  # without a timeline nothing is counted
    assert spent(timeline.total()) == {"wait_for_host": 3, "other": 11}


def test_an_inner_timeline_takes_over_for_its_block(clock: Clock) -> None:
    with Timeline(clock=clock).running() as outer:
        with Timeline(clock=clock).running() as inner, spent_on("device"):
            clock.passes(1)
        with spent_on("write"):
            clock.passes(2)
        assert spent(inner.total())["device"] == 1
        assert spent(outer.total()) == {"write": 2, "other": 1}


AGE = """
import os, time
time.sleep(0.4)
from miron_jax.runtime import timeline
timeline.command_process = os.getpid()
print(timeline.since_start())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc of Linux")
def test_a_command_counts_from_the_start_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert since_start() == 0, "a program that calls the package began for reasons of its own"
    before = time.monotonic()
    out, _ = start("-c", AGE).communicate()
    assert 0.35 < float(out) < time.monotonic() - before + 0.05
    monkeypatch.setattr(timelines.sys, "platform", "darwin")
    monkeypatch.setattr(timelines, "command_process", os.getpid())
    assert since_start() == 0
