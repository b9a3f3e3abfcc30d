"""Checkpoints of levanter and EasyDeL: made here by their published rules from a model of transformers, and read like it."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.array_serialization import serialization
from safetensors.numpy import load_file

from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.checkpoints.training_run import load_step, training_steps
from miron_jax.model.checkpoints.unlike_trainers import unlike_trainer
from miron_jax.model.config import ModelConfig
from miron_jax.runtime.progress import Lines
from tests.support.hf_folders import LLAMA, Tensors, error_of, llama_tensors, write_folder
from tests.support.tiny_families import MODELS
from tests.support.torch_folders import save_tiny

pytestmark = pytest.mark.slow

SAVED_BY_LEVANTER = {
    "llama-gqa-untied", "llama-tied-biases", "mistral", "qwen3", "olmo2", "gemma2", "gemma3", "gpt2",
}  # fmt: skip
SAVED_BY_EASYDEL = {"llama-tied-biases", "mistral", "qwen3"}
PADDING = 3  # rows that levanter adds to a vocabulary
Tree = dict[str, Any]  # path -> array


def by_heads(config: ModelConfig, name: str, x: np.ndarray) -> np.ndarray:
    """A tensor with levanter's axes: layers/attention.py, models/olmo.py and models/gpt2.py."""
    kv, head = config.num_kv_heads, config.head_dim
    groups = config.num_heads // kv
    module = name.split(".")[-2]
    if module == "c_attn":
        return x.reshape(*x.shape[:-1], 3, config.num_heads, head)
    if module == "c_proj" and ".attn." in name and x.ndim == 2:
        return x.reshape(config.num_heads, head, -1)
    if module == "o_proj" and x.ndim == 2:
        return x.reshape(-1, config.num_heads, head)
    if module in ("q_proj", "k_proj", "v_proj") or (module in ("q_norm", "k_norm") and config.qk_norm == "all_heads"):
        heads = (kv, groups, head) if module.startswith("q") else (kv, head)
        return x.reshape(*heads, *x.shape[1:])
    return x


def levanter_tree(config: ModelConfig, tensors: Mapping[str, np.ndarray], stacked: bool = True) -> Tree:
    tree, layers = {}, {}
    for name, x in tensors.items():
        name = name.removeprefix("model.").removeprefix("transformer.")
        top, *rest = name.split(".")
        if top in ("embed_tokens", "wte", "lm_head"):
            path = "lm_head/weight" if top == "lm_head" else "embeddings/token_embeddings/weight"
            tree[path] = np.concatenate([x, np.ones((PADDING, x.shape[1]), x.dtype)])
        elif top == "wpe":
            tree["embeddings/position_embeddings/weight"] = x
        elif top in ("layers", "h"):
            part = f"transformer/{'layers' if top == 'layers' else 'blocks'}", "/".join(rest[1:])
            layers.setdefault(part, []).append((int(rest[0]), by_heads(config, name, x)))
        else:
            tree["transformer/" + name.replace(".", "/")] = x
    for (block, path), of_layers in layers.items():
        of_layers.sort(key=lambda layer: layer[0])
        if stacked:
            tree[f"{block}/stacked/{path}"] = np.stack([x for _, x in of_layers])
        else:
            tree |= {f"{block}/blocks/{i}/{path}": x for i, x in of_layers}
    return tree


def easydel_tree(tensors: Mapping[str, np.ndarray]) -> Tree:
    tree = {}
    for name, x in tensors.items():
        *above, last = name.split(".")
        if last == "weight":
            last = "embedding" if "embed_tokens" in above else "kernel"
        tree["/".join([*above, last])] = x.T if last == "kernel" else x
    return tree


def write(folder: Path, tree: Tree, database: bool) -> None:
    """As these libraries do, with the checkpoint manager of jax."""
    manager = serialization.GlobalAsyncCheckpointManager()
    arrays = [jnp.asarray(x) for x in tree.values()]
    if database:
        base = {"driver": "file", "path": str(folder)}
        stores = [{"driver": "ocdbt", "base": base, "path": path} for path in tree]
        manager.serialize(arrays, [{"driver": "zarr3", "kvstore": store} for store in stores])
    else:
        manager.serialize_with_paths(arrays, [str(folder / path) for path in tree])
    manager.wait_until_finished()


def write_levanter(
    folder: Path, config: ModelConfig, tensors: Tensors, database: bool = True, stacked: bool = True
) -> Path:
    """A step of levanter's trainer, with its optimizer's state and an average of the weights."""
    tree = levanter_tree(config, tensors, stacked)
    state = {f"model/{path}": x for path, x in tree.items()}
    state |= {f"model_averaging/model/{path}": x + np.ones_like(x) for path, x in tree.items()}
    state |= {f"opt_state/inner_state/0/mu/{path}": x for path, x in tree.items()}
    state |= {"step": np.int32(7), "training_key": np.arange(2, dtype=np.uint32)}
    write(folder, state, database)
    (folder / "metadata.json").write_text(json.dumps({"step": 7, "is_temporary": False}))
    return folder


def write_easydel(folder: Path, tensors: Tensors) -> Path:
    """What EasyDeLState.save_state writes, without the optimizer."""
    tree = {f"model/{path}": x for path, x in easydel_tree(tensors).items()}
    write(folder, tree, database=False)
    entries = [{"path": path, "shape": list(x.shape), "dtype": str(x.dtype)} for path, x in tree.items()]
    index = {"format": "tensorstore", "version": "0.0.99", "prefixes": {"model": entries}}
    (folder / "tensorstore_index.json").write_text(json.dumps(index))
    (folder / "model_structure.json").write_text("{}")
    return folder


def assert_equal(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step of levanter of the small Llama of hf_folders."""
    run = tmp_path_factory.mktemp("levanter")
    hf = write_folder(run / "hf", LLAMA)
    return write_levanter(run / "step-7", from_hf_config(hf), llama_tensors())


@pytest.fixture(scope="module")
def llama(step: Path) -> ModelConfig:
    return from_hf_config(step.parent / "hf")


@pytest.mark.parametrize("name", sorted(SAVED_BY_LEVANTER))
def test_levanters_step_is_the_model(tmp_path: Path, name: str) -> None:
    save_tiny(tmp_path / "hf", *MODELS[name])
    config, state = load_hf(tmp_path / "hf", jnp.float32)
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    forms = ((True, True), (False, True), (True, False))
    for database, stacked in forms if name in ("llama-gqa-untied", "gpt2") else forms[:1]:
        folder = write_levanter(tmp_path / f"{database}-{stacked}", config, tensors, database, stacked)
        assert_equal(load_step(folder, config, jnp.float32), state)


def test_levanters_head_size_is_that_of_its_arrays(tmp_path: Path) -> None:
    """Gemma's default of 256 stands in for a head_dim that levanter's config does not give."""
    save_tiny(tmp_path / "hf", *MODELS["gemma3"])
    path = tmp_path / "hf" / "config.json"
    fields = json.loads(path.read_text())
    config = from_hf_config(tmp_path / "hf")
    step = write_levanter(tmp_path / "7", config, load_file(tmp_path / "hf" / "model.safetensors"))
    assert fields.pop("head_dim") == 10
    path.write_text(json.dumps(fields))
    message = error_of(lambda: load_step(step, from_hf_config(tmp_path / "hf"), jnp.float32))
    assert "have 10 numbers, config.json says 256" in message
    assert 'write "head_dim": 10 into config.json' in message


@pytest.mark.parametrize("name", sorted(SAVED_BY_EASYDEL))
def test_easydels_folder_is_the_model(tmp_path: Path, name: str) -> None:
    save_tiny(tmp_path / "hf", *MODELS[name])
    config, state = load_hf(tmp_path / "hf", jnp.bfloat16)
    folder = write_easydel(tmp_path / "saved", load_file(tmp_path / "hf" / "model.safetensors"))
    assert_equal(load_step(folder, config, jnp.bfloat16), state)


def test_other_forms_of_the_same_step(tmp_path: Path, llama: ModelConfig, step: Path) -> None:
    """An average beside the weights; the model alone; a head that a tied model does not use; bfloat16."""
    plain = load_step(step, llama, jnp.float32)
    average = load_step(step, llama, jnp.float32, params_key="model_averaging/model")
    assert_equal(average, jax.tree.map(lambda x: x + 1, plain))
    write(tmp_path / "model", levanter_tree(llama, llama_tensors()), database=True)
    (tmp_path / "model" / "metadata.json").write_text('{"step": 1}')
    assert_equal(load_step(tmp_path / "model", llama, jnp.float32), plain)
    with_head = write_easydel(tmp_path / "head", llama_tensors() | {"lm_head.weight": np.ones((29, 12), np.float32)})
    assert_equal(load_step(with_head, llama, jnp.float32), plain)
    tensors = {name: x.astype(jnp.bfloat16) for name, x in llama_tensors().items()}
    expected = load_hf(write_folder(tmp_path / "hf", LLAMA, tensors), jnp.float32).state
    for folder in (write_levanter(tmp_path / "a", llama, tensors), write_easydel(tmp_path / "b", tensors)):
        assert_equal(load_step(folder, llama, jnp.float32), expected)


def test_a_run_of_either_library_has_steps(step: Path, tmp_path: Path) -> None:
    assert training_steps(step.parent) == [(7, step)]
    write_easydel(tmp_path / "run-3", llama_tensors())
    unfinished = write_easydel(tmp_path / "run-4", llama_tensors())
    (unfinished / "model_structure.json").unlink()  # the index is there before the arrays are
    shutil.copytree(step, tmp_path / "step-5")
    (tmp_path / "step-5" / "metadata.json").write_text('{"step": 5, "is_temporary": true}')
    write_folder(tmp_path / "run-6", LLAMA)  # not a step: a model by this name
    assert [number for number, _ in training_steps(tmp_path)] == [3]


def test_easydels_config_says_how_it_computes(tmp_path: Path) -> None:
    plain = from_hf_config(write_folder(tmp_path / "plain", LLAMA))
    more = {
        "sharding_axis_dims": [1, -1, 1, 1, 1], "attn_mechanism": "vanilla", "blocksize_q": 512, "fcm_max_ratio": -1,
        "layer_types": ["full_attention"] * 2, "number_rep_kv": 1, "pallas_m_block_size": 128, "backend": "cpu",
    }  # fmt: skip
    assert from_hf_config(write_folder(tmp_path / "easydel", LLAMA | more)) == plain
    windows = write_folder(tmp_path / "windows", LLAMA | {"layer_types": ["full_attention", "sliding_attention"]})
    assert "layer_types" in error_of(lambda: from_hf_config(windows))


def test_what_a_trainer_computes_otherwise_than_config_json_is_said(tmp_path: Path, llama: ModelConfig) -> None:
    """Scores follow config.json.  Each difference is the library's own (docs/checkpoints.md), and goes with its remedy."""
    scaled = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    llama3 = from_hf_config(write_folder(tmp_path / "hf", LLAMA | {"rope_scaling": {"rope_type": "llama3", **scaled}}))
    tunix = from_hf_config(write_folder(tmp_path / "tunix", LLAMA | {"rope_theta": 1e6}))
    local = replace(llama, family="mistral", layer_windows=(5, None))
    unreached = replace(local, layer_windows=(local.trained_length, None))
    capped = replace(llama, family="gemma2", final_softcap=30.0)
    cases = (
        ("levanter", local, "no windows, where config.json has one of 5 tokens"), ("levanter", unreached, ""),
        ("levanter", replace(local, family="llama"), ""), ("levanter", llama3, ""), ("levanter", llama, ""),
        ("levanter", capped, "no final soft cap, where config.json has 30"),
        ("levanter", replace(capped, final_softcap=None), ""),
        ("EasyDeL", llama3, "beyond original_max_position_embeddings"), ("EasyDeL", llama, ""),
        ("EasyDeL", local, "one token more than its own sliding_window"), ("EasyDeL", unreached, ""),
        ("tunix", llama, "rotates by rope_theta 1000000"), ("tunix", tunix, ""),
        ("tunix", replace(llama, family="qwen2"), ""), ("gemma", llama, ""),
    )  # fmt: skip
    for trainer, config, words in cases:
        others = unlike_trainer(trainer, config)
        assert len(others) == bool(words), (trainer, config.family, others)
        assert words in "".join(others)
    lines: list[str] = []
    folder = write_easydel(tmp_path / "saved", llama_tensors())
    for config in (llama, llama3):
        load_step(folder, config, jnp.float32, progress=Lines(lines.append))
    [line] = lines
    assert line.startswith(
        f"{folder}: EasyDeL turns tokens beyond original_max_position_embeddings as the last before; "
    )


def test_every_refusal_is_a_sentence(step: Path, tmp_path: Path, llama: ModelConfig) -> None:
    def refused(folder: Path, config: ModelConfig = llama, **more: Any) -> str:
        return error_of(lambda: load_step(folder, config, jnp.float32, **more))

    assert "holds no arrays below it, only model, model_averaging" in refused(step, params_key="ema")
    assert "--param_map names the arrays of an Orbax" in refused(step, param_map="gemma")
    assert "levanter of a mixtral model is not read" in refused(step, replace(llama, family="mixtral"))
    tensors = llama_tensors()
    norm = tensors.pop("model.norm.weight")
    assert "no tensor norm.weight" in refused(write_levanter(tmp_path / "lacks", llama, tensors))
    more = tensors | {"model.norm.weight": norm, "model.layers.0.gate.weight": norm}
    assert "layers.0.gate.weight" in refused(write_levanter(tmp_path / "more", llama, more, stacked=False))
    whole = tensors | {"model.norm.weight": np.ones(12, np.int32)}
    assert "holds int32, expected one of" in refused(write_easydel(tmp_path / "whole", whole))
    short = llama_tensors() | {"model.layers.0.mlp.up_proj.weight": np.ones((13, 12), np.float32)}
    assert "has shape [13, 12], config.json expects [14, 12]" in refused(write_easydel(tmp_path / "short", short))


@pytest.mark.parametrize("library", ["levanter", "levanter, layers apart", "EasyDeL"])
def test_a_replicated_tree_is_to_be_unreplicated(tmp_path: Path, llama: ModelConfig, library: str) -> None:
    """flax.jax_utils.replicate puts an axis of devices before each array."""
    tensors = llama_tensors()
    tree = easydel_tree(tensors)
    if library != "EasyDeL":
        tree = levanter_tree(llama, tensors, stacked=library == "levanter")
    write(tmp_path, {f"model/{path}": np.stack([x, x]) for path, x in tree.items()}, database=library != "EasyDeL")
    for name in ("tensorstore_index.json", "model_structure.json") if library == "EasyDeL" else ("metadata.json",):
        (tmp_path / name).write_text("{}")
    message = error_of(lambda: load_step(tmp_path, llama, jnp.float32))
    assert "every array has a first axis of 2, as flax.jax_utils.replicate" in message
    assert "flax.jax_utils.unreplicate" in message


@pytest.mark.parametrize("damage", ["manifest", "data", "shape", "chunks", "missing"])
def test_a_damaged_step_is_refused(tmp_path: Path, llama: ModelConfig, damage: str) -> None:
    database = damage in ("manifest", "data")
    folder = write_levanter(tmp_path / "step-1", llama, llama_tensors(), database=database)
    if damage == "manifest":
        (folder / "manifest.ocdbt").write_bytes(b"\x0c\xdb")
    elif damage == "data":
        for path in (folder / "d").iterdir():  # any one of them may be left over from an earlier write
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "missing":  # tensorstore reads zeros
        next((folder / "model/transformer/layers/stacked/mlp/up_proj/weight").glob("0*")).unlink()
    else:
        path = folder / "model/transformer/norm/weight/.zarray"
        fields = json.loads(path.read_text())
        fields |= {"shape": "twelve"} if damage == "shape" else {"chunks": [1 << 60]}
        path.write_text(json.dumps(fields))
    message = error_of(lambda: load_step(folder, llama, jnp.float32))
    assert "step-1" in message
    assert "again" in message
