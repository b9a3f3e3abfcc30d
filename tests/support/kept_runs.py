"""Runs of the command in processes of their own, whose journal the next run finds; and what makes two results the same."""

from pathlib import Path
from typing import Any

import pytest

from miron_jax.runtime.journal import FOLDER
from tests.support.tolerances import METRIC

# The command, each of whose scores is in the journal as soon as it is computed.
WRITES_AT_ONCE = """
import miron_jax.runtime.journal as journal
from miron_jax.cli import main

def write_at_once(self, new, _add=journal.Journal._add):
    _add(self, new)
    with self._lock:
        self._wait()  # else scores that come while the thread writes share its next segment

journal.FLUSH_SECONDS = 0
journal.Journal._add = write_at_once
main()
"""


def parts_in(folder: Path) -> list[Path]:
    """The journal's segments in an output folder."""
    return sorted(folder.glob(f"{FOLDER}/*/*.npz"))


def same_results(received: dict[str, Any], expected: dict[str, Any]) -> None:
    """Answers, counts and accuracies equal; log-probabilities within the stated tolerance."""
    assert received["tasks"].keys() == expected["tasks"].keys()
    for name, task in expected["tasks"].items():
        again = received["tasks"][name]
        assert (again["n"], again["skipped"]) == (task["n"], task["skipped"]), name
        for metric, entry in task["metrics"].items():
            now = again["metrics"][metric]["value"]
            if metric.startswith(("accuracy", "exact")):
                assert now == entry["value"], (name, metric)
            assert now == pytest.approx(entry["value"], abs=5 * METRIC), (name, metric)
