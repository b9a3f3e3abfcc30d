"""Temporary folders of downloads, which are removed even if their process is killed.

Arrives: the folder in which data are cached.  Leaves: a new folder there, with a lock.  It
deliberately does not know what is downloaded.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

_PREFIX = ".fetch-"  # of the names of temporary folders
_LOCK = "lock"  # the file in each that its process keeps locked


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, which is removed at the end; until then this process holds its
    lock."""
    parent.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as folder,
        Path(folder, "new").open("w") as lock,
    ):
        # the file system has no locks: the folder stays if this process is killed
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Path(lock.name).rename(Path(folder, _LOCK))  # only now can another process try the lock
        yield Path(folder)


def remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of processes that were killed: the system has released their
    locks."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another process holds the lock
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
