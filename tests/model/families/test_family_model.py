"""Mamba 1 and 2, Falcon Mamba, RecurrentGemma and Gemma 3n against torch: requests that share tokens, texts, refusals."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.traverse_util import unflatten_dict
from safetensors.numpy import load_file, save_file

from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import TextRequest
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.checkpoints.training_run import load_step
from miron_jax.model.costs import cost_model
from miron_jax.model.families import gemma3n, mamba, mamba2
from miron_jax.model.stateful.walk import group_sizes
from miron_jax.planning.request_batches import Totals
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.hf_folders import error_of
from tests.support.needs import needs
from tests.support.own_models import some_requests
from tests.support.requests import requests_of
from tests.support.tiny_families import RECURRENT
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import BFLOAT16, KERNEL, TOKEN
from tests.support.torch_folders import save_tiny

GEMMA3N: dict[str, Any] = {
    "vocab_size": 331, "hidden_size": 36, "intermediate_size": 40, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 10, "sliding_window": 6, "hidden_size_per_layer_input": 7, "laurel_rank": 5,
    "vocab_size_per_layer_input": 320, "max_position_embeddings": 128, "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "activation_sparsity_pattern": [0.7, 0.95, 0.0, 0.0, 0.5], "final_logit_softcapping": 3.0,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = RECURRENT | {
    "gemma3n_text": ("Gemma3n", GEMMA3N),
    "gemma3n-unshared": ("Gemma3n", GEMMA3N | {
        "num_kv_shared_layers": 0, "altup_active_idx": 1, "altup_num_inputs": 3, "altup_correct_scale": False,
        "tie_word_embeddings": False, "attention_bias": True, "activation_sparsity_pattern": [0.0] * 5,
    }),
}  # fmt: skip
FAMILIES = ("mamba", "falcon_mamba", "mamba2", "recurrent_gemma", "gemma3n_text")
LONG = ("recurrent_gemma-biases",)  # left to `make test-long`


class Saved(NamedTuple):
    folder: Path
    torch_model: Any
    model: Model


def loaded(folder: Path, dtype: str) -> Model:
    config, state = load_hf(folder, jnp.dtype(dtype))
    return Model(config, config, state)


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in MODELS]
)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp(request.param)
    torch_model = save_tiny(folder, *MODELS[request.param])
    return Saved(folder, torch_model, loaded(folder, "float32"))


of_each_family = pytest.mark.parametrize("saved", FAMILIES, indirect=True)


def torch_logprobs(torch_model: Any, row: np.ndarray) -> np.ndarray:
    """[T, V]; without torch's cache, in which a row of one token of RecurrentGemma fails (transformers 5.24)."""
    torch = needs("torch")
    with torch.no_grad():
        logits = torch_model(torch.tensor(np.asarray(row, np.int64)[None]), use_cache=False).logits
    return torch.log_softmax(logits.double(), dim=-1).numpy()[0]


def check_scores(model: Model, torch_model: Any, requests: Any) -> Totals:
    """Beside torch, one request a call, and beside the plain scorer."""
    forward, check, totals = Forward(model, token_budget=300), SelfCheck(TOLERANCE["float32"]), Totals()
    [scores] = score_request_batches([requests], forward, cost_model(model.config), totals, check)
    for (ids, start), score in zip(requests, scores, strict=True):
        expected = torch_logprobs(torch_model, ids[:-1])[np.arange(start - 1, len(ids) - 1), ids[start:]]
        np.testing.assert_allclose(score.logprob, expected, rtol=0, atol=TOKEN)
    assert check.requests >= min(8, len(requests))
    return totals


@pytest.mark.slow
def test_scores_are_those_of_torch(saved: Saved) -> None:
    totals = check_scores(saved.model, saved.torch_model, some_requests())
    assert totals.plain_tokens > 2 * totals.unique_tokens


@pytest.mark.slow
@of_each_family
def test_in_bfloat16_too(saved: Saved) -> None:
    """The plain scorer's row, which is one program, and whose numbers the self-check compares with."""
    ids = np.random.default_rng(5).integers(1, 331, 40, dtype=np.int32)
    expected = torch_logprobs(saved.torch_model, ids[:-1])[np.arange(39), ids[1:]]
    [score], _ = score_plainly(loaded(saved.folder, "bfloat16"), [ids], [1])
    np.testing.assert_allclose(score.logprob, expected, rtol=0, atol=BFLOAT16)


@pytest.mark.slow
@of_each_family
def test_texts_are_those_of_torch(saved: Saved, tmp_path: Path) -> None:
    stem = np.random.default_rng(0).integers(1, 300, 30).tolist()
    prompts = [stem[:1], stem[:11], stem, [*stem, 7, 8]]
    make_tokenizer(tmp_path)
    generator = Generator(saved.model, load_tokenizer(str(tmp_path)), slots=len(prompts) - 1)
    texts = generator.run([TextRequest(tuple(ids), 4 + i) for i, ids in enumerate(prompts)])
    for ids, text in zip(prompts, texts, strict=True):
        logprobs = torch_logprobs(saved.torch_model, np.asarray([*ids, *text.token_ids]))[len(ids) - 1 : -1]
        chosen = logprobs[np.arange(len(text.token_ids)), list(text.token_ids)]
        assert (chosen > logprobs.max(axis=-1) - TOKEN).all(), "two tokens may be level within rounding"


@pytest.mark.slow
def test_requests_shorter_than_a_chunk_have_room(tmp_path: Path) -> None:
    """A cache has room for the longest request, which no program's chunks exceed."""
    torch_model = save_tiny(tmp_path, *RECURRENT["recurrent_gemma-biases"])
    model = loaded(tmp_path, "float32")
    check_scores(model, torch_model, requests_of([([5, 6, 7, 8, 9], 2), ([5, 6, 7, 4], 2), ([3, 2], 1)]))
    assert all(size.tokens <= 4 for size in group_sizes(model.config, model.state, 4, False, 1e9))  # type: ignore[arg-type]


def test_a_block_of_mamba_2_keeps_its_precision_where_tokens_forget_fast() -> None:
    """Against a loop over tokens in float64."""
    rng = np.random.default_rng(0)
    length, heads, states, dim = 120, 2, 4, 3
    x, b, c = (rng.normal(size=(length, 1, *rest)) for rest in ((heads, dim), (states,), (states,)))
    dt = np.where(np.arange(length) < 100, 5.0, 0.001)[:, None, None] * np.ones((1, 1, heads))
    log_decay = -100.0 * dt
    h, wanted = np.zeros((1, heads, dim, states)), []
    for t in range(length):
        h = np.exp(log_decay[t])[..., None, None] * h + (dt[t][..., None] * x[t])[..., None] * b[t][:, None, None]
        wanted.append((h * c[t][:, None, None]).sum(axis=-1))
    arrays = [jnp.asarray(each, jnp.float32) for each in (x, dt, log_decay, b, c)]
    last, outputs = mamba2._block(jnp.zeros((1, heads, dim, states)), *arrays)
    np.testing.assert_allclose(outputs, np.stack(wanted), rtol=KERNEL, atol=KERNEL)
    np.testing.assert_allclose(last, h, rtol=KERNEL, atol=KERNEL)


def test_a_gpu_walks_16_tokens_of_mamba_a_trip() -> None:
    """Counts the steps of a trip in what each platform lowers."""
    channels, states, rank = 6, 2, 1
    sizes = mamba._MambaSizes(1, channels, states, rank, 4, 1e-5, "relu", None)
    shapes: Any = {
        "in": {"kernel_IO": (4, 2 * channels)}, "x": {"kernel_IO": (channels, rank + 2 * states)},
        "dt": {"kernel_IO": (rank, channels)}, "out": {"kernel_IO": (channels, 4)},
        "conv": {"weight_C1K": (channels, 1, 4)}, "A_log_IN": (channels, states), "D_I": (channels,),
    }  # fmt: skip
    state = {"conv": (3, channels), "ssm": (channels, states)}
    weights, before = (jax.tree.map(jnp.ones, tree, is_leaf=lambda x: isinstance(x, tuple)) for tree in (shapes, state))
    traced = jax.jit(partial(mamba._mixer, sizes)).trace(weights, before, jnp.ones((64, 4)))
    lowered = {platform: traced.lower(lowering_platforms=(platform,)).as_text() for platform in ("cpu", "cuda")}
    # a step is a call, or stands there itself, as the version of jax has it
    steps = {platform: text.count("call @") + text.count("stablehlo.multiply") for platform, text in lowered.items()}
    assert steps["cuda"] >= steps["cpu"] + 15


def test_a_token_beyond_gemma_3ns_table_of_the_layers_reads_its_first_row() -> None:
    sizes: Any = SimpleNamespace(per_layer=3, kinds=("full", "full"), width=4, norm_eps=1e-6)
    rng = np.random.default_rng(0)
    shapes = {("embedding_VD",): (5, 6), ("project", "kernel_IO"): (4, 6), ("norm", "weight"): (3,)}
    weights = unflatten_dict({name: jnp.asarray(rng.normal(size=x), jnp.float32) for name, x in shapes.items()})
    ids = jnp.asarray([[0, 4, 5, 9]], jnp.int32)
    computed = gemma3n._per_layer_inputs(sizes, weights, ids, jnp.ones((1, 4, 4)))
    zero, last, beyond, far = np.moveaxis(np.asarray(computed)[:, 0], 1, 0)
    np.testing.assert_array_equal(zero, beyond)
    np.testing.assert_array_equal(zero, far)
    assert (zero != last).all()


@pytest.mark.slow
@pytest.mark.parametrize("saved", ["gemma3n_text"], indirect=True)
def test_trees_of_gemma_3n(saved: Saved, tmp_path: Path) -> None:
    """Orbax with the engine's names; a multimodal folder, whose layers that share keys have some, as published ones do."""
    with ocp.PyTreeCheckpointer() as saver:
        saver.save(tmp_path / "7", saved.model.state)
    config: Any = saved.model.config
    jax.tree.map(np.testing.assert_array_equal, load_step(tmp_path / "7", config, jnp.float32), saved.model.state)
    fields = json.loads((saved.folder / "config.json").read_text())
    fields |= {"altup_lr_multiplier": 1.0, "query_pre_attn_scalar": 256}
    tensors = load_file(saved.folder / "model.safetensors")
    whole = {name.replace("model.", "model.language_model.", 1): x for name, x in tensors.items()}
    whole["model.vision_tower.conv.weight"] = np.ones(3, np.float32)
    whole["model.language_model.layers.4.self_attn.k_proj.weight"] = np.ones((20, 36), np.float32)
    save_file(whole, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3n", "text_config": fields}))
    again = load_hf(tmp_path, jnp.float32)
    assert again.config == config
    jax.tree.map(np.testing.assert_array_equal, again.state, saved.model.state)


PUBLISHED: dict[str, dict[str, Any]] = {  # fields of published conversions that say nothing more
    "mamba": {
        "d_inner": 48, "d_model": 24, "n_layer": 3, "fused_add_norm": True, "pad_vocab_size_multiple": 8, "rms_norm": True,
        "ssm_cfg": {},
    },
    "falcon_mamba": {"use_falcon_mambapy": True},
    "mamba2": {
        "time_step_init_scheme": "random", "time_step_scale": 1.0, "intermediate_size": 48,
        "rms_norm": True, "norm_before_gate": True,
    },
    "recurrent_gemma": {},
}  # fmt: skip


def write_config(folder: Path, family: str, **changes: Any) -> Path:
    """A config.json of this family and nothing beside it."""
    (folder / "config.json").write_text(json.dumps(MODELS[family][1] | {"model_type": family} | changes))
    return folder


@pytest.mark.parametrize("family", PUBLISHED)
def test_equal_configs_are_one_model(family: str, tmp_path: Path) -> None:
    """So that a run's steps share their programs."""
    first, second = (from_hf_config(write_config(tmp_path, family, **more)) for more in ({}, PUBLISHED[family]))
    assert first == second
    assert hash(first) == hash(second)
    assert from_hf_config(write_config(tmp_path, family, vocab_size=332)) != first


# fmt: off
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("mamba", {"gate_scale": 2.0}, "field 'gate_scale' = 2.0 is not known"),
    ("mamba", {"time_step_rank": 0}, "time_step_rank is 0, expected a number"),
    ("mamba", {"rms_norm": False}, "rms_norm is False, expected true"),
    ("mamba", {"d_model": 25}, "d_model is 25, expected hidden_size's 24"),
    ("falcon_mamba", {"hidden_act": "tanh"}, "hidden_act is 'tanh', expected one of"),
    ("mamba", {"rescale_prenorm_residual": True}, "rescale_prenorm_residual is True, expected false (transformers divides"),
    ("falcon_mamba", {"rescale_prenorm_residual": True}, "rescale_prenorm_residual is True, expected false"),
    ("mamba2", {"rescale_prenorm_residual": True}, "rescale_prenorm_residual is True, expected false"),
    ("mamba2", {"head_dim": 5}, "head_dim|must equal"),
    ("mamba2", {"n_groups": 4}, "n_groups is 4, expected a divisor of num_heads = 6"),
    ("mamba2", {"n_groups": 0}, "n_groups is 0, expected a whole number"),
    ("mamba2", {"time_step_limit": [0.5, 0.1]}, "time_step_limit is [0.5, 0.1], expected two numbers"),
    ("recurrent_gemma", {"block_types": ["recurrent", "x"]}, "block_types"),
    ("recurrent_gemma", {"num_key_value_heads": 3}, "a divisor of 4 heads"),
    ("recurrent_gemma", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "rope_type"),
    ("recurrent_gemma", {"intermediate_size": 61}, "intermediate_size is 61, expected an even number"),
    ("recurrent_gemma", {"attention_window_size": 0}, "attention_window_size is 0, expected a whole number"),
    ("gemma3n_text", {"intermediate_size": [40, 40, 40, 40, 44]}, "one size for all layers"),
    ("gemma3n_text", {"num_kv_shared_layers": 5}, "num_kv_shared_layers is 5, expected a number from 0 to 4"),
    ("gemma3n_text", {"num_kv_shared_layers": 4}, "keys and values|producing a cache"),
    ("gemma3n_text", {"activation_sparsity_pattern": [0.7, 1.0, 0.0, 0.0, 0.0]}, "numbers from 0 to below 1"),
    ("gemma3n_text", {"altup_active_idx": 4}, "altup_active_idx is 4"),
    ("gemma3n_text", {"num_key_value_heads": 3}, "num_key_value_heads is 3, expected a divisor"),
    ("gemma3n_text", {"gate_scale": 2.0}, "field 'gate_scale' = 2.0 is not known"),
]
# fmt: on


@pytest.mark.parametrize(("family", "changes", "parts"), WRONG)
def test_a_config_that_does_not_fit_is_refused(family: str, changes: Any, parts: str, tmp_path: Path) -> None:
    message = error_of(lambda: from_hf_config(write_config(tmp_path, family, **changes)))
    assert any(part in message for part in parts.split("|")), message  # transformers may be the first to refuse


@pytest.mark.slow
def test_a_config_of_other_weights_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path, *RECURRENT["mamba"])
    for changes, part in (
        ({"state_size": 5}, "config.json expects"),
        ({"num_hidden_layers": 4}, "no tensor backbone.layers.3"),
        ({"num_hidden_layers": 2}, "tensors that a mamba model of this config.json has no place for"),
    ):
        write_config(tmp_path, "mamba", **changes)
        assert part in error_of(lambda: load_hf(tmp_path, jnp.float32))
