"""Processes of this machine that tokenize tasks beside the one that plans them.

Arrives: a run's configuration, jobs.  Leaves: the arrays of each job's key, in a folder.  It
deliberately does not know what the arrays mean.

A helper finds the inputs by itself and goes the way of the process that it helps
(`RunTasks.request_batches`), so it has the same jobs by the same keys, unless files have changed
meanwhile.  It makes those that it is sent the keys of.  Threads would not do: Python runs one at a
time.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.errors import RunEnded
from miron_jax.files.kept import Job, KeptArrays
from miron_jax.files.readers import Json
from miron_jax.files.temporary import remove_abandoned, temporary_folder
from miron_jax.runtime.processors import usable_processors
from miron_jax.runtime.timeline import spent_on

Arrays = Mapping[str, np.ndarray]
# Examples of tasks that nothing is kept of from which on helpers pay.  CORE has 52,000, of which
# one process plans 2,500 a second; a helper takes 3.5 s to start.
LEAST_EXAMPLES = 10_000
MOST_HELPERS = 4  # about what one process can plan for
MOST_HELD = 1 << 28  # bytes of this process's arrays that nobody has asked for yet
PATIENCE = 120.0  # seconds for a job, which takes about one


class Helped:
    """Arrays by key, of which helpers make a part.

    The jobs of a group go to one process as long as others have work, since they share prompts and
    pieces of text.
    """

    num_ahead = 1

    def __init__(
        self, config: RunConfig, kept: KeptArrays | None, count: int, say: Callable[[str], None]
    ) -> None:
        """Start `count` helpers, which import what they need until `begin`.

        `kept`: of earlier runs; None: a temporary folder is for what helpers make.  `say`: gets a
        line about a helper that ends early.  Raises OSError if there is no temporary folder.
        """
        self._kept = kept
        self._say = say
        opened = ExitStack()
        atexit.register(opened.close)
        if kept is None:
            parent = Path(tempfile.gettempdir())
            remove_abandoned(parent)
            kept = KeptArrays(opened.enter_context(temporary_folder(parent)) / "plans", say)
        self._shared = kept  # with helpers
        self._changed = threading.Condition()
        self._jobs = dict[str, Job]()  # that nobody has begun
        self._underway = set[str]()  # keys of jobs that helpers do
        self._process_of = dict[str, int]()  # group -> number of a helper; 0: this process
        self._made = dict[str, Arrays]()  # by this process, until they are asked for
        self._writer = ThreadPoolExecutor(1)
        self._num_promises = 0
        self._first = dict[str, Arrays | None]()  # what the jobs of the first promise have given
        self._helpers = list[subprocess.Popen[bytes]]()
        # of the tokenizer; in a pool that the first texts make
        self._num_threads = str(max(1, usable_processors() // (count + 1)))
        with suppress(OSError):  # no more processes, or no memory for them
            while len(self._helpers) < count:
                self._helpers.append(helper := _start(self._num_threads))
                opened.callback(_kill, helper)  # before its folder is removed
                _send(helper.stdin, [asdict(config), str(kept.folder)])

    def begin(self) -> None:
        """Let them read the data files, which are there now."""
        for number, helper in enumerate(self._helpers, 1):
            threading.Thread(target=self._direct, args=(number, helper), daemon=True).start()

    def promise(self, jobs: Sequence[Job]) -> None:
        with self._changed:
            self._num_promises += 1
            new = [job for job in jobs if self._kept is None or not self._kept.has(job.key)]
            if self._num_promises == 1:
                if sum(job.cost for job in new) < LEAST_EXAMPLES:
                    self._end_helpers()
                if self._helpers:
                    os.environ.setdefault("RAYON_NUM_THREADS", self._num_threads)
            self._jobs |= {job.key: job for job in new}
            self._changed.notify_all()

    def get(self, key: str) -> Arrays | None:
        while job := self._job_before(key):
            made = job.make()
            self.put(job.key, made)
            self._made[job.key] = made
        arrays = self._made.pop(key, None)
        if arrays is None:
            arrays = self._shared.get(key)
        if self._num_promises == 1:
            self._first[key] = arrays
        return arrays

    def put(self, key: str, arrays: Arrays) -> None:
        if self._kept is not None:
            self._writer.submit(self._kept.put, key, arrays)

    def _job_before(self, key: str) -> Job | None:
        """What this process does before it asks for these arrays; None: they are there, or it makes
        them."""
        with self._changed:
            while key in self._jobs or key in self._underway:
                held = sum(each.nbytes for made in self._made.values() for each in made.values())
                job = self._next(0) if held < MOST_HELD else self._jobs.pop(key, None)
                if job is not None:
                    return job
                with spent_on("wait_for_host"):
                    if not self._changed.wait(PATIENCE):
                        break
        return None

    def _next(self, process: int) -> Job | None:
        """Take a job that this process has texts of, or that nobody has, or another has."""
        jobs = self._jobs.values()
        job = next((job for job in jobs if self._process_of.get(job.group) == process), None)
        if job is None:
            free = (job for job in jobs if job.group not in self._process_of)
            job = max(free, key=lambda job: job.cost, default=None)
        if job is None:
            job = next(reversed(jobs), None)
        if job is not None:
            self._process_of[job.group] = process
            del self._jobs[job.key]
        return job

    def _direct(self, number: int, helper: subprocess.Popen[bytes]) -> None:
        """Send a helper the key of one job after another, until nothing is left to do."""
        requests = helper.stdin
        replies = helper.stdout
        assert requests is not None
        assert replies is not None
        underway = ""
        knows_first = False
        with suppress(BrokenPipeError), helper:  # closes the pipes, and waits for its end
            try:
                _send(requests, None)
                while receive(replies):
                    with self._changed:
                        self._end(underway)
                        while (job := self._next(number)) is None:
                            if self._num_promises > 1 or helper not in self._helpers:
                                return
                            self._changed.wait()
                        underway = job.key
                        self._underway.add(underway)
                        tells_first = self._num_promises > 1 and not knows_first
                    if tells_first:
                        _send(requests, {key: _lists(each) for key, each in self._first.items()})
                        knows_first = True
                    _send(requests, underway)
            except (OSError, EOFError, ValueError):
                if helper in self._helpers:
                    self._say(
                        "a process that helped to tokenize has ended: the run goes on without it"
                    )
            finally:
                with self._changed:
                    self._end(underway)
                helper.kill()

    def _end(self, key: str) -> None:
        self._underway.discard(key)
        self._changed.notify_all()

    def _end_helpers(self) -> None:
        helpers = self._helpers
        self._helpers = []
        for each in helpers:
            each.kill()


class Helping:
    """What a helper has in the place of `Helped`: while it waits for arrays, it makes those that it
    is asked for."""

    num_ahead = 1

    def __init__(self, folder: Path, requests: IO[bytes], replies: IO[bytes]) -> None:
        self._kept = KeptArrays(folder, lambda line: None)
        self._requests = requests
        self._replies = replies
        self._jobs = dict[str, Job]()
        self._known = dict[str, Arrays | None]()

    def promise(self, jobs: Sequence[Job]) -> None:
        self._jobs |= {job.key: job for job in jobs}

    def get(self, key: str) -> Arrays | None:
        """Raises EOFError when nobody asks any more."""
        while key not in self._known:
            message = receive(self._requests)
            if isinstance(message, str):
                _send(self._replies, self._make(message))
            else:
                self._known |= {key: _arrays(each) for key, each in message.items()}
        return self._known[key]

    def put(self, key: str, arrays: Arrays) -> None:
        """Nothing: the process that is helped has them."""

    def ready(self) -> None:
        _send(self._replies, True)

    def _make(self, key: str) -> bool:
        """Whether the arrays are in the folder."""
        with suppress(RunEnded, OSError):  # whoever needs them makes them, and may meet the same
            if job := self._jobs.get(key):
                self._kept.put(key, job.make())
        return self._kept.has(key)


def _start(num_threads: str) -> subprocess.Popen[bytes]:
    """Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-c", "from miron_jax.cli.helper import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"RAYON_NUM_THREADS": num_threads, **os.environ, "JAX_PLATFORMS": "cpu"},
        start_new_session=True,  # a terminal's Ctrl-C is for the process that is helped
    )


def _kill(helper: subprocess.Popen[bytes]) -> None:
    helper.kill()
    helper.wait()


def _send(to: IO[bytes] | None, message: Json) -> None:
    """A line of JSON."""
    assert to is not None
    to.write(json.dumps(message).encode() + b"\n")
    to.flush()


def receive(source: IO[bytes]) -> Json:
    """The next message.  Raises EOFError where none comes any more, ValueError for what is none."""
    line = source.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)


def _lists(arrays: Arrays | None) -> Json:
    if arrays is None:
        return None
    return {name: [each.dtype.str, each.tolist()] for name, each in arrays.items()}


def _arrays(lists: Json) -> Arrays | None:
    """What `_lists` was given."""
    if lists is None:
        return None
    return {name: np.asarray(values, dtype) for name, (dtype, values) in lists.items()}
