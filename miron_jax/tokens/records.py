"""Requests as flat arrays, and the limits and special tokens that shape them.

Arrives: nothing.  Leaves: `Requests`, `LengthLimit`, `Bos`, `Special`.  It deliberately does not know tokenizers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.records import ClozeProfile, ProgramProfile, Wording
from miron_jax.ragged import offsets_of


@dataclass(frozen=True, slots=True)
class Requests:
    """R requests, one after another.  Shapes: token_ids [N] int32, offsets [R+1] int64, the rest [R]."""

    token_ids: np.ndarray  # int32 [N], all requests' tokens end to end
    offsets: np.ndarray  # int64 [R+1]; request r is token_ids[offsets[r]:offsets[r+1]]
    span_start: np.ndarray  # int32 [R], first scored token, counted from the request's first token
    truncated: np.ndarray  # bool [R], lost tokens to the length limit
    inexact_prefix: np.ndarray  # bool [R], the context alone is no token prefix; scored from the longest common prefix
    id_set: np.ndarray | None = None  # int32 [R], which set of ids is also summed before the span; -1, or None: none is

    def __len__(self) -> int:
        return len(self.span_start)

    def tokens(self, request: int) -> np.ndarray:
        return self.token_ids[self.offsets[request] : self.offsets[request + 1]]

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        return ((self.tokens(r), int(self.span_start[r])) for r in range(len(self)))


class LengthLimit(NamedTuple):
    """How many tokens a request may have, BOS included."""

    asked: int | None  # --max_length, instead of a suite's own rule
    learned: int | None  # positions of the model, which nothing exceeds
    trained: int | None = None  # tokens that the model was trained at, within which whole few-shot examples are kept

    def of(self, profile: Wording | ProgramProfile | ClozeProfile) -> int | None:
        """None: no limit."""
        whole_shots = isinstance(profile, Wording) and profile.truncation == "whole_shots"
        own = self.asked or profile.max_length or (self.trained if whole_shots else None)
        limits = [limit for limit in (own, self.learned) if limit is not None]
        return min(limits, default=None)


class Bos(NamedTuple):
    """The token every request begins with."""

    id: int
    how: str  # which rule found it: "declared <s>", "vocabulary <|bos|>", "vocabulary <|endoftext|>"


class Special(NamedTuple):
    """Tokens that the tokenizer puts around every text, and what stands for an empty one."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    empty: tuple[int, ...]  # context of a target without a prefix; () where the vocabulary has nothing for it


def concatenate(parts: Sequence[Requests]) -> Requests:
    """Requests end to end."""
    return Requests(
        token_ids=np.concatenate([np.zeros(0, np.int32), *(part.token_ids for part in parts)]),
        offsets=offsets_of(np.concatenate([np.zeros(0, np.int64), *(np.diff(part.offsets) for part in parts)])),
        span_start=np.concatenate([np.zeros(0, np.int32), *(part.span_start for part in parts)]),
        truncated=np.concatenate([np.zeros(0, bool), *(part.truncated for part in parts)]),
        inexact_prefix=np.concatenate([np.zeros(0, bool), *(part.inexact_prefix for part in parts)]),
        id_set=_concatenate_sets(parts),
    )


def _concatenate_sets(parts: Sequence[Requests]) -> np.ndarray | None:
    if all(part.id_set is None for part in parts):
        return None
    return np.concatenate([np.full(len(part), -1, np.int32) if part.id_set is None else part.id_set for part in parts])
