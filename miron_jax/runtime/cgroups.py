"""Control groups (cgroups) of this process: which hierarchies are mounted, and its place in each.

Arrives: nothing.  Leaves: `Hierarchy`s.  It deliberately does not know what groups are used for.
"""

from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

_MOUNTS = Path("/proc/self/mountinfo")
_MEMBERSHIP = Path("/proc/self/cgroup")


class Hierarchy(NamedTuple):
    """A mounted tree of groups.  A machine has one of version 2, or several of version 1, or both
    (hybrid)."""

    version: Literal[1, 2]
    controllers: frozenset[str]  # of version 1; groups of version 2 list theirs
    top: Path  # where it is mounted
    group: Path  # of this process; `top` where its group lies outside the mount

    @property
    def groups(self) -> list[Path]:
        """This process's group and those above it, which bound it too."""
        return [self.group, *(each for each in self.group.parents if _lies_in(each, self.top))]


def hierarchies(mounts: Path = _MOUNTS, membership: Path = _MEMBERSHIP) -> list[Hierarchy]:
    """Empty where no cgroups are mounted.

    A container may see a part of a hierarchy alone.  Then the mount's root is a path that the
    process's group begins with.
    """
    paths = _paths(membership)
    result = dict[str, Hierarchy]()
    for line in _lines(mounts):
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, top = map(_unescaped, fields.split(" ")[3:5])
        names = frozenset[str]()
        if kind == "cgroup":
            names = frozenset(options.split(","))
        for controllers, path in paths.items():
            words = frozenset(filter(None, controllers.split(",")))
            is_same = words <= names if words else kind == "cgroup2"
            if is_same and controllers not in result:
                group = Path(top)
                if _lies_in(Path(path), Path(root)):
                    group /= Path(path).relative_to(root)
                version = 1 if words else 2
                result[controllers] = Hierarchy(version, words, Path(top), group)
    return list(result.values())


def _paths(membership: Path) -> dict[str, str]:
    """The process's group in each hierarchy, by its controllers: "cpu,cpuacct"; "" is version 2."""
    fields = (line.split(":", 2) for line in _lines(membership))
    return {controllers: path for _, controllers, path in fields}


def _lies_in(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text(errors="replace").splitlines()
    return []


def _unescaped(path: str) -> str:
    """A path of mountinfo, which writes a space as backslash 040."""
    return path.replace("\\040", " ")
