"""Training runs and their checkpoints as trainers leave them, and the command in this process."""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import orbax.checkpoint as ocp
import pytest
from absl.testing import flagsaver
from safetensors.numpy import load_file, save_file

from miron_jax import cli
from tests.support.tiny_model import make_model


def save_standard(folder: Path, tree: Any) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder, tree)
        checkpointer.wait_until_finished()


def save_apart(folder: Path, tree: Any) -> None:
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as checkpointer:
        checkpointer.save(folder, tree)


def run_of(folder: Path) -> Path:
    """A run as a trainer leaves it: a whole Hugging Face folder a step, nothing above them."""
    for step, scale in ((10, 0.5), (20, 1.0), (30, 2.0)):
        made = make_model(folder / f"checkpoint-{step}")
        tensors = load_file(made / "model.safetensors")
        save_file({name: tensor * np.float32(scale) for name, tensor in tensors.items()}, made / "model.safetensors")
    return folder


def scores_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())["tasks"]


def eval_command(*flags: str) -> int:
    """The command in this process."""
    with (
        pytest.raises(SystemExit) as ended,
        flagsaver.flagsaver(),
        patch.object(sys, "argv", ["miron-jax", "eval", *flags]),
    ):
        cli.main()
    assert ended.value.code is None or isinstance(ended.value.code, int)
    return ended.value.code or 0
