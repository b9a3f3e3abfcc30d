"""What a task must be to count in a composite (whole, published, every example scored), and a composite's error."""

import math
from dataclasses import replace

import pytest

from miron_jax.definitions.records import Composite, Measured
from miron_jax.evaluation.composites import _Averaged, _measured, composite_result
from miron_jax.metrics.choices import ExampleScore
from miron_jax.results.records import UNKNOWN, TaskData, TaskResult
from miron_jax.statistics.estimate import Estimate, macro_estimates, wilson
from miron_jax.tasks import core
from tests.support.tolerances import printed


@pytest.mark.parametrize(
    ("state", "num_examples", "num_skipped", "counts"),
    [
        ("as published", 2, 0, True),
        ("as published", 3, 0, True),  # its checksum says more than its lines
        ("as published", 2, 1, False),
        ("no published hash", 2, 0, True),
        ("no published hash", 3, 0, False),
        ("changed", 2, 0, False),
        ("changed", 3, 0, False),
    ],
)
def test_changed_or_partial_data_do_not_count(state: str, num_examples: int, num_skipped: int, counts: bool) -> None:
    """The published file has two lines."""
    rows = None if num_examples == 2 else num_examples
    data = TaskData("file", rows, rows and 2, state)
    task = TaskResult(n=num_examples - num_skipped, metrics={}, skipped=num_skipped, data=data)
    main = replace(UNKNOWN, value=0.5)
    measured = _measured(task, _Averaged(main, {"accuracy": main}), takes_sampled=False)
    assert measured.main == (0.5 if counts else None)
    assert measured.num_examples == num_examples


def test_composite_error_by_hand():
    # sqrt((.5 * .06)² + (2 * .02)²) = sqrt(.0009 + .0016) = .05
    # Down: a by .5 * .1 = .05, b by 2 * .06 = .12: .13.  Up: .5 * .16 = .08, 2 * .03 = .06: .1; the weight of c is negative,
    # so its upper end pulls down.
    composite = Composite(0.2, True, (), {"a": 0.5, "b": 2.0})
    tasks = {"a": Estimate(0.5, 0.06, (0.4, 0.66), 9, 0), "b": Estimate(0.1, 0.02, (0.04, 0.13), 9, 0)}
    result = composite_result(composite, tasks)
    assert result.stderr == pytest.approx(0.05)
    assert result.ci95 == pytest.approx((0.2 - 0.13, 0.2 + 0.1))
    negative = composite_result(Composite(0.2, True, (), {"c": -1.0}), {"c": Estimate(0.5, 0.1, (0.4, 0.7), 9, 0)})
    assert negative.ci95 == pytest.approx((0.2 - 0.2, 0.2 + 0.1))
    lacking = composite_result(Composite(None, False, ("b",), {"a": 1.0}), {})
    assert (math.isnan(lacking.value), lacking.ci95, lacking.missing) == (True, None, ("b",))


def test_a_composite_of_macro_means_at_zero_has_an_interval() -> None:
    """0 of 160: two tasks of four categories, 20 examples each; each [0, z² / (80 + z²)], the composite sqrt(.5) of it."""
    categories = {name: [ExampleScore(None, False, False, False, {"greedy_exact": 0.0})] * 20 for name in "abcd"}
    task = macro_estimates(categories)["greedy_exact"]
    assert task.ci95 == pytest.approx((0.0, 0.0458), abs=printed(4))
    composite = composite_result(Composite(0.0, True, (), {"x": 0.5, "y": 0.5}), {"x": task, "y": task})
    assert composite.ci95 == pytest.approx((0.0, math.sqrt(0.5) * task.ci95[1]))


def test_published_error_of_gpt2s_core(shared_data):
    # The 22 accuracies of the 124M model over full data: sampling error of CORE about 0.006.
    text = (shared_data / "goldens" / "openai-community-gpt2.csv").read_text()
    accuracies = {line.split(",")[0].strip(): float(line.split(",")[1]) for line in text.splitlines()[1:-1]}
    tasks, measured = {}, {}
    for task in core.SUITE.tasks:
        p, n = accuracies[task.name.removeprefix("core/")], task.file.rows or 1
        tasks[task.name] = Estimate(p, math.sqrt(p * (1 - p) / n), wilson(p, n), n, 0)
        measured[task.name] = Measured(p, 10)
    result = composite_result(core.composites(measured)["CORE"], tasks)
    assert result.stderr == pytest.approx(0.006, abs=printed(3))
