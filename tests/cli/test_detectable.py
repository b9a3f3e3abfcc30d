"""`plan --mde`: what a run could find before it runs; `tasks --human`: the published values."""

import json
import re
from pathlib import Path

import pytest

from miron_jax.statistics.paired import detectable
from tests.support.command import common
from tests.support.run_folders import samples_of, write_run
from tests.support.tolerances import printed


def test_detectable_by_hand() -> None:
    # 2.8016 * sqrt(2 * .25 * .5 / 2376) and, independent, * sqrt(2 * .25 / 100)
    assert detectable(0.5, 2376, 0.5) == pytest.approx(0.02874, abs=printed(5))
    assert detectable(0.5, 100, 0.0) == pytest.approx(0.19810, abs=printed(5))


def test_plan_prints_them_for_the_examples_that_would_run(miron, place, tmp_path: Path) -> None:
    ran = miron("plan", "--mde", *common(place, tmp_path / "out", "--limit=4"))
    assert ran.status == 0, ran.err
    row = next(line for line in ran.out.splitlines() if "core/copa" in line)
    # 4 examples: 2.8016 * sqrt(.25 / 4) and * sqrt(.5 / 4)
    assert re.findall(r"[\d.]+", row)[-4:] == ["4", "0.500", "0.7004", "0.9905"]
    assert not (tmp_path / "out").exists()
    # From a run's deviations: 1 of 4 right, deviation .5; all right, deviation 0.
    run = write_run(tmp_path / "run", {"core/copa": samples_of([1, 0, 0, 0]), "core/winograd": samples_of([1] * 9)})
    ran = miron("plan", "--mde", *common(place, tmp_path / "out", "--limit=4", f"--against={run}"))
    rows = {line.split()[1]: re.findall(r"[\d.]+", line)[-4:] for line in ran.out.splitlines() if "core/" in line}
    assert rows["core/copa"] == ["4", "0.500", "0.7004", "0.9905"]
    assert rows["core/winograd"][1:] == ["0.000", "0.0000", "0.0000"]
    assert "--against has not scored core/arc_easy, core/lambada_openai: 0.5 is taken there" in ran.out
    ran = miron("plan", "--mde", *common(place, tmp_path / "out", f"--against={tmp_path / 'nowhere'}"))
    assert (ran.status, "nowhere is not there" in ran.err) == (2, True)


def test_every_human_value_is_printed_with_its_source(miron) -> None:
    ran = miron("tasks", "--human")
    assert ran.status == 0, ran.err
    assert re.search(r"eval-ua-tion/ua_cbt +│ accuracy +│ 0\.939 │ +99 │ one annotator │ measured \[1\]", ran.out)
    assert "[1] Eval-UA-tion 1.0, Hamotskyi et al. 2024, UNLP" in ran.out
    assert len(re.findall(r"^│ mera-v1/parus ", ran.out, re.M)) == 2  # by procedures A and B


def test_the_licence_stands_in_results(miron, place, tmp_path: Path) -> None:
    rows = [{"q": "one", "options": ["a", "b"], "a": 0}, {"q": "two", "options": ["a", "b"], "a": 1}]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    yaml = "task: t\ndata: t.jsonl\nquestion: q\nchoices: options\ngold: a\nnum_fewshot: 0\nlicence: CC0\n"
    (tmp_path / "t.yaml").write_text(yaml)
    flags = [f"--task_path={tmp_path / 't.yaml'}", f"--output={tmp_path / 'out'}", "--compilation_cache="]
    ran = miron("eval", f"--model={place.model}", *flags)
    assert ran.status == 0, ran.err
    assert json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]["own/t"]["licence"] == "CC0"
