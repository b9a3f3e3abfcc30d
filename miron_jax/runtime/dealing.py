"""Work that is dealt to the processes of a run; every process computes the same result.

Arrives: the costs of items.  Leaves: a list for each process.  It deliberately does not know what
the items are.
"""

from collections.abc import Sequence
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def in_blocks(items: Sequence[T], cost: Sequence[float], count: int) -> list[Sequence[T]]:
    """The items in their order, in `count` blocks of about equal cost, one for each process."""
    each = np.asarray(cost, np.float64)
    middle = each.cumsum() - each / 2
    process = np.floor(count * middle / max(each.sum(), 1e-9))
    bounds = np.searchsorted(process, np.arange(count + 1)).tolist()
    return [items[start:stop] for start, stop in pairwise(bounds)]


def deal(
    length: np.ndarray,
    cost: np.ndarray,
    count: int,
    shards: int,
    sizes: dict[int, int],
    load: np.ndarray,
) -> list[list[list[int]]]:
    """Deal rows to `count` processes: for each process its batches of row indices, longest rows
    first.

    Every process computes the same result.  A set of up to `shards` rows of one length, which the
    devices of a process compute side by side, goes to the process with the least cost so far,
    longest rows first: then no process is ahead of another by more than a set of the shortest rows.
    A batch has rows of one length, `sizes[length]` on each device; the last one of a length may
    have fewer.  length: int [rows]; cost: float [rows], of one row; load: float [count], cost of
    each process in earlier request batches, to which the cost of this one is added in place.
    """
    batches: list[list[list[int]]] = [[] for _ in range(count)]
    loads = [(total, index) for index, total in enumerate(load.tolist())]
    heapify(loads)
    for size in np.unique(length)[::-1].tolist():
        rows = np.flatnonzero(length == size)
        dealt = [list[int]() for _ in range(count)]
        for start in range(0, len(rows), shards):
            least, index = loads[0]
            heapreplace(loads, (least + float(cost[rows[start]]), index))
            dealt[index] += rows[start : start + shards].tolist()
        batch_size = sizes[size] * shards
        for index, rows_of_index in enumerate(dealt):
            starts = range(0, len(rows_of_index), batch_size)
            batches[index] += [rows_of_index[start : start + batch_size] for start in starts]
    for total, index in loads:
        load[index] = total
    return batches
