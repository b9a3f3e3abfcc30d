"""Names of repositories on the Hugging Face hub, and the commit that a file on disk was downloaded at.

Arrives: owner/name or owner/name@revision; a path.  Leaves: a `Repository`; a commit.  It deliberately fetches nothing.
"""

import re
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"([\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@([\w.][\w./-]*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ABOVE = 4  # folders above a file that may be the download's root


class Repository(NamedTuple):
    id: str
    revision: str | None  # branch, tag or commit; None: the newest of its main branch


def parse_name(name: str) -> Repository | None:
    """Parse `owner/name` or `owner/name@revision`; None where it cannot be the name of a repository."""
    match = _NAME.fullmatch(name)
    return Repository(match[1], match[2]) if match else None


def revision_of(data_dir: Path | None) -> str | None:
    """The revision in `--data_dir=SUITE=@REVISION`, of the data set on the hub that the suite names; None for a folder."""
    name = "" if data_dir is None else str(data_dir)
    return name[1:] if name.startswith("@") and len(name) > 1 else None


def commit_of(path: Path) -> str | None:
    """The commit that a file was downloaded at; None where it did not come from the hub.

    The hub's client writes it into the paths of its cache (.../snapshots/COMMIT/...), or into a file below another download
    folder.
    """
    parts = path.absolute().parts
    for above, name in pairwise(parts):
        if above == "snapshots" and _COMMIT.fullmatch(name):
            return name
    for folder in islice(path.absolute().parents, _ABOVE):
        below = path.absolute().relative_to(folder)
        metadata = folder / ".cache" / "huggingface" / "download" / f"{below}.metadata"
        if metadata.is_file():
            first = metadata.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
            return first if _COMMIT.fullmatch(first) else None
    return None
