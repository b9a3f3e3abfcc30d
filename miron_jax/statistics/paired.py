"""Two models over the same examples: difference of their means, its interval and p-value.

Arrives: one value per example of each model, with strata and clusters.  Leaves: `Difference`s,
float64.  It deliberately does not know what a metric means.

    value    = mean of d = second - first; the plain mean of the strata's means where a task counts
               its categories so
    stderr   = sqrt(sum over strata of G / (G - 1)
                    * sum over its G clusters of (sum of w * (d - mean of the stratum))²)
    interval = right or wrong: Bonett and Price (2012, J. Educ. Behav. Stat. 37, 479-488); else
               Student's t
    p-value  = right or wrong: McNemar, exact; else signs of the clusters' sums flipped, RESAMPLES
               times with a fixed seed

(Miller 2024, arXiv:2411.00640, sections 3 and 4, for pairs and clusters.)  Without clusters each
example is one; without strata there is one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miron_jax.statistics.estimate import bonett_price, ends_of_sum, variance_of_signs, z_of

RESAMPLES, BLOCK = 10_000, 250  # sign flips, and how many are drawn at once
_EXACT = 13  # of so many clusters with a difference all sign flips are tried: 8,192
_Z, _Z_POWER = 1.96, 0.8416  # 95 % interval; power of 80 %


@dataclass(frozen=True, slots=True)
class Difference:
    """Second minus first.  What is undefined is NaN."""

    value: float
    stderr: float
    ci95: tuple[float, float]  # 95 %, or the confidence that was asked for
    p_value: float
    num_examples: int  # with a value of both models
    num_undefined: int  # without one of either
    # examples with a larger value in the first; of right and wrong, right in the first only
    only_first: int
    only_second: int
    method: str

    @property
    def detectable(self) -> float:
        """The smallest true difference that so many such examples find with a power of 80 % at a
        level of 5 %."""
        return (_Z + _Z_POWER) / _Z * (self.ci95[1] - self.ci95[0]) / 2


def difference(
    first: Sequence[float] | np.ndarray,
    second: Sequence[float] | np.ndarray,
    strata: Sequence[str] | None = None,
    clusters: Sequence[str] | None = None,
    sizes: Sequence[float] | np.ndarray | None = None,
    confidence: float = 0.95,
    one_sided: bool = False,
) -> Difference:
    """`first`, `second`: float64 [n], NaN where undefined; `strata`, `clusters`: a name for each
    example.  `one_sided`: the p-value of sign flips is that of a larger second.

    `sizes`, float64 [n]: the values are sums over each example's bytes or tokens, and the mean is
    their total over the total of `sizes` (its error by linearization, as in `estimate.ratio`).
    """
    a = np.asarray(first, np.float64)
    b = np.asarray(second, np.float64)
    defined = np.isfinite(a) & np.isfinite(b)
    kept = np.flatnonzero(defined)
    a = a[defined]
    b = b[defined]
    counts = len(kept), len(defined) - len(kept), int((b < a).sum()), int((b > a).sum())
    if not len(kept):
        return Difference(
            math.nan, math.nan, (math.nan, math.nan), math.nan, *counts, "no common example"
        )
    is_binary = bool(np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all())
    if is_binary and strata is None and clusters is None and sizes is None:
        value = float((b - a).mean())
        stderr = math.sqrt(variance_of_signs(counts[2], counts[3], len(kept)) / len(kept))
        interval = bonett_price(counts[2], counts[3], len(kept), z_of(confidence))
        return Difference(
            value, stderr, interval, mcnemar(counts[2], counts[3]), *counts, "exact McNemar"
        )
    size = np.ones(len(kept)) if sizes is None else np.asarray(sizes, np.float64)[defined]
    stratum = _numbered(strata, kept, np.zeros(len(kept), int))
    cluster = _numbered(clusters, kept, np.arange(len(kept)))
    value, stderr, degrees, sums = _mean(b - a, size, stratum, cluster)
    half = _student(degrees, confidence) * stderr
    how = "sign flips" if clusters is None else "sign flips of clusters"
    ends = (value - half, value + half)
    return Difference(value, stderr, ends, sign_flips(sums, one_sided), *counts, how)


def detectable(deviation: float, num_examples: int, correlation: float) -> float:
    """`Difference.detectable` before a run, of two models with this deviation of an example and
    this correlation:

    (z of 97.5 % + z of 80 %) * sqrt(2 * deviation² * (1 - correlation) / n) (Miller 2024, section
    5).
    """
    variance = 2 * deviation**2 * (1 - correlation)
    if num_examples:
        return (_Z + _Z_POWER) * math.sqrt(variance / num_examples)
    return math.nan


def mean(
    values: np.ndarray, strata: Sequence[str] | None = None, sizes: np.ndarray | None = None
) -> float:
    """The mean that `difference` takes, of the values [n] that are defined; NaN if none is."""
    kept = np.flatnonzero(np.isfinite(values))
    if not len(kept):
        return math.nan
    size = np.ones(len(kept)) if sizes is None else sizes[kept]
    stratum = _numbered(strata, kept, np.zeros(len(kept), int))
    return float(
        (np.bincount(stratum, weights=values[kept]) / np.bincount(stratum, weights=size)).mean()
    )


def _numbered(names: Sequence[str] | None, kept: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """A number from 0 for each distinct name, int [kept]."""
    if names is None:
        return otherwise
    return np.unique(np.asarray(names)[kept], return_inverse=True)[1]


def _mean(
    values: np.ndarray, size: np.ndarray, stratum: np.ndarray, cluster: np.ndarray
) -> tuple[float, float, int, np.ndarray]:
    """Mean, standard error, degrees of freedom, and what each cluster adds to the mean; all arrays
    are [n]."""
    total = np.bincount(stratum, weights=size)
    means = np.bincount(stratum, weights=values) / total
    weight = 1 / (len(total) * total[stratum])
    _, first, unit = np.unique(
        stratum * (cluster.max() + 1) + cluster, return_index=True, return_inverse=True
    )
    residuals = np.bincount(unit, weights=weight * (values - means[stratum] * size))
    num_units = np.bincount(stratum[first])
    # a stratum of one cluster has no deviation
    others = np.where(num_units > 1, num_units - 1, math.nan)
    squares = np.bincount(stratum[first], weights=residuals**2) * num_units / others
    degrees = int((num_units - 1).sum())
    return (
        float(means.mean()),
        float(np.sqrt(squares.sum())),
        degrees,
        np.bincount(unit, weights=weight * values),
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value: of n discordant pairs, as few as these of one kind where both
    are as likely."""
    # scipy.stats.binom takes half a second to import; as a beta function its cdf is as exact, where
    # bdtr of millions of pairs is off by 1e-5
    from scipy.special import betainc

    fewer = min(only_first, only_second)
    return min(1.0, 2 * float(betainc(max(only_first, only_second), fewer + 1, 0.5)))


def signed_ranks(differences: np.ndarray) -> np.ndarray:
    """The ranks of the absolute differences with their signs, float64 [n], NaN where undefined;
    divided by their mean, so that the mean of these is the rank-biserial correlation of matched
    pairs (Kerby 2014, Compr. Psychol. 3): 1 where all are positive.  Equal ones share their rank.
    """
    from scipy.stats import rankdata  # takes a second to import

    ranks = rankdata(np.abs(differences), nan_policy="omit") * np.sign(differences)
    return ranks / ((np.isfinite(differences).sum() + 1) / 2)


def sign_flips(sums: np.ndarray, one_sided: bool = False) -> float:
    """p-value of sum(sums) where each of `sums`, float64 [clusters], is as likely with either sign.

    All flips of at most 13 that are not zero; else RESAMPLES drawn with seed 0, the observed one
    counted among them.  `one_sided`: only sums above count, not those as far below.
    """
    sums = sums[sums != 0]
    size = np.abs
    if one_sided:
        size = np.positive
    # equal sums may round apart
    observed = float(size(sums.sum())) - 1e-12 * float(np.abs(sums).sum())
    if len(sums) <= _EXACT:
        flips = (np.arange(1 << len(sums))[:, None] >> np.arange(len(sums))) & 1
        return float((size((2 * flips - 1) @ sums) >= observed).mean())
    generator = np.random.default_rng(0)
    num_bytes = -(-len(sums) // 8)
    by_byte = np.pad(sums, (0, 8 * num_bytes - len(sums))).reshape(num_bytes, 8)
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    kept = (by_byte @ bits.T).ravel()  # what each value of each byte keeps of its eight sums
    first = 256 * np.arange(num_bytes)
    reached = 0
    for _ in range(RESAMPLES // BLOCK):
        drawn = np.frombuffer(generator.bytes(BLOCK * num_bytes), np.uint8)
        totals = kept[drawn.reshape(BLOCK, num_bytes) + first].sum(axis=1)
        reached += int((size(2 * totals - sums.sum()) >= observed).sum())
    return (reached + 1) / (RESAMPLES + 1)


def combined(
    value: float, parts: Sequence[tuple[float, Difference]], confidence: float = 0.95
) -> Difference:
    """The difference of a composite of independent tasks, each with its weight.

    The interval keeps those of its parts, by `ends_of_sum`; error and p-value follow from it, as
    those of a normal value: the standard error of a few pairs that all differ one way would be 0.
    """
    low, high = ends_of_sum(parts)
    z = z_of(confidence)
    toward_zero = low if value > 0 else high
    p_value = float(value == 0)
    if toward_zero:
        p_value = math.erfc(abs(value) / (toward_zero / z) / math.sqrt(2))
    stderr = (low + high) / 2 / z
    return Difference(
        value, stderr, (value - low, value + high), p_value, len(parts), 0, 0, 0, "normal"
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjustment (1979, Scand. J. Stat. 6, 65-70), which scipy lacks, over those that are
    not NaN: each holds for all at once."""
    known = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted = [math.nan] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = highest
    return adjusted


def _student(degrees: int, confidence: float) -> float:
    """The quantile of Student's t that ends an interval, 0.975 of 95 %."""
    from scipy.stats import t

    return float(t.ppf((1 + confidence) / 2, degrees)) if degrees > 0 else math.nan
