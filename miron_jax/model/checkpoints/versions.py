"""Versions of a checkpoint's files: they tell whether the files are what they were, without reading
them.

Arrives: a folder, local or in an object store, in which others may write.  Leaves: fingerprints.
It deliberately does not know what the files hold.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from miron_jax.model.checkpoints.hf_files import has_tensors
from miron_jax.model.checkpoints.remote import file_version, is_remote, versions_below

_WEIGHTS = (".safetensors", ".msgpack", ".index.json")  # how names of Hugging Face's files end
# Files of Orbax, levanter and EasyDeL, of which a checkpoint has one at least
_MARKS = ("/_METADATA", "/metadata.json", "/tensorstore_index.json")
TICK_SECONDS = 0.05  # file systems' clocks stand for less: writes within it may have one time
_MOST_TICKS = 20
VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)  # errors of a file that is gone


class FileVersion(NamedTuple):
    name: str  # below the folder, beginning with a slash
    # size and time in ns, or what a store knows of the file; empty for a pipe or a device
    seen: tuple[str | int, ...]
    inode: int  # 0 in a store


class FolderVersion(NamedTuple):
    """The files of a checkpoint, and those outside of it that its score depends on, at one time."""

    # of names, sizes and times of all files, not contents: a copy has another one
    fingerprint: str
    # of the files that its weights are read from, and of their inodes; "": there are none
    weights: str
    newest: float  # seconds since the epoch, of a local file of the weights
    odd: str  # one of these files that is a pipe or a device, which nothing may open; ""


def version_of(folder: Path, shared: Iterable[Path] = ()) -> FolderVersion:
    """What is there now.  Files that vanish meanwhile are left out."""
    files = sorted(_files(folder), key=lambda file: file.name)
    read: list[FileVersion] = []
    if has_tensors(folder):
        read = [file for file in files if file.name == "/config.json" or _holds_weights(file.name)]
    elif any(file.name.endswith(_MARKS) for file in files):
        read = files
    others = chain.from_iterable(_file(path, str(path)) for path in sorted(shared, key=str))
    every = [(file.name, *file.seen) for file in (*files, *others) if file.seen]
    odd = ""
    newest = 0
    for file in read:
        if not file.seen:
            odd = f"{folder}{file.name}"
        elif not is_remote(folder):
            newest = max(newest, int(file.seen[-1]))
    return FolderVersion(_digest(every), _digest(read) if read else "", newest / 1e9, odd)


def settled_version(folder: Path, shared: Iterable[Path] = ()) -> FolderVersion:
    """`version_of`, once no file is so new that a later write might leave it the same time."""
    shared = [*shared]
    version = version_of(folder, shared)
    for _ in range(_MOST_TICKS):
        if not 0 <= time.time() - version.newest < TICK_SECONDS:
            break
        time.sleep(TICK_SECONDS)
        version = version_of(folder, shared)
    return version


def _holds_weights(name: str) -> bool:
    return name.endswith(_WEIGHTS) and "/" not in name[1:]


def _digest(entries: object) -> str:
    return blake2b(repr(entries).encode(), digest_size=16).hexdigest()


def _files(folder: Path) -> Iterator[FileVersion]:
    """All files below a folder."""
    if is_remote(folder):
        for name, version in versions_below(folder).items():
            yield FileVersion(name, version, 0)
        return
    visited: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in visited:  # a link to a folder above
            folders.clear()
            continue
        visited.add(real)
        for name in names:
            path = Path(parent, name)
            yield from _file(path, str(path).removeprefix(str(folder)))


def _file(path: Path, name: str) -> Iterator[FileVersion]:
    """The version of a file; none if it is gone, or a link to nowhere or to itself."""
    try:
        if is_remote(path):
            yield FileVersion(name, file_version(path), 0)
            return
        status = path.stat()
    except OSError as error:
        # a store's client gives no number
        if error.errno not in VANISHED and not isinstance(error, FileNotFoundError):
            yield FileVersion(name, (error.errno or 0, 0), 0)  # what may not be looked at
        return
    is_regular = stat.S_ISREG(status.st_mode)
    seen = (status.st_size, status.st_mtime_ns) if is_regular else ()
    yield FileVersion(name, seen, status.st_ino)
