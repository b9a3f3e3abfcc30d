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
from typing import NamedTuple

from miron_jax.errors import InputError

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*, linux/audit.h

# Names of calls, with their numbers on x86_64 and aarch64; "-": it has none.
_EVERY_LANGUAGE = """
brk 12 214  mmap 9 222  munmap 11 215  mprotect 10 226  mremap 25 216  madvise 28 233  msync 26 227
membarrier 324 283  map_shadow_stack 453 -

clone 56 220  fork 57 -  vfork 58 -  execve 59 221  execveat 322 281  exit 60 93  exit_group 231 94
wait4 61 260  waitid 247 95  getpid 39 172  getppid 110 173  gettid 186 178  getpgid 121 155
getpgrp 111 -  setpgid 109 154  getsid 124 156  setsid 112 157  getuid 102 174  geteuid 107 175
getgid 104 176  getegid 108 177  getresuid 118 148  getresgid 120 150  getgroups 115 158
getrlimit 97 163  setrlimit 160 164  prlimit64 302 261  getrusage 98 165  getpriority 140 141
setpriority 141 140  sched_yield 24 124  sched_getaffinity 204 123  sched_setaffinity 203 122
sched_getparam 143 121  sched_getscheduler 145 120  sched_get_priority_max 146 125
sched_get_priority_min 147 126  set_tid_address 218 96  set_robust_list 273 99
get_robust_list 274 100  rseq 334 293  futex 202 98  arch_prctl 158 -  prctl 157 167  uname 63 160
sysinfo 99 179  times 100 153  getcpu 309 168  getrandom 318 278  umask 95 166

clock_gettime 228 113  clock_getres 229 114  clock_nanosleep 230 115  nanosleep 35 101
gettimeofday 96 169  time 201 -  getitimer 36 102  setitimer 38 103  alarm 37 -
rt_sigaction 13 134  rt_sigprocmask 14 135  rt_sigreturn 15 139  rt_sigpending 127 136
rt_sigsuspend 130 133  rt_sigtimedwait 128 137  sigaltstack 131 132  kill 62 129  tkill 200 130
tgkill 234 131  pause 34 -  restart_syscall 219 128
select 23 -  pselect6 270 72  poll 7 -  ppoll 271 73

read 0 63  write 1 64  readv 19 65  writev 20 66  pread64 17 67  pwrite64 18 68  preadv 295 69
pwritev 296 70  preadv2 327 286  pwritev2 328 287  open 2 -  openat 257 56  creat 85 -  close 3 57
close_range 436 436  lseek 8 62  dup 32 23  dup2 33 -  dup3 292 24  pipe 22 -  pipe2 293 59
fcntl 72 25  flock 73 32  fsync 74 82  fdatasync 75 83  ftruncate 77 46  truncate 76 45
fallocate 285 47  fadvise64 221 223  sendfile 40 71  copy_file_range 326 285  stat 4 -  fstat 5 80
lstat 6 -  newfstatat 262 79  statx 332 291  statfs 137 43  fstatfs 138 44  access 21 -
faccessat 269 48  faccessat2 439 439  readlink 89 -  readlinkat 267 78  getcwd 79 17  chdir 80 49
fchdir 81 50  mkdir 83 -  mkdirat 258 34  mknod 133 -  mknodat 259 33  rmdir 84 -  unlink 87 -
unlinkat 263 35  rename 82 -  renameat 264 38  renameat2 316 276  link 86 -  linkat 265 37
symlink 88 -  symlinkat 266 36  chmod 90 -  fchmod 91 52  fchmodat 268 53  fchmodat2 452 452
chown 92 -  lchown 94 -  fchown 93 55  fchownat 260 54  utime 132 -  utimes 235 -
utimensat 280 88  futimesat 261 -  getdents 78 -  getdents64 217 61  getxattr 191 8
lgetxattr 192 9  fgetxattr 193 10  listxattr 194 11  llistxattr 195 12  flistxattr 196 13
ioctl 16 29
"""
_EVENTS = """
epoll_create 213 -  epoll_create1 291 20  epoll_ctl 233 21  epoll_wait 232 -  epoll_pwait 281 22
epoll_pwait2 441 441  eventfd 284 -  eventfd2 290 19  timerfd_create 283 85
timerfd_settime 286 86  timerfd_gettime 287 87  signalfd 282 -  signalfd4 289 74
socket 41 198  socketpair 53 199  bind 49 200  listen 50 201  accept 43 202  accept4 288 242
connect 42 203  sendto 44 206  sendmsg 46 211  recvfrom 45 207  recvmsg 47 212  shutdown 48 210
getsockname 51 204  getpeername 52 205  getsockopt 55 209  setsockopt 54 208
"""
_V8 = "pkey_alloc 330 289  pkey_free 331 290  pkey_mprotect 329 288  capget 125 90"
_CALLS = {"c++": (), "python": (_EVENTS,), "javascript": (_EVENTS, _V8)}
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
    text = "".join((_EVERY_LANGUAGE, *_CALLS[language]))
    listed = re.finditer(r"(\w+) (\d+|-) (\d+|-)", text)
    return {call[1]: int(call[column]) for call in listed if call[column] != "-"}


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
        behind = 1 if rule.allowed else 0
        for i, value in enumerate(rule.values):
            program.append((_EQUAL, num_values - 1 - i + behind, 0, value))
        if not rule.allowed:
            program[-1] = (_EQUAL, 0, 1, rule.values[-1])
        program.append((_RETURN, 0, 0, _REFUSE | rule.error))
    return [*program, (_RETURN, 0, 0, _ALLOW)]
