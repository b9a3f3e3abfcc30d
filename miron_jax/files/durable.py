"""The one writer of files that a user keeps: after a kill, a full disk or a power cut each file is
the whole former one or the whole new one.

Arrives: a path and its bytes.  Leaves: a file, or an OSError that names it.  It deliberately does
not know what the bytes mean.

A file is written beside its place under a name of its own and synced, then renamed over the former
one, and its folder is synced.  Nothing is removed first.
"""

import errno
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL_SUFFIX = ".partial"  # ends the name of a file that is being written
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)  # file systems that cannot
# what lies there is a stream, even where it leads to a file
_OF_SYSTEM = ("/dev/fd/", "/dev/std", "/proc/")


def write_whole(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file, also from parts, in a folder that is there.  A link is followed; a device or a
    pipe gets the bytes and stays what it is.

    Raises OSError, and leaves the former file as it was.
    """
    with naming(path):
        status = _status(path)
        if _is_stream(path, status):
            _write(os.open(path, os.O_WRONLY), data)
            return
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        partial = target.with_name(f".{uuid.uuid4().hex}{PARTIAL_SUFFIX}")
        try:
            write_new(partial, data)
            if status is not None:
                os.chmod(partial, stat.S_IMODE(status.st_mode))
            os.replace(partial, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)
            raise
        sync_folder(target.parent)


def write_new(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write and sync a file that is not there; its name lasts once its folder is synced."""
    with naming(path):
        _write(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), data, syncs=True)


def move(source: Path, target: Path) -> None:
    """Rename a file, also over another one; the rename lasts once both folders are synced."""
    with naming(target):
        os.replace(source, target)


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is below it, if it is there."""
    for name in names_in(folder):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            remove_folder(path)
        else:
            remove(path)
    with suppress(FileNotFoundError):
        os.rmdir(folder)


def make_folder(folder: Path) -> None:
    """Make a folder that lasts, with those above it, unless it is there."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with naming(folder):
        with suppress(FileExistsError):  # another process was first
            os.mkdir(folder)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make what was renamed, made and removed in a folder last."""
    with naming(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)


def names_in(folder: Path) -> list[str]:
    """The sorted names in a folder; none if it is absent or a file."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _write(descriptor: int, data: bytes | Iterable[bytes], syncs: bool = False) -> None:
    """Write all to an open file and close it."""
    try:
        for part in [data] if isinstance(data, bytes) else data:
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        if syncs:
            _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _status(path: Path) -> os.stat_result | None:
    """Of the file that a path leads to; None if there is none."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_stream(path: Path, status: os.stat_result | None) -> bool:
    if status is None or stat.S_ISDIR(status.st_mode):
        return False
    return not stat.S_ISREG(status.st_mode) or str(path.absolute()).startswith(_OF_SYSTEM)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of the system names the file that was to be written, not the one beside it."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        error.filename2 = None
        raise
