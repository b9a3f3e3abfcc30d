"""Claims on the checkpoints of a run that several processes score.

Arrives: the run's store.  Leaves: locks, one for each checkpoint that this process scores now.  It
deliberately does not know what is scored.

A claim that is lost, as its process stood still for too long, costs a second score at most: the
process asks `has` before it writes.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from miron_jax.errors import InputError
from miron_jax.files.store import BEAT_SECONDS, Lock, Store

FOLDER = ".claims"
_TOP = "top"


class Claims:
    """Which checkpoints this process has taken, by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, Lock] = {}
        self._seen: dict[str, tuple[str, float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release_all()

    def take(self, name: str) -> bool:
        """Take a checkpoint; False if another process has it.  Raises OSError."""
        try:
            self._held[name] = Lock(self._store, f"{FOLDER}/{name}", seen=self._seen)
        except InputError:
            return False
        return True

    def has(self, name: str) -> bool:
        """Whether the checkpoint has been this process's since it was taken.  Raises OSError."""
        if name not in self._held:
            return False
        try:
            if not self._held[name].renew():
                return True
        except InputError:
            pass
        self._held.pop(name).__exit__()
        return False

    def release(self, name: str) -> bool:
        """Leave a checkpoint to others; returns whether this process still had it."""
        had = self.has(name)
        if had:
            self._held.pop(name).__exit__()
        return had

    def release_all(self) -> None:
        for name in [*self._held]:
            self.release(name)

    @contextmanager
    def top(self) -> Iterator[None]:
        """Waits for what the output folder holds beside checkpoints, which one process at a time
        writes."""
        while not self.take(_TOP):
            time.sleep(BEAT_SECONDS / 5)
        try:
            yield
        finally:
            self.release(_TOP)
