"""Laws over sizes: fits against scipy's, runs left out, how often intervals hold the truth."""

import numpy as np
import pytest
from scipy.optimize import curve_fit

from miron_jax.statistics.estimate import Estimate
from miron_jax.statistics.scaling import PowerLaw, fit_accuracies, fit_losses, forecast
from tests.support.tolerances import FITTED, LEFT_OUT, ROUNDING

SIZES = np.geomspace(1e7, 3e8, 6)
MIDDLE = float(np.exp(np.log(SIZES).mean()))
LOSSES = 0.55 + 0.35 * (SIZES / MIDDLE) ** -0.3 + [0.004, -0.006, 0.003, 0.005, -0.007, 0.002]
ACCURACIES = 0.25 + 0.75 / (1 + np.exp(8 * (LOSSES - 0.8))) + [0.01, -0.02, 0.01, 0.015, -0.01, 0.0]


def law(size: np.ndarray, irreducible: float, scale: float, exponent: float) -> np.ndarray:
    return irreducible + scale * (size / MIDDLE) ** -exponent


def sigmoid(loss: np.ndarray, steepness: float, half: float) -> np.ndarray:
    return 0.25 + 0.75 / (1 + np.exp(steepness * (loss - half)))


def by_scipy(sizes: np.ndarray, losses: np.ndarray) -> np.ndarray:
    return curve_fit(law, sizes, losses, (0.5, 0.3, 0.3), bounds=(0, np.inf), ftol=1e-14, xtol=1e-14, gtol=1e-14)[0]


def test_laws_and_runs_left_out_are_those_of_another_fit() -> None:
    fit = fit_losses(SIZES, LOSSES)
    np.testing.assert_allclose(np.ravel(fit.law[:3]), by_scipy(SIZES, LOSSES), rtol=FITTED)
    residuals = LOSSES - law(SIZES, *by_scipy(SIZES, LOSSES))
    assert fit.deviation == pytest.approx(np.sqrt((residuals**2).sum() / 3), rel=ROUNDING)
    curve = fit_accuracies(LOSSES, ACCURACIES, 0.25)
    (steepness, half), _ = curve_fit(sigmoid, LOSSES, ACCURACIES, (5, 0.8))
    assert curve.law.steepness.item() == pytest.approx(steepness, rel=FITTED)
    assert curve.law.at(0.7).item() == pytest.approx(sigmoid(np.asarray(0.7), steepness, half), rel=FITTED)
    for i in range(6):
        others = np.arange(6) != i
        says = law(SIZES[i], *by_scipy(SIZES[others], LOSSES[others]))
        assert fit.left_out[i] == pytest.approx(says - LOSSES[i], abs=LEFT_OUT)
        says = sigmoid(LOSSES[i], *curve_fit(sigmoid, LOSSES[others], ACCURACIES[others], (5, 0.8))[0])
        assert curve.left_out[i] == pytest.approx(says - ACCURACIES[i], abs=LEFT_OUT)
    assert fit.left_out_error == pytest.approx(np.mean(np.abs(fit.left_out)))


@pytest.mark.parametrize(
    ("losses", "irreducible", "scale"),
    [
        (0.9 * (SIZES / MIDDLE) ** -0.2, 0.0, 0.9),  # nothing is irreducible
        (np.full(6, 0.7), 0.7, 0.0),
        (0.7 + 1e-9 * SIZES, None, 0.0),  # what rises has no law that falls
        (1.0 - 0.1 * np.log(SIZES / MIDDLE), 0.0, None),  # falls for ever: no share below 0
    ],
)
def test_no_part_of_a_law_is_negative(losses: np.ndarray, irreducible: float | None, scale: float | None) -> None:
    fitted = PowerLaw.fitted(SIZES, losses[None])
    if irreducible is not None:
        assert fitted.irreducible.item() == pytest.approx(irreducible, abs=ROUNDING)
    if scale is not None:
        assert fitted.scale.item() == pytest.approx(scale, abs=ROUNDING)
    assert fitted.irreducible.item() >= 0
    assert fitted.scale.item() >= 0


def test_a_law_without_noise_is_found_and_forecasts_itself() -> None:
    losses = law(SIZES, 0.6, 0.25, 0.4)
    fit = fit_losses(SIZES, losses)
    curve = fit_accuracies(losses, sigmoid(losses, 9.0, 0.8), 0.25)
    assert np.ravel(fit.law[:3]) == pytest.approx([0.6, 0.25, 0.4], rel=FITTED)
    each = forecast(2e9, fit, curve)
    loss = law(np.asarray(2e9), 0.6, 0.25, 0.4)
    assert each.accuracy is not None
    for estimate, value in ((each.loss, loss), (each.accuracy, sigmoid(loss, 9.0, 0.8))):
        assert (estimate.value, *estimate.ci95) == pytest.approx([value] * 3, rel=FITTED)


def share_that_holds(num_runs: int, num_simulations: int) -> np.ndarray:
    """How often the intervals of irreducible loss, exponent, steepness, loss and accuracy of one more run, eight
    times the largest, hold what is true of the simulated runs."""
    generator = np.random.default_rng(num_runs)
    sizes = np.geomspace(1e7, 3e8, num_runs)
    held = np.zeros(5)
    for _ in range(num_simulations):
        ladder = np.append(sizes, 8 * sizes[-1])
        losses = law(ladder, 0.55, 0.35, 0.3) + 0.01 * generator.standard_normal(num_runs + 1)
        accuracies = sigmoid(losses, 8.0, 0.8) + 0.01 * generator.standard_normal(num_runs + 1)
        fit = fit_losses(sizes, losses[:-1])
        curve = fit_accuracies(losses[:-1], accuracies[:-1], 0.25)
        each = forecast(ladder[-1], fit, curve)
        assert each.accuracy is not None
        held += [
            holds(fit.field("irreducible"), 0.55),
            holds(fit.field("exponent"), 0.3),
            holds(curve.field("steepness"), 8.0),
            holds(each.loss, losses[-1]),
            holds(each.accuracy, accuracies[-1]),
        ]
    return held / num_simulations


def holds(estimate: Estimate, value: float) -> bool:
    low, high = estimate.ci95
    return low <= value <= high


@pytest.mark.slow
def test_intervals_hold_the_truth_of_a_few_simulated_ladders() -> None:
    assert (share_that_holds(6, 40) >= 0.875).all()


@pytest.mark.long
@pytest.mark.parametrize("num_runs", [5, 8])
def test_intervals_hold_the_truth_of_simulated_ladders(num_runs: int) -> None:
    assert (share_that_holds(num_runs, 500) >= 0.93).all()
