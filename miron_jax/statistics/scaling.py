"""Scaling laws of a task: its loss against the size of a run, its accuracy against its loss.

Arrives: sizes, losses and accuracies, a number for each run.  Leaves: laws, forecasts with
intervals, errors of runs left out; float64.  It deliberately does not know runs or metrics.

The two steps are those of Bhagia et al. 2024 (arXiv:2412.04403).  Their sigmoid has four
parameters; here its floor is what guessing gives and its ceiling 1, as a ladder of a few runs does
not tell four.  The noise of runs is what they deviate from the law.  The error over examples is no
part of it: all runs answer the same examples.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np

from miron_jax.statistics.estimate import Estimate

DRAWS = 4000  # of the bootstrap: ends by 1,000 held a steepness in 91.8 % of ladders of 8 runs
LEAST_RUNS = 5  # a law has three parameters; each run is left out once
LEAST_SIZES = 4
_EXPONENTS = np.geomspace(0.005, 5.0, 60)
_GOLDEN = (5**0.5 - 1) / 2
_SECTIONS = 40  # of an interval between two of the exponents, to 1e-8 of it
_STEPS = 60  # to a sigmoid; ten are usual


class PowerLaw(NamedTuple):
    """loss = irreducible + scale * (size / middle) ** -exponent.  Fields are [draws]."""

    irreducible: np.ndarray  # not below 0
    scale: np.ndarray  # not below 0
    exponent: np.ndarray
    middle: float  # geometric mean of the sizes, so that `scale` is a loss

    def at(self, size: np.ndarray | float) -> np.ndarray:
        return self.irreducible + self.scale * (size / self.middle) ** -self.exponent

    @classmethod
    def fitted(cls, sizes: np.ndarray, losses: np.ndarray) -> Self:
        """Least squares.  `sizes`: [runs]; `losses`: above 0, [draws, runs].

        With its exponent given a law is linear, so a search over exponents alone finds the best:
        the best of a grid, then sections between its neighbours."""
        middle = float(np.exp(np.log(sizes).mean()))
        logs = np.log(sizes / middle)
        squares = [_linear(logs, losses, exponent)[2] for exponent in _EXPONENTS]
        best = np.argmin(squares, axis=0)
        low = _EXPONENTS[np.maximum(best - 1, 0)]
        high = _EXPONENTS[np.minimum(best + 1, len(_EXPONENTS) - 1)]
        for _ in range(_SECTIONS):
            lower = high - _GOLDEN * (high - low)
            higher = low + _GOLDEN * (high - low)
            is_left = _linear(logs, losses, lower)[2] <= _linear(logs, losses, higher)[2]
            low = np.where(is_left, low, lower)
            high = np.where(is_left, higher, high)
        exponent = (low + high) / 2
        irreducible, scale, _ = _linear(logs, losses, exponent)
        return cls(irreducible, scale, exponent, middle)


def _linear(
    logs: np.ndarray, losses: np.ndarray, exponent: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Irreducible loss, scale and sum of squares, each [draws], of the best law with this exponent.

    Where the best line has a negative part, the best allowed one has 0 there."""
    powers = np.exp(-np.multiply.outer(exponent, logs))  # [runs] or [draws, runs]
    mean = losses.mean(axis=-1)
    away = powers - powers.mean(axis=-1, keepdims=True)
    scale = (away * losses).sum(axis=-1) / (away**2).sum(axis=-1)
    scale = np.maximum(scale, 0.0)
    irreducible = mean - scale * powers.mean(axis=-1)
    through_zero = (powers * losses).sum(axis=-1) / (powers**2).sum(axis=-1)
    scale = np.where(irreducible < 0, through_zero, scale)
    irreducible = np.maximum(irreducible, 0.0)
    residuals = losses - irreducible[:, None] - scale[:, None] * powers
    return irreducible, scale, (residuals**2).sum(axis=-1)


class Sigmoid(NamedTuple):
    """accuracy = floor + (1 - floor) / (1 + exp(-level + steepness * (loss - middle))).  Fields are
    [draws]."""

    level: np.ndarray  # log odds at the mean loss, of accuracy above the floor
    steepness: np.ndarray  # what a unit of loss takes of them
    middle: float  # mean of the losses
    floor: float

    def at(self, loss: np.ndarray | float) -> np.ndarray:
        return _sigmoid(self.level - self.steepness * (loss - self.middle), self.floor)

    @classmethod
    def fitted(cls, losses: np.ndarray, accuracies: np.ndarray, floor: float) -> Self:
        """Least squares, by Levenberg and Marquardt's steps for all draws at once.  `losses`:
        [runs], not all the same; `accuracies`: [draws, runs]."""
        middle = float(losses.mean())
        unit = losses.std()
        places = (losses - middle) / unit
        line = np.stack([np.zeros(len(accuracies)), np.ones(len(accuracies))])
        damping = np.ones(len(accuracies))
        residuals, slopes = _residuals(line, places, accuracies, floor)
        for _ in range(_STEPS):
            curvature = np.einsum("idr,jdr->dij", slopes, slopes)
            diagonal = np.einsum("dii->di", curvature)
            diagonal *= 1 + damping[:, None]
            diagonal += 1e-300  # where an accuracy no longer moves
            gradient = np.einsum("idr,dr->di", slopes, residuals)
            tried = line + np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0].T
            others, other_slopes = _residuals(tried, places, accuracies, floor)
            is_better = (others**2).sum(axis=-1) < (residuals**2).sum(axis=-1)
            line = np.where(is_better, tried, line)
            residuals = np.where(is_better[:, None], others, residuals)
            slopes = np.where(is_better[:, None], other_slopes, slopes)
            damping = np.where(is_better, np.maximum(damping / 3, 1e-9), damping * 4)
        level, steepness = line
        return cls(level, steepness / unit, middle, floor)


def _residuals(
    line: np.ndarray, places: np.ndarray, accuracies: np.ndarray, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies less those of the sigmoids, [draws, runs]; the sigmoids' slopes by level and
    steepness, [2, draws, runs]."""
    share = _sigmoid(line[0, :, None] - line[1, :, None] * places, 0.0)
    rise = (1 - floor) * share * (1 - share)
    return accuracies - floor - (1 - floor) * share, np.stack([rise, -rise * places])


def _sigmoid(odds: np.ndarray, floor: float) -> np.ndarray:
    return floor + (1 - floor) / (1 + np.exp(-np.clip(odds, -500, 500)))


Law = TypeVar("Law", PowerLaw, Sigmoid)
Numbers = Sequence[float] | np.ndarray  # of runs


class Fit(NamedTuple, Generic[Law]):
    """A law of runs, with what is not known of it."""

    law: Law  # [1]
    draws: Law  # of the bootstrap
    noise: np.ndarray  # standard deviation of runs from the law, [draws]
    deviation: float  # the same of the law: sqrt(sum of residual² / (runs - parameters))
    left_out: tuple[float, ...]  # of each run: what the law of the others says, less what it scored

    @property
    def left_out_error(self) -> float:
        """The mean size of the errors."""
        return float(np.abs(self.left_out).mean())

    def field(self, name: str) -> Estimate:
        """A parameter of the law."""
        return _estimate(getattr(self.law, name), getattr(self.draws, name), len(self.left_out))


class Forecast(NamedTuple):
    """What one more run would score, its own noise within the intervals."""

    size: float
    loss: Estimate
    accuracy: Estimate | None  # None: no law of it


def fit_losses(sizes: Numbers, losses: Numbers) -> Fit[PowerLaw]:
    """Of LEAST_RUNS runs or more, of LEAST_SIZES sizes or more."""
    return _fit(PowerLaw.fitted, np.asarray(sizes), np.asarray(losses), 3)


def fit_accuracies(losses: Numbers, accuracies: Numbers, floor: float) -> Fit[Sigmoid]:
    """Of as many runs; their losses differ."""
    fitted = partial(Sigmoid.fitted, floor=floor)
    return _fit(fitted, np.asarray(losses), np.asarray(accuracies), 2)


def _fit(
    fitted: Callable[[np.ndarray, np.ndarray], Law],
    places: np.ndarray,
    values: np.ndarray,
    num_parameters: int,
) -> Fit[Law]:
    """Each draw of the bootstrap takes a deviation that the residuals allow (their sum of squares
    over a draw of chi²), adds so much normal noise to what the law says of the runs, and fits the
    law again.  Of a straight line its percentiles are the ends of Student's interval."""
    law = fitted(places, values[None])
    expected = law.at(places)
    squares = float(((values - expected) ** 2).sum())
    freedom = len(values) - num_parameters
    generator = np.random.default_rng((0, num_parameters))  # each law has draws of its own
    noise = np.sqrt(squares / generator.chisquare(freedom, DRAWS))
    away = generator.standard_normal((DRAWS, len(values)))
    draws = fitted(places, expected + noise[:, None] * away)
    left_out = []
    for i, place in enumerate(places):
        others = fitted(np.delete(places, i), np.delete(values, i)[None])
        left_out.append(float(others.at(place)[0] - values[i]))
    return Fit(law, draws, noise, math.sqrt(squares / freedom), tuple(left_out))


def forecast(size: float, losses: Fit[PowerLaw], accuracies: Fit[Sigmoid] | None) -> Forecast:
    """The accuracy of a run follows from its loss, of which each draw has another."""
    generator = np.random.default_rng(1)
    num_runs = len(losses.left_out)
    expected = losses.law.at(size)
    of_draws = losses.draws.at(size) + losses.noise * generator.standard_normal(DRAWS)
    of_draws = np.maximum(of_draws, 0.0)
    loss = _estimate(expected, of_draws, num_runs)
    if accuracies is None:
        return Forecast(size, loss, None)
    away = accuracies.noise * generator.standard_normal(DRAWS)
    shares = np.clip(accuracies.draws.at(of_draws) + away, 0.0, 1.0)
    return Forecast(size, loss, _estimate(accuracies.law.at(expected), shares, num_runs))


def _estimate(value: np.ndarray, draws: np.ndarray, num_runs: int) -> Estimate:
    low, high = np.quantile(draws, (0.025, 0.975))
    return Estimate(value.item(), float(draws.std()), (float(low), float(high)), num_runs, 0)
