"""Folders in object stores (gs://, s3://, ...): listed in the store, and copied to a local folder
to be read.

Arrives: a URL that fsspec knows, or a local path.  Leaves: a folder with pathlib's methods, or a
temporary local copy.  It deliberately does not know checkpoints.  Users install the package of
their store (gcsfs, s3fs) themselves.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from miron_jax.errors import InputError
from miron_jax.files.places import public

# Properties by which stores identify a version of a file
_VERSION_FIELDS = (
    "size", "etag", "ETag", "generation", "VersionId", "version_id", "md5Hash", "crc32c", "mtime",
    "updated", "LastModified", "last_modified", "modified", "created",
)  # fmt: skip


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
        _upath(folder).fs.invalidate_cache()
    return folder


def versions_below(folder: Path) -> dict[str, tuple[str, ...]]:
    """What a store knows of each file below a folder, by its name there, which begins with a
    slash: it differs between versions of a file."""
    top = _upath(seen_anew(folder)).path.rstrip("/")
    entries = {}
    with suppress(FileNotFoundError):
        entries = _upath(folder).fs.find(top, detail=True)
    return {path.removeprefix(top): _version(known) for path, known in entries.items()}


def file_version(path: Path) -> tuple[str, ...]:
    """What a store knows of one file.  Raises OSError."""
    return _version(_upath(path).fs.info(_upath(path).path))


def _upath(path: Path) -> Any:
    """The path with fsspec's client, which has no types."""
    return path


def _version(known: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(str(known[name]) for name in _VERSION_FIELDS if known.get(name) is not None)
