"""Results in lm-eval's layout and as nanochat's table."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import TASKS, Place, common
from tests.support.tolerances import printed


def test_lm_evals_layout(miron: Any, place: Place, tmp_path: Path) -> None:
    ran = miron("eval", *common(place, tmp_path / "out", "--limit=3", "--results_format=lm_eval"))
    assert ran.status == 0, ran.err
    ours = json.loads((tmp_path / "out" / "results.json").read_text())
    (path,) = (tmp_path / "out" / "lm_eval").rglob("results_*.json")
    theirs = json.loads(path.read_text())
    assert set(theirs["results"]) == set(TASKS.split(","))
    for name, task in ours["tasks"].items():
        assert theirs["results"][name]["accuracy,none"] == task["metrics"]["accuracy"]["value"]
        assert theirs["results"][name]["accuracy_stderr,none"] == task["metrics"]["accuracy"]["stderr"]
        assert theirs["n-shot"][name] == task["profile"]["num_fewshot"]
        (file,) = path.parent.glob(f"samples_{name.replace('/', '_')}_*.jsonl")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        samples = [
            json.loads(line) for line in (tmp_path / "out" / "samples" / f"{name}.jsonl").read_text().splitlines()
        ]
        for line, sample in zip(lines, samples, strict=True):
            assert line["doc_id"] == sample["id"]
            assert [float(response[0][0]) for response in line["resps"]] == [o["logprob"] for o in sample["options"]]
            assert line["accuracy"] == sample["metrics"]["accuracy"]
    assert theirs["higher_is_better"]["core/copa"]["bits_per_byte"] is False


@pytest.mark.skipif(not importlib.util.find_spec("lm_eval"), reason="needs lm-eval, which the extra lm-eval installs")
def test_lm_eval_prints_it(miron: Any, place: Place, tmp_path: Path) -> None:
    from lm_eval.utils import make_table

    ran = miron("eval", *common(place, tmp_path / "out", "--limit=3", "--results_format=lm_eval"))
    assert ran.status == 0, ran.err
    (path,) = (tmp_path / "out" / "lm_eval").rglob("results_*.json")
    table = make_table(json.loads(path.read_text()))
    assert "core/arc_easy" in table
    assert "bits_per_byte" in table


def test_nanochats_table(miron: Any, place: Place, tmp_path: Path) -> None:
    """`Task, Accuracy, Centered` with CORE at the end, empty as tasks are missing."""
    ran = miron("eval", *common(place, tmp_path / "out", "--limit=3", "--results_format=nanochat"))
    assert ran.status == 0, ran.err
    tasks = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]
    head, *lines, last = (tmp_path / "out" / "nanochat.csv").read_text().splitlines()
    assert head == f"{'Task':<35}, {'Accuracy':<10}, {'Centered':<10}"
    assert last == f"{'CORE':<35}, {'':<10}, {'':<10}"
    for line, (name, task) in zip(lines, tasks.items(), strict=True):
        label, accuracy, centered = line.split(", ")
        assert len(label) == 35
        assert label.strip() == name.removeprefix("core/")
        assert float(accuracy) == pytest.approx(task["metrics"]["accuracy"]["value"], abs=printed(6))
        assert float(centered) == pytest.approx(task["rescaled"]["value"], abs=printed(6))
    ran = miron(
        "eval",
        "--model=demo",
        "--tasks=miron-gen",
        f"--output={tmp_path / 'no'}",
        "--results_format=nanochat",
        "--limit=1",
    )
    assert ran.status == 2
    assert "--results_format=nanochat is CORE's table: add core to --tasks" in ran.err
