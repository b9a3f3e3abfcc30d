"""Linear layers, norms and the MLP, of which the layers of every family are built.

Arrives: a `ModelConfig`, activations.  Leaves: activations.  It deliberately does not know
attention, layers or meshes but for the weights that `fsdp` splits.  Shapes and numbers as in
model/decoder/decoder.py.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from miron_jax.kernels.reductions import row_sum
from miron_jax.model.config import Activation, ModelConfig
from miron_jax.runtime.devices import FSDP

ACTIVATE = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
}

# slots of a batch from which on it pays on a TPU to cut a layer's weights out of the stack first
SLICED_FROM = 16384


class Linear(nnx.Module):
    def __init__(
        self,
        stack: tuple[int, ...],
        shape: tuple[int, int],
        bias: bool,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        by_head: bool = False,
    ):
        # outputs are split by head, and XLA orders them as attention reads them
        self.by_head = by_head
        self.kernel_IO = nnx.Param(normal(rngs, (*stack, *shape), dtype, shape[0] ** -0.5))
        self.bias_O = weight_if(bias, rngs, (*stack, shape[1]))

    @jax.named_scope("linear")
    def __call__(self, x_BTI: jax.Array, dtype: DTypeLike = jnp.float32) -> jax.Array:
        """`dtype`: of the outputs.  A bias is added to float32 sums, which are then rounded."""
        kernel_IO = self.kernel_IO[...]
        # Weights that `fsdp` splits are gathered while a matmul runs.
        is_whole = jax.sharding.get_abstract_mesh().shape.get(FSDP, 1) == 1
        if is_whole and not self.by_head and x_BTI.shape[0] * x_BTI.shape[1] >= SLICED_FROM:
            kernel_IO = stored(kernel_IO)
        bias_O = array_of(self.bias_O)
        sums = dtype if bias_O is None else jnp.float32
        y_BTO = jnp.dot(x_BTI.astype(kernel_IO.dtype), kernel_IO, preferred_element_type=sums)
        return plus(y_BTO, bias_O).astype(dtype)


class Norm(nnx.Module):
    """RMS norm or layer norm over the last axis, in float32; weights may also have earlier axes."""

    def __init__(
        self,
        config: ModelConfig,
        stack: tuple[int, ...],
        shape: tuple[int, ...],
        rngs: nnx.Rngs,
        bias: bool = True,
    ):
        self.config = config
        mean = 1.0 - config.norm_offset
        bias = bias and config.norm_bias and config.norm == "layer"
        self.weight = weight_if(config.norm_weight, rngs, (*stack, *shape), mean=mean)
        self.bias = weight_if(bias, rngs, (*stack, *shape))

    def __call__(self, x: jax.Array) -> jax.Array:
        if self.config.norm == "layer":
            x = x - _mean(x)
        x = x * jax.lax.rsqrt(_mean(jnp.square(x)) + self.config.norm_eps)
        if self.weight is not None:
            weight = self.weight[...] + self.config.norm_offset
            x = x * weight[(None,) * (x.ndim - weight.ndim)]
        return plus(x, array_of(self.bias))


def norm_if(
    wanted: bool,
    config: ModelConfig,
    stack: tuple[int, ...],
    shape: tuple[int, ...],
    rngs: nnx.Rngs,
    bias: bool = True,
) -> Norm | None:
    """A norm that a config may leave out."""
    return Norm(config, stack, shape, rngs, bias) if wanted else None


class Mlp(nnx.Module):
    def __init__(
        self,
        config: ModelConfig,
        stack: tuple[int, ...],
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        d_ff: int | None = None,
    ):
        """`d_ff`: hidden units; None: the config's."""
        self.activation: Activation = config.activation
        d_ff = d_ff or config.d_ff
        bias = config.mlp_bias
        wide = (config.d_model, d_ff)
        self.gate = Linear(stack, wide, bias, dtype, rngs) if config.gated_mlp else None
        self.up = Linear(stack, wide, bias, dtype, rngs)
        self.down = Linear(stack, (d_ff, config.d_model), bias, dtype, rngs)

    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        # In the run's dtype, as published models have them: the widest arrays of a layer are
        # written and read again.
        dtype = self.up.kernel_IO[...].dtype
        up_BTF = self.up(x_BTD, dtype).astype(jnp.float32)
        if self.gate is None:
            return self.down(ACTIVATE[self.activation](up_BTF))
        gate_BTF = ACTIVATE[self.activation](self.gate(x_BTD, dtype).astype(jnp.float32))
        gate_BTF = stored(gate_BTF.astype(dtype))
        return self.down(stored((gate_BTF.astype(jnp.float32) * up_BTF).astype(dtype)))


def normal(
    rngs: nnx.Rngs, shape: tuple[int, ...], dtype: DTypeLike, scale: float, mean: float = 0.0
) -> jax.Array:
    return (mean + scale * jax.random.normal(rngs.params(), shape, jnp.float32)).astype(dtype)


def weight_if(
    wanted: bool, rngs: nnx.Rngs, shape: tuple[int, ...], scale: float = 0.1, mean: float = 0.0
) -> nnx.Param | None:
    """Float32 weights that a config may leave out."""
    return nnx.Param(normal(rngs, shape, jnp.float32, scale, mean)) if wanted else None


def array_of(param: nnx.Param | None) -> jax.Array | None:
    return None if param is None else param[...]


def plus(x: jax.Array, bias: jax.Array | None) -> jax.Array:
    """x and, if there is one, a bias along its last axes."""
    return x if bias is None else x + bias[(None,) * (x.ndim - bias.ndim)]


def _mean(x: jax.Array) -> jax.Array:
    """Mean over the last axis, which is kept with length 1."""
    return (row_sum(x) / x.shape[-1])[..., None]


def stored(x: jax.Array) -> jax.Array:
    """x itself; on a TPU it is computed once and stored.

    XLA otherwise computes a norm again in every tile of each matmul that reads it, reduces rows
    within the matmul before it, and cuts a layer's weights out of the stack in every tile, not once
    into fast memory: by the compiler's estimate a layer then takes a quarter longer
    (benchmarks/tpu_estimate.py).
    """
    return jax.lax.platform_dependent(x, tpu=jax.lax.optimization_barrier, default=lambda x: x)


def normed(norm: Norm | None, x: jax.Array) -> jax.Array:
    return x if norm is None else norm(x)
