"""TensorBoard and Weights & Biases log the numbers of results.json; off by default."""

import builtins
import importlib
import json
import struct
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.report.exports.loggers import logged_numbers, open_loggers
from miron_jax.results import document
from tests.support.needs import needs
from tests.support.tiny_model import write_core_data
from tests.support.tolerances import FLOAT32
from tests.support.training_runs import eval_command, run_of

pytestmark = pytest.mark.slow

RESULTS = {
    "tasks": {
        "core/copa": {"n": 2, "metrics": {"accuracy": {"value": 0.5}, "bits_per_byte": {"value": None}}, "groups": {}},
        "miron/en": {"n": 1, "metrics": {}, "groups": {"Facts": {"n": 1, "metrics": {"logprob": {"value": -2.0}}}}},
    },
    "config": {},
    "suites": {"core": {"composites": {"CORE": {"value": None}, "CORE-18": {"value": 0.25}}}},
}


def test_numbers_by_hand() -> None:
    assert logged_numbers(document.run_of(RESULTS)) == {
        "core/copa/accuracy": 0.5,
        "miron/en/Facts/logprob": -2.0,
        "core/CORE-18": 0.25,
    }


def read_scalars(folder: Path) -> dict[tuple[str, int], float]:
    """(tag, step) -> value of the folder's event files, which are records of length, checksum, data, checksum."""
    event_pb2: Any = importlib.import_module("tensorboardX.proto.event_pb2")

    scalars = {}
    for path in folder.glob("events.*"):
        raw, at = path.read_bytes(), 0
        while at < len(raw):
            (length,) = struct.unpack_from("<Q", raw, at)
            event = event_pb2.Event.FromString(raw[at + 12 : at + 12 + length])
            scalars |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
            at += 12 + length + 4
    return scalars


def test_a_run_is_logged_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both at once; steps that are already scored are logged too."""
    for package in ("tensorboardX", "wandb"):
        needs(package)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    folder, out, data = run_of(tmp_path / "run"), tmp_path / "out", write_core_data(tmp_path / "data")
    flags = (
        f"--model={folder}", "--tasks=core/copa", "--limit=2", f"--data_dir={data}", "--allow_changed_data",
        f"--output={out}", "--compilation_cache=",
    )  # fmt: skip
    assert eval_command(*flags, "--steps=10,30") == 0
    assert not list(tmp_path.glob("wandb")), "off by default"
    assert eval_command(*flags, f"--tensorboard={tmp_path}/board", "--wandb=a-project") == 0
    scalars = read_scalars(tmp_path / "board")
    for step in (10, 20, 30):
        results = json.loads((out / f"step_{step}" / "results.json").read_text())
        for name, value in logged_numbers(document.run_of(results)).items():
            assert scalars[name, step] == pytest.approx(value, rel=FLOAT32)
    assert {step for _, step in scalars} == {10, 20, 30}
    [run] = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    raw = run.read_bytes()
    assert b"core/copa/bits_per_byte" in raw
    assert b"training_step" in raw
    assert b"a-project" in raw


@pytest.mark.parametrize(("flag", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_package_is_named(flag: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> ModuleType:
        if name == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    config = replace(RunConfig("demo", ("core",)), **{flag: str(tmp_path)})
    with pytest.raises(InputError, match=rf"--{flag} needs {package}, .*pip install .miron-jax\[log\]."):
        open_loggers(config)
    assert open_loggers(RunConfig("demo", ("core",))) == []
