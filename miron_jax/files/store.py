"""The output folder: local, or in an object store (gs://, s3://, ...); each object in it is whole
or absent.

Arrives: a path or a URL that fsspec knows.  Leaves: a `Store` of named objects, and a `Lock` that
lets one run at a time write there, or several processes of one run.  It deliberately does not know
the content.  Object stores can neither rename nor append, so nothing here relies on either.
"""

import contextlib
import errno
import fcntl
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Self

from miron_jax.errors import InputError, printable
from miron_jax.files.durable import (
    make_folder,
    names_in,
    naming,
    remove,
    remove_folder,
    write_whole,
)
from miron_jax.files.places import is_url, local_path, public
from miron_jax.files.regular import read_regular

LOCK = ".lock"
RETRY_SECONDS = (1.0, 4.0)  # between the attempts of a put
SEEN_SECONDS = 60.0  # until a shared folder shows the files of another host
BEAT_SECONDS = 5.0  # between two changes of a lock in an object store
SILENT_SECONDS = 20.0  # without a change of the lock, until its run counts as gone
TAG_SECONDS = 2.0  # until a lock that was just taken names its run


class Store:
    """A folder of objects, named by their paths below it."""

    def __init__(self, name: str) -> None:
        self.name = public(name) if is_url(name) else name  # as messages show it
        self.is_remote = is_url(name)
        self.root: Any = _remote(name) if self.is_remote else local_path(name)

    def put(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Write one object, also from parts.  Raises OSError, and leaves the object's former
        content unchanged then."""
        path = self.root / name
        if self.is_remote:
            data = data if isinstance(data, bytes) else b"".join(data)
            for wait in (*RETRY_SECONDS, None):
                try:
                    with _errors_as_oserror(str(path)):
                        path.write_bytes(data)
                    return
                except OSError:
                    if wait is None:
                        raise
                    time.sleep(wait)
        make_folder(path.parent)
        write_whole(path, data)

    def get(self, name: str) -> bytes:
        with _errors_as_oserror(f"{self.name}/{name}"):
            return read_regular(self.root / name)

    def has(self, name: str) -> bool:
        return (self.root / name).is_file()

    def size(self, name: str) -> int | None:
        """Of an object in bytes; None if it is absent."""
        with contextlib.suppress(FileNotFoundError):
            return (self.root / name).stat().st_size
        return None

    def names(self, below: str = "") -> list[str]:
        """The sorted names of objects and folders directly below a folder; none if the folder is
        absent."""
        folder = self.root / below if below else self.root
        if not self.is_remote:
            return names_in(folder)
        if not folder.is_dir():
            return []
        return sorted(entry.name for entry in folder.iterdir())

    def remove(self, name: str) -> None:
        if not self.is_remote:
            remove(self.root / name)
            return
        with contextlib.suppress(FileNotFoundError):
            (self.root / name).unlink()

    def remove_below(self, name: str) -> None:
        """Remove an object, or all that are below a folder; one that is absent is none."""
        if not self.is_remote and (self.root / name).is_dir():
            remove_folder(self.root / name)
            return
        for inner in self.names(name):
            self.remove_below(f"{name}/{inner}")
        if (self.root / name).is_dir():
            with contextlib.suppress(OSError):  # object stores have no empty folders
                (self.root / name).rmdir()
        else:
            self.remove(name)


def wait_for(store: Store, name: str) -> bytes:
    """An object that another host has just put there.  Raises InputError if it is not seen for
    SEEN_SECONDS."""
    start = time.monotonic()
    while not store.has(name):
        if time.monotonic() - start > SEEN_SECONDS:
            raise InputError(
                f"{store.name}/{name}, which another process wrote, is not seen here: name a "
                "folder that all share"
            )
        time.sleep(0.05)
    return store.get(name)


@contextlib.contextmanager
def _errors_as_oserror(path: str) -> Iterator[None]:
    """Raise the errors of a store's client as OSError: each client has other classes."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise OSError(errno.EIO, f"the store answers: {reason:.200}", path) from error


def _remote(name: str) -> Any:
    from upath import UPath  # fsspec takes a while to import

    try:
        return UPath(name)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"--output={public(name)}: {error}: install what writes to that store, or name a local "
            "folder"
        ) from None


class Lock:
    """Lets one run at a time write to a store.  Raises InputError if another run holds the lock.

    On a disk the operating system keeps the lock and releases it however a run ends.  An object
    store has no locks: there the holder rewrites an object every BEAT_SECONDS, and another run
    waits SILENT_SECONDS to see whether it changes.  No clock of another machine is read.

    `tag`: processes that give the same one hold the lock together, once the first has called
    `share`; "": one alone.  `seen`: where the process keeps what it has read of locks, and when:
    then a lock that may be held is refused at once, and a later call finds whether it has changed.
    """

    def __init__(
        self,
        store: Store,
        name: str = LOCK,
        tag: str = "",
        seen: dict[str, tuple[str, float]] | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._tag = tag
        self._seen = seen
        self.is_first = True  # no other process holds the lock too
        self._file: int | None = None  # the descriptor that the lock is held by
        self._stopped = threading.Event()
        self._beating: threading.Thread | None = None
        self._identity = f"{socket.gethostname()} process {os.getpid()} {uuid.uuid4().hex} {tag}"
        if store.is_remote or not self._lock_on_disk():
            self._start_beating()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._beating is not None:
            self._beating.join(BEAT_SECONDS)
        with contextlib.suppress(OSError):  # the run has ended: a lock that stays is no error
            if self._file is None:
                if not self._tag and self._read().startswith(self._identity):
                    self._store.remove(self._name)
                return
            try:
                # raises unless this process is the last
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # else it is another run's
                if self._is_in_place(self._file) and self._is_held_by(self._read()):
                    os.unlink(self._path)
                    os.rmdir(self._path.parent)  # fails unless the run has written nothing
            finally:
                os.close(self._file)

    @property
    def _path(self) -> Any:
        return self._store.root / self._name

    def share(self) -> None:
        """Let other processes with this lock's tag hold it too.  Raises InputError."""
        if self._tag and self._file is not None and self.is_first:
            self._flock(self._file, fcntl.LOCK_SH)

    def renew(self) -> bool:
        """Take the lock again if its folder was removed since; returns whether it was.  Raises
        InputError if another run has taken it."""
        if self._file is not None:
            if self._is_in_place(self._file):
                # a host whose locks do not reach this one writes into the same file
                if self._seen is not None and not self._is_held_by(holder := self._read()):
                    raise self._held_by(holder)
                return False
            if self._beating is None:  # else its thread may be writing there
                os.close(self._file)
            self._file = None
            if not self._lock_on_disk():
                self._start_beating()
            self.share()
            return True
        holder = self._read()
        if holder and not self._is_held_by(holder):
            raise self._held_by(holder)
        if not holder:
            self._store.put(self._name, f"{self._identity} 0".encode())
        return not holder

    def _is_held_by(self, holder: str) -> bool:
        """Whether the text of a lock is of this process, or of one that holds it too."""
        return holder.startswith(self._identity) or bool(
            self._tag and holder.split()[4:5] == [self._tag]
        )

    def _is_in_place(self, file: int) -> bool:
        """Whether the lock's open file is the one in the folder."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return os.path.samestat(os.stat(self._path), os.fstat(file))
        return False

    def _lock_on_disk(self) -> bool:
        """Lock a file on the disk; False if its file system has no locks, as on some clusters."""
        while True:
            make_folder(self._path.parent)
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            except FileNotFoundError:
                continue  # a process that ends has just removed the folder
            try:
                self.is_first = True
                is_locked = self._flock(file, fcntl.LOCK_EX)
                if is_locked and self._is_in_place(file):
                    if self._seen is not None:
                        self._check_other_host(file)
                    if self.is_first:
                        with naming(self._path):
                            os.ftruncate(file, 0)
                            os.write(file, self._identity.encode())
                    self._file = file
                    if self._seen is not None:
                        self._beat_in_thread()
                    return True
            finally:
                if self._file is None:
                    os.close(file)
            if not is_locked:
                return False
            # else its holder has just removed it

    def _check_other_host(self, file: int) -> None:
        """Raises InputError if a process of another host may hold the lock: some file systems lock
        files for one host alone."""
        holder = os.pread(file, 1000, 0).decode(errors="replace")
        if holder.split()[:1] != [socket.gethostname()]:
            self._check_silent(holder)

    def _flock(self, file: int, how: int) -> bool:
        """Lock the file, alone or, where processes of this lock's tag hold it, with them; False if
        its file system has no locks.  Raises InputError if another run holds the lock."""
        deadline = time.monotonic() + TAG_SECONDS
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
                is_locked = True
            except BlockingIOError:
                is_locked = False
            except OSError:
                return False
            holder = os.pread(file, 1000, 0).decode(errors="replace")
            is_ours = self._is_held_by(holder)
            if is_locked and (is_ours or how == fcntl.LOCK_EX):
                return True
            # while another process of this run starts, its lock is not shared yet, or has no text
            if not is_ours and (not self._tag or time.monotonic() > deadline):
                raise self._held_by(holder)
            if is_ours:
                how = fcntl.LOCK_SH
                self.is_first = False
            time.sleep(0.05)

    def _start_beating(self) -> None:
        holder = self._read()
        self.is_first = not self._is_held_by(holder)
        if self._seen is not None:
            self._check_silent(holder)
        elif self.is_first:
            deadline = time.monotonic() + SILENT_SECONDS
            while holder and time.monotonic() < deadline:
                time.sleep(BEAT_SECONDS / 5)
                if (now := self._read()) and now != holder:
                    raise self._held_by(now)
        self._store.put(self._name, f"{self._identity} 0".encode())
        time.sleep(BEAT_SECONDS / 5)
        # two runs wrote at once: the last one holds the lock
        if not self._is_held_by(self._read()):
            raise self._held_by(self._read())
        self._beat_in_thread()

    def _check_silent(self, holder: str) -> None:
        """Raises InputError unless this process has read the same text for SILENT_SECONDS."""
        assert self._seen is not None
        text, since = self._seen.get(self._name, ("", 0.0))
        if holder and text != holder:
            self._seen[self._name] = (holder, time.monotonic())
        if holder and (text != holder or time.monotonic() - since < SILENT_SECONDS):
            raise self._held_by(holder)

    def _beat_in_thread(self) -> None:
        if self._beating is None:
            self._beating = threading.Thread(target=self._beat, daemon=True)
            self._beating.start()

    def _beat(self) -> None:
        count = 0
        while not self._stopped.wait(BEAT_SECONDS):
            count += 1
            text = f"{self._identity} {count}".encode()
            with contextlib.suppress(OSError):  # the next beat tries again
                if (now := self._read()) and not self._is_held_by(now):
                    if self._seen is not None:
                        return  # `renew` says so
                    message = printable(
                        f"miron-jax: {self._held_by(now)}; this run had been silent for too long"
                    )
                    print(message, file=sys.stderr)
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                if self._file is None:
                    self._store.put(self._name, text)
                else:
                    os.pwrite(self._file, text, 0)
                    os.fsync(self._file)

    def _read(self) -> str:
        try:
            return self._store.get(self._name).decode()
        except FileNotFoundError:
            return ""

    def _held_by(self, holder: str) -> InputError:
        who = " ".join(holder.split()[:3]) or "another process"
        return InputError(
            f"--output={self._store.name} is being written by another run ({who}): wait for it, or "
            "name another folder"
        )
