"""The Hugging Face hub: names of repositories, data sets fetched into the cache, and the commit of a file on disk.

Arrives: a name, a path.  Leaves: a `Repository`, a folder, a commit.  It deliberately does not know what the files hold.
"""

import re
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.places import data_cache

_NAME = re.compile(r"([\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@([\w.][\w./-]*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MOST_PARENTS = 4  # folders between a file and the top of its data set


class Repository(NamedTuple):
    id: str
    revision: str | None  # branch, tag or commit; None: the newest commit of its main branch


def parse_name(name: str) -> Repository | None:
    """`owner/name` or `owner/name@revision` as a repository; None if no repository can have that name."""
    match = _NAME.fullmatch(name)
    return Repository(match[1], match[2]) if match else None


def revision_of(data_dir: Path | None) -> str | None:
    """The revision that `--data_dir=SUITE=@REVISION` requests of the suite's data set on the hub, else None."""
    name = "" if data_dir is None else str(data_dir)
    return name[1:] if name.startswith("@") and len(name) > 1 else None


def cache_folder(suite: str, revision: str | None) -> Path:
    """The cache folder of a suite's data set, one for each revision that a user requests."""
    return data_cache(suite if revision is None else f"{suite}@{revision.replace('/', '-')}")


def fetch_data_set(repository: Repository, folder: Path, patterns: Sequence[str], suite: str) -> None:
    """Download the files of a data set that match `patterns` into `folder`, unless the folder exists.

    The folder appears only when it is complete, and later edits on the hub do not change it.  Raises InputError for every
    error of the hub's client, HF_HUB_OFFLINE among them.
    """
    if folder.is_dir():
        return
    from huggingface_hub import snapshot_download

    hub_id, revision = repository
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # A download that was cut off is never taken for a whole one: the client returns such a folder when it is offline.
        with TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as scratch:
            partial = Path(scratch) / "data"
            snapshot_download(
                hub_id, repo_type="dataset", revision=revision, local_dir=partial, allow_patterns=list(patterns)
            )
            partial.rename(folder)
    except Exception as error:  # the client passes on the errors of its HTTP libraries: they have no class in common
        if folder.is_dir():  # another run has fetched it meanwhile
            return
        raise InputError(
            f"{suite} data are neither in {folder} nor to be had from {hub_id} on the Hugging Face hub "
            f"({' '.join(str(error).split()):.160}): fetch it where there is a network and pass --data_dir={suite}=FOLDER"
        ) from error


def commit_of(path: Path) -> str | None:
    """The commit that a file was downloaded at; None if the hub's client did not download it.

    The client keeps the commit in the names of its cache (.../snapshots/COMMIT/...), and in a metadata file below the top
    of any other folder.
    """
    parts = path.absolute().parts
    for parent, name in pairwise(parts):
        if parent == "snapshots" and _COMMIT.fullmatch(name):
            return name
    for folder in islice(path.absolute().parents, _MOST_PARENTS):
        relative = path.absolute().relative_to(folder)
        metadata = folder / ".cache" / "huggingface" / "download" / f"{relative}.metadata"
        if metadata.is_file():
            first_line = metadata.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
            return first_line if _COMMIT.fullmatch(first_line) else None
    return None
