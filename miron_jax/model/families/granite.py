"""Granite: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace
from functools import partial

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import llama_names
from miron_jax.model.families.reading import LLAMA_FIELDS, llama_like


def granite_like(fields: Fields, used_fields: str) -> ModelConfig:
    """Llama with factors; `used_fields` as in `llama_like`."""
    scales = "embedding_multiplier logits_scaling residual_multiplier attention_multiplier"
    for name in scales.split():
        fields.expect(name, fields[name] is not None, "a number")
    return replace(
        llama_like(fields, f"{LLAMA_FIELDS} attention_bias {scales} {used_fields}"),
        attn_scale=float(fields["attention_multiplier"]),
        embedding_scale=float(fields["embedding_multiplier"]),
        residual_scale=float(fields["residual_multiplier"]),
        logit_scale=1.0 / fields["logits_scaling"],
    )


FAMILIES = {"granite": Family(partial(granite_like, used_fields="mlp_bias"), llama_names)}
