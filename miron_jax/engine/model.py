"""A model as the engine holds it: its architecture, its network and its weights where they lie.

Arrives: graphdef, state, placement.  Leaves: `Model`, `RowScores`, `Speed`.  It deliberately does not know rows.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.engine.batches import Shape
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import Name
from miron_jax.kernels.forest_attention.choose import Choice, Heads, choose
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import abstract
from miron_jax.model.hf_reader import load_hf
from miron_jax.model.own import OwnModel
from miron_jax.runtime.devices import FSDP, MODEL, Placement


class Model(NamedTuple):
    config: ModelConfig | OwnModel
    graphdef: Any  # nnx.GraphDef of a Decoder, or the OwnModel again
    state: Any  # weights on the devices
    placement: Placement | None = None  # None: what their own places say
    attention: Name | None = None  # what is to compute it; None: the device's own

    @property
    def on_one_device(self) -> "Model":
        """The same for what is done once and not by every device, where one device has all weights."""
        if self.placement is None or self.placement.how != "pmap":
            return self
        return self._replace(state=self.placement.on_one_device(self.state), placement=None)


def attention_of(model: Model) -> Choice:
    """What computes attention: the device's own where one device has whole rows and heads, and it agrees with the
    definition.  A user's own model, and weights that are split, take plain XLA.

    Raises InputError where the one that `model` asks for by name is not what runs.
    """
    config, placement = model.config, model.placement or Placement.of(model.state)
    split = placement.how == "given" or placement.is_global or placement.size(FSDP, MODEL) > 1
    if isinstance(config, OwnModel) or split:
        choice = Choice("xla")
    else:
        dtype = max(jax.tree.leaves(model.state), key=lambda leaf: leaf.size).dtype
        heads = Heads(config.num_heads, config.num_kv_heads, config.head_dim, config.attn_softcap, str(dtype))
        choice = choose(placement.device, heads, model.attention)
    if model.attention not in (None, choice.name):
        why = choice.why_not or "a model of your own, and weights that are split over devices, take xla"
        raise InputError(f"--attention={model.attention} cannot be used here: {why}; leave the flag out")
    return choice


class RowScores(NamedTuple):
    rows: list[int]  # of the plan
    edges: np.ndarray  # int64 [n], the plan's edges that these are
    logprob: np.ndarray  # float32 [n], nats
    rank: np.ndarray  # int32 [n], tokens ahead of the target; 0 is greedy
    asks: np.ndarray  # int64 [m], the plan's asks that these are
    set_logprob: np.ndarray  # float32 [m], nats: log p of all ids of the ask's set together
    tokens: int  # places of the plan that this batch computed, padding apart


@dataclass(slots=True)
class Speed:
    """What the forward passes took; grows while they run."""

    attention: Name = "xla"
    device_seconds: float = 0.0
    compile_seconds: float = 0.0
    batches: Counter["Shape"] = field(default_factory=Counter)  # batches run of each shape
    programs: int = 0
    halvings: int = 0  # times a batch did not fit and was halved
    computed_tokens: int = 0  # places of the plan that were computed; fewer than it has where a run goes on
    elsewhere_tokens: int = 0  # places of other hosts' batches

    @property
    def batch_tokens(self) -> int:
        """Places of all batches, rows that fill up a last batch included."""
        return self.elsewhere_tokens + sum(shape.shards * shape.places * count for shape, count in self.batches.items())

    @property
    def told(self) -> tuple[int, int, float]:
        """What another host adds up."""
        return self.computed_tokens, self.batch_tokens, self.device_seconds

    def add(self, others: Iterable[tuple[int, int, float]]) -> None:
        """Hosts work side by side: tokens of all, seconds of the slowest."""
        for computed, batches, seconds in others:
            self.computed_tokens += computed
            self.elsewhere_tokens += batches
            self.device_seconds = max(self.device_seconds, seconds)


def load_model(folder: Path, dtype: str) -> Model:
    """A Hugging Face folder's model on the default device, its matrices in this dtype."""
    config, state = load_hf(folder, jnp.dtype(dtype))
    return Model(config, abstract(config, jnp.dtype(dtype))[0], state)
