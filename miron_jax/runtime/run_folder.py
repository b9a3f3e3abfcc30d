"""A folder for the files of one run, which is removed whatever the run has made in it.

Arrives: nothing.  Leaves: a folder, then none.  It deliberately does not know what stands in it.
"""

import os
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
    """
    end = time.monotonic() + REMOVE_SECONDS
    while folder.exists() and time.monotonic() < end:
        with suppress(OSError):
            _flatten(folder)
            folder.rmdir()


def _flatten(folder: Path) -> None:
    """Remove all that stands in a folder."""
    folder.chmod(stat.S_IRWXU)
    num_moved = 0
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, stat.S_IRWXU)
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, stat.S_IRWXU)  # a folder that is moved is written to
                    os.rename(inner.path, folder / f"{folder.name}-{num_moved}")
                    num_moved += 1
                else:
                    os.unlink(inner.path)
            os.rmdir(entry.path)
