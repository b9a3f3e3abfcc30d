"""Decides when a program in its box has had its time, memory or output; sandbox.py ends it.

Arrives: a process, `Limits`, the pipes of a box, its group if it has one.  Leaves: how it ended.
It deliberately does not know how a box is made.

Memory is over if the kernel has killed a process of the group at the group's limit (killed at less,
the machine was short: the program was not judged).  Without a group it is over if memory, swap,
page tables, sockets and files of all processes exceed the limit in two looks in a row (memory.py).
More files than allowed count as memory too.
"""

import fcntl
import json
import os
import select
import subprocess
import termios
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

from miron_jax.runtime.sandbox.group import BoxGroup
from miron_jax.runtime.sandbox.limits import Limits
from miron_jax.runtime.sandbox.memory import Count
from miron_jax.runtime.sandbox.processes import (
    cpu_seconds,
    seconds_without_processor,
    tree,
)

WATCH_SECONDS = 0.02  # between two checks of a run
START_SECONDS = 30.0  # of wall time, until the program is executed
READS = 64  # of one pipe, before the others' turn
# A longer time between two checks counts as this one: the machine, or this process, stood still.
STALL_SECONDS = 1.0
NO_MEMORY = "the machine has no memory left: the kernel killed it within its limit"

# memory: of processes, sockets or files; output: it wrote more than is read;
# not started: the machine could not start it, which says nothing about the program
Ended = Literal["exit", "time", "memory", "output", "not started"]


class Channel:
    """A pipe from a box.  It keeps the first bytes and drops the rest."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept = bytearray()
        self.is_over = False  # there was more
        self.is_closed = False  # nobody can write any more
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.read_end)
        self.close_write_end()

    @property
    def text(self) -> str:
        return self.kept.decode("utf-8", "replace")

    def close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def take(self) -> None:
        """Read what is there."""
        for _ in range(READS):
            try:
                read = os.read(self.read_end, 1 << 16)
            except BlockingIOError:
                return
            if not read:
                self.is_closed = True
                return
            room = self.most - len(self.kept)
            self.kept += read[:room]
            self.is_over |= len(read) > room


class Channels(NamedTuple):
    """The pipes of a box."""

    started: Channel  # of the launcher
    box: Channel  # of bubblewrap: the number of the box's first process, then the exit status
    out: Channel
    err: Channel
    value: Channel  # descriptor 3

    @property
    def init(self) -> int | None:
        """The first process of the box; None: there is no box, or not yet."""
        self.box.take()
        try:
            return int(json.loads(self.box.kept.split(b"\n")[0])["child-pid"])
        except (ValueError, KeyError):
            return None

    def has_started(self, gate: int | None) -> bool:
        """`gate`: the pipe whose one byte bubblewrap takes once the box is made; None: no box."""
        if gate is None:
            return self.started.kept[:1] == b"s" and self.started.kept[1:2] != b"x"
        waiting = fcntl.ioctl(gate, termios.FIONREAD, bytes(4))
        return not any(waiting)

    def was_executed(self, gate: int | None) -> bool:
        """Of a run that has ended.  Bubblewrap states an exit status only if it could execute the
        command, over a pipe that no process of the box holds."""
        return self.has_started(None) if gate is None else b'"exit-code"' in self.box.kept


class Watched(NamedTuple):
    """How a program ended, as the watch saw it."""

    ended: Ended
    is_starved: bool = False  # it ran out of time for want of a processor
    why: str = ""  # it did not start, or ended for reasons of the machine


def watch(
    process: subprocess.Popen[bytes],
    limits: Limits,
    channels: Channels,
    gate: int | None,
    patience: float,
    group: BoxGroup | None,
) -> Watched:
    """Wait until the process ends or exceeds a limit that no rlimit enforces: time, or memory of
    the whole tree, or output.  Its clock stops while it waits for a processor, until `patience`
    times its limit are over.

    Memory is what the kernel counts in the group; without a group, what /proc shows.
    """
    with ExitStack() as stack:
        watch_of_run = _Watch(process, limits, channels, gate, patience, group, stack)
        while True:
            if watched := watch_of_run.look():
                return watched
            _wait(process, channels)


@dataclass(slots=True)
class _Watch:
    """What the looks at one run have shown so far."""

    process: subprocess.Popen[bytes]
    limits: Limits
    channels: Channels
    gate: int | None
    patience: float
    group: BoxGroup | None
    stack: ExitStack  # closes `count`
    last: float = field(default_factory=time.monotonic)  # look
    wall: float = 0.0  # seconds since the start of the launcher, then of the program
    count: Count | None = None  # since the start of the program
    next_check: float = 0.0  # of the group and the processes
    round: int = 1
    value_bytes: int = 0  # at the start of the round
    cpu_before: float = 0.0  # processor seconds before the round

    def look(self) -> Watched | None:
        """How the program has ended; None: it goes on."""
        has_ended = self.process.poll() is not None
        for channel in self.channels:
            channel.take()
        now = time.monotonic()
        self.wall += min(now - self.last, STALL_SECONDS)
        self.last = now
        is_due = has_ended or now >= self.next_check
        if is_due:
            self.next_check = now + WATCH_SECONDS
        if is_due and self.group and (by := self.group.killed_by()):
            return Watched("memory") if by == "limit" else Watched("not started", why=NO_MEMORY)
        if has_ended:
            was_executed = self.channels.was_executed(self.gate)
            return Watched("exit" if was_executed else "not started")
        if self.count is None and (watched := self._start()):
            return watched
        return self._check(self.count) if self.count and is_due else None

    def _start(self) -> Watched | None:
        """Start the program's clock and count as soon as it runs."""
        if not self.channels.has_started(self.gate):
            return Watched("not started") if self.wall > START_SECONDS else None
        self.wall = 0.0
        init = None if self.gate is None else self.channels.init
        try:
            self.count = self.stack.enter_context(Count(self.limits, init, self.group))
        except PermissionError as error:
            if self.group is None:
                return Watched("not started", why=f"the watch cannot look into the box: {error}")
            # the group bounds memory, as the folder's size bounds files
            self.count = Count(self.limits, None, self.group)
        return None

    def _check(self, count: Count) -> Watched | None:
        """Whether the program exceeds a limit."""
        processes = tree(self.process.pid)
        cpu = sum(map(cpu_seconds, processes))
        if self.round < self.limits.rounds and len(self.channels.value.kept) > self.value_bytes:
            self.round += 1
            self.value_bytes = len(self.channels.value.kept)
            self.wall = 0.0
            self.cpu_before = cpu
        if self.channels.out.is_over or self.channels.value.is_over:
            return Watched("output")
        cpu -= self.cpu_before
        if is_over := _time_is_over(processes, self.wall, cpu, self.limits, self.patience):
            return Watched("time", is_over.is_starved)
        return Watched("memory") if count.is_over(processes) else None


def _wait(process: subprocess.Popen[bytes], channels: Channels) -> None:
    """Wait for output or the end of the process, at most WATCH_SECONDS."""
    poll = select.poll()
    open_channels = [channel for channel in channels if not channel.is_closed]
    if not open_channels:
        with suppress(subprocess.TimeoutExpired):
            process.wait(WATCH_SECONDS)
        return
    for channel in open_channels:
        poll.register(channel.read_end, select.POLLIN)
    poll.poll(WATCH_SECONDS * 1000)


class _TimeIsOver(NamedTuple):
    is_starved: bool


def _time_is_over(
    processes: list[int], wall: float, cpu: float, limits: Limits, patience: float
) -> _TimeIsOver | None:
    """None: it may go on.  `wall`, `cpu`: seconds, of the clock and of processors."""
    if cpu > limits.cpu_seconds:
        return _TimeIsOver(False)
    if wall <= limits.seconds:
        return None
    waited = max(map(seconds_without_processor, processes), default=0.0)
    if wall - waited > limits.seconds:
        return _TimeIsOver(False)
    return _TimeIsOver(True) if wall > patience * limits.seconds else None
