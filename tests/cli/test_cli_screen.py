"""What commands show: time left of a stage, --json and --mde of plan, --human of tasks, completion in shells."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from rich.progress import TaskID

from miron_jax.cli import COMMANDS
from miron_jax.cli.completion import HOWTO
from miron_jax.cli.flags import OF_COMMAND
from miron_jax.report.tables import progress
from miron_jax.report.tables.progress import Screen, _Stage, duration
from miron_jax.statistics.paired import detectable
from tests.support.command import common
from tests.support.run_folders import samples_of, write_run
from tests.support.tolerances import printed


def test_json_of_plan_and_tasks(miron, place, tmp_path: Path) -> None:
    planned = json.loads(miron("plan", *common(place, tmp_path / "out", "--limit=2", "--json")).out)
    assert planned["unique_tokens"] <= planned["plain_tokens"]
    assert len(planned["tasks"]) == 4
    listed = json.loads(miron("tasks", "--json").out)
    generated = next(task for task in listed if task["task"] == "miron-gen/en")
    assert (generated["data"], generated["file"], generated["kind"]) == ("generated", None, "cloze")


def test_words_filter_the_list_of_tasks(miron) -> None:
    for words, names in (
        (["arc_easy"], {"core/arc_easy", "gauntlet/arc_easy"}),
        (["CORE/cop*", "core/copa"], {"core/copa"}),
        (["core/arc_*"], {"core/arc_easy", "core/arc_challenge"}),
    ):
        listed = {task["task"] for task in json.loads(miron("tasks", *words, "--json").out)}
        assert names <= listed, words
        assert all(re.search("arc|copa", name) for name in listed), (words, listed)
    ran = miron("tasks", "arc_eazy")
    assert (ran.status, "no task has 'arc_eazy' in its name: did you mean" in ran.err) == (2, True), ran.err
    ran = miron("tasks", "core", "--describe=core/copa")
    assert (ran.status, "'core' filters the list of tasks" in ran.err) == (2, True), ran.err


def test_the_list_has_the_words_of_tasks_files_and_says_what_is_fetched(miron, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path))
    row = next(line for line in miron("tasks", "core/copa").out.splitlines() if "core/copa" in line)
    assert [cell.strip() for cell in row.split("│")][2:7:4] == ["choice", "to be fetched"], row
    record = {"q": "x", "a": ["b", "c"], "g": 0}
    (tmp_path / "t.jsonl").write_text(f"{json.dumps(record)}\n" * 3)
    for kind in ("choice", "multiple_choice"):
        lines = f"task: t\nkind: {kind}\ndata: t.jsonl\nquestion: q\nchoices: a\ngold: g\nnum_fewshot: 0\n"
        (tmp_path / "t.yaml").write_text(lines)
        ran = miron("tasks", f"--check={tmp_path / 't.yaml'}")
        assert "own/t: choice, 3 examples" in ran.out, (kind, ran.out, ran.err)


def test_a_slow_stage_is_told_of_with_the_time_left(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with Screen() as screen:
        screen.advance("scoring", 0, 100, "tokens")
        screen.advance("scoring", 25, 100, "tokens")
        screen._stages["scoring"].start -= 10  # as if it had begun ten seconds ago
        screen._stages["scoring"].silence = 0.0
        deadline = time.monotonic() + 20
        shown = ""
        while "scoring" not in shown and time.monotonic() < deadline:
            time.sleep(0.1)
            shown += capsys.readouterr().err
        screen.end("scoring")
    # 25 tokens in ten seconds, or a few more on a busy machine: 2.5 a second at most, so 75 take thirty more at least
    match = re.search(r"scoring: 25% of 100 tokens, ([\d.]+) a second, (\d+) s left", shown)
    assert match is not None, shown
    speed = float(match[1])
    assert 1.0 < speed <= 2.5
    assert int(match[2]) == pytest.approx(75 / speed, abs=1.5)
    assert re.search(r"scoring: done in [1-3]\d s", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("done", "left"),
    [
        (0, ""),
        (4, ""),  # two of 98 that were to do: 2 %
        (7, "3 min 6 s left"),  # 5 in ten seconds, 93 more
        (100, "0 s left"),
    ],
)
def test_the_time_left_is_not_guessed_from_the_first_units(done: int, left: str) -> None:
    stage = _Stage(TaskID(0), "tokens", done, 100, 2)
    assert stage.left(10.0) == left, done
    assert ("left" in stage.line("scoring")) == bool(left), done


def test_a_quick_stage_and_a_quiet_screen_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen() as screen:
        screen.advance("loading")
        screen.end("loading")
        screen.detail("compiled")
    with Screen(quiet=True) as screen:
        screen.say("loaded")
        screen.warn("miron-jax: a failure")
    assert capsys.readouterr().err == "miron-jax: a failure\n"


def test_durations() -> None:
    assert [duration(seconds) for seconds in (0.4, 59.4, 59.6, 3599, 7500)] == [
        "0 s", "59 s", "1 min 0 s", "59 min 59 s", "2 h 5 min",
    ]  # fmt: skip


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word, split as readline does."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"{script}\nCOMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}\n_miron_jax\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_flags_and_values(miron) -> None:
    script = miron("completion", "bash").out
    assert completed(script, "miron-jax", "") == list(COMMANDS)
    assert completed(script, "miron-jax", "ev") == ["eval"]
    assert completed(script, "miron-jax", "init", "t") == ["task"]
    assert completed(script, "miron-jax", "eval", "--lim") == ["--limit="]
    assert completed(script, "miron-jax", "eval", "--nores") == ["--noresume"]
    assert completed(script, "miron-jax", "eval", "--dtype", "=", "b") == ["bfloat16"]
    assert completed(script, "miron-jax", "eval", "--tasks", "=") == completed(
        script, "miron-jax", "eval", "--tasks", "=", ""
    )
    assert "core" in completed(script, "miron-jax", "eval", "--tasks", "=", "co")
    flags = [word.strip("=").removeprefix("--") for word in completed(script, "miron-jax", "compare", "--")]
    assert set(flags) >= set(OF_COMMAND["compare"])


def test_every_shell_has_a_script(miron) -> None:
    for shell in HOWTO:
        ran = miron("completion", shell)
        assert ran.status == 0
        assert HOWTO[shell] in ran.out
        if shutil.which(shell):
            done = subprocess.run([shell, "-n"], input=ran.out, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    for arguments in ((), ("tcsh",), ("bash", "zsh")):
        ran = miron("completion", *arguments)
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert "bash, zsh, fish" in ran.err


def test_json_of_what_is_no_list_or_plan_is_refused(miron, place, tmp_path: Path) -> None:
    for flags in (("tasks", "--human"), ("tasks", "--describe=core/copa"), ("plan", "--mde", *common(place, tmp_path))):
        ran = miron(*flags, "--json")
        assert (ran.status, ran.out) == (2, "")
        assert "--json is of the " in ran.err


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
