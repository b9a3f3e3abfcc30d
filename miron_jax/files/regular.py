"""Regular files: opened and read, where a named pipe or a device would make a run wait for ever.

Arrives: a path.  Leaves: an open file or its bytes; OSError for anything that is no regular file.
It deliberately does not know what the bytes mean.
"""

import errno
import gzip
import io
import os
import stat
import zlib
from pathlib import Path

MOST_BYTES = 1 << 30  # of an unpacked file; the largest published one has 231 MB
NOT_REGULAR = "is a pipe or a device, expected a regular file"


def open_regular(path: Path) -> io.FileIO:
    """The file, open to be read.  Raises OSError, also for what is no regular file."""
    return io.FileIO(os.fspath(path), opener=_opened)


def _opened(path: str, flags: int) -> int:
    # a pipe without a writer would wait in open(2) but for O_NONBLOCK, which regular files ignore
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file, or of one in an object store.  Raises OSError."""
    if not isinstance(path, Path):
        return path.read_bytes()
    with open_regular(path) as file:
        return file.readall()


def read_unpacked(path: Path) -> bytes:
    """The bytes of a regular file, unpacked if its name ends with .gz.  Raises OSError, and
    ValueError for a damaged or too large one."""
    return unpacked(read_regular(path)) if path.suffix == ".gz" else read_regular(path)


def unpacked(content: bytes) -> bytes:
    """What gzip has packed.  Raises ValueError."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            content = packed.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from None
    if len(content) > MOST_BYTES:
        raise ValueError(f"it unpacks to more than {MOST_BYTES} bytes")
    return content


def read_text(path: Path) -> str:
    """The text of a regular file in UTF-8.  Raises OSError and UnicodeDecodeError."""
    return read_regular(path).decode("utf-8")
