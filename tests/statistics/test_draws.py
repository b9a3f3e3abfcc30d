"""The spread of a score over draws of its shots."""

import math

import numpy as np
import pytest

from miron_jax.results.records import Draws
from miron_jax.statistics.draws import spread, spread_of_task
from tests.support.tolerances import SIMULATED


def test_by_hand() -> None:
    """Deviations over two draws: of 1 and 0 sqrt(1/2), of 1 and 1 none.  sqrt(1/2 + 1/2) / 4 = 1/4; the NaN is left out."""
    values = np.array([[1, 0], [1, 1], [0, 1], [0, 0], [math.nan, 1]])
    assert spread(values) == pytest.approx(0.25)
    # two strata of one and three: weights 1/2 and 1/6, and the examples that move are one in each
    assert spread(values, ["a", "b", "b", "b", "b"]) == pytest.approx(math.hypot(1 / 2, 1 / 6) * math.sqrt(0.5))
    assert math.isnan(spread(values[:, :1]))
    assert math.isnan(spread(values[4:]))


def test_a_number_that_is_no_mean_has_the_deviation_of_its_scores() -> None:
    values = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
    assert spread_of_task(values, [0.5, 0.5]) == pytest.approx(0.25)
    assert spread_of_task(values, [0.6, 0.4]) == pytest.approx(math.sqrt(0.02))


def test_it_is_what_scores_of_other_draws_have_though_shots_are_shared() -> None:
    """Example i has in draw k the shots i + k, as CORE's draws do.  A right answer hangs on the example, on how good its
    shots are, and on both together.  2,000 sets of 60 examples with 5 draws: the mean variance is that of scores of new
    shots; that of the 5 scores is far below it, since nearly the same shots stand in all of them."""
    generator = np.random.default_rng(3)
    num_examples, num_draws, num_sets = 60, 5, 2000
    ease = generator.normal(size=num_examples)

    def values(shots: np.ndarray) -> np.ndarray:
        return (ease + shots + generator.normal(size=shots.shape) > 0).astype(float)

    new = values(generator.normal(size=(40_000, num_examples))).mean(axis=1).var()
    spreads = list[float]()
    of_scores = list[float]()
    for _ in range(num_sets):
        quality = generator.normal(size=num_examples + num_draws - 1)
        by_draw = np.stack([values(quality[k : k + num_examples]) for k in range(num_draws)], axis=1)
        spreads.append(spread(by_draw) ** 2)
        of_scores.append(float(by_draw.mean(axis=0).var(ddof=1)))
    assert np.mean(spreads) == pytest.approx(new, rel=SIMULATED)
    assert np.mean(of_scores) < 0.75 * new


@pytest.mark.parametrize("num_draws", [2, 5])
def test_another_draw_lies_in_the_interval(num_draws: int) -> None:
    """400 examples, each right by chance in each draw.  Without the variance of the mean 89 % would lie there with two."""
    generator = np.random.default_rng(num_draws)
    chance = generator.uniform(0.2, 0.8, 400)
    held = 0
    for _ in range(2000):
        values = (generator.random((num_draws + 1, 400)) < chance).astype(float)
        scores = values.mean(axis=1)
        draws = Draws(scores=tuple(scores[1:]), mean=float(scores[1:].mean()), spread=spread(values[1:].T))
        low, high = draws.estimate.ci95
        held += low <= scores[0] <= high
    assert 0.94 < held / 2000 < 0.96
