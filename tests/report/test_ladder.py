"""`miron-jax ladder`: sizes of runs, what is refused, what is printed and written."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_folders import changed, samples_of, write_run, write_training_run
from tests.support.tolerances import FITTED, ROUNDING

MILLIONS = (10, 20, 40, 80, 160, 320)


def bits(millions: float) -> float:
    return 0.5 + 0.5 * (max(millions, 1) / 10) ** -0.5


def ladder(folder: Path) -> list[str]:
    """Runs of six sizes, whose bits per byte follow a law exactly, and of which each has more right."""
    folders = []
    for i, millions in enumerate(MILLIONS):
        right = [1] * (11 + i) + [0] * (9 - i)
        samples = {"own/x": samples_of(right, bits=[bits(millions)] * 20), "own/y": samples_of([1, 0])}
        weights = {"tokenizer": "t", "dtypes": {"float32": millions * 10**6 - 100, "int8": 100}}
        folders.append(str(write_run(folder / f"{millions}M", samples, checkpoint=weights)))
    return folders


def test_laws_and_forecasts_on_a_screen_and_as_json(tmp_path: Path, miron, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    runs = ladder(tmp_path)
    ran = miron("ladder", *runs[::-1], "--predict=1e9,4e9", f"--json={tmp_path}/out.json", f"--pictures={tmp_path}/p")
    assert ran.status == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80 or str(tmp_path) in max(ran.out.splitlines(), key=len)
    words = " ".join(ran.out.split())
    assert "6 runs from 1e+07 to 3.2e+08 parameters" in words
    assert "own/y has no law: it has no loss; its metrics are accuracy" in words
    assert {path.name for path in (tmp_path / "p").iterdir()} == {"ladder_own_x.svg", "ladder_own_x.png"}
    picture = (tmp_path / "p" / "ladder_own_x.svg").read_text()
    assert ">1e+08</text>" in picture
    assert "$" not in picture
    document = json.loads((tmp_path / "out.json").read_text())
    assert [run["size"] for run in document["runs"]] == [millions * 1e6 for millions in MILLIONS]
    task = document["tasks"]["own/x"]
    law = {name: task["law"][name]["value"] for name in ("irreducible", "exponent")}
    assert law == pytest.approx({"irreducible": 0.5, "exponent": 0.5}, rel=FITTED)
    assert task["law"]["leave_one_out"]["mean"] < ROUNDING
    assert len(task["sigmoid"]["leave_one_out"]["of_runs"]) == 6
    assert task["sigmoid"]["floor"] == 0.5  # what guessing gives
    assert [each["loss"]["value"] for each in task["forecasts"]] == pytest.approx([bits(1000), bits(4000)], rel=FITTED)
    for each in task["forecasts"]:
        low, high = each["accuracy"]["ci95"]
        assert 0 <= low < each["accuracy"]["value"] < high <= 1


def test_sizes_that_the_user_states(tmp_path: Path, miron) -> None:
    runs = ladder(tmp_path)
    tokens = "--tokens=" + ",".join(f"{Path(run).name}={i + 1}e9" for i, run in enumerate(runs))
    stated = "--parameters=10M=5e6"
    ran = miron("ladder", *runs, tokens, stated, "--axis=flops", "--json")
    assert ran.status == 0, ran.err
    sizes = {Path(run["run"]).name: run["size"] for run in json.loads(ran.out)["runs"]}
    assert (sizes["10M"], sizes["80M"]) == (6 * 5e6 * 1e9, 6 * 80e6 * 4e9)


def test_checkpoints_are_runs_where_the_tokens_of_a_step_are_stated(tmp_path: Path, miron) -> None:
    steps = {step: {"own/x": samples_of([1, 0], bits=[bits(step)] * 2)} for step in (0, *MILLIONS)}
    run = str(write_training_run(tmp_path / "a", steps))
    ran = miron("ladder", run, "--axis=tokens", f"--tokens={run}=1e6/step", "--json", "--predict=1e9")
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    assert [(each["step"], each["tokens"]) for each in document["runs"]] == [(step, step * 1e6) for step in MILLIONS]
    forecast = document["tasks"]["own/x"]["forecasts"][0]
    assert forecast["loss"]["value"] == pytest.approx(bits(1000), rel=FITTED)
    assert forecast["accuracy"] is None  # the same at each step
    assert document["refused"] == {
        "own/x accuracy": "that it rises above chance as the loss falls is not told from noise"
    }


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--axis=tokens", "the results of 10M do not say its tokens: state them, --tokens=10M=1e9, or 10M=2e6/step"),
        ("--axis=tokens --tokens=10M=1e9,9M=3", "--tokens: '9M=3' names none of the runs, expected RUN=1e9 with RUN"),
        ("--axis=tokens --tokens=10M=1e9,10M=3", "--tokens names 10M twice: state it once"),
        ("--axis=tokens --tokens=10M=1e9/step", "states those of a step of 10M, whose results have no step"),
        ("--tokens=10M=1e9", "--tokens has no place in --axis=parameters"),
        ("--axis=flops --tokens=10M=many", "--tokens=10M: 'many' is no number above 0"),
        ("--predict=-1", "--predict: '-1' is no number above 0, expected one such as 1.3e8"),
        ("--metric=accuracy", "no task has a law: own/x: accuracy is no loss"),
        ("--metric=bits_per_byte,accuracy", "--metric names 2 metrics: a ladder has the law of one loss"),
        ("--parameters=20M=1e7,40M=1e7,80M=1e7,160M=1e7,320M=1e7", "runs or more, of 4 sizes or more, and has 6 of one "
         "size, 1e+07 parameters: name more runs, or another --axis"),
        ("--parameters=20M=1e7,40M=1e7,80M=1e7", "and has 6 of 3 sizes"),
        ("--pictures=/nowhere/at/all", "--pictures=/nowhere/at/all is no folder"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, miron, flags: str, sentence: str) -> None:
    ran = miron("ladder", *ladder(tmp_path), *flags.split())
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


def test_too_few_runs_and_runs_without_weights(tmp_path: Path, miron) -> None:
    runs = ladder(tmp_path)
    assert "has 4 of 4 sizes" in miron("ladder", *runs[:4]).err
    assert "ladder wants the output folders" in miron("ladder").err
    with changed(Path(runs[2])) as results:
        del results["checkpoint"]["dtypes"]
    assert "results of 40M do not say its parameters: state them, --parameters=40M=1e9\n" in miron("ladder", *runs).err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n": 19}, "own/x: not all runs have it with the same data, rules and examples"),  # as --until may leave
        ({"limit": 9}, "own/x: not all runs have it with the same data, rules and examples"),
        ({"metrics": {"bits_per_byte": {"value": None}}}, "own/x: its bits_per_byte in 20M is no number above 0"),
    ],
)
def test_tasks_without_a_law(tmp_path: Path, miron, change: dict[str, Any], sentence: str) -> None:
    runs = ladder(tmp_path)
    with changed(Path(runs[1])) as results:
        results["tasks"]["own/x"] |= change
    ran = miron("ladder", *runs)
    assert ran.status == 2
    assert f"no task has a law: {sentence}" in ran.err


def test_losses_by_token_want_one_tokenizer(tmp_path: Path, miron) -> None:
    runs = ladder(tmp_path)
    for i, run in enumerate(runs):
        with changed(Path(run)) as results:
            metrics = results["tasks"]["own/x"]["metrics"]
            metrics["bits_per_token"] = metrics.pop("bits_per_byte")
            results["checkpoint"]["tokenizer"] = f"t{i // 3}"
    assert "bits_per_token counts tokens, and the tokenizers differ: take bits_per_byte" in miron("ladder", *runs).err
    for run in runs:
        with changed(Path(run)) as results:
            results["checkpoint"]["tokenizer"] = "t"
    assert miron("ladder", *runs).status == 0
