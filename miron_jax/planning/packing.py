"""Row lengths, and which subtries share a row.

Arrives: sizes of subtries in tokens, a CostModel.  Leaves: row lengths, and the row of each
subtrie.  It deliberately does not know tokens.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush

import numpy as np

from miron_jax.planning.records import CostModel


def choose_lengths(
    size: np.ndarray, cost: CostModel, lengths: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Row lengths for subtries of these sizes: lengths are added one at a time while one saves more
    than its program costs.

    A subtrie of size s in rows of length T costs row(T) / (T // s).  `lengths` are compiled already
    and cost nothing more.
    """
    if not len(size):
        return lengths
    step = cost.length_multiple
    most = cost.max_slots or 1 << 31
    assert size.max() <= most, "no request has more tokens than the model has positions"
    # Sizes are rounded up to eights, so that the tables stay small.
    sizes, counts = np.unique(np.minimum(-(-size // 8) * 8, most), return_counts=True)
    needed = min(int(-(-sizes[-1] // step) * step), most)
    candidates = np.unique(
        np.minimum([needed, *lengths, *_ladder(step, max(needed, 8 * step))], most)
    )
    each = _cost_each(sizes, candidates, cost) * counts[:, None]
    chosen = [*lengths] if lengths and max(lengths) >= needed else [*lengths, needed]
    best = each[:, np.isin(candidates, chosen)].min(axis=1)
    while len(chosen) < cost.max_lengths:
        gains = (best[:, None] - np.minimum(best[:, None], each)).sum(axis=0)
        winner = int(np.argmax(gains))
        if gains[winner] <= cost.flops_per_program:
            break
        chosen.append(int(candidates[winner]))
        best = np.minimum(best, each[:, winner])
    return tuple(sorted(chosen))


def cheapest_length(size: np.ndarray, lengths: tuple[int, ...], cost: CostModel) -> np.ndarray:
    """The row length at which each subtrie costs least."""
    if not len(size):
        return size
    return np.asarray(lengths)[_cost_each(size, np.asarray(lengths), cost).argmin(axis=1)]


def _cost_each(size: np.ndarray, lengths: np.ndarray, cost: CostModel) -> np.ndarray:
    """[sizes, lengths] cost of one subtrie's share of a row full of subtries of its size; infinite
    if it does not fit."""
    fits = lengths[None, :] // np.maximum(size, 1)[:, None]
    if not cost.packs:
        fits = np.minimum(fits, 1)
    each = cost.row(lengths[None, :], size[:, None] / 2) / np.maximum(fits, 1)
    return np.where(fits > 0, each, np.inf)


def _ladder(step: int, longest: int) -> list[int]:
    """Candidate lengths: every multiple of `step` up to 16 steps, then about 7 % apart."""
    ladder = []
    length = 0
    while length < longest:
        length += step * max(1, length // (16 * step))
        ladder.append(length)
    return ladder


def pack(
    size: np.ndarray, num_nodes: np.ndarray, opens: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best fit, largest subtries first.  Returns each subtrie's row and first slot in it, and each
    row's length.

    A subtrie goes to the fullest row that has room for it; if there is none it opens a row of
    length opens[subtrie].
    """
    subtrie_row = np.empty(len(size), np.int64)
    subtrie_start = np.empty(len(size), np.int64)
    rows_with_room: dict[int, list[int]] = {}  # room -> heap of rows with exactly that room
    rooms: list[int] = []  # keys of rows_with_room, sorted
    row_length: list[int] = []
    used: list[int] = []
    for subtrie in np.argsort(-size, kind="stable").tolist():
        need = int(size[subtrie])
        at = bisect_left(rooms, need)
        if at < len(rooms):
            room = rooms[at]
            row = heappop(rows_with_room[room])
            if not rows_with_room[room]:
                del rows_with_room[room], rooms[at]
        else:
            row = len(row_length)
            room = int(opens[subtrie])
            row_length.append(room)
            used.append(0)
        subtrie_row[subtrie], subtrie_start[subtrie] = row, used[row]
        used[row] += int(num_nodes[subtrie])
        left = room - need
        if left:
            if left not in rows_with_room:
                rows_with_room[left] = []
                insort(rooms, left)
            heappush(rows_with_room[left], row)
    return subtrie_row, subtrie_start, np.asarray(row_length, np.int32)
