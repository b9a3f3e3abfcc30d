"""The system calls that a boxed program may not make, as a seccomp filter.

Arrives: nothing.  Leaves: bytes that bubblewrap's --seccomp reads.  It deliberately does not know what is run.

A call that is refused fails with EPERM; one of another architecture kills.  Refused is what takes memory that no limit
counts, what sees or changes another process or the user's keys, and what makes namespaces, mounts or sockets that reach out
of the box's own network.
"""

import platform
import socket
import struct
from typing import NamedTuple

from miron_jax.errors import InputError

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*, linux/audit.h

# Numbers of x86_64 and of aarch64.
_REFUSED = {
    # Memory of the kernel, or shared memory, that no limit of a process holds.
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
    # Other processes, and what the kernel knows of them.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "perf_event_open": (298, 241),
    # Keyrings belong to the session that started the run, whatever its namespaces.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}


class _Rule(NamedTuple):
    """An argument that decides: the call is refused where (argument & mask) == value is `refused`."""

    numbers: tuple[int, int]
    argument: int  # from 0
    mask: int
    value: int
    refused: bool


_SHARED_ANONYMOUS = 0x01 | 0x20  # MAP_SHARED, MAP_ANONYMOUS: such pages stay when their mapping is emptied or forked
_RULES = (
    _Rule((9, 222), 3, _SHARED_ANONYMOUS, _SHARED_ANONYMOUS, True),  # mmap
    # Only sockets within the box: vsock and others see no namespace, and TCP buffers grow beyond any count.
    _Rule((41, 198), 0, 0xFFFFFFFF, socket.AF_UNIX, False),  # socket
    _Rule((53, 199), 0, 0xFFFFFFFF, socket.AF_UNIX, False),  # socketpair
    # SO_SNDBUF 7 and SO_RCVBUF 8: a socket keeps the kernel's size, which the watch counts.
    _Rule((54, 208), 2, 0xFFFFFFFF, 7, True),  # setsockopt
    _Rule((54, 208), 2, 0xFFFFFFFF, 8, True),
)

# Classic BPF (linux/filter.h): codes of instructions, and answers of a filter.
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANSWER = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # refuse: SECCOMP_RET_ERRNO with EPERM
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16  # byte offsets in seccomp_data; an argument has 8 bytes, the low half first


def box_filter() -> bytes:
    """The filter of this machine: 8 bytes an instruction (code, jump if true, jump if false, operand).

    Raises InputError on a machine whose numbers are not known.
    """
    machine = platform.machine()
    if machine not in _AUDIT:
        raise InputError(
            f"the sandbox knows no system calls of a {machine}, expected {' or '.join(_AUDIT)}: run the tasks there, or "
            "leave them out"
        )
    column = list(_AUDIT).index(machine)
    program = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, _AUDIT[machine]), (_ANSWER, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    program += [(_AT_LEAST, 0, 1, 0x40000000), (_ANSWER, 0, 0, _KILL)]  # x86's other numbering
    for numbers in _REFUSED.values():
        program += [(_EQUAL, 0, 1, numbers[column]), (_ANSWER, 0, 0, _REFUSE)]
    for rule in _RULES:
        otherwise = (0, 1) if rule.refused else (1, 0)
        program += [
            (_EQUAL, 0, 5, rule.numbers[column]),
            (_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument),
            (_AND, 0, 0, rule.mask),
            (_EQUAL, *otherwise, rule.value),
            (_ANSWER, 0, 0, _REFUSE),
            (_LOAD, 0, 0, _NUMBER),
        ]
    return b"".join(struct.pack("=HBBI", *own) for own in [*program, (_ANSWER, 0, 0, _ALLOW)])
