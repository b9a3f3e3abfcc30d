"""nanochat: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, linear, llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like


def _nanochat_config(fields: Fields) -> ModelConfig:
    plain = llama_like(fields, LLAMA_FIELDS + "attention_bias final_logit_softcapping")
    # nanochat rotates in the opposite direction.
    reversed_ropes = []
    for rope in plain.layer_ropes:
        reversed_ropes.append(replace(rope, frequencies=tuple(-f for f in rope.frequencies)))
    return replace(
        plain,
        layer_ropes=tuple(reversed_ropes),
        norm_weight=False,
        embedding_norm=True,
        qk_norm="head",
        qk_norm_rotated=True,
        gated_mlp=False,
    )


def _nanochat_names(config: ModelConfig) -> Table:
    return llama_names(config) | {
        **linear("layers/mlp/up", "layers.{}.mlp.fc1"),
        **linear("layers/mlp/down", "layers.{}.mlp.fc2"),
    }


FAMILIES = {"nanochat": Family(_nanochat_config, _nanochat_names)}
