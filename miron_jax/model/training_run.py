"""A training run's folder -> its checkpoints.

Arrives: a folder with one folder a step, and which steps are wanted.  Leaves: (step, its folder) in order, and a way to
load one.  It deliberately does not know what is scored.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from miron_jax.errors import InputError
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import leaf_name
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.hf_files import has_tensors
from miron_jax.model.hf_reader import Put, load_hf, on_default_device
from miron_jax.model.remote import told_of

_NAMED = re.compile(r"((global_?)?(step|checkpoint|ckpt)[-_]?)?(\d+)", re.ASCII)  # 1000, step_1000, checkpoint-1000
AT_ONCE = 1 << 20  # numbers looked at by one call
PLAUSIBLE = 1e4  # no weight of a trained model comes near
_BELOW = ("", "steps", "checkpoints")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights to score."""

    step: int | None  # of the training run it comes from; None: a model that has no steps
    folder: Path | None  # None: they come from no files
    fingerprint: str | None = None  # of its files, as they were when it was found


def fingerprint(folder: Path, beside: Iterable[Path] = ()) -> str:
    """Of a folder's files and some beside it: names, sizes and times, not contents.  A copy has another one."""
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=str)
    told = [(str(path).removeprefix(str(folder)), *told_of(path)) for path in files]
    told += [(str(path), *told_of(path)) for path in sorted(beside, key=str)]
    return blake2b(repr(told).encode(), digest_size=16).hexdigest()


def training_steps(folder: Path) -> list[tuple[int, Path]]:
    """Every finished checkpoint in a folder, or in its `steps` or `checkpoints`; in order of training."""
    for below in _BELOW:
        where = folder / below
        if not where.is_dir():
            continue
        named = [(int(found[4]), path) for path in where.iterdir() if (found := _NAMED.fullmatch(path.name))]
        steps = sorted(((step, path) for step, path in named if _is_checkpoint(path)), key=lambda own: own[0])
        for (step, first), (following, second) in pairwise(steps):
            if step == following:
                raise InputError(f"{where}: {first.name} and {second.name} are the same step; rename or remove one")
        if steps:
            return steps
    return []


def pick_steps(
    steps: list[tuple[int, Path]], wanted: str | None, folder: Path, strict: bool = True
) -> list[tuple[int, Path]]:
    """`latest`, a list such as 1000,2000, or first:last:stride with any part left out; None: all.

    Raises InputError where one of the list, or all, are missing; not so without `strict`, while they may still come.
    """
    if wanted is None:
        return steps
    if wanted == "latest":
        return steps[-1:]
    have = [step for step, _ in steps]
    if ":" in wanted:
        first, last, stride = (int(part) if part else None for part in [*wanted.split(":"), ""][:3])
        start = have[0] if first is None else first
        end = have[-1] if last is None else last
        picked = [own for own in steps if start <= own[0] <= end and (own[0] - start) % (stride or 1) == 0]
        missing: list[int] = []
    else:
        asked = {int(part) for part in wanted.split(",")}
        picked, missing = [own for own in steps if own[0] in asked], sorted(asked - set(have))
    if strict and (missing or not picked):
        shown = ", ".join(map(str, have[:8])) + (f" and {len(have) - 8} more" if len(have) > 8 else "")
        lacks = f"no step {missing[0]}" if missing else "none of these steps"
        raise InputError(f"--steps={wanted}: {folder} has {lacks}, expected some of {shown}; name steps that are there")
    return picked


def load_step(
    folder: Path, config: ModelConfig, dtype: DTypeLike, param_map: str | None = None, put: Put = on_default_device
) -> Any:
    """Weights of one folder, each where `put` puts it: Orbax where it is that, else a Hugging Face folder's."""
    if _is_orbax(folder):
        from miron_jax.model.orbax_reader import load_orbax

        return finite(folder, load_orbax(folder, config, dtype, param_map, put))
    if param_map is not None:
        raise InputError(
            f"--param_map names the arrays of an Orbax checkpoint, but {folder} is none; leave the flag out"
        )
    if (folder / "config.json").is_file() and from_hf_config(folder) != config:
        raise InputError(
            f"{folder / 'config.json'}: another model than that of the run's other steps, expected the same; score it "
            "by itself"
        )
    return finite(folder, load_hf(folder, dtype, put, config).state)


def load_tree(folder: Path, tree: Any, param_map: str | None = None) -> Any:
    """Weights of a user's own model: a tree of arrays or shapes, filled from an Orbax checkpoint."""
    from miron_jax.model.orbax_reader import load_tree as from_orbax

    return finite(folder, from_orbax(folder, tree, param_map))


def finite(where: Path | str, state: Any) -> Any:
    """The same state, which holds no NaN and no infinity."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(largest(leaf)):
            raise InputError(
                f"{where}: the weights {leaf_name(path)} hold NaN or infinity, expected numbers; the training went wrong "
                "before this step, or the file is damaged: name an earlier step or copy it again"
            )
    return state


def implausible(state: Any) -> list[str]:
    """Weights of a Decoder that no training leaves, as a flipped bit does: what a sentence says of each such leaf."""
    found = [(leaf_name(path), largest(leaf)) for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]]
    return [
        f"the weights {name} go up to {value:.3g}, expected at most {PLAUSIBLE:g}: the file may be damaged, compare it with "
        "its source"
        for name, value in found
        if value > PLAUSIBLE
    ]


def largest(x: jax.Array) -> float:
    """The largest absolute value; NaN where one is.  Some rows at a time: XLA on CPU keeps as much again beside them."""
    if not x.size:
        return 0.0
    if x.ndim == 0:
        return float(jnp.abs(x))
    rows = min(x.shape[0], max(1, AT_ONCE * x.shape[0] // x.size))
    found = [_largest_of_rows(x, np.int32(start), rows) for start in range(0, x.shape[0], rows)]
    return float(np.max([np.float32(own) for own in found]))


@partial(jax.jit, static_argnums=2)
def _largest_of_rows(x: jax.Array, start: jax.Array, rows: int) -> jax.Array:
    return jnp.abs(jax.lax.dynamic_slice_in_dim(x, start, rows)).max().astype(jnp.float32)


def _is_checkpoint(folder: Path) -> bool:
    return folder.is_dir() and (has_tensors(folder) or _is_orbax(folder))


def _is_orbax(folder: Path) -> bool:
    if has_tensors(folder):
        return False
    from miron_jax.model.orbax_layout import is_checkpoint

    return is_checkpoint(folder)
