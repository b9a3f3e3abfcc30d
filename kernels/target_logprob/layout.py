"""Host side of target_logprob: the order in which sources and edges are handed to the device.  NumPy only.

Sources stand by falling number of targets and are cut into chunks.  A chunk goes through the head once;
its targets follow in rounds: round r holds the r-th target of every source that has one.  Since the busiest sources
stand first, those are the chunk's first sources, and round r's targets lie side by side:

    sources  s0 (targets a b c)   s1 (d e)   s2 (f)        one chunk
    rounds   [a d f] [b e] [c]                             round_start 0, 3, 5
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class EdgeLayout:
    source_S: np.ndarray  # int32, the distinct sources, busiest first
    target_E: np.ndarray  # int32, token ids in round order
    round_start_R: np.ndarray  # int32, place in target_E of each round's first target
    chunk_round_C1: np.ndarray  # int32 [chunks + 1], first round of each chunk
    edge_place_E: np.ndarray  # int64, where the caller's edge e went: target_E[edge_place_E[e]] == target[e]


def lay_out(source_E: np.ndarray, target_E: np.ndarray, chunk: int) -> EdgeLayout:
    """Order edges (source, target), given in any order, for the device."""
    if not len(source_E):
        empty = np.zeros(0, np.int32)
        return EdgeLayout(empty, empty, empty, np.zeros(1, np.int32), np.zeros(0, np.int64))
    by_source = np.argsort(source_E, kind="stable")
    distinct, first, count = np.unique(source_E[by_source], return_index=True, return_counts=True)
    busiest = np.argsort(-count, kind="stable")
    slot = np.empty(len(distinct), np.int64)  # distinct source -> place among the sorted sources
    slot[busiest] = np.arange(len(distinct))
    edge_slot = np.repeat(slot, count)  # for edges in by_source order
    edge_round = np.arange(len(source_E)) - np.repeat(first, count)
    edge_chunk = edge_slot // chunk
    order = np.lexsort((edge_slot, edge_round, edge_chunk))
    chunk_sorted, round_sorted = edge_chunk[order], edge_round[order]
    starts = np.flatnonzero(np.diff(chunk_sorted, prepend=-1) | np.diff(round_sorted, prepend=-1))
    num_chunks = -(-len(distinct) // chunk)
    chunk_round = np.searchsorted(chunk_sorted[starts], np.arange(num_chunks + 1))
    edge_place = np.empty(len(source_E), np.int64)
    edge_place[by_source[order]] = np.arange(len(source_E))
    return EdgeLayout(
        source_S=distinct[busiest].astype(np.int32),
        target_E=target_E[by_source[order]].astype(np.int32),
        round_start_R=starts.astype(np.int32),
        chunk_round_C1=chunk_round.astype(np.int32),
        edge_place_E=edge_place,
    )
