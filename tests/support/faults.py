"""A disk that fails, kills or loses power at a chosen call of the durable writer.

    with Disk(folder, at=7, fault="kill") as disk:     # "fail", "kill", or None: only counts and remembers
        ...                                            # raises OSError or Killed at the seventh call
    disk.cut_power(random.Random(0))                   # the folder as a power cut at that moment leaves it

A kill also stops every later call, so nothing is tidied up.  A write that fails or is killed has written half.  After a
power cut a file has what was synced, or the beginning of what was not; a folder has the names that were synced, and of
later renames, new files and removals some: each as a whole or not at all.
"""

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from miron_jax.files import durable

CALLS = ("open", "write", "fsync", "close", "replace", "unlink", "mkdir", "rmdir", "listdir")


class Killed(BaseException):
    """The process is gone: nothing catches this."""


class File:
    """A file under whatever name; `synced`: what a power cut leaves of it at least."""

    def __init__(self, synced: bytes = b"") -> None:
        self.synced = synced


class Disk:
    """`os` for miron_jax.files.durable."""

    def __init__(
        self, folder: Path, at: int | None = None, fault: str | None = None, error: int = errno.ENOSPC
    ) -> None:
        self.folder, self.at, self.fault, self.error = folder, at, fault, error
        self.calls: list[str] = []
        self.is_dead = False
        self.when: Callable[[], None] = lambda: None  # called before each call
        self._is_watched = False
        self._open: dict[int, Path] = {}
        self._files: dict[Path, File] = {}  # of now
        # what lasts, and then each change of names: the folders to sync for it, what is gone, what is there
        self._lasting: dict[Path, File | None] = {}  # None: a folder
        self._changes: list[tuple[set[Path], Path | None, Path | None, File | None]] = []
        self._patch = pytest.MonkeyPatch()
        if folder.is_dir():
            self._lasting[folder] = None
            for path in folder.rglob("*"):
                self._lasting[path] = None if path.is_dir() else self._file(path, path.read_bytes())

    def _file(self, path: Path, synced: bytes = b"") -> File:
        return self._files.setdefault(path, File(synced))

    def __enter__(self) -> Self:
        self._patch.setattr(durable, "os", self)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        if name not in CALLS:
            return function

        def called(*arguments: Any, **options: Any) -> Any:
            return self._call(name, function, *arguments, **options)

        return called

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self.is_dead:
            if name == "close":
                os.close(arguments[0])
            raise Killed
        if self._is_watched:  # what the watcher itself reads
            return function(*arguments, **options)
        self._is_watched = True
        self.when()
        self._is_watched = False
        self.calls.append(f"{name} {arguments[0] if name != 'close' else ''}")
        if len(self.calls) == self.at and self.fault is not None:
            self.is_dead = self.fault == "kill"
            if name == "write":
                os.write(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            if name == "close":
                os.close(arguments[0])
            raise Killed if self.is_dead else OSError(self.error, os.strerror(self.error))
        result = None if name == "fsync" else function(*arguments, **options)  # `cut_power` does what it would prevent
        self._remember(name, result, *arguments)
        return result

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

    def cut_power(self, rng: random.Random) -> None:
        """Make the folder what the disk has: all, none or some of the changes that were not synced."""
        share = rng.choice((0.0, 0.5, 1.0))
        entries = dict(self._lasting)
        for unsynced, gone, there, file in self._changes:
            if unsynced and rng.random() >= share:
                continue
            if gone is not None:
                entries.pop(gone, None)
            if there is not None:
                entries[there] = file
        now = {id(file): path.read_bytes() for path, file in self._files.items() if path.is_file()}
        shutil.rmtree(self.folder, ignore_errors=True)
        for path in sorted(entries):  # folders before what they hold
            if not path.is_relative_to(self.folder) or not (path == self.folder or path.parent.is_dir()):
                continue
            file = entries[path]
            if file is None:
                path.mkdir()
                continue
            content = now.get(id(file), file.synced)
            if content != file.synced:
                content = content[: rng.choice((0, rng.randrange(len(content) + 1)))]
            path.write_bytes(content)
