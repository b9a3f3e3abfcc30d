"""Training runs on disk: what counts as a step, which are picked, scored once, watched; object stores."""

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate_checkpoints
from miron_jax.model.checkpoints import checkpoints
from miron_jax.model.checkpoints.remote import folder_at, local_copy
from miron_jax.model.checkpoints.training_run import Checkpoint, load_step, pick_steps, training_steps
from miron_jax.model.checkpoints.training_tokens import training_tokens
from tests.support.tiny_model import write_core_data
from tests.support.tolerances import CONTINUATION
from tests.support.toy_decoders import CONFIG, pure, same_bits, weights
from tests.support.training_runs import eval_command, run_of, save_standard, scores_of

# As in test_demo: on a busy machine asyncio tells of Orbax's reads only while the next test runs.
pytestmark = [
    pytest.mark.slow, pytest.mark.newest,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip


def scored(model: Path | str, steps: str | None = None) -> dict[int | None, Any]:
    """Outcomes by step."""
    config = RunConfig(str(model), ("miron-gen/en",), limit=2, items_per_category=12, steps=steps)
    return dict(evaluate_checkpoints(config, find_inputs(config)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps, which tests copy before they change it."""
    return run_of(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags of a task whose scores take one small program."""
    data = write_core_data(tmp_path_factory.mktemp("data"))
    return [f"--data_dir={data}", "--tasks=core/copa", "--allow_changed_data", "--limit=4", "--compilation_cache="]


def test_what_counts_as_a_step(tmp_path: Path) -> None:
    steps = ("checkpoint-30", "step_4", "global_step20", "ckpt-5", "0007")
    for name in (*steps, "9.orbax-checkpoint-tmp-3", "best", "step-8-old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    (tmp_path / "11").mkdir()  # nothing in it: half-written
    (tmp_path / "12").touch()
    (tmp_path / "latest").symlink_to(tmp_path / "step_4")
    assert [step for step, _ in training_steps(tmp_path)] == [4, 5, 7, 20, 30]
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "flax_model.msgpack").touch()
    with pytest.raises(InputError, match="0007 and 7 are the same step"):
        training_steps(tmp_path)
    assert training_steps(tmp_path / "11") == []
    (tmp_path / "run").mkdir()
    shutil.copytree(tmp_path / "step_4", tmp_path / "run" / "checkpoints" / "4")
    assert training_steps(tmp_path / "run") == [(4, tmp_path / "run" / "checkpoints" / "4")]


def test_a_step_without_config_names_its_run(made: Path, tmp_path: Path) -> None:
    for below in ("checkpoints", "."):
        run = tmp_path / f"run-{below}"
        step = shutil.copytree(made / "checkpoint-20", run / below / "20")
        (step / "config.json").rename(run / "config.json")
        with pytest.raises(InputError, match=f"{re.escape(str(run))}: name the run and the step, .*--steps=20$"):
            scored(step)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (step / name).rename(run / name)
    assert list(scored(run, "20")) == [20], "the remedy"
    step.rename(run / "best")
    with pytest.raises(InputError, match=r"best/config\.json: no such file"):
        scored(run / "best")


PICKED = {
    None: [100, 200, 300, 450], "latest": [450], "300,100": [100, 300], "200:450": [200, 300, 450],
    "100:400:200": [100, 300], ":300": [100, 200, 300], "::100": [100, 200, 300],
}  # fmt: skip


def test_steps_are_picked() -> None:
    every = [(step, Path(str(step))) for step in (100, 200, 300, 450)]
    for wanted, expected in PICKED.items():
        assert [step for step, _ in pick_steps(every, wanted, Path("run"))] == expected, wanted
    for wanted, words in (("100,7", "no step 7"), ("500:600", "none of these steps")):
        with pytest.raises(InputError, match=f"run has {words}, expected some of 100, 200"):
            pick_steps(every[:2], wanted, Path("run"))
    for text in ("last", "1-2", "1:2:0", "", "1,", "1:2:3:4"):
        with pytest.raises(InputError, match="--steps is"):
            RunConfig("model", ("core",), steps=text)


def test_a_run_of_hugging_face_folders_is_scored_step_by_step(made: Path) -> None:
    """Each step's log-probabilities and completions are those of its folder alone."""

    def metrics(outcome: Any) -> list[Any]:
        return [
            pytest.approx(example.metrics, abs=CONTINUATION, nan_ok=True) for example in outcome.tasks[0].example_scores
        ]

    def plain(outcome: Any) -> list[dict[str, float]]:
        return [dict(example.metrics) for example in outcome.tasks[0].example_scores]

    whole = scored(made)
    assert list(whole) == [10, 20, 30]
    assert [outcome.speed.programs > 0 for outcome in whole.values()] == [True, False, False]
    assert plain(whole[10]) != plain(whole[20])
    [(none, alone)] = scored(made / "checkpoint-20").items()
    assert none is None
    assert plain(alone) == metrics(whole[20])
    [(step, last)] = scored(made, "latest").items()
    assert step == 30
    assert plain(last) == metrics(whole[30])


def test_runs_that_are_refused(made: Path, run: Path) -> None:
    path = run / "checkpoint-20" / "config.json"
    path.write_text(path.read_text().replace('"rms_norm_eps": 1e-05', '"rms_norm_eps": 1e-03'))
    with pytest.raises(InputError, match=r"checkpoint-20/config\.json: another model"):
        scored(run)
    with pytest.raises(InputError, match="holds no checkpoint in a folder named by its step"):
        scored(made / "checkpoint-10", "latest")
    for url, words in (
        ("memory://nowhere", "no such folder in the store"),
        ("gs://bucket/run", "gcsfs.*: install what reads that store"),
        ("foo://bucket", "Unsupported filesystem: 'foo': install what reads that store"),
    ):
        with pytest.raises(InputError, match=f"--model={url}: .*{words}"):
            scored(url)


def test_steps_that_are_scored_are_not_scored_again(
    run: Path, task: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Until their files change; a step that is new is added, and the curves hold all of them."""
    folder, out = run, tmp_path / "out"
    flags = [f"--model={folder}", f"--output={out}", *task]
    later = (folder / "checkpoint-30").rename(tmp_path / "later")
    assert eval_command(*flags) == 0
    first = {step: (out / f"step_{step}" / "results.json").stat().st_mtime_ns for step in (10, 20)}
    capfd.readouterr()
    later.rename(folder / "checkpoint-30")
    os.utime(folder / "checkpoint-20" / "model.safetensors")
    assert eval_command(*flags) == 0
    said = capfd.readouterr()
    assert "step 10 is scored already" in said.err
    assert "at step 10" not in said.err
    assert "at step 20" in said.err, "its file has changed"
    assert "at step 30" in said.err
    assert (out / "step_10" / "results.json").stat().st_mtime_ns == first[10]
    assert (out / "step_20" / "results.json").stat().st_mtime_ns > first[20]
    assert "step 10" in said.out, "the curves hold what was scored before"
    assert scores_of(out) == scores_of(out / "step_30") != scores_of(out / "step_20")
    assert list(json.loads((out / "results.json").read_text())["steps"]) == ["10", "20", "30"]
    (out / "results.json").unlink()  # killed while the top was put in place
    assert eval_command(*flags) == 0
    assert "loaded" not in capfd.readouterr().err, "nothing is left to do"
    assert scores_of(out) == scores_of(out / "step_30")
    (folder / "config.json").write_text((folder / "checkpoint-30" / "config.json").read_text())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / "checkpoint-30" / name, folder)
    assert eval_command(*flags) == 0
    assert "at step 10" in capfd.readouterr().err, "what a score depends on beside the weights has changed"


def test_a_run_is_watched_until_nothing_comes(
    made: Path, task: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins before the run's first step; a step is half-written for a while, and one is never finished."""
    monkeypatch.setattr(checkpoints, "POLL_SECONDS", 0.05)
    folder, out = tmp_path / "run", tmp_path / "out"
    folder.mkdir()
    shutil.copy(made / "checkpoint-10" / "config.json", folder)
    looks, look = [0], checkpoints.checkpoints_of

    def counted(*arguments: Any) -> Any:
        looks[0] += 1
        return look(*arguments)

    monkeypatch.setattr(checkpoints, "checkpoints_of", counted)

    def train() -> None:
        for step in (10, 20):
            target = folder / f"checkpoint-{step}"
            shutil.copytree(made / target.name, target, ignore=shutil.ignore_patterns("*.safetensors"))
            whole = (made / target.name / "model.safetensors").read_bytes()
            (target / "model.safetensors").write_bytes(whole[: len(whole) // 2])
            seen = looks[0]
            while looks[0] < seen + 3:  # one is under way; of the next two the first has read the half, and told so
                time.sleep(0.01)
            (target / "model.safetensors").write_bytes(whole)
        (folder / "checkpoint-25.orbax-checkpoint-tmp-7").mkdir()

    trainer = threading.Thread(target=train, daemon=True)
    trainer.start()
    flags = [f"--model={folder}", f"--output={out}", f"--tokenizer={made}/checkpoint-10", *task]
    assert eval_command(*flags, "--watch", "--watch_timeout=3") == 0
    trainer.join(timeout=60)
    said = capfd.readouterr().err
    assert "cannot be read yet" in said
    assert "nothing new" in said
    assert list(json.loads((out / "results.json").read_text())["steps"]) == ["10", "20"]
    assert scores_of(out) == scores_of(out / "step_20") != scores_of(out / "step_10")


def test_an_average_is_one_more_step_beside_the_curves(
    run: Path, task: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scores are those of a checkpoint that holds the mean.  It is scored once, again when a step is new, and by a
    watch at its end."""
    monkeypatch.setattr(checkpoints, "POLL_SECONDS", 0.05)
    out, folder = tmp_path / "out", tmp_path / "out" / "average_last-2"
    flags = [f"--output={out}", *task, "--average=last:2"]
    later = (run / "checkpoint-30").rename(tmp_path / "later")
    by_hand = shutil.copytree(run / "checkpoint-10", tmp_path / "by_hand")
    tensors = [load_file(run / f"checkpoint-{step}" / "model.safetensors") for step in (10, 20)]
    save_file(
        {name: (x + tensors[1][name]) / np.float32(2) for name, x in tensors[0].items()}, by_hand / "model.safetensors"
    )
    assert eval_command(f"--model={by_hand}", f"--output={tmp_path / 'of_hand'}", *task) == 0
    capfd.readouterr()
    assert eval_command(f"--model={run}", *flags[:-1]) == 0
    assert eval_command(f"--model={run}", *flags) == 0
    assert "step 20 is scored already" in capfd.readouterr().err
    (out / "results.json").unlink()  # killed after the average was scored
    assert eval_command(f"--model={run}", *flags) == 0
    said = capfd.readouterr()
    assert "average last:2 of steps 10, 20 is scored already" in said.err
    assert "average last:2 of steps 10, 20: core/copa accuracy" in said.out
    assert "against step 20: " in said.out
    assert scores_of(folder) == scores_of(tmp_path / "of_hand") != scores_of(out / "step_20")
    document = json.loads((folder / "results.json").read_text())
    assert (document["checkpoint"]["average"], document["checkpoint"]["averaged"]) == ("last:2", [10, 20])
    assert list(json.loads((out / "results.json").read_text())["steps"]) == ["10", "20"], "it is in no curve"
    assert scores_of(out) == scores_of(out / "step_20")
    later.rename(run / "checkpoint-30")
    assert eval_command(f"--model={run}", *flags, "--watch", "--watch_timeout=0.5") == 0
    said = capfd.readouterr()
    assert said.err.index("nothing new") < said.err.index("at average last:2 of steps 20, 30")
    assert json.loads((folder / "results.json").read_text())["checkpoint"]["averaged"] == [20, 30]
    assert eval_command(f"--model={run}", *flags[:-1], "--average=last:4") == 2
    assert "expected 4 or more" in capfd.readouterr().err


def test_a_step_that_stays_half_written_ends_the_watch_with_its_reason(
    run: Path, task: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "POLL_SECONDS", 0.05)
    out = tmp_path / "out"
    path = run / "checkpoint-20" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert eval_command(f"--model={run}", f"--output={out}", *task, "--watch", "--watch_timeout=1") == 2
    assert "truncated or corrupt" in capfd.readouterr().err.splitlines()[-1]
    assert scores_of(out / "step_10") != scores_of(out / "step_30"), "the others are scored"
    assert scores_of(out) == scores_of(out / "step_30"), "and stand on top"
    assert (out / "curves.svg").is_file()


def test_no_step_comes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    flags = [f"--model={tmp_path}/run", f"--output={tmp_path}/out", "--tasks=miron-gen/en"]
    assert eval_command(*flags, "--watch", "--watch_timeout=0.2") == 2
    assert "no checkpoint came within --watch_timeout" in capfd.readouterr().err


@pytest.fixture
def store() -> Iterator[Any]:
    """fsspec's store in memory, which has URLs as any other."""
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield memory
    memory.store.clear()


def test_a_run_in_an_object_store(
    run: Path, task: list[str], tmp_path: Path, store: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Hugging Face folders, step by step: the numbers of the local run; a file that changes is scored again."""
    store.put(str(run), "/bucket/run", recursive=True)
    out = tmp_path / "out"
    assert eval_command(f"--model={run}", f"--output={tmp_path}/local", *task) == 0
    assert eval_command("--model=memory://bucket/run", f"--output={out}", *task) == 0
    for step in (10, 20, 30):
        assert scores_of(out / f"step_{step}") == scores_of(tmp_path / "local" / f"step_{step}")
    capfd.readouterr()
    store.rm("/bucket/run/checkpoint-20/config.json")
    store.pipe("/bucket/run/checkpoint-20/config.json", (run / "checkpoint-20" / "config.json").read_bytes())
    assert eval_command("--model=memory://bucket/run", f"--output={out}", *task) == 0
    said = capfd.readouterr().err
    assert "step 10 is scored already" in said
    assert "at step 20" in said
    store.pipe("/bucket/run/checkpoint-30/model.safetensors", b"half")
    assert eval_command("--model=memory://bucket/run", f"--output={out}", *task) == 2
    assert "memory://bucket/run/checkpoint-30/model.safetensors: truncated or corrupt" in capfd.readouterr().err


def test_orbax_in_an_object_store_is_read_once_it_is_committed(tmp_path: Path, store: Any) -> None:
    save_standard(tmp_path / "7", pure())
    store.put(str(tmp_path / "7"), "/run/7", recursive=True)
    folder = folder_at("memory://run", "--model")
    [(step, path)] = training_steps(folder)
    assert step == 7
    with local_copy(path) as local:
        assert same_bits(load_step(local, CONFIG, jnp.bfloat16), weights())
    assert not local.exists()
    store.rm("/run/7/commit_success.txt")
    assert training_steps(folder) == []


def test_tokens_that_a_checkpoint_says_it_was_trained_on(tmp_path: Path) -> None:
    named = tmp_path / "stage1-step1000-tokens2.5B"
    named.mkdir()
    at = Checkpoint(None, named)
    assert training_tokens(at, str(named)) == 2_500_000_000
    assert training_tokens(Checkpoint(None, tmp_path), "org/model@step1-tokens4T-hf") == 4 * 10**12
    assert training_tokens(Checkpoint(7, tmp_path), "run-tokens4B") is None, "the run's name says nothing of a step"
    assert training_tokens(Checkpoint(None, tmp_path), "my-tokens-model") is None
    assert training_tokens(Checkpoint(None, tmp_path), "stage2-ingredient1-step3000-tokens7B") is None
    assert training_tokens(Checkpoint(None, named, average="last:2"), None) is None
    assert training_tokens(Checkpoint(None, None), None) is None
    state = named / "trainer_state.json"
    state.write_text('{"num_input_tokens_seen": 123, "global_step": 4}')
    assert training_tokens(at, None) == 123, "counted, where the name is rounded"
    for broken in ("{", "[]", '{"num_input_tokens_seen": 0}', '{"num_input_tokens_seen": "many"}'):
        state.write_text(broken)
        assert training_tokens(at, None) == 2_500_000_000, broken
