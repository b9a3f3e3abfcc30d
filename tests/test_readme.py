"""The README's programs run in an empty folder as it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def programs() -> dict[str, str]:
    """File name -> text of every fenced program whose first line names its file."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", readme, flags=re.DOTALL))


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_users_model_and_a_training_loop(tmp_path: Path) -> None:
    for name, text in programs().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert len(programs()["my_model.py"].splitlines()) <= 45
    flags = ("--model=my_model:make", "--tasks=miron-gen", "--limit=2", "--output=out", "--compilation_cache=")
    output = run(tmp_path, "-m", "miron_jax.cli", "eval", *flags)
    assert "self-check" in output
    assert json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]["miron-gen/en"]["n"] == 8
    lines = [line.split() for line in run(tmp_path, "train.py").splitlines()]
    assert [line[0] for line in lines] == ["20", "40", "60"]
    losses = [float(line[1]) for line in lines]
    assert losses[2] < losses[0] < 7.0, "it learns its two sentences"
    written = json.loads((tmp_path / "run-results" / "step_60" / "results.json").read_text())
    assert written["tasks"]["miron-gen/en"]["metrics"]["bits_per_byte"]["value"] == float(lines[2][2])
