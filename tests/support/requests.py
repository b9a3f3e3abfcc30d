"""Requests by their token ids."""

from collections.abc import Sequence

import numpy as np

from miron_jax.tokens.records import Requests


def requests_of(items: Sequence[tuple[Sequence[int], int]]) -> Requests:
    """(token ids, span start) pairs as Requests."""
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids, _ in items])]).astype(np.int64)
    token_ids = np.asarray([token for ids, _ in items for token in ids], np.int32)
    no = np.zeros(len(items), bool)
    return Requests(token_ids, offsets, np.asarray([start for _, start in items], np.int32), no, no)


def some_requests(seed: int = 0, groups: int = 12) -> Requests:
    """Questions with choices, repeats, one-token choices, choices that are prefixes of one another, and empty spans."""
    rng = np.random.default_rng(seed)
    items: list[tuple[list[int], int]] = []
    for _ in range(groups):
        stem = [0, *rng.integers(1, 331, rng.integers(1, 60)).tolist()]
        answer = rng.integers(1, 331, 5).tolist()
        items += [([*stem, *answer[:n]], len(stem)) for n in (1, 3, 5)]
        items += [([*stem, int(token)], len(stem)) for token in rng.integers(1, 331, 4)]
        items += [(stem, len(stem)), (stem, 1)]
    return requests_of([*items, *items[:3]])
