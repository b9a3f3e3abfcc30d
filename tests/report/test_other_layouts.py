"""Results in lm-eval's layout and as nanochat's table."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from miron_jax.report.exports.other_layouts import lm_eval_results, other_layout
from miron_jax.results.document import run_of
from tests.support import processes
from tests.support.command import TASKS, Place, common, samples
from tests.support.run_folders import samples_of, write_run
from tests.support.tolerances import printed


def test_both_layouts_of_a_run(miron: Any, place: Place, tmp_path: Path) -> None:
    ran = miron("eval", *common(place, tmp_path / "out", "--limit=3", "--results_format=lm_eval"))
    assert ran.status == 0, ran.err
    ours = json.loads((tmp_path / "out" / "results.json").read_text())
    (path,) = (tmp_path / "out" / "lm_eval").rglob("results_*.json")
    theirs = json.loads(path.read_text())
    assert theirs["total_evaluation_time_seconds"] == str(ours["speed"]["wall_seconds"])
    assert set(theirs["results"]) == set(TASKS.split(","))
    for name, task in ours["tasks"].items():
        for key, part in (("accuracy,none", "value"), ("accuracy_stderr,none", "stderr")):
            assert theirs["results"][name][key] == task["metrics"]["accuracy"][part]
        assert theirs["n-shot"][name] == task["profile"]["num_fewshot"]
        (file,) = path.parent.glob(f"samples_{name.replace('/', '_')}_*.jsonl")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line, sample in zip(lines, samples(tmp_path / "out", name), strict=True):
            assert line["doc_id"] == sample["id"]
            assert [float(response[0][0]) for response in line["resps"]] == [o["logprob"] for o in sample["options"]]
            assert line["accuracy"] == sample["metrics"]["accuracy"]
    if importlib.util.find_spec("lm_eval"):
        # In a process of its own: what lm-eval imports forks, of which jax warns.
        code = "import json, sys; from lm_eval.utils import make_table; print(make_table(json.load(open(sys.argv[1]))))"
        table = processes.run("-c", code, str(path), check=True).stdout
        assert "core/arc_easy" in table
    # nanochat's: `Task, Accuracy, Centered` with CORE at the end, empty as tasks are missing.
    ((name, content),) = other_layout("nanochat", run_of(ours), lambda task: [])
    assert name == "nanochat.csv"
    head, *lines, last = content.decode().splitlines()
    assert head == f"{'Task':<35}, {'Accuracy':<10}, {'Centered':<10}"
    assert last == f"{'CORE':<35}, {'':<10}, {'':<10}"
    for line, (name, task) in zip(lines, ours["tasks"].items(), strict=True):
        label, accuracy, centered = line.split(", ")
        assert label == f"{name.removeprefix('core/'):<35}"
        assert float(accuracy) == pytest.approx(task["metrics"]["accuracy"]["value"], abs=printed(6))
        assert float(centered) == pytest.approx(task["rescaled"]["value"], abs=printed(6))


def test_lm_evals_layout_says_of_which_metrics_fewer_is_better(tmp_path: Path) -> None:
    names = ("accuracy", "bits_per_byte", "choice_rank", "first_token_rank", "drift_bits", "lev_score")
    rows = [{**sample, "metrics": dict.fromkeys(names, 1.0)} for sample in samples_of([1, 1])]
    config = {"model": "m", "dtype": "float32", "limit": None, "seed": 0}
    environment = {"device": "cpu", "packages": {"transformers": "5"}}
    run = write_run(tmp_path, {"own/x": rows}, config=config, environment=environment)
    results = json.loads((run / "results.json").read_text())
    higher = lm_eval_results(run_of(results))["higher_is_better"]["own/x"]
    assert [name for name in names if higher[name]] == ["accuracy", "lev_score"]


def test_nanochats_table_wants_core(miron: Any, tmp_path: Path) -> None:
    flags = ("--model=demo", "--tasks=miron-gen", "--results_format=nanochat", "--limit=1")
    ran = miron("eval", *flags, f"--output={tmp_path / 'no'}")
    assert ran.status == 2
    assert "--results_format=nanochat is CORE's table: add core to --tasks" in ran.err
