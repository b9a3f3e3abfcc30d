"""config.json: every family's rules are read, what would change a result unseen is refused."""

import json
import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from transformers import CONFIG_MAPPING

from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf
from tests.support.hf_folders import GEMMA, GPT2, LLAMA, NEOX, UNCUT_YARN, error_of
from tests.support.tiny_families import MODELS

PHI = {name: value for name, value in (LLAMA | {"model_type": "phi"}).items() if name != "rms_norm_eps"}
PHI["hidden_size"] = 16
FLAT_YARN = {name: value for name, value in UNCUT_YARN["full_attention"].items() if name != "truncate"}


def read(folder: Path, config: Any) -> Any:
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return from_hf_config(folder)


def test_no_config_and_no_json_object(tmp_path: Path) -> None:
    assert "config.json: no such file" in error_of(lambda: load_hf(tmp_path, jnp.float32))
    for text in ("{", "[]", '"llama"'):
        assert "config.json" in error_of(lambda text=text: read(tmp_path, text))


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (LLAMA | {"model_type": "lama"}, "nearest: llama"),
        ({"model_type": "gemma3"}, "text_config is None"),
        (LLAMA | {"model_type": None}, "model_type is None"),
        (LLAMA | {"hidden_size": "12"}, "hidden_size"),
        (LLAMA | {"hidden_size": 13}, "multiple"),
        (LLAMA | {"num_attention_heads": 0}, "config.json"),
        (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        (LLAMA | {"num_hidden_layers": 10**9}, "is 1000000000, expected a whole number from 1 to 10000"),
        (LLAMA | {"head_dim": 10**9}, "head_dim is 1000000000, expected a whole number from 1 to 16384"),
        (LLAMA | {"num_labels": 10**9}, "num_labels is 1000000000"),
        (LLAMA | {"vocab_size": 10**30}, "vocab_size is 1000000000000"),
        (LLAMA | {"vocab_size": True}, "vocab_size is True"),
        (LLAMA | {"rope_theta": True}, "rope_theta is True, expected a finite number above 0"),
        (LLAMA | {"rope_theta": math.inf}, "rope_theta is inf, expected a finite number above 0"),
        (LLAMA | {"rms_norm_eps": math.nan}, "rms_norm_eps is nan, expected a finite number"),
        (LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": math.inf}}, "factor is inf, expected a finite"),
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1.0}}, "rope_parameters is"),
        (LLAMA | {"rope_scaling": {"rope_type": [1], "factor": 2.0}}, "config.json"),
        (LLAMA | {"rope_scaling": 3}, "rope_scaling is 3, expected an object"),
        (LLAMA | {"attention_bias": 1.5}, "attention_bias is 1.5, expected true or false"),
        (LLAMA | {"hidden_act": ["silu"]}, "config.json"),
        (NEOX | {"rotary_pct": 1e9}, "the rotated part of a head"),
        (LLAMA | {"model_type": "smollm3", "no_rope_layers": [2, 1]}, "is [2, 1], expected at least 2 entries, 0 or 1"),
        (PHI | {"qk_layernorm": True}, "qk_layernorm is True, expected False"),
        (PHI | {"model_type": "cohere", "logit_scale": 0}, "logit_scale is 0, expected a finite number above 0"),
        (PHI | {"model_type": "olmo", "clip_qkv": -1.0}, "clip_qkv is -1.0, expected a finite number above 0"),
        (GEMMA | {"final_logit_softcapping": 0}, "final_logit_softcapping is 0, expected a finite number above 0"),
        (LLAMA | {"num_attention_heads": 6, "num_key_value_heads": 4}, "expected a multiple"),
        (LLAMA | {"head_dim": 3}, "part of a head is 3"),
        (LLAMA | {"hidden_act": "mish"}, "hidden_act is 'mish'"),
        (LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "config.json"),
        (LLAMA | {"rope_scaling": {"rope_type": "proportional", "factor": 2.0}}, "rope_type is 'proportional'"),
        (LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "factor": 2.0}}, "'factor'"),
        (LLAMA | {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        (LLAMA | {"quantization_config": {"bits": 4}}, "quantization_config"),
        (LLAMA | {"sliding_window": 512}, "sliding_window"),
        (LLAMA | {"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
        (LLAMA | {"residual_multiplier": 0.22}, "residual_multiplier"),
        ({"model_type": "opt", "do_layer_norm_before": False}, "do_layer_norm_before is False, expected True"),
        ({"model_type": "opt", "word_embed_proj_dim": 512}, "word_embed_proj_dim is 512, expected 768"),
        ({"model_type": "opt", "_remove_final_layer_norm": True}, "_remove_final_layer_norm is True, expected False"),
        ({"model_type": "granitemoe", "num_experts_per_tok": None}, "num_experts_per_tok is None, expected a number"),
        ({"model_type": "granitemoe", "attention_multiplier": None}, "attention_multiplier is None, expected a number"),
        ({"model_type": "falcon", "ff_factor": 3}, "ff_factor is 3, expected that of ffn_hidden_size = 18176"),
        ({"model_type": "falcon", "layer_norm_epsilon": None}, "layer_norm_epsilon is None, expected a number"),
        ({"model_type": "falcon", "num_ln_in_parallel_attn": 3}, "is 3, expected a whole number"),
        ({"model_type": "opt", "learned_embeddings": False}, "learned_embeddings is False, expected true"),
        ({"model_type": "falcon", "alibi": True}, "multi_query is True, expected false where alibi is true"),
        ({"model_type": "falcon", "num_ln_in_parallel_attn": 2}, "expected 1 without new_decoder_architecture"),
        ({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 3}, "expected a multiple"),
        (GPT2 | {"add_cross_attention": True}, "add_cross_attention"),
        (GPT2 | {"n_head": 5}, "n_embd is 12"),
        (GEMMA | {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        (GEMMA | {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        (GEMMA | {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
        (GEMMA | {"layer_types": ["full_attention"]}, "layer_types"),
        (GEMMA | {"sliding_window": None}, "sliding_window is None"),
        # Fields that transformers does not read in these families, though it reads them in others
        (GEMMA | {"hidden_act": "silu"}, "hidden_act is 'silu'"),
        (GEMMA | {"model_type": "gemma2", "hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (NEOX | {"rms_norm_eps": 0.5}, "'rms_norm_eps'"),
        (LLAMA | {"model_type": "olmo2", "layer_types": ["sliding_attention"] * 2, "sliding_window": 2}, "layer_types"),
        (LLAMA | {"model_type": "olmo3", "rope_parameters": UNCUT_YARN}, "truncate is False"),
        (
            LLAMA | {"model_type": "olmo3", "rope_parameters": FLAT_YARN},
            "'rope_type' of rope_parameters is 'yarn', expected",
        ),
        (
            {"model_type": "bloom", "slow_but_exact": True, "pretraining_tp": 2},
            "slow_but_exact is True, expected false beside pretraining_tp 2 (transformers then drops two biases",
        ),
        (LLAMA | {"rope_parameters": UNCUT_YARN}, "rope_parameters is"),
        (LLAMA | {"rope_parameters": UNCUT_YARN["full_attention"] | {"factor": None}}, "'factor'"),
        (LLAMA | {"model_type": "phi3", "auto_map": {"AutoConfig": "mine.MyConfig"}}, "auto_map"),
        (
            GEMMA | {"layer_types": ["full_attention"] * 2, "rope_scaling": {"type": "linear", "factor": 8.0}},
            "rope parameter",  # transformers fills rope_type "default" in beside it and scales nothing
        ),
        (LLAMA | {"model_type": "starcoder2", "mlp_type": "gated"}, "mlp_type is 'gated', expected 'default'"),
        (LLAMA | {"model_type": "cohere2", "use_parallel_block": False}, "use_parallel_block is False, expected True"),
        (LLAMA | {"model_type": "cohere2", "layer_switch": 5}, "layer_switch is 5, expected 4"),
        (LLAMA | {"model_type": "qwen3_moe", "use_qk_norm": False}, "use_qk_norm is False, expected True"),
        (GEMMA | {"use_qk_norm": False}, "use_qk_norm is False, expected True"),
        (GEMMA | {"head_dim": None}, 'write the size of a head, "head_dim": 6, or leave the line out'),
        (GEMMA | {"query_pre_attn_scalar": 6.5}, "query_pre_attn_scalar"),
        (LLAMA | {"hidden_size": 12.5}, "hidden_size is 12.5, expected a whole number"),
        (LLAMA | {"hidden_size": 1e300}, "expected a whole number"),
        ({"model_type": "mpt", "norm_type": "rmsnorm"}, "is 'rmsnorm', expected low_precision_layernorm or"),
        ({"model_type": "mpt", "attn_config": {"attn_uses_sequence_id": True}}, "attn_uses_sequence_id is True"),
    ],
)
def test_configs_that_are_refused(tmp_path: Path, config: dict[str, Any], part: str) -> None:
    message = error_of(lambda: read(tmp_path, config))
    assert "config.json" in message
    assert part in message


def test_old_and_new_spellings_of_a_config_mean_the_same(tmp_path: Path) -> None:
    bare = {name: value for name, value in LLAMA.items() if name != "rope_theta"}
    scaling = {"type": "linear", "factor": 2.0}
    old = {"rope_theta": 5e5, "rope_scaling": scaling, "torch_dtype": "float16", "use_cache": True}
    new = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}, "dtype": "float16", "_x": 1}
    assert read(tmp_path, bare | old) == read(tmp_path, bare | new)
    pattern = GEMMA | {"num_hidden_layers": 4, "sliding_window_pattern": 2}
    types = GEMMA | {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}
    assert read(tmp_path, pattern) == read(tmp_path, types)
    hash(read(tmp_path, types))


def test_whole_numbers_may_be_written_as_floats(tmp_path: Path) -> None:
    scaling = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}
    config = LLAMA | {"rope_scaling": scaling}
    sizes = {name: float(value) for name, value in config.items() if type(value) is int}
    floats = config | sizes | {"rope_scaling": scaling | {"original_max_position_embeddings": 16.0}}
    assert read(tmp_path, floats) == read(tmp_path, config)
    assert type(read(tmp_path, floats).num_layers) is int
    others = read(tmp_path, config | {"pretraining_tp": 1, "rms_norm_eps": 1.0, "initializer_range": 1.0})
    assert read(tmp_path, config | {"pretraining_tp": 1.0, "rms_norm_eps": 1, "initializer_range": 1}) == others
    levanters = {"query_pre_attn_scalar": 6.0, "use_qk_norm": True}
    assert read(tmp_path, GEMMA | levanters) == read(tmp_path, GEMMA)


def test_fields_that_decide_for_others(tmp_path: Path) -> None:
    tied = {"model_type": "gemma3", "text_config": GEMMA | {"tie_word_embeddings": True}}
    assert read(tmp_path, tied).tied_head
    assert not read(tmp_path, tied | {"tie_word_embeddings": False}).tied_head, "the outer field goes first"
    falcon = {"model_type": "falcon", "new_decoder_architecture": True}
    assert read(tmp_path, falcon).parallel == "own_norm"
    assert read(tmp_path, falcon | {"num_ln_in_parallel_attn": 1}).parallel == "one_norm"


PHI3_CODE = {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}


@pytest.mark.parametrize(
    "config",
    [
        GEMMA | {"model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"},
        LLAMA
        | {"model_type": "gemma", "head_dim": 6, "pad_token_id": 0, "hidden_act": "gelu", "hidden_activation": None},
        LLAMA | {"model_type": "phi3", "pad_token_id": 0, "auto_map": PHI3_CODE},
        NEOX | {"hidden_act": "gelu_fast", "attention_probs_dropout_prob": 0.1, "classifier_dropout": 0.1},
        LLAMA | {"max_sequence_length": 2048},
    ],
)
def test_fields_of_published_configs_that_change_nothing(tmp_path: Path, config: dict[str, Any]) -> None:
    activation = {"llama": "silu", "phi3": "silu"}.get(config["model_type"], "gelu_tanh")
    assert read(tmp_path, config).activation == activation


SAYS_NO_MORE: dict[str, dict[str, Any]] = {  # fields that published configs hold besides
    "starcoder2": {
        "mlp_type": "default", "norm_type": "layer_norm", "rms_norm_eps": 1e-4, "layer_norm_epsilon": 1e-4,
        "activation_function": "gelu_pytorch_tanh", "attention_softmax_in_fp32": True, "scale_attn_weights": True,
        "scale_attention_softmax_in_fp32": True,
    },
    "cohere": {"model_max_length": 131072},
    "cohere2": {
        "layer_switch": 4, "sliding_window_pattern": 4, "order_of_interleaved_layers": "local_attn_first",
        "position_embedding_type": "rope_gptj", "rotary_pct": 1.0, "use_embedding_sharing": True,
        "use_gated_activation": True, "use_parallel_block": True, "use_parallel_embedding": False,
    },
    "qwen3_moe": {"shared_expert_intermediate_size": 0, "use_qk_norm": True},
    "smollm3": {"max_window_layers": 28},
    "mpt": {"norm_type": "layernorm", "verbose": 0},
    "phi": {"auto_map": {"AutoConfig": "configuration_phi.PhiConfig"}},
}  # fmt: skip


@pytest.mark.parametrize("family", SAYS_NO_MORE)
def test_fields_of_the_hub_s_configs_that_say_nothing_more(tmp_path: Path, family: str) -> None:
    def read_with(more: dict[str, Any]) -> object:
        config = CONFIG_MAPPING[family](**sizes).to_dict() | more
        config = {name: value for name, value in config.items() if value is not None}
        if "sliding_window_pattern" in more:  # of the time before layer_types
            del config["layer_types"]
        return read(tmp_path, config)

    _, sizes = MODELS[family.replace("_", "-")]
    assert read_with(SAYS_NO_MORE[family]) == read_with({})
