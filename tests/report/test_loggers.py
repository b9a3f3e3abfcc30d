"""TensorBoard and Weights & Biases log the numbers of results.json; off by default."""

import builtins
import importlib
import json
import sqlite3
import struct
import zipfile
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


NUMBERS = {"core/copa/accuracy": 0.5, "own/x (a, b)/accuracy": 0.25}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.chdir(tmp_path)
    return RunConfig("demo", ("core",))


def log(config: RunConfig) -> None:
    """Steps in any order, as --watch and resumed runs have them."""
    [logger] = open_loggers(config)
    for step in (20, 10):
        logger.log(step, {name: value + step for name, value in NUMBERS.items()})
    logger.close()


def test_mlflow_has_each_step_of_a_run_of_its_own(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = needs("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for _ in range(2):
        log(replace(config, mlflow="a project"))
    client = mlflow.MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("a project").experiment_id])
    assert [(run.info.status, run.data.params["model"]) for run in runs] == [("FINISHED", "demo")] * 2
    for name in ("core/copa/accuracy", "own/x _a_ b_/accuracy"):
        history = client.get_metric_history(runs[0].info.run_id, name)
        assert sorted((each.step, each.value % 1) for each in history) == [(s, history[0].value % 1) for s in (10, 20)]
    assert mlflow.active_run() is None


def test_mlflow_that_is_not_reached_is_one_sentence(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(InputError, match=r"--mlflow=p: .*set MLFLOW_TRACKING_URI to a server"):
        open_loggers(replace(config, mlflow="p"))


def test_trackio_has_each_step(config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    needs("trackio")
    log(replace(config, trackio="a-project"))
    with sqlite3.connect(tmp_path / "trackio" / "a-project.db") as database:
        rows = database.execute("select step, metrics from metrics order by step").fetchall()
    assert [(step, json.loads(text)["own/x (a, b)/accuracy"]) for step, text in rows] == [(10, 10.25), (20, 20.25)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket of Comet's stays open
def test_comet_keeps_each_step(config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("comet_ml")
    with pytest.raises(InputError, match=r"--comet=p: .*API key.*; or set COMET_START_ONLINE=0"):
        open_loggers(replace(config, comet="p"))
    monkeypatch.setenv("COMET_START_ONLINE", "0")
    monkeypatch.setenv("COMET_OFFLINE_DIRECTORY", str(tmp_path / "comet"))
    log(replace(config, comet="p"))
    [archive] = (tmp_path / "comet").glob("*.zip")
    messages = [*map(json.loads, zipfile.ZipFile(archive).read("messages.json").decode().splitlines())]
    metrics = [each["payload"]["metric"] for each in messages if each["type"] == "metric_msg"]
    of_run = {(each["metricName"], each["step"]): each["metricValue"] for each in metrics}
    assert {
        (name, step): value + step for name, value in NUMBERS.items() for step in (10, 20)
    }.items() <= of_run.items()


@pytest.mark.parametrize(
    ("flag", "package", "install"),
    [
        ("tensorboard", "tensorboardX", r".miron-jax\[log\]."),
        ("wandb", "wandb", r".miron-jax\[log\]."),
        ("mlflow", "mlflow", "mlflow-skinny"),
        ("comet", "comet_ml", "comet-ml"),
        ("trackio", "trackio", "trackio"),
    ],
)
def test_a_missing_package_is_named(
    flag: str, package: str, install: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> ModuleType:
        if name == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    config = replace(RunConfig("demo", ("core",)), **{flag: str(tmp_path)})
    with pytest.raises(InputError, match=rf"--{flag} needs {package}, .*pip install {install}$"):
        open_loggers(config)
    assert open_loggers(RunConfig("demo", ("core",))) == []
