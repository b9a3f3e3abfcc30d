"""The Hugging Face hub: owner/name or owner/name@revision, and which commit a file on disk is of.

Arrives: a name, a path.  Leaves: the same taken apart; a commit.  It deliberately fetches nothing.
"""

import re
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"([\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@([\w.][\w./-]*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ABOVE = 4  # folders of a data set that a file may lie below


class Repository(NamedTuple):
    id: str
    revision: str | None  # branch, tag or commit; None: the newest of its main branch


def parse_name(name: str) -> Repository | None:
    """`owner/name`, or `owner/name@revision`; None for what no repository can be called."""
    found = _NAME.fullmatch(name)
    return Repository(found[1], found[2]) if found else None


def revision_of(data_dir: Path | None) -> str | None:
    """`--data_dir=SUITE=@REVISION` asks for a revision of the suite's own data set on the hub."""
    name = "" if data_dir is None else str(data_dir)
    return name[1:] if name.startswith("@") and len(name) > 1 else None


def commit_of(path: Path) -> str | None:
    """The commit that a file was downloaded at: the hub's client keeps it in the names of its cache
    (.../snapshots/COMMIT/...), and beside a folder of the user's own.  None: it did not come that way."""
    parts = path.absolute().parts
    for above, name in pairwise(parts):
        if above == "snapshots" and _COMMIT.fullmatch(name):
            return name
    for folder in islice(path.absolute().parents, _ABOVE):
        below = path.absolute().relative_to(folder)
        told = folder / ".cache" / "huggingface" / "download" / f"{below}.metadata"
        if told.is_file():
            first = told.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
            return first if _COMMIT.fullmatch(first) else None
    return None
