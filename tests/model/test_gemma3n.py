"""Gemma 3n against torch: many requests behind common tokens, texts, an Orbax tree, and its refusals."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.traverse_util import unflatten_dict
from safetensors.numpy import load_file, save_file

from miron_jax.model.families import gemma3n
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.hf_reader import load_hf
from miron_jax.model.training_run import load_step
from tests.support.against_torch import check_bfloat16, check_scores, check_texts
from tests.support.hf_folders import error_of
from tests.support.torch_folders import save_tiny

SIZES: dict[str, Any] = {
    "vocab_size": 331, "hidden_size": 36, "intermediate_size": 40, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 10, "sliding_window": 6, "hidden_size_per_layer_input": 7, "laurel_rank": 5,
    "vocab_size_per_layer_input": 320, "max_position_embeddings": 128, "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "activation_sparsity_pattern": [0.7, 0.95, 0.0, 0.0, 0.5], "final_logit_softcapping": 3.0,
}  # fmt: skip
MODELS = {
    "published": SIZES,
    "other": SIZES | {
        "num_kv_shared_layers": 0, "altup_active_idx": 1, "altup_num_inputs": 3, "altup_correct_scale": False,
        "tie_word_embeddings": False, "attention_bias": True, "activation_sparsity_pattern": [0.0] * 5,
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    return folder, save_tiny(folder, "Gemma3n", MODELS[request.param])


@pytest.mark.slow
def test_scores_are_those_of_torch(saved: tuple[Path, Any]) -> None:
    check_scores(*saved)


@pytest.mark.slow
def test_in_bfloat16_too(saved: tuple[Path, Any]) -> None:
    check_bfloat16(*saved)


def test_a_token_beyond_the_table_of_the_layers_reads_its_first_row() -> None:
    sizes: Any = SimpleNamespace(per_layer=3, kinds=("full", "full"), width=4, norm_eps=1e-6)
    rng = np.random.default_rng(0)
    shapes = {"embedding_VD": (5, 6), "project/kernel_IO": (4, 6), "norm/weight": (3,)}
    weights = unflatten_dict(
        {tuple(k.split("/")): jnp.asarray(rng.normal(size=v), jnp.float32) for k, v in shapes.items()}
    )
    x_BTD = jnp.ones((1, 4, 4))
    computed = gemma3n._per_layer_inputs(sizes, weights, jnp.asarray([[0, 4, 5, 9]], jnp.int32), x_BTD)
    zero, last, beyond, far = np.moveaxis(np.asarray(computed)[:, 0], 1, 0)
    np.testing.assert_array_equal(zero, beyond)
    np.testing.assert_array_equal(zero, far)
    assert (zero != last).all()


@pytest.mark.slow
def test_texts_are_those_of_torch(saved: tuple[Path, Any], tmp_path: Path) -> None:
    stem = np.random.default_rng(0).integers(1, 300, 20).tolist()
    check_texts(*saved, [stem[:3], stem, stem[:9]], tmp_path)


@pytest.mark.slow
def test_an_orbax_tree_of_the_engines_names(saved: tuple[Path, Any], tmp_path: Path) -> None:
    config, state = load_hf(saved[0], jnp.float32)
    with ocp.PyTreeCheckpointer() as saver:
        saver.save(tmp_path / "7", state)
    again = load_step(tmp_path / "7", config, jnp.float32)
    jax.tree.map(np.testing.assert_array_equal, again, state)


@pytest.mark.slow
def test_a_multimodal_checkpoint_is_read_by_its_text_model(tmp_path: Path) -> None:
    """Also where the layers that share keys and values have some of their own, as published ones do."""
    save_tiny(tmp_path, "Gemma3n", SIZES)
    config, state = load_hf(tmp_path, jnp.float32)
    fields = json.loads((tmp_path / "config.json").read_text()) | {
        "altup_lr_multiplier": 1.0,
        "query_pre_attn_scalar": 256,
    }
    tensors = load_file(tmp_path / "model.safetensors")
    whole = {name.replace("model.", "model.language_model.", 1): x for name, x in tensors.items()}
    whole["model.vision_tower.conv.weight"] = np.ones(3, np.float32)
    whole["model.language_model.layers.4.self_attn.k_proj.weight"] = np.ones((20, 36), np.float32)
    save_file(whole, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3n", "text_config": fields}))
    again = load_hf(tmp_path, jnp.float32)
    assert again.config == config
    jax.tree.map(np.testing.assert_array_equal, again.state, state)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "sizes of MLPs": ({"intermediate_size": [40, 40, 40, 40, 44]}, "one size for all layers"),
    "shared layers": ({"num_kv_shared_layers": 5}, "num_kv_shared_layers is 5, expected a number from 0 to 4"),
    "shared kinds": ({"num_kv_shared_layers": 4}, "keys and values|producing a cache"),
    "sparsity": ({"activation_sparsity_pattern": [0.7, 1.0, 0.0, 0.0, 0.0]}, "numbers from 0 to below 1"),
    "active stream": ({"altup_active_idx": 4}, "altup_active_idx is 4"),
    "heads": ({"num_key_value_heads": 3}, "num_key_value_heads is 3, expected a divisor"),
    "an unknown field": ({"gate_scale": 2.0}, "field 'gate_scale' = 2.0 is not known"),
}


@pytest.mark.parametrize("name", WRONG)
def test_every_refusal_is_a_sentence(name: str, tmp_path: Path) -> None:
    fields, expected = WRONG[name]
    (tmp_path / "config.json").write_text(json.dumps(SIZES | {"model_type": "gemma3n_text"} | fields))
    message = error_of(lambda: from_hf_config(tmp_path))
    assert any(part in message for part in expected.split("|")), message
