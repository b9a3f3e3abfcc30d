"""What a run shows: the first line, stages with the time that is left, --quiet, --verbose, --json; completion in shells."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from miron_jax import __version__
from miron_jax.cli import COMMANDS
from miron_jax.cli.completion import HOWTO
from miron_jax.cli.flags import OF_COMMAND
from miron_jax.config import RunConfig
from miron_jax.inputs import find_inputs
from miron_jax.report import progress
from miron_jax.report.progress import Screen, duration
from miron_jax.run import evaluate
from miron_jax.runtime.progress import Progress
from tests.support.command import common


def test_the_first_line_says_what_is_scored_and_the_next_what_it_costs(miron, place, tmp_path: Path) -> None:
    ran = miron("eval", *common(place, tmp_path / "out", "--limit=3"))
    assert ran.status == 0, ran.err
    first, cost, *_ = ran.err.splitlines()
    assert first.startswith(f"miron-jax {__version__}: {place.model} on core/")
    assert re.search(r"core/copa.*, up to 12 examples, with \d CPU devices? in float32$", first), first
    assert re.fullmatch(r"[\d,]+ unique tokens of [\d,]+ to compute, \S+ GFLOP \(.* times fewer .*\)", cost), cost
    assert "compiled" not in ran.err + ran.out, "that is for --verbose"
    assert "padding" not in ran.out, "that too"
    *_, counts, where, look = ran.out.splitlines()
    assert counts.startswith("core/arc_easy accuracy ")
    assert "4 tasks, 12 examples in " in where
    assert look.startswith("look at it: miron-jax report ")


def test_quiet_verbose_and_json(miron, place, tmp_path: Path) -> None:
    quiet = miron("eval", *common(place, tmp_path / "quiet", "--limit=2", "--quiet"))
    assert (quiet.status, quiet.err) == (0, "")
    assert len(quiet.out.splitlines()) <= 5
    assert "┃" not in quiet.out
    flagfile = tmp_path / "job.flags"
    flagfile.write_text("--json\n--nowatch\n")  # the bare flag takes no word behind it
    verbose = miron("eval", *common(place, tmp_path / "verbose", "--limit=2", "--verbose"))
    assert re.search(r"compiled \d+ x \d+ tokens in ", verbose.err)
    assert "loaded " in verbose.err
    assert "self-check (largest difference" in verbose.out
    for flag in ("--json", "--json=-", f"--flagfile={flagfile}"):
        ran = miron("eval", *common(place, tmp_path / "json", "--limit=2", flag))
        assert json.loads(ran.out) == json.loads((tmp_path / "json" / "results.json").read_text())
    miron("eval", *common(place, tmp_path / "json", "--limit=2", f"--json={tmp_path / 'own.json'}"))
    assert json.loads((tmp_path / "own.json").read_text())["schema"] == 1
    ran = miron("eval", *common(place, tmp_path / "json", "--limit=2", f"--json={tmp_path}/no/file"))
    assert (ran.status, "--json=" in ran.err, "cannot be written" in ran.err) == (2, True, True)
    compared = miron("compare", str(tmp_path / "quiet"), str(tmp_path / "json"), "--json")
    assert json.loads(compared.out)[0]["tasks"], "the table goes to standard error"


def test_json_of_plan_and_tasks(miron, place, tmp_path: Path) -> None:
    planned = json.loads(miron("plan", *common(place, tmp_path / "out", "--limit=2", "--json")).out)
    assert planned["unique_tokens"] <= planned["plain_tokens"]
    assert len(planned["tasks"]) == 4
    listed = json.loads(miron("tasks", "--json").out)
    generated = next(task for task in listed if task["task"] == "miron-gen/en")
    assert (generated["data"], generated["file"], generated["kind"]) == ("generated", None, "cloze")


def test_a_slow_stage_is_told_of_with_the_time_left(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with Screen() as screen:
        screen.advance("scoring", 0, 100, "tokens")
        screen.advance("scoring", 25, 100, "tokens")
        screen._stages["scoring"].start -= 10  # as if it had begun ten seconds ago
        screen._stages["scoring"].silence = 0.0
        deadline = time.monotonic() + 20
        printed = ""
        while "scoring" not in printed and time.monotonic() < deadline:
            time.sleep(0.1)
            printed += capsys.readouterr().err
        screen.end("scoring")
    # 25 tokens in ten seconds: 2.5 a second, so 75 take thirty more
    assert re.search(r"scoring: 25% of 100 tokens, 2\.\d+ a second, (30|31|32) s left", printed), printed
    assert "scoring: done in 1" in capsys.readouterr().err


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


def test_stages_end_when_nothing_is_scored(miron, place, tmp_path: Path) -> None:
    """A run that only generates, and one whose scores are all in the journal, leave no stage open."""
    begun, is_open = set[str](), set[str]()

    class Recorder(Progress):
        def advance(self, stage: str, done: float = 0, total: float = 0, unit: str = "") -> None:
            begun.add(stage)
            is_open.add(stage)

        def end(self, stage: str) -> None:
            is_open.discard(stage)

    model, data = str(place.model), (("", str(place.data)),)
    for task in ("eval-ua-tion-gen-text/lmes_catsbin", "core/copa"):
        config = RunConfig(model, (task,), data_dir=data if "core" in task else (), limit=2, allow_changed_data=True)
        evaluate(config, find_inputs(config), Recorder())
    assert begun >= {"loading", "planning", "scoring", "self-check", "generating", "compiling"}
    assert not is_open
