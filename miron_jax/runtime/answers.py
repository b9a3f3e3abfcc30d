"""What a model of the user's own answers to fixed tokens: the name of what it computes.

Arrives: log-probabilities of a probe.  Leaves: `Answers`, which a journal and stored results compare.  It
deliberately does not know models.
"""

import math
from typing import Any, NamedTuple


class Answers(NamedTuple):
    """What a model answers to fixed tokens: it names what a model computes, whatever its code reads beside its weights."""

    layout: str | None  # devices and versions; of two equal ones the bytes are compared.  None: they may vary (GPU)
    digest: str  # of the bytes of all log-probabilities
    logprob: tuple[float | None, ...]  # nats, the greatest at each place; None: no finite number
    tolerance: float  # nats that rounding may cause between two layouts

    @classmethod
    def of_json(cls, found: Any) -> "Answers":
        """Raises ValueError, TypeError."""
        layout, digest, logprob, tolerance = found
        return cls(layout, digest, tuple(logprob), tolerance)

    def differ(self, other: "Answers") -> str | None:
        """How the other ones are another model's; None where they are not, by their bytes or within the tolerance."""
        if self.layout is not None and self.layout == other.layout:
            return None if self.digest == other.digest else f"by {self._worst(other):.3g} nats on the same devices"
        worst = self._worst(other)
        return None if worst <= self.tolerance else f"by {worst:.3g} nats"

    def _worst(self, other: "Answers") -> float:
        pairs = zip(self.logprob, other.logprob, strict=False)
        apart = (math.inf if None in (a, b) else abs(a - b) for a, b in pairs if a != b)  # pyright: ignore[reportOperatorIssue,reportOptionalOperand]
        return max(apart, default=0.0) if len(self.logprob) == len(other.logprob) else math.inf
