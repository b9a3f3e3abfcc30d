"""The processes of one run: they share rows, agree on values, and end together when one of them
fails.

Arrives: the addresses of the processes, from flags or a cluster.  Leaves: a `Hosts`.  It
deliberately does not know tasks or scores.

Processes connect through jax.distributed.  If each process has all weights, they do not run in
lockstep: rows are dealt by their predicted cost, and a process that has finished its rows takes
rows that another has not begun.  When a process is killed, hangs or fails, the others end within
--peer_timeout, with a sentence that names it.
"""

import contextlib
import json
import math
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, TypeVar

import jax

from miron_jax.errors import FAILED, GOES_ON, RUN_AGAIN, InputError, printable
from miron_jax.files.readers import Json
from miron_jax.files.store import SEEN_SECONDS, Store
from miron_jax.runtime.timeline import spent_on

BEAT_SECONDS, POLL_SECONDS = 1.0, 0.1
PEER_TIMEOUT = 60.0  # seconds without a beat after which a process is lost
# a process without a batch for so long, which does not wait for others, has a device that hangs
STALL_SECONDS = 1800.0
_ROOT = "miron_jax"  # of this module's keys in the coordinator's store
T = TypeVar("T")


@dataclass(slots=True)
class _Peer:
    """What a process has published about itself; times are of this process's time.monotonic()."""

    heard: float  # when its last beat came
    stepped: float  # when it had last finished a batch, or waited for others
    beat: str = ""
    steps: str = ""
    host: str = "never heard from"


class Hosts:
    """This process among the processes of its run; a process that runs alone never waits."""

    def __init__(
        self,
        index: int = 0,
        count: int = 1,
        client: Any = None,
        peer_timeout: float = PEER_TIMEOUT,
        in_rounds: bool = False,
    ) -> None:
        """`in_rounds`: the processes are a program's own, and watch each other within `round`
        alone."""
        self.index = index
        self.count = count
        self.peer_timeout = peer_timeout
        self._client = client  # of jax.distributed's coordinator
        self._next_index: dict[str, int] = {}  # of each queue, in a process that runs alone
        self._stopped = threading.Event()
        self._leaving = threading.Lock()
        self._steps, self._waits = 0, False  # batches done; whether this process waits for others
        self._last_answer = 0.0  # time.monotonic() of the coordinator's
        self._peers: list[_Peer] = []
        self._num_rounds = 0
        self._last_work: Future[Json] | None = None  # of `in_first`
        self._remedy = "start the job again" if in_rounds else GOES_ON
        # writes what must be kept before the process ends
        self.on_leave: Callable[[], None] = lambda: None
        if client is not None and not in_rounds:
            self._start_watching()

    @property
    def is_first(self) -> bool:
        """Whether this process reads the hub, checks the output folder and writes the results."""
        return self.index == 0

    def _start_watching(self) -> list[threading.Thread]:
        self._stopped = threading.Event()
        self._last_answer = now = time.monotonic()
        self._peers = [_Peer(now, now) for _ in range(self.count)]
        threads = [threading.Thread(target=task, daemon=True) for task in (self._beat, self._watch)]
        for thread in threads:
            thread.start()
        return threads

    @contextlib.contextmanager
    def round(
        self, fields: Callable[[], dict[str, Json]], problem: str | None = None
    ) -> Iterator[None]:
        """Work of all processes, which begin it with equal `fields`; names are used once a round.

        `problem`: why this process cannot take part.  Raises InputError in all processes if one of
        them has a problem, other fields, or does not come.  A process that fails within ends the
        others.
        """
        if self._last_work is not None:
            wait([self._last_work])
        if self._client is None:
            yield
            return
        self._num_rounds += 1
        self.arrive("round", [problem, None if problem else fields()])
        _check_same(self.gather("round", within=STALL_SECONDS))
        if self.is_first and self._num_rounds > 1:
            self._client.key_value_delete(f"{_ROOT}/{self._num_rounds - 1}")  # all have left it
        threads = self._start_watching()
        try:
            yield
        except BaseException as error:
            self.leave_if_one_is_lost(error)
            self._publish_end(FAILED, f"{type(error).__name__}: {error}")
            raise
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()

    def in_first(self, work: Callable[[], Json]) -> Future[Json]:
        """Call it by a thread of the first process, before the next round; all processes get what
        it returns."""

        def call() -> Json:
            value = error = None
            try:
                value = work() if self.is_first else None
            except BaseException as failed:
                error = f"process 0 has failed: {type(failed).__name__}: {failed}"
                raise
            finally:
                value, error = self.agree("in_first", [value, error], self._check_first)
            if error is not None:
                raise InputError(error)
            return value

        thread = ThreadPoolExecutor(1)
        self._last_work = future = thread.submit(call)
        thread.shutdown(wait=False)  # the program's end waits for it
        return future

    # Agreement

    def _check_first(self) -> None:
        """Raises InputError if the first process has left the round by an error."""
        for key, end in self._all("end/").items():
            if _index_of(key) == 0:
                raise InputError(f"process 0 has failed: {json.loads(end)[-1]}")

    def agree(
        self, name: str, value: Json = None, check: Callable[[], object] = lambda: None
    ) -> Json:
        """The value of the first process, which all processes get, unless `check` raises while they
        wait; each name is used once."""
        if self._client is None:
            return value
        if self.is_first:
            self.announce(name, value)
            return value
        return self.announced(name, check)

    def announce(self, name: str, value: Json) -> None:
        """Publish a value for all processes; each name is used once, by any of them."""
        self._set(f"agreed/{name}", json.dumps(value))

    def announced(self, name: str, check: Callable[[], object] = lambda: None) -> Json:
        """The value that a process announces; waits for it, unless `check` raises meanwhile."""
        with self._waiting():
            for _ in _looks():
                check()
                try:
                    return json.loads(self._client.key_value_try_get(self._key(f"agreed/{name}")))
                except jax.errors.JaxRuntimeError as error:
                    if "NOT_FOUND" not in str(error):
                        raise

    def arrive(self, name: str, value: Json = None) -> None:
        """Publish that this process has reached the barrier `name`, with a value for `gather`; does
        not wait."""
        if self._client is not None:
            self._set(f"at/{name}/{self.index}", json.dumps(value))

    def gather(self, name: str, within: float = math.inf) -> list[Json]:
        """The value of every process at the barrier `name`; waits until all have reached it.

        Raises InputError if that takes more seconds than `within`."""
        if self._client is None:
            return [None]
        until = time.monotonic() + within
        texts: dict[str, str] = {}
        with self._waiting():
            for _ in _looks():
                texts = self._all(f"at/{name}/")
                if len(texts) == self.count:
                    break
                if time.monotonic() > until:
                    lacking = {*range(self.count)} - {*map(_index_of, texts)}
                    raise InputError(
                        f"process {min(lacking)} has not come for {within:.0f} s: call it in all "
                        "processes, with weights on the devices of all of them"
                    )
        return [json.loads(texts[key]) for key in sorted(texts, key=_index_of)]

    def check_shared(self, store: Store) -> None:
        """Check that all processes see one output folder: the others look for a file that the first
        writes.

        Raises InputError.
        """
        if self.count == 1:
            return
        file = f".shared-{uuid.uuid4().hex}"
        if self.is_first:
            store.put(file, b"")
        file = self.agree("folder", file)
        start = time.monotonic()
        while not store.has(file):
            if time.monotonic() - start > SEEN_SECONDS:
                raise InputError(
                    f"--output={store.name}: what process 0 put there is not seen on "
                    f"{socket.gethostname()}: name a folder that all hosts share"
                )
            time.sleep(0.2)
        self.arrive("folder is seen")
        if self.is_first:
            self.gather("folder is seen")
            store.remove(file)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self._waits = True
        try:
            with spent_on("wait_for_host"):
                yield
        finally:
            self._waits = False
            self.step()

    def rest(self, rests: bool) -> None:
        """Say whether this process may do nothing of the run for long, as between two calls of a
        program that uses it."""
        self._waits = rests
        self.step()

    def step(self) -> None:
        """Count a finished batch, so that the others know that this process does not hang."""
        self._steps += 1

    def first_then_others(self, name: str, function: Callable[[], T]) -> T:
        """Call the function in the first process, then in the others, which find in the cache what
        the first has fetched."""
        if self.is_first:
            result = function()
            self.agree(name)
            return result
        self.agree(name)
        return function()

    # Work

    def take(self, queue: str, lists: Sequence[Sequence[T]]) -> Iterator[T]:
        """Items of this process's list, then what is left of the others' lists; over all processes
        each item once.

        `lists`: one for each process, the same in all of them.  `queue` is a name that is used
        once.
        """
        for offset in range(self.count):
            owner = (self.index + offset) % self.count
            while (index := self._next(f"{queue}/{owner}")) < len(lists[owner]):
                yield lists[owner][index]

    def _next(self, queue: str) -> int:
        if self._client is not None:
            return self._client.key_value_increment(self._key(f"queue/{queue}"), 1) - 1
        index = self._next_index.get(queue, 0)
        self._next_index[queue] = index + 1
        return index

    # Peers

    def fail(self, status: int, message: str) -> NoReturn:
        """End this process and publish why, so that the others do not wait for it; the first one
        gives them time to read."""
        with self._leaving:
            self._stopped.set()
            self._publish_end(status, message)
            if self.is_first:
                time.sleep(4 * BEAT_SECONDS)
            os._exit(status)  # jax's exit handler would wait for all processes

    def _publish_end(self, status: int, message: str) -> None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            self._set(f"end/{self.index}", json.dumps([status, socket.gethostname(), message]))

    def leave_if_one_is_lost(self, error: BaseException) -> None:
        """Wait out --peer_timeout after a collective has failed: if a peer is lost, this process
        ends meanwhile."""
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            time.sleep(self.peer_timeout + 4 * BEAT_SECONDS)

    def end(self) -> None:
        """Wait for all processes, then leave jax.distributed."""
        if self._client is None:
            return
        self.arrive("end")
        self.gather("end")
        self._stopped.set()
        jax.distributed.shutdown()

    def _beat(self) -> None:
        count = 0
        while not self._stopped.is_set():
            count += 1
            # An error means that the coordinator is gone or late: `_watch` counts the seconds.
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                self._set(
                    f"beat/{self.index}",
                    f"{count} {socket.gethostname()} {self._steps} {self._waits:d}",
                )
                self._hear(self._all("beat/"), self._all("end/"))
            self._stopped.wait(BEAT_SECONDS)

    def _hear(self, beats: dict[str, str], ends: dict[str, str]) -> None:
        now = time.monotonic()
        for key, beat in beats.items():
            peer = self._peers[_index_of(key)]
            _, host, steps, waits = beat.split()
            if beat != peer.beat:
                peer.beat = beat
                peer.host = host
                peer.heard = now
            if waits == "1" or steps != peer.steps:
                peer.steps = steps
                peer.stepped = now
        self._last_answer = now
        for key, end in ends.items():
            status, host, message = json.loads(end)
            self._leave(status, f"process {_index_of(key)} ({host}) has ended: {message}")

    def _watch(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            now = time.monotonic()
            if (silent := now - self._last_answer) > self.peer_timeout:
                self._leave(
                    RUN_AGAIN,
                    f"process 0, which coordinates the run, has not answered for {silent:.0f} s: "
                    f"{self._remedy}",
                )
            for index, peer in enumerate(self._peers):
                name = f"process {index} ({peer.host})"
                silent = now - peer.heard
                idle = now - peer.stepped
                if idle > STALL_SECONDS:
                    self._leave(
                        RUN_AGAIN,
                        f"{name} has done nothing for {idle:.0f} s: it hangs; {self._remedy}",
                    )
                if silent > self.peer_timeout:
                    self._leave(
                        RUN_AGAIN,
                        f"{name} has not been heard from for {silent:.0f} s: it was killed, or it "
                        f"hangs; {self._remedy}",
                    )

    def _leave(self, status: int, message: str) -> None:
        """End the process from the beating or the watching thread, whatever the main thread waits
        for."""
        with self._leaving:  # the other of the two threads may be here too
            if self._stopped.is_set():
                return
            self._stopped.set()
            writing = threading.Thread(target=self.on_leave, daemon=True)
            writing.start()
            writing.join(10 * BEAT_SECONDS)
            print(f"miron-jax: {printable(message)}", file=sys.stderr, flush=True)
            os._exit(status)

    def _key(self, name: str) -> str:
        return f"{_ROOT}/{self._num_rounds}/{name}"

    def _set(self, name: str, value: str) -> None:
        self._client.key_value_set(self._key(name), value, allow_overwrite=True)

    def _all(self, below: str) -> dict[str, str]:
        return dict(self._client.key_value_dir_get(self._key(below)))


def _looks() -> Iterator[None]:
    """Looks at the store, with ever longer pauses between them."""
    pause = POLL_SECONDS / 128
    while True:
        yield
        time.sleep(pause)
        pause = min(2 * pause, POLL_SECONDS)


def _check_same(of_processes: list[Json]) -> None:
    """Raises InputError that names the first process with a problem, or with other fields than
    process 0."""
    expected = of_processes[0][1]
    for index, (problem, fields) in enumerate(of_processes):
        if problem is not None:
            raise InputError(f"process {index}: {problem}")
        for name in expected:
            if fields.get(name) != expected[name]:
                raise InputError(
                    f"process {index} has {name} {fields.get(name)}, process 0 has "
                    f"{expected[name]}: give all processes the same"
                )


def _index_of(key: str) -> int:
    """The process that a key of the store belongs to."""
    return int(key.rsplit("/", 1)[1])


def join(
    coordinator: str | None, num_processes: int | None, process_id: int | None, peer_timeout: float
) -> Hosts:
    """Connect to the other processes: through `coordinator`, or as JAX detects the cluster (TPU
    pod, Slurm, Open MPI, Kubernetes) if it is None.

    Raises InputError if the processes do not connect.  Must be called before anything starts jax's
    backend.
    """
    is_local = coordinator is not None and coordinator.startswith(("127.", "localhost"))
    jax.config.update("jax_enable_preemption_service", False)  # it would handle SIGTERM
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            cluster_detection_method=None if coordinator is None else "deactivate",
            coordinator_bind_address=coordinator if is_local else None,
            initialization_timeout=int(max(60, 5 * peer_timeout)),
            # this module finds a lost peer before jax does
            heartbeat_timeout_seconds=int(2 * peer_timeout) + 60,
        )
    except ValueError as error:
        raise InputError(
            f"--distributed: {error}; expected a cluster that JAX knows (TPU pod, Slurm, Open MPI, "
            "Kubernetes), or give --coordinator=host:port, --num_processes and --process_id to "
            "each process"
        ) from None
    except jax.errors.JaxRuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"--coordinator={coordinator}: the processes did not meet ({reason:.200}): start all "
            "of them, with the address of process 0"
        ) from None
    return _joined(peer_timeout, in_rounds=False)


@cache
def of_program() -> Hosts:
    """The processes that a program has connected by jax.distributed, for rounds of work between its
    own."""
    return _joined(PEER_TIMEOUT, in_rounds=True)


def _joined(peer_timeout: float, in_rounds: bool) -> Hosts:
    # its key-value store has no public name; Orbax imports it from here too
    from jax._src import distributed

    state = distributed.global_state
    return Hosts(state.process_id, state.num_processes, state.client, peer_timeout, in_rounds)
