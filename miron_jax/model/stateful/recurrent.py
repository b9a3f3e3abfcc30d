"""The parts of models that carry a state from token to token.

Arrives: a layer's weights, its state, activations.  Leaves: activations, the state after them.  It
deliberately does not know any particular family.  Branches start from the state of what they share
(`walk.py`).

Shapes are of one text: T tokens, D model, L layers, C channels, K width of a convolution.  Numbers
as in family_model.py.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from miron_jax.model.families.family_model import embedded, rms_norm
from miron_jax.model.families.naming import Table, Tensor
from miron_jax.model.families.naming import linear as linear_names
from miron_jax.runtime.devices import Tree

# (a layer's weights, its state, normed inputs [T, D]) -> (outputs [T, D], the state after them)
Mixer = Callable[[Tree, Tree, jax.Array], tuple[jax.Array, Tree]]


def mixer_names() -> Table:
    """Names of the tensors that Mamba 1 and 2 share."""
    return {
        "embedding_VD": Tensor("embeddings.weight"),
        "final_norm/weight": Tensor("norm_f.weight"),
        "layers/norm/weight": Tensor("layers.{}.norm.weight"),
        **linear_names("layers/in", "layers.{}.mixer.in_proj"),
        **conv_names("layers/conv", "layers.{}.mixer.conv1d"),
        **linear_names("layers/out", "layers.{}.mixer.out_proj"),
    }


def step_of_layers(mixer: Mixer, norm_eps: float) -> Callable[..., tuple[jax.Array, Tree]]:
    """The `step` of equal layers, each a mixer on a normed input, and of a last norm."""

    def step(params: Tree, state: Tree, token_ids_T: jax.Array) -> tuple[jax.Array, Tree]:
        def layer(x_TD: jax.Array, of_layer: Tree) -> tuple[jax.Array, Tree]:
            weights, before = of_layer
            y_TD, after = mixer(
                weights, before, rms_norm(x_TD, norm_eps) * weights["norm"]["weight"][None]
            )
            return x_TD + y_TD, after

        with jax.named_scope("layers"):
            x_TD, after = jax.lax.scan(
                layer, embedded(params, token_ids_T), (params["layers"], state)
            )
        return rms_norm(x_TD, norm_eps) * params["final_norm"]["weight"][None], after

    return step


def conv_names(leaf: str, tensor: str) -> Table:
    return {
        f"{leaf}/weight_C1K": Tensor(f"{tensor}.weight"),
        f"{leaf}/bias_C": Tensor(f"{tensor}.bias"),
    }


def conv_shapes(
    name: str, stack: int, channels: int, width: int, bias: bool = True
) -> dict[str, tuple[int, ...]]:
    """Shapes of a causal convolution, as torch stores its weight."""
    weight = {f"{name}/weight_C1K": (stack, channels, 1, width)}
    return weight | ({f"{name}/bias_C": (stack, channels)} if bias else {})


def causal_conv(
    weights: Tree, before_KC: jax.Array, x_TC: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(convolution of each channel over a token and the K - 1 before it; the last K - 1 inputs).
    `before_KC`: the K - 1 inputs before x."""
    weight_CK = weights["weight_C1K"][:, 0]
    length = x_TC.shape[0]
    all_SC = jnp.concatenate([before_KC, x_TC])
    shifted = [all_SC[k : k + length] * weight_CK[None, :, k] for k in range(weight_CK.shape[1])]
    y_TC = jnp.stack(shifted).sum(axis=0)
    if "bias_C" in weights:
        y_TC = y_TC + weights["bias_C"][None]
    return y_TC, all_SC[length:]


def zeros(*shape: int) -> jax.Array:
    return jnp.zeros(shape, jnp.float32)


linear_recurrence = partial(
    jax.lax.associative_scan, lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])
)
