"""Shapes that tests and benchmarks share: odd and prime sizes, grouped heads, windows, caps."""

from typing import NamedTuple


class AttentionCase(NamedTuple):
    rows: int
    length: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False


CASES = {
    "one_place": AttentionCase(1, 1, 1, 1, 8),
    "prime": AttentionCase(3, 37, 4, 4, 16),
    "grouped": AttentionCase(2, 131, 6, 2, 24),
    "window": AttentionCase(2, 150, 4, 1, 16, window=17),
    "window_of_one": AttentionCase(1, 66, 2, 2, 8, window=1),
    "two_key_heads": AttentionCase(
        1, 130, 8, 4, 64
    ),  # two of them fill the 128 lanes of a TPU's register
    # more query heads for a key head than one step of the TPU's kernel takes
    "wide_group": AttentionCase(1, 40, 24, 2, 128),
    "softcap": AttentionCase(2, 65, 3, 3, 32, softcap=5.0),
    "sinks": AttentionCase(2, 131, 6, 2, 24, sinks=True),
    "all": AttentionCase(1, 257, 9, 3, 64, window=100, softcap=30.0, sinks=True),
}
