"""Results of a step -> TensorBoard or Weights & Biases, where they are asked for.

Arrives: results as results.json holds them.  Leaves: one number a task and metric, `core/copa/accuracy`, and one a
composite, `core/CORE`.  It deliberately does not know where results come from.  Both packages are optional: pip install
miron-jax[log].
"""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.files.places import local_path


class Logger(Protocol):
    """What every writer is."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


def open_loggers(config: RunConfig) -> list[Logger]:
    """Those that the flags ask for.  Raises InputError where a package is missing."""
    loggers: list[Logger] = []
    if config.tensorboard is not None:
        loggers.append(TensorBoard(local_path(config.tensorboard)))
    if config.wandb is not None:
        loggers.append(WeightsAndBiases(config))
    return loggers


def numbers_of(results: Mapping[str, Any]) -> dict[str, float]:
    """Every metric of every task and of its categories, every composite; what is null is left out."""
    found: dict[str, float | None] = {}
    for task, entry in results["tasks"].items():
        found |= {f"{task}/{name}": own["value"] for name, own in entry["metrics"].items()}
        for group, own in entry["groups"].items():
            found |= {f"{task}/{group}/{name}": metric["value"] for name, metric in own["metrics"].items()}
    for suite, entry in results["suites"].items():
        found |= {f"{suite}/{name}": own["value"] for name, own in entry["composites"].items()}
    return {name: value for name, value in found.items() if value is not None}


class TensorBoard:
    """Event files in a folder."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise _missing("--tensorboard", "tensorboardX") from None
        try:
            self._writer = SummaryWriter(str(folder))
        except OSError as error:
            raise InputError(
                f"--tensorboard={folder} cannot be written to ({error.strerror}): name another folder"
            ) from None

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of a project; WANDB_MODE=offline keeps it on this machine.  Its x axis is `training_step`: steps may come in any
    order."""

    def __init__(self, config: RunConfig) -> None:
        try:
            import wandb
        except ImportError:
            raise _missing("--wandb", "wandb") from None
        from miron_jax.report.results import config_entry

        self._wandb: ModuleType = wandb
        try:
            self._run = wandb.init(project=config.wandb, config=config_entry(config))
        except wandb.Error as error:
            raise InputError(
                f"--wandb={config.wandb}: {' '.join(str(error).split())}; log in with `wandb login`, or set "
                "WANDB_MODE=offline"
            ) from None
        self._run.define_metric("training_step")
        self._run.define_metric("*", step_metric="training_step")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({"training_step": step, **numbers})

    def close(self) -> None:
        self._run.finish()


def _missing(flag: str, package: str) -> InputError:
    return InputError(f"{flag} needs {package}, which is not installed: pip install miron-jax[log]")
