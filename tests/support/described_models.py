"""Models of real shapes on TPUs and GPUs that are described and not present, and what their programs must not hold.

For tests/tpu, tests/gpu and benchmarks/tpu_estimate.py.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.config import parse_mesh
from miron_jax.engine.batches import MOST_CHUNK
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model
from miron_jax.engine.text_requests import Sampling, TextRequest
from miron_jax.evaluation.device_memory import DeviceMemory
from miron_jax.evaluator import Evaluator
from miron_jax.files.readers import JsonObject
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.config import ModelConfig
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder.decoder import abstract
from miron_jax.model.decoder.sharding import heads_axis, placed_shapes
from miron_jax.model.families.family_model import FamilyModel
from miron_jax.model.own import OwnModel
from miron_jax.model.visibility import Visibility
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import Plan
from miron_jax.runtime.chips import TPUS
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.topology import chip_of, described_placement
from tests.support.command import Place, common
from tests.support.requests import requests_of
from tests.support.tiny_model import make_tokenizer

jax.config.update("jax_enable_compilation_cache", False)  # its entries cannot be read back without the device

TOPOLOGIES = {name: f"{name}:{chip.sizes[0]}" for name, chip in TPUS.items()}
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
    "bloom-560m": {"model_type": "bloom", "vocab_size": 250880, "hidden_size": 1024, "n_layer": 24, "n_head": 16},
    "falcon-rw-1b": {
        "model_type": "falcon", "alibi": True, "multi_query": False, "bias": True, "vocab_size": 50304, "hidden_size": 2048,
        "num_hidden_layers": 24, "num_attention_heads": 32,
    },
    "mamba-130m": {"model_type": "mamba", "num_hidden_layers": 24},
    "mamba2-130m": {
        "model_type": "mamba2", "vocab_size": 50288, "hidden_size": 768, "num_hidden_layers": 24, "num_heads": 24,
        "n_groups": 1, "tie_word_embeddings": True,
    },
    "recurrent-gemma-2b": {  # one period of its 26 layers: each kind of them is compiled by itself
        "model_type": "recurrent_gemma", "num_hidden_layers": 3, "num_key_value_heads": 1, "intermediate_size": 15360,
    },
    "olmoe-1b-7b": {
        "model_type": "olmoe", "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 1024,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64,
        "num_experts_per_tok": 8, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    },
    "mixtral-8x7b": {
        **LLAMA, "model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_local_experts": 8, "num_experts_per_tok": 2,
        "tie_word_embeddings": False,
    },
    "gpt-oss-20b": {  # sizes as published
        "model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32, "vocab_size": 201088,
    },
    "gemma3n-e2b": {
        "model_type": "gemma3n_text", "num_hidden_layers": 30, "intermediate_size": 8192, "num_kv_shared_layers": 10,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu",
        "tie_word_embeddings": True, "attention_bias": False,
    },
}  # fmt: skip

# What a compiler's time hangs on, smaller; kinds of layers, sizes of heads and numbers of experts stay.
FEW_LAYERS = {"num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 1024, "vocab_size": 8032}
SMALLER: dict[str, JsonObject] = {
    "llama-1b": {**FEW_LAYERS, "num_attention_heads": 8, "num_key_value_heads": 4},
    "llama-8b": {**FEW_LAYERS, "num_attention_heads": 8, "num_key_value_heads": 4},
    "gemma3-1b": {
        **FEW_LAYERS, "vocab_size": 262144, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 100,
    },
    "gpt2": {"n_layer": 2, "n_embd": 256, "n_head": 4},
    "falcon-rw-1b": {"num_hidden_layers": 2, "hidden_size": 512, "num_attention_heads": 8, "vocab_size": 8032},
    "mamba-130m": {"num_hidden_layers": 2, "hidden_size": 256, "vocab_size": 8032},
    "olmoe-1b-7b": {**FEW_LAYERS, "intermediate_size": 256, "num_attention_heads": 8, "num_key_value_heads": 8},
    "gpt-oss-20b": {**FEW_LAYERS, "intermediate_size": 512, "num_attention_heads": 16, "num_local_experts": 8},
    "qwen3-0.6b": {**FEW_LAYERS, "num_attention_heads": 8, "num_key_value_heads": 4},
}  # fmt: skip


class Case(NamedTuple):
    model: str
    topology: str
    mesh: str = ""
    lengths: tuple[int, ...] = (1280,)  # no axis of a model is as long
    budget: int = 32768
    sets: int = 0
    dtype: str = "bfloat16"
    attention: str | None = None
    smaller: bool = False

    @property
    def config(self) -> JsonObject:
        """Of config.json."""
        return CONFIGS[self.model] | (SMALLER[self.model] if self.smaller else {})

    @property
    def placement(self) -> Placement:
        return described_placement(self.topology, parse_mesh(self.mesh or None))


def small(model: str, topology: str, mesh: str = "", **more: Any) -> Case:
    """A case that takes the compiler a third of the time."""
    return Case(model, topology, mesh, lengths=(320,), budget=2048, smaller=model in SMALLER)._replace(**more)


def short_and_long(short: Mapping[str, object], long: Mapping[str, object]) -> Any:
    cases = [pytest.param(case, id=name) for name, case in short.items()]
    cases += [pytest.param(case, id=f"{name}, real sizes", marks=pytest.mark.long) for name, case in long.items()]
    return pytest.mark.parametrize("case", cases)


def real_shape(config: JsonObject, model: Path, folder: Path) -> Path:
    """A folder of a real model's configuration with the tokenizer of the tests' tiny one, and no weights."""
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


FEW = "--token_budget=2048"  # a compiler's time hangs on the size of a batch


def check_too_large(miron: Any, place: Place, folder: Path, model: str, topology: str, mesh: str) -> None:
    """`plan` says that the model does not fit the topology, and the smallest mesh that it fits; nothing is written."""
    shape = real_shape(CONFIGS[model], place.model, folder / "model")
    flags = (f"--model={shape}", "--tasks=core/copa", FEW, f"--topology={topology}", "--dtype=bfloat16")
    ran = miron("plan", *common(place, folder / "out", *flags))
    assert ran.status == 2
    assert "does not fit: its weights take" in ran.err
    assert ran.err.strip().splitlines()[-1].endswith(f"the smallest mesh that does: {mesh}")
    assert not (folder / "out").exists()


def check_refused(miron: Any, place: Place, output: Path, flags: Sequence[str], sentence: str) -> None:
    """`plan` says one sentence and writes nothing."""
    ran = miron("plan", *common(place, output, "--tasks=core/copa", *flags))
    assert (ran.status, len(ran.err.strip().splitlines())) == (2, 1)
    assert sentence in ran.err
    assert not output.exists()


def model_of(case: Case, folder: Path) -> Model:
    """The model with shapes for weights, on described devices."""
    placement, dtype = case.placement, jnp.dtype(case.dtype)
    if case.model in OWN:
        model = OWN[case.model]
        return Model(model, model, placed_params(model, placement, case.dtype), placement, case.attention)
    (folder / "config.json").write_text(json.dumps(case.config))
    config = from_hf_config(folder)
    if isinstance(config, FamilyModel):
        params = jax.tree.map(lambda x: placed_shape(x, placement), config.shapes(dtype))
        return Model(config, config, params, placement, case.attention)
    graphdef, state = abstract(config, dtype)
    return Model(config, graphdef, placed_shapes(state, config, placement), placement, case.attention)


def placed_params(model: OwnModel, placement: Placement, dtype: str) -> Any:
    """A copy of the weights on each device."""
    return jax.tree.map(lambda x: placed_shape(jax.ShapeDtypeStruct(x.shape, dtype), placement), model.params)


def placed_shape(leaf: jax.ShapeDtypeStruct, placement: Placement) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placement.shared)


def plan_of(case: Case, model: Model, length: int) -> Plan:
    """Full rows of this length, as many as one batch takes."""
    assert model.placement is not None
    count = case.budget * model.placement.shards // length
    # Requests whose first tokens differ share nothing.
    requests = requests_of([([1 + i, *range(1, length + 1)], length // 2) for i in range(count)])
    if case.sets:
        requests = replace(requests, id_set=np.arange(count, dtype=np.int32) % case.sets)
    return make_plan(requests, cost_model(model.config), (length,))


def text_requests(model: Model, prompt_len: int = 60) -> list[TextRequest]:
    """Prompts whose completions are greedy, sampled, and cut by top-p."""
    rules = (Sampling(), Sampling(0.8, seed=1), Sampling(0.8, top_p=0.9, seed=2))
    return [TextRequest((1 + i, *range(1, prompt_len + i)), 100, (), how) for how in rules for i in range(8)]


def text_of(program: jax.stages.Compiled) -> str:
    """The compiled text, in which nothing waits for the host."""
    text = program.as_text()
    assert text is not None
    assert not re.search(r' (infeed|outfeed|send|recv)\(|custom_call_target="[^"]*callback', text)
    return text


def cache_bytes(model: Model, slots: int, size: int) -> int:
    """Of one device."""
    config, placement = model.config, model.placement
    assert isinstance(config, ModelConfig)
    assert placement is not None
    parts = placement.size("model") if heads_axis(config, placement) else 1
    return 2 * 2 * config.num_layers * slots * size * config.num_kv_heads * config.attended_dim // parts


def check_collectives(case: Case, text: str) -> None:
    """Logits and the tables of the vocabulary stay where they are; `model` alone moves no weight, `fsdp` one layer's at a
    time; a pass through the head moves a few numbers of each node."""
    placement = case.placement
    config = case.config
    ids = int(config.get("vocab_size", 50257))  # type: ignore[arg-type]
    axes = 3 if {"num_experts", "num_local_experts"} & set(config) else 2  # of one layer's weight
    tables = {ids, -(-ids // placement.size("fsdp", "model"))}
    for shape, kind, line in re.findall(
        r"= \(?\w+\[([\d,]*)\][^\n]*? (all-[\w\-]+|reduce-scatter|collective-[\w\-]+)\(([^\n]*)", text
    ):
        sizes = [int(size) for size in shape.split(",") if size]
        assert not tables & set(sizes), f"{kind} of {shape}: a table of the vocabulary, or logits"
        if "_logprob/while" in line:
            assert np.prod(sizes) <= MOST_CHUNK, f"{kind} of {shape} at each pass through the head"
        if "layers/while" in line and kind.startswith("all-gather") and "experts/shard_map/all_gather" not in line:
            assert placement.size("fsdp") > 1, f"{kind} of {shape}: a weight"
            assert sizes[0] == 1 or len(sizes) <= axes, f"{kind} of {shape}: the weights of several layers"


LAYERS, WIDTH, HEADS, HEAD, IDS = 2, 512, 8, 64, 32000  # of a user's own models


def _own_layers(params: Any, token_ids: jax.Array, attend: Any) -> jax.Array:
    x = params["ids"][token_ids]
    for qkv, out in zip(params["qkv"], params["out"], strict=True):
        q, k, v = jnp.split((x @ qkv).reshape(*x.shape[:2], 3 * HEADS, HEAD), 3, axis=2)
        x = x + attend(q, k, v).reshape(x.shape).astype(x.dtype) @ out
    return x


def _dense(mask: jax.Array) -> Any:
    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        logits = jnp.einsum("btnh,bsnh->bnts", q, k, preferred_element_type=jnp.float32) * HEAD**-0.5
        weights = jax.nn.softmax(jnp.where(mask[:, None], logits, -1e30), axis=-1)
        return jnp.einsum("bnts,bsnh->btnh", weights.astype(v.dtype), v)

    return attend


def _attending(params: Any, token_ids: jax.Array, positions: jax.Array, visibility: Visibility) -> jax.Array:
    return _own_layers(params, token_ids, partial(visibility.attend, scale=HEAD**-0.5))


def _masking(params: Any, token_ids: jax.Array, positions: jax.Array, visibility: Visibility) -> jax.Array:
    return _own_layers(params, token_ids, _dense(visibility.mask()))


def _logits(params: Any, token_ids: jax.Array) -> jax.Array:
    causal = jnp.tril(jnp.ones((token_ids.shape[1],) * 2, bool))[None]
    return _own_layers(params, token_ids, _dense(causal)) @ params["ids"].T


_SHAPES = {"ids": (IDS, WIDTH), "qkv": [(WIDTH, 3 * WIDTH)] * LAYERS, "out": [(WIDTH, WIDTH)] * LAYERS}
_PARAMS = jax.tree.map(
    lambda shape: jax.ShapeDtypeStruct(shape, "float32"), _SHAPES, is_leaf=lambda x: isinstance(x, tuple)
)


def _step(params: Any, state: Any, token_ids: jax.Array) -> Any:
    """The layers with a cache of keys and values."""
    kv, count = state
    position, x = count + jnp.arange(len(token_ids)), params["ids"][token_ids]
    seen = position[:, None] >= jnp.arange(kv.shape[2])[None]
    for i, (qkv, out) in enumerate(zip(params["qkv"], params["out"], strict=True)):
        q, k, v = jnp.split((x @ qkv).reshape(len(token_ids), 3 * HEADS, HEAD), 3, axis=1)
        kv = jax.lax.dynamic_update_slice(kv, jnp.stack([k, v])[None].astype(kv.dtype), (i, 0, count, 0, 0))
        attended = _dense(seen[None])(q[None], kv[i, 0][None], kv[i, 1][None])
        x = x + attended.reshape(x.shape).astype(x.dtype) @ out
    return x, (kv, count + len(token_ids))


def _state(params: Any, num_tokens: int) -> Any:
    return jnp.zeros((LAYERS, 2, num_tokens, HEADS, HEAD), params["ids"].dtype), jnp.int32(0)


OWN = {
    "own attend": OwnModel(IDS, hidden=_attending, head=lambda params: params["ids"], params=_PARAMS),
    "own mask": OwnModel(IDS, hidden=_masking, head=lambda params: params["ids"], params=_PARAMS),
    "own logits": OwnModel(IDS, logits=_logits, params=_PARAMS),
    "own state": OwnModel(IDS, state=_state, step=_step, head=lambda params: params["ids"], params=_PARAMS),
}


def memory_of_an_evaluator(case: Case, folder: Path, **layout: Any) -> tuple[Evaluator, DeviceMemory]:
    """An Evaluator of choices and completions for a trainer's float32 weights, split over the case's mesh, whose programs
    are compiled.  `layout`: row_axes or mesh."""
    make_tokenizer(folder)
    state = model_of(case._replace(dtype="float32"), folder).state
    evaluator = Evaluator(
        folder,
        tasks=["miron-gen/en"],
        limit=2,
        items_per_category=1,
        dtype=case.dtype,
        token_budget=case.budget,
        **layout,
    )
    with patch.object(Placement, "free_bytes", lambda placement: chip_of(placement.device).memory / 2):
        return evaluator, evaluator.memory(state)


def check_evaluator(case: Case, folder: Path, **layout: Any) -> Forward:
    """Compile all programs of an Evaluator, which its first run would find."""
    evaluator, memory = memory_of_an_evaluator(case, folder, **layout)
    forward, generator = evaluator.evaluation.engine  # type: ignore[misc]
    assert bool(memory.weights) == ("mesh" in layout)
    assert memory.caches > 0
    assert memory.total < chip_of(case.placement.device).memory
    assert {"prefill", "admit", "step"} <= {key[0] for key in generator.programs}
    for program in generator.programs.values():
        text_of(program)
    texts = [text_of(program) for program in forward.programs.values()]
    assert texts
    for text in texts if memory.weights else ():  # where XLA reshapes no weight on its way
        check_collectives(case, text)
    return forward
