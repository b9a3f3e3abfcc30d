"""The files of examples/ run as their README says; launch/ has tests of its own in test_recipes."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from miron_jax.files.readers import JsonObject
from tests.conftest import REPOSITORY
from tests.support import processes
from tests.support.command import run

pytestmark = pytest.mark.slow

EXAMPLES = REPOSITORY / "examples"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the examples, where they may write."""
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("MPLBACKEND", "agg")
    return folder


def script(here: Path, name: str, *flags: str) -> str:
    """What a script of examples/ prints, in a process of its own."""
    code = f"import runpy; runpy.run_path({name!r}, run_name='__main__')"
    return processes.run("-c", code, *flags, cwd=here, check=True).stdout


def test_pages_show_examples_from_their_first_import_on() -> None:
    shown = re.compile(r"```{literalinclude} (\S+)\n:lines: (\d+)-\n```")
    pages = [path for path in (REPOSITORY / "docs").glob("*.md") if shown.search(path.read_text())]
    assert [path.name for path in sorted(pages)] == ["own_model.md", "training_loop.md"]
    for page in pages:
        for file, line in shown.findall(page.read_text()):
            assert (page.parent / file).read_text().splitlines()[int(line) - 1].startswith("import "), file


def test_the_linen_model_is_scored(here: Path, miron: Any) -> None:
    """The nnx model is scored by the training loop."""
    results = run(miron, Path("linen_model:make"), here / "out", "--tasks=miron-gen/en", "--limit=2")
    assert results["tasks"]["miron-gen/en"]["n"] == 8
    assert results["self_check"]["largest"] <= results["self_check"]["tolerance"]


def test_the_training_loop_scores_goes_on_and_its_checkpoints_score_alike(here: Path, miron: Any) -> None:
    printed = "".join(script(here, "training_loop.py", f"--steps={steps}", "--every=15") for steps in (15, 30))
    losses = [(int(step), float(loss)) for step, loss in re.findall(r"^step (\d+): loss ([\d.]+)", printed, re.M)]
    assert [step for step, _ in losses] == [15, 30], "it goes on from the checkpoint"
    assert losses[1][1] < losses[0][1] < 7.0, "it learns its sentences"
    inside = json.loads(Path("run-results/step_30/results.json").read_text())
    flags = ("--checkpoint=checkpoints", "--steps=30", "--tasks=miron-gen/en", "--items_per_category=12")
    outside = run(miron, Path("nnx_model:make"), here / "outside", *flags)
    for results in (inside, outside):
        assert results["self_check"]["largest"] <= results["self_check"]["tolerance"]
    ours, theirs = (each["tasks"]["miron-gen/en"]["metrics"]["bits_per_byte"]["value"] for each in (inside, outside))
    assert theirs == pytest.approx(ours)


def test_the_task_is_read_and_scored_and_the_notebook_opens_its_results(
    here: Path, miron: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = miron("tasks", "--check=own_task/capitals.yaml")
    assert "12 examples, nothing is wrong" in checked.out, checked.err
    flags = ("--steps=latest", "--task_path=own_task/capitals.yaml", "--tasks=own")
    results = run(miron, Path("demo"), here / "own-results", *flags)
    assert results["tasks"]["own/capitals"]["n"] == 12
    notebook = json.loads(Path("results.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    Path("cells.py").write_text("\n\n".join(cells))
    monkeypatch.setenv("RESULTS", "own-results")
    printed = script(here, "cells.py")
    assert "own/capitals" in printed
    assert "right" in printed
    assert Path("tasks.png").stat().st_size > 1000


def test_the_job_is_quiet(here: Path, miron: Any) -> None:
    ran = miron("eval", "--flagfile=job.flags", "--items_per_category=2", "--compilation_cache=")
    assert (ran.status, ran.err) == (0, "")
    results: JsonObject = json.loads(Path("job-results/results.json").read_text())
    assert set(results["tasks"]) == {"miron-gen/en", "miron-gen/ru"}
    assert "step_4500" in str(results["steps"])
