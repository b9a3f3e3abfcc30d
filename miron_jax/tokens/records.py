"""Requests as flat arrays, and the special tokens in them.

Arrives: nothing.  Leaves: `Requests`, `Bos`, `Special`.  It deliberately does not know tokenizers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from miron_jax.tokens.ragged import gather, offsets_of


@dataclass(frozen=True, slots=True)
class Requests:
    """R requests, end to end."""

    token_ids: np.ndarray  # int32 [N], all requests' tokens; uint16 of kept ones with such ids
    offsets: np.ndarray  # int64 [R+1]; request r is token_ids[offsets[r]:offsets[r+1]]
    span_start: np.ndarray  # int32 [R], first scored token, counted from the request's first token
    truncated: np.ndarray  # bool [R], lost tokens to the length limit
    # bool [R], the tokens of the context alone are no prefix of those of the one text
    inexact_prefix: np.ndarray
    # int32 [R], index of the set of ids to sum before the span; -1, or None: no set
    id_set: np.ndarray | None = None
    # uint8 [R, 16], digests of their content (planning/request_batches); None: not computed yet
    digests: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.span_start)

    def tokens(self, request: int) -> np.ndarray:
        return self.token_ids[self.offsets[request] : self.offsets[request + 1]]

    @property
    def scored_ids(self) -> np.ndarray:
        """The tokens of all scored spans, end to end, int32."""
        starts = self.offsets[:-1] + self.span_start
        ids = gather(self.token_ids, starts, self.offsets[1:] - starts).values
        return ids.astype(np.int32, copy=False)

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        return ((self.tokens(r), int(self.span_start[r])) for r in range(len(self)))


class Bos(NamedTuple):
    """The token every request begins with."""

    id: int
    # the rule that resolved it: "declared <s>", "vocabulary <|bos|>", "vocabulary <|endoftext|>"
    how: str


class Special(NamedTuple):
    """Tokens that the tokenizer puts around every text, and the context of a target without a
    prefix."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    empty: tuple[int, ...]  # BOS; () if the vocabulary has none


def concatenate(chunks: Sequence[Requests]) -> Requests:
    """Requests end to end."""

    def joined(name: str, dtype: type) -> np.ndarray:
        return np.concatenate([getattr(chunk, name) for chunk in chunks] or [np.zeros(0, dtype)])

    id_sets = [np.full(len(r), -1, np.int32) if r.id_set is None else r.id_set for r in chunks]
    digests = [chunk.digests for chunk in chunks if chunk.digests is not None]
    lengths = [np.diff(chunk.offsets) for chunk in chunks]
    return Requests(
        token_ids=joined("token_ids", np.int32),
        offsets=offsets_of(np.concatenate([np.zeros(0, np.int64), *lengths])),
        span_start=joined("span_start", np.int32),
        truncated=joined("truncated", bool),
        inexact_prefix=joined("inexact_prefix", bool),
        id_set=None if all(r.id_set is None for r in chunks) else np.concatenate(id_sets),
        digests=np.concatenate(digests) if 0 < len(digests) == len(chunks) else None,
    )
