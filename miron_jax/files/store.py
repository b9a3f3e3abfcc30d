"""The output folder: local, or in an object store (gs://, s3://, ...); what is put there is whole or absent.

Arrives: a path or a URL that fsspec knows.  Leaves: a `Store` of named objects, and a `Lock` that lets one run at a time
write there.  It deliberately does not know what is written.  An object store has no rename and no append: nothing here
asks one for either.
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
from collections.abc import Iterator
from typing import IO, Any, Self

from miron_jax.errors import InputError, printable
from miron_jax.files.places import is_url, local_path, public

LOCK = ".lock"
RETRY_SECONDS = (1.0, 4.0)  # before a put is tried again
SEEN_SECONDS = 60.0  # until a shared folder shows what another host wrote
BEAT_SECONDS, SILENT_SECONDS = 5.0, 20.0  # of a lock in an object store: how often it changes, when its run is gone


class Store:
    """A folder of objects, named by their paths below it."""

    def __init__(self, name: str) -> None:
        self.name = public(name) if is_url(name) else name  # as messages show it
        self.is_remote = is_url(name)
        self.root: Any = _remote(name) if self.is_remote else local_path(name)

    def put(self, name: str, data: bytes) -> None:
        """Write one object.  Raises OSError; then what was there before is there still."""
        path = self.root / name
        if self.is_remote:
            for wait in (*RETRY_SECONDS, None):
                try:
                    with _told_as_oserror(str(path)):
                        path.write_bytes(data)
                    return
                except OSError:
                    if wait is None:
                        raise
                    time.sleep(wait)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            partial.write_bytes(data)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def get(self, name: str) -> bytes:
        with _told_as_oserror(f"{self.name}/{name}"):
            return (self.root / name).read_bytes()

    def has(self, name: str) -> bool:
        return (self.root / name).is_file()

    def names(self, below: str = "") -> list[str]:
        """Objects and folders right below a folder, sorted; none where it is not there."""
        folder = self.root / below if below else self.root
        if not folder.is_dir():
            return []
        return sorted(entry.name for entry in folder.iterdir())

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.root / name).unlink()


@contextlib.contextmanager
def _told_as_oserror(path: str) -> Iterator[None]:
    """Every store's client has errors of its own."""
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
            f"--output={public(name)}: {error}: install what writes to that store, or name a local folder"
        ) from None


@contextlib.contextmanager
def together(store: Store, hosts: Any) -> Iterator[None]:
    """Several hosts write to one folder: the others look for what the first one has put there.  Raises InputError."""
    if hosts.count == 1:
        yield
        return
    sign = hosts.agree("folder", f".shared-{uuid.uuid4().hex}")
    if hosts.is_first:
        store.put(sign, b"")
    hosts.agree("folder is there")
    start = time.monotonic()
    while not store.has(sign):
        if time.monotonic() - start > SEEN_SECONDS:
            raise InputError(
                f"--output={store.name}: what process 0 put there is not seen on {socket.gethostname()}: name a folder that "
                "all hosts share"
            )
        time.sleep(0.2)
    hosts.tell("folder is seen")
    if hosts.is_first:
        hosts.gather("folder is seen")
        store.remove(sign)
    yield


class Lock:
    """One run at a time writes to a store.  Raises InputError where another one does.

    On a disk the system keeps it, and gives it back however a run ends.  An object store knows no locks: there its holder
    writes it anew every BEAT_SECONDS, and whoever finds one looks SILENT_SECONDS whether it changes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._file: IO[str] | None = None
        self._stopped = threading.Event()
        self._beating: threading.Thread | None = None
        self._own = f"{socket.gethostname()} process {os.getpid()} {uuid.uuid4().hex}"
        if store.is_remote or not self._lock_file():
            self._begin_beating()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._stopped.set()
        if self._beating is not None:
            self._beating.join(BEAT_SECONDS)
        with contextlib.suppress(OSError):  # the run has ended, whatever becomes of the lock
            if self._file is not None:
                (self._store.root / LOCK).unlink(missing_ok=True)
                self._file.close()
                self._store.root.rmdir()  # only where nothing came of the run
            elif self._read().startswith(self._own):
                self._store.remove(LOCK)

    def _lock_file(self) -> bool:
        """False where the disk knows no locks (some cluster file systems)."""
        path = self._store.root / LOCK
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = path.open("a+", encoding="utf-8", errors="replace")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with file:
                    file.seek(0)
                    raise self._taken(file.read()) from None
            except OSError:
                file.close()
                return False
            try:
                if path.stat().st_ino == os.fstat(file.fileno()).st_ino:  # else its holder has just removed it
                    break
            except FileNotFoundError:
                pass
            file.close()
        file.truncate(0)
        file.write(self._own)
        file.flush()
        self._file = file
        return True

    def _begin_beating(self) -> None:
        found, silent = self._read(), time.monotonic() + SILENT_SECONDS
        while found and time.monotonic() < silent:
            time.sleep(BEAT_SECONDS / 5)
            if (now := self._read()) and now != found:
                raise self._taken(now)
        self._store.put(LOCK, f"{self._own} 0".encode())
        time.sleep(BEAT_SECONDS / 5)
        if not self._read().startswith(self._own):  # two came at once: the last one to write has it
            raise self._taken(self._read())
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def _beat(self) -> None:
        count = 0
        while not self._stopped.wait(BEAT_SECONDS):
            count += 1
            with contextlib.suppress(OSError):  # the next beat tries again
                if (now := self._read()) and not now.startswith(self._own):
                    told = printable(f"miron-jax: {self._taken(now)}; this run had been silent for too long")
                    print(told, file=sys.stderr)
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                self._store.put(LOCK, f"{self._own} {count}".encode())

    def _read(self) -> str:
        try:
            return self._store.get(LOCK).decode()
        except FileNotFoundError:
            return ""

    def _taken(self, holder: str) -> InputError:
        who = " ".join(holder.split()[:3]) or "another process"
        return InputError(
            f"--output={self._store.name} is being written by another run ({who}): wait for it, or name another folder"
        )
