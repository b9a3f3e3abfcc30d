"""What a program takes of memory and files, where the kernel does not count it in a group.

Arrives: the limits of a box, its processes.  Leaves: whether they are exceeded.  It deliberately
does not know time.

Memory of a box is bounded three times.  sandbox.py sets what one process may take (RLIMIT_DATA and
RLIMIT_AS), and the size of the folder, which lies in memory.  A control group bounds all processes
together (group.py).  Where none can be made, `Count` adds up what /proc shows of them.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from miron_jax.runtime.sandbox.group import BoxGroup
from miron_jax.runtime.sandbox.limits import FOLDER, Limits
from miron_jax.runtime.sandbox.processes import read, threads

LOOKS = 2  # in a row that must show too much memory
# What a socket of the kernel's default size can hold.  The filter refuses to ask for more, and
# datagrams, of which a socket holds those of many senders.
SOCKET_BYTES = 256 << 10
_STATUS = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap|VmPTE):\s+(\d+) kB$", re.MULTILINE)
_TABLES = re.compile(rb"^VmPTE:\s+(\d+) kB$", re.MULTILINE)
_SHARES = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)


class Count:
    """What a program takes that no other limit bounds: files, and without a group memory."""

    def __init__(self, limits: Limits, init: int | None, group: BoxGroup | None) -> None:
        self._limits = limits
        self._init = init  # of the box; None: there is no box
        self._group = group
        self._num_over = 0  # looks in a row
        self._folder = -1
        if init is not None:
            # The init is no process of the program's, and the folder stays whatever that does.
            with suppress(FileNotFoundError, ProcessLookupError):  # the box has ended
                self._folder = os.open(f"/proc/{init}/root{FOLDER}", os.O_PATH | os.O_DIRECTORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder >= 0:
            os.close(self._folder)

    def is_over(self, processes: list[int]) -> bool:
        """Whether the program takes more than it may, or keeps the watch from looking.

        A process that starts a program shares its memory for a moment, which then counts twice: a
        second look decides.
        """
        files, folder_bytes = self._files()
        if files > self._limits.files:
            return True
        if self._group:
            return False
        try:
            bytes_of_all = folder_bytes + self._memory(processes)
        except PermissionError:
            return True
        self._num_over = self._num_over + 1 if bytes_of_all > self._limits.memory_bytes else 0
        return self._num_over >= LOOKS

    def _memory(self, processes: list[int]) -> int:
        if self._init is None:
            sockets = sum(map(open_sockets, processes))
        else:
            sockets = sockets_of_network(self._init)
        return sockets + memory(processes, self._limits.memory_bytes)

    def _files(self) -> tuple[int, int]:
        """Number and bytes of files in the box's folder; zeros without a box."""
        if self._folder < 0:
            return 0, 0
        folder = os.fstatvfs(self._folder)
        return folder.f_files - folder.f_ffree, (folder.f_blocks - folder.f_bfree) * folder.f_frsize


def memory(pids: Sequence[int], limit: int) -> int:
    """Bytes of memory, shared memory included, swap and page tables.

    What several processes share counts for each, unless that exceeds the limit: then each has its
    share (Pss).  That count takes 25 ms a GB, since the kernel walks all pages.
    """
    total = sum(_sum_of(pid, "status", _STATUS) for pid in pids)
    if total <= limit:
        return total
    total = 0
    for pid in pids:
        share = 0
        with suppress(PermissionError):
            share = _sum_of(pid, "smaps_rollup", _SHARES)
        if share:
            total += share + _sum_of(pid, "status", _TABLES)
        else:  # it cannot be read, or the kernel has no such file
            total += _sum_of(pid, "status", _STATUS)
    return total


def _sum_of(pid: int, name: str, fields: re.Pattern[bytes]) -> int:
    """Bytes; of a thread that has memory: the first may have ended."""
    for thread in threads(pid):
        if kilobytes := fields.findall(read(thread / name)):
            return sum(map(int, kilobytes)) << 10
    return 0


def open_sockets(pid: int) -> int:
    """Bytes that the sockets of a process can hold."""
    total = 0
    folder = Path(f"/proc/{pid}/fd")
    with suppress(FileNotFoundError, ProcessLookupError):
        for descriptor in os.listdir(folder):
            with suppress(FileNotFoundError, ProcessLookupError):  # closed meanwhile
                if os.readlink(folder / descriptor).startswith("socket:"):
                    total += SOCKET_BYTES
    return total


def sockets_of_network(pid: int) -> int:
    """Bytes that the sockets in a process's network namespace can hold: those of no process too,
    which are sent as messages or wait to be accepted."""
    return SOCKET_BYTES * len(read(Path(f"/proc/{pid}/net/unix")).splitlines()[1:])
