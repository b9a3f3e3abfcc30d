"""The Hugging Face hub: names of repositories, data sets fetched into the cache, and the commit of
a file on disk.

Arrives: a name, a path.  Leaves: a `Repository`, a folder, a commit.  It deliberately does not know
what the files hold.
"""

import re
import shutil
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.places import data_cache
from miron_jax.files.temporary import remove_abandoned, temporary_folder

_NAME = re.compile(r"([\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@([\w.][\w./-]*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MOST_PARENTS = 4  # folders between a file and the top of its data set
# where the hub's client describes the files of a folder
_METADATA = Path(".cache", "huggingface", "download")


class Repository(NamedTuple):
    id: str
    revision: str | None  # branch, tag or commit; None: the newest commit of its main branch


def parse_name(name: str) -> Repository | None:
    """`owner/name` or `owner/name@revision` as a repository; None if no repository can have that
    name."""
    match = _NAME.fullmatch(name)
    return Repository(match[1], match[2]) if match else None


def revision_of(data_dir: Path | None) -> str | None:
    """The revision that `--data_dir=SUITE=@REVISION` requests of the suite's data set on the hub,
    else None."""
    name = "" if data_dir is None else str(data_dir)
    return name[1:] if name.startswith("@") and len(name) > 1 else None


def cache_folder(suite: str, revision: str | None) -> Path:
    """The cache folder of a suite's data set, one for each revision that a user requests."""
    return data_cache(suite if revision is None else f"{suite}@{revision.replace('/', '-')}")


def fetch_data_set(
    repository: Repository, folder: Path, patterns: Sequence[str], suite: str, remedy: str = ""
) -> None:
    """Download the files of a data set that match `patterns` into `folder`, unless the folder is
    complete.

    The folder appears only when it is complete, and later edits on the hub do not change it: a file
    that it loses later is downloaded at the folder's commit.  `remedy`: what to do where there is a
    network, in place of --data_dir.  Raises InputError for every error of the hub's client,
    HF_HUB_OFFLINE among them.
    """
    remove_abandoned(folder.parent)
    lost = _lost_files(folder)
    if folder.is_dir() and not lost:
        return
    revision = commit_of(folder / lost[0]) if lost else None
    try:
        with temporary_folder(folder.parent) as temporary:
            complete = temporary / "data"
            _download(
                Repository(repository.id, revision or repository.revision), complete, patterns
            )
            if not folder.is_dir():
                complete.rename(folder)
            for name in _lost_files(folder):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (complete / name).replace(folder / name)
    # the client passes on the errors of its HTTP libraries: they have no class in common
    except Exception as error:
        lost = _lost_files(folder)
        if folder.is_dir() and not lost:  # another run has fetched it meanwhile
            return
        absent = f"{suite} data: {lost[0]} is" if lost else f"{suite} data are"
        remedy = remedy or f" and pass --data_dir={suite}=FOLDER"
        raise InputError(
            f"{absent} neither in {folder} nor to be had from {repository.id} on the Hugging Face "
            f"hub ({' '.join(str(error).split()):.160}): fetch it where there is a network{remedy}"
        ) from error


def _download(repository: Repository, folder: Path, patterns: Sequence[str]) -> None:
    """Download a data set, or copy it from the cache of the hub's client if the hub cannot be
    reached."""
    from huggingface_hub import snapshot_download

    hub_id, revision = repository
    commit = None
    try:
        snapshot_download(
            hub_id,
            repo_type="dataset",
            revision=revision,
            local_dir=folder,
            allow_patterns=list(patterns),
        )
    except Exception:
        commit = _copy_from_client_cache(repository, folder, patterns)
        if commit is None:
            raise
    for path in folder.rglob("*"):  # only a download of the client writes metadata
        name = path.relative_to(folder)
        metadata = folder / _METADATA / f"{name}.metadata"
        if path.is_file() and name.parts[0] != ".cache" and not metadata.exists():
            metadata.parent.mkdir(parents=True, exist_ok=True)
            metadata.write_text(f"{commit}\n")


def _copy_from_client_cache(
    repository: Repository, folder: Path, names: Sequence[str]
) -> str | None:
    """Copy these files, and return their commit; None if the cache lacks one, as it lacks every
    name with a wildcard."""
    from huggingface_hub import try_to_load_from_cache

    commit = None
    shutil.rmtree(folder, ignore_errors=True)  # an interrupted download leaves files here
    for name in names:
        path = try_to_load_from_cache(
            repository.id, name, revision=repository.revision, repo_type="dataset"
        )
        if not isinstance(path, str):
            return None
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
        commit = commit_of(Path(path))
    return commit


def _lost_files(folder: Path) -> list[str]:
    """Names of the files that a fetched folder no longer holds; their metadata files still name
    them."""
    metadata = folder / _METADATA
    names = []
    for path in metadata.rglob("*.metadata"):
        names.append(str(path.relative_to(metadata)).removesuffix(".metadata"))
    return sorted(name for name in names if not (folder / name).is_file())


def commit_of(path: Path) -> str | None:
    """The commit that a file was downloaded at; None if the hub's client did not download it.

    The client keeps the commit in the names of its cache (.../snapshots/COMMIT/...), and in a
    metadata file below the top of any other folder.
    """
    parts = path.absolute().parts
    for parent, name in pairwise(parts):
        if parent == "snapshots" and _COMMIT.fullmatch(name):
            return name
    for folder in islice(path.absolute().parents, _MOST_PARENTS):
        relative = path.absolute().relative_to(folder)
        metadata = folder / _METADATA / f"{relative}.metadata"
        if metadata.is_file():
            first_line = (
                metadata.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
            )
            return first_line if _COMMIT.fullmatch(first_line) else None
    return None
