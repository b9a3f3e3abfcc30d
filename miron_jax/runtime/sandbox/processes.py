"""Processes of a box as /proc shows them: which there are, their time, and how they end.

Arrives: process ids.  Leaves: seconds; no process of the box, and no zombie.  It
deliberately does not know limits.

What a program chooses hides nothing here: a process whose first thread has ended is read through
another thread, its name cannot pass for a field, and a process that lives but cannot be read raises
PermissionError.
"""

import ctypes
import functools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

KILL_SECONDS = 2.0
REAP_SECONDS = 2.0
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_GET_CHILD_SUBREAPER = 37
_TICKS = os.sysconf("SC_CLK_TCK")

# Runs a command where no namespace ends its daemons: they become this process's children, and end
# with it.
SUPERVISOR = """
import ctypes, os, resource, signal, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
first = os.fork()
if not first:
    os.setsid()
    os.execvp(sys.argv[1], sys.argv[1:])
os.closerange(0, 1 << 16)
status = None
while status is None:
    pid, ended = os.wait()
    if pid == first:
        status = ended
try:
    while True:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
                if int(fields[1]) == os.getpid():
                    os.kill(int(pid), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass
        time.sleep(0.001)
except ChildProcessError:
    pass
if os.WIFSIGNALED(status):
    if os.WTERMSIG(status) not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.waitstatus_to_exitcode(status))
"""


def tree(pid: int) -> list[int]:
    """A process and its descendants, zombies included; [] once it has ended and was waited for."""
    if not _lists_children():
        with suppress(psutil.Error):
            top = psutil.Process(pid)
            return [pid, *(child.pid for child in top.children(recursive=True))]
        return []
    pids = [pid] if Path(f"/proc/{pid}").exists() else []
    for each in pids:  # grows meanwhile
        for thread in threads(each):
            pids += map(int, read(thread / "children").split())
    return pids


def cpu_seconds(pid: int) -> float:
    """Of a process and of its children that have ended and were waited for."""
    fields = read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def seconds_without_processor(pid: int) -> float:
    """Seconds that a thread of the process could run and did not, the longest; 0 where the kernel
    does not count them."""
    waited = [0.0]
    for thread in threads(pid):
        if fields := read(thread / "schedstat").split():
            waited.append(int(fields[1]) / 1e9)
    return max(waited)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants.  In a box its init ends too, and with it every process.

    A supervisor ends last, so that no process is adopted by another one.
    """
    end = time.monotonic() + KILL_SECONDS
    while process.poll() is None and time.monotonic() < end:
        descendants = tree(process.pid)[1:]
        for pid in descendants:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not descendants:
            break
        time.sleep(0.001)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


_lock = threading.Lock()
_num_adopting = 0
_was_subreaper = 0


@contextmanager
def adopted_strays() -> Iterator[None]:
    """Make this process the parent of processes whose parent ends, so that it can `reap` them.

    Bubblewrap ends before its child, the init of the box.  That child would be left as a zombie
    where no process 1 reaps, as in a container without an init.  Afterwards processes are adopted
    as before: this process may be one that trains and has other children.
    """
    global _num_adopting, _was_subreaper
    libc = ctypes.CDLL(None)
    with _lock:
        if not _num_adopting:
            value = ctypes.c_int()
            libc.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
            _was_subreaper = value.value
            libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _num_adopting += 1
    try:
        yield
    finally:
        with _lock:
            _num_adopting -= 1
            if not _num_adopting:
                libc.prctl(_SET_CHILD_SUBREAPER, _was_subreaper, 0, 0, 0)


def reap(init: int | None) -> None:
    """Wait for the init of a box, whose bubblewrap has ended."""
    end = time.monotonic() + REAP_SECONDS
    while init is not None and time.monotonic() < end:
        try:
            if os.waitpid(init, os.WNOHANG)[0]:
                return
        except ChildProcessError:  # process 1 has it
            return
        time.sleep(0.001)


@functools.cache
def _lists_children() -> bool:
    """Whether this kernel names the children of a process (CONFIG_PROC_CHILDREN)."""
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


def threads(pid: int) -> list[Path]:
    """Folders of a process's threads in /proc; [] once it has ended."""
    folder = Path(f"/proc/{pid}/task")
    with suppress(FileNotFoundError, ProcessLookupError):
        return [folder / name for name in os.listdir(folder)]
    return []


def read(path: Path) -> bytes:
    """b"" of what has ended meanwhile, or of a file that this kernel lacks."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return path.read_bytes()
    return b""
