"""Files of the system that a box shows, by what runs in it: an interpreter, a compiler, a command.

Arrives: a language, or a command.  Leaves: bubblewrap's arguments that mount them.  It deliberately
does not know the program.

A box shows an interpreter with its standard library and shared libraries, or a compiler with its
headers and what it links, read-only; no home, no sources, no package of other people: what lies
there may have a task's answers, and would make a verdict depend on what a machine has installed.
The system is asked once a process: Python for its path, g++ for its folders, ldd for libraries.
A symbolic link on the way to a file is made in the box as well, so that both layouts of /usr work.
"""

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from miron_jax.errors import InputError

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
# The index of libraries (glibc; musl).
_INDEX = ("/etc/ld.so.cache", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path")
_LOCALES = "/usr/lib/locale"
_TIME_ZONES = "/usr/share/zoneinfo"
# Debian keeps modules of Node.js itself outside of its binary.
_NODE_MODULES = tuple(
    f"/usr/share/nodejs/{name}" for name in ("acorn", "acorn-walk", "cjs-module-lexer", "undici")
)
_PACKAGES = ("site-packages", "dist-packages")  # of a Python, beside its standard library
# Modules for screens and networks, which a box does not have; their libraries would be half of all.
_WITHOUT_LIBRARIES = ("_tkinter", "_curses", "readline", "nis")
_ASK_SECONDS = 60.0
_PYTHON_PATH = """
import json, sys, sysconfig
folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *sys.path}
print(json.dumps([sys.executable, *filter(None, folders)]))
"""
# that a thread's end, or a library, opens by name, beside what ldd lists
_OPENED_BY_NAME = ("libgcc_s.so.1",)


@functools.cache
def mounts(*commands: str) -> tuple[str, ...]:
    """Bubblewrap's arguments that show commands, by name or path: a Python with its library, g++
    with what it compiles and links, a compiled program's libraries ("./compiled").

    Raises InputError if the system cannot be asked.
    """
    paths = list(_INDEX)
    for command in commands:
        if command == "g++":
            paths += _compiler()
        elif command.startswith("./"):
            libraries = _with_libraries([_answer("g++", "-print-file-name=libstdc++.so.6")])
            paths += [*libraries, _LOCALES]
        elif Path(command).name.startswith("python"):
            paths += _python(command)
        else:
            paths += [*_commands((command,)), *(_NODE_MODULES if command == "node" else ())]
    return tuple(_arguments(paths))


def _python(python: str) -> list[str]:
    said = _answer(python, "-I", "-S", "-c", _PYTHON_PATH)
    try:
        executable, *folders = json.loads(said.splitlines()[-1])  # warnings may stand before it
    except (ValueError, IndexError):
        raise InputError(
            f"{python}: does not say where its modules are ({said[-200:]!r}): the sandbox shows "
            "them to a program, so mend it"
        ) from None
    folders = [folder for folder in folders if Path(folder).name not in _PACKAGES]
    modules = [
        str(module)
        for folder in folders
        for module in Path(folder).glob("*.so")
        if not module.name.startswith(_WITHOUT_LIBRARIES)
    ]
    return [python, *folders, *_with_libraries([executable, *modules]), _TIME_ZONES, _LOCALES]


def _compiler() -> list[str]:
    """g++ with its programs, the folders of its headers, and what it links."""
    programs = ("g++", *(_answer("g++", f"-print-prog-name={name}") for name in _GNU_PROGRAMS))
    searched = _answer("g++", "-std=c++11", "-x", "c++", "-E", "-v", os.devnull)
    headers = re.findall(r"^ (/\S+)$", searched, re.MULTILINE)
    linked = _answer(
        "g++", "-std=c++11", "-x", "c++", "-", "-o", os.devnull, "-Wl,--trace",
        given="#include <iostream>\nint main() { std::cout << 1; }\n",
    ).splitlines()  # fmt: skip
    # with its plug-ins
    folders = {str(Path(each).parent) for each in programs if Path(each).name == "cc1plus"}
    folders |= {str(Path(each).parent) for each in linked if Path(each).name == "libgcc.a"}
    return [*_commands((*programs, *_SHELL)), *headers, *linked, *folders]


_GNU_PROGRAMS = ("cc1plus", "collect2", "as", "ld")
_SHELL = ("sh", "cat", "rm")


def _commands(names: Iterable[str]) -> list[str]:
    """Programs with their libraries."""
    programs = [shutil.which(name, path=SYSTEM_PATH) for name in names]
    return _with_libraries(each for each in programs if each)


def _with_libraries(files: Iterable[str]) -> list[str]:
    files = list(files)
    libraries = set(re.findall(r"(?:^|=> )\s*(/\S+) \(0x", _answer("ldd", *files), re.MULTILINE))
    folders = {str(Path(library).parent) for library in libraries}
    named = [f"{folder}/{name}" for folder in folders for name in _OPENED_BY_NAME]
    return [*files, *libraries, *named]


def _answer(*command: str, given: str = "") -> str:
    """What a program of the system says; its errors too, since g++ lists its folders there."""
    try:
        ran = subprocess.run(
            command,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={"PATH": f"{SYSTEM_PATH}:/usr/sbin:/sbin", "LC_ALL": "C"},
            timeout=_ASK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"{' '.join(command)[:80]}: {error}: the sandbox asks it which files a program needs, "
            "so install it or mend it"
        ) from None
    return ran.stdout.strip()


def _arguments(paths: Iterable[str]) -> list[str]:
    """Bubblewrap's arguments that show these paths, those that exist."""
    links = dict[Path, str]()
    shown = {
        _followed(path, links) for path in paths if os.path.isabs(path) and Path(path).exists()
    }
    # a folder shows what lies below it
    shown = {path for path in shown if shown.isdisjoint(path.parents)}
    arguments = list[str]()
    for link, target in links.items():
        if shown.isdisjoint(link.parents):
            arguments += ["--symlink", target, str(link)]
    for path in sorted(shown):
        arguments += ["--ro-bind", str(path), str(path)]
        for packages in _PACKAGES:
            if (path / packages).is_dir():
                hidden = str(path / packages)
                arguments += ["--tmpfs", hidden, "--remount-ro", hidden]
    return arguments


def _followed(path: str, links: dict[Path, str]) -> Path:
    """A path without symbolic links; those on the way are added to `links`."""
    done = Path("/")
    parts = list(Path(path).parts[1:])
    while parts:
        part = parts.pop(0)
        step = done.parent if part == ".." else done / part
        if not step.is_symlink():
            done = step
            continue
        links[step] = os.readlink(step)
        target = Path(links[step])
        if target.is_absolute():
            done = Path("/")
        parts = [*target.relative_to(target.anchor).parts, *parts]
    return done
