"""How many processors this process may use: its affinity, and the quota of its cgroups; and how
rarely it looks for garbage.

Arrives: nothing.  Leaves: a number.  It deliberately does not know what runs on them.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from miron_jax.runtime.cgroups import Hierarchy, hierarchies

# new objects before Python looks for cycles; at its own 700, a fifth of planning goes into cycles
# that are not there
NEW_OBJECTS = 50_000


def usable_processors(groups: Sequence[Hierarchy] | None = None) -> int:
    """At least 1; a part of a processor does not count beside whole ones."""
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    quota = _quota(hierarchies() if groups is None else groups)
    return max(1, int(min(allowed, quota)))


def _quota(groups: Sequence[Hierarchy]) -> float:
    """Processors that the cgroups of this process may use together; infinite without a quota."""
    quotas = [float("inf")]
    for hierarchy in groups:
        read = _quota_v2 if hierarchy.version == 2 else _quota_v1
        for folder in hierarchy.groups:
            with suppress(OSError, ValueError, ZeroDivisionError):
                quotas.append(read(folder))
    return min(quotas)


def _quota_v2(folder: Path) -> float:
    """Raises ValueError for "max"."""
    quota, period = map(int, (folder / "cpu.max").read_text().split())
    return quota / period


def _quota_v1(folder: Path) -> float:
    """Raises OSError where this hierarchy has no such controller."""
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    period = int((folder / "cpu.cfs_period_us").read_text())
    return quota / period if quota > 0 else float("inf")
