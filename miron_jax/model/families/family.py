"""What an architecture consists of: a reader of its config.json and the names of its tensors.

Arrives: nothing.  Leaves: `Family`.  It deliberately does not know any particular architecture.
"""

from collections.abc import Callable
from typing import NamedTuple

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.naming import Table
from miron_jax.model.hf_fields import Fields


class Family(NamedTuple):
    config: Callable[[Fields], ModelConfig]  # fields of config.json -> what the decoder computes; raises InputError
    names: Callable[[ModelConfig], Table]  # leaf -> its tensor, for every leaf that the family can have
