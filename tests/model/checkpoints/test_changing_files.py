"""Checkpoints that change while they are read: every score is that of one version of the weights, or there is none."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from miron_jax.model.checkpoints.hf_reader import load_hf
from tests.support.hf_folders import LLAMA, error_of, llama_tensors, write_folder


def folder_of(folder: Path, scale: float = 1.0) -> Path:
    return write_folder(folder, LLAMA, {name: x * np.float32(scale) for name, x in llama_tensors().items()})


def during(fault: Callable[[], object], leaf: int = 3) -> Callable[[str, np.ndarray], jax.Array]:
    """A `put` that does something else as well when it gets this leaf."""
    paths = list[str]()

    def put(path: str, host: np.ndarray) -> jax.Array:
        paths.append(path)
        if len(paths) == leaf:
            fault()
        return jax.device_put(host)

    return put


def rename_over(folder: Path) -> None:
    """Another version in place of the file, as most writers save."""
    save_file({name: 2 * x for name, x in llama_tensors().items()}, folder / "new")
    (folder / "new").replace(folder / "model.safetensors")


def test_all_leaves_come_from_the_file_that_was_opened(tmp_path: Path) -> None:
    """Renamed over, removed, or another folder behind the link: the leaves stay those of the first version."""
    other, expected = folder_of(tmp_path / "other", 2.0), load_hf(folder_of(tmp_path / "0"), jnp.float32).state
    link = tmp_path / "latest"

    def move_link() -> None:
        link.unlink()
        link.symlink_to(other)

    link.symlink_to(folder_of(tmp_path / "3"))
    for folder, fault in (
        (folder_of(tmp_path / "1"), lambda: rename_over(tmp_path / "1")),
        (folder_of(tmp_path / "2"), lambda: shutil.rmtree(tmp_path / "2")),
        (link, move_link),
    ):
        state = load_hf(folder, jnp.float32, during(fault)).state
        jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(state), jax.tree.leaves(expected))


@pytest.mark.parametrize("size", [0, 900, 4000])
def test_a_file_that_is_cut_while_it_is_read_is_refused(tmp_path: Path, size: int) -> None:
    path = folder_of(tmp_path) / "model.safetensors"
    assert "model.safetensors: is shorter than it was" in error_of(
        lambda: load_hf(tmp_path, jnp.float32, during(lambda: os.truncate(path, size), 1))
    )
