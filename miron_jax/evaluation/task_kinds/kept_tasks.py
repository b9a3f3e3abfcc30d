"""What earlier runs or other processes have made of a task: its tokenized requests, and the
estimate of its rows.

Arrives: a task with its examples, a tokenizer, limits; requests of some of its prompts.  Leaves:
the same requests in a later run.  It deliberately does not know how prompts are made.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.rules import printed_value
from miron_jax.evaluation.task_kinds.interface import LoadedTask, RowSizes, Setup
from miron_jax.files.kept import Job, key_of
from miron_jax.model.checkpoints.fingerprint import tokenizer_fingerprint
from miron_jax.planning.request_batches import LEAST_KEPT, with_digests
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import Tokenizer, reads_names_as_text


class KeptChunk(NamedTuple):
    """The requests of consecutive prompts of a task."""

    requests: Requests
    stop: int  # index of the prompt behind them
    is_last: bool


class KeptTask:
    """What is kept of one task.  It is nothing where the run keeps nothing, and where code or a
    tokenizer of the user's own makes the requests, of which no key is known."""

    def __init__(self, source: LoadedTask, setup: Setup, max_length: int | None) -> None:
        self._kept = setup.kept if _has_key(source, setup.tokenizer) else None
        if self._kept is not None:
            limits = (setup.config.limit, max_length, *(setup.config.rows or ()))
            parts = (*_parts_of(source), *limits, _parts_of_tokenizer(setup.tokenizer))
            self._key = key_of(*parts, *(setup.chat.key if setup.chat is not None else ()))

    def requests_from(self, start: int) -> KeptChunk | None:
        """The requests of prompts from this index on; None: they are not there."""
        if self._kept is None or (kept := self._kept.get(key_of(self._key, start))) is None:
            return None
        arrays = {**kept}
        stop = int(arrays.pop("stop"))
        is_last = bool(arrays.pop("is_last"))
        return KeptChunk(Requests(**arrays), stop, is_last)

    def keep_requests(self, start: int, chunk: KeptChunk) -> Requests:
        """Keep them, unless the task is small; returns them with their digests."""
        requests = with_digests(chunk.requests)
        if self._kept is None or (not start and len(requests.token_ids) < LEAST_KEPT):
            return requests
        self._kept.put(key_of(self._key, start), _arrays_of(chunk._replace(requests=requests)))
        return requests

    def requests_job(self, start: int, cost: float, make: Callable[[], KeptChunk]) -> Iterator[Job]:
        """What makes the requests of prompts from this index on; nothing without a key."""

        def arrays() -> dict[str, np.ndarray]:
            chunk = make()
            return _arrays_of(chunk._replace(requests=with_digests(chunk.requests)))

        if self._kept is not None:
            yield Job(key_of(self._key, start), cost, arrays, self._key)

    def row_sizes(self, sharing: str) -> RowSizes | None:
        """The estimate for rows that share so; None: it is not there."""
        if self._kept is None or (arrays := self._kept.get(key_of(self._key, sharing))) is None:
            return None
        longest, num_nodes, plain, unique, stops = (arrays[name] for name in RowSizes._fields)
        return RowSizes(int(longest), num_nodes, float(plain), float(unique), stops)

    def keep_row_sizes(self, sharing: str, sizes: RowSizes) -> None:
        if self._kept is not None and sizes.plain_tokens >= LEAST_KEPT:
            self._kept.put(key_of(self._key, sharing), _arrays_of_sizes(sizes))

    def row_sizes_job(
        self, sharing: str, num_examples: int, make: Callable[[], RowSizes]
    ) -> Iterator[Job]:
        """What makes the estimate for rows that share so; nothing without a key."""
        if self._kept is not None:
            key = key_of(self._key, sharing)
            yield Job(key, num_examples, lambda: _arrays_of_sizes(make()), self._key)


def _arrays_of(chunk: KeptChunk) -> dict[str, np.ndarray]:
    arrays = {each.name: getattr(chunk.requests, each.name) for each in fields(Requests)}
    del arrays["id_set"]  # choices have none
    ids = arrays["token_ids"]
    if ids.max(initial=0) <= np.iinfo(np.uint16).max:  # half the memory, once they are read
        arrays["token_ids"] = ids.astype(np.uint16)
    return arrays | {"stop": np.int64(chunk.stop), "is_last": np.bool(chunk.is_last)}


def _arrays_of_sizes(sizes: RowSizes) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in sizes._asdict().items()}


def _has_key(source: LoadedTask, tokenizer: Tokenizer) -> bool:
    """A tokenizer that was read from files has all that it does in its fingerprint."""
    is_of_files = getattr(tokenizer, "is_fast", False) and hasattr(tokenizer, "taken_from")
    return is_of_files and not any(path.suffix == ".py" for path in source.task.made_of)


def _parts_of(source: LoadedTask) -> tuple[object, ...]:
    """All of a task that its prompts and requests hang on; a rule has its name for this."""
    task = source.task
    rules = [getattr(task.profile, each.name) for each in fields(task.profile)]
    names = [printed_value(each) for each in rules]
    shots_from = None if task.shots_from is None else task.shots_from()
    return task.kind, names, task.arrange is not None, source.examples, shots_from


@lru_cache(maxsize=4)
def _parts_of_tokenizer(tokenizer: Tokenizer) -> tuple[object, ...]:
    return tokenizer_fingerprint(tokenizer), reads_names_as_text(tokenizer)
