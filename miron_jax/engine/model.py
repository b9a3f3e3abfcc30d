"""A model as the engine holds it: its architecture, its network and its weights on their devices.

Arrives: graphdef, state, placement.  Leaves: `Model`, `RowScores`, `ForwardSpeed`.  It deliberately
does not know rows.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from miron_jax.engine.batches import Shape
from miron_jax.errors import InputError
from miron_jax.kernels import grouped_matmul
from miron_jax.kernels.forest_attention.choose import AttentionChoice, Heads, choose
from miron_jax.kernels.target_logprob.xla import DISTRIBUTION
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import Decoder, abstract
from miron_jax.model.decoder.experts import ExpertMlp
from miron_jax.model.decoder.sharding import heads_axis
from miron_jax.model.network import CastNetwork, Network, heads_of
from miron_jax.planning.records import Plan
from miron_jax.runtime.devices import MODEL, ONE_COPY, Placement, Tree
from miron_jax.runtime.progress import SILENT, Progress

Graph = nnx.GraphDef[Decoder] | Network | CastNetwork  # what a program is compiled for


class Model(NamedTuple):
    """One model, ready to run."""

    config: ModelConfig | Network
    graphdef: Graph  # of a Network, the Network again
    state: Tree  # weights on the devices
    placement: Placement | None = None  # None: follows from the sharding of the weights
    attention: str | None = None  # implementation of attention by name; None: the device's default
    with_distribution: bool = False  # scores have numbers of distributions too
    experts_in_kernel: bool = False  # of a mixture; False: they run in a loop of blocks

    @property
    def distribution_size(self) -> int:
        """Numbers of each token's distribution in its scores."""
        return DISTRIBUTION * self.with_distribution

    @property
    def matrix_dtype(self) -> np.dtype:
        """Of the matrices in the programs; a decoder's norm weights and biases are float32."""
        return max(jax.tree.leaves(self.weight_shapes), key=lambda leaf: leaf.size).dtype

    @property
    def num_weights(self) -> dict[str, int]:
        """Weights by the dtype that the programs compute with, the most first."""
        counts = Counter[str]()
        for leaf in jax.tree.leaves(self.weight_shapes):
            counts[str(leaf.dtype)] += leaf.size
        return dict(counts.most_common())

    @property
    def weight_shapes(self) -> Tree:
        """The weights as the programs compute with them, as arrays or shapes."""
        if isinstance(self.graphdef, CastNetwork):
            return jax.eval_shape(self.graphdef.cast, self.state)
        return self.state

    @property
    def on_one_device(self) -> "Model":
        """The model for work that one device does alone: its own copy of the weights under pmap,
        else all as they are."""
        if self.placement is None or self.placement.how != "pmap":
            return self
        return self._replace(
            state=jax.tree.map(lambda leaf: leaf.addressable_data(0), self.state), placement=None
        )


def attention_of(model: Model) -> AttentionChoice:
    """The implementation of attention: the device's default if it agrees with the definition for
    all heads of the model, and if one device has whole rows and heads or it can be split.  Weights
    that a user has placed on a mesh take plain XLA, and so does a user's own model that does not
    call `visibility.attend`.

    Raises InputError if `model.attention` names another implementation than the one that runs.
    """
    placement = model.placement or Placement.of(model.state)
    is_split = placement.size(*ONE_COPY) > 1
    heads = [] if placement.how == "user" else _heads(model, placement)
    choices = [choose(placement.device, each, model.attention, is_split) for each in heads]
    choices = choices or [AttentionChoice("xla")]
    choice = next((choice for choice in choices if choice.name == "xla"), choices[0])
    if model.attention not in (None, choice.name):
        why = choice.why_not or (
            "weights that you have placed on a mesh, and a model of your own without "
            "visibility.attend, take xla"
        )
        raise InputError(
            f"--attention={model.attention} cannot be used here: {why}; leave the flag out"
        )
    return choice


def _heads(model: Model, placement: Placement) -> list[Heads]:
    """The kinds of heads that one device computes."""
    config = model.config
    if isinstance(config, Network):
        return heads_of(config, model.weight_shapes)
    local = placement.size(MODEL) if heads_axis(config, placement) else 1
    heads = config.num_heads // local
    kv_heads = config.num_kv_heads // local
    return [
        Heads(
            heads,
            kv_heads,
            config.attended_dim,
            config.attn_softcap,
            str(model.matrix_dtype),
            config.attn_sinks,
        )
    ]


def without_kernels(model: Model) -> Model:
    """The model that the self-check compares with."""
    return _with_kernel(model, False) if model.experts_in_kernel else model


def with_experts(model: Model, progress: Progress = SILENT) -> Model:
    """The model; where a device has whole experts and takes `grouped_matmul`, its experts run in
    it."""
    config = model.config
    placement = model.placement or Placement.of(model.state)
    if not isinstance(config, ModelConfig) or not isinstance(model.graphdef, nnx.GraphDef):
        return model
    if config.experts is None or placement.how == "user" or placement.size(*ONE_COPY) > 1:
        return model
    sizes = config.experts.count, config.d_model, config.d_ff
    choice = grouped_matmul.choose(placement.device, *sizes, str(model.matrix_dtype))
    if choice.why_not:
        progress.say(f"experts in a loop of blocks: {choice.why_not}")
    if not choice.is_taken:
        return model
    return _with_kernel(model, True)


def _with_kernel(model: Model, is_on: bool) -> Model:
    """The model with its experts in `grouped_matmul`, or in a loop of blocks."""
    assert isinstance(model.graphdef, nnx.GraphDef)
    decoder = nnx.merge(model.graphdef, model.state)
    assert isinstance(decoder.layers.mlp, ExpertMlp)
    decoder.layers.mlp.on_hopper = is_on
    return model._replace(graphdef=nnx.split(decoder)[0], experts_in_kernel=is_on)


class RowScores(NamedTuple):
    """Scores of a batch of rows."""

    plan: Plan
    rows: list[int]  # of the plan
    edges: np.ndarray  # int64 [n], of the plan
    logprob: np.ndarray  # float32 [n], nats
    rank: np.ndarray  # int32 [n], tokens ahead of the target; 0 is greedy
    queries: np.ndarray  # int64 [m], id-set queries of the plan
    set_logprob: np.ndarray  # float32 [m], nats: log p of all ids of the query's set together
    tokens: int  # nodes of the plan that this batch computed
    # float32 nats, of the edges: [n, 2] as `Scores` has it, or [n, 0]
    distribution: np.ndarray


@dataclass(slots=True)
class ForwardSpeed:
    """Counts and times of the forward passes; grows while they run."""

    attention: str = "xla"
    device_seconds: float = 0.0
    compile_seconds: float = 0.0
    batches: Counter[Shape] = field(default_factory=Counter)  # batches run of each shape
    programs: int = 0
    halvings: int = 0  # times a batch did not fit and was halved
    computed_tokens: int = 0  # nodes computed; fewer than the plan has when a run resumes
    remote_tokens: int = 0  # slots of other hosts' batches

    @property
    def batch_tokens(self) -> int:
        """Slots of all batches, empty rows of a last batch included."""
        return self.remote_tokens + sum(
            shape.shards * shape.slots * count for shape, count in self.batches.items()
        )

    @property
    def counts(self) -> tuple[int, int, float]:
        """What the first host adds up over hosts: computed tokens, batch tokens, device seconds."""
        return self.computed_tokens, self.batch_tokens, self.device_seconds

    def add(self, others: Iterable[tuple[int, int, float]], before: float = 0.0) -> None:
        """Add what other hosts have counted meanwhile, side by side: tokens of all, seconds of the
        slowest.  `before`: this host's device seconds until then."""
        for computed, batches, seconds in others:
            self.computed_tokens += computed
            self.remote_tokens += batches
            self.device_seconds = max(self.device_seconds, before + seconds)


def load_model(folder: Path, dtype: str) -> Model:
    """A Hugging Face folder's model on the default device, its matrices in this dtype."""
    config, state = load_hf(folder, jnp.dtype(dtype))
    return Model(config, abstract(config, jnp.dtype(dtype))[0], state)
