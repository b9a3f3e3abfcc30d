"""Packages that a test needs: where one is absent, the test is skipped with the command that installs it."""

from typing import Any

import pytest

COMMANDS = {
    "crowdkit": 'pip install "miron-jax[humans]"', "lm_eval": 'pip install "miron-jax[lm-eval]"',
    "tensorboardX": 'pip install "miron-jax[log]"', "wandb": 'pip install "miron-jax[log]"',
    "mlflow": "pip install mlflow-skinny", "comet_ml": "pip install comet-ml", "trackio": "pip install trackio",
}  # fmt: skip


def reason(module: str) -> str:
    package = module.partition(".")[0]
    name = {"crowdkit": "crowd-kit"}.get(package, package.replace("_", "-"))
    return f"needs {name}: {COMMANDS.get(package, 'make install')}"


def needs(module: str) -> Any:
    """The imported module (`lm_eval` or `lm_eval.utils`)."""
    return pytest.importorskip(module, reason=reason(module))
