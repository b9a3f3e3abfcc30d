"""Python processes that begin with everything imported: forks of a server that imported jax, transformers and torch once.

    process = start("-m", "miron_jax", "eval", "--limit=3", devices=2)     # or start("-c", code, *arguments)
    out, err = process.communicate()                                       # then process.returncode

A fresh interpreter takes five processor seconds to import what a run needs; a fork takes some milliseconds.  `Process` has
the methods of subprocess.Popen that tests use.  The server has no jax backend and no environment variable of jax: a fork
gets those that its caller gives (this process's own where none are given) and starts its own backend.  What libraries read
from the environment when they are imported (HF_HOME, ...) is the server's: a test of such a variable takes subprocess.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent
IMPORTED = (
    "jax", "jax.numpy", "flax.nnx", "flax.linen", "orbax.checkpoint", "transformers", "tokenizers", "safetensors.numpy",
    "rapidfuzz", "rich.table", "scipy.stats", "torch", "transformers.models.auto.modeling_auto",
    "transformers.models.llama.configuration_llama", "miron_jax.evaluation.run", "miron_jax.evaluator", "miron_jax.cli",
)  # fmt: skip
TIMEOUT = 240.0  # seconds until a process counts as hanging

child_seconds = 0.0  # processor seconds of all processes that have ended
_server: "Server | None" = None


class Process:
    """A fork of the server."""

    def __init__(self, server: "Server", pid: int, stdout: IO[str] | None, stderr: IO[str] | None) -> None:
        self._server, self.pid, self.stdout, self.stderr = server, pid, stdout, stderr
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._status(0.0)

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self._status(timeout) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float = TIMEOUT) -> tuple[str, str]:
        """All that is left of standard output and error, then the end.  Raises subprocess.TimeoutExpired."""
        until, texts = time.monotonic() + timeout, ["", ""]

        def read(i: int, stream: IO[str]) -> None:
            with stream:
                texts[i] = stream.read()

        pipes = [(i, stream) for i, stream in enumerate((self.stdout, self.stderr)) if stream is not None]
        readers = [threading.Thread(target=read, args=pipe, daemon=True) for pipe in pipes]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(max(until - time.monotonic(), 0.0))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        self.wait(max(until - time.monotonic(), 0.0))
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _status(self, timeout: float) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.status_of(self.pid, timeout)
        return self.returncode


class Server:
    """The process that imports, and the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = "from tests.support.processes import serve; serve()()"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(theirs.fileno())],
            cwd=REPOSITORY, env=kept | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(REPOSITORY)}, pass_fds=[theirs.fileno()],
        )  # fmt: skip
        theirs.close()
        self._ended: dict[int, int] = {}
        atexit.register(self._process.kill)

    def start(self, request: Mapping[str, Any], descriptors: list[int]) -> int:
        """The new process's id."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        while True:
            message = self._receive(TIMEOUT)
            if message and "started" in message:
                self._ended.pop(message["started"], None)  # of an earlier process with this number
                return message["started"]

    def status_of(self, pid: int, timeout: float) -> int | None:
        until = time.monotonic() + timeout
        while pid not in self._ended:
            left = until - time.monotonic()
            if self._receive(max(left, 0.0)) is None and left <= 0:
                return None
        return self._ended[pid]

    def _receive(self, timeout: float) -> dict[str, Any] | None:
        global child_seconds
        if not select.select([self._socket], [], [], timeout)[0]:
            return None
        data = self._socket.recv(1 << 16)
        assert data, "the server of processes has died"
        message = json.loads(data)
        if "ended" in message:
            self._ended[message["ended"]] = message["status"]
            child_seconds += message["seconds"]
        return message


def start(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path = REPOSITORY,
    devices: int | None = None,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
) -> Process:
    """`python ARGUMENTS` (`-c` or `-m` first) in the environment `env`, with `devices` CPU devices.

    `stdout` and `stderr`: subprocess.PIPE, DEVNULL, or STDOUT (stderr only).
    """
    global _server
    _server = _server or Server()
    given = dict(os.environ if env is None else env)
    if devices is not None:
        given["JAX_NUM_CPU_DEVICES"] = str(devices)
    out_read, out_write = _ends(stdout)
    err_read, err_write = (None, os.dup(out_write)) if stderr == subprocess.STDOUT else _ends(stderr)
    request = {"arguments": arguments, "environment": given, "cwd": str(cwd)}
    pid = _server.start(request, [out_write, err_write])
    for descriptor in (out_write, err_write):
        os.close(descriptor)
    return Process(_server, pid, _reader(out_read), _reader(err_read))


def preload(*names: str) -> None:
    """Modules that this file's processes import beside IMPORTED, once in the server."""
    global _server
    _server = _server or Server()
    _server.start({"imports": names}, [])


def run(
    *arguments: str, check: bool = False, timeout: float = TIMEOUT, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """As subprocess.run with captured text; `check`: a process that fails ends the test with what it printed."""
    process = start(*arguments, **options)
    try:
        out, err = process.communicate(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode is not None
    assert not check or process.returncode == 0, f"{arguments}: status {process.returncode}\n{out[-2000:]}{err[-4000:]}"
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def serve() -> Callable[[], None]:
    """The server's loop.  It returns in a fork alone: what that has to do, as its interpreter's last act."""
    ours = socket.socket(fileno=int(sys.argv[1]))
    for name in IMPORTED:
        try:
            __import__(name)
        except ModuleNotFoundError:  # torch and what needs it may be absent
            continue
    gc.freeze()  # or each fork walks through all of it when it ends: 1.4 s in place of 0.4
    gc.set_threshold(20_000, 20, 20)
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([ours, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _tell_ended(ours)
        if ours not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(ours, 1 << 20, 2)
        if not data:
            os._exit(0)  # the tests have ended
        if names := json.loads(data).get("imports"):
            for name in names:
                __import__(name)
            gc.freeze()
            ours.send(json.dumps({"started": 0}).encode())
            continue
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (ours, woken, waker):
                each.close()
            return lambda: _become(json.loads(data), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        ours.send(json.dumps({"started": pid}).encode())


def _tell_ended(ours: socket.socket) -> None:
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended = {"ended": pid, "status": os.waitstatus_to_exitcode(status), "seconds": usage.ru_utime + usage.ru_stime}
        ours.send(json.dumps(ended).encode())


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Environment, folder, files and arguments of the new process; then its code."""
    os.setsid()
    for target, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    _configure_jax(request["environment"])
    option, code, *rest = request["arguments"]
    sys.argv = ["-c" if option == "-c" else code, *rest]
    sys.path.insert(0, request["cwd"])
    sys.path[1:1] = [folder for folder in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if folder]
    if option == "-m":
        import runpy

        runpy.run_module(code, run_name="__main__", alter_sys=True)
    else:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})


def _configure_jax(environment: Mapping[str, str]) -> None:
    """jax reads its variables when it is imported, which was before."""
    import jax

    for name, value in environment.items():
        option = name.lower()
        if name.startswith("JAX_") and option in jax.config.values:
            kind = type(jax.config.values[option])
            parsed = value.lower() in ("1", "true", "yes", "on") if kind is bool else value
            jax.config.update(option, kind(parsed) if kind in (int, float) else parsed)


def _ends(stream: int | None) -> tuple[int | None, int]:
    """(our end, the end of the process)."""
    if stream == subprocess.PIPE:
        return os.pipe()
    return None, os.open(os.devnull, os.O_RDWR) if stream == subprocess.DEVNULL else os.dup(2)


def _reader(descriptor: int | None) -> IO[str] | None:
    return None if descriptor is None else os.fdopen(descriptor, "r", encoding="utf-8", errors="replace")
