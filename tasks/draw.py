"""Pseudorandom numbers from a key, equal on every machine, Python version and hash seed.

Arrives: a key of words and numbers.  Leaves: numbers below a bound, choices, samples, orders.  It
deliberately does not use `random`, whose streams may change: each number is the SHA-256 of the key
and of how many numbers came before it.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar

T = TypeVar("T")


class Stream:
    """A stream of pseudorandom numbers for one key."""

    def __init__(self, *key: str | int):
        self._key = "/".join(map(str, key))
        self._count = 0

    def below(self, n: int) -> int:
        """A uniform number from 0 to n - 1: 128 bits modulo n have a bias below n / 2**128."""
        digest = sha256(f"{self._key}#{self._count}".encode()).digest()
        self._count += 1
        return int.from_bytes(digest[:16], "big") % n

    def choice(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def sample(self, options: Sequence[T], k: int) -> list[T]:
        """k different items of `options`, in the order of sampling."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(k)]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        return self.sample(options, len(options))
