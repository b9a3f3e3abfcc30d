"""`miron-jax init`: what it writes is taken unchanged by the commands that it names."""

import ast
import importlib
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx

from tests.support.command import run
from tests.support.training_runs import save_standard, scores_of

pytestmark = pytest.mark.slow
FEW = ("--tasks=miron-gen/en", "--limit=1", "--items_per_category=2")


def next_commands(printed: str) -> list[list[str]]:
    """The words behind `miron-jax` of each command that init names."""
    return [shlex.split(line.partition("miron-jax ")[2]) for line in printed.splitlines() if line.startswith("next: ")]


def test_the_task_is_checked_and_scored(miron: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = miron("init", "task", "a folder")
    assert ran.status == 0, ran.err
    check, score = next_commands(ran.out)
    assert "own/my_task: choice, 8 examples, nothing is wrong" in miron(*check).out
    results = run(miron, Path("demo"), tmp_path / "out", *score[1:], "--limit=4")
    assert results["tasks"]["own/my_task"]["n"] == 4
    written = {path.name: path.read_bytes() for path in (tmp_path / "a folder").iterdir()}
    assert set(written) == {"my_task.yaml", "my_task.jsonl"}
    # one of the two files is enough for a refusal, and the other is not written then
    (tmp_path / "a folder" / "my_task.yaml").unlink()
    ran = miron("init", "task", "a folder")
    assert (ran.status, ran.err.count("\n"), ran.out) == (2, 1, "")
    assert "a folder/my_task.jsonl is there already and is never overwritten" in ran.err
    assert [path.name for path in (tmp_path / "a folder").iterdir()] == ["my_task.jsonl"]


def test_the_model_is_scored_and_so_are_the_weights_of_its_run(
    miron: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training state, saved whole: the keys of dropout lie in it too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    ran = miron("init", "model")
    [score] = next_commands(ran.out)
    assert score == ["eval", "--model=my_model:make"], ran.err
    monkeypatch.delitem(sys.modules, "my_model", raising=False)  # pages of docs have one too
    model = importlib.import_module("my_model").Model(nnx.Rngs(7))
    tree = {"model": nnx.state(model), "opt_state": {"mu": nnx.state(model, nnx.Param)}}
    save_standard(tmp_path / "my_run" / "100", tree)
    bits = []
    for name, flags in (("random", ()), ("trained", ("--checkpoint=my_run",))):
        ran = miron(*score, f"--output={name}", "--compilation_cache=", *FEW, *flags)
        assert ran.status == 0, ran.err
        assert ("the weights below model are read, not model/blocks/0/drop/rngs/count" in ran.err) == bool(flags)
        bits.append(scores_of(tmp_path / name)["miron-gen/en"]["metrics"]["bits_per_byte"]["value"])
    assert bits[0] != bits[1]


def test_the_arrays_of_a_checkpoint_are_comments_whatever_their_names(miron: Any, tmp_path: Path) -> None:
    ones = np.ones((2, 3), np.float32)
    tree = {"params": {"w": ones, "x\nimport os": ones, "count": np.int32(3)}, "opt_state": {"mu": {"w": ones}}}
    save_standard(tmp_path / "run" / "20", tree)
    ran = miron("init", "model", str(tmp_path / "new"), f"--checkpoint={tmp_path / 'run'}")
    assert ran.out.endswith(f"miron-jax eval --model=my_model:make --checkpoint={tmp_path / 'run'}\n"), ran.err
    code = (tmp_path / "new" / "my_model.py").read_text()
    comments = [line for line in code.splitlines() if line.startswith("#     ")]
    assert comments == ["#     params/w: float32 [2, 3]", "#     params/x\\nimport os: float32 [2, 3]"]
    plain = miron("init", "model", str(tmp_path / "plain"))
    assert plain.status == 0
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse((tmp_path / "plain" / "my_model.py").read_text()))
