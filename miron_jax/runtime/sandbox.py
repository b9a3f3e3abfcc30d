"""Runs a program that a model wrote, where it can do no harm.

Arrives: files and a command.  Leaves: `Ran`.  It deliberately does not know benchmarks or languages.

Each run is a new process tree in namespaces of its own (bubblewrap): no network, no other process in sight, the system's
programs read-only, nothing else of the disk, one empty folder in memory that goes when it ends, a user without rights.
Limits on processor time, memory, processes, open files and output hold inside; a seccomp filter refuses the system calls
that take memory which no limit counts, or that reach beyond the box (box_filter.py); a clock and a watch over what the whole
tree takes stand outside, and kill it whole.  `--allow_unsandboxed_code` runs the same with the limits alone, for machines
whose own container is the sandbox.
"""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, NamedTuple

import psutil

from miron_jax.errors import InputError
from miron_jax.runtime.box_filter import box_filter

NOBODY = 65534  # user and group that own nothing
WATCH_SECONDS = 0.02  # between two looks at a run
READ_BYTES = 1 << 20  # of what a run printed
RESERVED_BYTES = (
    2 << 30
)  # addresses beyond the memory limit that a process may reserve: V8 takes 0.7 GB before it begins
SOCKET_BYTES = 256 << 10  # that a socket of the kernel's default size can hold: the filter refuses to ask for more
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
FOLDER = "/box"  # the run's own folder, inside


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may take."""

    seconds: float = 10.0  # by the clock
    memory_bytes: int = 2 << 30  # of the whole tree
    processes: int = 64
    output_bytes: int = 1 << 20  # of each file it writes, what it prints among them
    folder_bytes: int = 256 << 20
    files: int = 4096  # in its folder, folders among them


class Ran(NamedTuple):
    """How a run ended."""

    ended: Literal["exit", "time", "memory"]  # memory: of processes, sockets or files
    status: int  # exit status; below 0: the signal that killed it
    out: str
    err: str
    value: bytes = b""  # what it wrote to descriptor 3, which no print reaches

    @property
    def good(self) -> bool:
        return self.ended == "exit" and self.status == 0


# Sets the limits from the inside, then becomes the program: prlimit(1) may be absent, and a fork hook of the parent's
# would run beside its threads.  Descriptor 3 is where values go; what a quiet run prints is dropped.
_LAUNCHER = """
import os, resource, sys
value, quiet, *limits = map(int, sys.argv[1:8])
if value != 3:
    os.dup2(value, 3)
    os.close(value)
if quiet:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.closerange(4, 256)
names = "DATA", "AS", "NPROC", "FSIZE", "CPU", "NOFILE", "CORE", "MSGQUEUE", "MEMLOCK", "SIGPENDING"
for name, value in zip(names, (*limits, 256, 0, 0, 0, 1024)):
    kind = getattr(resource, "RLIMIT_" + name, None)
    if kind is not None:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
os.execvp(sys.argv[8], sys.argv[8:])
"""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where runs happen; `bwrap` is None where the limits are all there is."""

    bwrap: str | None
    python: str  # an interpreter that the inside can see

    @classmethod
    def find(cls, without: bool = False) -> "Sandbox":
        """Raises InputError where there is no working sandbox, unless runs may do `without`."""
        python = _interpreter()
        remedy = (
            "install bubblewrap (Debian: apt-get install bubblewrap) on a machine that lets users make namespaces, or pass "
            "--allow_unsandboxed_code where the machine itself may be lost"
        )
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            wrong = "programs that a model writes are run in a sandbox, and bwrap is not on PATH"
        else:
            sandbox = cls(bwrap, python)
            tried = sandbox.run([python, "-I", "try.py"], {"try.py": "print('works')"})
            if tried.out == "works\n":
                return sandbox
            reason = " ".join((tried.err or f"{tried.ended}, status {tried.status}").split())
            wrong = f"the sandbox {bwrap} does not work here ({reason:.200})"
        if without:
            return cls(None, python)
        raise InputError(f"{wrong}: {remedy}")

    def which(self, tool: str) -> str | None:
        """Where a program of the system is, as a run sees it."""
        return shutil.which(tool, path=SYSTEM_PATH if self.bwrap else None)

    def run(
        self,
        command: Sequence[str],
        files: Mapping[str, str | bytes],
        limits: Limits = Limits(),
        stdin: str = "",
        quiet: bool = False,
    ) -> Ran:
        """Run a command among these files, in their folder; what a `quiet` run prints is dropped."""
        somebody = NOBODY if os.geteuid() == 0 else None  # root hands the run to a user that owns nothing
        with (
            tempfile.TemporaryDirectory(prefix="miron-box-") as folder,
            # What a run prints goes to files, so that the limit on files bounds it too.
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            tempfile.TemporaryFile() as value,
            tempfile.TemporaryFile() as rules,
        ):
            _write_files(Path(folder), files)
            if somebody is not None:
                os.chown(folder, somebody, somebody)
            given.write(stdin.encode("utf-8", "replace"))
            given.seek(0)
            rules.write(box_filter() if self.bwrap else b"")
            rules.seek(0)
            home = FOLDER if self.bwrap else folder
            inside = self._launcher(limits, value.fileno(), quiet)
            walls = self._walls(files, Path(folder), limits, rules.fileno()) if self.bwrap else []
            nobody = [] if somebody is None else _as_somebody(somebody)
            by_python = None if nobody else somebody
            process = subprocess.Popen(
                [*nobody, *walls, *inside, *command],
                cwd=folder,
                env={"PATH": SYSTEM_PATH if self.bwrap else os.environ.get("PATH", ""), "HOME": home, "TMPDIR": home},
                stdin=given,
                stdout=out,
                stderr=err,
                pass_fds=(rules.fileno(), value.fileno()),
                start_new_session=True,
                user=by_python,
                group=by_python,
                extra_groups=None if by_python is None else [],
            )
            try:
                ended = _watch(process, limits, boxed=self.bwrap is not None)
            finally:
                # A box ends with its first process; without one, whatever else was started goes on.
                if process.returncode is None or not self.bwrap:
                    _kill(process)
            return Ran(
                ended,
                process.wait(),
                _start_of(out, READ_BYTES).decode("utf-8", "replace"),
                _start_of(err, READ_BYTES).decode("utf-8", "replace"),
                _start_of(value, limits.output_bytes),
            )

    def _launcher(self, limits: Limits, value: int, quiet: bool) -> list[str]:
        """The interpreter that sets the limits and becomes the command behind it."""
        # Without namespaces the kernel counts all threads of the user, this process's own among them.
        processes = limits.processes + (0 if self.bwrap else _threads_of_user())
        memory = (limits.memory_bytes, limits.memory_bytes + RESERVED_BYTES)
        numbers = (value, int(quiet), *memory, processes, limits.output_bytes, int(limits.seconds) + 1)
        return [self.python, "-I", "-S", "-c", _LAUNCHER, *map(str, numbers)]

    def _walls(self, files: Mapping[str, object], folder: Path, limits: Limits, rules: int) -> list[str]:
        """bubblewrap's own arguments."""
        assert self.bwrap
        walls = [
            self.bwrap,
            "--unshare-all",
            "--unshare-user",
            "--die-with-parent",
            "--new-session",
            "--cap-drop",
            "ALL",
        ]
        walls += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "box", "--disable-userns"]
        walls += ["--seccomp", str(rules)]
        for path in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache"):
            if Path(path).is_symlink():
                walls += ["--symlink", os.readlink(path), path]
            elif Path(path).exists():
                walls += ["--ro-bind", path, path]
        prefix = str(Path(self.python).parent.parent)
        if not prefix.startswith("/usr"):
            walls += ["--ro-bind", prefix, prefix]
        # A shared mapping of /dev/zero is memory that no process is charged for, so there is none.
        walls += ["--proc", "/proc", "--dev", "/dev", "--dev-bind", "/dev/null", "/dev/zero", "--remount-ro", "/dev"]
        walls += ["--size", str(limits.folder_bytes), "--tmpfs", FOLDER]
        for name in files:
            walls += ["--ro-bind", str(folder / name), f"{FOLDER}/{name}"]
        return [*walls, "--chdir", FOLDER, "--remount-ro", "/"]


def _as_somebody(user: int) -> list[str]:
    """What becomes this user and then the command, so that Python need not: it would copy the page tables of this process,
    which holds a model, for each run.  Empty where util-linux is not there."""
    setpriv = shutil.which("setpriv", path=SYSTEM_PATH)
    return [setpriv, f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"] if setpriv else []


def _interpreter() -> str:
    """This Python, or the system's where the user that runs it could not reach this one."""
    own = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    for path in (own, Path("/usr/bin/python3"), Path("/usr/local/bin/python3")):
        if path.exists() and (
            os.geteuid() != 0 or all(p.stat().st_mode & stat.S_IXOTH for p in path.resolve().parents)
        ):
            return str(path)
    raise InputError(
        f"programs that a model writes run as a user without rights, who cannot reach {own}: install python3 under /usr, or "
        "run as another user than root"
    )


def _start_of(stream: IO[bytes], most: int) -> bytes:
    stream.seek(0)
    return stream.read(most)


def _threads_of_user() -> int:
    """Threads that the run's user has already."""
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    total = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == user:
                total += process.num_threads()
    return total


def _write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
        (folder / name).chmod(0o644)  # whatever the umask: another user reads it


def _watch(process: subprocess.Popen[bytes], limits: Limits, boxed: bool) -> Literal["exit", "time", "memory"]:
    """Wait for the end, or for a limit that no rlimit holds: the clock, and what all processes together take."""
    end = time.monotonic() + limits.seconds
    while True:
        try:
            process.wait(WATCH_SECONDS)
            return "exit"
        except subprocess.TimeoutExpired:
            pass
        if time.monotonic() > end:
            return "time"
        tree = _tree(process.pid)
        files, folder_bytes = _folder_of(tree[-1].pid) if boxed and tree else (0, 0)
        if files > limits.files or folder_bytes + sum(map(_memory, tree)) > limits.memory_bytes:
            return "memory"


def _tree(pid: int) -> list[psutil.Process]:
    """A process and all below it; nothing once it has ended."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _memory(process: psutil.Process) -> int:
    """Bytes of a process: resident ones, its page tables, and what its sockets can hold."""
    total, folder = 0, Path("/proc") / str(process.pid)
    with suppress(psutil.Error):  # it has ended meanwhile, as below
        total += process.memory_info().rss
    with suppress(OSError):
        tables = re.search(rb"VmPTE:\s*(\d+) kB", (folder / "status").read_bytes())
        total += int(tables[1]) << 10 if tables else 0
    with suppress(OSError):
        total += SOCKET_BYTES * sum(_is_socket(folder / "fd" / name) for name in os.listdir(folder / "fd"))
    return total


def _is_socket(path: Path) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except OSError:  # closed meanwhile
        return False


def _folder_of(pid: int) -> tuple[int, int]:
    """Files in the box's folder, and bytes that they take, as a process of the box sees it; zeros before it is there."""
    try:
        found = os.statvfs(f"/proc/{pid}/root{FOLDER}")
    except OSError:
        return 0, 0
    return found.f_files - found.f_ffree, (found.f_blocks - found.f_bfree) * found.f_frsize


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Everything that the run started: the process group, and in a sandbox, whose init goes with it, every process."""
    tree = _tree(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in tree:
        with suppress(psutil.Error):
            child.kill()
    process.wait()
