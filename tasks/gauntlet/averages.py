"""The scores of a gauntlet's categories and averages.

Arrives: the accuracy of each benchmark.  Leaves: `Composite`s as composer's EvalGauntlet computes
them, except that one with a missing benchmark is null.  It deliberately does not know data files or
models.

    score     (accuracy - b) / (1 - b), not clipped: below the baseline it is negative
    category  sum(w * score) / sum(w); w is 1 (EQUAL), the number of examples (SAMPLE_SZ) or its
              log2 (LOG_SAMPLE_SZ)
    average   plain mean of its categories

The reference drops a category that lacks a benchmark and averages the others, so a missing file can
raise an average.  Here both the category and the average are null, and `partial_NAME` has the value
over the benchmarks that were scored (a category without any is left out).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from miron_jax.definitions.records import Composite, Measured

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
        whole = {}
        partial = {}
        for name, baselines in self.categories.items():
            scored = {
                task: baseline
                for task, baseline in baselines.items()
                if _accuracy(measured, task) is not None
            }
            missing = tuple(task for task in baselines if task not in scored)
            partial[name] = self._category(measured, scored, missing)
            whole[name] = _without_value(partial[name]) if missing else partial[name]
        for name, members in self.averages.items():
            known = [member for member in members if member in partial]
            with_value = [member for member in known if partial[member].value is not None]
            missing = tuple(task for member in known for task in partial[member].missing)
            partial[name] = _mean([partial[member] for member in with_value], missing)
            whole[name] = partial[name] if not missing else _without_value(partial[name])
        composites: dict[str, Composite] = {}
        for name, composite in whole.items():
            composites[name] = composite
            if not composite.complete:
                composites[f"partial_{name}"] = partial[name]
        return composites

    def score(self, accuracy: float, baseline: float) -> float:
        """A benchmark's contribution to its category, before weights."""
        return (accuracy - self._subtracted(baseline)) * self._slope(baseline)

    def _subtracted(self, baseline: float) -> float:
        return baseline if self.subtract_baseline else 0.0

    def _slope(self, baseline: float) -> float:
        return 1 / (1 - baseline) if self.rescale else 1.0

    def _category(
        self,
        measured: Mapping[str, Measured],
        baselines: Mapping[str, float],
        missing: tuple[str, ...],
    ) -> Composite:
        weight = {
            task: WEIGHTINGS[self.weighting](measured[task].num_examples) for task in baselines
        }
        total = sum(weight.values())
        value = sum(
            weight[task] / total * self.score(_accuracy(measured, task) or 0.0, b)
            for task, b in baselines.items()
        )
        slopes = {task: weight[task] / total * self._slope(b) for task, b in baselines.items()}
        return Composite(value if baselines else None, not missing, missing, slopes)


def _accuracy(measured: Mapping[str, Measured], task: str) -> float | None:
    return measured[task].accuracy if task in measured else None


def _without_value(composite: Composite) -> Composite:
    return Composite(None, False, composite.missing, composite.weights)


def _mean(members: list[Composite], missing: tuple[str, ...]) -> Composite:
    values = [member.value for member in members if member.value is not None]
    weights: dict[str, float] = {}
    for member in members:
        for task, weight in member.weights.items():
            weights[task] = weights.get(task, 0.0) + weight / len(members)
    return Composite(sum(values) / len(values) if values else None, not missing, missing, weights)
