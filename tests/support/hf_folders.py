"""Hugging Face folders written tensor by tensor, without torch, and the sentence with which one is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from miron_jax.errors import InputError

LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 29, "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True, "rope_theta": 10000.0,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "vocab_size": 29, "n_positions": 32, "n_embd": 12, "n_layer": 1, "n_head": 2,
}  # fmt: skip
GEMMA: dict[str, Any] = LLAMA | {
    "model_type": "gemma3_text", "head_dim": 6, "sliding_window": 4, "query_pre_attn_scalar": 6, "pad_token_id": 0,
}  # fmt: skip
NEOX: dict[str, Any] = {
    "model_type": "gpt_neox", "vocab_size": 29, "hidden_size": 16, "intermediate_size": 14, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 32, "rotary_pct": 0.25,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 16, "truncate": False,
}  # fmt: skip
UNCUT_YARN = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
Tensors = dict[str, np.ndarray]


def llama_tensors() -> Tensors:
    rng = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (29, 12), "model.norm.weight": (12,)}
    layer = {
        "input_layernorm": (12,), "post_attention_layernorm": (12,), "self_attn.q_proj": (12, 12),
        "self_attn.k_proj": (6, 12), "self_attn.v_proj": (6, 12), "self_attn.o_proj": (12, 12),
        "mlp.gate_proj": (14, 12), "mlp.up_proj": (14, 12), "mlp.down_proj": (12, 14),
    }  # fmt: skip
    shapes |= {f"model.layers.{i}.{name}.weight": shape for i in range(2) for name, shape in layer.items()}
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
