"""Which implementation of forest attention a device runs: its default where that agrees with the definition, else XLA's.

Each implementation is tried once for every shape of heads, on a small forest on the device itself: a kernel that a version
of the compiler refuses, or gets wrong, is not used.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.kernels.forest_attention import IMPLEMENTATIONS, implementation, reference, xla

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.03}  # of an output of size 1; bfloat16 rounds weights and values to 2**-8
PREFIX, BRANCH, ROW = 100, 24, 300  # slots of the small forest: no block is full, some are hidden


class Heads(NamedTuple):
    """What an implementation may depend on beside the rows."""

    heads: int
    kv_heads: int
    head_dim: int
    softcap: float | None
    dtype: str  # of q, k and v


class Choice(NamedTuple):
    name: str
    why_not: str | None = None  # the device's default, or the implementation asked for by name, is not used


Attend = Callable[..., jax.Array]


@cache
def choose(device: jax.Device, heads: Heads, name: str | None = None) -> Choice:
    """This implementation, or the device's default, if the device runs it as the definition says; else `xla`."""
    defaults = {row.platform: name for name, row in IMPLEMENTATIONS.items()}
    name = name or defaults.get(device.platform, "xla")
    if name == "xla":
        return Choice("xla")
    row = IMPLEMENTATIONS[name]
    if heads.dtype not in row.dtypes or (heads.softcap is not None and not row.softcap):
        return Choice("xla", f"{name} does not take {heads.dtype}{' with a soft cap' if heads.softcap else ''}")
    return tried(name, implementation(name), device, heads)


def tried(name: str, attend: Attend, device: jax.Device, heads: Heads) -> Choice:
    """`name` if `attend` gives what the definition does on a small forest on the device."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(2, ROW, heads.heads, heads.head_dim))
    k, v = rng.normal(size=(2, 2, ROW, heads.kv_heads, heads.head_dim))
    subtree_end, position = _forest()
    with jax.default_device(device), jax.default_matmul_precision("highest"):
        qkv = [jnp.asarray(x, heads.dtype) for x in (q, k, v)]
        visibility = [jnp.asarray(np.stack([x, x])) for x in (subtree_end, position)]
        rules = {"scale": heads.head_dim**-0.5, "softcap": heads.softcap}
        expected = reference.forest_attention(*(x.astype(jnp.float32) for x in qkv), *visibility, **rules)
        dtype = IMPLEMENTATIONS[name].bias_dtype
        bias_BTT = xla.hidden_bias(*visibility).astype(dtype) if dtype else None
        try:
            computed = np.asarray(jax.jit(partial(attend, **rules))(*qkv, *visibility, bias_BTT=bias_BTT))
        except Exception as error:  # whatever a compiler or a driver says of it, the plain one runs
            return Choice(
                "xla", f"{name} attention fails here: {str(error).splitlines()[0] if str(error) else error!r}"
            )
    difference = float(np.abs(computed - np.asarray(expected)).max())  # by NumPy: jnp.max drops NaN on CPU in jax 0.12
    if not difference <= TOLERANCE[heads.dtype]:
        return Choice(
            "xla", f"{name} attention is {difference:.1e} off its definition here, allowed {TOLERANCE[heads.dtype]}"
        )
    return Choice(name)


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
