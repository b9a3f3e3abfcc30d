"""Arrays that later runs read again, in a folder of the user's own.

Arrives: arrays, and a key of all that they hang on.  Leaves: the same arrays in a later run, or
nothing and a line that says why.  It deliberately does not know what the arrays mean.

    FOLDER/KEY.npz    NumPy's format without pickles, then 32 bytes: a checksum of KEY and what
                      stands before

The oldest files go where the folder has no room.  A file is read and not mapped: one that another
host replaces while it is mapped ends the process with SIGBUS.
"""

import errno
import io
import os
import shutil
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b, sha256
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from miron_jax.files.durable import make_folder, names_in, remove, write_whole
from miron_jax.files.places import public
from miron_jax.files.regular import open_regular

MOST_BYTES = 4 << 30  # of all files: ten suites as large as CORE
SHARE_OF_FREE = 10  # the folder takes one part in so many of what it has and what is free
_CHECKSUM = 32  # bytes
_SHORTEST_RUN = 8  # numbers of a run, on average


class Job(NamedTuple):
    """Work that makes the arrays of a key."""

    key: str  # of all that they hang on
    cost: float  # beside that of other jobs
    make: Callable[[], Mapping[str, np.ndarray]]  # may raise what ends a run
    group: str = ""  # jobs of a group have work in common


class ArraysByKey(Protocol):
    @property
    def num_ahead(self) -> int:
        """Batches whose plans several processes make at a time; they lie in memory."""
        ...

    def promise(self, jobs: Sequence[Job]) -> None:
        """What `get` is asked for later, in about this order."""
        ...

    def get(self, key: str) -> Mapping[str, np.ndarray] | None: ...

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None: ...


class KeptArrays:
    """Arrays by key.  Whatever is wrong with the folder costs time and no result.

    `say`: gets a line about what cannot be read or written.
    """

    num_ahead = 1

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder = folder
        self._say = say
        self._reads = True
        self._writes = True

    def promise(self, jobs: Sequence[Job]) -> None:
        """Nothing: whoever asks makes them."""

    def has(self, key: str) -> bool:
        with suppress(OSError):
            return self._path(key).is_file()
        return False

    def get(self, key: str) -> dict[str, np.ndarray] | None:
        """None: they are not there."""
        if not self._reads:
            return None
        path = self._path(key)
        try:
            _check_folder(self.folder)
            with open_regular(path) as file:
                _check_owner(os.fstat(file.fileno()), path)
                data = file.readall()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._reads = self._writes = False
            self._say_why(error)
            return None
        if (arrays := unpacked(key, data)) is None:
            self._say(f"{public(str(path))} is damaged: what it held is made again")
            return None
        with suppress(OSError):
            os.utime(path)  # it is the last one to be removed
        return arrays

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        if not self._writes:
            return
        data = packed(key, arrays)
        try:
            if not self.folder.is_dir():
                make_folder(self.folder.parent)
                self.folder.mkdir(0o700, exist_ok=True)
            _check_folder(self.folder)
            self._make_room(len(data))
            write_whole(self._path(key), data)
        except OSError as error:
            self._writes = False
            self._say_why(error)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def _say_why(self, error: OSError) -> None:
        at = public(str(error.filename or self.folder))
        self._say(f"plans are not kept for later runs ({at}: {error.strerror}); the run goes on")

    def _make_room(self, num_bytes: int) -> None:
        """Remove the files that were used longest ago, those of killed writers among them."""
        files = list[tuple[float, int, Path]]()
        for name in names_in(self.folder):
            path = self.folder / name
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            files.append((status.st_mtime, status.st_size, path))
        used = sum(size for _, size, _ in files)
        free = shutil.disk_usage(self.folder).free
        most = min(MOST_BYTES, (used + free) // SHARE_OF_FREE)
        if num_bytes > most:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))
        for _, size, path in sorted(files):
            if used + num_bytes <= most:
                return
            remove(path)
            used -= size


def packed(key: str, arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of a file."""
    columns = dict[str, np.ndarray]()
    for name, array in arrays.items():
        column = f"{name} {array.dtype.str}"
        if (runs := _runs_of(array)) is None:
            columns[column] = _smallest(array)
        else:
            step, values, lengths = runs
            columns[f"{column} {step}"] = _smallest(values)
            columns[f"{column} {step} lengths"] = _smallest(lengths)
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **columns)
    content.write(_checksum(key, content.getbuffer()))
    return content.getvalue()


def unpacked(key: str, data: bytes) -> dict[str, np.ndarray] | None:
    """The arrays in the content of a file; None: it is damaged."""
    content = memoryview(data)[:-_CHECKSUM]
    if data[-_CHECKSUM:] != _checksum(key, content):
        return None
    arrays = dict[str, np.ndarray]()
    with np.load(io.BytesIO(content), allow_pickle=False) as columns:
        for column in columns:
            name, dtype, *rest = column.split(" ")
            if len(rest) < 2:
                arrays[name] = columns[column].astype(dtype, copy=False)
            if len(rest) == 1:
                lengths = columns[f"{column} lengths"]
                arrays[name] = _of_runs(int(rest[0]), arrays[name], lengths)
    return arrays


def key_of(*parts: object) -> str:
    """The key of what hangs on these values (by their repr), on this package's code and on what
    makes tokens."""
    return blake2b(repr((_version(), *parts)).encode(), digest_size=16).hexdigest()


@cache
def _version() -> str:
    code = blake2b(digest_size=16)
    package = Path(__file__).parents[1]
    # in a checkout tasks/ is a link, which rglob does not follow
    for path in sorted({*package.rglob("*.py"), *(package / "tasks").rglob("*.py")}):
        code.update(path.read_bytes())
    libraries = [version(name) for name in ("numpy", "tokenizers", "transformers")]
    return f"{code.hexdigest()} {libraries} {sys.version}"


def _check_folder(folder: Path) -> None:
    """Raises OSError for a folder in which others may write."""
    status = os.stat(folder)
    _check_owner(status, folder)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(errno.EPERM, "other users may write there: chmod 700", str(folder))


def _check_owner(status: os.stat_result, path: Path) -> None:
    """Raises OSError for what another user has written."""
    if status.st_uid != os.getuid():
        raise OSError(errno.EPERM, "it is another user's: remove it", str(path))


def _checksum(key: str, content: memoryview) -> bytes:
    checksum = sha256(key.encode())  # twice as fast as BLAKE2, where processors have it built in
    checksum.update(content)
    return checksum.digest()


def _smallest(array: np.ndarray) -> np.ndarray:
    """The same whole numbers in the smallest type that has them."""
    if array.dtype.kind != "i" or not array.size or array.min() < 0:
        return array
    return array.astype(np.min_scalar_type(array.max()))


def _runs_of(array: np.ndarray) -> tuple[int, np.ndarray, np.ndarray] | None:
    """(step, first number of each run, length of each run) of whole numbers, most of which follow
    the one before by the same step; None: whole, they take about as few bytes."""
    if array.dtype.kind == "i" and array.ndim == 1 and len(array):
        steps = np.diff(array)
        for step in (0, 1):
            starts = np.append(0, np.flatnonzero(steps != step) + 1)
            if _SHORTEST_RUN * len(starts) <= len(array):
                return step, array[starts], np.diff(starts, append=len(array))
    return None


def _of_runs(step: int, values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    array = np.repeat(values, lengths)
    if step:
        starts = np.cumsum(lengths, dtype=array.dtype) - lengths.astype(array.dtype)
        array += np.arange(len(array), dtype=array.dtype) - np.repeat(starts, lengths)
    return array
