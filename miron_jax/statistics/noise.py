"""How much a task's number moves from checkpoint to checkpoint of a training run, beside what tells models apart.

Arrives: values by step.  Leaves: `Noise`, `signal`.  It deliberately does not know runs or metrics.

Heineman et al. 2025 (arXiv:2508.13144): noise is the deviation over a run's last checkpoints, relative to their mean; signal
the largest difference between models, relative to the mean; their ratio says how far a benchmark can decide.  This noise of
training is another one than the error of a mean over examples (`Estimate.stderr`): the same examples are asked each time.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LAST = 5  # checkpoints


class Noise(NamedTuple):
    """Of the last checkpoints of one run."""

    mean: float
    deviation: float  # sample deviation; NaN for fewer than two checkpoints
    num_steps: int

    @property
    def relative(self) -> float:
        return self.deviation / abs(self.mean) if self.mean else math.nan


def noise(values: Sequence[float], last: int = LAST) -> Noise:
    """`values`: by step, in order; NaN where a step has none."""
    kept = np.asarray(values[-last:], np.float64)
    kept = kept[np.isfinite(kept)]
    if not len(kept):
        return Noise(math.nan, math.nan, 0)
    return Noise(float(kept.mean()), float(kept.std(ddof=1)) if len(kept) > 1 else math.nan, len(kept))


def signal(means: Sequence[float]) -> float:
    """The largest difference between two models' means, relative to the mean of all; NaN for fewer than two."""
    known = [mean for mean in means if math.isfinite(mean)]
    middle = float(np.mean(known)) if len(known) > 1 else 0.0
    return (max(known) - min(known)) / abs(middle) if middle else math.nan
