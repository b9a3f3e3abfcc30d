"""Weights in Flax's msgpack files, whole and sharded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax.serialization import msgpack_serialize
from flax.traverse_util import flatten_dict, unflatten_dict

from miron_jax.model.hf_reader import load_hf, resolve_model
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


def write_flax(folder: Path, tensors: Tensors) -> Path:
    write_folder(folder, LLAMA, tensors)
    (folder / "model.safetensors").unlink()
    (folder / "flax_model.msgpack").write_bytes(msgpack_serialize(flax_tree(tensors)))
    return folder


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_flax_msgpack_loads_the_same(tmp_path: Path, dtype: Any) -> None:
    tensors = {name: tensor.astype(dtype) for name, tensor in llama_tensors().items()}
    plain = load_hf(write_folder(tmp_path / "torch", LLAMA, tensors), jnp.float32)
    flax = load_hf(write_flax(tmp_path / "flax", tensors), jnp.float32)
    assert plain.config == flax.config
    jax.tree.map(np.testing.assert_array_equal, plain.state, flax.state)


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
    folder = tmp_path / "flax"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(GPT2))
    tree = flax_tree(tensors, norm="scale")
    assert tree["transformer"]["h"]["0"]["attn"]["c_attn"]["kernel"].shape == (36, 12)
    (folder / "flax_model.msgpack").write_bytes(msgpack_serialize(tree))
    jax.tree.map(np.testing.assert_array_equal, plain.state, load_hf(folder, jnp.float32).state)


def write_flax_shards(folder: Path) -> Path:
    write_flax(folder, llama_tensors())
    (folder / "flax_model.msgpack").unlink()
    flat = flatten_dict(flax_tree(llama_tensors()), sep="/")
    parts = {"a.msgpack": sorted(flat)[:7], "b.msgpack": sorted(flat)[7:]}
    for file, members in parts.items():
        shard = unflatten_dict({name: flat[name] for name in members}, sep="/")
        (folder / file).write_bytes(msgpack_serialize(shard))
    weight_map = {name: file for file, members in parts.items() for name in members}
    (folder / "flax_model.msgpack.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_sharded_flax_msgpack(tmp_path: Path) -> None:
    plain = load_hf(write_folder(tmp_path / "torch", LLAMA), jnp.float32)
    folder = write_flax_shards(tmp_path / "flax")
    jax.tree.map(np.testing.assert_array_equal, plain.state, load_hf(folder, jnp.float32).state)
    (folder / "b.msgpack").unlink()
    assert "b.msgpack: no such file" in error_of(lambda: load_hf(folder, jnp.float32))
    (folder / "b.msgpack").write_bytes((folder / "a.msgpack").read_bytes())
    assert "b.msgpack: no tensor model." in error_of(lambda: load_hf(folder, jnp.float32))


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (lambda whole: whole[:1000], "truncated or corrupt (1000 bytes"),
        (lambda whole: b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (lambda whole: msgpack_serialize([1, 2]), "truncated or corrupt"),
        (lambda whole: msgpack_serialize({"model": {"step": 3}}), "model/step holds a int"),
    ],
)
def test_damaged_flax_msgpack(tmp_path: Path, damage: Callable[[bytes], bytes], part: str) -> None:
    folder = write_flax(tmp_path, llama_tensors())
    file = folder / "flax_model.msgpack"
    file.write_bytes(damage(file.read_bytes()))
    assert part in error_of(lambda: load_hf(folder, jnp.float32))


def test_a_hub_model_without_safetensors_is_asked_for_msgpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def snapshot(name: str, revision: str | None, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert (name, revision) == ("owner/name", None)
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert resolve_model("owner/name") == tmp_path
    assert [("*.safetensors" in each, "*.msgpack" in each) for each in asked] == [
        (True, False),
        (False, True),
    ]
    (tmp_path / "model.safetensors").touch()
    resolve_model("owner/name")
    resolve_model("owner/name", weights=False)
    assert [("*.safetensors" in patterns, "*.msgpack" in patterns) for patterns in asked[2:]] == [
        (True, False),
        (False, False),
    ]
