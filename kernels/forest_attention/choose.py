"""Which implementation of forest attention a device runs: its default where that agrees with the
definition, else XLA's.

Each implementation is tried once for every shape of heads, on a small forest on the device itself:
a kernel that a version of the compiler refuses, or gets wrong, is not used.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from miron_jax.kernels.forest_attention import IMPLEMENTATIONS, implementation, reference, xla

# largest absolute difference of outputs of about 1; bfloat16 rounds weights and values to 2**-8
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.03}
PREFIX, BRANCH, ROW = 100, 24, 300  # slots of the small forest: no block is full, some are hidden


class Heads(NamedTuple):
    """What an implementation may depend on beside the rows."""

    heads: int
    kv_heads: int
    head_dim: int
    softcap: float | None
    dtype: str  # of q, k and v
    sinks: bool = False


class AttentionChoice(NamedTuple):
    name: str
    # why the device's default, or the implementation asked for by name, is not used
    why_not: str | None = None


Attend = Callable[..., jax.Array]


class DeviceLike(Protocol):
    """What is read here of a jax.Device, for which jaxlib has no type."""

    platform: str
    client: object


@cache
def choose(
    device: DeviceLike, heads: Heads, name: str | None = None, split: bool = False
) -> AttentionChoice:
    """The implementation of this name, or the device's default, if its result agrees with the
    definition on this device; else `xla`.

    `heads`: those of one device.  `split`: whether a mesh splits rows or heads.
    """
    defaults = {entry.platform: name for name, entry in IMPLEMENTATIONS.items()}
    name = name or defaults.get(device.platform, "xla")
    if name == "xla":
        return AttentionChoice("xla")
    entry = IMPLEMENTATIONS[name]
    if split and not entry.splits:
        return AttentionChoice("xla", f"{name} does not take weights that are split over devices")
    lacks_softcap = heads.softcap is not None and not entry.softcap
    lacks_sinks = heads.sinks and not entry.sinks
    if heads.dtype not in entry.dtypes or lacks_softcap or lacks_sinks:
        what = heads.dtype
        if heads.softcap:
            what += " with a soft cap"
        if heads.sinks:
            what += " with sinks"
        return AttentionChoice("xla", f"{name} does not take {what}")
    return tried(name, implementation(name), device, heads)


def tried(name: str, attend: Attend, device: DeviceLike, heads: Heads) -> AttentionChoice:
    """`name` if `attend` gives what the definition does on a small forest on the device.

    A device that only compiles (`jax.experimental.topologies`) cannot compute: there `attend` must
    compile.
    """
    rules: dict[str, float | np.ndarray | None] = {
        "scale": heads.head_dim**-0.5,
        "softcap": heads.softcap,
    }
    if heads.sinks:
        rules["sinks_N"] = np.linspace(-2, 2, heads.heads, dtype=np.float32)
    qkv = _random_qkv(heads)
    visibility = _forest()
    dtype = IMPLEMENTATIONS[name].bias_dtype
    call = jax.jit(partial(attend, **rules))
    with jax.default_matmul_precision("highest"):
        try:
            if getattr(device.client, "runtime_type", "") == "compile_only_runtime":
                here = SingleDeviceSharding(device)
                shapes = [jax.ShapeDtypeStruct(x.shape, heads.dtype, sharding=here) for x in qkv]
                shapes += [
                    jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here) for x in visibility
                ]
                bias = jax.ShapeDtypeStruct((2, ROW, ROW), dtype, sharding=here) if dtype else None
                call.lower(*shapes, bias_BTT=bias).compile()
                return AttentionChoice(name)
            with jax.default_device(device):
                rows = [jnp.asarray(x, heads.dtype) for x in qkv]
                places = [*map(jnp.asarray, visibility)]
                bias_BTT = xla.hidden_bias(*places).astype(dtype) if dtype else None
                computed = np.asarray(call(*rows, *places, bias_BTT=bias_BTT))
                define = jax.jit(partial(reference.forest_attention, **rules))
                expected = define(*(x.astype(jnp.float32) for x in rows), *places)
        except Exception as error:  # whatever a compiler or a driver says of it, the plain one runs
            reason = (str(error) or repr(error)).splitlines()[0]
            return AttentionChoice("xla", f"{name} attention fails here: {reason}")
    # by NumPy: jnp.max drops NaN on CPU in jax 0.12
    difference = float(np.abs(computed - np.asarray(expected)).max())
    if not difference <= TOLERANCE[heads.dtype]:
        return AttentionChoice(
            "xla",
            f"{name} attention is {difference:.1e} off its definition here, allowed "
            f"{TOLERANCE[heads.dtype]}",
        )
    return AttentionChoice(name)


def _random_qkv(heads: Heads) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v float64 [2, ROW, heads, H]."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(2, ROW, heads.heads, heads.head_dim))
    k, v = rng.normal(size=(2, 2, ROW, heads.kv_heads, heads.head_dim))
    return q, k, v


def _forest() -> tuple[np.ndarray, np.ndarray]:
    """subtree_end, position int32 [2, ROW]: branches behind a common prefix, then padding."""
    subtree_end = np.arange(1, ROW + 1, dtype=np.int32)
    position = np.zeros(ROW, np.int32)
    used = PREFIX + (ROW - PREFIX) // BRANCH * BRANCH
    subtree_end[:PREFIX], position[:PREFIX] = used, np.arange(PREFIX)
    for start in range(PREFIX, used, BRANCH):
        branch = slice(start, start + BRANCH)
        subtree_end[branch], position[branch] = start + BRANCH, PREFIX + np.arange(BRANCH)
    return np.stack([subtree_end, subtree_end]), np.stack([position, position])
