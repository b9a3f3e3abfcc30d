"""Mixtral, Qwen 2 and 3 MoE, OLMoE, Granite MoE and gpt-oss: how config.json is read, and the names
of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

import numpy as np

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.granite import granite_like
from miron_jax.model.families.llama import QWEN_WINDOWS
from miron_jax.model.families.naming import Table, Tensor, experts, linear, llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, experts_of, llama_like

_EXPERTS = "num_experts num_experts_per_tok norm_topk_prob"
_QWEN = f"{LLAMA_FIELDS} {_EXPERTS} moe_intermediate_size decoder_sparse_step mlp_only_layers"


def _mixtral_config(fields: Fields) -> ModelConfig:
    config = llama_like(
        fields, f"{LLAMA_FIELDS} sliding_window num_local_experts num_experts_per_tok"
    )
    return replace(config, experts=experts_of(fields, "num_local_experts", normalised=True))


def _qwen_like(fields: Fields, used_fields: str) -> ModelConfig:
    """Every layer has experts: one body computes all layers."""
    config = llama_like(fields, f"{_QWEN} {used_fields}")
    fields.require("decoder_sparse_step", 1)
    fields.require("mlp_only_layers", [])
    mixture = experts_of(fields, "num_experts", fields["norm_topk_prob"])
    return replace(config, d_ff=fields["moe_intermediate_size"], experts=mixture)


def _qwen2_moe_config(fields: Fields) -> ModelConfig:
    config = _qwen_like(fields, f"{QWEN_WINDOWS} qkv_bias shared_expert_intermediate_size")
    assert config.experts is not None
    shared = replace(config.experts, shared_d_ff=fields["shared_expert_intermediate_size"])
    return replace(config, qkv_bias=fields["qkv_bias"], experts=shared)


def _qwen3_moe_config(fields: Fields) -> ModelConfig:
    fields.allow_value("use_qk_norm", True)
    _check_same_counts(fields)
    # transformers reads all but the last
    used = "attention_bias use_sliding_window sliding_window max_window_layers"
    return replace(_qwen_like(fields, used), qk_norm="head")


def _olmoe_config(fields: Fields) -> ModelConfig:
    _check_same_counts(fields)
    config = llama_like(
        fields, f"num_key_value_heads hidden_act rms_norm_eps attention_bias clip_qkv {_EXPERTS}"
    )
    mixture = experts_of(fields, "num_experts", fields["norm_topk_prob"])
    return replace(config, qk_norm="all_heads", qkv_clip=fields["clip_qkv"], experts=mixture)


def _granitemoe_config(fields: Fields) -> ModelConfig:
    config = granite_like(fields, "num_local_experts num_experts_per_tok")
    return replace(config, experts=experts_of(fields, "num_local_experts", normalised=True))


def _gpt_oss_config(fields: Fields) -> ModelConfig:
    fields.allow_same("num_experts", "num_local_experts")
    fields.allow_same("experts_per_token", "num_experts_per_tok")
    if fields.raw.get("initial_context_length") == fields["rope_parameters"].get(
        "original_max_position_embeddings"
    ):
        fields.duplicates.add("initial_context_length")
    used = (
        "attention_bias sliding_window layer_types num_local_experts num_experts_per_tok "
        "swiglu_alpha swiglu_limit"
    )
    config = llama_like(fields, f"{LLAMA_FIELDS} {used}")
    mixture = experts_of(fields, "num_local_experts", normalised=True)
    # Older transformers have these two in the code.
    limit = fields.get("swiglu_limit") or 7.0
    gain = fields.get("swiglu_alpha") or 1.702
    mixture = replace(mixture, bias=True, limit=limit, gain=gain)
    return replace(config, attn_sinks=True, experts=mixture)


def _check_same_counts(fields: Fields) -> None:
    """transformers takes either of these names for the other."""
    fields.allow_same("num_experts", "num_local_experts")
    fields.allow_same("num_local_experts", "num_experts")


def _mixtral_names(config: ModelConfig) -> Table:
    return llama_names(config) | {
        **linear("layers/mlp/router", "layers.{}.block_sparse_moe.gate"),
        **experts("layers/mlp/gate_EDF", "layers.{}.block_sparse_moe.experts.{part}.w1", config),
        **experts("layers/mlp/up_EDF", "layers.{}.block_sparse_moe.experts.{part}.w3", config),
        **experts("layers/mlp/down_EFD", "layers.{}.block_sparse_moe.experts.{part}.w2", config),
    }


def _qwen_names(config: ModelConfig) -> Table:
    return llama_names(config) | {
        **linear("layers/mlp/router", "layers.{}.mlp.gate"),
        **experts("layers/mlp/gate_EDF", "layers.{}.mlp.experts.{part}.gate_proj", config),
        **experts("layers/mlp/up_EDF", "layers.{}.mlp.experts.{part}.up_proj", config),
        **experts("layers/mlp/down_EFD", "layers.{}.mlp.experts.{part}.down_proj", config),
        **linear("layers/mlp/shared_gate", "layers.{}.mlp.shared_expert_gate"),
        **linear("layers/mlp/shared/gate", "layers.{}.mlp.shared_expert.gate_proj"),
        **linear("layers/mlp/shared/up", "layers.{}.mlp.shared_expert.up_proj"),
        **linear("layers/mlp/shared/down", "layers.{}.mlp.shared_expert.down_proj"),
    }


def _granitemoe_names(config: ModelConfig) -> Table:
    """One tensor holds all experts: outputs of the gate, then those of up."""
    width = 2 * config.d_ff
    gate, up = np.arange(width).reshape(2, -1).tolist()
    stored = "layers.{}.block_sparse_moe"
    return llama_names(config) | {
        **linear("layers/mlp/router", f"{stored}.router.layer"),
        "layers/mlp/gate_EDF": Tensor(f"{stored}.input_linear.weight", True, tuple(gate), width),
        "layers/mlp/up_EDF": Tensor(f"{stored}.input_linear.weight", True, tuple(up), width),
        "layers/mlp/down_EFD": Tensor(f"{stored}.output_linear.weight", True),
    }


def _gpt_oss_names(config: ModelConfig) -> Table:
    """One tensor holds all experts, outputs of gate and up in turn."""
    width = 2 * config.d_ff
    gate, up = (tuple(range(start, width, 2)) for start in (0, 1))
    stored = "layers.{}.mlp.experts"
    return llama_names(config) | {
        **linear("layers/mlp/router", "layers.{}.mlp.router"),
        "layers/attn/sinks_N": Tensor("layers.{}.self_attn.sinks"),
        "layers/mlp/gate_EDF": Tensor(f"{stored}.gate_up_proj", columns=gate, width=width),
        "layers/mlp/up_EDF": Tensor(f"{stored}.gate_up_proj", columns=up, width=width),
        "layers/mlp/down_EFD": Tensor(f"{stored}.down_proj"),
        "layers/mlp/gate_bias_EF": Tensor(f"{stored}.gate_up_proj_bias", columns=gate, width=width),
        "layers/mlp/up_bias_EF": Tensor(f"{stored}.gate_up_proj_bias", columns=up, width=width),
        "layers/mlp/down_bias_ED": Tensor(f"{stored}.down_proj_bias"),
    }


FAMILIES = {
    "mixtral": Family(_mixtral_config, _mixtral_names),
    "qwen2_moe": Family(_qwen2_moe_config, _qwen_names),
    "qwen3_moe": Family(_qwen3_moe_config, _qwen_names),
    "olmoe": Family(_olmoe_config, _qwen_names),
    "granitemoe": Family(_granitemoe_config, _granitemoe_names),
    "gpt_oss": Family(_gpt_oss_config, _gpt_oss_names),
}
