"""Runs programs that a model wrote in a sandbox.

Arrives: files and a command.  Leaves: `Ran`.  It deliberately does not know benchmarks or
languages.

Each run is a new process tree in separate namespaces (bubblewrap).  It has no network, sees no
other process, reads its interpreter or compiler and nothing else of the disk (mounts.py),
writes to one folder in memory, and belongs to a user without rights.  Resource limits hold inside:
processor time, memory, processes, open files, output.  A seccomp filter allows the system calls of
ordinary programs (system_calls.py).  A control group counts and bounds memory and processes, where
one can be made (group.py).  From outside, a watch says when the tree exceeds its time or
output (watch.py), or its memory if there is no group (memory.py), and all of it is killed.  With
`--allow_unsandboxed_code` only the limits, the group and the watch remain, for machines whose
container is the sandbox.

Bubblewrap says over a pipe that the box is made and its command was executed; without a box the
launcher says so.  A failure before that is the machine's: it is tried again after a pause, and then
the run ended as "not started".
"""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.regular import read_text
from miron_jax.runtime.processors import usable_processors
from miron_jax.runtime.sandbox.folder import run_folder
from miron_jax.runtime.sandbox.group import BoxGroup, BoxGroups, GroupLimits, Reason, find_groups
from miron_jax.runtime.sandbox.limits import FOLDER, Limits
from miron_jax.runtime.sandbox.mounts import SYSTEM_PATH, mounts
from miron_jax.runtime.sandbox.processes import SUPERVISOR, adopted_strays, kill, reap
from miron_jax.runtime.sandbox.system_calls import box_filter
from miron_jax.runtime.sandbox.user import (
    NOBODY,
    counts_by_namespace,
    interpreter,
    threads_of_user,
    user_switch,
)
from miron_jax.runtime.sandbox.watch import Channel, Channels, Ended, Watched, watch

HEADER_BYTES = 32  # of the value of one of several rounds
ERR_BYTES = 1 << 20  # of standard error; what follows is dropped
# seconds between two attempts to start a program
START_PAUSES = (0.1, 0.5, 2.0)
# addresses that a process may reserve beyond the memory limit: V8 starts with 0.7 GB, and takes 10
# GB for each WebAssembly.Memory
RESERVED_BYTES = 64 << 30
BWRAP_PROCESSES = 2  # of bubblewrap: one outside of the box, and its init
UNBOUNDED = 1 << 20  # processes, where a group bounds them
# Bubblewrap's arguments that are the same for every run.
_ISOLATION = (
    "--unshare-all --unshare-user --die-with-parent --new-session --cap-drop ALL --disable-userns "
    f"--hostname box --uid {NOBODY} --gid {NOBODY}"
).split()
# Semaphores and shared memory of POSIX are files of /dev/shm, so that the folder lies there too:
# one file system, of one size, holds all that a program writes.
_MEMORY = "/dev/shm"
_DEVICES = (
    "--proc", "/proc", "--dev-bind", "/dev/null", "/dev/null",
    "--dev-bind", "/dev/random", "/dev/random", "--dev-bind", "/dev/urandom", "/dev/urandom",
    "--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin",
    "--symlink", "/proc/self/fd/1", "/dev/stdout", "--symlink", "/proc/self/fd/2", "/dev/stderr",
)  # fmt: skip
_LANGUAGES = {"node": "javascript", "g++": "c++"}  # of commands; a compiled program is C++

NoSandbox = Literal["absent", "old", "denied", "unusable"]
# what bubblewrap says, and the kernel through it
_REFUSALS: dict[NoSandbox, tuple[str, ...]] = {
    "old": ("Unknown option",),
    "denied": ("not permitted", "ermission", "/proc/sys/user/max_"),
}


class Ran(NamedTuple):
    """How a run ended."""

    ended: Ended
    status: int  # exit status; below 0: the signal that killed it
    out: str
    err: str  # if it did not start: the reason
    value: bytes = b""  # what it wrote to descriptor 3
    # it ran out of time for want of a processor
    is_starved: bool = False

    @property
    def good(self) -> bool:
        return self.ended == "exit" and self.status == 0


# Sets the limits inside the new process, then executes the program: prlimit(1) may be absent, and a
# function that runs between fork and exec is unsafe in a parent with threads.  Descriptor 3 takes
# the value; a quiet run's output is dropped.  `started` gets "s" before the program is executed and
# "x" with the reason if that fails; executing closes it, so that the program cannot write there.
_LAUNCHER = """
import os, resource, sys
value, started, quiet, *limits = map(int, sys.argv[1:9])
if started == 3:
    started = os.dup(started)
os.dup2(value, 3)
os.set_inheritable(started, False)
if quiet:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.closerange(4, started)
os.closerange(started + 1, 1 << 16)
names = "DATA", "AS", "NPROC", "FSIZE", "CPU", "NOFILE", "CORE", "MSGQUEUE", "MEMLOCK", "SIGPENDING"
for name, value in zip(names, (*limits, 1024, 0, 0, 0, 1024)):
    kind = getattr(resource, "RLIMIT_" + name, None)
    if kind is not None:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
try:  # where memory is short, the kernel ends programs and not their judge
    score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(score, b"1000")
    os.close(score)
except OSError:
    pass
os.write(started, b"s")
try:
    os.execvp(sys.argv[9], sys.argv[9:])
except OSError as error:
    os.write(started, b"x" + str(error).encode())
    os._exit(127)
"""

# The same in a box, by a shell, which starts ten times as fast.  The value's pipe arrives as
# standard input.  A limit above the machine's changes nothing; some shells call the number of
# processes -p.  What bubblewrap itself says takes the place of `started`.
_BOX_LAUNCHER = read_text(Path(__file__).with_name("box_launcher.sh"))


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Runs commands in a sandbox, or with resource limits alone."""

    bwrap: str | None  # path of bubblewrap; None: no sandbox
    python: str  # an interpreter that a run can execute
    # The clock of a run stops while it waits for a processor, until this many times its limit of
    # wall time are over.
    patience: float = 2.0
    groups: BoxGroups | Reason = "absent"  # or why no control groups can be made
    no_sandbox: NoSandbox | Literal[""] = ""  # why bubblewrap cannot be used; "": it is

    @classmethod
    def find(cls, allow_unsandboxed: bool = False) -> "Sandbox":
        """A sandbox that was tested.  Raises InputError if none works, unless
        `allow_unsandboxed`."""
        python = interpreter()
        bwrap = shutil.which("bwrap")
        word: NoSandbox = "absent"
        if bwrap is None:
            reason = "programs that a model writes are run in a sandbox, and bwrap is not on PATH"
        else:
            try:
                sandbox = cls(bwrap, python)._with_groups()
                trial = sandbox._trial()
                if trial.out == "works\n":
                    return sandbox
                error = " ".join((trial.err or f"{trial.ended}, status {trial.status}").split())
            except InputError as refusal:  # a tool that says what a box needs
                error = str(refusal)
            reason = f"the sandbox {bwrap} does not work here ({error:.200})"
            word = _refusal_in(error)
        if allow_unsandboxed:
            return cls(None, python, no_sandbox=word)._with_groups()
        raise InputError(
            f"{reason}: install bubblewrap (Debian: apt-get install bubblewrap) on a machine that "
            "lets users make namespaces, or pass --allow_unsandboxed_code where the machine itself "
            "may be lost"
        )

    @property
    def bounded_by(self) -> Literal["cgroup", "watch"]:
        """What counts memory: the kernel, or looks from outside."""
        return "cgroup" if isinstance(self.groups, BoxGroups) else "watch"

    @property
    def no_cgroup(self) -> str:
        """Why no control group can be made, in one word; "" where one is."""
        return self.groups if isinstance(self.groups, str) else ""

    def _with_groups(self) -> "Sandbox":
        """This sandbox with control groups, if a program runs in one."""
        groups = find_groups()
        sandbox = replace(self, groups=groups)
        if isinstance(groups, str) or sandbox._trial().ended != "not started":
            return sandbox
        return replace(self, groups="unusable")

    def _trial(self) -> Ran:
        return self.run([self.python, "-I", "try.py"], {"try.py": "print('works')"})

    def which(self, tool: str) -> str | None:
        """Path of a program of the system, as a run sees it; None: it is not installed."""
        return shutil.which(tool, path=SYSTEM_PATH if self.bwrap else None)

    def run(
        self,
        command: Sequence[str],
        files: Mapping[str, str | bytes],
        limits: Limits = Limits(),  # noqa: B008 - frozen
        quiet: bool = False,
        shown: str = "",
    ) -> Ran:
        """Run a command in a folder with these files.  `quiet`: drop its standard output; `shown`:
        a tool whose files the box shows, if it is not the command itself."""
        wanted = _Wanted(command, files, limits, quiet, shown or command[0])
        for pause in START_PAUSES:
            ran = self._run_once(wanted)
            if ran.ended != "not started":
                return ran
            time.sleep(pause)
        return self._run_once(wanted)

    def _run_once(self, wanted: "_Wanted") -> Ran:
        with ExitStack() as stack:
            channels = _channels(wanted.limits, stack)
            stack.enter_context(adopted_strays())
            try:
                if self.bwrap:
                    launch = self._prepare_box(wanted, channels, stack)
                else:
                    launch = self._prepare_bare(wanted, channels, stack)
                group = self._group(wanted.limits)
                if group:
                    stack.enter_context(group)
                process = _start(launch, channels, group)
            except OSError as error:  # no group, no process, or no memory for one
                return Ran("not started", 0, "", str(error))
            for channel in channels:
                channel.close_write_end()
            try:
                limits = wanted.limits
                watched = watch(process, limits, channels, launch.gate, self.patience, group)
            finally:
                _end(process, channels, group)
            return _ran(watched, channels, process.wait())

    def _prepare_box(self, wanted: "_Wanted", channels: Channels, stack: ExitStack) -> "_Launch":
        """In a box, bubblewrap copies files out of memory into the folder."""
        is_counted = isinstance(self.groups, BoxGroups)
        rules = _memory_file(box_filter(self._language(wanted.shown), is_counted), stack)
        files = {}
        for name, content in _encoded(wanted.files).items():
            files[name] = _memory_file(content, stack)
        gate = _gate(stack)
        status = channels.box.write_end
        switch, user = user_switch(None)
        isolation = self._isolation(wanted, files, rules, status, gate)
        return _Launch(
            [*switch, *isolation, *self._box_launcher(wanted), *wanted.command],
            folder="/",
            home=FOLDER,
            path=SYSTEM_PATH,
            stdin=channels.value.write_end,
            inherited=(rules, status, gate, *files.values()),
            gate=gate,
            user=user,
        )

    def _prepare_bare(self, wanted: "_Wanted", channels: Channels, stack: ExitStack) -> "_Launch":
        """Without a box, a program runs in a folder of the host, below a supervisor."""
        folder = stack.enter_context(run_folder())
        for name, content in _encoded(wanted.files).items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o755)  # whatever the umask is: another user reads it
        switch, user = user_switch(folder)
        launcher = [*switch, *self._bare_launcher(wanted, channels), *wanted.command]
        return _Launch(
            [self.python, "-I", "-S", "-c", SUPERVISOR, *launcher],
            folder=str(folder),
            home=str(folder),
            path=os.environ.get("PATH", ""),
            stdin=subprocess.DEVNULL,
            inherited=(channels.value.write_end, channels.started.write_end),
            gate=None,
            user=user,
        )

    def _group(self, limits: Limits) -> BoxGroup | None:
        """A control group for one run; None: none can be made here.  Raises OSError if the system
        has no room for another one."""
        if isinstance(self.groups, str):
            return None
        processes = limits.processes + (BWRAP_PROCESSES if self.bwrap else 1)  # the supervisor
        processors = max(1.0, limits.cpu_seconds / limits.seconds)
        return self.groups.make(GroupLimits(limits.memory_bytes, processes, processors))

    def _box_launcher(self, wanted: "_Wanted") -> list[str]:
        """A shell that sets the limits and executes the command after it."""
        limits = wanted.limits
        processes = limits.processes
        if isinstance(self.groups, BoxGroups):
            processes = UNBOUNDED
        elif not counts_by_namespace():
            processes = processes * usable_processors() + threads_of_user()
        kilobytes = (limits.memory_bytes >> 10, (limits.memory_bytes + RESERVED_BYTES) >> 10)
        blocks = limits.folder_bytes >> 9
        numbers = (int(wanted.quiet), *kilobytes, processes, blocks, _seconds_of_one(limits))
        return ["sh", "-c", _BOX_LAUNCHER, "sh", *map(str, numbers)]

    def _bare_launcher(self, wanted: "_Wanted", channels: Channels) -> list[str]:
        """The same by an interpreter.  The kernel counts all threads of the user, those of this
        process included."""
        limits = wanted.limits
        processes = UNBOUNDED
        if isinstance(self.groups, str):
            processes = limits.processes + threads_of_user()
        pipes = (channels.value.write_end, channels.started.write_end)
        bytes_of_memory = (limits.memory_bytes, limits.memory_bytes + RESERVED_BYTES)
        most = (*bytes_of_memory, processes, limits.folder_bytes, _seconds_of_one(limits))
        numbers = (*pipes, int(wanted.quiet), *most)
        return [self.python, "-I", "-S", "-c", _LAUNCHER, *map(str, numbers)]

    def _language(self, shown: str) -> str:
        """The language whose system calls a command may make."""
        return "python" if shown == self.python else _LANGUAGES.get(shown, "c++")

    def _isolation(
        self, wanted: "_Wanted", files: Mapping[str, int], rules: int, status: int, gate: int
    ) -> list[str]:
        """Bubblewrap with its arguments.  `files`: descriptors of what is copied into the folder;
        `rules`: descriptor of the seccomp filter; `status`: descriptor that takes the number of the
        box's first process and the exit status; `gate`: one byte is read from it once the box is
        made."""
        assert self.bwrap
        folder = f"{_MEMORY}/{Path(FOLDER).name}"
        inside = ["--size", str(wanted.limits.folder_bytes), "--tmpfs", _MEMORY, "--dir", folder]
        # relative, so that the watch can follow it from outside
        inside += ["--symlink", folder.removeprefix("/"), FOLDER]
        for name, descriptor in files.items():
            inside += ["--perms", "0755", "--file", str(descriptor), f"{folder}/{name}"]
        return [
            self.bwrap,
            *_ISOLATION,
            "--seccomp",
            str(rules),
            "--json-status-fd",
            str(status),
            "--block-fd",
            str(gate),
            *mounts(wanted.shown, "sh"),
            *_DEVICES,
            *inside,
            "--chdir",
            FOLDER,
            "--remount-ro",
            "/",
        ]


class _Wanted(NamedTuple):
    """What a run is asked for."""

    command: Sequence[str]
    files: Mapping[str, str | bytes]
    limits: Limits
    quiet: bool  # drop its standard output
    shown: str  # tool whose files the box shows


class _Launch(NamedTuple):
    """How a run is started."""

    command: list[str]
    folder: str  # in which its first process starts
    home: str  # its folder, as it sees it
    path: str
    stdin: int
    inherited: tuple[int, ...]  # descriptors
    gate: int | None  # the pipe whose one byte is taken once the box is made; None: no box
    user: int | None  # who starts it; None: this user


def _channels(limits: Limits, stack: ExitStack) -> Channels:
    value_bytes = limits.rounds * (limits.output_bytes + HEADER_BYTES)
    most = (1 << 12, 1 << 12, limits.output_bytes, ERR_BYTES, value_bytes)
    return Channels(*(stack.enter_context(Channel(num_bytes)) for num_bytes in most))


def _start(launch: _Launch, channels: Channels, group: BoxGroup | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        group.joined(launch.command) if group else launch.command,
        cwd=launch.folder,
        env={"PATH": launch.path, "HOME": launch.home, "TMPDIR": launch.home},
        stdin=launch.stdin,
        stdout=channels.out.write_end,
        stderr=channels.err.write_end,
        pass_fds=launch.inherited,
        start_new_session=True,
        user=launch.user,
        group=launch.user,
        extra_groups=None if launch.user is None else [],
    )


def _end(process: subprocess.Popen[bytes], channels: Channels, group: BoxGroup | None) -> None:
    """Kill what is left of a run, and read what it has written."""
    if group:
        group.kill()
    if process.returncode is None:
        kill(process)
    reap(channels.init)
    for channel in channels:
        channel.take()


def _refusal_in(error: str) -> NoSandbox:
    """One word for what a sandbox that does not work has said."""
    for word, signs in _REFUSALS.items():
        if any(sign in error for sign in signs):
            return word
    return "unusable"


def _gate(stack: ExitStack) -> int:
    """The read end of a pipe that holds one byte."""
    read_end, write_end = os.pipe()
    stack.callback(os.close, read_end)
    os.write(write_end, b"x")
    os.close(write_end)
    return read_end


def _ran(watched: Watched, channels: Channels, status: int) -> Ran:
    ended = watched.ended
    err = channels.err.text
    if ended == "exit" and (channels.out.is_over or channels.value.is_over):
        ended = "output"
    if ended == "not started":
        said = bytes(channels.started.kept[2:]).decode("utf-8", "replace")
        err = watched.why or said or err.strip() or f"its launcher ended with status {status}"
    value = bytes(channels.value.kept)
    return Ran(ended, status, channels.out.text, err, value, watched.is_starved)


def _encoded(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {
        name: content.encode("utf-8", "replace") if isinstance(content, str) else content
        for name, content in files.items()
    }


def _memory_file(content: bytes, stack: ExitStack) -> int:
    """A descriptor from which this is read once."""
    descriptor = os.memfd_create("miron-box")
    stack.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _seconds_of_one(limits: Limits) -> int:
    """Of processor time of one process; the watch ends the tree before."""
    return int(limits.cpu_seconds) + 2
