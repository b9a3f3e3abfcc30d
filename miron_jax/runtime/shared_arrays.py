"""Arrays that the processes of a run make for each other, each a part.

Arrives: jobs, each of which makes the arrays of a key.  Leaves: the arrays in every process.  It
deliberately does not know what the arrays mean.

    STORE/.planned/KEY.npz     as files/kept.py writes it, until the run has ended
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from hashlib import blake2b

import numpy as np

from miron_jax.errors import InputError, RunEnded
from miron_jax.files.kept import ArraysByKey, Job, packed, unpacked
from miron_jax.files.store import Store, wait_for
from miron_jax.runtime.dealing import in_blocks
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.timeline import counted_in_thread

FOLDER = ".planned"
MOST_AHEAD = 8


class SharedArrays:
    """Arrays by key: those that a process has kept of earlier runs, and those that one of the
    processes makes.  What cannot be made or written is None in all processes, for each to make."""

    def __init__(self, kept: ArraysByKey | None, store: Store, hosts: Hosts) -> None:
        self._kept = kept
        self._store = store
        self._hosts = hosts
        # of the batches that are planned at a time, each by another process; they lie in memory
        self.num_ahead = min(hosts.count, MOST_AHEAD)
        self._num_promises = 0
        self._working = list[Future[None]]()
        self._announced = dict[str, str]()  # key of a job -> the name that its end is announced by

    def promise(self, jobs: Sequence[Job]) -> None:
        """A thread of each process takes jobs that no other has begun; `get` waits for them."""
        self._num_promises += 1
        name = f"promise/{self._num_promises}"
        digest = blake2b(repr([job[:2] for job in jobs]).encode(), digest_size=16).hexdigest()
        if self._hosts.agree(name, digest) != digest:
            return  # with other requests than the first process; the check of plans says so
        self._announced |= {job.key: f"{name}/{i}" for i, job in enumerate(jobs)}
        blocks = in_blocks(jobs, [job.cost for job in jobs], self._hosts.count)
        thread = ThreadPoolExecutor(1, initializer=counted_in_thread())
        self._working = [each for each in self._working if not each.done() or each.exception()]
        self._working.append(thread.submit(self._work, name, blocks))
        thread.shutdown(wait=False)

    def get(self, key: str) -> Mapping[str, np.ndarray] | None:
        """None: they are not there."""
        name = self._announced.get(key)
        if name is not None and not self._hosts.announced(name, self._check):
            return None
        if self._kept is not None and (arrays := self._kept.get(key)) is not None:
            return arrays
        if name is None:
            return None
        try:
            return unpacked(key, wait_for(self._store, _file(key)))
        except (InputError, OSError):  # whoever needs it makes it
            return None

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep for later runs what this process has made for itself."""
        if self._kept is not None:
            self._kept.put(key, arrays)

    def remove(self) -> None:
        """Remove what the processes have made for each other, once none reads it any more."""
        wait(self._working)
        self._hosts.arrive(FOLDER)
        if self._hosts.is_first:
            self._hosts.gather(FOLDER)
            with suppress(OSError):  # a run with all its scores does not end by what is left here
                self._store.remove_below(FOLDER)

    def _check(self) -> None:
        """Raises what has ended a thread."""
        for each in self._working:
            if each.done():
                each.result()

    def _work(self, name: str, lists: Sequence[Sequence[Job]]) -> None:
        for job in self._hosts.take(name, lists):
            is_there = False
            try:
                self._do(job)
                is_there = True
            except (RunEnded, OSError):
                pass  # whoever needs it makes it, and may meet the same
            finally:
                self._hosts.announce(self._announced[job.key], is_there)

    def _do(self, job: Job) -> None:
        """Raises RunEnded, OSError."""
        if self._store.has(_file(job.key)):  # by a run that was killed
            return
        arrays = None if self._kept is None else self._kept.get(job.key)
        if arrays is None:
            arrays = job.make()
            self.put(job.key, arrays)
        self._store.put(_file(job.key), packed(job.key, arrays))


def _file(key: str) -> str:
    return f"{FOLDER}/{key}.npz"
