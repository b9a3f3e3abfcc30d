"""Scores of requests, flat and one at a time; counts of a text that grows.

Arrives: nothing.  Leaves: `Scores`, `Score`, `GrowingSpeed`.  It deliberately does not know how
they are computed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

NO_BYTES = np.zeros(0, np.uint16)
NO_IDS = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of R requests, end to end: the scored tokens of request r are [offsets[r], offsets[r +
    1])."""

    offsets: np.ndarray  # int64 [R + 1]
    logprob: np.ndarray  # float32 [N], nats
    rank: np.ndarray  # int32 [N], tokens ahead of the target
    # float32 [R], nats: log p of the request's id set before its span; 0: no set
    set_logprob: np.ndarray
    # float32, of the distribution in which each token stands: entropy, log p of its most probable
    # token, nats, and variance of log p, nats² [N, 3]; or [N, 0], not asked
    distribution: np.ndarray
    # uint16 [N], bytes of each token, 0 of a special one; [0]: whoever scored it does not know them
    num_bytes: np.ndarray = field(default_factory=lambda: NO_BYTES)
    token_ids: np.ndarray = field(default_factory=lambda: NO_IDS)  # int32 [N]; [0]: likewise

    @classmethod
    def of(cls, scores: Sequence["Score"]) -> Self:
        """Scores of single requests, end to end."""
        logprobs, ranks, set_logprobs, distributions, num_bytes, ids = zip(*scores, strict=True)
        offsets = np.cumsum([0, *map(len, ranks)])
        return cls(
            offsets,
            np.concatenate(logprobs),
            np.concatenate(ranks),
            np.asarray(set_logprobs, np.float32),
            np.concatenate(distributions),
            np.concatenate(num_bytes),
            np.concatenate(ids),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator["Score"]:
        ends = self.offsets.tolist()
        for a, b, set_logprob in zip(ends[:-1], ends[1:], self.set_logprob.tolist(), strict=True):
            yield Score(
                self.logprob[a:b],
                self.rank[a:b],
                set_logprob,
                self.distribution[a:b],
                self.num_bytes[a:b],
                self.token_ids[a:b],
            )

    def of_requests(self, start: int, stop: int) -> "Scores":
        """The scores of requests [start, stop)."""
        offsets = self.offsets[start : stop + 1]
        tokens = slice(offsets[0], offsets[-1])
        return Scores(
            offsets - offsets[0],
            self.logprob[tokens],
            self.rank[tokens],
            self.set_logprob[start:stop],
            self.distribution[tokens],
            self.num_bytes[tokens],
            self.token_ids[tokens],
        )

    def spelled_by(self, token_ids: np.ndarray, num_bytes: np.ndarray) -> Self:
        return replace(self, token_ids=token_ids, num_bytes=num_bytes)

    def followed_by(self, later: "Scores") -> "Scores":
        """The scores of these requests, then those of the later ones."""
        return Scores(
            np.concatenate([self.offsets, self.offsets[-1] + later.offsets[1:]]),
            np.concatenate([self.logprob, later.logprob]),
            np.concatenate([self.rank, later.rank]),
            np.concatenate([self.set_logprob, later.set_logprob]),
            np.concatenate([self.distribution, later.distribution]),
            np.concatenate([self.num_bytes, later.num_bytes]),
            np.concatenate([self.token_ids, later.token_ids]),
        )

    def __getitem__(self, request: int) -> "Score":
        span = slice(self.offsets[request], self.offsets[request + 1])
        return Score(
            self.logprob[span],
            self.rank[span],
            float(self.set_logprob[request]),
            self.distribution[span],
            self.num_bytes[span],
            self.token_ids[span],
        )


class Score(NamedTuple):
    """One request's scored span, token by token."""

    logprob: np.ndarray  # float32, nats
    rank: np.ndarray  # int32, tokens ahead of the target; 0 is greedy
    set_logprob: float = 0.0  # nats, see Scores
    distribution: np.ndarray = np.zeros((0, 0), np.float32)  # see Scores
    num_bytes: np.ndarray = NO_BYTES  # see Scores
    token_ids: np.ndarray = NO_IDS  # see Scores

    @property
    def has_distribution(self) -> bool:
        return self.distribution.shape[1] > 0


def no_distribution(num_tokens: int) -> np.ndarray:
    """What `Scores.distribution` is where nobody asked for it."""
    return np.zeros((num_tokens, 0), np.float32)


@dataclass(slots=True)
class GrowingSpeed:
    """Counts and times of one text that grows turn by turn; grows with it."""

    turns: int = 0
    read_tokens: int = 0  # tokens that the model took in, without padding
    plain_tokens: int = 0  # tokens at one row per choice
    seconds: float = 0.0  # without compiling
    compile_seconds: float = 0.0
