"""Groups of a cloze task: categories, macro means, scores by fragmentation of the target, drift
under noise.

Arrives: items with their scores.  Leaves: `ClozeGroups`.  It deliberately does not know how a
metric is computed.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.records import Cloze
from miron_jax.metrics.choices import ExampleScore
from miron_jax.statistics.estimate import Estimate, estimates, macro_estimates, spearman

RESAMPLES, BLOCK = 1000, 50  # of the paired bootstrap, and how many run at once
MANY_TOKENS = 4  # targets of this many tokens or more form one group


class Median(NamedTuple):
    """A median with the 95 % interval of a bootstrap over items."""

    value: float
    ci95: tuple[float, float]
    num_examples: int


@dataclass(frozen=True, slots=True)
class ClozeGroups:
    """A cloze task's metrics by group."""

    categories: Mapping[str, Mapping[str, Estimate]]
    sizes: Mapping[str, int]  # scored items of each category
    macro: Mapping[str, Estimate]  # mean of the categories
    by_target_tokens: Mapping[str, Mapping[str, Estimate]]  # "1", "2", "3", "4+"
    spearman: float  # of target tokens and bits per character; NaN if either is constant
    # percent of P(target) lost to noise: all pairs, by operator, by number of edits
    drift: Mapping[str, Median]
    flips: Mapping[str, Mapping[str, Estimate]]  # by the same groups: flip rates and drift in bits


def cloze_groups(scored: Sequence[tuple[Cloze, ExampleScore]]) -> ClozeGroups:
    by_category = defaultdict[str, list[ExampleScore]](list)
    by_tokens = defaultdict[str, list[ExampleScore]](list)
    by_noise = defaultdict[str, list[ExampleScore]](list)
    for item, example in scored:
        by_category[item.category].append(example)
        if "target_tokens" in example.metrics:  # not of completions that were written elsewhere
            by_tokens[_tokens(example)].append(example)
        if item.operator and "drift_percent" in example.metrics:
            for key in ("all", f"operator {item.operator}", f"edits {item.num_edits}"):
                by_noise[key].append(example)
    means = {name: estimates(examples) for name, examples in by_category.items()}
    drift = {}
    flips = {}
    for name, examples in by_noise.items():
        drift[name] = _median([example.metrics["drift_percent"] for example in examples])
        flips[name] = _flips(estimates(examples))
    tokenized = [example.metrics for _, example in scored if "target_tokens" in example.metrics]
    return ClozeGroups(
        categories=means,
        sizes=Counter(item.category for item, _ in scored),
        macro=_macro(by_category, means),
        by_target_tokens={name: estimates(by_tokens[name]) for name in sorted(by_tokens)},
        spearman=spearman(
            [each["target_tokens"] for each in tokenized],
            [each["bits_per_char"] for each in tokenized],
        ),
        drift=drift,
        flips=flips,
    )


def _macro(
    by_category: Mapping[str, Sequence[ExampleScore]], means: Mapping[str, Mapping[str, Estimate]]
) -> dict[str, Estimate]:
    """Macro means of the metrics that all categories have."""
    macros = macro_estimates(by_category)
    common = set(macros).intersection(*means.values())
    return {name: each for name, each in macros.items() if name in common}


def _tokens(example: ExampleScore) -> str:
    count = int(example.metrics["target_tokens"])
    return str(count) if count < MANY_TOKENS else f"{MANY_TOKENS}+"


def _flips(metrics: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return {
        name: metrics[name]
        for name in ("drift_bits", "flip_to_wrong", "flip_to_right")
        if name in metrics
    }


def _median(values: Sequence[float]) -> Median:
    """Median of the finite values with a bootstrap interval, resampled with seed 0."""
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Median(math.nan, (math.nan, math.nan), 0)
    generator = np.random.default_rng(0)
    medians = []
    for _ in range(RESAMPLES // BLOCK):
        block = generator.integers(0, len(finite), (BLOCK, len(finite)))
        medians.append(np.median(finite[block], axis=1))
    low, high = np.quantile(medians, [0.025, 0.975])
    return Median(float(np.median(finite)), (float(low), float(high)), len(finite))
