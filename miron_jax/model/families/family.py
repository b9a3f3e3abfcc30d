"""What an architecture is: how its config.json is read, and where its weights lie.

Arrives: nothing.  Leaves: `Family`.  It deliberately knows none.
"""

from collections.abc import Callable
from typing import NamedTuple

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.naming import Table
from miron_jax.model.hf_fields import Fields


class Family(NamedTuple):
    config: Callable[[Fields], ModelConfig]  # config.json's fields -> what the decoder computes
    names: Callable[[ModelConfig], Table]  # leaf -> its tensor, for every leaf that the family can have
