"""The scores of a gauntlet's categories and averages.

Arrives: the main metric of each benchmark.  Leaves: `Composite`s as composer's EvalGauntlet
computes them, except that one with a missing benchmark is null.  It deliberately does not know data
files or models.

    score     (accuracy - b) / (1 - b), not clipped: below the baseline it is negative
    category  sum(w * score) / sum(w); w is 1 (EQUAL), the number of examples (SAMPLE_SZ) or its
              log2 (LOG_SAMPLE_SZ)
    average   plain mean of its categories

The reference drops a category that lacks a benchmark and averages the others, so a missing file can
raise an average.  Here both the category and the average are null, and `partial_NAME` has the value
over the benchmarks that were scored (a category without any is left out).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from miron_jax.definitions.records import Composite, Measured
from miron_jax.tasks.groups import main_metrics, missing_of

Weighting = Literal["EQUAL", "SAMPLE_SZ", "LOG_SAMPLE_SZ"]
WEIGHTINGS: dict[Weighting, Callable[[int], float]] = {
    "EQUAL": lambda num_examples: 1.0,
    "SAMPLE_SZ": lambda num_examples: max(num_examples, 1),
    "LOG_SAMPLE_SZ": lambda num_examples: max(math.log2(max(num_examples, 1)), 1),
}


@dataclass(frozen=True, slots=True)
class Averages:
    """The benchmarks of each category, the categories of each average, and the weights."""

    # name -> task name -> random baseline, a share of 1
    categories: Mapping[str, Mapping[str, float]]
    averages: Mapping[str, tuple[str, ...]]  # name -> names of categories
    weighting: Weighting = "EQUAL"
    subtract_baseline: bool = True
    rescale: bool = True

    def composites(self, measured: Mapping[str, Measured]) -> dict[str, Composite]:
        """Categories, then averages; the partial value follows each incomplete one."""
        partial: dict[str, Composite] = {}
        for name, baselines in self.categories.items():
            partial[name] = self._category(measured, baselines)
        for name, members in self.averages.items():
            partial[name] = _mean([partial[member] for member in members if member in partial])
        composites = {}
        for name, composite in partial.items():
            composites[name] = composite
            if not composite.complete:
                composites[name] = replace(composite, value=None)
                composites[f"partial_{name}"] = composite
        return composites

    def score(self, accuracy: float, baseline: float) -> float:
        """A benchmark's contribution to its category, before weights."""
        if self.subtract_baseline:
            accuracy -= baseline
        return accuracy * self._slope(baseline)

    def _slope(self, baseline: float) -> float:
        return 1 / (1 - baseline) if self.rescale else 1.0

    def _category(
        self, measured: Mapping[str, Measured], baselines: Mapping[str, float]
    ) -> Composite:
        main_of = main_metrics(measured)
        missing = missing_of(baselines, main_of)
        weigh = WEIGHTINGS[self.weighting]
        weight = {task: weigh(measured[task].num_examples) for task in baselines if task in main_of}
        total = sum(weight.values())
        scores = []
        slopes = {}
        for task in weight:
            share = weight[task] / total
            scores.append(share * self.score(main_of[task], baselines[task]))
            slopes[task] = share * self._slope(baselines[task])
        return Composite(sum(scores) if scores else None, not missing, missing, slopes)


def _mean(members: list[Composite]) -> Composite:
    missing = tuple(chain.from_iterable(member.missing for member in members))
    values = [member.value for member in members if member.value is not None]
    weights = defaultdict[str, float](float)
    for member in members:  # one without a value has no weights
        for task, weight in member.weights.items():
            weights[task] += weight / len(values)
    mean = sum(values) / len(values) if values else None
    return Composite(mean, not missing, missing, dict(weights))
