"""Fields of MaxText's config that move a score: what is asked for, what contradicts config.json, and what is unknown."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.maxtext_settings import MaxTextSettings, maxtext_config, maxtext_settings
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.rope import rope_of
from tests.support.toy_decoders import GEMMA, GEMMA2, GEMMA3, LLAMA, with_layers

PLAIN = {"model_name": "default", "rope_type": "default"}
TIED = PLAIN | {"logits_via_embedding": True, "normalize_embedding_logits": True}
NAMED = TIED | {"model_name": "gemma3-4b"}
OF_GEMMA = {"norm_eps": 1e-6}
GEMMAS = replace(GEMMA, **OF_GEMMA), replace(GEMMA2, **OF_GEMMA), replace(GEMMA3, attn_scale=6**-0.5, **OF_GEMMA)
YARN = PLAIN | {"rope_type": "yarn", "rope_max_timescale": 10_000, "rope_factor": 4}
LLAMA31 = PLAIN | {"rope_type": "llama3.1", "rope_max_timescale": 10_000}


def roped(kind: str, **parameters: Any) -> ModelConfig:
    return replace(LLAMA, layer_ropes=(rope_of(kind, {"rope_theta": 1e4} | parameters, 6),) * 3)


AS_YARN = roped("yarn", factor=4.0, original_max_position_embeddings=4096, attention_factor=1.0)
AS_LLAMA31 = roped("llama3", factor=8, low_freq_factor=1, high_freq_factor=4, original_max_position_embeddings=8192)


def write(folder: Path, content: Any) -> str:
    path = folder / "maxtext.yml"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def sentence(folder: Path, config: ModelConfig, content: Any) -> str:
    """Of the refusal; empty: there is none."""
    try:
        maxtext_config(config, write(folder, content), jnp.float32)
        maxtext_settings(str(folder / "maxtext.yml"), config.family)
    except InputError as error:
        return str(error)
    return ""


def test_files_that_agree_with_config_json(tmp_path: Path) -> None:
    mistral = replace(LLAMA, family="mistral")
    cases: list[tuple[ModelConfig, Any]] = [
        (LLAMA, "model_name: llama2-7b\nrope_type: default\n"),
        (LLAMA, PLAIN | {"run_name": "mine", "adam_b1": 0.9, "rope_pairwise": False}),
        (LLAMA, "model_name: llama3-8b\nrope_type: default\nrope_max_timescale: 10_000\nquantization: None\n"),
        (LLAMA, PLAIN | {"base_emb_dim": 12, "num_query_heads": 2, "mlp_activations": ["silu", "linear"]}),
        (LLAMA, PLAIN | {"base_emb_dim": 6, "emb_dim": 12, "global_parameter_scale": 2}),
        (mistral, PLAIN | {"model_name": "mistral-7b", "decoder_block": "mistral"}),
        (AS_YARN, YARN), (AS_LLAMA31, LLAMA31), (LLAMA, LLAMA31 | {"rope_use_scale": False}),
        (AS_LLAMA31, PLAIN | {"model_name": "llama3.1-8b", "rope_max_timescale": 10_000}),
        (roped("linear", factor=8.0), PLAIN | {"rope_linear_scaling_factor": 8.0}),
        (GEMMAS[0], TIED), (GEMMAS[1], TIED | {"attn_logits_soft_cap": 20.0, "sliding_window_size": 3}),
        (GEMMAS[2], NAMED | {"local_rope_max_timescale": -1, "num_decoder_layers": 8}),
        (GEMMAS[1], TIED | {"base_num_decoder_layers": 2}),
    ]  # fmt: skip
    for config, content in cases:
        assert sentence(tmp_path, config, content) == "", content


ONE_OF = "expected 'global'"
REFUSED: list[tuple[ModelConfig, Any, str]] = [
    # what is asked for
    (LLAMA, {"rope_type": "default"}, "model_name is None, expected a name that begins with default or llama2"),
    (LLAMA, {"model_name": "default"}, "rope_type is None, expected one of default, llama3.1, yarn"),
    (LLAMA, "", "model_name is None"), (LLAMA, "- 1", "model_name is None"), (LLAMA, "a: [", "cannot be read ("),
    (replace(LLAMA, tied_head=True), PLAIN, "logits_via_embedding is None, expected True (tie_word_embeddings"),
    (replace(LLAMA, tied_head=True), PLAIN | {"logits_via_embedding": True}, "normalize_embedding_logits is None"),
    (GEMMAS[0], PLAIN, "normalize_embedding_logits is None, expected True or False"),
    (AS_YARN, PLAIN | {"rope_type": "yarn"}, "rope_max_timescale is None, expected a number"),
    (AS_LLAMA31, PLAIN | {"rope_type": "llama3.1", "rope_max_timescale": "1_0" * 3000}, "expected a number"),
    (AS_LLAMA31, PLAIN | {"rope_type": "llama3.1"}, "rope_max_timescale is None, expected a number"),
    # what is unknown
    (LLAMA, PLAIN | {"rope_typ": "yarn"}, "has the field 'rope_typ', which is not known to move a score"),
    (LLAMA, PLAIN | {"run_name": "x", "rope_new": 1}, "has the field 'rope_new'"),
    (LLAMA, PLAIN | {"learning_rate": 1}, "has the field 'learning_rate'"),
    (LLAMA, PLAIN | {"rope_type": "longrope"}, "rope_type is 'longrope', expected one of"),
    (LLAMA, PLAIN | {"model_name": "qwen3-8b"}, "model_name is 'qwen3-8b', expected a name that begins"),
    (LLAMA, PLAIN | {"logits_via_embedding": "yes"}, "logits_via_embedding is 'yes', expected True or False"),
    (LLAMA, PLAIN | {"attn_logits_soft_cap": "big"}, "attn_logits_soft_cap is 'big', expected a number"),
    (LLAMA, PLAIN | {"attn_logits_soft_cap": -1}, "attn_logits_soft_cap is -1, expected a number"),
    (LLAMA, LLAMA31 | {"rope_use_scale": 0}, "rope_use_scale is 0, expected True or False"),
    (AS_YARN, YARN | {"rope_factor": 0}, "rope_type is 'yarn', expected usable numbers"),
    (LLAMA, PLAIN | {"param_scan_axis": 2}, "param_scan_axis is 2, expected 0 or 1"),
    (replace(LLAMA, family="qwen2"), PLAIN, "a MaxText tree of a qwen2 model is not read"),
    # what computes otherwise, and is not read
    *(
        (LLAMA, PLAIN | {name: value}, f"{name} is {value!r}, expected {expected!r}: such a model is not read")
        for name, value, expected in (
            ("rope_min_timescale", 2, 1), ("trainable_position_size", 64, -1), ("moba", True, False),
            ("use_untrainable_positional_embedding", True, False), ("attention_type", "chunk", "global"),
            ("training_objective", "block_diffusion", "causal_lm"), ("weight_sparsity_n", 2, None),
        )
    ),
    (LLAMA, PLAIN | {"quantization": "int8"}, "leave the line out to score the weights as they are, unquantized"),
    (LLAMA, PLAIN | {"base_config": "mine.yml"}, "base_config is 'mine.yml', expected 'base.yml': write its fields"),
    # what config.json says otherwise
    (LLAMA, PLAIN | {"logits_via_embedding": True, "normalize_embedding_logits": True}, "expected False (tie_word"),
    (GEMMAS[0], TIED | {"logits_via_embedding": False}, "logits_via_embedding is False, expected True"),
    (LLAMA, PLAIN | {"normalization_layer_epsilon": 1e-6}, "is 1e-06, expected 1e-05, which config.json says"),
    (LLAMA, PLAIN | {"head_dim": 8}, "head_dim is 8, expected 6"),
    (LLAMA, PLAIN | {"base_num_kv_heads": 2}, "base_num_kv_heads is 2, expected 1"),
    (LLAMA, PLAIN | {"mlp_activations": ["gelu", "linear"]}, "expected ['silu', 'linear']"),
    (LLAMA, PLAIN | {"decoder_block": "gemma"}, "decoder_block is 'gemma', expected llama2 or mistral"),
    (with_layers(LLAMA, (4, 4)), PLAIN, "a window of 4 tokens in layer 0, where MaxText's llama has none"),
    (replace(GEMMA, norm_eps=1e-5), TIED, "the layers of MaxText's Gemma have 1e-06"),
    (GEMMAS[1], TIED | {"sliding_window_size": 4}, "sliding_window_size is 4, expected 3"),
    (GEMMAS[1], TIED | {"attn_logits_soft_cap": 50.0}, "attn_logits_soft_cap is 50.0, expected 20.0"),
    (GEMMAS[1], TIED | {"final_logits_soft_cap": None}, "final_logits_soft_cap is None, expected 10.0"),
    (GEMMAS[2], NAMED | {"final_logits_soft_cap": 30.0}, "final_logits_soft_cap is 30.0, expected None"),
    (GEMMAS[2], TIED, "model_name is 'default', expected a name that begins with gemma3"),
    (GEMMAS[2], NAMED | {"model_name": "gemma3-27b"}, ""),  # 12 // 2 heads, as head_dim
    (replace(GEMMAS[2], attn_scale=0.5), NAMED, "query_pre_attn_scalar 4, but MaxText's gemma3-4b has 6"),
    # rotations: MaxText's, and config.json's
    (LLAMA, PLAIN | {"rope_max_timescale": 500_000}, '{"rope_type": "default", "rope_theta": 500000}'),
    (LLAMA, PLAIN | {"rope_linear_scaling_factor": 8.0}, '"linear", "rope_theta": 10000.0, "factor": 8.0'),
    (roped("linear", factor=8.0), PLAIN, '{"rope_type": "default", "rope_theta": 10000.0'),
    (LLAMA, YARN, '"yarn"'), (LLAMA, LLAMA31, '{"rope_type": "llama3", "rope_theta": 10000, "factor": 8.0'),
    (AS_LLAMA31, PLAIN | {"model_name": "llama3.3-70b"}, "rope default rotates layer 0 otherwise"),
    (AS_LLAMA31, LLAMA31 | {"rope_use_scale": False}, '{"rope_type": "default", "rope_theta": 10000}'),
    (AS_YARN, YARN | {"rope_attention_scaling": True}, '"attention_factor": 1.138'),
    (AS_YARN, YARN | {"rope_truncate": False}, '"truncate": false'),
    (AS_YARN, YARN | {"beta_fast": 8}, '"beta_fast": 8'), (AS_YARN, YARN | {"beta_slow": 8}, '"beta_slow": 8'),
    (AS_YARN, YARN | {"rope_factor": 40}, '"factor": 40'),
    (AS_YARN, YARN | {"original_max_position_embeddings": 64}, '"original_max_position_embeddings": 64'),
    (GEMMAS[2], NAMED | {"rope_linear_scaling_factor": 8.0}, "rope default rotates layer 5 otherwise"),
    (GEMMAS[2], NAMED | {"local_rope_max_timescale": 50}, "rope default rotates layer 0 otherwise"),
    (roped("dynamic", factor=4.0, max_position_embeddings=32), PLAIN, "rope default rotates layer 0 otherwise"),
    (replace(LLAMA, head_dim=8), PLAIN, "rope default rotates layer 0 otherwise"),
]  # fmt: skip


def test_files_that_are_refused(tmp_path: Path) -> None:
    for config, content, words in REFUSED:
        received = sentence(tmp_path, config, content)
        assert (words in received) if words else not received, (content, received)


def test_the_layout_that_each_field_gives(tmp_path: Path) -> None:
    """A field that changes it, and what neither the file nor config.json says."""
    caps = ("attn_logits_soft_cap", "final_logits_soft_cap")
    plain = MaxTextSettings(interleaved=False, tied=False, divided=False, layer_axis=1, assumed=caps[:1])
    tied = plain._replace(tied=True, divided=True, assumed=caps)
    for family, fields, settings in (
        ("llama", PLAIN, plain),
        ("llama", PLAIN | {"attn_logits_soft_cap": None}, plain._replace(assumed=())),
        ("llama", PLAIN | {"decoder_block": "mistral"}, plain._replace(assumed=())),
        ("llama", PLAIN | {"model_name": "mistral-7b"}, plain._replace(assumed=())),
        ("llama", PLAIN | {"param_scan_axis": 0}, plain._replace(layer_axis=0)),
        ("llama", LLAMA31, plain._replace(interleaved=True)),
        ("llama", PLAIN | {"model_name": "llama3.1-70b"}, plain._replace(interleaved=True)),
        ("llama", PLAIN | {"model_name": "llama3.3-70b"}, plain),
        ("llama", YARN, plain._replace(interleaved=True, assumed=(caps[0], "rope_interleave"))),
        ("llama", YARN | {"rope_interleave": False}, plain),
        ("llama", PLAIN | {"rope_interleave": True}, plain),
        ("llama", TIED, tied),
        ("llama", TIED | {"normalize_embedding_logits": False}, tied._replace(divided=False)),
        ("gemma", TIED, tied._replace(assumed=caps[1:])),
        ("gemma2", TIED, tied._replace(assumed=())),
        ("gemma3_text", NAMED, tied._replace(assumed=caps[:1])),
    ):
        assert maxtext_settings(write(tmp_path, fields), family) == settings, (family, fields)


def test_a_file_as_maxtext_dumps_it(tmp_path: Path) -> None:
    """Enums and dtypes are tags of Python; an alias names one of them twice."""
    content = """
decoder_block: !!python/object/apply:maxtext.common.common_types.DecoderBlockType
- llama2
dtype: &id001 !!python/object/apply:numpy.dtype
  args:
  - !!python/name:ml_dtypes.bfloat16 ''
  state: !!python/tuple
  - 3
grad_dtype: *id001
model_name: default
quantization: !!python/object/apply:maxtext.configs.types.QuantizationType
- ''
rope_max_timescale: 10000
rope_type: !!python/object/apply:maxtext.configs.types.RopeType
- yarn
rope_factor: 4
run_name: mine
"""
    assert sentence(tmp_path, AS_YARN, content) == ""
    assert maxtext_settings(str(tmp_path / "maxtext.yml"), "llama").interleaved
