"""What a task must be to count in its suite's composite: whole, published, every example scored."""

from types import SimpleNamespace
from typing import Any

import pytest

from miron_jax.evaluation.composites import _measured


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
    task, data = SimpleNamespace(file=SimpleNamespace(rows=2)), SimpleNamespace(state=state)
    source = SimpleNamespace(task=task, data=data, examples=[None] * num_examples)
    scores: Any = SimpleNamespace(source=source, num_skipped=num_skipped, num_examples=num_examples)
    measured = _measured(scores, {"accuracy": SimpleNamespace(value=0.5)})  # type: ignore[dict-item]
    assert measured.accuracy == (0.5 if counts else None)
    assert measured.num_examples == num_examples
