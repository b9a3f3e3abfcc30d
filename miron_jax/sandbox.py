"""Runs a program that a model wrote, where it can do no harm.

Arrives: files and a command.  Leaves: `Ran`.  It deliberately does not know benchmarks or languages.

Each run is a new process tree in namespaces of its own (bubblewrap): no network, no other process in sight, the system's
programs read-only, nothing else of the disk, one empty folder in memory that goes when it ends, a user without rights.
Limits on processor time, memory, processes, open files and output hold inside; a clock and a watch over the tree's memory
stand outside, and kill it whole.  `--allow_unsandboxed_code` runs the same with the limits alone, for machines whose own
container is the sandbox.
"""

import os
import platform
import shutil
import signal
import stat
import struct
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

NOBODY = 65534  # user and group that own nothing
WATCH_SECONDS = 0.02  # between two looks at a run
READ_BYTES = 1 << 20  # of what a run printed
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


class Ran(NamedTuple):
    """How a run ended."""

    ended: Literal["exit", "time", "memory"]
    status: int  # exit status; below 0: the signal that killed it
    out: str
    err: str

    @property
    def good(self) -> bool:
        return self.ended == "exit" and self.status == 0


# Sets the limits from the inside, then becomes the program: prlimit(1) may be absent, and a fork hook of the parent's
# would run beside its threads.
_LAUNCHER = """
import os, resource, sys
data, processes, output, seconds = map(int, sys.argv[1:5])
for name, value in (("DATA", data), ("NPROC", processes), ("FSIZE", output), ("CPU", seconds), ("NOFILE", 256), ("CORE", 0)):
    kind = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
os.execvp(sys.argv[5], sys.argv[5:])
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

    def run(self, command: Sequence[str], files: Mapping[str, str], limits: Limits = Limits(), stdin: str = "") -> Ran:
        """Run a command among these files, in their folder."""
        somebody = NOBODY if os.geteuid() == 0 else None  # root hands the run to a user that owns nothing
        with (
            tempfile.TemporaryDirectory(prefix="miron-box-") as folder,
            # What a run prints goes to files, so that the limit on files bounds it too.
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            tempfile.TemporaryFile() as rules,
        ):
            for name, text in files.items():
                (Path(folder) / name).write_bytes(text.encode("utf-8", "replace"))
                (Path(folder) / name).chmod(0o644)  # whatever the umask: another user reads it
            if somebody is not None:
                os.chown(folder, somebody, somebody)
            given.write(stdin.encode("utf-8", "replace"))
            given.seek(0)
            rules.write(_system_calls() if self.bwrap else b"")
            rules.seek(0)
            home = FOLDER if self.bwrap else folder
            process = subprocess.Popen(
                self._launch(command, files, Path(folder), limits, rules.fileno()),
                cwd=folder,
                env={"PATH": SYSTEM_PATH if self.bwrap else os.environ.get("PATH", ""), "HOME": home, "TMPDIR": home},
                stdin=given,
                stdout=out,
                stderr=err,
                pass_fds=(rules.fileno(),),
                start_new_session=True,
                user=somebody,
                group=somebody,
                extra_groups=None if somebody is None else [],
            )
            try:
                ended = _watch(process, limits)
            finally:
                _kill(process)
            texts = [_start_of(stream) for stream in (out, err)]
            return Ran(ended, process.returncode, *texts)

    def _launch(
        self, command: Sequence[str], files: Mapping[str, str], folder: Path, limits: Limits, rules: int
    ) -> list[str]:
        # Without namespaces the kernel counts all threads of the user, this process's own among them.
        processes = limits.processes + (0 if self.bwrap else _threads_of_user())
        numbers = (limits.memory_bytes, processes, limits.output_bytes, int(limits.seconds) + 1)
        inside = [self.python, "-I", "-c", _LAUNCHER, *map(str, numbers), *command]
        return [*self._walls(files, folder, limits, rules), *inside] if self.bwrap else inside

    def _walls(self, files: Mapping[str, str], folder: Path, limits: Limits, rules: int) -> list[str]:
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
        walls += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
        walls += ["--size", str(limits.folder_bytes), "--tmpfs", FOLDER]
        for name in files:
            walls += ["--ro-bind", str(folder / name), f"{FOLDER}/{name}"]
        return [*walls, "--chdir", FOLDER, "--remount-ro", "/"]


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


def _start_of(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(READ_BYTES).decode("utf-8", "replace")


def _threads_of_user() -> int:
    """Threads that the run's user has already."""
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    total = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == user:
                total += process.num_threads()
    return total


# System calls that take memory which no limit counts, or make namespaces and mounts, by machine: numbers of shmget,
# memfd_create, memfd_secret, mount, fsopen, unshare, setns, pivot_root, ptrace, bpf, userfaultfd, io_uring_setup.
_REFUSED = {
    "x86_64": (0xC000003E, (29, 319, 447, 165, 430, 272, 308, 155, 101, 321, 323, 425)),
    "aarch64": (0xC00000B7, (194, 279, 447, 40, 430, 97, 268, 41, 117, 280, 282, 425)),
}


def _system_calls() -> bytes:
    """A seccomp filter: these calls fail with EPERM, calls of another architecture kill.

    Classic BPF, 8 bytes an instruction (code, jump if true, jump if false, operand; linux/filter.h).  seccomp_data holds
    the call's number at byte 0 and the architecture at byte 4.
    """
    machine = platform.machine()
    if machine not in _REFUSED:
        raise InputError(
            f"the sandbox knows no system calls of a {machine}, expected {' or '.join(_REFUSED)}: run the tasks there, or "
            "leave them out"
        )
    audit, numbers = _REFUSED[machine]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050001, 0x80000000  # refuse: SECCOMP_RET_ERRNO with EPERM
    program = [(load, 0, 0, 4), (equal, 1, 0, audit), (answer, 0, 0, kill), (load, 0, 0, 0)]
    program += [(at_least, 0, 1, 0x40000000), (answer, 0, 0, kill)]  # x86's other numbering
    for number in numbers:
        program += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    return b"".join(struct.pack("=HBBI", *own) for own in [*program, (answer, 0, 0, allow)])


def _watch(process: subprocess.Popen[bytes], limits: Limits) -> Literal["exit", "time", "memory"]:
    """Wait for the end, or for a limit that no rlimit holds: the clock, and the memory of all processes together."""
    end = time.monotonic() + limits.seconds
    while True:
        try:
            process.wait(WATCH_SECONDS)
            return "exit"
        except subprocess.TimeoutExpired:
            pass
        if time.monotonic() > end:
            return "time"
        if _memory(process.pid) > limits.memory_bytes:
            return "memory"


def _tree(pid: int) -> list[psutil.Process]:
    """A process and all below it; nothing once it has ended."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _memory(pid: int) -> int:
    """Resident bytes of a process and all below it."""
    total = 0
    for process in _tree(pid):
        with suppress(psutil.Error):  # it has ended meanwhile
            total += process.memory_info().rss
    return total


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Everything that the run started: the process group, and in a sandbox, whose init goes with it, every process."""
    tree = _tree(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in tree:
        with suppress(psutil.Error):
            child.kill()
    process.wait()
