"""Names of folders and files as users give them: local paths, or URLs that fsspec knows.

Arrives: a flag's value.  Leaves: a path or URL to open, and one without secrets to show to others.
It deliberately does not open anything.
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from miron_jax.errors import InputError

# credentials before a host, in each part of a chained URL too
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_REST = re.compile(r"[?#].*", re.DOTALL)  # a query may hold a signature or a token


def is_url(name: str) -> bool:
    return "://" in name and not name.startswith("file://")


def local_path(name: str | Path) -> Path:
    """A local path with `~` expanded; file:///x is /x.  Raises InputError for a name that no path
    can have."""
    text = str(name)
    if "\0" in text:
        raise InputError(f"{text!r:.80} holds a null character, expected a path: mend the name")
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path) or "/"
    try:
        return Path(text).expanduser()
    except RuntimeError:
        user = text.partition("/")[0]
        raise InputError(
            f"{text}: there is no user {user[1:]!r} here, expected a path: write the folder out"
        ) from None


def place(name: str) -> str:
    """A URL unchanged, or a local path with `~` expanded."""
    return name if is_url(name) else str(local_path(name))


def public(name: str) -> str:
    """The name to show to others: a URL without credentials and query, a path below the home folder
    as `~/...`."""
    if is_url(name):
        return _REST.sub("", _USER.sub("", name))
    home = os.path.expanduser("~")
    if home not in ("/", "~") and (name == home or name.startswith(home + os.sep)):
        return "~" + name[len(home) :]
    return name


def home_cache() -> Path | None:
    """~/.cache/miron_jax; None for a user without a home, as a container may have."""
    try:
        return Path.home() / ".cache" / "miron_jax"
    except RuntimeError:
        return None


def data_cache(*below: str) -> Path:
    """The folder `below` the cache of benchmark data: below $MIRON_JAX_DATA, else
    ~/.cache/miron_jax.  Raises InputError if there is neither."""
    named = os.environ.get("MIRON_JAX_DATA")
    cache = Path(named) if named else home_cache()
    if cache is None:
        raise InputError(
            "this user has no home folder, in which data is kept: set HOME, or MIRON_JAX_DATA to a "
            "folder for data"
        )
    return cache.joinpath(*below)
