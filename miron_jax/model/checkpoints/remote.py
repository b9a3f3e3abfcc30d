"""Folders in object stores (gs://, s3://, ...): listed in the store, and copied to a local folder
to be read.

Arrives: a URL that fsspec knows, or a local path.  Leaves: a folder with pathlib's methods, or a
temporary local copy.  It deliberately does not know checkpoints.  Users install the package of
their store (gcsfs, s3fs) themselves.
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


def folder_at(url: str, flag: str) -> Path:
    """The folder at a URL, with pathlib's methods.  Raises InputError, which names `flag`, if it
    cannot be reached."""
    from upath import UPath  # imported here because fsspec is slow to import

    try:
        folder: Any = UPath(url)
        exists = folder.is_dir()
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{flag}={public(url)}: {error}: install what reads that store, or name a local folder"
        ) from None
    except Exception as error:  # each store has its own classes of errors
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{flag}={public(url)}: the store answers: {reason:.200}; check the name and your "
            "credentials"
        ) from error
    if not exists:
        raise InputError(f"{flag}={public(url)}: no such folder in the store; check the name")
    return folder


def is_remote(folder: Path) -> bool:
    """Whether the folder is in an object store."""
    return not isinstance(folder, Path)


@contextmanager
def local_copy(folder: Path) -> Iterator[Path]:
    """The folder itself if it is local, else a temporary copy.  An InputError about the copy names
    the original folder."""
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


def local_config_files(folder: Path) -> Path:
    """The folder itself if it is local, else a copy of config.json and the tokenizer that lasts as
    long as the process."""
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


def seen_anew(folder: Path) -> Path:
    """The folder, whose files the store lists anew from now on: clients keep the lists that they
    have read."""
    if is_remote(folder):
        remote: Any = folder
        remote.fs.invalidate_cache()
    return folder
