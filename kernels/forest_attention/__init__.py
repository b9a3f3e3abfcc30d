"""Attention in which key k is visible to query q exactly when k <= q < subtree_end[k] (and lies
inside the window).

`reference` is the definition.  `xla` runs on every device; `choose` uses another implementation on
a device on which it agrees with the definition.  Tests and benchmarks share `cases`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import jax


class Implementation(NamedTuple):
    """What is known of an implementation before its module, which has its name, is imported."""

    platform: str | None = None  # of the devices that use it by default
    # of `xla.hidden_bias`, which it reads, built once a batch; None: it reads none
    bias_dtype: str | None = None
    dtypes: tuple[str, ...] = ("float32", "bfloat16")  # of q, k and v
    softcap: bool = True
    sinks: bool = False  # whether it takes `sinks_N`; it is not called with them otherwise
    # under a mesh it runs on each device's rows and heads; others leave that to plain XLA
    splits: bool = False


IMPLEMENTATIONS: dict[str, Implementation] = {
    "xla": Implementation(bias_dtype="float32", sinks=True),
    "cudnn": Implementation("gpu", bias_dtype="bfloat16", dtypes=("bfloat16",), softcap=False),
    "tpu": Implementation("tpu", sinks=True, splits=True),
}


def implementation(name: str) -> "Callable[..., jax.Array]":
    """`forest_attention` of this implementation: the arguments of `reference.forest_attention`, and
    `bias_BTT`, the mask of `xla.hidden_bias` for the same rows and window in the row's
    `bias_dtype`, or None."""
    return import_module(f"{__name__}.{name}").forest_attention
