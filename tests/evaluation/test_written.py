"""Completions that were written elsewhere: `eval --generated=FOLDER`, without a model."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.golden.data import write_all
from tests.golden.make import FOLDER, arguments_of
from tests.golden.test_golden import differences
from tests.support.tolerances import FLOAT64

# The card's trap: a right answer of four characters that runs on for 5, 20 or 60 more.
RUNS_ON = ["Rome", "Rome" + 5 * "x", "Rome" + 20 * "x", "Rome" + 60 * "x"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"prefix": "Its capital is ", "target": "Rome", "category": category} for category in ("Facts", "Logic")]
    parquet.write_table(pyarrow.Table.from_pylist(rows * 2), tmp_path / "miron_en.parquet")
    return tmp_path


def write(folder: Path, task: str, records: list[Any]) -> Path:
    path = folder / "written" / f"{task}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return folder / "written"


def texts(completions: list[str]) -> list[dict[str, Any]]:
    return [{"id": i, "generated": text} for i, text in enumerate(completions)]


def evaluated(miron: Any, generated: Path, output: Path, *flags: str) -> dict[str, Any]:
    ran = miron("eval", f"--generated={generated}", f"--output={output}", "--allow_changed_data", *flags)
    assert ran.status == 0, ran.err
    return json.loads((output / "results.json").read_text())


def test_the_cards_formula_scores_written_texts(miron: Any, data: Path, tmp_path: Path) -> None:
    """100 (1 - distance / longer length): 100, 100 (1 - 5/9) = 44.4, 100 (1 - 20/24) = 16.7, 100 (1 - 60/64) = 6.25.

    Facts has the first and the third text, Logic the second and the fourth; a line feed ends the first.
    """
    written = write(data, "miron/en", texts([f"{RUNS_ON[0]}\nand more", *RUNS_ON[1:]])[::-1])
    run = evaluated(miron, written, tmp_path / "a", "--tasks=miron/*", f"--data_dir={data}")
    task = run["tasks"]["miron/en"]
    facts, logic = (task["groups"][name]["metrics"]["lev_score"]["value"] for name in ("Facts", "Logic"))
    assert facts == pytest.approx((100 + 100 * 4 / 24) / 2, abs=FLOAT64)
    assert logic == pytest.approx((100 * 4 / 9 + 6.25) / 2, abs=FLOAT64)
    assert task["macro"]["lev_score"]["value"] == pytest.approx((facts + logic) / 2, abs=FLOAT64)
    # cut to the target's length, all of them are right
    assert (task["main"], task["metrics"]["lev_truncated"]["value"]) == ("lev_score", 100)
    assert set(task["metrics"]) == {"lev_score", "lev_stripped", "lev_truncated", "lev_first_word"}
    assert (run["config"]["model"], run["speed"]["requests"]) == (str(written), 0)
    assert "miron/ru" in run["suites"]["miron"]["missing_data"]

    again = evaluated(miron, tmp_path / "a/samples", tmp_path / "b", "--tasks=miron/en", f"--data_dir={data}")
    assert again["tasks"] == run["tasks"]


OPEN = [("open", suite) for suite in ("miron", "gauntlet", "eval-ua-tion-text-refcompat")]


@pytest.mark.parametrize(
    ("group", "suite"), [*OPEN, pytest.param("programs", "gauntlet-programming", marks=pytest.mark.slow)]
)
def test_a_runs_samples_score_as_the_run_did(group: str, suite: str, miron: Any, tmp_path: Path) -> None:
    """Tasks of completions, from the samples of the golden files; of programs the first one."""
    write_all(tmp_path)
    tasks: dict[str, Any] = {}
    golden = json.loads((FOLDER / f"{suite}.json").read_text())
    for name, entry in golden["results"]["tasks"].items():
        if entry["kind"] in ("generation", "cloze") or (entry["kind"] == "code" and not tasks):
            tasks[name] = entry
            write(tmp_path, name, golden["samples"][name])
    flags = [each for each in arguments_of(group, tmp_path, tmp_path / "out") if "--model" not in each]
    ran = miron(*flags, f"--tasks={','.join(tasks)}", f"--generated={tmp_path / 'written'}")
    assert ran.status == 0, ran.err
    run = json.loads((tmp_path / "out/results.json").read_text())
    assert run["tasks"].keys() == tasks.keys()
    for name, scored in run["tasks"].items():
        kept = ("n", "skipped", "groups", "metrics", "baselines", "human", "over_all", "robustness")
        expected = {key: tasks[name][key] for key in kept if key in tasks[name]}
        computed = {key: scored[key] for key in expected}
        if scored["kind"] == "cloze":
            expected, computed = ({k: e["metrics"][k] for k in scored["metrics"]} for e in (expected, computed))
        assert not list(differences(expected, json.loads(json.dumps(computed)), name))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (texts(RUNS_ON[:2]), "no completion of 2 of the 4 examples (ids 2, 3)"),
        (texts([*RUNS_ON, "Rome"]), "line 5: id is 4, expected the place of an example of this run, 0 to 3"),
        (texts(RUNS_ON) + texts(["Rome"]), "line 5: id 0 stands twice"),
        ([{"id": 0, "generated": 7}], "line 1: generated is 7, expected a text"),
        ([{"id": True, "generated": "Rome"}], "line 1: id is True"),
        ([{"id": 0, "generated": ["Rome", "Rom"]}], "expected a text"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    records: list[Any], message: str, miron: Any, data: Path, tmp_path: Path
) -> None:
    written = write(data, "miron/en", records)
    ran = miron(
        "eval", f"--generated={written}", f"--output={tmp_path / 'out'}", "--tasks=miron/en", f"--data_dir={data}"
    )
    assert (ran.status, message in ran.err) == (2, True), ran.err
    assert not (tmp_path / "out" / "results.json").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tasks=miron/en"], "miron/en has no completions to score"),
        (["--tasks=miron-gen"], "miron-gen/ru has no completions to score"),
        (["--tasks=eval-ua-tion-gen/ua_cbt"], "it is scored by log-probabilities"),
        (["--tasks=miron/en", "--watch"], "leave out --watch"),
        (["--tasks=miron/en", "--distributed"], "in one process"),
    ],
)
def test_what_has_no_completions_is_refused(
    flags: list[str], message: str, miron: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miron_jax.cli.processes.supervised", lambda: None)  # no process of its own
    ran = miron("eval", f"--generated={tmp_path}", f"--output={tmp_path / 'out'}", f"--data_dir=miron={data}", *flags)
    assert (ran.status, message in ran.err) == (2, True), ran.err
