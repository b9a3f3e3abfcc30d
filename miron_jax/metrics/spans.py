"""Scored spans of many requests, end to end -> sums of each.

Arrives: log-probabilities (float32 nats) and ranks of all scored tokens, and where each span ends.
Leaves: `Spans`.  It deliberately does not know what a span is of.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np


class Spans(NamedTuple):
    """Spans as metrics take them: each array has one entry a span, in any shape."""

    sum32: np.ndarray  # float32 nats, sum of log p; 0: no token
    sum: np.ndarray  # float64, likewise
    num_tokens: np.ndarray  # int64
    has_nan: np.ndarray  # bool
    is_greedy: np.ndarray  # bool, every rank is 0

    @classmethod
    def of(cls, logprob: np.ndarray, rank: np.ndarray, offsets: np.ndarray) -> Self:
        """Tokens of span r are [offsets[r], offsets[r + 1])."""
        return cls(
            sums(logprob, offsets),
            sums(logprob.astype(np.float64), offsets),
            np.diff(offsets),
            sums(np.isnan(logprob), offsets),
            ~sums(rank != 0, offsets),
        )

    @classmethod
    def of_each(
        cls, logprobs: Sequence[np.ndarray], ranks: Sequence[np.ndarray] | None = None
    ) -> Self:
        """Spans of one array each; without ranks none counts as greedy."""
        offsets = np.cumsum([0, *map(len, logprobs)])
        logprob = np.concatenate([np.zeros(0, np.float32), *logprobs])
        rank = np.ones(len(logprob), np.int32)
        if ranks is not None:
            rank = np.concatenate([np.zeros(0, np.int32), *ranks])
        return cls.of(logprob, rank, offsets)

    def at(self, index: np.ndarray | tuple[slice, slice]) -> Self:
        """The spans at an index of NumPy."""
        return type(self)(*(column[index] for column in self))


def sums(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The sum of each span in the dtype of the values (bool: any), 0 where it is empty.

    Spans of one length are rows of an array, which NumPy sums as it sums each alone, to the last
    bit: `np.add.reduceat` begins with the first value, and rounds otherwise.
    """
    length = np.diff(offsets)
    of_spans = np.zeros(len(length), values.dtype)
    for n in np.unique(length[length > 0]).tolist():
        spans = np.flatnonzero(length == n)
        rows = values[offsets[spans, np.newaxis] + np.arange(n)]
        of_spans[spans] = np.sum(rows, axis=1, dtype=values.dtype)
    return of_spans
