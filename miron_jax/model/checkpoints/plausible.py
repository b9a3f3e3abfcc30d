"""Weights that no trained model has: NaN, too large ones, matrices of zeros, many copies.

Arrives: a state on its devices, or shapes in a file.  Leaves: an error or warnings, which name the
weights.  It deliberately does not know where they were read.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from miron_jax.errors import InputError, some_of
from miron_jax.model.decoder.decoder import leaf_name
from miron_jax.runtime.devices import Tree
from miron_jax.runtime.timeline import spent_on

MAX_AT_ONCE = 1 << 20  # numbers that are compared with zero at a time
PLAUSIBLE = 1e4  # weights of trained models are far smaller
_TABLES = ("embedding_VD", "head_VD", "position_PD")
_HALF_WRITTEN = "the file may be half-written or damaged, compare it with its source"


def check_one_copy(source: Path | str, shapes: Collection[tuple[int, ...]]) -> None:
    """Raises InputError, which names `source`, if all arrays of a model have the same first axis,
    which counts devices where pmap's weights were saved."""
    firsts = {shape[:1] for shape in shapes}
    if len(shapes) > 1 and len(firsts) == 1 and () not in firsts:
        [[count]] = firsts
        raise InputError(
            f"{source}: every array has a first axis of {count}, as flax.jax_utils.replicate "
            "leaves it, expected one copy of the weights; save them again after "
            "flax.jax_utils.unreplicate"
        )


def check_finite(source: Path | str, state: Tree) -> Tree:
    """Return the state.  Raises InputError, which names `source`, if it holds NaN or infinity."""
    leaves = [
        (path, leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    for (path, _), value in zip(leaves, largest([leaf for _, leaf in leaves]), strict=True):
        if not np.isfinite(value):
            raise InputError(
                f"{source}: the weights {leaf_name(path)} hold NaN or infinity, expected numbers; "
                "the training went wrong before this step, or the file is damaged: name an earlier "
                "step or copy it again"
            )
    return state


@spent_on("load")
def implausible(state: Tree, num_tokens: int, is_own: bool = False) -> list[str]:
    """A warning for each leaf of a model with a weight beyond PLAUSIBLE, such as a flipped bit
    causes, or with zeros where a file that is half-written has them.

    Rows of vocabulary tables from `num_tokens` on belong to no token, and may be zero.  `is_own`: a
    user's own model, whose leaves may hold other numbers than weights: only zeros are looked for.
    """
    leaves = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        leaves[leaf_name(path)] = leaf
    is_matrix = _may_be_matrix if is_own else _is_matrix
    matrices = {name: leaf for name, leaf in leaves.items() if is_matrix(name, leaf)}
    nonzero = dict(zip(matrices, _nonzero([*matrices.values()]), strict=True))
    warnings: list[str] = []
    if is_own:
        for name, (rows, _) in nonzero.items():
            num_rows = num_tokens if len(rows) >= num_tokens else None
            of_rows = _on_host(rows)
            is_nonzero = np.asarray(of_rows.reshape(len(of_rows), -1).any(-1))
            warnings += _zero_rows(name, is_nonzero, num_rows)
        return warnings
    for name, value in zip(leaves, largest([*leaves.values()]), strict=True):
        if value > PLAUSIBLE:
            warnings.append(
                f"the weights {name} go up to {value:.3g}, expected at most "
                f"{PLAUSIBLE:g}: the file may be damaged, compare it with its source"
            )
        if name in nonzero:
            flags = map(_on_host, nonzero[name])
            warnings += _zeros(name, *flags, num_tokens if name.endswith("_VD") else None)
    return warnings


def _is_matrix(name: str, leaf: jax.Array) -> bool:
    """Whether the leaf is a table, or a matrix of each layer.  Norms' scales and biases, one vector
    a layer, may be zero."""
    if name.endswith(_TABLES):
        return True
    return leaf.ndim > 2 and leaf.size > 0 and "norm" not in name and "bias" not in name


def _may_be_matrix(name: str, leaf: jax.Array) -> bool:
    """The same of a leaf whose name says less."""
    if leaf.ndim < 2 or leaf.size == 0 or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return False
    return not any(word in name.lower() for word in ("norm", "bias", "scale"))


def _zeros(name: str, rows: np.ndarray, columns: np.ndarray, num_rows: int | None) -> Iterator[str]:
    """A warning if matrices are zero, or end in rows of zeros.

    `num_rows` counts.  A matrix may lie transposed in its file, so its last columns are looked at
    as well, but for those of tables.
    """
    if rows.ndim == 1:
        yield from _zero_rows(name, rows, num_rows)
        return
    where: dict[str, list[str]] = {}  # what is zero -> in which layers, or experts of layers
    for index in np.ndindex(rows.shape[:-1]):
        place = "/".join(map(str, index))
        for axis, flags in (("rows", rows[index]), ("columns", columns[index])):
            last = _num_last(flags)
            if last == len(flags):
                where.setdefault("all zero", []).append(place)
                break
            if last:
                what = f"zero in the last {last} of {len(flags)} {axis}"
                where.setdefault(what, []).append(place)
    for what, places in where.items():
        yield f"the weights {name} are {what} in layer {some_of(places, 3)}: {_HALF_WRITTEN}"


def _zero_rows(name: str, rows: np.ndarray, num_rows: int | None) -> Iterator[str]:
    last = _num_last(rows[:num_rows])
    if last:
        which = "all" if last == len(rows[:num_rows]) else f"the last {last}"
        yield f"{which} of {len(rows)} rows of the weights {name} are zero: {_HALF_WRITTEN}"


def _num_last(nonzero: np.ndarray) -> int:
    """How many of the flags at the end are not set."""
    return int(np.argmax(nonzero[::-1])) if nonzero.any() else len(nonzero)


@jax.jit
def _nonzero(leaves: list[jax.Array]) -> list[tuple[jax.Array, jax.Array]]:
    """Which rows, and which columns, of each matrix of each leaf hold a number that is not zero.
    The matrices are the last two axes."""
    return [*map(_nonzero_of, leaves)]


def _nonzero_of(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A few rows, or a few matrices, at a time: XLA on CPU writes a byte for each number that it
    compares."""
    step = min(x.shape[0], max(1, MAX_AT_ONCE * x.shape[0] // x.size))

    def add(i: jax.Array, flags: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rows, columns = flags
        start = jnp.minimum(i * step, x.shape[0] - step)
        is_nonzero = jax.lax.dynamic_slice_in_dim(x, start, step) != 0
        rows = jax.lax.dynamic_update_slice_in_dim(rows, is_nonzero.any(-1), start, 0)
        if x.ndim == 2:
            return rows, columns | is_nonzero.any(-2)
        of_part = is_nonzero.any(-2)
        return rows, jax.lax.dynamic_update_slice_in_dim(columns, of_part, start, 0)

    rows = jnp.zeros(x.shape[:-1], bool)
    columns = jnp.zeros((*x.shape[:-2], x.shape[-1]), bool)
    return jax.lax.fori_loop(0, -(-x.shape[0] // step), add, (rows, columns))


def _on_host(x: jax.Array) -> np.ndarray:
    return np.asarray(x if x.is_fully_addressable else process_allgather(x, tiled=True))


def largest(leaves: list[jax.Array]) -> list[float]:
    """The largest absolute value of each leaf, or NaN if there is one."""
    return [*map(float, _largest(leaves))]


@jax.jit
def _largest(leaves: list[jax.Array]) -> list[jax.Array]:
    return [*map(_largest_of, leaves)]


def _largest_of(x: jax.Array) -> jax.Array:
    """As one reduction to the least and the largest number: XLA on CPU writes absolute values to
    memory before it reduces them, and takes 15 times as long."""

    def wider(left: list[jax.Array], right: list[jax.Array]) -> list[jax.Array]:
        return [jnp.minimum(left[0], right[0]), jnp.maximum(left[1], right[1])]

    values = x.astype(jnp.float32)
    zero = jnp.float32(0)
    least, most = jax.lax.reduce([values] * 2, [zero] * 2, wider, tuple(range(x.ndim)))
    return jnp.maximum(-least, most)
