"""Folders in object stores (gs://, s3://, ...): looked at where they are, copied here one at a time to be read.

Arrives: a URL that fsspec knows, or a local path.  Leaves: a folder with pathlib's methods; a local copy while it is needed.
It deliberately does not know checkpoints.  A store's own package (gcsfs, s3fs) is installed by whoever needs it.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from miron_jax.errors import InputError
from miron_jax.files.places import public

_TOLD = ("size", "etag", "ETag", "md5Hash", "mtime", "updated", "LastModified", "created")  # by stores, of a file


def folder_at(url: str, flag: str) -> Path:
    """The folder behind a URL, which has pathlib's methods.  Raises InputError where it cannot be reached."""
    from upath import UPath  # fsspec takes a while to import

    try:
        folder: Any = UPath(url)
        found = folder.is_dir()
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{flag}={public(url)}: {error}: install what reads that store, or name a local folder"
        ) from None
    except Exception as error:  # every store has errors of its own
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{flag}={public(url)}: the store answers: {reason:.200}; check the name and your credentials"
        ) from error
    if not found:
        raise InputError(f"{flag}={public(url)}: no such folder in the store; check the name")
    return folder


def is_remote(folder: Path) -> bool:
    return not isinstance(folder, Path)


@contextmanager
def here(folder: Path) -> Iterator[Path]:
    """The folder itself, or a copy of all of it for a while.  An InputError about the copy names the folder."""
    if not is_remote(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="miron-jax-") as temporary:
        copy = Path(temporary) / folder.name
        _copy(folder, copy, deep=True)
        try:
            yield copy
        except InputError as error:
            raise InputError(str(error).replace(str(copy), str(folder))) from error


def files_here(folder: Path) -> Path:
    """The folder itself, or a copy of its own files (config.json, tokenizer) that stays while the process runs."""
    if not is_remote(folder):
        return folder
    copy = Path(tempfile.mkdtemp(prefix="miron-jax-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    _copy(folder, copy, deep=False)
    return copy


def _copy(folder: Path, target: Path, deep: bool) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir():
            if deep:
                _copy(path, target / path.name, deep)
        elif deep or path.suffix in (".json", ".model", ".jinja", ".txt"):
            with path.open("rb") as source, (target / path.name).open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 22)


def told_of(path: Path) -> list[Any]:
    """What tells one version of a file from another."""
    if not is_remote(path):
        found = path.stat()
        return [found.st_size, found.st_mtime_ns]
    remote: Any = path
    told = remote.fs.info(remote.path)
    return [str(told[name]) for name in _TOLD if told.get(name) is not None]
