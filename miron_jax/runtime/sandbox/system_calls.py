"""A seccomp filter of the system calls that a program in a box may make, by language.

Arrives: a language.  Leaves: bytes that bubblewrap's --seccomp reads.  It deliberately does not
know the program.

Everything that is not listed is refused.  The list has what the published solutions and ordinary
programs (threads, processes, files, SQLite, asyncio, timers) call under strace, and what glibc,
musl, CPython, libstdc++ and V8 call in its place in other versions.  Not on it are calls that take
memory which no limit counts (inotify, AIO, io_uring, Landlock, System V, memfd), that see or change
another process, the user's keys or the machine, and that make namespaces, mounts or network
sockets.

A refused call fails with EPERM, and with ENOSYS if Linux has it only since 5.1: programs fall back
from it as on an older kernel, and glibc does from clone3, whose flags no filter can read.  A call
of another architecture kills the process.
"""

import errno
import functools
import platform
import re
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.regular import read_text

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*, linux/audit.h

# Sections of system_calls.txt whose calls a language's programs may make.
_CALLS = {
    "c++": ("every language",),
    "python": ("every language", "events"),
    "javascript": ("every language", "events", "v8"),
}
_NEW = 424  # the first number of Linux 5.1, on both machines; larger ones are younger


class _Rule(NamedTuple):
    """What a call's argument must be: ((argument & mask) in values) == allowed."""

    argument: int  # its index
    mask: int
    values: tuple[int, ...]
    allowed: bool = True
    error: int = errno.EPERM  # the call's, if it is refused


_ALL = 0xFFFFFFFF
_NAMESPACES = 0x7E020000  # CLONE_NEW*
_SHARED_ANONYMOUS = 0x01 | 0x20  # MAP_SHARED, MAP_ANONYMOUS
_HUGE = 0x40000  # MAP_HUGETLB: a pool of the machine, which no process' memory shows
_KIND = 0o170000  # S_IFMT
# Unix streams: namespaces do not confine vsock and others, TCP buffers grow beyond any count, and a
# datagram stays with its receiver when its sender has closed.
_UNIX_STREAMS = (_Rule(0, _ALL, (socket.AF_UNIX,)), _Rule(1, 0xF, (socket.SOCK_STREAM,)))
_RULES = {
    "clone": (_Rule(0, _NAMESPACES, (0,)),),
    "mmap": (
        _Rule(3, _HUGE, (0,), error=errno.ENOMEM),
        # such pages stay when their mapping is emptied, where /proc does not show them
        _Rule(3, _SHARED_ANONYMOUS, (_SHARED_ANONYMOUS,), allowed=False),
    ),
    "madvise": (_Rule(2, _ALL, (12,), allowed=False, error=errno.EINVAL),),  # MADV_MERGEABLE
    # PDEATHSIG 1 and 2, GET_DUMPABLE, SET_NAME, GET_NAME, GET_SECCOMP, CAPBSET_READ, TIMERSLACK 29
    # and 30, NO_NEW_PRIVS 38 and 39, GET_TID_ADDRESS, THP_DISABLE 41 and 42, SET_VMA.  Not
    # SET_DUMPABLE: it hides a process from a watch that is not root.
    "prctl": (_Rule(0, _ALL, (1, 2, 3, 15, 16, 21, 23, 29, 30, 38, 39, 40, 41, 42, 0x53564D41)),),
    # descriptors, their flags, locks, owners, the size of a pipe; not F_SETPIPE_SZ, since a pipe
    # keeps the kernel's default size
    "fcntl": (_Rule(1, _ALL, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 36, 37, 38, 1030, 1032)),),
    # TCGETS, TCGETS2, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FICLONE
    "ioctl": (
        _Rule(
            1,
            _ALL,
            (0x5401, 0x802C542A, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x40049409),
            error=errno.ENOTTY,
        ),
    ),
    # other modes allocate beyond a file's end, where no limit of its size counts
    "fallocate": (_Rule(1, _ALL, (0,), error=errno.EOPNOTSUPP),),
    "mknod": (_Rule(1, _KIND, (0, 0o010000, 0o100000)),),  # files and FIFOs
    "mknodat": (_Rule(2, _KIND, (0, 0o010000, 0o100000)),),
    "socket": _UNIX_STREAMS,
    "socketpair": _UNIX_STREAMS,
    # REUSEADDR, KEEPALIVE, LINGER, PASSCRED, timeouts; not SNDBUF and RCVBUF: a socket keeps the
    # kernel's default size, which the watch counts
    "setsockopt": (_Rule(2, _ALL, (2, 9, 13, 16, 20, 21)),),
}

# Classic BPF (linux/filter.h): codes of instructions, and return values of a filter.
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000  # refuse: with an error number
# byte offsets in seccomp_data; an argument has 8 bytes, the low half first
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16
_OTHER_NUMBERING = 0x40000000  # x32, on x86_64

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def allowed_calls(language: str, machine: str) -> dict[str, int]:
    """Names and numbers of the calls that a language's programs may make on a machine."""
    column = 2 + list(_AUDIT).index(machine)
    text = read_text(Path(__file__).with_suffix(".txt"))
    calls = {}
    for section in text.split("\n[")[1:]:
        title, _, listed = section.partition("]")
        if title in _CALLS[language]:
            for call in re.finditer(r"(\w+) (\d+|-) (\d+|-)", listed):
                if call[column] != "-":
                    calls[call[1]] = int(call[column])
    return calls


@functools.cache
def box_filter(language: str, is_counted: bool = False, machine: str = "") -> bytes:
    """The filter of a language's programs on a machine, or on this one; an instruction has 8
    bytes.  `is_counted`: the kernel counts their memory, so they may share it.

    Raises InputError on a machine whose system call numbers are not known.
    """
    machine = machine or platform.machine()
    if machine not in _AUDIT:
        raise InputError(
            f"the sandbox knows no system calls of a {machine}, expected {' or '.join(_AUDIT)}: "
            "run the tasks there, or leave them out"
        )
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _OTHER_NUMBERING),
        (_RETURN, 0, 0, _KILL),
    ]
    names = {number: name for name, number in allowed_calls(language, machine).items()}
    rules = _RULES | ({"mmap": _RULES["mmap"][:1]} if is_counted else {})
    verdicts = [
        _verdict(names.get(number), number, rules) for number in range(max(*names, _NEW) + 2)
    ]
    last = len(verdicts) - 1
    for number, verdict in enumerate(verdicts):
        # neighbours with the same verdict share it; the last one is that of all larger numbers
        if number == last:
            program += verdict
        elif verdict != verdicts[number + 1]:
            program += [(_AT_LEAST, len(verdict), 0, number + 1), *verdict]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _verdict(
    name: str | None, number: int, rules: Mapping[str, tuple[_Rule, ...]]
) -> list[_Instruction]:
    """Instructions that end the filter for one call; None: it is not allowed."""
    if name is None:
        error = errno.ENOSYS if number >= _NEW else errno.EPERM
        return [(_RETURN, 0, 0, _REFUSE | error)]
    program = list[_Instruction]()
    for rule in rules.get(name, ()):
        program += [(_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument), (_AND, 0, 0, rule.mask)]
        num_values = len(rule.values)
        # a match jumps behind the refusal, or to it
        behind = int(rule.allowed)
        for i, value in enumerate(rule.values):
            program.append((_EQUAL, num_values - 1 - i + behind, 0, value))
        if not rule.allowed:
            program[-1] = (_EQUAL, 0, 1, rule.values[-1])
        program.append((_RETURN, 0, 0, _REFUSE | rule.error))
    return [*program, (_RETURN, 0, 0, _ALLOW)]
