"""Every bad input of the checkpoint reader: one sentence that names the file, what was expected and what to do."""

import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

from miron_jax.model.hf_reader import load_hf, resolve_model
from tests.support.hf_folders import GPT2, LLAMA, error_of, llama_tensors, write_folder, write_shards

pytestmark = pytest.mark.slow


def test_a_whole_folder_loads(tmp_path: Path) -> None:
    tensors = llama_tensors()
    config, state = load_hf(write_folder(tmp_path, LLAMA, tensors), jnp.float32)
    flat = nnx.to_pure_dict(state)
    assert config.num_kv_heads == 1
    down = [tensors[f"model.layers.{i}.mlp.down_proj.weight"].T for i in range(2)]
    np.testing.assert_array_equal(flat["layers"]["mlp"]["down"]["kernel_IO"], np.stack(down))


@pytest.mark.parametrize("stored", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_weights_are_rounded_once_to_the_run_dtype_and_norms_stay_float32(tmp_path: Path, stored: Any) -> None:
    tensors = {name: tensor.astype(stored) for name, tensor in llama_tensors().items()}
    _, state = load_hf(write_folder(tmp_path, LLAMA, tensors), jnp.bfloat16)
    flat = nnx.to_pure_dict(state)
    assert flat["final_norm"]["weight"].dtype == jnp.float32
    expected = tensors["model.embed_tokens.weight"].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(flat["embedding_VD"], expected)


def test_each_leaf_goes_where_it_is_told(tmp_path: Path) -> None:
    seen: list[str] = []

    def put(path: str, host: np.ndarray) -> jax.Array:
        seen.append(path)
        return jax.device_put(host)

    load_hf(write_folder(tmp_path, LLAMA), jnp.float32, put)
    assert "layers/attn/q/kernel_IO" in seen
    assert "embedding_VD" in seen


def test_buffers_and_a_second_copy_of_the_tied_embedding_are_left_out(tmp_path: Path) -> None:
    tensors = llama_tensors()
    _, plain = load_hf(write_folder(tmp_path / "plain", LLAMA, tensors), jnp.float32)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    _, state = load_hf(write_folder(tmp_path / "more", LLAMA, tensors), jnp.float32)
    jax.tree.map(np.testing.assert_array_equal, nnx.to_pure_dict(state), nnx.to_pure_dict(plain))


def test_a_tied_config_with_another_head_has_no_one_meaning(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    message = error_of(lambda: load_hf(write_folder(tmp_path, LLAMA, tensors), jnp.float32))
    assert "lm_head.weight differs from model.embed_tokens.weight" in message


def test_untied_without_a_head(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, LLAMA | {"tie_word_embeddings": False})
    assert "no tensor lm_head.weight" in error_of(lambda: load_hf(folder, jnp.float32))


def test_no_safetensors_and_pickles_are_never_read(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA)
    (tmp_path / "model.safetensors").unlink()
    assert "no model.safetensors" in error_of(lambda: load_hf(tmp_path, jnp.float32))
    (tmp_path / "pytorch_model.bin").write_bytes(b"never opened")
    message = error_of(lambda: load_hf(tmp_path, jnp.float32))
    assert "pytorch_model.bin present, but pickles are never read" in message


def test_sharded_folder_loads_and_a_missing_shard_is_named(tmp_path: Path) -> None:
    load_hf(write_shards(tmp_path), jnp.float32)
    (tmp_path / "b.safetensors").unlink()
    assert "b.safetensors: no such file" in error_of(lambda: load_hf(tmp_path, jnp.float32))


def test_a_shard_without_a_tensor_that_the_index_places_there(tmp_path: Path) -> None:
    write_shards(tmp_path)
    shutil.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert "b.safetensors: no tensor model." in error_of(lambda: load_hf(tmp_path, jnp.float32))


@pytest.mark.parametrize(
    "text", ["{", "{}", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"weight_map": 3}']
)
def test_malformed_index(tmp_path: Path, text: str) -> None:
    write_shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(text)
    assert "expected a JSON object with weight_map" in error_of(lambda: load_hf(tmp_path, jnp.float32))


def test_an_index_that_points_out_of_its_folder(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../a.safetensors"}}')
    assert "no such file" in error_of(lambda: load_hf(tmp_path, jnp.float32))


@pytest.mark.parametrize("keep", [0, 5, 200, -7])
def test_truncated_shard(tmp_path: Path, keep: int) -> None:
    path = write_folder(tmp_path, LLAMA) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    message = error_of(lambda: load_hf(tmp_path, jnp.float32))
    assert str(path) in message
    assert "download it again" in message


def test_git_lfs_pointer(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA)
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert "git lfs pull" in error_of(lambda: load_hf(tmp_path, jnp.float32))


def test_missing_tensor_lists_the_closest(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors["model.layers.1.mlp.upproj.weight"] = tensors.pop("model.layers.1.mlp.up_proj.weight")
    message = error_of(lambda: load_hf(write_folder(tmp_path, LLAMA, tensors), jnp.float32))
    assert "no tensor model.layers.1.mlp.up_proj.weight" in message
    assert "closest: model.layers.1.mlp.upproj.weight" in message


@pytest.mark.parametrize("name", ["model.layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias", "extra"])
def test_leftover_tensors_would_change_the_result(tmp_path: Path, name: str) -> None:
    tensors = llama_tensors() | {name: np.zeros(3, np.float32)}
    message = error_of(lambda: load_hf(write_folder(tmp_path, LLAMA, tensors), jnp.float32))
    assert f"no place for: {name}" in message


def test_shape_that_disagrees_with_the_config(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, LLAMA | {"intermediate_size": 15})
    message = error_of(lambda: load_hf(folder, jnp.float32))
    assert "down_proj.weight has shape [12, 14], config.json expects [12, 15]" in message


def test_integer_weights_are_not_weights(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors["model.norm.weight"] = np.ones(12, np.int8)
    message = error_of(lambda: load_hf(write_folder(tmp_path, LLAMA, tensors), jnp.float32))
    assert "model.norm.weight holds I8" in message


def test_another_familys_weights(tmp_path: Path) -> None:
    message = error_of(lambda: load_hf(write_folder(tmp_path, GPT2), jnp.float32))
    assert "wte.weight" in message


def test_resolve_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_model(str(tmp_path)) == tmp_path
    (tmp_path / "model.safetensors").touch()
    assert "is a file" in error_of(lambda: resolve_model(str(tmp_path / "model.safetensors")))
    assert "no such folder" in error_of(lambda: resolve_model(str(tmp_path / "absent")))
    assert "no such folder" in error_of(lambda: resolve_model("a/b/c"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    message = error_of(lambda: resolve_model("nobody/no-such-model"))
    assert "--model=nobody/no-such-model" in message
    assert "out of reach" in message
