"""When the device is busy, and what the host does while it is idle.

Arrives: a run inside `with DeviceClock()`.  Leaves: times of its batches, gaps between them,
samples of the host's threads.  It deliberately does not know what is run.
"""

import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple, Self

import jax
from jax.stages import Compiled

from miron_jax.engine.forward import Forward
from miron_jax.engine.self_check import SelfCheck
from miron_jax.runtime.devices import Tree

SAMPLE_SECONDS = 0.002


class Gap(NamedTuple):
    """A time in which no batch was on the device."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class DeviceClock:
    """Notes when each batch is handed to the device and when it is done, and what the host does in
    the meantime.

    Compilation and the self-check, which has its own programs, are left out of all sums.
    """

    def __init__(self) -> None:
        self.flights: list[tuple[float, float]] = []
        self._excluded: list[tuple[float, float]] = []
        self._samples: list[tuple[float, tuple[str, ...]]] = []
        self._launches: queue.Queue[tuple[float, Tree] | None] = queue.Queue()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=loop, daemon=True) for loop in (self._watch, self._sample)
        ]
        self._unwrapped: list[tuple[type, str, Callable[..., object]]] = []

    def __enter__(self) -> Self:
        self._wrap(Forward, "_program", self._noted)
        self._wrap(Forward, "compile", self._excluding)
        self._wrap(SelfCheck, "compare", self._excluding)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for owner, name, method in self._unwrapped:
            setattr(owner, name, method)
        self._launches.put(None)
        self._threads[0].join()
        self._ended.set()
        self._threads[1].join()

    def _wrap(self, owner: type, name: str, wrapper: Callable[..., object]) -> None:
        method = getattr(owner, name)
        self._unwrapped.append((owner, name, method))
        setattr(owner, name, lambda *arguments, **more: wrapper(method, *arguments, **more))

    def _noted(self, method: Callable[..., Compiled], *arguments: object) -> "_Noted":
        return _Noted(method(*arguments), self._launches)

    def _excluding(
        self, method: Callable[..., object], *arguments: object, **more: object
    ) -> object:
        started = time.perf_counter()
        result = method(*arguments, **more)
        self._excluded.append((started, time.perf_counter()))
        return result

    def _watch(self) -> None:
        while (launch := self._launches.get()) is not None:
            started, outputs = launch
            jax.block_until_ready(outputs)
            self.flights.append((started, time.perf_counter()))

    def _sample(self) -> None:
        watchers = {thread.ident for thread in self._threads}
        while not self._ended.wait(SAMPLE_SECONDS):
            frames = [
                frame for thread, frame in sys._current_frames().items() if thread not in watchers
            ]
            self._samples.append((time.perf_counter(), tuple(filter(None, map(_function, frames)))))

    @property
    def first(self) -> float:
        """When the first batch was handed to the device."""
        return min(self.flights)[0]

    @property
    def seconds(self) -> float:
        """From the first batch until the last one was done."""
        whole = max(ready for _, ready in self.flights) - self.first
        return whole - (_total(_gaps(self.flights)) - _total(self.gaps()))

    def gaps(self) -> list[Gap]:
        """Between the first batch and the last one's end, longest first."""
        last = max(ready for _, ready in self.flights)
        excluded = [
            (start, min(end, last)) for start, end in self._excluded if self.first < start < last
        ]
        return sorted(_gaps(self.flights + excluded), key=lambda gap: -gap.seconds)

    @property
    def idle_share(self) -> float:
        return _total(self.gaps()) / self.seconds

    def within(self, gap: Gap) -> Counter[str]:
        """How many samples of a host thread were in each function."""
        return Counter(
            name for at, names in self._samples if gap.start <= at <= gap.end for name in names
        )


class _Noted:
    """A compiled program that notes its calls."""

    def __init__(self, program: Compiled, launches: queue.Queue[tuple[float, Tree] | None]) -> None:
        self._program, self._launches = program, launches

    def __call__(self, *arguments: Tree) -> Tree:
        started = time.perf_counter()
        outputs = self._program(*arguments)
        self._launches.put((started, outputs))
        return outputs

    def __getattr__(self, name: str) -> object:
        return getattr(self._program, name)


def _gaps(busy: Sequence[tuple[float, float]]) -> list[Gap]:
    gaps, last = [], min(busy)[1]
    for start, end in sorted(busy):
        if start > last:
            gaps.append(Gap(last, start))
        last = max(last, end)
    return gaps


def _total(gaps: Sequence[Gap]) -> float:
    return sum(gap.seconds for gap in gaps)


def _function(frame: FrameType | None) -> str | None:
    """The innermost function of this project, or None."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if "miron_jax" in frame.f_globals.get("__name__", ""):
            return f"{path.stem}.{frame.f_code.co_name}"
        frame = frame.f_back
    return None
