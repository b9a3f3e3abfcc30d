"""The user that runs programs: root becomes one without rights, another user stays itself.

Arrives: nothing.  Leaves: how a command becomes that user, and what that user can reach and already
runs.  It deliberately does not know boxes.
"""

import functools
import os
import platform
import re
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from miron_jax.errors import InputError
from miron_jax.runtime.sandbox.mounts import SYSTEM_PATH

NOBODY = 65534  # user and group that own nothing


def user_switch(folder: Path | None) -> tuple[list[str], int | None]:
    """How root runs a command as NOBODY, who then owns `folder`: by a command before it, or else by
    Popen's `user`.

    Popen would fork, which copies the page tables of this process, and it holds a model; setpriv
    (util-linux) avoids this.
    """
    if not _is_root_of_all():
        return [], None
    if folder:
        os.chown(folder, NOBODY, NOBODY)
    setpriv = shutil.which("setpriv", path=SYSTEM_PATH)
    if not setpriv:
        return [], NOBODY
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"], None


@functools.cache
def _is_root_of_all() -> bool:
    """Whether this user is root and can become NOBODY.  Root of a user namespace that has no such
    user is a plain user outside of it."""
    return os.geteuid() == 0 and all(
        any(first <= NOBODY < first + count for first, _, count in _ids(name))
        for name in ("uid_map", "gid_map")
    )


def _ids(name: str) -> list[list[int]]:
    """Ranges of ids of this user namespace: the first one, what it is outside, their number."""
    lines = Path(f"/proc/self/{name}").read_text().splitlines()
    return [list(map(int, line.split())) for line in lines]


def interpreter() -> str:
    """This Python, or the system's if the user that runs programs cannot reach this one."""
    this_python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    for path in (this_python, Path("/usr/bin/python3"), Path("/usr/local/bin/python3")):
        if path.exists() and (
            not _is_root_of_all()
            or all(p.stat().st_mode & stat.S_IXOTH for p in path.resolve().parents)
        ):
            return str(path)
    raise InputError(
        "programs that a model writes run as a user without rights, who cannot reach "
        f"{this_python}: install python3 under /usr, or run as another user than root"
    )


def threads_of_user() -> int:
    """Threads that the user of runs already has."""
    user = NOBODY if _is_root_of_all() else os.geteuid()
    total = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == user:
                total += process.num_threads()
    return total


def counts_by_namespace() -> bool:
    """Whether RLIMIT_NPROC counts the processes of a user's namespace and not all of the user
    (since Linux 5.14)."""
    return tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (5, 14)
