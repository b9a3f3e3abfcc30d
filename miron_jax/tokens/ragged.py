"""Sequences of different lengths, end to end in one array.

Arrives: sequences, or their lengths.  Leaves: `Ragged`, offsets, slices gathered from it.  It
deliberately does not know the meaning of the values.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

BLOCK = 1_000_000  # values whose indices are held at a time


class Ragged(NamedTuple):
    """R sequences, end to end."""

    values: np.ndarray  # [N]
    offsets: np.ndarray  # int64 [R + 1]; sequence r is values[offsets[r]:offsets[r + 1]]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


def offsets_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """int64 [R + 1]: the start of each of R sequences, and the end of the last."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def end_to_end(sequences: Sequence[Sequence[int] | np.ndarray]) -> Ragged:
    """Concatenate sequences of int32."""
    values = np.concatenate(
        [np.zeros(0, np.int32), *(np.asarray(sequence, np.int32) for sequence in sequences)]
    )
    return Ragged(values, offsets_of([*map(len, sequences)]))


def gather(values: np.ndarray, begin: np.ndarray, length: np.ndarray) -> Ragged:
    """values[begin[i]:begin[i] + length[i]] for every i."""
    offsets = offsets_of(length)
    out = np.empty(offsets[-1], values.dtype)
    for a, b in blocks(offsets):
        index = np.repeat(begin[a:b] - offsets[a:b], length[a:b]) + np.arange(
            offsets[a], offsets[b]
        )
        out[offsets[a] : offsets[b]] = values[index]
    return Ragged(out, offsets)


def blocks(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs [a, b) of sequences with about BLOCK values each, so that arrays of one index per value
    stay small."""
    a = 0
    while a < len(offsets) - 1:
        b = max(a + 1, int(np.searchsorted(offsets, offsets[a] + BLOCK, side="right")) - 1)
        yield a, b
        a = b


def common_length(
    a: Ragged, a_rows: np.ndarray, b: Ragged, b_rows: np.ndarray, from_end: bool = False
) -> np.ndarray:
    """int64: number of values that a[a_rows[i]] and b[b_rows[i]] share at their beginning, or at
    their end.

    All pairs are compared end to end, each over the length of its shorter side:

        lengths 3 2    starts 0 3    step 0 1 2 | 0 1    differs . . x | . .    common 2 2
    """
    length = np.minimum(a.lengths[a_rows], b.lengths[b_rows])
    starts = offsets_of(length)[:-1]
    step = np.arange(length.sum()) - np.repeat(starts, length)
    if from_end:
        a_index = np.repeat(a.offsets[a_rows + 1] - 1, length) - step
        b_index = np.repeat(b.offsets[b_rows + 1] - 1, length) - step
    else:
        a_index = np.repeat(a.offsets[a_rows], length) + step
        b_index = np.repeat(b.offsets[b_rows], length) + step
    differs = a.values[a_index] != b.values[b_index]
    common = np.zeros(len(length), np.int64)
    some = length > 0
    if some.any():
        common[some] = np.minimum.reduceat(
            np.where(differs, step, np.repeat(length, length)), starts[some]
        )
    return common
