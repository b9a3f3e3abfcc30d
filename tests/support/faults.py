"""A disk whose calls fail, or whose process is killed or loses power before one of them.

    with Disk(folder, at=7, error=errno.EIO) as disk:  # the seventh call fails, and writes half if it is a write
        ...
    with Disk(folder) as disk:
        disk.when = lambda: ...                        # before each call, and in the middle of each write:
        disk.after_kill()                              # what a kill now leaves
        disk.after_power_cut(random.Random(0), 0.5)    # what a power cut now leaves

After a power cut a file has what was synced, or the beginning of what was not; a folder has the names that were synced,
and of later renames, new files and removals some: each as a whole or not at all.
"""

import errno
import fcntl
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from miron_jax.files import durable, store

# of the writer, of the lock, and reads of the store
CALLS = ("open", "write", "fsync", "close", "replace", "unlink", "mkdir", "rmdir", "listdir", "chmod", "stat", "fstat",
         "ftruncate", "flock", "read")  # fmt: skip
# a kill or a power cut before any other call leaves what one before the next of these leaves
CHANGES = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "chmod", "ftruncate")

Tree = dict[str, bytes | None]  # names below a folder -> contents; None: a folder


def tree_of(folder: Path) -> Tree:
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def plant(tree: Tree, folder: Path) -> None:
    """Make the folder hold this and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in sorted(tree):
        content = tree[name]
        if content is None:
            (folder / name).mkdir(exist_ok=True)
        else:
            (folder / name).write_bytes(content)


class Time:
    """`time` for the lock, which sleeps for no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class File:
    """A file under whatever name; `synced`: what a power cut leaves of it at least."""

    def __init__(self, synced: bytes = b"") -> None:
        self.synced = synced


class Disk:
    """`os` and `fcntl` for miron_jax.files.durable and store."""

    def __init__(self, folder: Path, at: int | None = None, error: int = errno.ENOSPC) -> None:
        self.folder, self.at, self.error = folder, at, error
        self.calls: list[str] = []
        self.when: Callable[[], None] = lambda: None
        self._is_watched = False
        self._open: dict[int, Path] = {}
        self._files: dict[Path, File] = {}  # of now
        # what lasts, and then each change of names: the folders to sync for it, what is gone, what is there
        self._lasting: dict[Path, File | None] = {}  # None: a folder
        self._changes: list[tuple[set[Path], Path | None, Path | None, File | None]] = []
        self._patch = pytest.MonkeyPatch()
        if folder.is_dir():
            for name, content in tree_of(folder).items():
                path = folder / name
                self._lasting[path] = None if content is None else self._file(path, content)

    def _file(self, path: Path, synced: bytes = b"") -> File:
        return self._files.setdefault(path, File(synced))

    def __enter__(self) -> Self:
        read = store.read_regular
        self._patch.setattr(durable, "os", self)
        self._patch.setattr(store, "os", self)
        self._patch.setattr(store, "fcntl", self)
        self._patch.setattr(store, "time", Time())
        self._patch.setattr(store, "read_regular", lambda path: self._call("read", read, path))
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def __getattr__(self, name: str) -> Any:
        function = getattr(fcntl if "lock" in name.lower() else os, name)
        if name not in CALLS:
            return function

        def called(*arguments: Any, **options: Any) -> Any:
            return self._call(name, function, *arguments, **options)

        return called

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._is_watched:  # what the watcher itself reads
            return function(*arguments, **options)
        done = 0
        if name == "write":
            [content] = arguments[1:]
            done = os.write(arguments[0], content[: len(content) // 2])
            arguments = (arguments[0], content[done:])
        self.calls.append(f"{name} {arguments[0] if name != 'close' else ''}")
        self._is_watched = True
        self.when()
        self._is_watched = False
        if len(self.calls) == self.at:
            if name == "close":
                os.close(arguments[0])
            raise OSError(self.error, os.strerror(self.error))
        result = None if name == "fsync" else function(*arguments, **options)  # a power cut does what it would prevent
        self._remember(name, result, *arguments)
        return done + (result or 0) if name == "write" else result

    @property
    def is_before_change(self) -> bool:
        """Whether the last call is one of CHANGES."""
        return self.calls[-1].split()[0] in CHANGES

    def _remember(self, name: str, result: Any, first: Any, *more: Any) -> None:
        if name == "open":
            self._open[result] = path = Path(first)
            if more[0] & os.O_CREAT:
                self._changes.append(({path.parent}, None, path, self._file(path)))
        elif name == "fsync":
            path = self._open[first]
            if path.is_dir():
                for folders, *_ in self._changes:
                    folders.discard(path)
            else:
                self._file(path).synced = path.read_bytes()
        elif name == "replace":
            source, target = map(Path, (first, more[0]))
            file = self._files[target] = self._files.pop(source)
            # the rename is one change: to sync either folder is to sync it
            self._changes.append(({target.parent}, source, target, file))
        elif name in ("unlink", "rmdir"):
            self._files.pop(Path(first), None)
            self._changes.append(({Path(first).parent}, Path(first), None, None))
        elif name == "mkdir":
            self._changes.append(({Path(first).parent}, None, Path(first), None))

    def after_kill(self) -> Tree:
        return tree_of(self.folder)

    def after_power_cut(self, rng: random.Random, share: float) -> Tree:
        """`share`: how likely each change of names that was not synced lasts."""
        entries = dict(self._lasting)
        for unsynced, gone, there, file in self._changes:
            if unsynced and rng.random() >= share:
                continue
            if gone is not None:
                entries.pop(gone, None)
            if there is not None:
                entries[there] = file
        now = {id(file): path.read_bytes() for path, file in self._files.items() if path.is_file()}
        tree: Tree = {}
        for path in sorted(entries):  # folders before what they hold
            parent = str(path.parent.relative_to(self.folder)) if self.folder in path.parents else None
            if parent is None or (parent != "." and tree.get(parent, b"") is not None):
                continue
            file, content = entries[path], None
            if file is not None:
                content = now.get(id(file), file.synced)
                if content != file.synced:
                    content = content[: rng.choice((0, rng.randrange(len(content) + 1)))]
            tree[str(path.relative_to(self.folder))] = content
        return tree
