"""Averages of a run's checkpoints: their weights, how much memory they take, and what is refused."""

import shutil
from pathlib import Path
from typing import Any

import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from miron_jax.config import RunConfig
from miron_jax.model.checkpoints import loading
from miron_jax.model.checkpoints.checkpoints import Architecture, ModelFiles, checkpoints_of, rounds
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.checkpoints.loading import load
from miron_jax.model.checkpoints.remote import folder_at
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.model.decoder.sharding import put_weight
from miron_jax.model.own import OwnModel
from miron_jax.runtime.devices import Placement, Tree
from miron_jax.runtime.progress import SILENT, Lines
from tests.model.checkpoints.test_array_tree import write_easydel, write_levanter
from tests.support.hf_folders import LLAMA, Tensors, error_of, llama_tensors, write_folder
from tests.support.processes import run
from tests.support.tolerances import FLOAT32
from tests.support.toy_decoders import same_bits
from tests.support.training_runs import save_standard


def drawn(step: int) -> Tensors:
    rng = np.random.default_rng(step)
    return {name: x + rng.standard_normal(x.shape).astype(np.float32) for name, x in llama_tensors().items()}


def run_of(folder: Path, steps: int) -> Path:
    folder.mkdir()
    for step in range(1, steps + 1):
        write_folder(folder / str(step), LLAMA, drawn(step))
    return folder


def averaged(folder: Path, rule: str, **settings: Any) -> loading.Loaded:
    """What the command loads last of a run."""
    config = RunConfig(model=str(folder), tasks=("none",), average=rule, **settings)
    looks = rounds(config, ModelFiles(folder, folder, None), SILENT, lambda checkpoint: False)
    [checkpoint] = next(look.checkpoints for look in looks if look.checkpoints[0].average)
    model = from_hf_config(write_folder(Path("config"), LLAMA))
    placement = Placement.choose(config.sharding, config.mesh)
    return load(Architecture(model, None, None, ()), config, checkpoint, placement)  # type: ignore[arg-type]


def written_as(folder: Path, tensors: Tensors, dtype: str) -> Tree:
    """The weights of a folder that holds these tensors."""
    return load_hf(write_folder(folder, LLAMA, tensors), jnp.dtype(dtype)).state


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("layout", "dtype"), [("hf", "bfloat16"), ("orbax", "bfloat16"), ("bucket", "float32")])
def test_the_mean_of_the_last_steps_is_made_in_float32_and_rounded_once(
    layout: str, dtype: str, tmp_path: Path
) -> None:
    """To the bit that of NumPy; the mean of three numbers in bfloat16 would be another one."""
    folder = run_of(tmp_path / "run", 4)
    if layout == "orbax":
        for step in range(1, 5):
            state = load_hf(folder / str(step), jnp.float32).state
            shutil.rmtree(folder / str(step))
            save_standard(folder / str(step), nnx.to_pure_dict(state))
    if layout == "bucket":
        fsspec.filesystem("memory").put(str(folder), "/averages/run", recursive=True)
        folder = folder_at("memory://averages/run", "--model")
    mean = {
        name: np.stack([drawn(step)[name] for step in (2, 3, 4)]).sum(0) / np.float32(3) for name in llama_tensors()
    }
    state = averaged(folder, "last:3", dtype=dtype).state
    assert same_bits(state, written_as(tmp_path / "mean", mean, dtype))


def test_a_moving_average_begins_with_the_first_step(tmp_path: Path) -> None:
    """0.75 (0.75 a + 0.25 b) + 0.25 c."""
    folder = run_of(tmp_path / "run", 3)
    mean = {name: 0.5625 * x + 0.1875 * drawn(2)[name] + 0.25 * drawn(3)[name] for name, x in drawn(1).items()}
    state = averaged(folder, "ema:0.75").state
    for leaf, expected in zip(
        jax.tree.leaves(state), jax.tree.leaves(written_as(tmp_path / "mean", mean, "float32")), strict=True
    ):
        np.testing.assert_allclose(leaf, expected, rtol=FLOAT32, atol=FLOAT32)


def test_of_many_steps_one_copy_and_one_leaf_lie_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_of(tmp_path / "run", 6)
    alive = list[int]()
    before = sum(array.nbytes for array in jax.live_arrays())

    def put(path: str, host: np.ndarray, **how: Any) -> jax.Array:
        array = put_weight(path, host, **how)
        alive.append(sum(array.nbytes for array in jax.live_arrays()) - before)
        return array

    monkeypatch.setattr(loading, "put_weight", put)
    state = averaged(folder, "last:6").state
    leaves = [leaf.nbytes for leaf in jax.tree.leaves(state)]
    assert len(alive) == 6 * len(leaves)
    assert max(alive) <= sum(leaves) + max(leaves)
    assert max(alive[: len(leaves)]) == sum(leaves), "what was counted"


SPLIT = """
import sys
from pathlib import Path
import numpy as np, jax
from tests.model.checkpoints.test_averages import averaged
folder = Path(sys.argv[1])
one = averaged(folder, "last:3").state
split = averaged(folder, "last:3", sharding="mesh", mesh=(("fsdp", 2), ("model", 2))).state
for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(split), strict=True):
    assert np.array_equal(a, np.asarray(b)[: len(a)])
print(sum(len(leaf.sharding.device_set) == 4 and not leaf.is_fully_replicated for leaf in jax.tree.leaves(split)))
"""


@pytest.mark.slow
def test_on_a_mesh_the_average_is_split_as_weights_are(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", 3)
    done = run("-c", SPLIT, str(folder), devices=4, check=True, cwd=tmp_path)
    assert int(done.stdout) > 4


def remove_at(leaf: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer's max_to_keep, while the n-th leaf is read."""
    paths = list[str]()

    def put(path: str, host: np.ndarray, **how: Any) -> jax.Array:
        paths.append(path)
        if len(paths) == leaf:
            shutil.rmtree(folder)
        return put_weight(path, host, **how)

    monkeypatch.setattr(loading, "put_weight", put)


@pytest.mark.parametrize("leaf", [3, 15, 33])
def test_a_step_that_is_removed_while_it_is_read_or_after_ends_with_its_name(
    leaf: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_of(tmp_path / "run", 3)
    remove_at(leaf, folder / "2", monkeypatch)
    assert "run/2: was removed before it was read" in error_of(lambda: averaged(folder, "last:3"))


@pytest.mark.parametrize("leaf", [0, 15, 33])
def test_of_the_steps_that_the_trainer_removes_meanwhile_the_others_are_averaged(
    leaf: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While steps are scored (leaf 0), and while the average is read."""
    folder = run_of(tmp_path / "run", 3)
    config = RunConfig(model=str(folder), tasks=("none",), average="last:3")
    said = list[str]()
    looks = rounds(config, ModelFiles(folder, folder, None), Lines(said.append), lambda checkpoint: False)
    assert [step.step for step in next(looks).checkpoints] == [1, 2, 3]
    architecture: Any = Architecture(from_hf_config(folder / "1"), None, None, ())  # type: ignore[arg-type]
    placement = Placement.choose(config.sharding, config.mesh)
    if leaf:
        remove_at(leaf, folder / "2", monkeypatch)
        assert not [*loading.loaded(architecture, config, next(looks), placement)]
    else:
        shutil.rmtree(folder / "2")
    look = next(looks)
    assert said[-1] == "--average=last:3: steps 2 have been removed, and are left out"
    [read] = loading.loaded(architecture, config, look, placement)
    assert read.checkpoint.averaged_steps == [1, 3]
    mean = {name: (x + drawn(3)[name]) / np.float32(2) for name, x in drawn(1).items()}
    assert same_bits(read.state, written_as(tmp_path / "mean", mean, "float32"))
    assert next(looks, None) is None


def test_an_average_of_which_one_step_is_left_is_refused(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", 3)
    config = RunConfig(model=str(folder), tasks=("none",), average="ema:0.5")
    looks = rounds(config, ModelFiles(folder, folder, None), SILENT, lambda checkpoint: False)
    next(looks)
    for step in (1, 2):
        shutil.rmtree(folder / str(step))
    assert "--average=ema:0.5: steps 1, 2 have been removed before they were read, expected two" in error_of(
        lambda: next(looks)
    )


def mamba_tensors() -> Tensors:
    """Of a Mamba of one layer: those that transformers 5 saves."""
    rng = np.random.default_rng(3)
    shapes = {
        "embeddings.weight": (97, 12), "norm_f.weight": (12,), "layers.0.norm.weight": (12,),
        "layers.0.mixer.in_proj.weight": (48, 12), "layers.0.mixer.conv1d.weight": (24, 1, 4),
        "layers.0.mixer.conv1d.bias": (24,), "layers.0.mixer.x_proj.weight": (11, 24),
        "layers.0.mixer.dt_proj.weight": (24, 3), "layers.0.mixer.dt_proj.bias": (24,),
        "layers.0.mixer.A_log": (24, 4), "layers.0.mixer.D": (24,), "layers.0.mixer.out_proj.weight": (12, 24),
    }  # fmt: skip
    return {f"backbone.{name}": rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


MAMBA = {
    "model_type": "mamba", "architectures": ["MambaForCausalLM"], "vocab_size": 97, "hidden_size": 12, "state_size": 4,
    "num_hidden_layers": 1, "conv_kernel": 4, "intermediate_size": 24, "time_step_rank": 3, "expand": 2,
    "use_conv_bias": True, "use_bias": False, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["levanter", "easydel", "mamba"])
@pytest.mark.parametrize("rule", ["last:2", "ema:0.75"])
def test_averages_of_other_trainers_and_families(trainer: str, rule: str, tmp_path: Path) -> None:
    """To the bit that of the same tensors in Hugging Face's format."""
    fields, base = (MAMBA, mamba_tensors()) if trainer == "mamba" else (LLAMA, llama_tensors())
    of_steps = [base, {name: x + np.float32(0.25) * abs(x) for name, x in base.items()}]
    folder, plain = tmp_path / "run", tmp_path / "plain"
    plain.mkdir()
    for step, tensors in enumerate(of_steps, 1):
        write_folder(plain / str(step), fields, tensors)
        target = folder / str(step)
        target.mkdir(parents=True)
        if trainer == "levanter":
            write_levanter(target, from_hf_config(plain / "1"), tensors)  # type: ignore[arg-type]
        elif trainer == "easydel":
            write_easydel(target, tensors)
        else:
            write_folder(target, fields, tensors)
    write_folder(tmp_path / "config", fields, base)
    shutil.copy(tmp_path / "config" / "config.json", folder)
    kept, added = (0.75, 0.25) if rule.startswith("ema") else (0.5, 0.5)
    mean = {name: x * np.float32(kept) + of_steps[1][name] * np.float32(added) for name, x in of_steps[0].items()}
    config = RunConfig(model=str(folder), tasks=("none",), average=rule)
    looks = rounds(config, ModelFiles(folder, folder, None), SILENT, lambda checkpoint: False)
    [checkpoint] = next(look.checkpoints for look in looks if look.checkpoints[0].average)
    architecture: Any = Architecture(from_hf_config(tmp_path / "config"), None, None, ())  # type: ignore[arg-type]
    state = load(architecture, config, checkpoint, Placement.choose(config.sharding, config.mesh)).state
    expected = load_hf(write_folder(tmp_path / "mean", fields, mean), jnp.dtype("float32")).state
    for leaf, of_mean in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, of_mean, rtol=FLOAT32, atol=FLOAT32)


def test_a_step_that_is_saved_again_begins_the_average_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_of(tmp_path / "run", 2)
    paths = list[str]()

    def put(path: str, host: np.ndarray, **how: Any) -> jax.Array:
        paths.append(path)
        if len(paths) == 15:
            write_folder(folder / "1", LLAMA, drawn(7))
        return put_weight(path, host, **how)

    monkeypatch.setattr(loading, "put_weight", put)
    read = averaged(folder, "last:2")
    mean = {name: (x + drawn(7)[name]) / np.float32(2) for name, x in drawn(2).items()}
    assert same_bits(read.state, written_as(tmp_path / "mean", mean, "float32"))
    written = [Checkpoint.at(step, folder / str(step)) for step in (1, 2)]
    assert read.checkpoint.averaged[0].fingerprint == written[0].fingerprint


@pytest.mark.parametrize("steps", [None, "latest"])
def test_final_weights_beside_the_steps_are_no_step(tmp_path: Path, steps: str | None) -> None:
    """As Hugging Face's trainer leaves them, in the folder of its checkpoints."""
    folder = run_of(tmp_path / "run", 3)
    alone = averaged(folder, "last:2").state
    write_folder(folder, LLAMA, drawn(9))
    assert same_bits(averaged(folder, "last:2", steps=steps).state, alone)


def test_what_has_no_average_is_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", 3)
    assert "run has steps 1, 2, 3, expected 4 or more of a training run" in error_of(lambda: averaged(folder, "last:4"))
    one = error_of(lambda: averaged(write_folder(tmp_path / "alone", LLAMA), "ema:0.5"))
    assert "alone has steps none, expected 2 or more of a training run" in one
    for rule in ("last:1", "last:0", "last:x", "last", "ema:0", "ema:1", "ema:1.5", "ema:0.0", "ema:nan", "mean:2", ""):
        sentence = error_of(lambda rule=rule: averaged(folder, rule))
        assert f"--average is {rule!r}, expected last:5" in sentence
    other = {**LLAMA, "num_hidden_layers": 1}
    layer = {name: x for name, x in drawn(3).items() if "layers.1" not in name}
    write_folder(folder / "3", other, layer)
    assert "3/config.json: another model than that of the run's other steps" in error_of(
        lambda: averaged(folder, "last:2")
    )
    quantized = {name: x.astype(np.int8) for name, x in drawn(3).items()}
    write_folder(folder / "3", LLAMA, quantized)
    assert "holds I8, expected one of F64" in error_of(lambda: averaged(folder, "last:2"))


def test_integers_of_a_users_own_model_have_no_average(tmp_path: Path) -> None:
    """Floats alone have one; random keys stay as they are."""
    for step in (1, 2):
        save_standard(
            tmp_path / "run" / str(step), {"w": jnp.full((3,), step, jnp.bfloat16), "n": jnp.arange(step, step + 3)}
        )
    shapes = {"w": jax.ShapeDtypeStruct((3,), jnp.bfloat16), "n": jax.ShapeDtypeStruct((3,), jnp.int32)}
    config = RunConfig(model="mine:make", tasks=("none",), checkpoint=str(tmp_path / "run"), average="last:2")

    def read(params: Any) -> Tree:
        mine = OwnModel(params=params, vocab_size=8, logits=lambda *_: None)  # type: ignore[arg-type,call-arg]
        files = ModelFiles(None, tmp_path / "run", None)
        steps = tuple(checkpoints_of(config, files))
        return load(
            Architecture(mine, mine, None, ()),  # type: ignore[arg-type]
            config, Checkpoint.average_of("last:2", steps), Placement.default(),
        ).state  # fmt: skip

    assert "--average: the weights n hold int32, expected floats" in error_of(lambda: read(shapes))
    for step in (1, 2):
        shutil.rmtree(tmp_path / "run" / str(step))
        save_standard(tmp_path / "run" / str(step), {"w": jnp.full((3,), step, jnp.bfloat16)})
    mean = read({"w": shapes["w"]})["w"]
    assert mean.dtype == jnp.bfloat16
    assert mean.tolist() == [1.5] * 3
