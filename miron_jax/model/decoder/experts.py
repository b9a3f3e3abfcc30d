"""A mixture of experts in the place of the MLP: a router gives each token to a few of many MLPs.

Arrives: a `ModelConfig` with `experts`, normed activations.  Leaves: the weighted sum of the
outputs of each token's experts.  It deliberately does not know attention, layers or files.

No expert has a capacity and no token is dropped: copies of the tokens are sorted by expert, and
each expert multiplies its stretch of them (Gale et al., 2022, "MegaBlocks", section 4).  The
router's logits and weights are float32.

SHAPES   as in model/decoder/decoder.py; M tokens, A active experts of a token, R = M * A copies of
         tokens, E experts
MESHES   `expert` splits the experts and `model` the hidden units of each; every device gets the
         tokens of its `fsdp` rows, computes what its weights give for them, and the sum over
         devices is split by rows again
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike

from miron_jax.kernels import grouped_matmul
from miron_jax.model.config import Activation, Experts, ModelConfig
from miron_jax.model.decoder.modules import (
    ACTIVATE,
    Linear,
    Mlp,
    array_of,
    normal,
    plus,
    stored,
    weight_if,
)
from miron_jax.runtime.devices import EXPERT, MODEL, row_axes

# rows of a block; of its expert's last block half is computed in vain, on average
FEWEST, MOST = 8, 256


class Kernels(NamedTuple):
    """The weights of one layer's experts."""

    gate_EDF: jax.Array
    up_EDF: jax.Array
    down_EFD: jax.Array
    gate_bias_EF: jax.Array | None = None  # biases are float32
    up_bias_EF: jax.Array | None = None
    down_bias_ED: jax.Array | None = None


def axes_of(leaf: str) -> str:
    """Axes of one of `Kernels` without that of layers: EDF of gate_EDF."""
    return leaf.rpartition("_")[2]


class ExpertMlp(nnx.Module):
    """Experts that are gated MLPs, and the MLP that computes every token, if there is one."""

    on_hopper = False  # whether `grouped_matmul` computes where the programs are for NVIDIA GPUs

    def __init__(
        self, config: ModelConfig, stack: tuple[int, ...], dtype: DTypeLike, rngs: nnx.Rngs
    ):
        assert config.experts is not None
        assert config.gated_mlp
        assert not config.mlp_bias
        self.config = config
        self.experts = config.experts
        sizes = {"E": self.experts.count, "D": config.d_model, "F": config.d_ff}

        def kernel(axes: str) -> nnx.Param:
            shape = [sizes[axis] for axis in axes]
            return nnx.Param(normal(rngs, (*stack, *shape), dtype, shape[1] ** -0.5))

        def bias(axes: str) -> nnx.Param | None:
            shape = (*stack, *(sizes[axis] for axis in axes))
            return weight_if(self.experts.bias, rngs, shape)

        self.router = Linear(
            stack, (config.d_model, self.experts.count), self.experts.bias, dtype, rngs
        )
        self.gate_EDF, self.up_EDF, self.down_EFD = map(kernel, ("EDF", "EDF", "EFD"))
        self.gate_bias_EF, self.up_bias_EF, self.down_bias_ED = map(bias, ("EF", "EF", "ED"))
        d_ff = self.experts.shared_d_ff
        self.shared = Mlp(config, stack, dtype, rngs, d_ff) if d_ff else None
        self.shared_gate = Linear(stack, (config.d_model, 1), False, dtype, rngs) if d_ff else None

    @jax.named_scope("experts")
    def __call__(self, x_BTD: jax.Array, rows_are_split: bool) -> jax.Array:
        kernels = Kernels._make(array_of(getattr(self, name)) for name in Kernels._fields)
        router = self.router.kernel_IO[...], array_of(self.router.bias_O)
        y_BTD = _on_each_device(x_BTD, router, kernels, self.config, rows_are_split, self.on_hopper)
        if self.shared is None or self.shared_gate is None:
            return y_BTD
        share_BT1 = jax.nn.sigmoid(self.shared_gate(x_BTD))
        return y_BTD + share_BT1 * self.shared(x_BTD)


def route(
    x_MD: jax.Array, router_DE: jax.Array, experts: Experts, bias_E: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """The active experts of each token, int32 [M, A], and their weights, float32."""
    logit_ME = jnp.dot(x_MD, router_DE, preferred_element_type=jnp.float32)
    logit_ME = plus(logit_ME, bias_E)
    logit_MA, expert_MA = jax.lax.top_k(logit_ME, experts.active)
    if experts.normalised:
        return expert_MA, jax.nn.softmax(logit_MA, axis=-1)
    normaliser_M1 = jax.nn.logsumexp(logit_ME, axis=-1, keepdims=True)
    return expert_MA, jnp.exp(logit_MA - normaliser_M1)


def expert_sum(
    x_MD: jax.Array,
    expert_MA: jax.Array,
    weight_MA: jax.Array,
    kernels: Kernels,
    act: "Act",
    first: jax.Array | int = 0,
    on_hopper: bool = False,
) -> jax.Array:
    """Weighted sum over each token's experts of their outputs, float32 [M, D].

    `first`: the index of the first of the E experts whose weights are given; the others count as
    zero.  A token's sum does not depend on the other tokens, but for the order in which a matmul
    adds.
    """
    active = expert_MA.shape[1]
    num_experts = kernels.gate_EDF.shape[0]
    local_MA = expert_MA - first
    is_local_MA = (local_MA >= 0) & (local_MA < num_experts)
    # those of other devices stand last
    sort_by_R = jnp.where(is_local_MA, local_MA, num_experts).ravel()
    order_R = jnp.argsort(sort_by_R, stable=True)
    size_E = jnp.bincount(sort_by_R, length=num_experts).astype(jnp.int32)
    arguments = x_MD[order_R // active], size_E, kernels
    forms = {"tpu": partial(_ragged, act), "default": partial(_in_blocks, act)}
    if on_hopper and len(order_R) >= grouped_matmul.FEWEST:
        forms["cuda"] = partial(_ragged, act, matmul=grouped_matmul.grouped_matmul)
    y_RD = jax.lax.platform_dependent(*arguments, **forms)
    y_MAD = y_RD[jnp.argsort(order_R)].reshape(*expert_MA.shape, -1)
    return jnp.sum(jnp.where(is_local_MA[..., None], weight_MA[..., None] * y_MAD, 0.0), axis=1)


class Act(NamedTuple):
    """What stands between an expert's matmuls."""

    activation: Activation
    limit: float | None = None
    gain: float = 1.0

    def of_gate(self, gate_RF: jax.Array) -> jax.Array:
        if self.limit is None:
            return ACTIVATE[self.activation](gate_RF)
        gate_RF = jnp.minimum(gate_RF, self.limit)
        return gate_RF * jax.nn.sigmoid(self.gain * gate_RF)

    def of_up(self, up_RF: jax.Array) -> jax.Array:
        return up_RF if self.limit is None else jnp.clip(up_RF, -self.limit, self.limit) + 1.0


def _ragged_dot(x: jax.Array, kernel: jax.Array, size_E: jax.Array) -> jax.Array:
    # Mosaic does not compile the engine's "highest" precision for operands of bfloat16.
    precision = "default" if x.dtype == jnp.bfloat16 else "highest"
    return jax.lax.ragged_dot(
        x, kernel, size_E, precision=precision, preferred_element_type=jnp.float32
    )


def _ragged(
    act: Act,
    x_RD: jax.Array,
    size_E: jax.Array,
    kernels: Kernels,
    matmul: Callable[[jax.Array, jax.Array, jax.Array], jax.Array] = _ragged_dot,
) -> jax.Array:
    """Outputs of the experts, float32 [R, D]: the first size_E[0] rows by the first expert, and so
    on; the rows after these are any."""
    experts_E = jnp.arange(size_E.shape[0], dtype=jnp.int32)
    expert_R = jnp.repeat(experts_E, size_E, total_repeat_length=x_RD.shape[0])

    def linear(x: jax.Array, kernel: jax.Array, bias: jax.Array | None) -> jax.Array:
        y = matmul(x, kernel, size_E).astype(jnp.float32)
        return y if bias is None else y + bias[expert_R]

    gate_RF = linear(x_RD, kernels.gate_EDF, kernels.gate_bias_EF)
    up_RF = linear(x_RD, kernels.up_EDF, kernels.up_bias_EF)
    gate_RF = stored(act.of_gate(gate_RF).astype(x_RD.dtype))
    hidden_RF = stored((gate_RF.astype(jnp.float32) * act.of_up(up_RF)).astype(x_RD.dtype))
    return linear(hidden_RF, kernels.down_EFD, kernels.down_bias_ED)


def _in_blocks(
    act: Act,
    x_RD: jax.Array,
    size_E: jax.Array,
    kernels: Kernels,
) -> jax.Array:
    """The same, a block of rows at a time.  XLA computes a ragged_dot by every expert for every row
    but on a TPU.

    An expert's last block reaches into the rows of the next one, which writes over them.
    """
    num_rows = x_RD.shape[0]
    block = min(MOST, max(FEWEST, 1 << (num_rows // (8 * size_E.shape[0])).bit_length()))
    matmul = partial(jnp.dot, preferred_element_type=jnp.float32)
    x_RD = jnp.pad(x_RD, ((0, block), (0, 0)))

    def by_expert(
        carry: tuple[jax.Array, jax.Array], expert: tuple[jax.Array, Kernels]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        start, y_RD = carry
        size, (gate_DF, up_DF, down_FD, gate_bias_F, up_bias_F, down_bias_D) = expert

        def by_block(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            row, y_RD = state
            x_CD = jax.lax.dynamic_slice_in_dim(x_RD, row, block)
            gate_CF = act.of_gate(plus(matmul(x_CD, gate_DF), gate_bias_F)).astype(x_RD.dtype)
            up_CF = act.of_up(plus(matmul(x_CD, up_DF), up_bias_F))
            hidden_CF = (gate_CF.astype(jnp.float32) * up_CF).astype(x_RD.dtype)
            y_CD = plus(matmul(hidden_CF, down_FD), down_bias_D)
            return row + block, jax.lax.dynamic_update_slice_in_dim(y_RD, y_CD, row, axis=0)

        stop = start + size
        _, y_RD = jax.lax.while_loop(lambda state: state[0] < stop, by_block, (start, y_RD))
        return (stop, y_RD), None

    init = jnp.int32(0), jnp.zeros(x_RD.shape, jnp.float32)
    (_, y_RD), _ = jax.lax.scan(by_expert, init, (size_E, kernels))
    return y_RD[:num_rows]


def _on_each_device(
    x_BTD: jax.Array,
    router: tuple[jax.Array, jax.Array | None],
    kernels: Kernels,
    config: ModelConfig,
    rows_are_split: bool,
    on_hopper: bool,
) -> jax.Array:
    """`expert_sum` of a batch; on a mesh, of each device's rows by its experts and hidden units,
    summed over devices."""
    assert config.experts is not None
    experts = config.experts
    mesh = jax.sharding.get_abstract_mesh()
    act = Act(config.activation, experts.limit, experts.gain)
    rows = row_axes(x_BTD.shape[0]) if rows_are_split else ()
    by_expert, by_hidden = (
        axis if mesh.shape.get(axis, 1) > 1 and size % mesh.shape[axis] == 0 else None
        for axis, size in ((EXPERT, experts.count), (MODEL, config.d_ff))
    )
    exchanges = by_expert in rows

    def local(
        x_BTD: jax.Array, router: tuple[jax.Array, jax.Array | None], kernels: Kernels
    ) -> jax.Array:
        if exchanges:  # one array travels: each device routes for itself
            x_BTD = jax.lax.all_gather(x_BTD, EXPERT, tiled=True)
        x_MD = x_BTD.reshape(-1, config.d_model)
        first = jax.lax.axis_index(EXPERT) * kernels.gate_EDF.shape[0] if by_expert else 0
        if by_hidden and kernels.down_bias_ED is not None:  # one of the devices adds it
            is_first = jax.lax.axis_index(MODEL) == 0
            kernels = kernels._replace(down_bias_ED=jnp.where(is_first, kernels.down_bias_ED, 0.0))
        router_DE, bias_E = router
        y_MD = expert_sum(
            x_MD, *route(x_MD, router_DE, experts, bias_E), kernels, act, first, on_hopper
        )
        y_BTD = y_MD.reshape(x_BTD.shape)
        if by_hidden:
            y_BTD = jax.lax.psum(y_BTD, MODEL)
        if exchanges:
            return jax.lax.psum_scatter(y_BTD, EXPERT, scatter_dimension=0, tiled=True)
        return jax.lax.psum(y_BTD, EXPERT) if by_expert else y_BTD

    axes = set(mesh.axis_names) - set(mesh.manual_axes)
    if not axes:
        return local(x_BTD, router, kernels)
    tokens = PartitionSpec(rows or None)
    axis_of = {"E": by_expert, "D": None, "F": by_hidden}
    by_kernel = Kernels._make(
        PartitionSpec(*(axis_of[axis] for axis in axes_of(name))) for name in Kernels._fields
    )
    specs = tokens, PartitionSpec(), by_kernel
    split = jax.shard_map(local, in_specs=specs, out_specs=tokens, axis_names=axes, check_vma=False)
    return split(x_BTD, router, kernels)
