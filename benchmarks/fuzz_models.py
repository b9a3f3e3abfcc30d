"""Model folders that benchmarks/fuzz.py damages: configurations, tokenizers, weights in every
format, maps of names."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import nnx
from flax.serialization import msgpack_serialize
from fuzz import Target

sys.path.append(str(Path(__file__).parents[1]))  # tests/ has tiny models

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.model.checkpoints.hf_config import eos_token_ids, from_hf_config
from miron_jax.model.checkpoints.hf_files import stored_tensors
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.checkpoints.training_run import load_step
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import abstract
from miron_jax.runtime.devices import Tree
from miron_jax.tokens.tokenizers import load_tokenizer, resolve_bos
from tests.support.placements import CONFIGS as FAMILIES
from tests.support.tiny_model import make_model, make_tokenizer

LLAMA = {
    **FAMILIES["llama"],
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "eos_token_id": [1, 2],
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 256}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
CONFIGS = {
    **FAMILIES,
    "llama": LLAMA,
    "llama3": {**LLAMA, "rope_scaling": LLAMA3},
    "yarn": {**LLAMA, "rope_scaling": YARN},
}
SMALL = {**LLAMA, "vocab_size": 29, "hidden_size": 12, "intermediate_size": 20, "head_dim": 4}


def _write_configs(folder: Path) -> None:
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        (folder / name / "generation_config.json").write_text(json.dumps({"eos_token_id": 1}))


def _read_configs(folder: Path) -> None:
    failed = None
    for name in CONFIGS:
        try:
            from_hf_config(folder / name)
            eos_token_ids(folder / name)
        except InputError as error:
            failed = error
    if failed is not None:
        raise failed


def _read_tokenizer(folder: Path) -> None:
    tokenizer = load_tokenizer(str(folder))
    tokenizer.encode("the sun is hot", add_special_tokens=False)
    resolve_bos(tokenizer)


def _write_safetensors(folder: Path) -> None:
    from safetensors import numpy

    make_model(folder)
    for path in folder.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    tensors = numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {"a.safetensors": sorted(tensors)[::2], "b.safetensors": sorted(tensors)[1::2]}
    for shard, names in shards.items():
        numpy.save_file({name: tensors[name] for name in names}, folder / shard)
    weight_map = {name: shard for shard, names in shards.items() for name in names}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )


def _write_msgpack(folder: Path) -> None:
    rng = np.random.default_rng(0)
    tree = {
        "model": {
            "a": {"kernel": rng.normal(size=(4, 3)).astype(np.float32)},
            "b": {"scale": np.ones(5)},
        }
    }
    (folder / "flax_model.msgpack").write_bytes(msgpack_serialize(tree))


def _read_msgpack(folder: Path) -> None:
    with ExitStack() as files:
        for tensor in stored_tensors(folder, files).values():
            np.asarray(tensor.array[:])


def _config_of(folder: Path) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(SMALL))
    config = from_hf_config(folder)
    (folder / "config.json").unlink()
    return config


def _params(folder: Path) -> Tree:
    """Random ones; drawn by NumPy, as each target's process would compile the same few programs."""
    rng, shapes = (
        np.random.default_rng(4),
        nnx.to_pure_dict(abstract(_config_of(folder), jnp.float32)[1]),
    )
    return jax.tree.map(lambda leaf: 0.3 * rng.standard_normal(leaf.shape, np.float32), shapes)


def _write_orbax(use_ocdbt: bool) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt)) as checkpointer:
            checkpointer.save(folder / "7", _params(folder))

    return write


def _read_orbax(folder: Path, param_map: str | None = None) -> None:
    config = _config_of(folder)
    jax.block_until_ready(load_step(folder / "7", config, jnp.float32, param_map))


def _write_map(folder: Path) -> None:
    params = _params(folder)
    leaves = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in
              jax.tree_util.tree_flatten_with_path(params)[0]]  # fmt: skip
    mapped: JsonObject = {leaf: leaf for leaf in leaves}
    mapped[leaves[0]] = {"name": leaves[0], "transposed": False}
    layer = next(leaf for leaf in leaves if leaf.startswith("layers/"))
    mapped[layer] = {"name": layer, "layer_axis": 0}
    (folder / "map.json").write_text(json.dumps(mapped))


def _read_map(folder: Path) -> None:
    """Reads one checkpoint of this process by the damaged map, instead of writing a checkpoint for
    each input."""
    global _checkpoint
    if _checkpoint is None:
        _checkpoint = folder.parent / "checkpoint"
        _checkpoint.mkdir()
        _write_orbax(False)(_checkpoint)
    jax.block_until_ready(
        load_step(
            _checkpoint / "7", _config_of(_checkpoint), jnp.float32, os.fspath(folder / "map.json")
        )
    )


_checkpoint: Path | None = None

TARGETS = [
    Target("config", _write_configs, _read_configs),
    Target("tokenizer", make_tokenizer, _read_tokenizer),
    Target("safetensors", _write_safetensors, lambda folder: load_hf(folder, jnp.float32)),
    Target("msgpack", _write_msgpack, _read_msgpack),
    Target("orbax-zarr", _write_orbax(False), _read_orbax),
    Target("orbax-ocdbt", _write_orbax(True), _read_orbax),
    Target("param-map", _write_map, _read_map),
]
