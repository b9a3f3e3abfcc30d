"""The processes of one run: who takes which rows, what all of them agree on, and how a run ends when one is lost.

Arrives: what a cluster or flags say of the processes.  Leaves: a `Hosts`.  It deliberately does not know what is scored.

Processes meet in jax.distributed.  Where each one has all weights nothing is done in step: rows are dealt out by their
predicted cost, and whoever is done with its own takes what another has not begun.  A process that is killed, hangs or
fails ends the others within --peer_timeout, with a sentence that says which one.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heapreplace
from itertools import chain, groupby
from typing import Any, NoReturn

import jax
import numpy as np

from miron_jax.errors import INTERRUPTED, InputError, printable

BEAT_SECONDS, POLL_SECONDS = 1.0, 0.1
STALL_SECONDS = 1800.0  # without a batch, of a process that waits for none of the others: its device hangs
_ROOT = "miron_jax"


class Hosts:
    """This process among those of its run; alone, all of it is local and immediate."""

    def __init__(self, index: int = 0, count: int = 1, client: Any = None, peer_timeout: float = 60.0) -> None:
        self.index, self.count, self.peer_timeout = index, count, peer_timeout
        self._client = client  # of jax.distributed's coordinator
        self._taken: dict[str, int] = {}  # of queues, alone
        self._stopped = threading.Event()
        self._leaving = threading.Lock()
        self._steps, self._waits = 0, False  # batches that came; whether this process waits for others
        self._answered = time.monotonic()  # when the coordinator last did
        self._heard = {peer: (time.monotonic(), "") for peer in range(count)}
        self._moved = {peer: (time.monotonic(), "") for peer in range(count)}  # when each last came on
        self.on_leave: Callable[[], None] = lambda: None  # what must be written before the process ends
        if client is not None:
            for task in (self._beat, self._watch):
                threading.Thread(target=task, daemon=True).start()

    @property
    def is_first(self) -> bool:
        """Whether this process reads the hub, checks the output folder and writes the results."""
        return self.index == 0

    # What all agree on

    def agree(self, name: str, value: Any = None) -> Any:
        """What the first process says (anything JSON); each name is used once."""
        if self._client is None:
            return value
        if self.is_first:
            self._set(f"said/{name}", json.dumps(value))
            return value
        with self._waiting():
            while True:
                try:
                    return json.loads(self._client.key_value_try_get(f"{_ROOT}/said/{name}"))
                except jax.errors.JaxRuntimeError as error:
                    if "NOT_FOUND" not in str(error):
                        raise
                time.sleep(POLL_SECONDS)

    def tell(self, name: str, value: Any = None) -> None:
        """Say that this process has come to `name`."""
        if self._client is not None:
            self._set(f"at/{name}/{self.index}", json.dumps(value))

    def gather(self, name: str) -> list[Any]:
        """What every process told at `name`, once all have come there."""
        if self._client is None:
            return [None]
        with self._waiting():
            while len(found := self._all(f"at/{name}/")) < self.count:
                time.sleep(POLL_SECONDS)
        told = {int(key.rsplit("/", 1)[1]): json.loads(value) for key, value in found.items()}
        return [told[index] for index in range(self.count)]

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self._waits = True
        yield
        self._waits = False
        self.step()

    def step(self) -> None:
        """This process comes on."""
        self._steps += 1

    def first_then_others(self, name: str, function: Callable[[], Any]) -> Any:
        """Run by the first process, then by the others: what it fetches they find."""
        if not self.is_first:
            self.agree(name)
        found = function()
        if self.is_first:
            self.agree(name)
        return found

    # Work

    def take(self, queue: str, lists: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Items of this process's own list, then what is left of the others'; over all processes each item once.

        `lists`: one a process, the same everywhere.  `queue` is used once.
        """
        for offset in range(self.count):
            owner = (self.index + offset) % self.count
            while (place := self._next(f"{queue}/{owner}")) < len(lists[owner]):
                yield lists[owner][place]

    def _next(self, queue: str) -> int:
        if self._client is not None:
            return self._client.key_value_increment(f"{_ROOT}/queue/{queue}", 1) - 1
        place = self._taken.get(queue, 0)
        self._taken[queue] = place + 1
        return place

    # Who is there

    def fail(self, status: int, message: str) -> NoReturn:
        """End this process; the others are told why, and do not wait for it.  The first one stays until they have."""
        with self._leaving:
            self._stopped.set()
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                self._set(f"end/{self.index}", json.dumps([status, socket.gethostname(), message]))
            if self.is_first:
                time.sleep(4 * BEAT_SECONDS)
            os._exit(status)  # jax's own end would wait for all processes

    def leave_if_one_is_lost(self, error: BaseException) -> None:
        """A collective that fails may be a peer's end, known once its beats are missed: then this does not return."""
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            time.sleep(self.peer_timeout + 4 * BEAT_SECONDS)

    def end(self) -> None:
        """All processes come here before one of them goes."""
        if self._client is None:
            return
        self.tell("end")
        self.gather("end")
        self._stopped.set()
        jax.distributed.shutdown()

    def _beat(self) -> None:
        count = 0
        while not self._stopped.is_set():
            count += 1
            try:
                self._set(f"beat/{self.index}", f"{count} {socket.gethostname()} {self._steps} {self._waits:d}")
                beats, ends = self._all("beat/"), self._all("end/")
            except jax.errors.JaxRuntimeError:  # the coordinator is gone, or late: `_watch` counts the seconds
                beats = ends = None
            if beats is not None and ends is not None:
                self._hear(beats, ends)
            self._stopped.wait(BEAT_SECONDS)

    def _hear(self, beats: dict[str, str], ends: dict[str, str]) -> None:
        now = time.monotonic()
        for key, beat in beats.items():
            peer = int(key.rsplit("/", 1)[1])
            if beat != self._heard[peer][1]:
                self._heard[peer] = (now, beat)
            _, _, steps, waits = beat.split()
            if waits == "1" or steps != self._moved[peer][1]:
                self._moved[peer] = (now, steps)
        self._answered = now
        for key, told in ends.items():
            status, host, message = json.loads(told)
            self._leave(status, f"process {key.rsplit('/', 1)[1]} ({host}) has ended: {message}")

    def _watch(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            now, again = time.monotonic(), "what is scored is kept, run the same command again"
            if now - self._answered > self.peer_timeout:
                seconds = f"{now - self._answered:.0f} s"
                self._leave(
                    INTERRUPTED, f"process 0, which coordinates the run, has not answered for {seconds}: {again}"
                )
            for peer, (moved, _) in self._moved.items():
                if now - moved > STALL_SECONDS:
                    host, seconds = "".join(self._heard[peer][1].split()[1:2]), f"{now - moved:.0f} s"
                    self._leave(
                        INTERRUPTED, f"process {peer} ({host}) has done nothing for {seconds}: it hangs; {again}"
                    )
            for peer, (heard, beat) in self._heard.items():
                if now - heard > self.peer_timeout:
                    host = "".join(beat.split()[1:2]) or "never heard from"
                    self._leave(
                        INTERRUPTED,
                        f"process {peer} ({host}) has not been heard from for {now - heard:.0f} s: it was killed, or it "
                        f"hangs; {again}",
                    )

    def _leave(self, status: int, message: str) -> NoReturn:
        """End the process from a thread of its own, whatever the main one waits for."""
        with self._leaving:  # the other thread of this process may have come to the same end
            if self._stopped.is_set():
                time.sleep(self.peer_timeout)
            self._stopped.set()
            writing = threading.Thread(target=self.on_leave, daemon=True)
            writing.start()
            writing.join(10 * BEAT_SECONDS)
            print(f"miron-jax: {printable(message)}", file=sys.stderr, flush=True)
            os._exit(status)

    def _set(self, name: str, value: str) -> None:
        self._client.key_value_set(f"{_ROOT}/{name}", value, allow_overwrite=True)

    def _all(self, below: str) -> dict[str, str]:
        return dict(self._client.key_value_dir_get(f"{_ROOT}/{below}"))


def join(coordinator: str | None, num_processes: int | None, process_id: int | None, peer_timeout: float) -> Hosts:
    """Meet the other processes: those that the cluster tells of (TPU pod, Slurm, Open MPI, Kubernetes), or the flags.

    Raises InputError where there are none.  Must come before anything that starts jax's backend.
    """
    given = coordinator is not None
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            cluster_detection_method="deactivate" if given else None,
            coordinator_bind_address=coordinator if given and coordinator.startswith(("127.", "localhost")) else None,
            initialization_timeout=int(max(60, 5 * peer_timeout)),
            heartbeat_timeout_seconds=int(2 * peer_timeout) + 60,  # this module finds a lost peer before jax does
        )
    except ValueError as error:
        raise InputError(
            f"--distributed: {error}; expected a cluster that JAX knows (TPU pod, Slurm, Open MPI, Kubernetes), or give "
            "--coordinator=host:port, --num_processes and --process_id to each process"
        ) from None
    except jax.errors.JaxRuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"--coordinator={coordinator}: the processes did not meet ({reason:.200}): start all of them, with the address "
            "of process 0"
        ) from None
    from jax._src import distributed  # its key-value store has no public name; Orbax takes it from here too

    state = distributed.global_state
    return Hosts(state.process_id, state.num_processes, state.client, peer_timeout)


def deal(
    length: np.ndarray,
    cost: np.ndarray,
    count: int,
    shards: int,
    sizes: dict[int, int],
    load: np.ndarray | None = None,
) -> list[list[list[int]]]:
    """Rows to processes, the same everywhere: for each process lists of rows of one length, longest first.

    Whole sets of `shards` rows of one length, which a process's devices compute side by side, go to the process with the
    least cost so far, longest rows first: then no process is ahead of another by more than a set of the shortest rows.
    A list is one batch: `sizes[length]` rows on each device, the last of a length fewer.  length: int [rows]; cost: float
    [rows], of one row of that length; load: float [count], what each process has of earlier parts, to which this one's is
    added.
    """
    load = np.zeros(count) if load is None else load
    sets: list[list[list[int]]] = [[] for _ in range(count)]
    loads = [(own, index) for index, own in enumerate(load.tolist())]
    heapify(loads)
    for size in np.unique(length)[::-1].tolist():
        rows = np.flatnonzero(length == size)
        for start in range(0, len(rows), shards):
            own = rows[start : start + shards].tolist()
            least, index = loads[0]
            heapreplace(loads, (least + float(cost[own[0]]), index))
            sets[index].append(own)
    for own, index in loads:
        load[index] = own
    return [list(_batches(own, length, sizes)) for own in sets]


def _batches(sets: list[list[int]], length: np.ndarray, sizes: dict[int, int]) -> Iterator[list[int]]:
    for size, own in groupby(sets, key=lambda rows: int(length[rows[0]])):
        alike = list(own)
        for start in range(0, len(alike), sizes[size]):
            yield list(chain.from_iterable(alike[start : start + sizes[size]]))
