"""Every suite on made-up data scores what it scored before: results and samples against the files in tests/golden.

A difference that is meant: `python -m tests.golden.make`, and the commit says which score moves and why.
"""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.make import FOLDER, GROUPS, make

# Log-probabilities differ in their last digits between machines and releases of jax; files hold six digits.
RELATIVE, ABSOLUTE = 1e-4, 2e-4
PERCENT = 0.02  # of a drift, 100 times a ratio of two of them
TOLD = 12  # differences of a file


def differences(stored: Any, found: Any, path: str = "") -> Iterator[str]:
    """Where two trees of JSON differ: a sentence a place."""
    if isinstance(stored, dict) and isinstance(found, dict):
        for key in stored | found:
            if key not in stored or key not in found:
                yield f"{path}.{key}: {'only stored' if key in stored else 'only found'}"
            else:
                yield from differences(stored[key], found[key], f"{path}.{key}")
    elif isinstance(stored, list) and isinstance(found, list):
        if len(stored) != len(found):
            yield f"{path}: stored {len(stored)} entries, found {len(found)}"
        for i, (a, b) in enumerate(zip(stored, found, strict=False)):
            yield from differences(a, b, f"{path}[{i}]")
    elif isinstance(stored, float) and isinstance(found, float):
        if not math.isclose(stored, found, rel_tol=RELATIVE, abs_tol=PERCENT if "drift" in path else ABSOLUTE):
            yield f"{path}: stored {stored!r}, found {found!r}"
    elif type(stored) is not type(found) or stored != found:
        yield f"{path}: stored {stored!r:.200}, found {found!r:.200}"


def test_differences_by_hand() -> None:
    stored = {"a": [1, 2.0, None], "b": {"c": "x", "d": True}}
    assert list(differences(stored, json.loads(json.dumps(stored)))) == []
    assert list(differences(stored, {"a": [1, 2.0001, None], "b": {"c": "x", "d": True}})) == []
    assert list(differences(stored, {"a": [1.0, 2.001], "b": {"c": "y", "d": 1}, "e": 0})) == [
        ".a: stored 3 entries, found 2",
        ".a[0]: stored 1, found 1.0",
        ".a[1]: stored 2.0, found 2.001",
        ".b.c: stored 'x', found 'y'",
        ".b.d: stored True, found 1",
        ".e: only found",
    ]
    assert list(differences({"drift": {"ci95": [-0.2766]}}, {"drift": {"ci95": [-0.2769]}})) == []
    assert list(differences({"drift": {"ci95": [-0.27]}}, {"drift": {"ci95": [-0.3]}})) == [
        ".drift.ci95[0]: stored -0.27, found -0.3"
    ]


def test_every_suite_has_a_golden_file() -> None:
    from miron_jax.tasks.registry import SUITES

    names = {suite for _, suites in GROUPS.values() for suite in suites}
    assert names == set(SUITES)
    assert {path.name for path in FOLDER.glob("*.json")} == {f"{name}.json" for name in names} | {
        f"{group}.run.json" for group in GROUPS
    }


@pytest.mark.parametrize("group", GROUPS)
def test_suites_score_what_they_scored(group: str, tmp_path: Path) -> None:
    for tool, what in {"bwrap": "bubblewrap", "g++": "g++", "node": "Node.js"}.items():
        if group == "programs" and shutil.which(tool) is None:
            pytest.skip(f"needs {what} to run programs, which is absent here")
    make(group, tmp_path)
    told: list[str] = []
    for path in sorted(tmp_path.glob("*.json")):
        stored, found = (json.loads(own.read_text(encoding="utf-8")) for own in (FOLDER / path.name, path))
        places = list(differences(stored, found))
        told += [f"{path.stem}{place}" for place in places[:TOLD]]
        told += [f"{path.stem}: {len(places) - TOLD} more"] if len(places) > TOLD else []
    assert not told, "differs from tests/golden:\n" + "\n".join(told)
