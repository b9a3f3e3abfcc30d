"""Results of a step -> TensorBoard or Weights & Biases, by flag.

Arrives: a `RunResult`.  Leaves: one number per task and metric, `core/copa/accuracy`, and per
composite, `core/CORE`.  It deliberately does not know how results are computed.  Both packages are
optional: pip install miron-jax[log].
"""

import math
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
            raise _missing("--tensorboard", "tensorboardX") from None
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
            raise _missing("--wandb", "wandb") from None

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


def _missing(flag: str, package: str) -> InputError:
    remedy = 'pip install "miron-jax[log]"'  # quoted: zsh takes brackets for a pattern
    return InputError(f"{flag} needs {package}, which is not installed: {remedy}")
