"""A folder for the files of one run, which is removed whatever the run has made in it.

Arrives: nothing.  Leaves: a folder, then none.  It deliberately does not know what stands in it.
"""

import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

REMOVE_SECONDS = 2.0


@contextmanager
def run_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="miron-box-"))
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder; give up after REMOVE_SECONDS if something goes on writing there.

    Folders in folders are first moved up, so that neither depth nor the length of a path matters.
    Each is reached by descriptor: what still writes there may put a link in a folder's place.
    """
    end = time.monotonic() + REMOVE_SECONDS
    while folder.exists() and time.monotonic() < end:
        with suppress(OSError):
            with _opened(str(folder)) as top:
                _flatten(top)
            folder.rmdir()


def _flatten(top: int) -> None:
    """Remove all that stands in a folder."""
    while entries := _entries(top):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=top)
                continue
            with _opened(entry.name, top) as middle:
                for inner in _entries(middle):
                    if inner.is_dir(follow_symlinks=False):
                        with _opened(inner.name, middle):  # a folder that is moved is written to
                            pass
                        name = secrets.token_hex(8)
                        os.rename(inner.name, name, src_dir_fd=middle, dst_dir_fd=top)
                    else:
                        os.unlink(inner.name, dir_fd=middle)
            os.rmdir(entry.name, dir_fd=top)


def _entries(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


@contextmanager
def _opened(name: str, parent: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, made readable and writable.  Raises OSError of a link."""
    flags = os.O_DIRECTORY | os.O_CLOEXEC
    unread = os.open(name, flags | os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{unread}", stat.S_IRWXU)
        folder = os.open(".", flags, dir_fd=unread)
    finally:
        os.close(unread)
    try:
        yield folder
    finally:
        os.close(folder)
