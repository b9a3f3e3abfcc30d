"""What a task must be to count in its suite's composite: whole, published, every example scored."""

from dataclasses import replace

import pytest

from miron_jax.evaluation.composites import _measured
from miron_jax.results.records import UNKNOWN, TaskData, TaskResult


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
    measured = _measured(task, {"accuracy": replace(UNKNOWN, value=0.5)}, takes_sampled=False)
    assert measured.accuracy == (0.5 if counts else None)
    assert measured.num_examples == num_examples
