"""Every bad input of the checkpoint reader: one sentence that names the file, what was expected and what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

from miron_jax.model.checkpoints.hf_reader import load_hf, resolve_model
from tests.support.hf_folders import GPT2, LLAMA, Tensors, error_of, llama_tensors, write_folder, write_shards


def test_a_whole_folder_loads_leaf_by_leaf(tmp_path: Path) -> None:
    tensors, paths = llama_tensors(), list[str]()

    def put(path: str, host: np.ndarray) -> jax.Array:
        paths.append(path)
        return jax.device_put(host)

    config, state = load_hf(write_folder(tmp_path, LLAMA, tensors), jnp.float32, put)
    assert {"layers/attn/q/kernel_IO", "embedding_VD"} <= set(paths)
    assert config.num_kv_heads == 1
    down = [tensors[f"model.layers.{i}.mlp.down_proj.weight"].T for i in range(2)]
    np.testing.assert_array_equal(nnx.to_pure_dict(state)["layers"]["mlp"]["down"]["kernel_IO"], np.stack(down))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_cpu_takes_the_leaves_over_without_a_copy(tmp_path: Path, dtype: Any) -> None:
    def put(path: str, host: np.ndarray) -> jax.Array:
        array = jax.device_put(host)
        assert array.unsafe_buffer_pointer() == host.ctypes.data, path
        return array

    load_hf(write_folder(tmp_path, LLAMA), dtype, put)


@pytest.mark.parametrize("stored", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_weights_are_rounded_once_to_the_run_dtype_and_norms_stay_float32(tmp_path: Path, stored: Any) -> None:
    tensors = {name: tensor.astype(stored) for name, tensor in llama_tensors().items()}
    _, state = load_hf(write_folder(tmp_path, LLAMA, tensors), jnp.bfloat16)
    flat = nnx.to_pure_dict(state)
    assert flat["final_norm"]["weight"].dtype == jnp.float32
    expected = tensors["model.embed_tokens.weight"].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(flat["embedding_VD"], expected)


def test_buffers_and_a_second_copy_of_the_tied_embedding_are_left_out(tmp_path: Path) -> None:
    tensors = llama_tensors()
    _, plain = load_hf(write_folder(tmp_path / "plain", LLAMA, tensors), jnp.float32)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    _, state = load_hf(write_folder(tmp_path / "more", LLAMA, tensors), jnp.float32)
    jax.tree.map(np.testing.assert_array_equal, nnx.to_pure_dict(state), nnx.to_pure_dict(plain))


def test_a_tensor_may_be_in_any_shard(tmp_path: Path) -> None:
    shards = load_hf(write_shards(tmp_path / "shards"), jnp.float32).state
    whole = load_hf(write_folder(tmp_path / "whole", LLAMA), jnp.float32).state
    jax.tree.map(np.testing.assert_array_equal, shards, whole)


def misnamed(tensors: Tensors) -> None:
    tensors["model.layers.1.mlp.upproj.weight"] = tensors.pop("model.layers.1.mlp.up_proj.weight")


def with_another_head(tensors: Tensors) -> None:
    """Another in its last row alone: a tied config with two heads has no one meaning."""
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    tensors["lm_head.weight"][-1, -1] += 1


def with_extra(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: np.zeros(3, np.float32)})


TENSORS: list[tuple[Callable[[Tensors], None], str]] = [
    (with_another_head, "lm_head.weight differs from model.embed_tokens.weight"),
    (misnamed, "no tensor model.layers.1.mlp.up_proj.weight"),
    (misnamed, "closest: model.layers.1.mlp.upproj.weight"),
    *(
        (with_extra(name), f"no place for: {name}")  # leftovers would change the result
        for name in ("model.layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias", "extra")
    ),
    (lambda tensors: tensors.update({"model.norm.weight": np.ones(12, np.int8)}), "model.norm.weight holds I8"),
]


@pytest.mark.parametrize(("change", "part"), TENSORS, ids=[part for _, part in TENSORS])
def test_tensors_that_are_refused(
    tmp_path: Path, change: Callable[[Tensors], None], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miron_jax.model.checkpoints.hf_reader.STRIP", 8)  # rows that are compared at a time
    tensors = llama_tensors()
    change(tensors)
    assert part in error_of(lambda: load_hf(write_folder(tmp_path, LLAMA, tensors), jnp.float32))


def test_tensors_of_another_config(tmp_path: Path) -> None:
    wide = write_folder(tmp_path, LLAMA | {"intermediate_size": 15})
    part = "down_proj.weight has shape [12, 14], config.json expects [12, 15]"
    assert part in error_of(lambda: load_hf(wide, jnp.float32))
    assert "wte.weight" in error_of(lambda: load_hf(write_folder(tmp_path, GPT2), jnp.float32))


def written(name: str, content: str | bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def cut(keep: int) -> Callable[[Path], object]:
    path = "model.safetensors"
    return lambda folder: (folder / path).write_bytes((folder / path).read_bytes()[:keep])


def with_header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """A file whose header is changed, and whose tensors stay where they are."""

    def damage(folder: Path) -> None:
        path = folder / "model.safetensors"
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        entries = json.loads(content[8:end])
        change(entries)
        text = json.dumps(entries).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])

    return damage


def with_entry(**fields: Any) -> Callable[[Path], object]:
    return with_header(lambda entries: entries["model.embed_tokens.weight"].update(fields))


def with_pickle_alone(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"never opened")


INDEX = "model.safetensors.index.json"
WHOLE: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors"),
    (with_pickle_alone, "pytorch_model.bin present, but pickles are never read"),
    *((cut(keep), "model.safetensors: truncated or corrupt") for keep in (0, 5, 200, -7)),
    (
        written("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        "git lfs pull",
    ),
    (with_entry(data_offsets=[0, 0]), "has 0 bytes for"),
    (with_entry(data_offsets=[4, 1396]), "and go on at"),  # overlaps the next, and leaves a gap before
    (with_entry(shape=[29, -12]), "model.embed_tokens.weight' is {"),
    (with_entry(shape=[29, 1 << 70]), "bytes for"),
    (with_entry(dtype="Q4"), "holds 'Q4'"),
    (with_header(lambda entries: entries.pop("model.embed_tokens.weight")), "and go on at"),
    (written("model.safetensors", b"\x02\0\0\0\0\0\0\0[]"), "the header is []"),
    (written("model.safetensors", b"\x0f\0\0\0\0\0\0\0" + b'{"a":1,"a":{}} '), "'a' stands twice"),
]
SHARDS: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "b.safetensors").unlink(), "b.safetensors: no such file"),
    (lambda folder: shutil.copy(folder / "a.safetensors", folder / "b.safetensors"), "b.safetensors: no tensor model."),
    *(
        (written(INDEX, text), "expected a JSON object with weight_map")
        for text in ("{", "{}", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"weight_map": 3}')
    ),
    (written(INDEX, '{"weight_map": {"a": "../a.safetensors"}}'), "no such file"),
]


def test_files_that_are_refused(tmp_path: Path) -> None:
    for write, cases in ((lambda folder: write_folder(folder, LLAMA), WHOLE), (write_shards, SHARDS)):
        for i, (damage, part) in enumerate(cases):
            folder = write(tmp_path / f"{len(cases)}-{i}")
            damage(folder)
            assert part in error_of(lambda folder=folder: load_hf(folder, jnp.float32)), (i, part)


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
