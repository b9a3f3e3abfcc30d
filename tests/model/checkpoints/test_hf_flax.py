"""Weights in Flax's msgpack files, whole and sharded."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax.serialization import msgpack_serialize
from flax.traverse_util import flatten_dict, unflatten_dict

from miron_jax.model.checkpoints.hf_reader import load_hf, resolve_model
from tests.support.hf_folders import GPT2, LLAMA, Tensors, error_of, llama_tensors, write_folder


def flax_tree(tensors: Tensors, norm: str = "weight") -> dict[str, Any]:
    """The tree of transformers 4's Flax classes for torch's tensors; `norm` is what the family calls a norm's weight."""
    flat = {}
    for name, tensor in tensors.items():
        above, last = name.replace(".", "/").rsplit("/", 1)
        if last == "weight" and tensor.ndim == 2:
            is_table = above.rsplit("/")[-1] in ("embed_tokens", "wte", "wpe")
            flat[f"{above}/embedding" if is_table else f"{above}/kernel"] = tensor if is_table else tensor.T
        else:
            flat[f"{above}/{norm if last == 'weight' else last}"] = tensor
    return unflatten_dict(flat, sep="/")


def write_flax(folder: Path, tensors: Tensors, config: Any = LLAMA, norm: str = "weight") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "flax_model.msgpack").write_bytes(msgpack_serialize(flax_tree(tensors, norm)))
    return folder


def test_flax_msgpack_loads_the_same(tmp_path: Path) -> None:
    """In bfloat16, which msgpack holds as raw bytes; the test of shards has float32."""
    tensors = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in llama_tensors().items()}
    plain = load_hf(write_folder(tmp_path / "torch", LLAMA, tensors), jnp.float32)
    flax = load_hf(write_flax(tmp_path / "flax", tensors), jnp.float32)
    assert plain.config == flax.config
    jax.tree.map(np.testing.assert_array_equal, plain.state, flax.state)


def test_weights_of_several_devices_are_refused(tmp_path: Path) -> None:
    folder = write_flax(tmp_path / "flax", llama_tensors())
    tree = jax.tree.map(lambda x: np.stack([x] * 4), flax_tree(llama_tensors()))
    (folder / "flax_model.msgpack").write_bytes(msgpack_serialize(tree))
    sentence = error_of(lambda: load_hf(folder, jnp.float32))
    assert "flax_model.msgpack: every array has a first axis of 4, as flax.jax_utils.replicate" in sentence


def test_gpt2s_flax_kernels_are_the_other_way_round(tmp_path: Path) -> None:
    """Torch's Conv1D keeps (in, out), Flax's (out, in)."""
    rng = np.random.default_rng(1)
    shapes = {"wte.weight": (29, 12), "wpe.weight": (32, 12), "ln_f.weight": (12,), "ln_f.bias": (12,)}
    widths = {"attn.c_attn": (12, 36), "attn.c_proj": (12, 12), "mlp.c_fc": (12, 48), "mlp.c_proj": (48, 12)}
    for layer, width in widths.items():
        shapes |= {f"h.0.{layer}.weight": width, f"h.0.{layer}.bias": width[1:]}
    shapes |= {f"h.0.ln_{i}.{part}": (12,) for i in (1, 2) for part in ("weight", "bias")}
    tensors = {f"transformer.{name}": rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    plain = load_hf(write_folder(tmp_path / "torch", GPT2, tensors), jnp.float32)
    folder = write_flax(tmp_path / "flax", tensors, GPT2, norm="scale")
    jax.tree.map(np.testing.assert_array_equal, plain.state, load_hf(folder, jnp.float32).state)


def test_sharded_flax_msgpack(tmp_path: Path) -> None:
    plain = load_hf(write_folder(tmp_path / "torch", LLAMA), jnp.float32)
    folder = write_flax(tmp_path / "flax", llama_tensors())
    (folder / "flax_model.msgpack").unlink()
    flat = flatten_dict(flax_tree(llama_tensors()), sep="/")
    file_of = {name: "a.msgpack" if i < 7 else "b.msgpack" for i, name in enumerate(sorted(flat))}
    for file in ("a.msgpack", "b.msgpack"):
        shard = unflatten_dict({name: flat[name] for name in flat if file_of[name] == file}, sep="/")
        (folder / file).write_bytes(msgpack_serialize(shard))
    (folder / "flax_model.msgpack.index.json").write_text(json.dumps({"weight_map": file_of}))
    jax.tree.map(np.testing.assert_array_equal, plain.state, load_hf(folder, jnp.float32).state)
    (folder / "b.msgpack").unlink()
    assert "b.msgpack: no such file" in error_of(lambda: load_hf(folder, jnp.float32))
    (folder / "b.msgpack").write_bytes((folder / "a.msgpack").read_bytes())
    assert "b.msgpack: no tensor model." in error_of(lambda: load_hf(folder, jnp.float32))


def test_damaged_flax_msgpack(tmp_path: Path) -> None:
    file = write_flax(tmp_path, llama_tensors()) / "flax_model.msgpack"
    for content, part in (
        (file.read_bytes()[:1000], "truncated or corrupt (1000 bytes"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (msgpack_serialize([1, 2]), "truncated or corrupt"),
        (msgpack_serialize({"model": {"step": 3}}), "model/step holds a int"),
    ):
        file.write_bytes(content)
        assert part in error_of(lambda: load_hf(tmp_path, jnp.float32))


def test_a_hub_model_without_safetensors_is_asked_for_msgpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def snapshot(name: str, revision: str | None, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert (name, revision) == ("owner/name", None)
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert resolve_model("owner/name") == tmp_path
    (tmp_path / "model.safetensors").touch()
    resolve_model("owner/name")
    resolve_model("owner/name", weights=False)
    wanted = ["".join(name for name in ("safetensors", "msgpack") if f"*.{name}" in patterns) for patterns in asked]
    assert wanted == ["safetensors", "msgpack", "safetensors", ""]
