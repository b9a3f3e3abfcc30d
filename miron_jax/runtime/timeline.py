"""Where the time of a run goes: seconds of each activity, by thread.

Arrives: begins and ends of activities.  Leaves: `Times`.  It deliberately does not know what the
activities do.

An activity that begins within another one stops the outer one's seconds until it ends, so the
seconds of a thread sum to the time since its `Timeline` began.  A generator ends its activities
before it yields.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Self, get_args

Activity = Literal[
    "import",
    "load",  # data, model, weights
    "render",  # examples -> prompts
    "tokenize",
    "plan",
    "compile",
    "wait_for_host",  # for rows that a thread still prepares, or for other processes
    "device",
    "self_check",
    "metrics",  # from scores and completions to numbers; runs of programs
    "write",
    "other",
]
ACTIVITIES: tuple[Activity, ...] = get_args(Activity)

# id of this process, or of its supervisor, if it began as a command; None: a program calls the
# package
command_process: int | None = None


class Times(NamedTuple):
    """Seconds by activity."""

    main: Mapping[str, float]  # of the main thread; they sum to its time
    in_threads: Mapping[str, float]  # of threads that worked meanwhile


class Timeline:
    """What a thread has spent its time on so far."""

    def __init__(self, before: float = 0.0, clock: Callable[[], float] = time.perf_counter) -> None:
        """`before`: seconds that imports have taken already."""
        self._clock = clock
        self._since = clock()  # up to then all time is counted
        self._seconds: dict[str, float] = dict.fromkeys(ACTIVITIES, 0.0)
        self._seconds["import"] = before
        self._open: list[Activity] = ["other"]  # the last one runs
        self._helpers: list[Timeline] = []  # of threads beside
        self._lapped = Times({}, {})  # what `total` was at the last lap

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Counts the activities of this thread."""
        outer = _thread.timeline
        _thread.timeline = self
        try:
            yield self
        finally:
            _thread.timeline = outer

    def begin(self, activity: Activity) -> None:
        self._count()
        self._open.append(activity)

    def end(self) -> None:
        self._count()
        self._open.pop()

    def total(self) -> Times:
        """Everything so far; of threads beside, what they have finished."""
        self._count()
        in_threads = Counter[str]()
        for helper in self._helpers:
            in_threads.update(helper._seconds)
        return Times(
            dict(self._seconds),
            {each: in_threads[each] for each in ACTIVITIES[:-1] if in_threads[each]},
        )

    def lap(self) -> Times:
        """Everything since the last lap."""
        before = self._lapped
        self._lapped = now = self.total()
        return Times(*map(_difference, now, before))

    def helper(self) -> "Timeline":
        """The timeline of a thread beside this one."""
        helper = Timeline(clock=self._clock)
        helper._helpers = self._helpers  # threads that it starts count here too
        self._helpers.append(helper)
        return helper

    def _count(self) -> None:
        now = self._clock()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now


def _difference(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {each: seconds - before.get(each, 0.0) for each, seconds in now.items()}


class _Thread(threading.local):
    timeline: Timeline | None = None  # None: nobody asks


_thread = _Thread()


@contextmanager
def spent_on(activity: Activity) -> Iterator[None]:
    """Counts the time of a block, or of a function that it decorates, as this activity."""
    timeline = _thread.timeline
    if timeline is None:
        yield
        return
    timeline.begin(activity)
    try:
        yield
    finally:
        timeline.end()


def counted_in_thread() -> Callable[[], None]:
    """A function that a new thread calls first, to count its activities beside this thread's."""
    timeline = _thread.timeline
    return partial(setattr, _thread, "timeline", None if timeline is None else timeline.helper())


def since_start() -> float:
    """Seconds since the command's process began; 0 where that is not known."""
    if command_process is None or sys.platform != "linux":
        return 0.0
    stat = Path(f"/proc/{command_process}/stat").read_text(encoding="utf-8", errors="replace")
    # 20th behind the name, which may hold spaces: clock ticks from the machine's start to its own
    ticks = int(stat.rpartition(")")[2].split()[19])
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
