"""Finished scores and texts in the output folder, by content: what a run that was killed need not do again.

Arrives: scores of requests, texts, each under the digest of all that it depends on beside the weights.  Leaves: the same
to a later run.  It deliberately does not know requests, plans or tasks.

    OUTPUT/journal/KEY/WRITER-NUMBER-CHECKSUM.npz      parts, each whole or absent; CHECKSUM is of its bytes
    OUTPUT/journal/KEY/damaged/..                     parts that were found to be others than their names say
    OUTPUT/journal/KEY/answers.json                    of a user's own model: what it answers to fixed tokens

KEY names everything that all entries depend on: weights, architecture, tokenizer, dtype, matmul precision, platform and the
version of the engine's arithmetic; behind a dash also a user's own model's answers, which on another layout of devices are
the same within a tolerance.  A part holds entries of some seconds; it is written by a thread of its own.
"""

import io
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.files.store import SEEN_SECONDS, Store
from miron_jax.ragged import offsets_of
from miron_jax.runtime.answers import Answers

NUMERICS = 1  # version of the engine's arithmetic: one more whenever a score may change beyond float32 rounding
FOLDER, DAMAGED, ANSWERS = "journal", "damaged", "answers.json"
FLUSH_SECONDS = 5.0  # what a run that is killed loses at most, and the time of a part


class Entries(NamedTuple):
    """Scores of requests: the tokens of entry i are [offsets[i], offsets[i + 1])."""

    digests: np.ndarray  # uint8 [R, 16]
    offsets: np.ndarray  # int64 [R + 1]
    logprob: np.ndarray  # float32 [N], nats
    rank: np.ndarray  # int32 [N]
    set_logprob: np.ndarray  # float32 [R], nats


class Text(NamedTuple):
    text: str
    token_ids: tuple[int, ...]
    ended: Any  # as `generate.Generated` has it


def run_key(parts: Mapping[str, Any]) -> str:
    """Names what all entries of a run depend on."""
    told = json.dumps({"numerics": NUMERICS, **parts}, sort_keys=True)
    return blake2b(told.encode(), digest_size=16).hexdigest()


def key_of_answers(store: Store, key: str, answers: Answers, say: Callable[[str], None] = lambda line: None) -> str:
    """The key of a model that answers so: one whose entries are there already, where it answers the same.

    A model may compute otherwise with the same weights and code: its code reads a file.  Raises OSError.
    """
    own = f"{key}-{answers.digest}"
    others = [name for name in store.names(FOLDER) if name.startswith(f"{key}-") and name != own]
    if store.has(f"{FOLDER}/{own}/{ANSWERS}"):
        return own
    for name in others:
        try:
            found = Answers.of_json(parse_json(store.get(f"{FOLDER}/{name}/{ANSWERS}")))
            why = answers.differ(found)
        except (FileNotFoundError, ValueError, TypeError):
            why = "in a way that is not known, its answers.json is damaged"
        if why is None:
            return name
        say(f"{store.name}/{FOLDER}/{name} is not taken: with the same weights and code it answers otherwise, {why}")
    store.put(f"{FOLDER}/{own}/{ANSWERS}", json.dumps(answers).encode())
    return own


class Journal:
    """What is finished, and where more of it goes.  Raises OSError where the folder cannot be written to."""

    def __init__(self, store: Store, key: str, writer: str, say: Callable[[str], None] = lambda line: None) -> None:
        self._store, self._folder, self._say = store, f"{FOLDER}/{key}", say
        self._writer = f"{writer}-{time.time_ns():x}"
        self._scores: list[Entries] = []  # of parts that were read
        self._place: dict[bytes, tuple[int, int]] = {}  # digest -> part, entry
        self._texts: dict[str, Text] = {}
        self._read: set[str] = set()
        self._entries: list[Entries] = []  # not yet written
        self._new_texts: list[tuple[str, Text]] = []
        self._held: tuple[list[Entries], list[tuple[str, Text]]] = [], []
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._count, self._last = 0, time.monotonic()
        self._lock = threading.RLock()  # a process that has lost a peer writes from another thread
        self.seconds = 0.0  # that it took: those that the run waited, and those of the writing thread

    def __enter__(self) -> Self:
        self.read()
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            self.flush()
        finally:
            self._thread.shutdown()

    @property
    def num_known(self) -> int:
        """Scores and texts that were read."""
        return len(self._place) + len(self._texts)

    def read(self) -> None:
        """Take in the parts that have come since the last time."""
        for name in self._store.names(self._folder):
            if name in self._read or not name.endswith(".npz") or name.startswith("."):
                continue
            self._read.add(name)
            path = f"{self._folder}/{name}"
            try:
                data = self._store.get(path)
            except FileNotFoundError:
                continue  # another host has set it aside
            try:
                self._take_in(name, data)
            except Exception:  # a zip of arrays and JSON: what damage raises has no class in common
                self._store.put(f"{self._folder}/{DAMAGED}/{name}", data)
                self._store.remove(path)
                self._say(f"{self._store.name}/{path} is damaged: set aside, what it held is scored again")

    def _take_in(self, name: str, data: bytes) -> None:
        if _checksum(data) != name.removesuffix(".npz").rsplit("-", 1)[-1]:
            raise ValueError("other bytes than were written")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            entries = Entries(*(arrays[field] for field in Entries._fields))
            texts = parse_json(arrays["texts"].tobytes())
        part = len(self._scores)
        self._scores.append(entries)
        self._place.update((own.tobytes(), (part, i)) for i, own in enumerate(entries.digests))
        self._texts.update((digest, Text(text, tuple(ids), ended)) for digest, text, ids, ended in texts)

    def known(self, digests: Sequence[bytes]) -> np.ndarray:
        """Bool [R]: which requests' scores are here."""
        return np.asarray([own in self._place for own in digests], bool)

    def scores_of(self, digests: Sequence[bytes]) -> Entries:
        """Of requests that are known, in this order."""
        places = [self._place[own] for own in digests]
        cuts = [self._scores[part].offsets[i : i + 2] for part, i in places]
        spans = [(self._scores[part], slice(a, b)) for (part, _), (a, b) in zip(places, cuts, strict=True)]
        return Entries(
            np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16),
            offsets_of([b - a for a, b in cuts]),
            np.concatenate([np.zeros(0, np.float32), *(own.logprob[span] for own, span in spans)]),
            np.concatenate([np.zeros(0, np.int32), *(own.rank[span] for own, span in spans)]),
            np.asarray([self._scores[part].set_logprob[i] for part, i in places], np.float32),
        )

    def text_of(self, digest: str) -> Text | None:
        return self._texts.get(digest)

    def add(self, entries: Entries) -> None:
        """Scores that are finished; they are on disk some seconds later."""
        with self._lock:
            self._entries.append(entries)
            self._flush_when_due()

    def add_text(self, digest: str, text: Text) -> None:
        with self._lock:
            self._new_texts.append((digest, text))
            self._flush_when_due()

    def _flush_when_due(self) -> None:
        if time.monotonic() - self._last > FLUSH_SECONDS and (self._writing is None or self._writing.done()):
            start = time.monotonic()
            self._write(wait=False)
            self.seconds += time.monotonic() - start

    def flush(self) -> None:
        """All that was added is on disk."""
        start = time.monotonic()
        with self._lock:
            self._write(wait=True)
        self.seconds += time.monotonic() - start

    @property
    def written(self) -> tuple[str, int]:
        """This process's name in the journal, and the parts that it has written."""
        return self._writer, self._count

    def read_those_of(self, writers: Iterable[tuple[str, int]]) -> None:
        """Take in all parts of other processes, once they are seen here.  Raises InputError where they do not come."""
        start = time.monotonic()
        for writer, count in writers:
            while True:
                names = self._store.names(self._folder)
                if sum(name.startswith(f"{writer}-") for name in names) >= count:
                    break
                if time.monotonic() - start > SEEN_SECONDS:
                    raise InputError(
                        f"--output={self._store.name}: what process {writer.partition('-')[0]} wrote is not seen by process "
                        f"0 after {SEEN_SECONDS:.0f} s: name a folder that all hosts share"
                    )
                time.sleep(0.2)
        self.read()

    def _write(self, wait: bool) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            try:
                writing.result()
            except BaseException:
                self._entries, self._new_texts = self._held[0] + self._entries, self._held[1] + self._new_texts
                raise
        if self._entries or self._new_texts:
            entries, texts = self._entries, self._new_texts
            self._entries, self._new_texts, self._last = [], [], time.monotonic()
            self._count += 1
            self._held = entries, texts  # until they are written
            self._writing = self._thread.submit(self._put, entries, texts, self._count)
            if wait:
                self._write(wait)

    def _put(self, entries: list[Entries], texts: list[tuple[str, Text]], number: int) -> None:
        start = time.monotonic()
        data = _bytes_of(entries, texts)
        name = f"{self._writer}-{number:06d}-{_checksum(data)}.npz"
        self._store.put(f"{self._folder}/{name}", data)
        self.seconds += time.monotonic() - start


def _bytes_of(entries: list[Entries], texts: list[tuple[str, Text]]) -> bytes:
    """One part."""
    offsets = offsets_of(np.concatenate([np.zeros(0, np.int64), *(np.diff(own.offsets) for own in entries)]))
    columns = {
        "digests": np.concatenate([np.zeros((0, 16), np.uint8), *(own.digests for own in entries)]),
        "logprob": np.concatenate([np.zeros(0, np.float32), *(own.logprob for own in entries)]),
        "rank": np.concatenate([np.zeros(0, np.int32), *(own.rank for own in entries)]),
        "set_logprob": np.concatenate([np.zeros(0, np.float32), *(own.set_logprob for own in entries)]),
    }
    told = json.dumps([[digest, *text] for digest, text in texts]).encode()
    buffer = io.BytesIO()
    np.savez(buffer, offsets=offsets, texts=np.frombuffer(told, np.uint8), **columns)
    return buffer.getvalue()


def _checksum(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
