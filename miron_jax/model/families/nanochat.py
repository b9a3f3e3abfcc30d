"""nanochat: how config.json is read, and where the weights lie.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.naming import Table, linear, llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like
from miron_jax.model.hf_fields import Fields


def _nanochat_config(fields: Fields) -> ModelConfig:
    plain, bias = llama_like(fields, LLAMA_FIELDS + "attention_bias final_logit_softcapping"), fields["attention_bias"]
    backwards = [replace(one, frequencies=tuple(-f for f in one.frequencies)) for one in plain.layer_ropes]
    return replace(
        plain,
        layer_ropes=tuple(backwards),
        norm_weight=False,
        embedding_norm=True,
        qk_norm="head",
        qk_norm_rotated=True,
        gated_mlp=False,
        qkv_bias=bias,
        attn_out_bias=bias,
        final_softcap=fields["final_logit_softcapping"],
    )


def _nanochat_names(config: ModelConfig) -> Table:
    return llama_names(config) | {
        **linear("layers/mlp/up", "layers.{}.mlp.fc1"),
        **linear("layers/mlp/down", "layers.{}.mlp.fc2"),
    }


FAMILIES = {
    "nanochat": Family(_nanochat_config, _nanochat_names),
}
