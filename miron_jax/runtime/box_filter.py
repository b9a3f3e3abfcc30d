"""A seccomp filter of the system calls that a sandboxed program may not make.

Arrives: nothing.  Leaves: bytes that bubblewrap's --seccomp reads.  It deliberately does not know
the program.

A refused call fails with EPERM; a call of another architecture kills the process.  The filter
refuses calls that take memory which no limit counts, that see or change another process or the
user's keys, and that make namespaces, mounts, or sockets which leave the sandbox's network.
"""

import platform
import socket
import struct
from typing import NamedTuple

from miron_jax.errors import InputError

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*, linux/audit.h

# Numbers of system calls on x86_64 and aarch64.
_REFUSED = {
    # Kernel memory or shared memory, which no limit of a process counts.
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    # Namespaces and mounts.
    "mount": (165, 40),
    "fsopen": (430, 430),
    "unshare": (272, 97),
    "setns": (308, 268),
    "pivot_root": (155, 41),
    # Other processes and their state in the kernel.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "perf_event_open": (298, 241),
    # Keyrings belong to the session that started the run, in every namespace.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}


class _ArgumentRule(NamedTuple):
    """A call that depends on one argument: it is refused if ((argument & mask) == value) ==
    refused."""

    numbers: tuple[int, int]
    argument: int  # its index
    mask: int
    value: int
    refused: bool


# MAP_SHARED, MAP_ANONYMOUS: such pages stay when their mapping is emptied or forked
_SHARED_ANONYMOUS = 0x01 | 0x20
_RULES = (
    _ArgumentRule((9, 222), 3, _SHARED_ANONYMOUS, _SHARED_ANONYMOUS, True),  # mmap
    # Unix sockets only: namespaces do not confine vsock and others, and TCP buffers grow beyond any
    # count.
    _ArgumentRule((41, 198), 0, 0xFFFFFFFF, socket.AF_UNIX, False),  # socket
    _ArgumentRule((53, 199), 0, 0xFFFFFFFF, socket.AF_UNIX, False),  # socketpair
    # SO_SNDBUF 7 and SO_RCVBUF 8: a socket keeps the kernel's default size, which _memory in
    # sandbox.py counts.
    _ArgumentRule((54, 208), 2, 0xFFFFFFFF, 7, True),  # setsockopt
    _ArgumentRule((54, 208), 2, 0xFFFFFFFF, 8, True),
)

# Classic BPF (linux/filter.h): codes of instructions, and return values of a filter.
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # refuse: SECCOMP_RET_ERRNO with EPERM
# byte offsets in seccomp_data; an argument has 8 bytes, the low half first
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16


def box_filter() -> bytes:
    """The filter for this machine; an instruction has 8 bytes: code, jump if true, jump if false,
    operand.

    Raises InputError on a machine whose system call numbers are not known.
    """
    machine = platform.machine()
    if machine not in _AUDIT:
        raise InputError(
            f"the sandbox knows no system calls of a {machine}, expected {' or '.join(_AUDIT)}: "
            "run the tasks there, or leave them out"
        )
    column = list(_AUDIT).index(machine)
    program = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    program += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]  # x86's other numbering
    for numbers in _REFUSED.values():
        program += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _REFUSE)]
    for rule in _RULES:
        otherwise = (0, 1) if rule.refused else (1, 0)
        program += [
            (_EQUAL, 0, 5, rule.numbers[column]),
            (_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument),
            (_AND, 0, 0, rule.mask),
            (_EQUAL, *otherwise, rule.value),
            (_RETURN, 0, 0, _REFUSE),
            (_LOAD, 0, 0, _NUMBER),
        ]
    return b"".join(
        struct.pack("=HBBI", *instruction) for instruction in [*program, (_RETURN, 0, 0, _ALLOW)]
    )
