"""Watches a program in its box: what it takes, what it writes, how it ends.

Arrives: a process, `Limits`, the pipes of a box.  Leaves: how it ended; no process of the box, and
no zombie.  It deliberately does not know how a box is made.
"""

import ctypes
import json
import os
import re
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self

import psutil

FOLDER = "/box"  # the run's folder, as it sees it
WATCH_SECONDS = 0.02  # between two checks of a run
START_SECONDS = 30.0  # of wall time, until the program is executed
REAP_SECONDS = 2.0
READS = 64  # of one pipe, before the others' turn
# A longer time between two checks counts as this one: the machine, or this process, stood still.
STALL_SECONDS = 1.0
# that a socket of the kernel's default size can hold: the filter refuses to ask for more
SOCKET_BYTES = 256 << 10
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

# memory: of processes, sockets or files; output: it wrote more than is read;
# not started: the machine could not start it, which says nothing about the program
Ended = Literal["exit", "time", "memory", "output", "not started"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may take."""

    seconds: float = 10.0  # wall-clock, from the program's first instruction
    cpu_seconds: float = 40.0  # of processors, of the whole process tree
    memory_bytes: int = 2 << 30  # of the whole process tree
    processes: int = 64
    output_bytes: int = 1 << 20  # of standard output, and of the value
    folder_bytes: int = 256 << 20
    files: int = 4096  # in its folder, subfolders included


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
    box: Channel  # of bubblewrap: the number of the box's first process
    out: Channel
    err: Channel
    value: Channel  # descriptor 3

    @property
    def is_started(self) -> bool:
        return self.started.kept[:1] == b"s" and self.started.kept[1:2] != b"x"


def watch(
    process: subprocess.Popen[bytes],
    limits: Limits,
    channels: Channels,
    boxed: bool,
    patience: float,
) -> tuple[Ended, bool]:
    """Wait until the process ends or exceeds a limit that no rlimit enforces: time, or memory of
    the whole tree, or output.  Returns also whether it ran out of time for want of a processor:
    its clock stops while it waits for one, until `patience` times its limit are over.
    """
    last = time.monotonic()
    wall = 0.0  # since the start of the launcher, then of the program
    is_started = False
    next_look = last
    while True:
        has_ended = process.poll() is not None
        for channel in channels:
            channel.take()
        now = time.monotonic()
        wall += min(now - last, STALL_SECONDS)
        last = now
        if not is_started and channels.is_started:
            is_started = True
            wall = 0.0
        if has_ended:
            return ("exit" if channels.is_started else "not started"), False
        if not is_started and wall > START_SECONDS:
            return "not started", False
        if is_started and now >= next_look:
            next_look = now + WATCH_SECONDS
            tree = _tree(process.pid)
            if channels.out.is_over or channels.value.is_over:
                return "output", False
            if is_over := _time_is_over(tree, wall, limits, patience):
                return "time", is_over.is_starved
            files, folder_bytes = _folder_of(tree[-1].pid) if boxed and tree else (0, 0)
            if files > limits.files or folder_bytes + sum(map(_memory, tree)) > limits.memory_bytes:
                return "memory", False
        _wait(process, channels)


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
    tree: list[psutil.Process], wall: float, limits: Limits, patience: float
) -> _TimeIsOver | None:
    """None: it may go on."""
    if sum(map(_cpu_seconds, tree)) > limits.cpu_seconds:
        return _TimeIsOver(False)
    if wall <= limits.seconds:
        return None
    waited = max(map(_seconds_without_processor, tree), default=0.0)
    if wall - waited > limits.seconds:
        return _TimeIsOver(False)
    return _TimeIsOver(True) if wall > patience * limits.seconds else None


def _cpu_seconds(process: psutil.Process) -> float:
    """Of a process and of its children that have ended."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.Error:
        return 0.0


def _seconds_without_processor(process: psutil.Process) -> float:
    """Seconds that a thread of the process could run and did not, the longest; 0 where the kernel
    does not count them."""
    waited = [0.0]
    for schedule in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):
            waited.append(int(schedule.read_text().split()[1]) / 1e9)
    return max(waited)


def _tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants; [] once it has ended."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _memory(process: psutil.Process) -> int:
    """Bytes of a process: resident memory, page tables, and what its sockets can hold; 0 of what
    has ended meanwhile."""
    total = 0
    folder = Path("/proc") / str(process.pid)
    with suppress(psutil.Error):
        total += process.memory_info().rss
    with suppress(OSError):
        tables = re.search(rb"VmPTE:\s*(\d+) kB", (folder / "status").read_bytes())
        total += int(tables[1]) << 10 if tables else 0
    with suppress(OSError):
        total += SOCKET_BYTES * sum(
            _is_socket(folder / "fd" / name) for name in os.listdir(folder / "fd")
        )
    return total


def _is_socket(path: Path) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except OSError:  # closed meanwhile
        return False


def _folder_of(pid: int) -> tuple[int, int]:
    """Number and bytes of files in a sandbox's folder, by a process inside it; zeros before the
    folder exists."""
    try:
        folder = os.statvfs(f"/proc/{pid}/root{FOLDER}")
    except OSError:
        return 0, 0
    return folder.f_files - folder.f_ffree, (folder.f_blocks - folder.f_bfree) * folder.f_frsize


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group and all descendants; in a sandbox its init ends too, and with it every
    process."""
    tree = _tree(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in tree:
        with suppress(psutil.Error):
            child.kill()
    process.wait()


def adopt_strays() -> None:
    """Make this process the parent of processes whose parent ends, so that it can `reap` them.

    Bubblewrap ends before its child, the init of the box.  That child would be left as a zombie
    where no process 1 reaps, as in a container without an init.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(box: Channel) -> None:
    """Wait for the init of a box, whose bubblewrap has ended."""
    box.take()
    try:
        pid = int(json.loads(box.kept)["child-pid"])
    except (ValueError, KeyError):  # no sandbox, or it ended before it had one
        return
    end = time.monotonic() + REAP_SECONDS
    while time.monotonic() < end:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:  # process 1 has it
            return
        time.sleep(0.001)
