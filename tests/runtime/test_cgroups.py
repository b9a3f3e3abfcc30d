"""Control groups: where they can be made, what they are told, and what is read off them, on made-up hierarchies."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from miron_jax.runtime import processors
from miron_jax.runtime.cgroups import hierarchies
from miron_jax.runtime.processors import usable_processors
from miron_jax.runtime.sandbox import group as box_group
from miron_jax.runtime.sandbox.group import MAIN, PREFIX, BoxGroup, BoxGroups, GroupLimits, find_groups

V2 = "26 22 0:23 {root} {top} rw,relatime - cgroup2 cgroup2 rw\n"
V1 = "3{n} 31 0:2{n} {root} {top} rw,relatime shared:9 - cgroup cgroup rw,{controllers}\n"
LIMITS = GroupLimits(1 << 30, 66, 4.0)


def at(tmp_path: Path, mounts: str, groups: str):
    """The hierarchies of a machine with these lines of mountinfo and of /proc/self/cgroup."""
    (tmp_path / "mounts").write_text(mounts)
    (tmp_path / "groups").write_text(groups)
    return hierarchies(tmp_path / "mounts", tmp_path / "groups")


@pytest.mark.parametrize(
    ("mounts", "groups", "expected"),
    [
        ("", "0::/\n", []),
        ("22 1 0:5 / /proc rw - proc proc rw\n", "0::/a\n", []),
        (V2.format(root="/", top="/cg"), "0::/a/b\n", [(2, "", "/cg/a/b")]),
        # a container without a namespace of groups: its mount is a part of the hierarchy
        (V2.format(root="/docker/x", top="/cg"), "0::/docker/x/y\n", [(2, "", "/cg/y")]),
        (V2.format(root="/docker/x", top="/cg"), "0::/elsewhere\n", [(2, "", "/cg")]),
        (V2.format(root="/", top=r"/a\040b"), "0::/c\n", [(2, "", "/a b/c")]),
        # hybrid, with a hierarchy that is mounted twice
        (
            V1.format(n=1, root="/", top="/cg/cpu,cpuacct", controllers="cpu,cpuacct")
            + V1.format(n=1, root="/", top="/again", controllers="cpu,cpuacct")
            + V1.format(n=2, root="/", top="/cg/memory", controllers="memory")
            + V1.format(n=3, root="/", top="/cg/systemd", controllers="xattr,name=systemd")
            + V2.format(root="/", top="/cg/unified"),
            "5:memory:/m\n4:cpu,cpuacct:/\n2:name=systemd:/s:1\n1:pids:/\n0::/u\n",
            [
                (1, "cpu,cpuacct", "/cg/cpu,cpuacct"), (1, "memory", "/cg/memory/m"),
                (1, "name=systemd", "/cg/systemd/s:1"), (2, "", "/cg/unified/u"),
            ],
        ),
    ],
)  # fmt: skip
def test_the_groups_of_this_process(tmp_path: Path, mounts: str, groups: str, expected: list[tuple[int, str, str]]):
    places = at(tmp_path, mounts, groups)
    assert [(place.version, ",".join(sorted(place.controllers)), str(place.group)) for place in places] == expected


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "expected"),
    [
        ("", "0::/a/b\n", {}, 8),
        (V2, "0::/a/b\n", {"a/b/cpu.max": "max 100000", "cpu.max": "max 100000"}, 8),
        (V2, "0::/a/b\n", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "250000 100000"}, 2),
        (V2, "0::/../elsewhere\n", {"cpu.max": "50000 100000"}, 1),
        (V1, "4:cpu,x:/d\n", {"d/cpu.cfs_quota_us": "300000", "d/cpu.cfs_period_us": "100000"}, 3),
        (V1, "4:cpu,x:/d\n", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, 8),
        (V1, "4:cpu,x:/d\n", {"d/cpu.cfs_quota_us": "150000", "d/cpu.cfs_period_us": "100000"}, 1),
    ],
)
def test_processors_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, groups: str, files: dict[str, str], expected: int
):
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda pid: set(range(8)))
    for name, content in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(content + "\n")
    mounts = mounts.format(n=4, root="/", top=tmp_path / "fs", controllers="cpu,x")
    assert usable_processors(at(tmp_path, mounts, groups)) == expected


def put(path: Path, text: str) -> None:
    """Writes as the kernel would."""
    with path.open("w") as file:
        file.write(text)


class Fs:
    """A made-up file system of groups: a folder comes with its files, and goes with them."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.top = top
        self.refusals = dict[str, int]()  # errno of calls that begin so
        self.fill = v2
        self.written = dict[str, str]()
        make, remove, write = Path.mkdir, Path.rmdir, Path.write_text

        def mkdir(path: Path, *args: object, **kwargs: bool) -> None:
            if self._is_here(path):
                self._refuse(f"mkdir {path.name}")
            make(path, *args, **kwargs)  # pyright: ignore[reportArgumentType]
            if self._is_here(path):
                self.fill(path)

        def rmdir(path: Path) -> None:
            if not self._is_here(path):
                return remove(path)
            if (path / "cgroup.procs").read_text().strip():
                raise OSError(errno.EBUSY, "busy")
            self._refuse(f"rmdir {path.name}")
            shutil.rmtree(path)

        def write_text(path: Path, text: str, *args: object, **kwargs: object) -> int:
            if not self._is_here(path):
                return write(path, text, *args, **kwargs)  # pyright: ignore[reportArgumentType]
            self._refuse(f"write {path.name}")
            self.written[path.name] = text
            if path.name == "cgroup.procs":  # a process is in one group
                for other in (*path.parent.glob("*/cgroup.procs"), path.parent.parent / path.name):
                    if other.exists():
                        pids = [pid for pid in other.read_text().split() if pid != text]
                        write(other, "".join(f"{pid}\n" for pid in pids))
                text = path.read_text() + text + "\n"
            if path.name == "cgroup.subtree_control":
                if (path.parent / "cgroup.procs").read_text() and path.parent != self.top:
                    raise OSError(errno.EBUSY, "it has processes")
                text = path.read_text() + " " + text.replace("+", "")
            if path.name == "cgroup.kill":
                write(path.parent / "cgroup.procs", "")
            return write(path, text)

        monkeypatch.setattr(Path, "mkdir", mkdir)
        monkeypatch.setattr(Path, "rmdir", rmdir)
        monkeypatch.setattr(Path, "write_text", write_text)

    def _is_here(self, path: Path) -> bool:
        return self.top in (path, *path.parents)

    def _refuse(self, call: str) -> None:
        for name, number in list(self.refusals.items()):
            if call.startswith(name):
                raise OSError(number, os.strerror(number))


def v2(path: Path) -> None:
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max", "cgroup.kill"):
        (path / name).touch()
    (path / "cgroup.procs").touch()
    (path / "cgroup.subtree_control").touch()
    put(path / "cgroup.controllers", "cpu memory pids\n")
    put(path / "memory.events", "low 0\nmax 3\noom 0\noom_kill 0\n")


def v1(path: Path) -> None:
    """Of memory and of pids: the tests write to what concerns each."""
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.limit_in_bytes", "pids.max"):
        (path / name).touch()
    (path / "cgroup.procs").touch()
    put(path / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")


@pytest.fixture
def fs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fs:
    monkeypatch.setattr(box_group, "REMOVE_SECONDS", 0.01)
    monkeypatch.setattr(box_group, "KILL_SECONDS", 0.01)
    (tmp_path / "fs").mkdir()
    return Fs(tmp_path / "fs", monkeypatch)


def found_v2(fs: Fs, path: str, processes: dict[str, str], control: dict[str, str]) -> BoxGroups | str:
    """The groups of a machine of version 2 where this process is in `path`."""
    v2(fs.top)
    for folder in (*reversed(Path(path).parents), Path(path)):
        (fs.top / str(folder).lstrip("/")).mkdir(exist_ok=True)
    for name, pids in processes.items():
        put(fs.top / name.lstrip("/") / "cgroup.procs", pids)
    for name, words in control.items():
        put(fs.top / name.lstrip("/") / "cgroup.subtree_control", words)
    return find_groups(at(fs.top.parent, V2.format(root="/", top=fs.top), f"0::{path}\n"))


ME = f"{os.getpid()}\n"


def test_a_group_is_made_below_that_of_this_process_if_it_may_bound_others(fs: Fs):
    groups = found_v2(fs, "/", {"/": f"1\n{ME}"}, {"/": "cpu memory pids\n"})
    assert groups == BoxGroups(2, (fs.top,))


def test_a_process_alone_in_its_group_makes_room(fs: Fs):
    """As under `systemd-run --user --scope`: a group with processes cannot bound groups below it."""
    groups = found_v2(fs, "/app/run.scope", {"/app/run.scope": ME}, {"/app": "memory pids\n"})
    scope = fs.top / "app" / "run.scope"
    assert groups == BoxGroups(2, (scope,))
    assert (scope / "cgroup.procs").read_text() == ""
    assert (scope / MAIN / "cgroup.procs").read_text() == ME
    assert (scope / "cgroup.subtree_control").read_text().split() == ["memory", "pids", "cpu"]
    again = find_groups(at(fs.top.parent, V2.format(root="/", top=fs.top), f"0::/app/run.scope/{MAIN}\n"))
    assert again == groups


def test_a_process_that_cannot_make_room_goes_back(fs: Fs):
    fs.refusals["write cgroup.subtree_control"] = errno.EACCES
    assert found_v2(fs, "/a", {"/a": ME}, {}) == "denied"
    assert (fs.top / "a" / "cgroup.procs").read_text() == ME
    assert not (fs.top / "a" / MAIN).exists()


def test_a_process_among_others_uses_a_group_above(fs: Fs):
    place = {"/app/run.scope": f"1\n{ME}"}, {"/app": "memory pids\n"}
    groups = found_v2(fs, "/app/run.scope", *place)
    assert groups == BoxGroups(2, (fs.top / "app",))
    put(fs.top / "app" / "memory.max", "1073741824\n")  # bounds what is below it, boxes included
    put(fs.top / "app" / "run.scope" / "cpu.max", "max 100000\n")
    assert found_v2(fs, "/app/run.scope", *place) == groups


@pytest.mark.parametrize(("name", "text"), [("memory.max", "1073741824\n"), ("cpu.max", "200000 100000\n")])
def test_boxes_do_not_leave_the_limits_of_a_group(fs: Fs, name: str, text: str):
    """Before, they were made beside it, so that a job took more than it was given."""
    (fs.top / "app" / "run.scope").mkdir(parents=True)
    put(fs.top / "app" / "run.scope" / name, text)
    place = {"/app/run.scope": f"1\n{ME}"}, {"/app": "memory pids\n"}
    assert found_v2(fs, "/app/run.scope", *place) == "busy"


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EROFS, "read-only"), (errno.EACCES, "denied"), (errno.EPERM, "denied"), (errno.ENOSPC, "unusable")],
)
def test_why_no_group_can_be_made(fs: Fs, number: int, reason: str):
    fs.refusals[f"mkdir {PREFIX}"] = number
    assert found_v2(fs, "/", {}, {"/": "memory pids"}) == reason


def test_a_process_among_others_below_groups_that_bound_nothing_has_none(fs: Fs):
    assert found_v2(fs, "/a", {"/a": f"1\n{ME}"}, {}) == "busy"


def test_version_1_and_hybrid(fs: Fs):
    """Version 2 holds hugetlb alone; memory and pids are hierarchies of version 1."""
    fs.fill = v1
    mounts = V2.format(root="/", top=fs.top / "unified")
    for n, name in enumerate(("memory", "pids")):
        mounts += V1.format(n=n, root="/", top=fs.top / name, controllers=name)
        (fs.top / name / "x").mkdir(parents=True)
    (fs.top / "unified").mkdir()
    put(fs.top / "unified" / "cgroup.controllers", "hugetlb\n")
    lines = "2:memory:/x\n1:pids:/\n0::/\n"
    groups = find_groups(at(fs.top.parent, mounts, lines))
    assert isinstance(groups, BoxGroups)
    assert groups == BoxGroups(1, (fs.top / "memory" / "x", fs.top / "pids"))
    with groups.make(LIMITS) as group:
        [memory] = (fs.top / "memory" / "x").glob(f"{PREFIX}*")
        limits = {name: (memory / name).read_text() for name in fs.written if name.startswith("memory.")}
        assert limits == dict.fromkeys(
            ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.limit_in_bytes"), str(1 << 30)
        )
        assert fs.written["pids.max"] == "66"
        joined = group.joined(["true"])
        assert joined[:2] == ["/bin/sh", "-c"]
        assert joined[-5:] == ["join", str(memory), str(fs.top / "pids" / memory.name), "--", "true"]
        kills = memory / "memory.oom_control"
        peak = memory / "memory.max_usage_in_bytes"
        assert group.killed_by() is None
        for oom_kills, usage, by in ((0, 1 << 30, None), (1, 1 << 29, "machine"), (2, (1 << 30) - 4096, "limit")):
            put(kills, f"under_oom 0\noom_kill {oom_kills}\n")
            put(peak, f"{usage}\n")
            assert group.killed_by() == by
    assert list(fs.top.rglob(f"{PREFIX}*")) == []
    assert find_groups(at(fs.top.parent, mounts, lines.replace("pids", "other"))) == "absent"
    fs.fill = lambda path: (path / "cgroup.procs").touch()  # Linux 4.9
    assert find_groups(at(fs.top.parent, mounts, lines)) == "old"


def test_limits_and_kills_of_version_2(fs: Fs):
    groups = found_v2(fs, "/", {}, {"/": "memory pids"})
    assert isinstance(groups, BoxGroups)
    with groups.make(LIMITS) as group:
        [folder] = fs.top.glob(f"{PREFIX}*")
        names = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max")
        assert [(folder / name).read_text() for name in names] == [str(1 << 30), "0", "1", "66", "400000 100000"]
        for events, by in (
            ("max 9\noom 0\noom_kill 0", None),  # it gave back what it had cached
            ("max 9\noom 1\noom_kill 1", "limit"),
            ("max 9\noom 0\noom_kill 1", "machine"),  # or a group above
        ):
            put(folder / "memory.events", events)
            assert group.killed_by() == by
        put(folder / "cgroup.procs", "0\n")  # of another namespace: no process is killed by its number
    assert fs.written["cgroup.kill"] == "1"
    assert list(fs.top.glob(f"{PREFIX}*")) == []


def test_a_group_that_cannot_be_removed_is_tried_again(fs: Fs):
    """A process that is slow to end keeps its group busy; no run ends by that."""
    groups = found_v2(fs, "/", {}, {"/": "memory pids"})
    assert isinstance(groups, BoxGroups)
    fs.refusals["rmdir"] = errno.EBUSY
    for _ in range(2):
        with groups.make(LIMITS):
            pass
    assert len(groups.left) == len(list(fs.top.glob(f"{PREFIX}*"))) == 2
    fs.refusals.clear()
    with groups.make(LIMITS):
        assert groups.left == []
    assert list(fs.top.glob(f"{PREFIX}*")) == []


def test_groups_of_killed_runs_are_swept_and_those_of_others_stay(fs: Fs):
    groups = found_v2(fs, "/", {}, {"/": "memory pids"})
    assert isinstance(groups, BoxGroups)
    stale = fs.top / f"{PREFIX}stale"
    stale.mkdir()
    (fs.top / "user.slice").mkdir()
    put(stale / "cgroup.procs", "0\n")
    with groups.make(LIMITS):
        groups.sweep()
        assert not stale.exists()
        assert len(list(fs.top.glob(f"{PREFIX}*"))) == 1
    assert (fs.top / "user.slice").exists()


def test_a_group_that_another_run_took_for_a_stale_one_is_made_anew(fs: Fs, monkeypatch: pytest.MonkeyPatch):
    groups = found_v2(fs, "/", {}, {"/": "memory pids"})
    assert isinstance(groups, BoxGroups)
    locked = box_group._locked
    taken = list[Path]()

    def take(folder: Path) -> int:
        if len(taken) < 2:
            taken.append(folder)
            raise BlockingIOError
        return locked(folder)

    monkeypatch.setattr(box_group, "_locked", take)
    with groups.make(LIMITS) as group:
        assert isinstance(group, BoxGroup)
        assert not taken[0].exists()
    fs.refusals["mkdir"] = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        groups.make(LIMITS)
