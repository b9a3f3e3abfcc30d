"""When the device is busy, from the first batch to the last one.

Arrives: a run inside `with DeviceClock()`.  Leaves: the share of that time in which no batch was on
the device.  It deliberately does not know what is run.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import jax
from jax.stages import Compiled

from miron_jax.engine.forward import Forward
from miron_jax.engine.self_check import SelfCheck
from miron_jax.runtime.devices import Tree


class DeviceClock:
    """Notes when each batch is handed to the device and when it is done.

    Compilation and the self-check, which has its own programs, are left out of all sums.  A batch's
    end is noted when the thread gets the interpreter, up to 5 ms late: shorter waits may stay
    unseen.
    """

    def __init__(self) -> None:
        self.flights: list[tuple[float, float]] = []
        self._excluded: list[tuple[float, float]] = []
        self._launches: queue.Queue[tuple[float, Tree] | None] = queue.Queue()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._unwrapped: list[tuple[type, str, Callable[..., object]]] = []

    def __enter__(self) -> Self:
        self._wrap(Forward, "_program", self._noted)
        self._wrap(Forward, "compile", self._excluding)
        self._wrap(SelfCheck, "compare", self._excluding)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for owner, name, method in self._unwrapped:
            setattr(owner, name, method)
        self._launches.put(None)
        self._watcher.join()

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

    @property
    def idle_share(self) -> float:
        """Of the time from the first batch until the last one was done."""
        first = min(self.flights)[0]
        last = max(ready for _, ready in self.flights)
        excluded = [
            (start, min(end, last)) for start, end in self._excluded if first < start < last
        ]
        idle = _idle_seconds(self.flights + excluded)
        return idle / (last - first - (_idle_seconds(self.flights) - idle))


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


def _idle_seconds(busy: Sequence[tuple[float, float]]) -> float:
    """Seconds between the first of these times and the last one's end that none of them covers."""
    idle = 0.0
    last = min(busy)[1]
    for start, end in sorted(busy):
        idle += max(0.0, start - last)
        last = max(last, end)
    return idle
