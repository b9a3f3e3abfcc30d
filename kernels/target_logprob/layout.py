"""Host side of target_logprob: the order in which parents and edges are handed to the device.
NumPy only.

Parents (nodes with a scored next token) are sorted by falling number of targets and cut into
chunks.  A chunk goes through the head once; its targets follow in rounds: round r holds the r-th
target of every parent that has one.  Since parents with many targets come first, those are the
chunk's first parents, and round r's targets are side by side:

    parents  p0 (targets a b c)   p1 (d e)   p2 (f)        one chunk
    rounds   [a d f] [b e] [c]                             round_start 0, 3, 5
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class EdgeLayout:
    parent_S: np.ndarray  # int32, the distinct parents, busiest first
    target_E: np.ndarray  # int32, token ids in round order
    round_start_R: np.ndarray  # int32, index in target_E of each round's first target
    chunk_round_C1: np.ndarray  # int32 [chunks + 1], first round of each chunk
    # int64, output of the caller's edge e: target_E[edge_output_E[e]] == target[e]
    edge_output_E: np.ndarray


def lay_out(parent_E: np.ndarray, target_E: np.ndarray, chunk: int) -> EdgeLayout:
    """Order edges (parent, target), given in any order, for the device."""
    if not len(parent_E):
        empty = np.zeros(0, np.int32)
        return EdgeLayout(empty, empty, empty, np.zeros(1, np.int32), np.zeros(0, np.int64))
    by_parent = np.argsort(parent_E, kind="stable")
    distinct, first, count = np.unique(parent_E[by_parent], return_index=True, return_counts=True)
    busiest = np.argsort(-count, kind="stable")
    slot = np.empty(len(distinct), np.int64)  # distinct parent -> index among the sorted parents
    slot[busiest] = np.arange(len(distinct))
    edge_slot = np.repeat(slot, count)  # for edges in by_parent order
    edge_round = np.arange(len(parent_E)) - np.repeat(first, count)
    edge_chunk = edge_slot // chunk
    order = np.lexsort((edge_slot, edge_round, edge_chunk))
    chunk_sorted = edge_chunk[order]
    round_sorted = edge_round[order]
    starts = np.flatnonzero(np.diff(chunk_sorted, prepend=-1) | np.diff(round_sorted, prepend=-1))
    num_chunks = -(-len(distinct) // chunk)
    chunk_round = np.searchsorted(chunk_sorted[starts], np.arange(num_chunks + 1))
    edge_output = np.empty(len(parent_E), np.int64)
    edge_output[by_parent[order]] = np.arange(len(parent_E))
    return EdgeLayout(
        parent_S=distinct[busiest].astype(np.int32),
        target_E=target_E[by_parent[order]].astype(np.int32),
        round_start_R=starts.astype(np.int32),
        chunk_round_C1=chunk_round.astype(np.int32),
        edge_output_E=edge_output,
    )
