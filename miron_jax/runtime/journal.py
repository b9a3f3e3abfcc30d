"""The journal: finished scores and texts in the output folder, which a resumed run reads instead of
computing them again.

Arrives: scores of requests, and texts, each with a digest of everything that it depends on except
the weights.  Leaves: the same, for a later run.  It deliberately does not know requests, plans or
tasks.

    OUTPUT/journal/KEY/WRITER-NUMBER-CHECKSUM.npz  segments, each whole or absent; CHECKSUM is of
                                                   its bytes
    OUTPUT/journal/KEY/damaged/..                  segments that did not match their checksum or
                                                   could not be read
    OUTPUT/journal/KEY/answers.json                the answers of a user's own model to fixed tokens

KEY is a digest of what all entries depend on (evaluation/journal_key): weights, architecture, EOS
ids, tokenizer, dtype, matmul precision, platform, implementation of attention and the version of
the engine's arithmetic.  An entry's own digest is of its tokens and spans
(planning/request_batches), or of a prompt and its sampling (engine/text_requests).  For a
user's own model a digest of its answers follows KEY after a dash; on another layout of devices they
count as the same within a tolerance.  A segment holds the entries of a few seconds; a thread
writes it.
"""

import io
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, parse_json
from miron_jax.files.store import SEEN_SECONDS, Store
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.runtime.timeline import spent_on
from miron_jax.tokens.ragged import offsets_of

# version of the engine's arithmetic: raise it whenever a score may change beyond float32 rounding
NUMERICS = 1
FOLDER, DAMAGED, ANSWERS = "journal", "damaged", "answers.json"
VERDICT = "verdict/"  # how the names of verdicts of programs begin
FLUSH_SECONDS = 5.0  # between two segments: a run that is killed loses about as much work


class Entries(NamedTuple):
    """Scores of R requests with N scored tokens; those of entry i are [offsets[i], offsets[i +
    1])."""

    digests: np.ndarray  # uint8 [R, 16]
    offsets: np.ndarray  # int64 [R + 1]
    logprob: np.ndarray  # float32 [N], nats
    rank: np.ndarray  # int32 [N]
    set_logprob: np.ndarray  # float32 [R], nats
    # float32 [N, 3]: see `target_logprob`; [N, 0]: not asked.  One or the other in a journal, as
    # its key says
    distribution: np.ndarray


class JournalText(NamedTuple):
    """A text that the model generated."""

    text: str
    token_ids: tuple[int, ...]
    ended: Any  # as `generate.Generated` has it


_NO_ENTRIES = Entries(
    np.zeros((0, 16), np.uint8),
    np.zeros(1, np.int64),
    np.zeros(0, np.float32),
    np.zeros(0, np.int32),
    np.zeros(0, np.float32),
    np.zeros((0, 0), np.float32),
)
# scores of requests, or the digest of a request for a text with its text
_New = Entries | tuple[str, JournalText]


def run_key(parts: Mapping[str, Json]) -> str:
    """Digest of what all entries of a run depend on."""
    document = json.dumps({"numerics": NUMERICS, **parts}, sort_keys=True)
    return blake2b(document.encode(), digest_size=16).hexdigest()


def key_of_answers(store: Store, key: str, answers: Answers, progress: Progress = SILENT) -> str:
    """The key of a user's own model: that of an earlier run with the same answers within the
    tolerance, or a new one.

    Weights and code alone do not identify the model, because its code may read files.  Raises
    OSError.
    """
    new_key = f"{key}-{answers.digest}"
    if store.has(f"{FOLDER}/{new_key}/{ANSWERS}"):
        return new_key
    for name in store.names(FOLDER):
        if not name.startswith(f"{key}-") or name == new_key:
            continue
        try:
            why = answers.differ(
                Answers.of_json(parse_json(store.get(f"{FOLDER}/{name}/{ANSWERS}")))
            )
        except (FileNotFoundError, ValueError, TypeError):
            why = "in a way that is not known, its answers.json is damaged"
        if why is None:
            return name
        progress.warn(
            f"{store.name}/{FOLDER}/{name} is not taken: with the same weights and code it answers "
            f"otherwise, {why}"
        )
    store.put(f"{FOLDER}/{new_key}/{ANSWERS}", json.dumps(answers).encode())
    return new_key


class Journal:
    """Scores and texts of earlier runs, and a writer of new ones.  Raises OSError if the folder is
    not writable."""

    def __init__(self, store: Store, key: str, writer: str, progress: Progress = SILENT) -> None:
        self._store = store
        self._folder = f"{FOLDER}/{key}"
        self._progress = progress
        self._writer = f"{writer}-{time.time_ns():x}"
        self._segments: list[Entries] = []  # of the segments that were read
        self._entry_of: dict[bytes, tuple[int, int]] = {}  # digest -> segment, entry in it
        self._texts: dict[str, JournalText] = {}
        self._names_read: set[str] = set()
        self._pending: list[_New] = []  # not yet written
        self._in_flight: list[_New] = []  # what the thread writes
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._num_written = 0
        self._last = time.monotonic()
        self._lock = threading.RLock()  # a process that has lost a peer writes from another thread
        self.seconds = 0.0  # that the run waited for the journal, and that the thread took

    def __enter__(self) -> Self:
        self.read()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            self._thread.shutdown()

    @property
    def num_known(self) -> int:
        """Scores and texts that were read, verdicts of programs included."""
        return len(self._entry_of) + len(self._texts)

    @property
    def what_is_known(self) -> str:
        """What was read, in words."""
        verdicts = sum(name.startswith(VERDICT) for name in self._texts)
        scores = f"{self.num_known - verdicts} scores and texts"
        return f"{scores} and {verdicts} verdicts of programs" if verdicts else scores

    @spent_on("load")
    def read(self) -> None:
        """Read the segments that are new since the last call; a damaged one is set aside."""
        for name in self._store.names(self._folder):
            if name in self._names_read or not name.endswith(".npz") or name.startswith("."):
                continue
            self._names_read.add(name)
            path = f"{self._folder}/{name}"
            try:
                data = self._store.get(path)
            except FileNotFoundError:
                continue  # another host has set it aside
            try:
                self._load(name, data)
            except Exception:  # a damaged zip of arrays and JSON raises errors of many classes
                self._store.put(f"{self._folder}/{DAMAGED}/{name}", data)
                self._store.remove(path)
                self._progress.warn(
                    f"{self._store.name}/{path} is damaged: set aside, what it held is scored again"
                )

    def _load(self, name: str, data: bytes) -> None:
        if _checksum(data) != name.removesuffix(".npz").rsplit("-", 1)[-1]:
            raise ValueError("other bytes than were written")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            nothing = {"distribution": np.zeros((len(arrays["rank"]), 0), np.float32)}
            columns = {**nothing, **arrays}
            entries = Entries(*map(columns.__getitem__, Entries._fields))
            texts = parse_json(arrays["texts"].tobytes())
        segment = len(self._segments)
        self._segments.append(entries)
        for i, digest in enumerate(entries.digests):
            self._entry_of[digest.tobytes()] = (segment, i)
        for digest, text, ids, ended in texts:
            self._texts[digest] = JournalText(text, tuple(ids), ended)

    def known(self, digests: Sequence[bytes]) -> np.ndarray:
        """Bool [R]: whether the journal has the scores of each request."""
        return np.asarray([digest in self._entry_of for digest in digests], bool)

    def scores_of(self, digests: Sequence[bytes]) -> Entries:
        """Scores of known requests, in the order of `digests`."""
        logprob = [_NO_ENTRIES.logprob]
        rank = [_NO_ENTRIES.rank]
        set_logprob: list[float] = []
        distribution: list[np.ndarray] = []
        for segment, i in map(self._entry_of.__getitem__, digests):
            entries = self._segments[segment]
            span = slice(*entries.offsets[i : i + 2])
            logprob.append(entries.logprob[span])
            rank.append(entries.rank[span])
            set_logprob.append(entries.set_logprob[i])
            distribution.append(entries.distribution[span])
        return Entries(
            np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16),
            offsets_of([*map(len, rank[1:])]),
            np.concatenate(logprob),
            np.concatenate(rank),
            np.asarray(set_logprob, np.float32),
            np.concatenate(distribution or [_NO_ENTRIES.distribution]),
        )

    def text_of(self, digest: str) -> JournalText | None:
        return self._texts.get(digest)

    def add(self, entries: Entries) -> None:
        """Add finished scores; they are written within seconds."""
        self._add(entries)

    def add_text(self, digest: str, text: JournalText) -> None:
        """Add a finished text; it is written within seconds."""
        self._add((digest, text))

    def _add(self, new: _New) -> None:
        with self._lock:
            self._pending.append(new)
            if time.monotonic() - self._last > FLUSH_SECONDS and (
                self._writing is None or self._writing.done()
            ):
                start = time.monotonic()
                self._write()
                self.seconds += time.monotonic() - start

    @spent_on("write")
    def flush(self) -> None:
        """Write all that was added, and wait for it."""
        start = time.monotonic()
        with self._lock:
            self._write()
            self._wait()
        self.seconds += time.monotonic() - start

    @property
    def written(self) -> tuple[str, int]:
        """This process's name in the journal, and how many segments it has written."""
        return self._writer, self._num_written

    def read_from(self, writers: Iterable[tuple[str, int]]) -> None:
        """Wait until all segments of these writers (see `written`) are visible, then read them.
        Raises InputError."""
        start = time.monotonic()
        for writer, count in writers:
            while (
                sum(name.startswith(f"{writer}-") for name in self._store.names(self._folder))
                < count
            ):
                if time.monotonic() - start > SEEN_SECONDS:
                    raise InputError(
                        f"--output={self._store.name}: what process {writer.partition('-')[0]} "
                        f"wrote is not seen by process 0 after {SEEN_SECONDS:.0f} s: name a folder "
                        "that all hosts share"
                    )
                time.sleep(0.2)
        self.read()

    @spent_on("write")
    def _write(self) -> None:
        """Hand all that is pending to the thread as one segment, once the segment before it is
        written."""
        self._wait()
        if self._pending:
            self._in_flight = self._pending
            self._pending = []
            self._last = time.monotonic()
            self._num_written += 1
            self._writing = self._thread.submit(self._put, self._in_flight, self._num_written)

    def _wait(self) -> None:
        """Wait for the thread.  Raises what it raised; what it was to write is then pending
        again."""
        if self._writing is None:
            return
        writing = self._writing
        self._writing = None
        try:
            writing.result()
        except BaseException:
            self._pending = self._in_flight + self._pending
            raise

    def _put(self, new: list[_New], number: int) -> None:
        start = time.monotonic()
        data = _bytes_of(new)
        name = f"{self._writer}-{number:06d}-{_checksum(data)}.npz"
        self._store.put(f"{self._folder}/{name}", data)
        self.seconds += time.monotonic() - start


def _bytes_of(new: list[_New]) -> bytes:
    """The file of a segment."""
    entries: list[Entries] = []
    texts: list[tuple[object, ...]] = []
    for each in new:
        if isinstance(each, Entries):
            entries.append(each)
        else:
            texts.append((each[0], *each[1]))
    entries = entries or [_NO_ENTRIES]
    joined = map(np.concatenate, zip(*entries, strict=True))
    columns = dict(zip(Entries._fields, joined, strict=True))
    if not columns["distribution"].size:
        del columns["distribution"]
    columns["offsets"] = offsets_of(np.concatenate([np.diff(each.offsets) for each in entries]))
    columns["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def _checksum(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
