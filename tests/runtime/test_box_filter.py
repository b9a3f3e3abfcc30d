"""The filter of system calls, run as the kernel runs it, and in real boxes."""

import errno
import platform
import struct

import pytest

from miron_jax.errors import InputError
from miron_jax.runtime.sandbox.limits import Limits
from miron_jax.runtime.sandbox.sandbox import Sandbox
from miron_jax.runtime.sandbox.system_calls import allowed_calls, box_filter
from tests.runtime.test_sandbox import box, run

__all__ = ["box"]  # a fixture

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LANGUAGES = ("c++", "python", "javascript")
MACHINES = tuple(AUDIT)
PLAIN = (0, 0, 0, 0, 0, 0)  # arguments
# Arguments with which a call that depends on them is allowed.
GOOD = {
    "prctl": (15,), "ioctl": (0, 0x5401), "socket": (1, 1), "socketpair": (1, 1), "setsockopt": (0, 1, 2),
}  # fmt: skip


def verdict(program: bytes, machine: str, number: int, arguments: tuple[int, ...] = PLAIN) -> int:
    """What the filter returns for a call: classic BPF, as linux/filter.h defines it."""
    data = struct.pack("<IIQ6Q", number, AUDIT.get(machine, 0), 0, *(*arguments, *PLAIN)[:6])
    code = [struct.unpack_from("=HBBI", program, i) for i in range(0, len(program), 8)]
    assert len(code) <= 4096, "the kernel takes no more"
    place = loaded = 0
    while True:
        kind, if_true, if_false, operand = code[place]
        place += 1
        if kind == 0x06:
            return operand
        if kind == 0x20:
            loaded = struct.unpack_from("<I", data, operand)[0]
        elif kind == 0x54:
            loaded &= operand
        else:
            holds = loaded == operand if kind == 0x15 else loaded >= operand
            assert kind in (0x15, 0x35)
            place += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_each_call_outside_of_the_list_is_refused(machine: str):
    for language in LANGUAGES:
        program = box_filter(language, machine=machine)
        names = {number: name for name, number in allowed_calls(language, machine).items()}
        for number in (*range(1000), 0x3FFFFFFF):
            name = names.get(number)
            error = errno.ENOSYS if number >= 424 else errno.EPERM
            expected = REFUSE | error if name is None else ALLOW
            assert verdict(program, machine, number, GOOD.get(name or "", PLAIN)) == expected, (language, number, name)
        for number in (0x40000000, 0x40000001, 0xFFFFFFFF):  # x32
            assert verdict(program, machine, number) == KILL
        for other in {*MACHINES, "i386"} - {machine}:
            assert verdict(program, other, 1) == KILL


def test_numbers_are_those_of_the_kernels_tables():
    """Some of each table by hand, from unistd_64.h and asm-generic/unistd.h; none has two names."""
    for machine in MACHINES:
        for language in LANGUAGES:
            calls = allowed_calls(language, machine)
            assert len(set(calls.values())) == len(calls)
    x86, arm = (allowed_calls("javascript", machine) for machine in MACHINES)
    assert [x86[name] for name in ("read", "openat", "execve", "statx", "close_range")] == [0, 257, 59, 332, 436]
    assert [arm[name] for name in ("read", "openat", "execve", "statx", "close_range")] == [63, 56, 221, 291, 436]
    assert "fork" in x86
    assert "fork" not in arm
    for name in ("clone3", "io_setup", "inotify_init1", "memfd_create", "ptrace", "mount", "unshare", "keyctl"):
        assert name not in x86
    assert "socket" not in allowed_calls("c++", "x86_64")


@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("clone", (0x01200011,), 0),  # a fork
        ("clone", (0x003D0F00,), 0),  # a thread
        ("clone", (0x10000011,), errno.EPERM),  # CLONE_NEWUSER
        ("clone", (0x00020011,), errno.EPERM),  # CLONE_NEWNS
        ("mmap", (0, 4096, 3, 0x22), 0),
        ("mmap", (0, 4096, 3, 0x01), 0),  # a file
        ("mmap", (0, 4096, 3, 0x40022), errno.ENOMEM),  # MAP_HUGETLB
        ("madvise", (0, 4096, 4), 0),
        ("madvise", (0, 4096, 12), errno.EINVAL),  # MADV_MERGEABLE
        ("prctl", (15,), 0),  # PR_SET_NAME
        ("prctl", (4,), errno.EPERM),  # PR_SET_DUMPABLE
        ("prctl", (36,), errno.EPERM),  # PR_SET_CHILD_SUBREAPER
        ("fcntl", (3, 1030), 0),  # F_DUPFD_CLOEXEC
        ("fcntl", (3, 1031), errno.EPERM),  # F_SETPIPE_SZ
        ("ioctl", (0, 0x5413), 0),  # TIOCGWINSZ
        ("ioctl", (0, 0x5412), errno.ENOTTY),  # TIOCSTI
        ("fallocate", (3, 0, 0, 4096), 0),
        ("fallocate", (3, 1, 0, 4096), errno.EOPNOTSUPP),  # KEEP_SIZE
        ("mknodat", (3, 0, 0o010644), 0),  # a FIFO
        ("mknodat", (3, 0, 0o020644), errno.EPERM),  # a character device
        ("socketpair", (1, 0x80001), 0),  # AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC
        ("socketpair", (1, 2), errno.EPERM),  # SOCK_DGRAM
        ("socket", (2, 1), errno.EPERM),  # AF_INET
        ("socket", (40, 1), errno.EPERM),  # AF_VSOCK
        ("setsockopt", (3, 1, 7), errno.EPERM),  # SO_SNDBUF
    ],
)
def test_calls_that_depend_on_their_arguments(call: str, arguments: tuple[int, ...], expected: int):
    for machine in MACHINES:
        program = box_filter("python", machine=machine)
        number = allowed_calls("python", machine)[call]
        wanted = REFUSE | expected if expected else ALLOW
        assert verdict(program, machine, number, arguments) == wanted
        high = tuple(argument | 0xDEAD << 32 for argument in arguments)
        assert verdict(program, machine, number, high) == wanted, "the kernel reads the low half too"


def test_memory_is_shared_where_the_kernel_counts_it():
    for machine in MACHINES:
        number = allowed_calls("python", machine)["mmap"]
        verdicts = [
            verdict(box_filter("python", is_counted, machine), machine, number, (0, 4096, 3, flags))
            for is_counted in (False, True)
            for flags in (0x21, 0x40021)  # MAP_SHARED | MAP_ANONYMOUS, MAP_HUGETLB
        ]
        assert verdicts == [REFUSE | errno.EPERM, REFUSE | errno.ENOMEM, ALLOW, REFUSE | errno.ENOMEM]


def test_an_unknown_machine_is_refused():
    with pytest.raises(InputError, match=r"knows no system calls of a riscv64, expected x86_64 or aarch64"):
        box_filter("python", machine="riscv64")


# Real boxes


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in MACHINES, reason="needs x86_64 or aarch64, whose calls are known")
def test_the_kernel_refuses_each_call_outside_of_the_list(box: Sandbox):
    """335 and 336 are of probes on x86_64: the kernel runs no filter for them, and kills who calls them without one."""
    allowed = allowed_calls("python", platform.machine()).values()
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in sorted(set(range(600)) - {{335, 336}} - {set(allowed)}):
    ctypes.set_errno(0)
    print(number, libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno())
"""
    ran = run(box, code, Limits(seconds=10.0))
    assert ran.good, ran
    lines = [tuple(map(int, line.split())) for line in ran.out.splitlines()]
    assert len(lines) == 598 - len({*allowed} - {335, 336})
    expected = {number: errno.ENOSYS if number >= 424 else errno.EPERM for number, *_ in lines}
    assert [line for line in lines if line[1:] != (-1, expected[line[0]])] == []


ORDINARY = """
import asyncio, fcntl, mmap, multiprocessing, os, queue, select, shutil, signal, socket, sqlite3, subprocess, sys
import tempfile, threading, time, zoneinfo
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import shared_memory

with ThreadPoolExecutor(4) as pool: assert sum(pool.map(int, "123")) == 6
with ProcessPoolExecutor(2) as pool: assert sum(pool.map(int, "123")) == 6
with multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1, 2]) == [1, 2]
with multiprocessing.Manager() as manager: assert dict(manager.dict({1: 2})) == {1: 2}
values = multiprocessing.Queue()
child = multiprocessing.Process(target=values.put, args=(3,))
child.start()
assert values.get() == 3
child.join()
shared = shared_memory.SharedMemory(create=True, size=9999)
shared.close(), shared.unlink()

async def work():
    await asyncio.gather(asyncio.sleep(0.01), asyncio.to_thread(time.sleep, 0.01))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    return await process.wait()
assert asyncio.run(work()) == 0
assert subprocess.run([sys.executable, "-c", "print(2)"], capture_output=True).stdout == b"2\\n"

database = sqlite3.connect("data.db")
database.execute("pragma journal_mode=wal"), database.execute("create table t(a)"), database.commit()
with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/a", "wb+") as file:
        file.write(bytes(9999)), file.flush(), os.fsync(file.fileno()), fcntl.lockf(file, fcntl.LOCK_EX)
        os.posix_fallocate(file.fileno(), 0, 99999)
        mmap.mmap(file.fileno(), 0)[1] = 3
    shutil.copy2(f"{folder}/a", f"{folder}/b"), shutil.copytree(folder, "copies"), os.mkfifo(f"{folder}/c")
mmap.mmap(-1, 9999, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
signal.signal(signal.SIGALRM, lambda *_: None), signal.setitimer(signal.ITIMER_REAL, 0.01), signal.pause()
left, right = socket.socketpair()
left.sendall(b"x"), select.select([right], [], [], 1)
assert right.recv(1) == b"x"
assert zoneinfo.ZoneInfo("Europe/Moscow")
print("end")
"""
SHARED = """
import mmap, os
memory = mmap.mmap(-1, 4096)
if not os.fork(): memory[0] = 7; os._exit(0)
os.wait()
print(memory[0])
"""


@pytest.mark.slow
def test_ordinary_programs_call_nothing_that_is_refused(box: Sandbox):
    ran = run(box, ORDINARY, Limits(seconds=30.0))
    assert ran.out == "end\n", ran
    assert run(box, SHARED).out == ("7\n" if box.bounded_by == "cgroup" else "")
    script = """
const fs = require('fs'), { Worker } = require('worker_threads'), zlib = require('zlib')
fs.writeFileSync('a', 'b'), fs.copyFileSync('a', 'c'), fs.rmSync('c'), require('os').cpus()
require('crypto').randomUUID(), zlib.gzipSync('a'), new SharedArrayBuffer(9)
new Worker("require('worker_threads').parentPort.postMessage(1)", { eval: true }).on('message', async () => {
  await new Promise(done => setTimeout(done, 5)), await fs.promises.readFile('a'), console.log('end')
})
"""
    if box.which("node"):
        ran = box.run(["node", "main.js"], {"main.js": script}, Limits(seconds=20.0))
        assert ran.out == "end\n", ran


@pytest.mark.slow
def test_a_box_shows_what_its_interpreter_needs_and_no_more(box: Sandbox):
    places = ["/opt", "/usr/src", "/usr/local/src", "/root", "/home", "/usr/share/doc", "/var", "/tmp", "/dev/shm/x"]
    code = f"""
import os, sys, sysconfig
print([place for place in {places!r} if os.path.exists(place)])
packages = [path for path in sys.path if path.endswith("-packages") and os.path.exists(path)]
print([name for path in packages for name in os.listdir(path)])
print(sorted(name for name in os.listdir("/usr/bin") if not name.startswith(("python", "sh", "dash", "bash"))))
"""
    assert run(box, code).out == "[]\n[]\n[]\n"
    if box.which("g++"):
        script = "for p in /opt /usr/src /usr/local/src /usr/share/doc /usr/lib/python3; do [ -e $p ] && echo $p; done"
        assert (
            box.run(["sh", "-c", f"{script}; g++ --version >/dev/null && echo works"], {}, shown="g++").out == "works\n"
        )
