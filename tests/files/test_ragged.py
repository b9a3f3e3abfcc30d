"""Sequences end to end against lists of lists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miron_jax import ragged
from miron_jax.ragged import blocks, common_length, end_to_end, gather, offsets_of

pytestmark = pytest.mark.newest

SEQUENCES = st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=8)


def shared(a: list[int], b: list[int]) -> int:
    """Slow: how many values two lists share from their beginning."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


@settings(max_examples=40)
@given(SEQUENCES, SEQUENCES, st.booleans(), st.randoms(use_true_random=False))
def test_common_lengths_equal_the_twin(a, b, from_end, random):
    pairs = [(random.randrange(len(a)), random.randrange(len(b))) for _ in range(6)]
    a_rows, b_rows = np.array(pairs).T
    step = -1 if from_end else 1
    expected = [shared(a[i][::step], b[j][::step]) for i, j in pairs]
    assert common_length(end_to_end(a), a_rows, end_to_end(b), b_rows, from_end).tolist() == expected


@settings(max_examples=40)
@given(SEQUENCES, st.integers(1, 12))
def test_gathered_in_blocks_of_any_size(sequences, block):
    whole = end_to_end(sequences)
    assert whole.offsets.dtype == np.int64
    rows = np.arange(len(sequences))[::-1]
    before, ragged.BLOCK = ragged.BLOCK, block
    try:
        gathered = gather(whole.values, whole.offsets[:-1][rows], whole.lengths[rows])
        assert [row for a, b in blocks(gathered.offsets) for row in range(a, b)] == list(range(len(rows)))
    finally:
        ragged.BLOCK = before
    assert gathered.values.tolist() == [value for sequence in sequences[::-1] for value in sequence]
    assert gathered.offsets.tolist() == offsets_of([len(sequence) for sequence in sequences[::-1]]).tolist()
