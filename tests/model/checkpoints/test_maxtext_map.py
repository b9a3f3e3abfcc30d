"""MaxText's trees: the weights of each layout, and the scores that each field of MaxText's config gives them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from miron_jax import load_params
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.model import demo
from miron_jax.model.checkpoints.checkpoints import architecture_of, checkpoints_of, find_model
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.loading import load
from miron_jax.model.checkpoints.maxtext_settings import maxtext_config
from miron_jax.model.checkpoints.orbax_reader import load_orbax
from miron_jax.model.config import ModelConfig, Rope
from miron_jax.model.decoder.decoder import leaf_name
from miron_jax.model.decoder.rope import rope_of
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.progress import Lines
from tests.support import plain_rows
from tests.support.command import in_process
from tests.support.maxtext import logprobs, save_items, to_maxtext
from tests.support.tolerances import MOVED, ROUNDING, TOKEN
from tests.support.toy_decoders import GEMMA, GEMMA2, GEMMA3, LLAMA, seeded, with_layers

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

PLAIN = {"model_name": "default", "rope_type": "default"}
UNTIED = {"logits_via_embedding": False}
TIED = {"logits_via_embedding": True, "normalize_embedding_logits": True}
UNDIVIDED = TIED | {"normalize_embedding_logits": False}
LLAMA31 = PLAIN | {"rope_type": "llama3.1"}
MODELS = {  # config, fields
    "llama": (LLAMA, PLAIN),
    "llama 3.1": (LLAMA, LLAMA31),
    "tied": (replace(LLAMA, tied_head=True), PLAIN | TIED),
    "gemma": (GEMMA, PLAIN | TIED),
    "gemma 2": (GEMMA2, PLAIN | TIED),
    "gemma 3": (GEMMA3, PLAIN | TIED | {"model_name": "gemma3-4b"}),
    "gemma 3, interleaved": (GEMMA3, PLAIN | TIED | {"model_name": "gemma3-4b", "rope_type": "yarn"}),
}


def write(folder: Path, fields: dict[str, Any]) -> str:
    (folder / "maxtext.yml").write_text(json.dumps(fields))
    return str(folder / "maxtext.yml")


def is_interleaved(fields: dict[str, Any]) -> bool:
    return fields["rope_type"] != "default"


def assert_weights(loaded: Any, expected: Any, **scaled: float) -> None:
    """Equal up to float32's rounding of a factor and its inverse; `scaled`: leaves that are so many times the expected."""
    assert jax.tree.structure(loaded) == jax.tree.structure(expected)
    for (path, leaf), x in zip(jax.tree.leaves_with_path(expected), jax.tree.leaves(loaded), strict=True):
        name = leaf_name(path)
        wanted = np.asarray(leaf) * np.float32(scaled.get(name, 1.0))
        np.testing.assert_allclose(x, wanted, rtol=ROUNDING, atol=ROUNDING, err_msg=name)


@pytest.mark.parametrize("scanned", [True, False], ids=["scanned", "layer by layer"])
@pytest.mark.parametrize("name", MODELS)
def test_maxtext_trees_hold_the_weights(name: str, scanned: bool, tmp_path: Path) -> None:
    config, fields = MODELS[name]
    axis = 0 if name == "llama 3.1" and scanned else 1
    tree = to_maxtext(config, scanned, is_interleaved(fields), axis)
    if not scanned:  # an NNX-era file has a level of `value`
        tree = jax.tree.map(lambda x: {"value": x}, tree)
    file = write(tmp_path, fields | {"param_scan_axis": axis})
    of_logits = 12**-0.5 if name == "tied" else 1.0  # what divides the logits divides the norm before them
    loaded = load_orbax(save_items(tmp_path / "run", tree), config, jnp.float32, file)
    assert_weights(loaded, seeded(config), **{"final_norm/weight": of_logits})


def test_maxtexts_embedding_of_gemma_is_divided_by_the_scale_that_the_run_uses(tmp_path: Path) -> None:
    """A run in bfloat16 rounds the scale first: 3.4641 to 3.4688."""
    tree = to_maxtext(GEMMA)
    loaded = load_orbax(save_items(tmp_path / "run", tree), GEMMA, jnp.bfloat16, write(tmp_path, PLAIN | TIED))
    expected = tree["token_embedder"]["embedding"][: GEMMA.vocab_size] / np.float32(3.46875)
    np.testing.assert_array_equal(loaded["embedding_VD"][...], expected.astype(jnp.bfloat16))


def roped(config: ModelConfig, kind: str, **parameters: Any) -> ModelConfig:
    rope = rope_of(kind, {"rope_theta": 1e4} | parameters, config.head_dim)
    return replace(config, layer_ropes=(rope,) * config.num_layers)


YARN = {"rope_type": "yarn", "rope_max_timescale": 10_000, "rope_factor": 4, "original_max_position_embeddings": 8}
YARN_HF = {"factor": 4.0, "original_max_position_embeddings": 8, "attention_factor": 1.0}
LLAMA3_HF = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_theta": 1e8,
}  # fmt: skip
SMALL = with_layers(LLAMA, (None,) * 2)
SMALL_TIED = replace(SMALL, tied_head=True)
SMALL_GEMMA = replace(with_layers(GEMMA, (None,) * 2), norm_eps=1e-6)
# config.json, MaxText's fields, and others that give other scores of the same arrays by the same config.json
SCORES: dict[str, tuple[ModelConfig, dict[str, Any], dict[str, Any] | None]] = {
    "plain": (SMALL, PLAIN, None),
    "a name that interleaves": (
        roped(SMALL, "llama3", **LLAMA3_HF),
        PLAIN | {"model_name": "llama3.1-8b", "rope_max_timescale": 100_000_000},
        None,
    ),
    "interleaved, unscaled": (
        SMALL,
        LLAMA31 | {"rope_use_scale": False, "rope_max_timescale": 10_000},
        PLAIN,
    ),
    "yarn": (roped(SMALL, "yarn", **YARN_HF), PLAIN | YARN, PLAIN | YARN | {"rope_interleave": False}),
    "yarn in halves": (roped(SMALL, "yarn", **YARN_HF), PLAIN | YARN | {"rope_interleave": False}, PLAIN | YARN),
    "yarn that scales": (
        roped(SMALL, "yarn", **YARN_HF | {"attention_factor": None}),
        PLAIN | YARN | {"rope_attention_scaling": True},
        None,
    ),
    "linear": (roped(SMALL, "linear", factor=4.0), PLAIN | {"rope_linear_scaling_factor": 4.0}, None),
    "soft cap of attention": (SMALL, PLAIN | {"attn_logits_soft_cap": 0.5}, PLAIN),
    "a cap that a dense head does not read": (SMALL, PLAIN | {"final_logits_soft_cap": 0.5}, None),
    "a cap that Mistral's block does not read": (
        SMALL,
        PLAIN | {"decoder_block": "mistral", "attn_logits_soft_cap": 0.5},
        PLAIN | {"attn_logits_soft_cap": 0.5},
    ),
    "tied": (SMALL_TIED, PLAIN | TIED, PLAIN | UNDIVIDED),
    "tied, with caps": (
        SMALL_TIED,
        PLAIN | UNDIVIDED | {"attn_logits_soft_cap": 0.5, "final_logits_soft_cap": 1.5},
        PLAIN | UNDIVIDED | {"attn_logits_soft_cap": 0.5},
    ),
    "gemma": (SMALL_GEMMA, PLAIN | TIED | {"decoder_block": "gemma"}, PLAIN | UNDIVIDED),
    "gemma, undivided": (SMALL_GEMMA, PLAIN | UNDIVIDED | {"decoder_block": "gemma"}, PLAIN | TIED),
    "gemma with a final cap": (
        SMALL_GEMMA,
        PLAIN | TIED | {"decoder_block": "gemma", "attn_logits_soft_cap": 0.5, "final_logits_soft_cap": 1.5},
        PLAIN | TIED,
    ),
}


def scores(folder: Path, step: Path, config: ModelConfig, fields: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    file = write(folder, fields)
    trained = maxtext_config(config, file, jnp.float32)
    return plain_rows.logprobs(trained, load_orbax(step, trained, jnp.float32, file), tokens[None])[0]


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_maxtexts(name: str, tmp_path: Path) -> None:
    """Against a twin in float64; other fields give other scores of the same arrays."""
    config, fields, others = SCORES[name]
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, 19).astype(np.int32)
    tree = to_maxtext(config, scanned=False)
    step = save_items(tmp_path / "run", tree)
    rope: Rope = config.layer_ropes[0]
    expected = logprobs(tree, tokens, config.vocab_size, config, rope, fields)
    received = scores(tmp_path, step, config, fields, tokens)
    np.testing.assert_allclose(received, expected, rtol=0, atol=TOKEN)
    if others is not None:
        assert np.abs(scores(tmp_path, step, config, others, tokens) - expected).max() > MOVED


def test_the_table_of_a_tied_head_is_rounded(tmp_path: Path) -> None:
    """MaxText's head reads the embedding in bfloat16 in whatever dtype it computes; a run in bfloat16 holds one table."""
    file = write(tmp_path, PLAIN | TIED)
    trained = maxtext_config(SMALL_TIED, file, jnp.float32)
    assert not trained.tied_head
    assert maxtext_config(SMALL_TIED, file, jnp.bfloat16) == SMALL_TIED
    loaded = load_orbax(save_items(tmp_path / "run", to_maxtext(SMALL_TIED)), trained, jnp.float32, file)
    embedding, head = np.asarray(loaded["embedding_VD"][...]), np.asarray(loaded["head_VD"][...])
    np.testing.assert_array_equal(head, embedding.astype(jnp.bfloat16).astype(np.float32))
    assert (head != embedding).mean() > 0.9


def test_a_run_reads_the_file_beside_config_json(tmp_path: Path) -> None:
    """The demo model has a tied head, and weights in bfloat16, which rounding the table leaves as they are."""
    run = tmp_path / "run"
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        run.mkdir(exist_ok=True)
        shutil.copy(demo.FOLDER / name, run)
    weights = jax.tree.map(np.asarray, nnx.to_pure_dict(load_params("demo")))
    save_items(run, to_maxtext(from_hf_config(demo.FOLDER), weights=weights))
    ran = in_process("eval", f"--model={run}", "--tasks=miron-gen", "--limit=1", f"--output={tmp_path / 'refused'}")
    assert ran.status == 2
    assert "name MaxText's own config, --param_map=config.yml" in ran.err
    tokens = np.random.default_rng(1).integers(0, 1280, (1, 24)).astype(np.int32)
    expected = plain_rows.logprobs(from_hf_config(demo.FOLDER), load_params("demo"), tokens)
    lines: list[str] = []
    received = {}
    for name, fields in (("as it is", PLAIN | UNDIVIDED), ("divided", PLAIN | TIED)):
        config = RunConfig(model=str(run), tasks=("none",), dtype="float32", param_map=write(tmp_path, fields))
        files = find_model(config)
        architecture = architecture_of(config, files)
        assert isinstance(architecture.config, ModelConfig)
        [checkpoint] = checkpoints_of(config, files)
        state = load(architecture, config, checkpoint, Placement.default(), Lines(lines.append)).state
        received[name] = plain_rows.logprobs(architecture.config, state, tokens)
    np.testing.assert_allclose(received["as it is"], expected, rtol=0, atol=TOKEN)
    assert np.abs(received["divided"] - expected).max() > MOVED
    lacks = "MaxText's defaults are taken for what it lacks: attn_logits_soft_cap, final_logits_soft_cap"
    assert [line.endswith(lacks) for line in lines] == [True, True]


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_items(tmp_path_factory.mktemp("maxtext") / "untied", to_maxtext(LLAMA))


def test_maxtext_trees_that_are_refused(untied: Path, tmp_path: Path) -> None:
    file = write(tmp_path, PLAIN)
    for config, words in (
        (replace(LLAMA, family="qwen2"), "MaxText tree of a qwen2 model is not read"),
        (replace(LLAMA, qkv_bias=True), "asks for layers/attn/k/bias_O, .*which such a tree has no place for"),
        (with_layers(LLAMA, (None,) * 4), "expected 4 layers along axis 1; use .* its param_scan_axis is to stand in"),
        (with_layers(LLAMA, (None,) * 2), "expected 2 layers along"),
        (replace(LLAMA, d_ff=15), "query/kernel|wi_0/kernel gives|wi_1/kernel gives|wo/kernel gives"),
        (replace(LLAMA, num_heads=3, head_dim=4), r"has shape \[.*\], expected . heads of 4"),
    ):
        with pytest.raises(InputError, match=words):
            load_orbax(untied, config, jnp.float32, file)
    with pytest.raises(InputError, match=r"does not say how it rotates, .*: name MaxText's own config"):
        load_orbax(untied, LLAMA, jnp.float32)
    with pytest.raises(InputError, match="has params/params/decoder/logits_dense/kernel besides"):
        load_orbax(untied, LLAMA, jnp.float32, write(tmp_path, PLAIN | TIED))
    file = write(tmp_path, PLAIN)
    tree = to_maxtext(LLAMA)
    mlp = tree["decoder"]["layers"]["mlp"]
    mlp["wi_2"] = {"kernel": np.ones((3, 2), np.float32)}
    with pytest.raises(InputError, match="has params/params/decoder/layers/mlp/wi_2/kernel besides"):
        load_orbax(save_items(tmp_path / "more", tree), LLAMA, jnp.float32, file)
    del mlp["wi_2"], mlp["wi_1"]
    copies = save_items(tmp_path / "copies", jax.tree.map(lambda x: np.stack([x, x]), to_maxtext(LLAMA)))
    with pytest.raises(InputError, match=r"every array has a first axis of 2, .* after flax\.jax_utils\.unreplicate"):
        load_orbax(copies, LLAMA, jnp.float32, file)
    words = r"has no array .*mlp/wi_1/kernel \(closest: .*wi_0/kernel.*\); use the config\.json .* fused kernels"
    with pytest.raises(InputError, match=words):
        load_orbax(save_items(tmp_path / "less", tree), LLAMA, jnp.float32, file)
