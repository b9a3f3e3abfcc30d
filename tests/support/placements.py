"""Tiny models on several devices, which a process of its own has: JAX_NUM_CPU_DEVICES counts when jax starts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from miron_jax.config import parse_mesh
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.records import Scores
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import Sampling, TextRequest
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder.decoder import abstract, leaf_name
from miron_jax.model.decoder.sharding import put_weight
from miron_jax.planning.request_batches import Totals
from miron_jax.runtime.devices import DATA, Placement
from tests.support.processes import run
from tests.support.requests import some_requests

# Sizes that 2, 3, 4 and 8 do not all divide: 331 tokens (prime), 6 heads, 3 or 2 key-value heads, 40 wide.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
        "model_type": "llama", "vocab_size": 331, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "rope_theta": 1e4, "hidden_act": "silu", "tie_word_embeddings": False,
    },
    "gpt2": {
        "model_type": "gpt2", "vocab_size": 331, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512,
        "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True,
    },
    "gemma3_text": {
        "model_type": "gemma3_text", "vocab_size": 331, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 512, "sliding_window": 16, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 8,
        "hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "tie_word_embeddings": True,
    },
}  # fmt: skip


def placement_of(name: str) -> Placement:
    if name.startswith("pmap"):
        devices = jax.devices()[: int(name.split()[1])]
        return Placement(devices[0], Mesh(np.asarray(devices), (DATA,)), "pmap")
    return Placement.choose("mesh", parse_mesh(name))


def placed(config: Any, state: Any, placement: Placement) -> Model:
    leaves, tree = jax.tree_util.tree_flatten_with_path(state)
    arrays = [put_weight(leaf_name(path), np.asarray(leaf), config, placement) for path, leaf in leaves]
    network = abstract(config, jnp.dtype("float32"))[0]
    return Model(config, network, jax.tree_util.tree_unflatten(tree, arrays), placement)


def scores_of(model: Model, budget: int = 256) -> Scores:
    requests, check = some_requests(), SelfCheck(TOLERANCE[str(model.matrix_dtype)])
    forward = Forward(model, token_budget=budget)
    cost = cost_model(model.config, max_lengths=1)  # one program, as each placement compiles its own
    [scores] = score_request_batches([requests], forward, cost, Totals(), check)
    assert check.requests >= 8
    return scores


def logprobs(model: Model, budget: int = 256) -> tuple[np.ndarray, np.ndarray]:
    scores = scores_of(model, budget)
    return scores.logprob, scores.rank


def texts(model: Model, tokenizer: Any, slots: int = 2) -> list[tuple[int, ...]]:
    """Greedy and sampled, of unlike lengths, with prompts of one token and prompts that begin one another."""
    rng = np.random.default_rng(3)
    stem = rng.integers(1, 331, 30).tolist()
    prompts = [(int(each),) for each in rng.integers(1, 331, 3)] + [tuple(stem[:n]) for n in (5, 11, 30)]
    prompts += [tuple(rng.integers(1, 331, 9).tolist()) for _ in range(8)]
    asked = [TextRequest(ids, 6 + i) for i, ids in enumerate(prompts)]
    asked += [TextRequest(ids, 4, sampling=Sampling(0.7, 5, 0.9, seed=i)) for i, ids in enumerate(prompts[:4])]
    return [each.token_ids for each in Generator(model, tokenizer, slots=slots).run(asked)]


def in_process(arguments: list[str], devices: int) -> str:
    """What `python ARGUMENTS` prints in a process that has so many devices."""
    return run(*arguments, devices=devices, check=True, timeout=600.0).stdout
