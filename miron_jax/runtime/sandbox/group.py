"""Bounds a box by a control group (cgroup), in which the kernel counts memory and processes.

Arrives: this process's place in the hierarchies, the limits of a box.  Leaves: a `BoxGroup`, or one
word that says why none can be made.  It deliberately does not know what a box is.

The kernel counts what no look from outside can see, such as data in sockets and pipes, page tables
and inodes, and the program cannot change or leave its group.  Version 2 needs one group a box;
version 1 needs one in the hierarchy of memory and one in that of pids.

A group of version 2 that has processes cannot bound groups below it.  Groups of boxes are made
below this process's group where that is possible, else beside it or one of the groups above, as
long as they do not leave a group that has limits.

A run locks each of its groups.  A group whose lock is free is left over from a run that was killed,
and is removed.
"""

import errno
import fcntl
import os
import secrets
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Self

import psutil

from miron_jax.runtime.cgroups import Hierarchy, hierarchies

PREFIX = "miron-box-"
MAIN = "miron-main"  # this process's own group, if it was moved out of the way
KILL_SECONDS = 2.0
REMOVE_SECONDS = 0.2
# bytes for which the kernel kills if a group of version 1 has less room (PAGE_ALLOC_COSTLY_ORDER);
# its own count of refusals, memory.failcnt, is no longer kept everywhere
LARGEST_CHARGE = 8 * os.sysconf("SC_PAGE_SIZE")
TRIES = 5  # another run may take a group for a stale one before it is locked
_WANTED = {"memory", "pids"}
_LIMITS = ("memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max")
# of a shell: enters the groups that stand before "--", then executes the command after it
_JOIN = (
    'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'
)

Reason = Literal["absent", "old", "read-only", "denied", "busy", "unusable"]
_REASONS: dict[int | None, Reason] = {
    errno.EROFS: "read-only",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EBUSY: "busy",
}


class GroupLimits(NamedTuple):
    memory_bytes: int
    processes: int  # threads included
    processors: float


class BoxGroup:
    """The group of one box: its folder, in version 1 one in each hierarchy."""

    def __init__(self, groups: "BoxGroups", limits: GroupLimits) -> None:
        name = PREFIX + secrets.token_hex(8)
        self._groups = groups
        self._folders = [parent / name for parent in groups.parents]  # memory first, pids last
        self._locks = list[int]()
        try:
            for folder in self._folders:
                folder.mkdir()
                self._locks.append(_locked(folder))
            self._limit(limits)
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.remove()

    def _limit(self, limits: GroupLimits) -> None:
        """Raises OSError unless both memory and processes are bounded."""
        (self._folders[-1] / "pids.max").write_text(str(limits.processes))
        if self._groups.version == 1:
            (self._folders[0] / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
            # Swap is not always counted, and since Linux 5.16 the first limit counts the kernel's
            # memory too.
            optional = {
                "memory.memsw.limit_in_bytes": str(limits.memory_bytes),
                "memory.kmem.limit_in_bytes": str(limits.memory_bytes),
            }
        else:
            (self._folders[0] / "memory.max").write_text(str(limits.memory_bytes))
            optional = {
                "memory.swap.max": "0",
                "memory.oom.group": "1",
                "cpu.max": f"{int(limits.processors * 100_000)} 100000",
            }
        for name, value in optional.items():
            if (self._folders[0] / name).exists():
                with suppress(OSError):
                    (self._folders[0] / name).write_text(value)

    def joined(self, command: Sequence[str]) -> list[str]:
        """A command that enters the group and then executes this one: no process of it ever stands
        outside."""
        return ["/bin/sh", "-c", _JOIN, "join", *map(str, self._folders), "--", *command]

    @property
    def counts_kills(self) -> bool:
        """False before Linux 4.13: nothing tells whether a program was killed for memory."""
        return "oom_kill" in _counts(self._folders[0] / self._groups.events)

    def killed_by(self) -> Literal["limit", "machine"] | None:
        """Whether the kernel killed a process of the group because memory was short: the limit was
        reached, or the machine has no more."""
        events = _counts(self._folders[0] / self._groups.events)
        if not events.get("oom_kill"):
            return None
        if self._groups.version == 2:
            return "limit" if events.get("oom") else "machine"
        most = max(
            _number(self._folders[0] / "memory.max_usage_in_bytes"),
            _number(self._folders[0] / "memory.memsw.max_usage_in_bytes"),
        )
        limit = _number(self._folders[0] / "memory.limit_in_bytes")
        return "limit" if most > limit - LARGEST_CHARGE else "machine"

    def kill(self) -> None:
        _kill(self._folders)

    def remove(self) -> None:
        for folder in self._folders:
            if not _is_removed(folder, REMOVE_SECONDS):
                self._groups.left.append(folder)
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()


@dataclass(frozen=True, slots=True)
class BoxGroups:
    """Where groups of boxes are made."""

    version: Literal[1, 2]
    parents: tuple[Path, ...]  # version 1: of memory and of pids
    # groups that could not be removed yet: a process in them is slow to end
    left: list[Path] = field(default_factory=list, compare=False, repr=False)

    @property
    def events(self) -> str:
        """Name of the file that counts kills."""
        return "memory.oom_control" if self.version == 1 else "memory.events"

    def make(self, limits: GroupLimits) -> BoxGroup:
        """Raises OSError if the system has no room for another group."""
        for folder in list(self.left):
            if _is_removed(folder, 0.0):
                with suppress(ValueError):  # another thread did the same
                    self.left.remove(folder)
        for _ in range(TRIES - 1):
            with suppress(FileNotFoundError, BlockingIOError):
                return BoxGroup(self, limits)
        return BoxGroup(self, limits)

    def sweep(self) -> None:
        """Remove the groups of runs that were killed, with the processes in them."""
        for parent in self.parents:
            for folder in parent.glob(f"{PREFIX}*"):
                with suppress(OSError):
                    lock = _locked(folder)
                    _kill([folder])
                    _is_removed(folder, REMOVE_SECONDS)
                    os.close(lock)


def find_groups(places: Sequence[Hierarchy] | None = None) -> BoxGroups | Reason:
    """Where groups can be made, tried with one; a word if nowhere."""
    places = hierarchies() if places is None else places
    reason: Reason = "absent"
    for groups in _candidates(places):
        if isinstance(groups, OSError):
            reason = _REASONS.get(groups.errno, "unusable")
            continue
        try:
            with groups.make(GroupLimits(1 << 24, 8, 1.0)) as group:
                is_counted = group.counts_kills
        except OSError as error:
            reason = _REASONS.get(error.errno, "unusable")
            continue
        if not is_counted:
            return "old"
        groups.sweep()
        return groups
    return reason


def _candidates(places: Sequence[Hierarchy]) -> Iterator[BoxGroups | OSError]:
    """Best first."""
    by_name = dict[str, Path]()
    for place in places:
        if place.version == 2:
            yield from _candidates_v2(place)
        by_name |= dict.fromkeys(place.controllers, place.group)
    if by_name.keys() >= _WANTED:
        parents = dict.fromkeys((by_name["memory"], by_name["pids"]))  # one if mounted together
        yield BoxGroups(1, tuple(parents))


def _candidates_v2(place: Hierarchy) -> Iterator[BoxGroups | OSError]:
    folders = place.groups
    if folders[0].name == MAIN:
        folders = folders[1:]
    if not _words(folders[0] / "cgroup.controllers") >= _WANTED:  # hybrid: version 1 has them
        return
    if _is_alone(folders[0]) and not _words(folders[0] / "cgroup.subtree_control") >= _WANTED:
        try:
            _make_room(folders[0])
        except OSError as error:
            yield error
    else:
        yield OSError(errno.EBUSY, "other processes are in this group")
    for folder in folders:
        if _words(folder / "cgroup.subtree_control") >= _WANTED:
            yield BoxGroups(2, (folder,))
        if any("max" not in (_words(folder / name) or {"max"}) for name in _LIMITS):
            return


def _is_alone(group: Path) -> bool:
    """Whether a group holds this process and its descendants, and no other process."""
    this_process = psutil.Process()
    family = {this_process.pid, *(child.pid for child in this_process.children(recursive=True))}
    return _processes([group]) <= family


def _make_room(group: Path) -> None:
    """Move this process and its descendants into a group below theirs, which may then bound
    others."""
    main = group / MAIN
    main.mkdir(exist_ok=True)
    try:
        _move(_processes([group]), main)
        (group / "cgroup.subtree_control").write_text("+memory +pids")
    except OSError:
        _move(_processes([main]), group)
        main.rmdir()
        raise
    with suppress(OSError):
        (group / "cgroup.subtree_control").write_text("+cpu")


def _move(processes: Iterable[int], group: Path) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))


def _locked(folder: Path) -> int:
    """A descriptor of a folder that no other run has locked.  Raises BlockingIOError if one has."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _kill(folders: Sequence[Path]) -> None:
    """Kill all processes of groups; wait until none is left, at most KILL_SECONDS."""
    for folder in folders:
        if (folder / "pids.max").exists():
            with suppress(OSError):
                (folder / "pids.max").write_text("0")  # no process forks away
    end = time.monotonic() + KILL_SECONDS
    while alive := _processes(folders):
        for pid in alive - {0}:  # 0: of another namespace; as an argument, all of this process's
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for folder in folders:
            if (folder / "cgroup.kill").exists():
                with suppress(OSError):
                    (folder / "cgroup.kill").write_text("1")
        if time.monotonic() > end:
            return
        time.sleep(0.001)


def _processes(folders: Sequence[Path]) -> set[int]:
    numbers = set[int]()
    for folder in folders:
        with suppress(OSError):
            numbers |= set(map(int, (folder / "cgroup.procs").read_text().split()))
    return numbers


def _is_removed(folder: Path, seconds: float) -> bool:
    """Remove a group; try again for so long while a process in it has not quite ended."""
    end = time.monotonic() + seconds
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.001)
        else:
            return True


def _words(path: Path) -> set[str]:
    with suppress(OSError):
        return set(path.read_text().split())
    return set()


def _counts(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    with suppress(OSError):
        pairs = (line.split() for line in path.read_text().splitlines())
        return {name: int(number) for name, number in pairs}
    return {}


def _number(path: Path) -> int:
    """0 of a file that is not there."""
    with suppress(OSError):
        return int(path.read_text())
    return 0
