"""Models of known families that the decoder does not compute: their record, and the parts that they
are built of.

Arrives: a family's functions and the names of its tensors.  Leaves: a `FamilyModel`.  It
deliberately does not know any particular family.

I/O are a matmul's in/out, V the vocabulary, D the model.  Numbers as in decoder.py: matrices have
the run's dtype, all else is float32; matmuls accumulate in float32.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict
from jax.tree_util import KeyPath
from jax.typing import DTypeLike

from miron_jax.model.decoder.modules import plus
from miron_jax.model.families.naming import Table
from miron_jax.model.network import Network
from miron_jax.runtime.devices import Tree

Shapes = Mapping[str, tuple[int, ...]]  # leaf name -> shape


@dataclass(frozen=True, eq=False)
class FamilyModel(Network):
    """A model of a known family, without its weights."""

    family: str = ""
    names: Table = field(default_factory=dict)  #: leaf -> its tensor
    tied_head: bool = True
    ignored: str = ""  #: pattern of the names of tensors that take no part
    #: all that its functions depend on: two of one description compute the same
    description: str = ""

    def shapes(self, dtype: DTypeLike) -> Tree:
        """The tree of its weights as ShapeDtypeStructs: matrices in `dtype`, all else in
        float32."""

        def one(path: KeyPath, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
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
        return isinstance(other, FamilyModel) and self.description == other.description

    def __hash__(self) -> int:
        return hash(self.description)


def names_of(model: FamilyModel) -> Table:
    return model.names


def tree_of(shapes: Shapes) -> Tree:
    """Float32 ShapeDtypeStructs in nested dicts, by the parts of their names."""
    leaves = {}
    for name, shape in shapes.items():
        leaves[tuple(name.split("/"))] = jax.ShapeDtypeStruct(shape, jnp.float32)
    return unflatten_dict(leaves)


def linear_shapes(
    name: str, stack: int, inputs: int, outputs: int, bias: bool
) -> dict[str, tuple[int, ...]]:
    """Shapes of a linear layer of each of `stack` layers."""
    kernel = {f"{name}/kernel_IO": (stack, inputs, outputs)}
    return kernel | ({f"{name}/bias_O": (stack, outputs)} if bias else {})


def head_weight(params: Tree) -> jax.Array:
    """[V, D]: the head's matrix, or the embedding where the two are tied."""
    return params.get("head_VD", params["embedding_VD"])


def embedded(params: Tree, token_ids_T: jax.Array) -> jax.Array:
    return params["embedding_VD"][token_ids_T].astype(jnp.float32)


@jax.named_scope("linear")
def linear(weights: Tree, x: jax.Array) -> jax.Array:
    """[.., I] -> [.., O]."""
    kernel_IO = weights["kernel_IO"]
    y = jnp.dot(x.astype(kernel_IO.dtype), kernel_IO, preferred_element_type=jnp.float32)
    return plus(y, weights.get("bias_O"))


def rms_norm(x: jax.Array, eps: float) -> jax.Array:
    """x over its root mean square along the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)
