"""The files of examples/ run as their README says; launch/ has tests of its own in test_recipes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow

EXAMPLES = REPOSITORY / "examples"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the examples, where they may write."""
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder)
    monkeypatch.chdir(folder)
    return folder


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def evaluated(output: str, *flags: str) -> dict:
    run("-m", "miron_jax", "eval", f"--output={output}", *flags)
    return json.loads(Path(output, "results.json").read_text())


def test_the_nnx_model_is_that_of_the_pages() -> None:
    """The pages show it whole, so that each can be read alone."""
    code = (EXAMPLES / "nnx_model.py").read_text().partition('"""\n\n')[2]
    for name in ("own_model.md", "training_loop.md"):
        page = (REPOSITORY / "docs" / name).read_text()
        assert f"```python\n# my_model.py\n{code}```" in page


@pytest.mark.parametrize("module", ["nnx_model", "linen_model"])
def test_own_models_are_scored(module: str, here: Path) -> None:
    results = evaluated("out", f"--model={module}:make", "--tasks=miron-gen/en", "--limit=2")
    assert results["tasks"]["miron-gen/en"]["n"] == 8
    assert results["self_check"]["largest"] <= results["self_check"]["tolerance"]


def test_the_training_loop_scores_goes_on_and_its_checkpoints_score_alike(here: Path) -> None:
    printed = run("training_loop.py", "--steps=20", "--every=10").stdout
    losses = {int(step): float(loss) for step, loss in re.findall(r"^step (\d+): loss ([\d.]+)", printed, re.M)}
    assert list(losses) == [10, 20]
    assert losses[20] < losses[10] < 7.0, "it learns its sentences"
    printed = run("training_loop.py", "--steps=30", "--every=10").stdout
    assert re.findall(r"^step (\d+): loss", printed, re.M) == ["30"], "it goes on from the checkpoint"
    inside = json.loads(Path("run-results/step_30/results.json").read_text())["tasks"]["miron-gen/en"]
    flags = ("--model=nnx_model:make", "--checkpoint=checkpoints", "--steps=30", "--tasks=miron-gen/en")
    outside = evaluated("outside", *flags, "--items_per_category=12")["tasks"]["miron-gen/en"]
    value = inside["metrics"]["bits_per_byte"]["value"]
    assert outside["metrics"]["bits_per_byte"]["value"] == pytest.approx(value)


def test_the_task_is_read_and_scored(here: Path) -> None:
    assert "12 examples, nothing is wrong" in run("-m", "miron_jax", "tasks", "--check=own_task/capitals.yaml").stdout
    results = evaluated("out", "--steps=latest", "--task_path=own_task/capitals.yaml")
    assert results["tasks"]["own/capitals"]["n"] == 12


def test_the_job_and_the_notebook_that_opens_its_results(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("-m", "miron_jax", "eval", "--flagfile=job.flags")
    assert not done.stderr, "it is quiet"
    notebook = json.loads(Path("results.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    Path("cells.py").write_text("\n\n".join(cells))
    evaluated("own-results", "--steps=latest", "--task_path=own_task/capitals.yaml", "--tasks=own")
    monkeypatch.setenv("RESULTS", "own-results")
    printed = run("cells.py").stdout
    assert "own/capitals" in printed
    assert "right" in printed
    assert Path("tasks.png").stat().st_size > 1000
