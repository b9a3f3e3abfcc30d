"""Checkpoints that change while they are read: every score is that of one version of the weights, or there is none."""

import itertools
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx
from safetensors.numpy import load_file, save_file

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.model.checkpoints import checkpoints, loading
from miron_jax.model.checkpoints.checkpoints import Architecture, ModelFiles, checkpoints_of, rounds
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf, resolve_model
from miron_jax.model.checkpoints.loading import load
from miron_jax.model.checkpoints.remote import folder_at
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.runtime.devices import Placement, Tree
from miron_jax.runtime.progress import SILENT, Lines
from tests.support.hf_folders import LLAMA, error_of, llama_tensors, write_folder, write_shards
from tests.support.training_runs import save_standard


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


def scaled(scale: float) -> dict[str, np.ndarray]:
    return {name: np.float32(scale) * x for name, x in llama_tensors().items()}


def rename_over(folder: Path, scale: float = 2.0) -> None:
    """Another version in place of the file, as most writers save."""
    save_file(scaled(scale), folder / "new")
    (folder / "new").replace(folder / "model.safetensors")


def same_state(state: Tree, expected: Tree) -> bool:
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


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
        assert same_state(load_hf(folder, jnp.float32, during(fault)).state, expected)


@pytest.mark.parametrize("size", [0, 900, 4000])
def test_a_file_that_is_cut_while_it_is_read_is_refused(tmp_path: Path, size: int) -> None:
    path = folder_of(tmp_path) / "model.safetensors"
    assert "model.safetensors: is shorter than it was" in error_of(
        lambda: load_hf(tmp_path, jnp.float32, during(lambda: os.truncate(path, size), 1))
    )


def write_over(folder: Path, scale: float) -> None:
    save_file(scaled(scale), folder.parent / "new")
    (folder / "model.safetensors").write_bytes((folder.parent / "new").read_bytes())


def rename_with_old_times(folder: Path, scale: float) -> None:
    """As restored from a copy: another file of the same size and time."""
    status = (folder / "model.safetensors").stat()
    rename_over(folder, scale)
    os.utime(folder / "model.safetensors", ns=(status.st_atime_ns, status.st_mtime_ns))


def link_of(folder: Path) -> Path:
    folder.symlink_to(folder_of(folder.parent / "version-1", 1.0))
    return folder


def move_link(folder: Path, scale: float) -> None:
    folder.unlink()
    folder.symlink_to(folder_of(folder.parent / f"version-{scale}", scale))


def save_one_shard(folder: Path, scale: float) -> None:
    tensors = {name: np.float32(scale) * x for name, x in load_file(folder / "b.safetensors").items()}
    save_file(tensors, folder / "new")
    (folder / "new").replace(folder / "b.safetensors")


def orbax_of(folder: Path, scale: float = 1.0) -> Path:
    state = load_hf(folder_of(folder.parent / f"hf-{scale}", scale), jnp.float32).state
    save_standard(folder, nnx.to_pure_dict(state))
    return folder


def save_orbax_again(folder: Path, scale: float) -> None:
    orbax_of(folder.parent / f"orbax-{scale}", scale)
    shutil.rmtree(folder)
    (folder.parent / f"orbax-{scale}").rename(folder)


def in_bucket(folder: Path) -> Path:
    fsspec.filesystem("memory").put(str(folder_of(folder)), f"/changing/{folder.name}", recursive=True)
    return folder_at(f"memory://changing/{folder.name}", "--model")


def save_in_bucket(folder: Path, scale: float) -> None:
    content = safetensors.numpy.save(scaled(scale))
    fsspec.filesystem("memory").pipe(f"/changing/{folder.name}/model.safetensors", content)


Change = Callable[[Path, float], None]
WAYS: dict[str, tuple[Callable[[Path], Path], Change]] = {
    "renamed": (folder_of, rename_over),
    "in place": (folder_of, write_over),
    "old times": (folder_of, rename_with_old_times),
    "link": (link_of, move_link),
    "shard": (write_shards, save_one_shard),
    "orbax": (orbax_of, save_orbax_again),
    "bucket": (in_bucket, save_in_bucket),
}


@pytest.mark.parametrize("way", WAYS)
def test_weights_that_change_while_they_are_read_are_read_once_more(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then they are those of one version, with its fingerprint; if they change again, that is refused."""
    make, change = WAYS[way]
    folder = make(tmp_path / "model")
    model = from_hf_config(folder_of(tmp_path / "config"))
    assert model is not None
    config = RunConfig(model=str(folder), tasks=("none",), dtype="float32")
    scales = list[float]()
    num_put = 0

    def put(path: str, host: np.ndarray, **how: object) -> jax.Array:
        nonlocal num_put
        num_put += 1
        if num_put % 11 == 3 and scales:  # of 11 leaves
            change(folder, scales.pop())
        return jax.device_put(host)

    def read() -> loading.Loaded:
        checkpoint = Checkpoint.at(7, folder)
        return load(Architecture(model, None, None, ()), config, checkpoint, Placement.default())  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "put_weight", put)
    first = read()
    scales.append(2.0)
    second = read()
    again = read()
    assert num_put == 4 * 11
    assert not same_state(first.state, second.state)
    assert same_state(second.state, again.state)
    assert second.checkpoint == again.checkpoint == Checkpoint.at(7, folder) != first.checkpoint
    scales += [4.0, 3.0]
    assert "its files changed while they were read, twice" in error_of(read)
    assert not scales


def test_a_step_that_is_removed_while_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "7")
    architecture = Architecture(from_hf_config(folder), None, None, ())  # type: ignore[arg-type]
    config = RunConfig(model=str(folder), tasks=("none",), dtype="float32")
    remove = during(lambda: shutil.rmtree(folder))
    monkeypatch.setattr(loading, "put_weight", lambda path, host, **how: remove(path, host))
    error = error_of(lambda: load(architecture, config, Checkpoint.at(7, folder), Placement.default()))
    assert "7: was removed before it was read" in error


def test_pipes_are_never_opened(tmp_path: Path) -> None:
    """Among the weights they are named, as whatever reads them would wait for ever; elsewhere nothing looks at them."""
    folder = orbax_of(tmp_path / "7")
    os.mkfifo(folder / "d.pipe")
    architecture = Architecture(from_hf_config(folder_of(tmp_path / "hf")), None, None, ())  # type: ignore[arg-type]
    config = RunConfig(model=str(folder), tasks=("none",), dtype="float32")
    error = error_of(lambda: load(architecture, config, Checkpoint.at(7, folder), Placement.default()))
    assert "d.pipe: is a pipe or a device, expected a regular file" in error
    os.mkfifo(tmp_path / "hf" / "commands")
    load(architecture, config, Checkpoint.at(7, tmp_path / "hf"), Placement.default())


def watched(
    run: Path, visits: list[Callable[[Checkpoint], object]], **settings: Any
) -> tuple[list[int | None], list[str]]:
    """Steps in the order in which a watch reads them, and what it says; a visit is what happens at the n-th reading."""
    lines, steps = list[str](), list[int | None]()
    config = RunConfig(model=str(run), tasks=("none",), **{"watch": True, "watch_timeout": 0.2, **settings})
    for look in rounds(config, ModelFiles(run, run, None), Lines(lines.append), lambda checkpoint: False):
        for checkpoint in look.taken():
            steps.append(checkpoint.step)
            visit = visits.pop(0) if visits else None
            try:
                if visit is not None:
                    visit(checkpoint)
                if not checkpoint.is_there():
                    raise InputError("removed")
                assert checkpoint.folder is not None
                look.read.append(Checkpoint.at(checkpoint.step, checkpoint.folder, checkpoint.shared))
            except InputError as error:
                look.fail(checkpoint, error)
    return steps, lines


def run_with(folder: Path, *steps: int) -> Path:
    for step in steps:
        folder.mkdir(exist_ok=True)
        folder_of(folder / str(step), step)
    return folder


def unreadable(checkpoint: Checkpoint) -> None:
    raise InputError("half-written")


def test_a_watch_follows_versions_not_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is saved again is read again; one that is removed is said once, and neither ends the watch."""
    monkeypatch.setattr(checkpoints, "POLL_SECONDS", 0.01)

    def save_first_again(_: Checkpoint) -> None:
        rename_over(tmp_path / "a" / "1", 5.0)

    steps, lines = watched(run_with(tmp_path / "a", 1, 2), [lambda _: None, save_first_again])
    assert steps == [1, 2, 1]
    assert [line for line in lines if "nothing new" not in line] == [
        "behind by 2 checkpoints: steps 1 to 2 have no results yet"
    ]

    # 1 changes before it is read: that version counts.  2 is removed while 1 is read, 3 is half-written, then removed.
    def rotate(checkpoint: Checkpoint) -> None:
        save = tmp_path / "b" / "1"
        rename_over(save, 5.0)
        shutil.rmtree(tmp_path / "b" / "2")

    def remove_third(_: Checkpoint) -> None:
        shutil.rmtree(tmp_path / "b" / "3")

    def save_fourth(checkpoint: Checkpoint) -> None:
        run_with(tmp_path / "b", 4)
        unreadable(checkpoint)

    steps, lines = watched(run_with(tmp_path / "b", 1, 2, 3), [rotate, lambda _: None, save_fourth, remove_third])
    assert steps == [1, 2, 3, 4]
    assert lines == [
        "behind by 3 checkpoints: steps 1 to 3 have no results yet",
        "step 3 cannot be read yet: half-written", "step 2 has been removed before it was read, and is left out",
        "step 3 has been removed before it was read, and is left out", f"nothing new in {tmp_path}/b for 0 s",
    ]  # fmt: skip

    with pytest.raises(InputError, match="half-written"):
        watched(run_with(tmp_path / "c", 1, 2), [unreadable])


def test_a_watch_takes_the_newest_first_or_keeps_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are saved while they are read, and 4 is saved again."""
    monkeypatch.setattr(checkpoints, "POLL_SECONDS", 0.01)

    def saves(run: Path, step: int) -> Callable[[Checkpoint], object]:
        return lambda _: run_with(run, step)

    run = run_with(tmp_path / "a", 1, 2, 3, 4)
    visits = [saves(run, 5), lambda _: rename_over(run / "4", 5.0), lambda _: None, saves(run, 9)]
    assert watched(run, visits, newest_first=True)[0] == [4, 5, 4, 3, 9, 2, 1]

    run = run_with(tmp_path / "b", 1, 2, 3, 4)

    def saves_more(_: Checkpoint) -> None:
        run_with(run, 5, 9)

    steps, lines = watched(run, [saves_more], keep_up=True)
    assert steps == [4, 9]
    assert [line for line in lines if line.startswith("left out")] == [
        "left out to keep up: steps 1, 2, 3", "left out to keep up: steps 5",
    ]  # fmt: skip


def test_a_watch_waits_for_steps_that_another_process_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end before they are scored, and takes one that is given back."""
    monkeypatch.setattr(checkpoints, "POLL_SECONDS", 0.01)
    run, asked, taken = run_with(tmp_path / "a", 1, 2), Counter[int | None](), list[int | None]()
    config = RunConfig(model=str(run), tasks=("none",), watch=True, watch_timeout=0.05)

    def scored(checkpoint: Checkpoint) -> bool:
        return checkpoint.step == 1 and asked[1] >= 20

    def take(checkpoint: Checkpoint) -> bool:
        asked[checkpoint.step] += 1
        return checkpoint.step == 2 and asked[2] == 10

    for look in rounds(config, ModelFiles(run, run, None), SILENT, scored, take=take):
        for checkpoint in look.taken():
            taken.append(checkpoint.step)
            look.read.append(checkpoint)
    assert taken == [2]
    assert asked == {1: 20, 2: 10}


def test_listing_beside_a_busy_writer_never_raises(tmp_path: Path) -> None:
    made = folder_of(tmp_path / "made")
    run, is_done = tmp_path / "run", threading.Event()
    run.mkdir()

    def rotate() -> None:
        for step in itertools.count(1):
            shutil.copytree(made, run / f"checkpoint-{step}")
            shutil.rmtree(run / f"checkpoint-{step - 2}", ignore_errors=True)
            if is_done.is_set():
                return

    writer = threading.Thread(target=rotate)
    writer.start()
    config = RunConfig(model=str(run), tasks=("none",), watch=True)
    listed = set[int | None]()
    try:
        while len(listed) < 12 and writer.is_alive():
            listed |= {checkpoint.step for checkpoint in checkpoints_of(config, ModelFiles(run, run, None))}
    finally:
        is_done.set()
        writer.join()
    assert len(listed) >= 12


def test_a_step_that_was_removed_is_no_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_with(tmp_path / "rot", 1)
    for name in ("rot/2", "rot/checkpoint-20"):
        assert f"--model={name}: no such folder, though rot is here" in error_of(lambda name=name: resolve_model(name))
