"""Every bad input of the checkpoint reader: one sentence that names the file, what was expected and what to do."""

import json
import math
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
from flax.serialization import msgpack_serialize
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import load_file, save_file

from miron_jax.errors import InputError
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.hf_reader import load_hf, resolve_model

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 29,
    "hidden_size": 12,
    "intermediate_size": 14,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 29,
    "n_positions": 32,
    "n_embd": 12,
    "n_layer": 1,
    "n_head": 2,
}
GEMMA: dict[str, Any] = LLAMA | {
    "model_type": "gemma3_text",
    "head_dim": 6,
    "sliding_window": 4,
    "query_pre_attn_scalar": 6,
    "pad_token_id": 0,
}
NEOX: dict[str, Any] = {
    "model_type": "gpt_neox",
    "vocab_size": 29,
    "hidden_size": 16,
    "intermediate_size": 14,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "rotary_pct": 0.25,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 2.0,
    "original_max_position_embeddings": 16,
    "truncate": False,
}
UNCUT_YARN = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
Tensors = dict[str, np.ndarray]


def llama_tensors() -> Tensors:
    rng = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (29, 12), "model.norm.weight": (12,)}
    for i in range(2):
        shapes |= {
            f"model.layers.{i}.input_layernorm.weight": (12,),
            f"model.layers.{i}.post_attention_layernorm.weight": (12,),
            f"model.layers.{i}.self_attn.q_proj.weight": (12, 12),
            f"model.layers.{i}.self_attn.k_proj.weight": (6, 12),
            f"model.layers.{i}.self_attn.v_proj.weight": (6, 12),
            f"model.layers.{i}.self_attn.o_proj.weight": (12, 12),
            f"model.layers.{i}.mlp.gate_proj.weight": (14, 12),
            f"model.layers.{i}.mlp.up_proj.weight": (14, 12),
            f"model.layers.{i}.mlp.down_proj.weight": (12, 14),
        }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_folder(folder: Path, config: dict[str, Any], tensors: Tensors | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(llama_tensors() if tensors is None else tensors, folder / "model.safetensors")
    return folder


def write_shards(folder: Path) -> Path:
    write_folder(folder, LLAMA)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
    for file, members in parts.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    weight_map = {name: file for file, members in parts.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


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


def test_no_config(tmp_path: Path) -> None:
    assert "config.json: no such file" in error_of(lambda: load_hf(tmp_path, jnp.float32))


@pytest.mark.parametrize("text", ["{", "[]", '"llama"'])
def test_config_that_is_no_json_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert "config.json" in error_of(lambda: load_hf(tmp_path, jnp.float32))


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
    for layer, width in {
        "attn.c_attn": (12, 36),
        "attn.c_proj": (12, 12),
        "mlp.c_fc": (12, 48),
        "mlp.c_proj": (48, 12),
    }.items():
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


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (LLAMA | {"model_type": "lama"}, "nearest: llama"),
        (LLAMA | {"model_type": "gemma3n"}, "nearest: gemma)"),
        ({"model_type": "gemma3"}, "text_config is None"),
        (LLAMA | {"model_type": None}, "model_type is None"),
        (LLAMA | {"hidden_size": "12"}, "hidden_size"),
        (LLAMA | {"hidden_size": 13}, "multiple"),
        (LLAMA | {"num_attention_heads": 0}, "config.json"),
        (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        (
            LLAMA | {"num_hidden_layers": 10**9},
            "num_hidden_layers is 1000000000, expected a whole number from 1 to 10000",
        ),
        (LLAMA | {"head_dim": 10**9}, "head_dim is 1000000000, expected a whole number from 1 to 16384"),
        (LLAMA | {"num_labels": 10**9}, "num_labels is 1000000000"),
        (LLAMA | {"vocab_size": 10**30}, "vocab_size is 1000000000000"),
        (LLAMA | {"vocab_size": True}, "vocab_size is True"),
        (LLAMA | {"rope_theta": True}, "rope_theta is True, expected a finite number above 0"),
        (LLAMA | {"rope_theta": [1]}, "rope_theta is [1], expected a finite number above 0"),
        (LLAMA | {"rope_theta": math.inf}, "rope_theta is inf, expected a finite number above 0"),
        (LLAMA | {"rms_norm_eps": math.nan}, "rms_norm_eps is nan, expected a finite number"),
        (
            LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": math.inf}},
            "factor is inf, expected a finite number",
        ),
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1.0}}, "rope_parameters is"),
        (LLAMA | {"rope_scaling": {"rope_type": [1], "factor": 2.0}}, "config.json"),
        (LLAMA | {"rope_scaling": 3}, "rope_scaling is 3, expected an object"),
        (LLAMA | {"attention_bias": 1.5}, "attention_bias is 1.5, expected true or false"),
        (LLAMA | {"hidden_act": ["silu"]}, "config.json"),
        (NEOX | {"rotary_pct": 1e9}, "the rotated part of a head"),
        (GEMMA | {"final_logit_softcapping": 0}, "final_logit_softcapping is 0, expected a finite number above 0"),
        (LLAMA | {"num_attention_heads": 6, "num_key_value_heads": 4}, "expected a multiple"),
        (LLAMA | {"head_dim": 3}, "part of a head is 3"),
        (LLAMA | {"hidden_act": "mish"}, "hidden_act is 'mish'"),
        (LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "config.json"),
        (LLAMA | {"rope_scaling": {"rope_type": "proportional", "factor": 2.0}}, "rope_type is 'proportional'"),
        (LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "factor": 2.0}}, "'factor'"),
        (LLAMA | {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        (LLAMA | {"quantization_config": {"bits": 4}}, "quantization_config"),
        (LLAMA | {"sliding_window": 512}, "sliding_window"),
        (LLAMA | {"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
        (LLAMA | {"residual_multiplier": 0.22}, "residual_multiplier"),
        (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        (GPT2 | {"add_cross_attention": True}, "add_cross_attention"),
        (GPT2 | {"n_head": 5}, "n_embd is 12"),
        (GEMMA | {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        (GEMMA | {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        (GEMMA | {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
        (GEMMA | {"layer_types": ["full_attention"]}, "layer_types"),
        (GEMMA | {"sliding_window": None}, "sliding_window is None"),
        # Fields that transformers does not read in these families, though it reads them in others
        (GEMMA | {"hidden_act": "silu"}, "hidden_act is 'silu'"),
        (GEMMA | {"model_type": "gemma2", "hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (NEOX | {"rms_norm_eps": 0.5}, "'rms_norm_eps'"),
        (NEOX | {"num_key_value_heads": 1}, "'num_key_value_heads'"),
        (LLAMA | {"model_type": "olmo2", "layer_types": ["sliding_attention"] * 2, "sliding_window": 2}, "layer_types"),
        (LLAMA | {"model_type": "olmo3", "rope_parameters": UNCUT_YARN}, "truncate is False"),
        (LLAMA | {"rope_parameters": UNCUT_YARN}, "rope_parameters is"),
        (LLAMA | {"rope_parameters": UNCUT_YARN["full_attention"] | {"factor": None}}, "'factor'"),
        (LLAMA | {"model_type": "phi3", "auto_map": {"AutoConfig": "mine.MyConfig"}}, "auto_map"),
        (
            GEMMA | {"layer_types": ["full_attention"] * 2, "rope_scaling": {"type": "linear", "factor": 8.0}},
            "rope parameter",  # transformers fills rope_type "default" in beside it and scales nothing
        ),
    ],
)
def test_configs_that_are_refused(tmp_path: Path, config: dict[str, Any], part: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    message = error_of(lambda: from_hf_config(tmp_path))
    assert "config.json" in message
    assert part in message


def test_old_and_new_spellings_of_a_config_mean_the_same(tmp_path: Path) -> None:
    def read(config: dict[str, Any]) -> object:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return from_hf_config(tmp_path)

    bare = {name: value for name, value in LLAMA.items() if name != "rope_theta"}
    old = {
        "rope_theta": 5e5,
        "rope_scaling": {"type": "linear", "factor": 2.0},
        "torch_dtype": "float16",
        "use_cache": True,
    }
    new = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}, "dtype": "float16", "_x": 1}
    assert read(bare | old) == read(bare | new)
    pattern = GEMMA | {"num_hidden_layers": 4, "sliding_window_pattern": 2}
    types = GEMMA | {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}
    assert read(pattern) == read(types)
    hash(read(types))


PHI3_CODE = {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}


@pytest.mark.parametrize(
    "config",
    [
        GEMMA | {"model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"},
        LLAMA
        | {"model_type": "gemma", "head_dim": 6, "pad_token_id": 0, "hidden_act": "gelu", "hidden_activation": None},
        LLAMA | {"model_type": "phi3", "pad_token_id": 0, "auto_map": PHI3_CODE},
        NEOX | {"hidden_act": "gelu_fast", "attention_probs_dropout_prob": 0.1, "classifier_dropout": 0.1},
        LLAMA | {"max_sequence_length": 2048},
    ],
)
def test_fields_of_published_configs_that_change_nothing(tmp_path: Path, config: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    activation = {"llama": "silu", "phi3": "silu"}.get(config["model_type"], "gelu_tanh")
    assert from_hf_config(tmp_path).activation == activation


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


def test_a_hub_model_without_safetensors_is_asked_for_msgpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def snapshot(name: str, revision: str | None, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert (name, revision) == ("owner/name", None)
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert resolve_model("owner/name") == tmp_path
    assert [("*.safetensors" in own, "*.msgpack" in own) for own in asked] == [(True, False), (False, True)]
    (tmp_path / "model.safetensors").touch()
    resolve_model("owner/name")
    resolve_model("owner/name", weights=False)
    assert [("*.safetensors" in own, "*.msgpack" in own) for own in asked[2:]] == [(True, False), (False, False)]
