"""The answers of a user's own model to fixed tokens, which identify the function that it computes.

Arrives: log-probabilities of a probe.  Leaves: `Answers`, which the journal and stored results
compare.  It deliberately does not know models.
"""

import math
from typing import NamedTuple

from miron_jax.files.readers import Json


class Answers(NamedTuple):
    """A model's answers to fixed tokens.  They change with whatever its code reads, not only with
    its weights."""

    # devices and versions; with equal ones the digests must agree.  None: rounding may vary (GPU)
    layout: str | None
    digest: str  # of the bytes of all log-probabilities
    logprob: tuple[float | None, ...]  # nats, the greatest at each token; None: not finite
    tolerance: float  # nats that rounding may cause between two layouts

    @classmethod
    def of_json(cls, document: Json) -> "Answers":
        """Answers as `json.dumps` wrote them.  Raises ValueError, TypeError."""
        layout, digest, logprob, tolerance = document
        return cls(layout, digest, tuple(logprob), tolerance)

    def differ(self, other: "Answers") -> str | None:
        """The difference between the answers in words; None if they agree, by their digest or
        within the tolerance."""
        if self.layout is not None and self.layout == other.layout:
            if self.digest == other.digest:
                return None
            return f"by {self._worst(other):.3g} nats on the same devices"
        worst = self._worst(other)
        return None if worst <= self.tolerance else f"by {worst:.3g} nats"

    def _worst(self, other: "Answers") -> float:
        """The largest difference in nats; infinite if one answer is missing or not finite."""
        if len(self.logprob) != len(other.logprob):
            return math.inf
        pairs = zip(self.logprob, other.logprob, strict=True)
        return max(
            (math.inf if a is None or b is None else abs(a - b) for a, b in pairs if a != b),
            default=0.0,
        )
