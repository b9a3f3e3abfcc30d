"""Results of a step -> TensorBoard, Weights & Biases, MLflow, Comet or Trackio, by flag.

Arrives: a `RunResult`.  Leaves: one number per task and metric, `core/copa/accuracy`, and per
composite, `core/CORE`.  It deliberately does not know how results are computed.  All packages are
optional.
"""

import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Protocol

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.files.places import local_path
from miron_jax.results.document import config_json
from miron_jax.results.records import CompositeResult, RunResult
from miron_jax.statistics.estimate import Estimate

NAMES = ("tensorboard", "wandb", "mlflow", "comet", "trackio")  # settings that open one
LOG = '"miron-jax[log]"'  # quoted: zsh takes brackets for a pattern
MLFLOW_BATCH = 1000  # metrics that its servers take at once


class Logger(Protocol):
    def log(self, step: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


def open_loggers(config: RunConfig) -> list[Logger]:
    """The loggers that flags name.  Raises InputError if a package is missing."""
    loggers: list[Logger] = []
    if config.tensorboard is not None:
        loggers.append(TensorBoard(local_path(config.tensorboard)))
    if config.wandb is not None:
        loggers.append(WeightsAndBiases(config))
    if config.mlflow is not None:
        loggers.append(MLflow(config))
    if config.comet is not None:
        loggers.append(Comet(config))
    if config.trackio is not None:
        loggers.append(Trackio(config))
    return loggers


def logged_numbers(run: RunResult) -> dict[str, float]:
    """Every metric of every task and of its categories, and every composite; those that are
    defined."""
    numbers: dict[str, float] = {}

    def add(below: str, of_names: Mapping[str, Estimate | CompositeResult]) -> None:
        for name, each in of_names.items():
            if math.isfinite(each.value):
                numbers[f"{below}/{name}"] = each.value

    for name, task in run.tasks.items():
        add(name, task.metrics)
        for group, of_group in task.groups.items():
            add(f"{name}/{group}", of_group.metrics)
    for suite, result in run.suites.items():
        add(suite, result.composites)
    return numbers


class TensorBoard:
    """Writes event files to a folder."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise _missing("--tensorboard", "tensorboardX", LOG) from None
        try:
            self._writer = SummaryWriter(str(folder))
        except OSError as error:
            raise InputError(
                f"--tensorboard={folder} cannot be written to ({error.strerror}): name another "
                "folder"
            ) from None

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Logs to a run of a project; WANDB_MODE=offline keeps it local.  Steps may come in any order:
    the x axis is `training_step`."""

    def __init__(self, config: RunConfig) -> None:
        try:
            import wandb
        except ImportError:
            raise _missing("--wandb", "wandb", LOG) from None

        self._wandb: ModuleType = wandb
        try:
            self._run = wandb.init(project=config.wandb, config=config_json(config))
        except wandb.Error as error:
            raise InputError(
                f"--wandb={config.wandb}: {' '.join(str(error).split())}; log in with `wandb "
                "login`, or set WANDB_MODE=offline"
            ) from None
        self._run.define_metric("training_step")
        self._run.define_metric("*", step_metric="training_step")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({"training_step": step, **numbers})

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """Logs to a run of an experiment, by a client of its own: a trainer's active run stays as it
    is."""

    def __init__(self, config: RunConfig) -> None:
        try:
            import mlflow  # pyright: ignore[reportMissingImports]
            from mlflow.entities import Metric, Param  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise _missing("--mlflow", "mlflow", "mlflow-skinny") from None

        self._metric = Metric
        settings = [Param(name, str(value)) for name, value in config_json(config).items()]
        try:
            self._client = mlflow.MlflowClient()
            experiment = self._client.get_experiment_by_name(config.mlflow)
            if experiment is None:
                experiment_id = self._client.create_experiment(config.mlflow)
            else:
                experiment_id = experiment.experiment_id
            self._run: str = self._client.create_run(experiment_id).info.run_id
            self._client.log_batch(self._run, params=settings)
        except mlflow.MlflowException as error:
            raise InputError(
                f"--mlflow={config.mlflow}: {' '.join(str(error).split()):.200}; set "
                "MLFLOW_TRACKING_URI to a server or a folder that may be written to"
            ) from None

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = []
        for name, value in numbers.items():
            known = re.sub(r"[^\w\-. /:]", "_", name)  # MLflow refuses names of other characters
            metrics.append(self._metric(known, value, now, step))
        for first in range(0, len(metrics), MLFLOW_BATCH):
            self._client.log_batch(self._run, metrics[first : first + MLFLOW_BATCH])

    def close(self) -> None:
        self._client.set_terminated(self._run)


class Comet:
    """Logs to an experiment of a project."""

    def __init__(self, config: RunConfig) -> None:
        try:
            import comet_ml  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise _missing("--comet", "comet_ml", "comet-ml") from None

        try:
            self._experiment = comet_ml.start(project_name=config.comet, mode="create")
        except ValueError as error:  # there is no key
            raise InputError(
                f"--comet={config.comet}: {' '.join(str(error).split())}; or set "
                "COMET_START_ONLINE=0"
            ) from None
        self._experiment.log_parameters(config_json(config))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._experiment.log_metrics(dict(numbers), step=step)

    def close(self) -> None:
        self._experiment.end()


class Trackio:
    """Logs to a run of a project; TRACKIO_DIR is where it lies."""

    def __init__(self, config: RunConfig) -> None:
        try:
            import trackio  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise _missing("--trackio", "trackio", "trackio") from None

        self._run = trackio.init(project=config.trackio, config=config_json(config), embed=False)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


def _missing(flag: str, package: str, install: str) -> InputError:
    return InputError(f"{flag} needs {package}, which is not installed: pip install {install}")
