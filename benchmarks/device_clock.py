"""When the device has work, and what the host does when it has none.

Arrives: a run, inside `with DeviceClock()`.  Leaves: its batches' times, gaps between them, samples of the host's threads.
It deliberately does not know what is run.
"""

import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self

import jax

from miron_jax.engine.forward import Forward
from miron_jax.engine.self_check import SelfCheck

SAMPLE_SECONDS = 0.002


class Gap(NamedTuple):
    """A time in which no batch was on the device."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class DeviceClock:
    """Notes when each batch was handed to the device and when it was done, and meanwhile what the host does.

    Compiling, and the self-check with its own programs, are no batches: that time is left out of all sums.
    """

    def __init__(self) -> None:
        self.flights: list[tuple[float, float]] = []
        self._apart: list[tuple[float, float]] = []
        self._samples: list[tuple[float, tuple[str, ...]]] = []
        self._handed: queue.Queue[tuple[float, Any] | None] = queue.Queue()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=own, daemon=True) for own in (self._watch, self._sample)]
        self._unwrapped: list[tuple[type, str, Callable[..., Any]]] = []

    def __enter__(self) -> Self:
        self._wrap(Forward, "_program", self._noting_calls)
        self._wrap(Forward, "compile", self._set_apart)
        self._wrap(SelfCheck, "compare", self._set_apart)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for owner, name, method in self._unwrapped:
            setattr(owner, name, method)
        self._handed.put(None)
        self._threads[0].join()
        self._ended.set()
        self._threads[1].join()

    def _wrap(self, owner: type, name: str, wrapped: Callable[..., Any]) -> None:
        method = getattr(owner, name)
        self._unwrapped.append((owner, name, method))
        setattr(owner, name, lambda *arguments, **more: wrapped(method, *arguments, **more))

    def _noting_calls(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return _Noted(method(*arguments), self._handed)

    def _set_apart(self, method: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        started = time.perf_counter()
        result = method(*arguments, **more)
        self._apart.append((started, time.perf_counter()))
        return result

    def _watch(self) -> None:
        while (handed := self._handed.get()) is not None:
            started, outputs = handed
            jax.block_until_ready(outputs)
            self.flights.append((started, time.perf_counter()))

    def _sample(self) -> None:
        own = {thread.ident for thread in self._threads}
        while not self._ended.wait(SAMPLE_SECONDS):
            frames = [frame for thread, frame in sys._current_frames().items() if thread not in own]
            self._samples.append((time.perf_counter(), tuple(filter(None, map(_place, frames)))))

    @property
    def first(self) -> float:
        """When the first batch was handed over."""
        return min(self.flights)[0]

    @property
    def seconds(self) -> float:
        """From then until the last batch was done."""
        whole = max(ready for _, ready in self.flights) - self.first
        return whole - (_total(_gaps(self.flights)) - _total(self.gaps()))

    def gaps(self) -> list[Gap]:
        """Between the first batch and the last one's end, longest first."""
        last = max(ready for _, ready in self.flights)
        apart = [(start, min(end, last)) for start, end in self._apart if self.first < start < last]
        return sorted(_gaps(self.flights + apart), key=lambda gap: -gap.seconds)

    @property
    def idle_share(self) -> float:
        return _total(self.gaps()) / self.seconds

    def within(self, gap: Gap) -> Counter[str]:
        """Samples of each function in which a host thread was."""
        return Counter(name for at, names in self._samples if gap.start <= at <= gap.end for name in names)


class _Noted:
    """A compiled program whose calls are told."""

    def __init__(self, program: Any, handed: queue.Queue[Any]) -> None:
        self._program, self._handed = program, handed

    def __call__(self, *arguments: Any) -> Any:
        started = time.perf_counter()
        outputs = self._program(*arguments)
        self._handed.put((started, outputs))
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


def _gaps(busy: Sequence[tuple[float, float]]) -> list[Gap]:
    found, until = [], min(busy)[1]
    for start, end in sorted(busy):
        if start > until:
            found.append(Gap(until, start))
        until = max(until, end)
    return found


def _total(gaps: Sequence[Gap]) -> float:
    return sum(gap.seconds for gap in gaps)


def _place(frame: FrameType | None) -> str | None:
    """The innermost function of this project, or None."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if "miron_jax" in frame.f_globals.get("__name__", ""):
            return f"{path.stem}.{frame.f_code.co_name}"
        frame = frame.f_back
    return None
