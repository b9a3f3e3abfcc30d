"""What libtpu's compiler makes of the engine's programs, for chips that are not here: `make tpu`.

Each case compiles programs of a real architecture, whose weights are shapes alone, and reads the compiled text.
"""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.config import parse_mesh
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder import abstract
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.layout import placed_shapes
from miron_jax.planning.plan import make_plan
from miron_jax.runtime.topology import described_placement
from tests.test_plan import requests_of

jax.config.update("jax_enable_compilation_cache", False)  # its entries cannot be read back without a TPU

TOPOLOGIES = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
LLAMA = {
    "model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "rope_theta": 5e5, "hidden_act": "silu", "num_key_value_heads": 8,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
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


# Each is here for what it covers alone.
CASES = {
    "1b v5e, short, middle and long rows": Case("llama-1b", "v5e", lengths=(64, 480, 4352)),
    "1b v5p": Case("llama-1b", "v5p"),
    "1b v6e, id sets": Case("llama-1b", "v6e", sets=3),
    "8b v5e over fsdp": Case("llama-8b", "v5e", "fsdp=4"),
    "8b v5p over model": Case("llama-8b", "v5p", "model=4"),
    "8b v6e over data and model": Case("llama-8b", "v6e", "data=2,model=2"),
    "gemma v5e over data and fsdp, windows and 262k ids": Case("gemma3-1b", "v5e", "data=2,fsdp=2"),
    "gpt2 v5p, float32, learned positions": Case("gpt2", "v5p", lengths=(640,), dtype="float32"),
    "qwen v6e, heads are normed": Case("qwen3-0.6b", "v6e", "data=4"),
}


@cache
def model_of(name: str, chip: str, mesh: str, dtype: str, folder: Path) -> Model:
    """The model with shapes for weights, on described devices."""
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    config = from_hf_config(folder)
    placement = described_placement(TOPOLOGIES[chip], parse_mesh(mesh or None))
    graphdef, state = abstract(config, jnp.dtype(dtype))
    return Model(config, graphdef, placed_shapes(state, config, placement), placement)


def programs_of(case: Case, folder: Path) -> dict[int, jax.stages.Compiled]:
    """Row length -> the program that scores rows of it, as a run compiles it."""
    model = model_of(case.model, case.chip, case.mesh, case.dtype, folder)
    id_sets = [np.arange(10 * i, 10 * i + 10) for i in range(case.sets)]
    forward = Forward(model, case.budget, id_sets=id_sets)
    assert forward.attention == "tpu"
    for length in case.lengths:
        count = case.budget * forward.placement.shards // length
        first = np.arange(count) + 1  # requests of a first token each share nothing
        requests = requests_of([([int(i), *range(1, length + 1)], length // 2) for i in first])
        if case.sets:
            requests = replace(requests, id_set=np.arange(count, dtype=np.int32) % case.sets)
        forward.compile(make_plan(requests, cost_model(model.config), (length,)))
    return {shape.length: program for shape, program in forward._programs.items()}


@pytest.mark.parametrize("name", CASES)
def test_programs_of_scoring_compile(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    programs = programs_of(case, tmp_path)
    assert set(programs) == set(case.lengths)
    for length, program in programs.items():
        text, memory = program.as_text(), program.memory_analysis()
        assert memory is not None
        assert text is not None
        assert len(re.findall(r'custom_call_target="tpu_custom_call"', text)) == 1, (
            "one kernel call, in the layers' loop"
        )
        squares = [line[:200] for line in text.splitlines() if re.search(rf"= \w+\[(\d+,)*{length},{length}\]", line)]
        assert not squares
        if case.dtype == "bfloat16":
            assert not float32_matmuls(text)
        assert not re.search(r" (infeed|outfeed|send|recv)\(", text)
        print(
            f"{name}, rows of {length}: weights and batch {memory.argument_size_in_bytes / 1e9:.2f} GB, "
            f"temporaries {memory.temp_size_in_bytes / 1e9:.2f} GB"
        )


def float32_matmuls(text: str) -> list[str]:
    """Lines of matmuls whose operands are float32."""
    dtypes = dict(re.findall(r"%([\w.\-]+) = (\w+)\[", text))
    found = []
    for line in text.splitlines():
        matmul = re.search(r" (?:convolution|dot)\(%([\w.\-]+), %([\w.\-]+)\)", line)
        if matmul and "f32" in (dtypes.get(operand) for operand in matmul.groups()):
            found.append(line[:200])
    return found
