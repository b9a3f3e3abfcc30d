"""The data files that CORE and the Gauntlet share: the user's, or an archive that is fetched and
unpacked.

Arrives: --data_dir or nothing.  Leaves: the folder of world_knowledge/arc_easy.jsonl and so on,
byte for byte the files of llm-foundry's local_data.  It deliberately does not know tasks.
"""

import os
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from miron_jax.definitions.data_files import git_blob_sha1
from miron_jax.errors import InputError
from miron_jax.files.places import data_cache
from miron_jax.files.regular import read_regular
from miron_jax.files.temporary import remove_abandoned, temporary_folder

BUNDLE_URL = "https://karpathy-public.s3.us-west-2.amazonaws.com/eval_bundle.zip"
# The published archive has 25 MB and unpacks to 160 MB: the limits allow larger ones, but protect
# the disk.
MOST_ARCHIVE_BYTES = 512 << 20
MOST_BYTES = 2 << 30
MOST_FILES = 10_000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def locate_files(
    data_dir: Path | None, fetch: bool, files: Mapping[str, str | None], suite: str
) -> Path:
    """The folder that holds at least one of the files: in `data_dir`, or in the cache, where the
    bundle is fetched once.

    `files`: their published git blob hashes by path.  A cached bundle with other bytes is fetched
    again.
    """
    bundle = _cached_bundle(fetch, suite, files) if data_dir is None else data_dir
    folder = _data_of(bundle)
    if not any((folder / file).is_file() for file in files):
        raise InputError(
            f"{bundle}: no {suite} data there, expected an eval bundle (core.yaml, "
            f"eval_data/{next(iter(files))} and so on): unpack {BUNDLE_URL} and pass "
            "--data_dir=FOLDER"
        )
    return folder


def _data_of(bundle: Path) -> Path:
    return _inner(bundle, "eval_data")


def _inner(folder: Path, name: str) -> Path:
    """The folder of this name in `folder`, or `folder` itself if it has none."""
    return folder / name if (folder / name).is_dir() else folder


def _cached_bundle(fetch: bool, suite: str, files: Mapping[str, str | None]) -> Path:
    bundle = data_cache("eval_bundle")
    is_cached = bundle.is_dir()
    if not fetch or (is_cached and _changed(bundle, files) is None):
        return bundle
    try:
        _fetch(bundle, files)
    except Exception as error:  # errors of the network and of the zip file have no class in common
        if not is_cached:
            raise InputError(
                f"{suite} data are neither in {bundle} nor to be had from {BUNDLE_URL} "
                f"({error!s:.120}): unpack that archive on a machine with a network and pass "
                "--data_dir=FOLDER"
            ) from error
    return bundle  # if changed files remain, the tasks that read them report it


def _changed(bundle: Path, files: Mapping[str, str | None]) -> str | None:
    """The first file whose bytes are not the published ones; missing files are ignored."""
    folder = _data_of(bundle)
    for file, sha1 in files.items():
        path = folder / file
        if sha1 is not None and path.is_file() and git_blob_sha1(read_regular(path)) != sha1:
            return file
    return None


def _fetch(bundle: Path, files: Mapping[str, str | None]) -> None:
    """Downloads and unpacks the bundle in a temporary folder, and renames it once its files are the
    published ones."""
    remove_abandoned(bundle.parent)
    with temporary_folder(bundle.parent) as scratch:
        archive = scratch / "eval_bundle.zip"
        with urllib.request.urlopen(BUNDLE_URL, timeout=60) as response, archive.open("wb") as file:
            _copy(response, file, MOST_ARCHIVE_BYTES, "the download")
        unpacked = scratch / "unpacked"
        unpack(archive, unpacked)
        new = _inner(unpacked, "eval_bundle")
        if (changed := _changed(new, files)) is not None:
            raise zipfile.BadZipFile(f"its {changed} is not the published file")
        try:
            if bundle.is_dir():
                os.rename(bundle, scratch / "old")
            os.rename(new, bundle)
        except OSError:
            if not bundle.is_dir():  # else another process was faster; its files are the same
                raise


def _copy(source: IO[bytes], target: IO[bytes], most: int, what: str) -> int:
    """Copies at most `most` bytes, whatever size was announced, and returns their number.  Raises
    BadZipFile beyond."""
    copied = 0
    while block := source.read(1 << 20):
        copied += len(block)
        if copied > most:
            raise zipfile.BadZipFile(f"{what} has more than {most} bytes")
        target.write(block)
    return copied


def unpack(archive: Path, target: Path) -> None:
    left = MOST_BYTES
    with zipfile.ZipFile(archive) as content:
        members = content.infolist()
        if len(members) > MOST_FILES:
            raise zipfile.BadZipFile(
                f"the archive has {len(members)} files, expected {MOST_FILES} at most"
            )
        for member in members:
            path = target / member.filename
            if not path.resolve().is_relative_to(target.resolve()):
                raise zipfile.BadZipFile(
                    f"the archive wants to write outside its folder: {member.filename!r}"
                )
            if member.compress_type not in _METHODS:
                raise zipfile.BadZipFile(
                    f"{member.filename!r:.80} is packed by another method than stored or deflate"
                )
            if member.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with content.open(member) as source, path.open("xb") as file:
                left -= _copy(source, file, left, "the unpacked archive")
