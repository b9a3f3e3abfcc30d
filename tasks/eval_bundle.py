"""The data files that CORE and the Gauntlet share, given or fetched.

Arrives: --data_dir or nothing.  Leaves: the folder that holds world_knowledge/arc_easy.jsonl and its like, which are
llm-foundry's local_data, byte for byte.  It deliberately does not know tasks.
"""

import os
import shutil
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path

from miron_jax.errors import InputError

BUNDLE_URL = "https://karpathy-public.s3.us-west-2.amazonaws.com/eval_bundle.zip"


def locate_files(data_dir: Path | None, fetch: bool, files: Iterable[str], suite: str) -> Path:
    """The folder that holds at least one of the files: in `data_dir`, or in the cache, where the bundle is fetched once."""
    bundle = _cached_bundle(fetch, suite) if data_dir is None else data_dir
    folder = bundle / "eval_data" if (bundle / "eval_data").is_dir() else bundle
    expected = list(files)
    if not any((folder / file).is_file() for file in expected):
        raise InputError(
            f"{bundle}: no {suite} data there, expected an eval bundle (core.yaml, eval_data/{expected[0]} and so on): "
            f"unpack {BUNDLE_URL} and pass --data_dir=FOLDER"
        )
    return folder


def _cache() -> Path:
    return Path(os.environ.get("MIRON_JAX_DATA") or Path.home() / ".cache" / "miron_jax")


def _cached_bundle(fetch: bool, suite: str) -> Path:
    bundle = _cache() / "eval_bundle"
    if fetch and not bundle.is_dir():
        try:
            _fetch(bundle)
        except (OSError, EOFError, HTTPException, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(
                f"{suite} data are neither in {bundle} nor to be had from {BUNDLE_URL} ({error!s:.120}): "
                "unpack that archive on a machine with a network and pass --data_dir=FOLDER"
            ) from error
    return bundle


def _fetch(bundle: Path) -> None:
    """Downloads and unpacks beside `bundle`; it appears under its own name only when it is whole."""
    bundle.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".eval_bundle-", dir=bundle.parent) as scratch:
        archive = Path(scratch) / "eval_bundle.zip"
        with urllib.request.urlopen(BUNDLE_URL, timeout=60) as response, archive.open("wb") as file:
            shutil.copyfileobj(response, file)
        unpacked = Path(scratch) / "unpacked"
        _unpack(archive, unpacked)
        inner = unpacked / "eval_bundle"
        try:
            os.rename(inner if inner.is_dir() else unpacked, bundle)
        except OSError:
            if not bundle.is_dir():  # else another process was first, with the same bytes
                raise


def _unpack(archive: Path, target: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        for name in content.namelist():
            if not (target / name).resolve().is_relative_to(target.resolve()):
                raise zipfile.BadZipFile(f"the archive wants to write outside its folder: {name!r}")
        content.extractall(target)
