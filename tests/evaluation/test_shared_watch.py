"""Processes that watch one training run together: each step is scored once, whatever kills them."""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from miron_jax.files.claims import FOLDER
from miron_jax.files.store import LOCK
from tests.support import processes
from tests.support.tiny_model import make_model, write_core_data
from tests.support.training_runs import eval_command, scores_of

pytestmark = pytest.mark.slow

# The command.  It appends each step to a file when its results are in place, and kills itself at its n-th call that
# opens, locks, moves or removes something in the output folder: in the middle of a claim or of a write as well.
WATCHES = """
import os, signal, sys
from miron_jax import cli
from miron_jax.model.checkpoints import checkpoints
from miron_jax.results import writing

left, folder = int(os.environ["KILL_AT"]), os.environ["WATCH_OUTPUT"]

def count(event, arguments):
    global left
    if event == "fcntl.flock" or event in ("open", "os.rename", "os.remove", "os.rmdir") and folder in str(arguments[0]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def logged(config, run, *arguments):
    done = write_finished(config, run, *arguments)
    log = os.open(os.environ["STEPS_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, f"{run.result.step}\\n".encode())
    os.close(log)
    return done

checkpoints.POLL_SECONDS = 0.05
write_finished, writing.write_finished = writing.write_finished, logged
sys.addaudithook(count)
try:
    cli.main()
finally:
    print("calls", int(os.environ["KILL_AT"]) - left, file=sys.stderr)
"""

CALLS = 80  # of the command, about, until its first step is scored


class Setting:
    """A run that grows from a folder with all of its steps, and the command that watches it."""

    def __init__(self, folder: Path, num_steps: int) -> None:
        self.all, self.run, self.output, self.log = (folder / name for name in ("all", "run", "out", "log"))
        made = make_model(folder / "made", layers=1)
        whole = load_file(made / "model.safetensors")
        for step in range(1, num_steps + 1):
            target = shutil.copytree(made, self.all / str(step))
            save_file(
                {name: tensor * np.float32(step / 4) for name, tensor in whole.items()}, target / "model.safetensors"
            )
        self.run.mkdir()
        shutil.copy(made / "config.json", self.run)
        self.flags = [
            f"--data_dir={write_core_data(folder / 'data')}", "--tasks=core/copa", "--allow_changed_data", "--limit=4",
            f"--compilation_cache={folder / 'programs'}", f"--tokenizer={made}",
        ]  # fmt: skip

    def save(self, step: int) -> None:
        """As a trainer that renames a step that is written."""
        shutil.copytree(self.all / str(step), self.run / f"tmp-{step}")
        (self.run / f"tmp-{step}").rename(self.run / str(step))

    def start(self, kill_at: int, *more: str) -> processes.Process:
        env = {**os.environ, "STEPS_LOG": str(self.log), "KILL_AT": str(kill_at), "WATCH_OUTPUT": str(self.output)}
        flags = [f"--model={self.run}", f"--output={self.output}", *self.flags, "--watch", "--watch_timeout=3", *more]
        return processes.start("-c", WATCHES, "eval", *flags, env=env, devices=1)

    @property
    def num_scored(self) -> int:
        return len([*self.output.glob("step_*/results.json")])

    @property
    def written(self) -> Counter[int]:
        return Counter(map(int, self.log.read_text().split())) if self.log.exists() else Counter()


def same_files(output: Path, alone: Path) -> None:
    """The folder is that of a run of one process."""
    assert json.loads((output / "results.json").read_text())["steps"].keys() == {
        *json.loads((alone / "results.json").read_text())["steps"]
    }
    for folder in [alone, *alone.glob("step_*")]:
        of_shared = output / folder.name if folder != alone else output
        assert scores_of(of_shared) == scores_of(folder)
        sample = "samples/core/copa.jsonl"
        assert (of_shared / sample).read_bytes() == (folder / sample).read_bytes()

    def names(folder: Path) -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if "journal" not in path.parts}

    left = {LOCK, FOLDER} | {
        name for name in names(output) if name.startswith(f"{FOLDER}/")
    }  # by those that were killed
    assert names(output) - left == names(alone)


@pytest.mark.parametrize(("num_steps", "kills"), [(4, 2), pytest.param(20, 50, marks=pytest.mark.long)])
def test_each_step_is_scored_once_by_processes_that_are_killed(num_steps: int, kills: int, tmp_path: Path) -> None:
    setting, rng = Setting(tmp_path, num_steps), random.Random(57)
    waiting, watching, scored_at = [*range(1, num_steps + 1)], list[processes.Process](), list[int]()
    to_kill, until = kills, time.monotonic() + kills * processes.TIMEOUT
    while watching or len(scored_at) < kills or setting.num_scored < num_steps:
        assert time.monotonic() < until, (scored_at, waiting, setting.written)
        is_idle = setting.num_scored == num_steps - len(waiting)
        if waiting and is_idle:
            setting.save(waiting.pop(0))
        elif is_idle and len(scored_at) < kills and watching:
            watching[0].kill()
        while len(watching) < 2 and not (is_idle and len(scored_at) == kills):
            to_kill -= 1
            watching.append(setting.start(kill_at=rng.randrange(1, 2 * CALLS) if to_kill >= 0 else 0))
        time.sleep(0.01)
        for process in [each for each in watching if each.poll() is not None]:
            _, err = process.communicate()
            assert process.returncode in (0, -signal.SIGKILL), err[-3000:]
            watching.remove(process)
            if process.returncode:
                scored_at.append(setting.num_scored)
            else:
                to_kill += len(scored_at) < kills
    print("steps scored at each kill:", scored_at)
    assert max(setting.written.values()) == 1, setting.written
    assert eval_command(f"--model={setting.all}", f"--output={tmp_path / 'alone'}", *setting.flags) == 0
    same_files(setting.output, tmp_path / "alone")


def test_processes_that_watch_together_score_an_average_once(tmp_path: Path) -> None:
    setting = Setting(tmp_path, 3)
    for step in range(1, 4):
        setting.save(step)
    watching = [setting.start(0, "--average=last:2") for _ in range(2)]
    ended = [process.communicate() for process in watching]
    assert [process.returncode for process in watching] == [0, 0], ended
    assert sorted(setting.log.read_text().split()) == ["1", "2", "3", "None"]
    flags = [*setting.flags, "--average=last:2"]
    assert eval_command(f"--model={setting.all}", f"--output={tmp_path / 'alone'}", *flags) == 0
    assert scores_of(setting.output / "average_last-2") == scores_of(tmp_path / "alone" / "average_last-2")
    assert sum("average last:2 of steps 2, 3 is scored already" in err for _, err in ended) == 1
