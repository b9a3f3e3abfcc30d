"""Mamba 1 and 2, Falcon Mamba and RecurrentGemma against torch, one text whole and many texts by shared states."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.forward import Forward
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.errors import InputError
from miron_jax.model.costs import cost_model
from miron_jax.model.families import mamba2
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.hf_reader import load_hf
from miron_jax.model.walk import group_sizes
from miron_jax.planning.request_batches import Totals
from tests.support.against_torch import check_bfloat16, check_scores, check_texts, loaded, one_by_one
from tests.support.requests import requests_of
from tests.support.tiny_families import RECURRENT
from tests.support.tolerances import KERNEL, TOKEN
from tests.support.torch_folders import save_tiny

VOCAB = 331
LONG = ("recurrent_gemma-biases",)  # left to `make test-long`
FAMILIES = [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in RECURRENT]


@pytest.fixture(scope="module", params=FAMILIES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    torch_model = save_tiny(folder, *RECURRENT[request.param])
    return folder, torch_model


@pytest.mark.slow
def test_scores_are_those_of_torch(saved: tuple[Path, Any]) -> None:
    check_scores(*saved)


@pytest.mark.slow
def test_in_bfloat16_too(saved: tuple[Path, Any]) -> None:
    check_bfloat16(*saved)


@pytest.mark.slow
def test_texts_are_those_of_torch(saved: tuple[Path, Any], tmp_path: Path) -> None:
    stem = np.random.default_rng(0).integers(1, 300, 30).tolist()
    check_texts(*saved, [stem[:1], stem[:11], stem, [*stem, 7, 8]], tmp_path)


@pytest.mark.slow
def test_requests_shorter_than_a_chunk_have_room(tmp_path: Path) -> None:
    """A cache has room for the longest request, which no program's chunks exceed."""
    folder, torch_model = tmp_path, save_tiny(tmp_path, *RECURRENT["recurrent_gemma-biases"])
    model = loaded(folder)
    requests = requests_of([([5, 6, 7, 8, 9], 2), ([5, 6, 7, 4], 2), ([3, 2], 1)])
    forward, check = Forward(model), SelfCheck(TOLERANCE["float32"])
    with jax.default_matmul_precision("highest"):
        [scores] = score_request_batches([requests], forward, cost_model(model.config), Totals(), check)
    for score, expected in zip(scores, one_by_one(torch_model, requests), strict=True):
        np.testing.assert_allclose(score.logprob, expected, rtol=0, atol=TOKEN)
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


PUBLISHED = {  # fields of published conversions that say nothing more
    "mamba": {
        "d_inner": 48, "d_model": 24, "n_layer": 3, "fused_add_norm": True, "pad_vocab_size_multiple": 8, "rms_norm": True,
        "ssm_cfg": {},
    },
    "falcon_mamba": {"use_falcon_mambapy": True},
    "mamba2": {
        "time_step_init_scheme": "random", "time_step_scale": 1.0, "intermediate_size": 48,
        "rms_norm": True, "norm_before_gate": True,
    },
}  # fmt: skip


def write_config(folder: Path, family: str, **changes: Any) -> Path:
    """A config.json of this family and nothing beside it."""
    (folder / "config.json").write_text(json.dumps(RECURRENT[family][1] | {"model_type": family} | changes))
    return folder


@pytest.mark.parametrize("family", PUBLISHED)
def test_fields_of_published_configs_that_say_nothing_more_are_read(family: str, tmp_path: Path) -> None:
    before = from_hf_config(write_config(tmp_path, family))
    assert from_hf_config(write_config(tmp_path, family, **PUBLISHED[family])) == before


@pytest.mark.parametrize("family", ["mamba", "falcon_mamba", "mamba2", "recurrent_gemma"])
def test_equal_configs_are_one_model(family: str, tmp_path: Path) -> None:
    """So that a run's steps share their programs."""
    first, second = (from_hf_config(write_config(tmp_path, family)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert from_hf_config(write_config(tmp_path, family, vocab_size=332)) != first


UNLIKE_WEIGHTS = [
    ({"state_size": 5}, "shape .* config.json expects"),
    ({"num_hidden_layers": 4}, "no tensor backbone.layers.3"),
    ({"num_hidden_layers": 2}, "tensors that a mamba model of this config.json has no place for"),
]
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "an unknown field": ("mamba", {"gate_scale": 2.0}, "field 'gate_scale' = 2.0 is not known"),
    "heads and expand": ("mamba2", {"head_dim": 5}, "head_dim|must equal"),
    "groups": ("mamba2", {"n_groups": 4}, "n_groups is 4, expected a divisor of num_heads = 6"),
    "a kind of block": ("recurrent_gemma", {"block_types": ["recurrent", "x"]}, "block_types"),
    "key-value heads": ("recurrent_gemma", {"num_key_value_heads": 3}, "a divisor of 4 heads"),
    "a rank": ("mamba", {"time_step_rank": 0}, "time_step_rank is 0, expected a number"),
    "limits of a step": ("mamba2", {"time_step_limit": [0.5, 0.1]}, "time_step_limit is .*, expected two numbers"),
    "another rotation": (
        "recurrent_gemma",
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
        "rope_type",
    ),
    "an odd width": ("recurrent_gemma", {"intermediate_size": 61}, "intermediate_size is 61, expected an even number"),
    "no window": (
        "recurrent_gemma",
        {"attention_window_size": 0},
        "attention_window_size is 0, expected a whole number",
    ),
    "groups of no head": ("mamba2", {"n_groups": 0}, "n_groups is 0, expected a whole number"),
    "a norm of another kind": ("mamba", {"rms_norm": False}, "rms_norm is False, expected true"),
    "a size that two fields give": ("mamba", {"d_model": 25}, "d_model is 25, expected hidden_size's 24"),
    "another activation": ("falcon_mamba", {"hidden_act": "tanh"}, "hidden_act is 'tanh', expected one of"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_config_that_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    family, changes, words = WRONG[name]
    with pytest.raises(InputError, match=words):
        from_hf_config(write_config(tmp_path, family, **changes))


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "words"), UNLIKE_WEIGHTS)
def test_a_config_of_other_weights_is_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    save_tiny(tmp_path, *RECURRENT["mamba"])
    write_config(tmp_path, "mamba", **changes)
    with pytest.raises(InputError, match=words):
        load_hf(tmp_path, jnp.float32)
