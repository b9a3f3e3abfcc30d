"""A watch beside a trainer that re-saves, rewrites, cuts, links and removes its steps: each score is of one version."""

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate_checkpoints
from miron_jax.model.checkpoints import checkpoints, loading
from miron_jax.model.checkpoints.fingerprint import weights_fingerprint
from miron_jax.model.checkpoints.versions import TICK_SECONDS
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.progress import Lines
from tests.support import busy_writer
from tests.support.tiny_model import make_model, write_core_data

pytestmark = pytest.mark.slow


def ordered_parts(versions: list[str]) -> list[list[str]]:
    """What of a step's versions may be scored: any, each once, in their order."""
    return [[], *([version] for version in versions), versions]


def numbers(outcome: Any) -> list[dict[str, float]]:
    return [dict(example.metrics) for example in outcome.tasks[0].example_scores]


def scored(run: Path, data: Path, lines: list[str], **settings: Any) -> Iterator[tuple[int, str, Any]]:
    """(step, fingerprint of its weights, numbers) in the order in which they are scored."""
    config = RunConfig(
        str(run), ("core/copa",), data_dir=(("", str(data)),), allow_changed_data=True, limit=4, **settings
    )
    outcomes = evaluate_checkpoints(config, find_inputs(config), Lines(lines.append))
    for step, outcome in outcomes:
        assert step is not None
        yield step, outcome.weights, numbers(outcome)


def watched(run: Path, data: Path, lines: list[str], **settings: Any) -> Iterator[tuple[int, str, Any]]:
    """The same of a run that is read and not scored, as it comes, without numbers."""
    config, progress = RunConfig(str(run), ("core/copa",), **settings), Lines(lines.append)
    files, architecture = checkpoints.find_model(config), None
    placement = Placement.choose(config.sharding, config.mesh)
    for new in checkpoints.rounds(config, files, progress, lambda checkpoint: False):
        try:
            architecture = architecture or checkpoints.architecture_of(config, files)
        except InputError:
            assert not all(checkpoint.is_there() for checkpoint in new.checkpoints)
            continue
        for checkpoint, state in loading.loaded(architecture, config, new, placement, progress):
            assert checkpoint.step is not None
            yield checkpoint.step, weights_fingerprint(state), None


@pytest.mark.parametrize(("num_steps", "read"), [(40, scored), (200, watched)])
def test_each_score_is_of_one_version(
    num_steps: int, read: Callable[..., Iterator[tuple[int, str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "POLL_SECONDS", 0.02)
    versions, run, lines = tmp_path / "versions", tmp_path / "run", list[str]()
    whole = load_file(make_model(tmp_path / "made", layers=1) / "model.safetensors")
    for version in range(1, 8):
        folder = make_model(versions / f"checkpoint-{version}", layers=1)
        save_file(
            {name: tensor * np.float32(version / 4) for name, tensor in whole.items()}, folder / busy_writer.WEIGHTS
        )
    data = write_core_data(tmp_path / "data")
    weights_of, numbers_of = {}, {}
    for version, weights, of_version in scored(versions, data, lines):
        weights_of[f"checkpoint-{version}"] = weights
        numbers_of[weights] = of_version
    assert len(numbers_of) == 7

    put = loading.put_weight

    def put_slowly(*arguments: Any, **more: Any) -> Any:
        time.sleep(0.002)  # else no version would change while it is read
        return put(*arguments, **more)

    monkeypatch.setattr(loading, "put_weight", put_slowly)
    run.mkdir()
    (tmp_path / "scored").touch()
    lines.clear()
    command = [sys.executable, "-S", busy_writer.__file__, run, versions, num_steps, 1, 0.05]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as writer, ExitStack() as ended:
        ended.callback(writer.kill)  # if this fails, else it has ended
        by_step = defaultdict[int, list[str]](list)
        for step, weights, of_step in read(run, data, lines, watch=True, watch_timeout=6.0):
            by_step[step].append(weights)
            (tmp_path / "scored").write_text(str(max(by_step)))
            assert of_step is None or of_step == numbers_of.get(weights, of_step)
        assert writer.stdout is not None
        saved = [json.loads(line) for line in writer.stdout]
        writer.wait()
    assert writer.returncode == 0
    assert len(saved) == num_steps
    for step, names, final, longest_pause in saved:
        if longest_pause > TICK_SECONDS / 2:
            continue  # the machine was busy: a file that stands still for so long may be read as it is
        of_step = by_step.get(step, [])
        assert of_step in ordered_parts([weights_of[name] for name in names]), (step, names)
        assert final is None or of_step[-1:] == [weights_of[final]], (step, names)
    num_twice = sum(len(of_step) == 2 for of_step in by_step.values())
    print("scored", len(by_step), "twice", num_twice, "exempt", sum(entry[3] > TICK_SECONDS / 2 for entry in saved))
    assert len(by_step) > num_steps / 2, "too few steps were scored for a test of this"
    assert num_twice > num_steps / 20
    left_out = [line for line in lines if line.endswith("is left out")]
    assert len(left_out) == len({*left_out}), "each is said once"
