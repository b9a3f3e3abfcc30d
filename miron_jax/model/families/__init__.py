"""Registry of architectures: every file of this folder that defines `FAMILIES`, by model_type of
config.json.

Arrives: a model_type.  Leaves: its `Family`.  It deliberately does not name any architecture.
"""

import pkgutil
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.naming import Table

if TYPE_CHECKING:
    from miron_jax.model.families.family_model import FamilyModel


@cache
def families() -> dict[str, Family]:
    """model_type -> Family, of all files in this folder."""
    registry: dict[str, Family] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        registry |= getattr(import_module(module.name), "FAMILIES", {})
    return registry


def tensor_names(config: "ModelConfig | FamilyModel") -> Table:
    """Leaf -> its tensor, for every leaf that the family can have; a decoder uses those that its
    config asks for."""
    return families()[config.family].names(config)
