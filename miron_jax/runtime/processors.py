"""How many processors this process may use: its affinity, and the quota of its cgroups.

Arrives: nothing.  Leaves: a number.  It deliberately does not know what runs on them.
"""

import os
from contextlib import suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def usable_processors(cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int:
    """At least 1; a part of a processor does not count beside whole ones."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, int(min(allowed, _quota(cgroups, membership))))


def _quota(cgroups: Path, membership: Path) -> float:
    """Processors that the cgroups of this process may use together; infinite without a quota.

    A group is bounded by those above it too.  A container may see its own group as the root, so
    that a path which lies outside is not there.
    """
    quotas = [float("inf")]
    lines = list[str]()
    with suppress(OSError):
        lines = membership.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            hierarchies = [cgroups, cgroups / "unified"]
            read = _quota_v2
        elif "cpu" in controllers.split(","):
            hierarchies = [cgroups / controllers, cgroups / "cpu"]
            read = _quota_v1
        else:
            continue
        for hierarchy in hierarchies:
            group = hierarchy / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder == hierarchy or hierarchy in folder.parents:
                    with suppress(OSError, ValueError, ZeroDivisionError):
                        quotas.append(read(folder))
    return min(quotas)


def _quota_v2(folder: Path) -> float:
    """Raises ValueError for "max"."""
    quota, period = map(int, (folder / "cpu.max").read_text().split())
    return quota / period


def _quota_v1(folder: Path) -> float:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    period = int((folder / "cpu.cfs_period_us").read_text())
    return quota / period if quota > 0 else float("inf")
