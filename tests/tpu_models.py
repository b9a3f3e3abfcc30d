"""Models of real shapes on TPUs that are described and not present; for tests/test_tpu.py and benchmarks/tpu_estimate.py."""

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.config import parse_mesh
from miron_jax.engine.model import Model
from miron_jax.files.readers import JsonObject
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder import abstract
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.sharding import placed_shapes
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import Plan
from miron_jax.runtime.topology import described_placement
from tests.test_plan import requests_of

jax.config.update("jax_enable_compilation_cache", False)  # its entries cannot be read back without a TPU

TOPOLOGIES = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
LLAMA = {
    "model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "rope_theta": 5e5, "hidden_act": "silu", "num_key_value_heads": 8,
}  # fmt: skip
CONFIGS: dict[str, JsonObject] = {
    "llama-1b": {
        **LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "head_dim": 64, "tie_word_embeddings": True,
    },
    "llama-8b": {
        **LLAMA, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "head_dim": 128, "tie_word_embeddings": False,
    },
    "llama-70b": {
        **LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "head_dim": 128, "tie_word_embeddings": False,
    },
    "gemma3-1b": {
        "model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912,
        "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
        "sliding_window": 512, "query_pre_attn_scalar": 256, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "layer_types": ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(26)],
    },
    "gpt2": {"model_type": "gpt2"},
    "qwen3-0.6b": {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu",
        "tie_word_embeddings": True, "attention_bias": False,
    },
}  # fmt: skip


class Case(NamedTuple):
    model: str
    chip: str
    mesh: str = ""
    lengths: tuple[int, ...] = (1280,)  # no axis of a model is as long
    budget: int = 32768
    sets: int = 0
    dtype: str = "bfloat16"
    attention: str | None = None


def model_of(case: Case, folder: Path) -> Model:
    """The model with shapes for weights, on described devices."""
    (folder / "config.json").write_text(json.dumps(CONFIGS[case.model]))
    config, dtype = from_hf_config(folder), jnp.dtype(case.dtype)
    placement = described_placement(TOPOLOGIES[case.chip], parse_mesh(case.mesh or None))
    graphdef, state = abstract(config, dtype)
    return Model(config, graphdef, placed_shapes(state, config, placement), placement, case.attention)


def plan_of(case: Case, model: Model, length: int) -> Plan:
    """Full rows of this length, as many as one batch takes."""
    assert model.placement is not None
    count = case.budget * model.placement.shards // length
    # Requests whose first tokens differ share nothing.
    requests = requests_of([([1 + i, *range(1, length + 1)], length // 2) for i in range(count)])
    if case.sets:
        requests = replace(requests, id_set=np.arange(count, dtype=np.int32) % case.sets)
    return make_plan(requests, cost_model(model.config), (length,))
