"""Architectures: a file here that has `FAMILIES`, by their model_type in config.json, is found.

Arrives: a model_type.  Leaves: its `Family`.  It deliberately names none.
"""

import pkgutil
from functools import cache
from importlib import import_module

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.naming import Table


@cache
def families() -> dict[str, Family]:
    """All that are known, by model_type."""
    known: dict[str, Family] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        known |= getattr(import_module(module.name), "FAMILIES", {})
    return known


def tensor_names(config: ModelConfig) -> Table:
    """Leaf -> its tensor, for every leaf that the family can have; a config uses those that its decoder has."""
    return families()[config.family].names(config)
