"""What the families of recurrent models share: their record, and the parts that they are built of.

Arrives: a family's functions and the names of its tensors.  Leaves: a `RecurrentModel`.  It deliberately does not know any
particular family.  Such a model is an `OwnModel` that the engine brings along: it carries a state from token to token, and
branches start from the state of what they share (`walk.py`).

Shapes are of one text: T tokens, D model, L layers, C channels, K width of a convolution, I/O a matmul's in/out.  Numbers as
in decoder.py: matrices have the run's dtype, all else is float32; matmuls accumulate in float32.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict
from jax.typing import DTypeLike

from miron_jax.model.families.naming import Source, Table
from miron_jax.model.families.naming import linear as linear_names
from miron_jax.model.own import OwnModel

Shapes = Mapping[str, tuple[int, ...]]  # leaf name -> shape
# (a layer's weights, its state, normed inputs [T, D]) -> (outputs [T, D], the state after them)
Mixer = Callable[[Any, Any, jax.Array], tuple[jax.Array, Any]]


@dataclass(frozen=True, eq=False)
class RecurrentModel(OwnModel):
    """A recurrent model of a known family, without its weights."""

    family: str = ""
    names: Table = field(default_factory=dict)  #: leaf -> its tensor
    tied_head: bool = True
    description: str = ""  #: all that its functions depend on: two of one description compute the same

    def shapes(self, dtype: DTypeLike) -> Any:
        """The tree of its weights as ShapeDtypeStructs: matrices in `dtype`, all else in float32."""

        def one(path: Any, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            is_matrix = path[-1].key in ("kernel_IO", "embedding_VD", "head_VD")
            return jax.ShapeDtypeStruct(leaf.shape, np.dtype(dtype) if is_matrix else jnp.float32)

        return jax.tree_util.tree_map_with_path(one, self.params)

    @property
    def matmul_params(self) -> int:
        """Weights of the layers' matmuls."""
        leaves = jax.tree_util.tree_leaves_with_path(self.params)
        return sum(math.prod(leaf.shape) for path, leaf in leaves if path[-1].key == "kernel_IO")  # type: ignore[union-attr]

    @property
    def head_params(self) -> int:
        return math.prod(self.params["embedding_VD"].shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecurrentModel) and self.description == other.description

    def __hash__(self) -> int:
        return hash(self.description)


def is_users(model: object) -> TypeGuard[OwnModel]:
    """Whether the model is a user's own, which must be probed, and not one of a known family."""
    return isinstance(model, OwnModel) and not isinstance(model, RecurrentModel)


def names_of(model: RecurrentModel) -> Table:
    return model.names


def mixer_names() -> Table:
    """Names of the tensors that Mamba 1 and 2 share."""
    return {
        "embedding_VD": Source("embeddings.weight"),
        "final_norm/weight": Source("norm_f.weight"),
        "layers/norm/weight": Source("layers.{}.norm.weight"),
        **linear_names("layers/in", "layers.{}.mixer.in_proj"),
        **conv_names("layers/conv", "layers.{}.mixer.conv1d"),
        **linear_names("layers/out", "layers.{}.mixer.out_proj"),
    }


def step_of_layers(mixer: Mixer, norm_eps: float) -> Callable[..., tuple[jax.Array, Any]]:
    """The `step` of equal layers, each a mixer on a normed input, and of a last norm."""

    def step(params: Any, state: Any, token_ids_T: jax.Array) -> tuple[jax.Array, Any]:
        def layer(x_TD: jax.Array, of_layer: Any) -> tuple[jax.Array, Any]:
            weights, before = of_layer
            y_TD, after = mixer(weights, before, rms_norm(x_TD, norm_eps) * weights["norm"]["weight"][None])
            return x_TD + y_TD, after

        with jax.named_scope("layers"):
            x_TD, after = jax.lax.scan(layer, embedded(params, token_ids_T), (params["layers"], state))
        return rms_norm(x_TD, norm_eps) * params["final_norm"]["weight"][None], after

    return step


def tree_of(shapes: Shapes) -> Any:
    """Float32 ShapeDtypeStructs in nested dicts, by the parts of their names."""
    leaves = {tuple(name.split("/")): jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    return unflatten_dict(leaves)


def linear_shapes(name: str, stack: int, inputs: int, outputs: int, bias: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of a linear layer of each of `stack` layers."""
    kernel = {f"{name}/kernel_IO": (stack, inputs, outputs)}
    return kernel | ({f"{name}/bias_O": (stack, outputs)} if bias else {})


def conv_names(leaf: str, tensor: str) -> Table:
    return {f"{leaf}/weight_C1K": Source(f"{tensor}.weight"), f"{leaf}/bias_C": Source(f"{tensor}.bias")}


def conv_shapes(name: str, stack: int, channels: int, width: int, bias: bool = True) -> dict[str, tuple[int, ...]]:
    """Shapes of a causal convolution, as torch stores its weight."""
    weight = {f"{name}/weight_C1K": (stack, channels, 1, width)}
    return weight | ({f"{name}/bias_C": (stack, channels)} if bias else {})


def head_weight(params: Any) -> jax.Array:
    """[V, D]: the head's matrix, or the embedding where the two are tied."""
    return params.get("head_VD", params["embedding_VD"])


def embedded(params: Any, token_ids_T: jax.Array) -> jax.Array:
    return params["embedding_VD"][token_ids_T].astype(jnp.float32)


@jax.named_scope("linear")
def linear(weights: Any, x_TI: jax.Array) -> jax.Array:
    kernel_IO = weights["kernel_IO"]
    y_TO = jnp.dot(x_TI.astype(kernel_IO.dtype), kernel_IO, preferred_element_type=jnp.float32)
    return y_TO + weights["bias_O"][None] if "bias_O" in weights else y_TO


def rms_norm(x: jax.Array, eps: float) -> jax.Array:
    """x over its root mean square along the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)


def causal_conv(weights: Any, before_KC: jax.Array, x_TC: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(convolution of each channel over a token and the K - 1 before it; the last K - 1 inputs).  `before_KC`: the K - 1
    inputs before x."""
    weight_CK = weights["weight_C1K"][:, 0]
    length, all_SC = x_TC.shape[0], jnp.concatenate([before_KC, x_TC])
    shifted = [all_SC[k : k + length] * weight_CK[None, :, k] for k in range(weight_CK.shape[1])]
    y_TC = jnp.stack(shifted).sum(axis=0)
    y_TC = y_TC + weights["bias_C"][None] if "bias_C" in weights else y_TC
    return y_TC, all_SC[length:]


def zeros(*shape: int) -> jax.Array:
    return jnp.zeros(shape, jnp.float32)


linear_recurrence = partial(jax.lax.associative_scan, lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]))
