"""Which implementation of forest attention a device runs: its own where that agrees with the definition, else plain XLA.

The question is asked once for every shape of heads, by a small forest on the device itself: a kernel that a version of the
compiler refuses, or gets wrong, is not used.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.kernels.forest_attention import Name, cudnn, reference, tpu, xla

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.03}  # of an output of size 1; bfloat16 rounds weights and values to 2**-8
PREFIX, BRANCH, ROW = 100, 24, 300  # places of the forest asked about: no block is full, some are hidden


class Heads(NamedTuple):
    """What an implementation may depend on beside the rows."""

    heads: int
    kv_heads: int
    head_dim: int
    softcap: float | None
    dtype: str  # of q, k and v


class Choice(NamedTuple):
    name: Name
    why_not: str | None = None  # the device's own is not used


Attend = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


OWN: dict[str, Name] = {"tpu": "tpu", "gpu": "cudnn"}  # of each platform, where nothing is asked for by name


@cache
def choose(device: Any, heads: Heads, wanted: Name | None = None) -> Choice:
    """The implementation for this device, or the one that is wanted."""
    name = wanted or OWN.get(device.platform, "xla")
    if name == "xla":
        return Choice("xla")
    if name == "cudnn" and (heads.dtype != "bfloat16" or heads.softcap is not None):
        return Choice("xla", f"cuDNN does not take {heads.dtype}{' with a soft cap' if heads.softcap else ''}")
    attend = {"tpu": tpu.forest_attention, "cudnn": _by_cudnn}[name]
    return tried(name, partial(attend, scale=heads.head_dim**-0.5, softcap=heads.softcap), device, heads)


def tried(name: Name, attend: Attend, device: Any, heads: Heads) -> Choice:
    """`name` where `attend` gives what the definition does on a small forest on the device."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(2, ROW, heads.heads, heads.head_dim))
    k, v = rng.normal(size=(2, 2, ROW, heads.kv_heads, heads.head_dim))
    subtree_end, position = _forest()
    with jax.default_device(device), jax.default_matmul_precision("highest"):
        rows = [jnp.asarray(x, heads.dtype) for x in (q, k, v)]
        seen = [jnp.asarray(np.stack([x, x])) for x in (subtree_end, position)]
        rules = {"scale": heads.head_dim**-0.5, "softcap": heads.softcap}
        expected = reference.forest_attention(*(x.astype(jnp.float32) for x in rows), *seen, **rules)
        try:
            found = np.asarray(jax.jit(attend)(*rows, *seen))
        except Exception as error:  # whatever a compiler or a driver says of it, the plain one runs
            return Choice(
                "xla", f"{name} attention fails here: {str(error).splitlines()[0] if str(error) else error!r}"
            )
    apart = float(np.abs(found - np.asarray(expected)).max())  # by NumPy: jnp.max drops NaN on CPU in jax 0.12
    if not apart <= TOLERANCE[heads.dtype]:
        return Choice(
            "xla", f"{name} attention is {apart:.1e} off its definition here, allowed {TOLERANCE[heads.dtype]}"
        )
    return Choice(name)


def _by_cudnn(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    subtree_end_BT: jax.Array,
    position_BT: jax.Array,
    scale: float,
    softcap: None,
) -> jax.Array:
    return cudnn.forest_attention(q_BTNH, k_BTKH, v_BTKH, xla.hidden_bias(subtree_end_BT, position_BT), scale=scale)


def _forest() -> tuple[np.ndarray, np.ndarray]:
    """subtree_end, position int32 [ROW]: branches behind a common prefix, then padding."""
    subtree_end, position = np.arange(1, ROW + 1, dtype=np.int32), np.zeros(ROW, np.int32)
    used = PREFIX + (ROW - PREFIX) // BRANCH * BRANCH
    subtree_end[:PREFIX], position[:PREFIX] = used, np.arange(PREFIX)
    for start in range(PREFIX, used, BRANCH):
        subtree_end[start : start + BRANCH], position[start : start + BRANCH] = (
            start + BRANCH,
            PREFIX + np.arange(BRANCH),
        )
    return subtree_end, position
