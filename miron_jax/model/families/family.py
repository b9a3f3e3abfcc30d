"""What an architecture consists of: a reader of its config.json and the names of its tensors.

Arrives: nothing.  Leaves: `Family`.  It deliberately does not know any particular architecture.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family_model import FamilyModel
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table

KnownModel = ModelConfig | FamilyModel  # what a config.json can describe
AnyModel = Any  # a KnownModel, where the caller knows which of the two


class Family(NamedTuple):
    # fields of config.json -> what the decoder, or a `FamilyModel`, computes; raises InputError
    config: Callable[[Fields], KnownModel]
    names: Callable[
        ..., Table
    ]  # of its model: leaf -> its tensor, for every leaf that the family can have
