"""Runs programs that a model wrote in a sandbox.

Arrives: files and a command.  Leaves: `Ran`.  It deliberately does not know benchmarks or
languages.

Each run is a new process tree in separate namespaces (bubblewrap).  It has no network, sees no
other process, reads the system's programs and nothing else of the disk, writes to one folder in
memory, and belongs to a user without rights.  Resource limits hold inside: processor time, memory,
processes, open files, output.  A seccomp filter refuses system calls that take memory which no
limit counts, or that reach beyond the sandbox (box_filter.py).  From outside, a watch kills the
whole tree when it exceeds its time or memory.  With `--allow_unsandboxed_code` only the limits and
the watch remain, for machines whose container is the sandbox.
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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, NamedTuple

import psutil

from miron_jax.errors import InputError
from miron_jax.runtime.box_filter import box_filter

NOBODY = 65534  # user and group that own nothing
WATCH_SECONDS = 0.02  # between two checks of a run
READ_BYTES = 1 << 20  # of standard output, and of standard error
# addresses that a process may reserve beyond the memory limit: V8 starts with 0.7 GB
RESERVED_BYTES = 2 << 30
# that a socket of the kernel's default size can hold: the filter refuses to ask for more
SOCKET_BYTES = 256 << 10
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
FOLDER = "/box"  # the run's folder, as it sees it
# Bubblewrap's arguments that are the same for every run.  /dev/zero is hidden, since memory mapped
# from it is charged to no process.
_ISOLATION = (
    "--unshare-all --unshare-user --die-with-parent --new-session --cap-drop ALL --disable-userns "
    f"--hostname box --uid {NOBODY} --gid {NOBODY}"
).split()
_DEVICES = (
    "--proc", "/proc", "--dev", "/dev", "--dev-bind", "/dev/null", "/dev/zero", "--remount-ro",
    "/dev",
)  # fmt: skip
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may take."""

    seconds: float = 10.0  # wall-clock
    memory_bytes: int = 2 << 30  # of the whole process tree
    processes: int = 64
    output_bytes: int = 1 << 20  # of each file it writes; standard output and error are files too
    folder_bytes: int = 256 << 20
    files: int = 4096  # in its folder, subfolders included


class Ran(NamedTuple):
    """How a run ended."""

    ended: Literal["exit", "time", "memory"]  # memory: of processes, sockets or files
    status: int  # exit status; below 0: the signal that killed it
    out: str
    err: str
    value: bytes = b""  # what it wrote to descriptor 3

    @property
    def good(self) -> bool:
        return self.ended == "exit" and self.status == 0


# Sets the limits inside the new process, then executes the program: prlimit(1) may be absent, and a
# function that runs between fork and exec is unsafe in a parent with threads.  Descriptor 3 takes
# the value; a quiet run's output is dropped.
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
    """Runs commands in a sandbox, or with resource limits alone."""

    bwrap: str | None  # path of bubblewrap; None: no sandbox
    python: str  # an interpreter that a run can execute

    @classmethod
    def find(cls, allow_unsandboxed: bool = False) -> "Sandbox":
        """A sandbox that was tested.  Raises InputError if none works, unless
        `allow_unsandboxed`."""
        python = _interpreter()
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            reason = "programs that a model writes are run in a sandbox, and bwrap is not on PATH"
        else:
            sandbox = cls(bwrap, python)
            trial = sandbox.run([python, "-I", "try.py"], {"try.py": "print('works')"})
            if trial.out == "works\n":
                return sandbox
            error = " ".join((trial.err or f"{trial.ended}, status {trial.status}").split())
            reason = f"the sandbox {bwrap} does not work here ({error:.200})"
        if allow_unsandboxed:
            return cls(None, python)
        raise InputError(
            f"{reason}: install bubblewrap (Debian: apt-get install bubblewrap) on a machine that "
            "lets users make namespaces, or pass --allow_unsandboxed_code where the machine itself "
            "may be lost"
        )

    def which(self, tool: str) -> str | None:
        """Path of a program of the system, as a run sees it; None: it is not installed."""
        return shutil.which(tool, path=SYSTEM_PATH if self.bwrap else None)

    def run(
        self,
        command: Sequence[str],
        files: Mapping[str, str | bytes],
        limits: Limits = Limits(),
        quiet: bool = False,
    ) -> Ran:
        """Run a command in a folder with these files.  `quiet`: drop its standard output."""
        # Output goes to files, so that the limit on files bounds it too.
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="miron-box-")))
            out, err, value, rules = (
                stack.enter_context(tempfile.TemporaryFile()) for _ in range(4)
            )
            _write_files(folder, files)
            rules.write(box_filter() if self.bwrap else b"")
            rules.seek(0)
            isolation = self._isolation(files, folder, limits, rules.fileno())
            home = FOLDER if self.bwrap else str(folder)
            switch, user = _user_switch(folder)
            process = subprocess.Popen(
                [*switch, *isolation, *self._launcher(limits, value.fileno(), quiet), *command],
                cwd=folder,
                env={
                    "PATH": SYSTEM_PATH if self.bwrap else os.environ.get("PATH", ""),
                    "HOME": home,
                    "TMPDIR": home,
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=(rules.fileno(), value.fileno()),
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
            try:
                ended = _watch(process, limits, boxed=self.bwrap is not None)
            finally:
                # A sandbox ends with its first process; without one, processes that the command has
                # started go on.
                if process.returncode is None or not self.bwrap:
                    _kill(process)
            status = process.wait()
            out_text, err_text = (
                _read_start(file, READ_BYTES).decode("utf-8", "replace") for file in (out, err)
            )
            return Ran(ended, status, out_text, err_text, _read_start(value, limits.output_bytes))

    def _launcher(self, limits: Limits, value: int, quiet: bool) -> list[str]:
        """The interpreter that sets the limits and executes the command after it.  `value`:
        descriptor that takes values."""
        # Without namespaces the kernel counts all threads of the user, those of this process
        # included.
        processes = limits.processes + (0 if self.bwrap else _threads_of_user())
        memory = (limits.memory_bytes, limits.memory_bytes + RESERVED_BYTES)
        numbers = (
            value,
            int(quiet),
            *memory,
            processes,
            limits.output_bytes,
            int(limits.seconds) + 1,
        )
        return [self.python, "-I", "-S", "-c", _LAUNCHER, *map(str, numbers)]

    def _isolation(
        self, files: Mapping[str, object], folder: Path, limits: Limits, rules: int
    ) -> list[str]:
        """Bubblewrap with its arguments; [] without a sandbox.  `rules`: descriptor of the seccomp
        filter."""
        if self.bwrap is None:
            return []
        mounts = []
        for path in _SYSTEM:
            if Path(path).is_symlink():
                mounts += ["--symlink", os.readlink(path), path]
            elif Path(path).exists():
                mounts += ["--ro-bind", path, path]
        prefix = str(Path(self.python).parent.parent)
        if not prefix.startswith("/usr"):
            mounts += ["--ro-bind", prefix, prefix]
        mounts += [*_DEVICES, "--size", str(limits.folder_bytes), "--tmpfs", FOLDER]
        for name in files:
            mounts += ["--ro-bind", str(folder / name), f"{FOLDER}/{name}"]
        return [
            self.bwrap,
            *_ISOLATION,
            "--seccomp",
            str(rules),
            *mounts,
            "--chdir",
            FOLDER,
            "--remount-ro",
            "/",
        ]


def _user_switch(folder: Path) -> tuple[list[str], int | None]:
    """How root runs a command as NOBODY, who then owns `folder`: by a command before it, or else by
    Popen's `user`.

    Popen would fork, which copies the page tables of this process, and it holds a model; setpriv
    (util-linux) avoids this.
    """
    if os.geteuid() != 0:
        return [], None
    os.chown(folder, NOBODY, NOBODY)
    setpriv = shutil.which("setpriv", path=SYSTEM_PATH)
    if not setpriv:
        return [], NOBODY
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"], None


def _interpreter() -> str:
    """This Python, or the system's if the user that runs programs cannot reach this one."""
    this_python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    for path in (this_python, Path("/usr/bin/python3"), Path("/usr/local/bin/python3")):
        if path.exists() and (
            os.geteuid() != 0
            or all(p.stat().st_mode & stat.S_IXOTH for p in path.resolve().parents)
        ):
            return str(path)
    raise InputError(
        "programs that a model writes run as a user without rights, who cannot reach "
        f"{this_python}: install python3 under /usr, or run as another user than root"
    )


def _read_start(stream: IO[bytes], num_bytes: int) -> bytes:
    """At most `num_bytes` from the stream's start."""
    stream.seek(0)
    return stream.read(num_bytes)


def _threads_of_user() -> int:
    """Threads that the user of runs already has."""
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    total = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == user:
                total += process.num_threads()
    return total


def _write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        if isinstance(content, str):
            content = content.encode("utf-8", "replace")
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644)  # whatever the umask is: another user reads it


def _watch(
    process: subprocess.Popen[bytes], limits: Limits, boxed: bool
) -> Literal["exit", "time", "memory"]:
    """Wait until the process ends or exceeds a limit that no rlimit enforces: time, or memory of
    the whole tree."""
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
    """A process and its descendants; [] once it has ended."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _memory(process: psutil.Process) -> int:
    """Bytes of a process: resident memory, page tables, and what its sockets can hold; 0 of what
    has ended meanwhile."""
    total = 0
    folder = Path("/proc") / str(process.pid)
    with suppress(psutil.Error):
        total += process.memory_info().rss
    with suppress(OSError):
        tables = re.search(rb"VmPTE:\s*(\d+) kB", (folder / "status").read_bytes())
        total += int(tables[1]) << 10 if tables else 0
    with suppress(OSError):
        total += SOCKET_BYTES * sum(
            _is_socket(folder / "fd" / name) for name in os.listdir(folder / "fd")
        )
    return total


def _is_socket(path: Path) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except OSError:  # closed meanwhile
        return False


def _folder_of(pid: int) -> tuple[int, int]:
    """Number and bytes of files in a sandbox's folder, by a process inside it; zeros before the
    folder exists."""
    try:
        folder = os.statvfs(f"/proc/{pid}/root{FOLDER}")
    except OSError:
        return 0, 0
    return folder.f_files - folder.f_ffree, (folder.f_blocks - folder.f_bfree) * folder.f_frsize


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group and all descendants; in a sandbox its init ends too, and with it every
    process."""
    tree = _tree(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in tree:
        with suppress(psutil.Error):
            child.kill()
    process.wait()
