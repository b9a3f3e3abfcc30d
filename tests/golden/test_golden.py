"""Every suite's results and samples on made-up data equal the files in tests/golden.

After an intended difference run `python -m tests.golden.make`; the commit says which score moves and why.
"""

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from miron_jax.files.readers import Json
from miron_jax.results.document import example_line, example_of, run_json, run_of, strict_json
from tests.golden.make import FOLDER, GROUPS, make
from tests.support.tolerances import DRIFT, METRIC, METRIC_RELATIVE

MOST_LISTED = 12  # differences per file


def differences(stored: Json, computed: Json, path: str = "") -> Iterator[str]:
    """One sentence per difference of two JSON values."""
    if isinstance(stored, dict) and isinstance(computed, dict):
        for key in stored | computed:
            if key not in stored or key not in computed:
                yield f"{path}.{key}: {'only stored' if key in stored else 'only computed'}"
            else:
                yield from differences(stored[key], computed[key], f"{path}.{key}")
    elif isinstance(stored, list) and isinstance(computed, list):
        if len(stored) != len(computed):
            yield f"{path}: stored {len(stored)} entries, computed {len(computed)}"
        for i, (a, b) in enumerate(zip(stored, computed, strict=False)):
            yield from differences(a, b, f"{path}[{i}]")
    elif isinstance(stored, float) and isinstance(computed, float):
        if not math.isclose(stored, computed, rel_tol=METRIC_RELATIVE, abs_tol=DRIFT if "drift" in path else METRIC):
            yield f"{path}: stored {stored!r}, computed {computed!r}"
    elif type(stored) is not type(computed) or stored != computed:
        yield f"{path}: stored {stored!r:.200}, computed {computed!r:.200}"


def test_every_suite_has_a_golden_file() -> None:
    from miron_jax.tasks.registry import SUITES

    names = {suite for _, suites in GROUPS.values() for suite in suites}
    assert names == set(SUITES)
    assert {path.name for path in FOLDER.glob("*.json")} == {f"{name}.json" for name in names} | {
        f"{group}.run.json" for group in GROUPS
    }


def check_round_trip(output: Path) -> None:
    """What is read back from results.json and samples is written again as it was, keys in their order."""
    written = (output / "results.json").read_text(encoding="utf-8")
    again = strict_json(run_json(run_of(json.loads(written))), indent=1)
    assert again.splitlines() == written.splitlines()
    for path in (output / "samples").rglob("*.jsonl"):
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            again = json.loads(example_line(example_of(line)))
            assert (list(again), again) == (list(line), line), path


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_suites_score_what_they_scored(group: str, miron: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool, package in {"bwrap": "bubblewrap", "g++": "g++", "node": "nodejs"}.items():
        if group == "programs" and shutil.which(tool) is None:
            pytest.skip(f"needs {package}: apt-get install {package}")

    def run(arguments: Sequence[str], data: Path) -> None:
        monkeypatch.setenv("MIRON_JAX_DATA", str(data / "cache"))
        # 120 panels of one point.
        monkeypatch.setattr("miron_jax.report.figures.curves.draw_curves", lambda steps, file: None)
        ran = miron(*arguments)
        assert ran.status == 0, ran.err[-3000:]
        check_round_trip(data / "out")

    make(group, tmp_path, run)
    lines: list[str] = []
    for path in sorted(tmp_path.glob("*.json")):
        stored, computed = (json.loads(file.read_text(encoding="utf-8")) for file in (FOLDER / path.name, path))
        sentences = [f"{path.stem}{sentence}" for sentence in differences(stored, computed)]
        lines += sentences[:MOST_LISTED]
        lines += [f"{path.stem}: {len(sentences) - MOST_LISTED} more"] if len(sentences) > MOST_LISTED else []
    assert not lines, "differs from tests/golden:\n" + "\n".join(lines)
