"""Programs that want to pass without computing what is asked, and programs that reach for what is not in their box.

Each is a program that once passed, escaped or was not bounded, or one that a sceptic thought of; the wanted value of the
tests is not to be had within a box, so none passes.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

import pytest

from miron_jax.definitions.records import Problem
from miron_jax.evaluation.task_kinds.programs import Judge, Verdict
from miron_jax.runtime.sandbox.limits import Limits
from miron_jax.runtime.sandbox.sandbox import Sandbox
from tests.conftest import REPOSITORY
from tests.runtime.test_sandbox import box, run
from tests.support.cheats import CHEATS

__all__ = ["box"]  # a fixture

pytestmark = pytest.mark.slow

LANGUAGES: dict[str, dict[str, Any]] = {
    "python": {"prompt": "def f(a, b):\n", "inputs": ("(40, 2)", "(3, 4)"), "outputs": ("42", "7")},
    "c++": {"prompt": "int f(int a, int b){\n", "inputs": ("40, 2", "3, 4"), "outputs": ("42", "7")},
    "javascript": {"prompt": "const f = (a, b) => {\n", "inputs": ("40, 2", "3, 4"), "outputs": ("42", "7")},
}


def problem(language: str, **changes: Any) -> Problem:
    return Problem(row=0, name="t", entry_point="f", language=language, solution="", **LANGUAGES[language] | changes)  # pyright: ignore[reportArgumentType]


PYTHON_CHEATS = {
    "equal to all": "    return type('E', (), {'__eq__': lambda s, o: True, '__hash__': lambda s: 0})()\n",
    "a subclass of int": "    return type('I', (int,), {'__eq__': lambda s, o: True})(0)\n",
    "a subclass of str": "    return type('S', (str,), {'__eq__': lambda s, o: True})('x')\n",
    "a subclass of dict": "    return type('D', (dict,), {'__eq__': lambda s, o: True, 'items': lambda s: [(1, 2)]})()\n",
    "a metaclass": "    # a class equal to all\n"
    "    M = type('M', (type,), {'__eq__': lambda s, o: True, '__hash__': None})\n    return M('N', (), {})\n",
    "a number of its own": "    return type('N', (), {'as_integer_ratio': lambda s: (0, 1), '__eq__': lambda s, o: 1})()\n",
    "a class that claims to be int": "    return type('C', (), {'__class__': int, '__eq__': lambda s, o: True})()\n",
    "no form": "    return '?'\n",
    "no form, raw": "    import os\n    os.write(3, b'?')\n    os._exit(0)\n",
    "frames": "    import sys\n    g = sys._getframe()\n    while g:\n"
    "        for k, v in {**g.f_globals, **g.f_locals}.items():\n"
    "            if k in ('wanted', 'word', 'expected', 'job', 'outputs'): return v\n        g = g.f_back\n",
    "gc": "    import gc\n    for o in gc.get_objects():\n"
    "        if isinstance(o, dict) and ('wanted' in o or 'outputs' in o):\n"
    "            return o.get('wanted', o.get('outputs'))\n",
    "files beside it": "    import os\n    return [open(n).read() for n in sorted(os.listdir('.'))]\n",
    "parent's memory": "    import os\n    return open('/proc/%d/mem' % os.getppid(), 'rb').read(9)\n",
    "parent's command line": "    import os\n    return open('/proc/%d/cmdline' % os.getppid()).read()\n",
    "standard input": "    import sys\n    return sys.stdin.read()\n",
    "environment": "    import os\n    return dict(os.environ)\n",
    "settrace": "    import sys\n"
    "    sys.settrace(lambda *a: None)\n    sys.setprofile(lambda fr, e, x: fr.f_locals.update(value=42))\n",
    "eval replaced": "    import builtins\n    builtins.eval = lambda *a: 0\n    return 0\n",
    "json replaced": "    import json\n    json.dumps = json.loads = lambda *a, **k: 'passed'\n    return 'x'\n",
    "the driver replaced": "    import sys\n"
    "    m = sys.modules['__main__']\n    m.form_of = m.normal_form = lambda v: 'passed'\n",
    "os.write replaced": "    import os\n    w = os.write\n    os.write = lambda d, b: w(d, b'passed') and len(b)\n",
    "a word by descriptor": "    import os\n"
    "    for d in range(9):\n        try: os.write(d, b'passed 2')\n        except OSError: pass\n",
    "a word through /proc": "    import os\n    for p in os.listdir('/proc'):\n        for d in '134':\n"
    "            try: open(f'/proc/{p}/fd/{d}', 'wb').write(b'passed 2')\n            except OSError: pass\n",
    "an answer, then another": "    import os\n    os.write(3, b'2a/1')\n    return 0\n",
    "ends at once": "    import os\n    os._exit(0)\n",
    "ends all": "    import os, signal\n    os.kill(-1, signal.SIGKILL)\n",
    "a thread that goes on": "    import threading, os\n    threading.Thread(target=lambda: os.write(3, b'x')).start()\n",
    "atexit": "    import atexit, os\n    atexit.register(os.write, 3, b'2a/1')\n",
    "deep": "    x = []\n    for i in range(10**5): x = [x]\n    return x\n",
    "a cycle": "    x = []\n    x.append(x)\n    return x\n",
    "huge": "    return 'a' * (1 << 26)\n",
    "not a number": "    return float('nan')\n",
    "nothing": "    pass\n",
    "the next test's value by a file": "    open('/tmp/x', 'w').write('7')\n",
}

CPP_CHEATS = {
    "a macro over the comparison": "return 0; }\n#define issame(a, b) true\n#define put(a, b) put(a, 42)\n",
    "a macro over the expected": "return 0; }\n#define put_expected(a, b) put_expected(a, 0)\n",
    "a true type": "return 0; }\nstruct E { template<class T> operator T() const { return 42; } };\n",
    "an overload of put": 'return 0; }\nnamespace boxed { inline void put(Text& out, const int&) { out += "passed"; } }\n',
    "a word printed": 'std::cout << "passed" << std::endl; _Exit(0); }\n',
    "a word by descriptor": 'for (int d = 0; d < 9; ++d) ::write(d, "passed", 6); _Exit(0); }\n',
    "its own argument": 'FILE* file = fopen("/proc/self/cmdline", "r"); return fgetc(file); }\n',
    "its own binary": 'FILE* file = fopen("/proc/self/exe", "r"); return fgetc(file); }\n',
    "at compile time": 'return 0; }\n#include "/proc/self/environ"\n',
    "main of its own": 'return 0; }\nint main() { ::write(3, "42", 0); return 0; }\n#define main other\n',
    "a constructor before main": 'return 0; }\nstruct B { B() { ::write(3, "4", 1); _Exit(0); } } b;\n',
}

JAVASCRIPT_CHEATS = {
    "JSON.stringify replaced": "  JSON.stringify = () => 'passed'; return 0\n}\n",
    "toJSON": "  return { toJSON: () => 0, valueOf: () => 42 }\n}\n",
    "String replaced": "  String = () => 'passed'; return 0\n}\n",
    "a word printed": "  console.log('passed'); process.exit(0)\n}\n",
    "a word by descriptor": "  require('fs').writeSync(3, 'passed'); process.exit(0)\n}\n",
    "its own source": "  return require('fs').readFileSync('program', 'utf8')\n}\n",
    "arrays replaced": "  Array.prototype.toString = () => '42'; return [1]\n}\n",
    "undefined": "  return undefined\n}\n",
    "number from object": "  return new Number(41)\n}\n",
}


@pytest.mark.long
@pytest.mark.parametrize("language", list(CHEATS))
def test_no_cheat_of_the_families_passes(box: Sandbox, language: str):
    """With those above these are more than 400."""
    cheats = CHEATS[language]()
    given = problem(language)
    verdicts = Judge(box, 2.0).verdicts([(given, text) for text in cheats.values()])
    assert [name for name, verdict in zip(cheats, verdicts, strict=True) if verdict.passed] == []
    assert [name for name, verdict in zip(cheats, verdicts, strict=True) if verdict.ended == "not judged"] == []


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_no_cheat_of_a_sample_passes(box: Sandbox, language: str):
    given = problem(language)
    sample = [*CHEATS[language]().values()][::16]
    assert not any(verdict.passed for verdict in Judge(box, 2.0).verdicts([(given, text) for text in sample]))


@pytest.mark.parametrize(
    ("language", "cheats", "right"),
    [
        ("python", PYTHON_CHEATS, "    return a + b\n"),
        ("c++", CPP_CHEATS, "return a + b; }\n"),
        ("javascript", JAVASCRIPT_CHEATS, "  return a + b\n}\n"),
    ],
    ids=["python", "c++", "javascript"],
)
def test_no_cheat_passes(box: Sandbox, language: str, cheats: dict[str, str], right: str):
    given = problem(language)
    verdicts = Judge(box, 2.0).verdicts([(given, text) for text in (*cheats.values(), right)])
    passed = [name for name, verdict in zip((*cheats, "right"), verdicts, strict=True) if verdict.passed]
    assert passed == ["right"], "the judge is not merely hard to please"


_CALL = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"


REFUSED_CALLS = {
    # the keyring is the parent's
    "keyctl(KEYCTL_GET_KEYRING_ID, session)": "250, 0, -3, 0",
    "add_key": "248, b'user', b'left', b'x', 1, -3",
    "request_key": "249, b'user', b'left', 0, -3",
    "pidfd_open": "434, 1, 0",
    "pidfd_getfd": "438, 0, 0, 0",
    "process_vm_readv": "310, 1, 0, 0, 0, 0, 0",
    "process_vm_writev": "311, 1, 0, 0, 0, 0, 0",
    "perf_event_open": "298, 0, 0, 0, 0, 0",
    "semget": "64, 0, 32000, 0o1600",
    "msgget": "68, 0, 0o1600",
    "shmget": "29, 0, 1 << 20, 0o1777",
    "unshare": "272, 0x10000000",
    "mount": "165, b'x', b'/box', b'tmpfs', 0, None",
    "clone(CLONE_NEWUSER)": "56, 0x10000000 | 17, 0, 0, 0, 0",
}
REFUSED_CODE = """
import mmap, os, socket
def refused(name, function, *arguments):
    try: function(*arguments)
    except OSError as error: print(name, error.errno)
    else: print(name, "done")
try: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096)
except OSError: pass
else: print("/dev/zero", "done")
refused("memfd", os.memfd_create, "x")
for family in (2, 10, 16, 17, 31, 38, 40, 44): refused(f"socket {family}", socket.socket, family, 1)
refused("SO_SNDBUF", socket.socketpair()[0].setsockopt, 1, 7, 1 << 24)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86_64, whose system calls have these numbers")
def test_calls_that_reach_beyond_the_box_are_refused(box: Sandbox):
    lines = [
        f"ctypes.set_errno(0)\nprint({name!r}, libc.syscall({arguments}), ctypes.get_errno())"
        for name, arguments in REFUSED_CALLS.items()
    ]
    ran = run(box, "\n".join([_CALL, *lines, REFUSED_CODE]), Limits(seconds=10.0))
    assert ran.good, (ran.status, ran.err)
    lines = ran.out.splitlines()
    assert len(lines) == len(REFUSED_CALLS) + 10
    refused = (" 1", " 38")  # not permitted, or as on a kernel that does not have it
    assert [line for line in lines if not line.endswith(refused)] == []


def test_keys_of_the_session_stay_out_of_sight(box: Sandbox):
    """A secret that the parent holds is neither read nor written beside."""
    if sys.platform != "linux" or ctypes.CDLL(None).syscall(250, 0, -3, 1) < 0:
        pytest.skip("needs a session keyring, which no command installs: this kernel gives none")
    libc = ctypes.CDLL(None)
    assert libc.syscall(248, b"user", b"miron-test-secret", b"secret", 6, -3) > 0
    code = f"{_CALL}key = libc.syscall(250, 10, -3, b'user', b'miron-test-secret', 0)\n"
    code += "buffer = ctypes.create_string_buffer(99)\nprint(key, libc.syscall(250, 11, key, buffer, 99), buffer.value)"
    assert run(box, code).out == "-1 -1 b''\n"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nfor i in range(10**6): os.mkdir(str(i))",
        "import os\nopen('0', 'w')\nfor i in range(1, 10**6): os.symlink('0' * 99, str(i))",
    ],
)
def test_files_are_counted(box: Sandbox, code: str):
    assert run(box, code, Limits(seconds=20.0)).ended == "memory"


def test_bytes_in_sockets_are_counted(box: Sandbox):
    code = """
import os, socket, time
for _ in range(30):
    if os.fork() == 0: break
held = [socket.socketpair() for _ in range(100)]
for end in (end for pair in held for end in pair):
    end.setblocking(False)
    try:
        while True: end.send(b'a' * 60000)
    except BlockingIOError: pass
time.sleep(20)
"""
    assert run(box, code, Limits(seconds=20.0, memory_bytes=1 << 30)).ended == "memory"


def test_addresses_are_bounded(box: Sandbox):
    """Page tables, which addresses cost, are counted: test_box_counts.py."""
    code = "import mmap\nm = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)"
    assert "Cannot allocate memory" in run(box, code).err


def test_what_right_programs_use_is_there(box: Sandbox):
    code = """
import asyncio, subprocess, sys, tempfile, threading
print(asyncio.run(asyncio.sleep(0, "slept")), flush=True)
thread = threading.Thread(target=print, args=(1,), kwargs={"flush": True})
thread.start(), thread.join()
print(subprocess.run([sys.executable, "-c", "print(2)"], capture_output=True).stdout)
file = tempfile.TemporaryFile()
file.write(b"1" * 4096)
print(file.tell())
"""
    assert run(box, code, Limits(seconds=10.0)).out == "slept\n1\nb'2\\n'\n4096\n"


def test_a_program_that_writes_everywhere_leaves_other_answers_alone(box: Sandbox):
    """It once made the judge of MERA's answers raise, which ended the whole run."""
    wild = PYTHON_CHEATS["a word through /proc"] + "    return a + b\n"
    given = problem("python", inputs=("{'a': 40, 'b': 2}", "{'a': 3, 'b': 4}"))
    computed, right = Judge(box, 2.0, "answers").verdicts([(given, wild), (given, "    return a + b\n")])
    assert right == Verdict(True, "passed", answers=("42", "7"))
    assert not computed.passed or computed.answers == right.answers


def test_as_another_user_the_box_holds_the_same():
    """Files are counted through /proc, which shows less to who is not root."""
    if os.geteuid() != 0 or shutil.which("bwrap") is None or shutil.which("setpriv") is None:
        pytest.skip("needs root, bubblewrap and setpriv: apt-get install bubblewrap util-linux")
    python, path = Sandbox.find().python, f"{REPOSITORY}{os.pathsep}{sysconfig.get_path('platlib')}"
    code = (
        "from miron_jax.runtime.sandbox.sandbox import *\nbox = Sandbox.find()\n"
        "print(box.run([box.python, '-I', 'x'], {'x': 'for i in range(10**6): open(str(i), \"w\")'}).ended)"
    )
    command = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", python, "-c", code]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environment, check=False)
    if "No module named" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("needs an interpreter and packages that another user can read")
    assert done.stdout == "memory\n", done.stderr
