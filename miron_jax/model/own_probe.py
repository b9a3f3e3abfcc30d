"""Rows of random tokens show whether a user's own model satisfies the contract of `OwnModel`.

Arrives: an OwnModel and its weights.  Leaves: its answers, or an InputError with the reason.  It
deliberately does not know tasks or checkpoints.
"""

import math
import os
from collections.abc import Callable
from functools import partial
from hashlib import blake2b

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.errors import InputError
from miron_jax.model.network import (
    EVALUATION,
    PROBE_LENGTH,
    BoundNetwork,
    is_key,
    logit_size,
    rounding_bounds,
)
from miron_jax.model.own import OwnModel
from miron_jax.model.stateful.walk import WalkArrays, WalkShape, states_for, walk_rows, write_walk
from miron_jax.model.visibility import Visibility
from miron_jax.planning.walks import GroupSize, schedule, segments_of
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.devices import Device, Placement, Tree
from miron_jax.runtime.program_cache import library_matmuls

PROBE_ATTEMPTS = 5
PROBE_SIZES = (GroupSize(1, 2), GroupSize(4, 2))


def check_own_model(model: OwnModel, params: Tree, tolerance: float, share: float = 0.0) -> Answers:
    """Test with rows of random tokens whether the model satisfies the contract, and return its
    answers to them.

    `tolerance`, `share`: what rounding may change a log-probability by, as in `rounding_bounds`.
    Raises InputError with the reason if the model does not satisfy the contract.
    """
    logprobs = np.zeros((0, 0, 0), np.float32)
    bound = tolerance
    # a model may answer a few tokens with NaN, which the run itself counts
    for seed in range(PROBE_ATTEMPTS):
        logprobs, bound = _probe(model, params, tolerance, share, np.random.default_rng(seed))
        if not np.isnan(logprobs).any():
            break
    best = logprobs.max(axis=-1).reshape(-1).tolist()
    digest = blake2b(logprobs.tobytes(), digest_size=16).hexdigest()
    return Answers(
        _layout(params),
        digest,
        tuple(value if math.isfinite(value) else None for value in best),
        bound,
    )


def _layout(params: Tree) -> str | None:
    """Fingerprint of the devices, shardings and compiler; None if equal ones may still give
    different results."""
    leaves = _arrays_of(params)
    device = _device_of(params)
    if device.platform == "gpu":  # its compiler chooses algorithms by measured times
        return None
    shardings = sorted({str(leaf.sharding) for leaf in leaves})
    versions = [
        device.platform,
        device.device_kind,
        jax.device_count(),
        jax.__version__,
        os.environ.get("XLA_FLAGS"),
    ]
    return blake2b(repr([*versions, shardings]).encode(), digest_size=16).hexdigest()


def _arrays_of(params: Tree) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(params) if isinstance(leaf, jax.Array)]


def _device_of(params: Tree) -> Device:
    arrays = _arrays_of(params)
    return next(iter(arrays[0].devices())) if arrays else jax.devices()[0]


def _program(
    function: Callable[..., jax.Array], params: Tree, static: tuple[int, ...] = (0,)
) -> Callable[..., jax.Array]:
    arrays = _arrays_of(params)
    return jax.jit(
        function,
        static_argnums=static,
        out_shardings=Placement.of(arrays).read_by_all if arrays else None,
        compiler_options=library_matmuls(_device_of(params)),
    )


def _probe(
    model: OwnModel, params: Tree, tolerance: float, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Log-probabilities [4, T, V] of rows of random tokens, and the most that one of them may
    differ by.  Raises InputError unless they satisfy the contract.

    If one of them is NaN, nothing is tested.
    """
    program = _program(_logprobs, params)
    length = min(PROBE_LENGTH, model.num_positions or PROBE_LENGTH)
    half = length // 2
    rows = rng.integers(0, model.vocab_size, (4, length), np.int32)
    position = np.tile(np.arange(length, dtype=np.int32), (4, 1))
    subtree_end = np.full((4, length), length, np.int32)
    # Rows 0 and 3 are equal, and row 1 has the same first half.  In `crowd`, rows 1 and 2 repeat
    # one token.
    rows[1, :half], rows[3] = rows[0, :half], rows[0]
    crowd = rows.copy()
    crowd[1:3] = rows[0, 0]

    def run(tokens: np.ndarray, params: Tree = params) -> np.ndarray:
        return np.asarray(program(model, params, tokens, position, subtree_end))

    def bounds_of(logprobs: np.ndarray) -> np.ndarray:
        sizes = np.asarray(logit_size(logprobs))[..., None]
        return rounding_bounds(tolerance, share, logprobs, sizes)

    def differ(a: np.ndarray, b: np.ndarray) -> bool:
        return bool((np.abs(a - b) > bounds_of(b)).any())

    alone = run(rows)
    bound = float(bounds_of(alone).max())
    crowded = run(crowd)
    if np.isnan(alone).any():
        return alone, bound
    has_keys = any(map(is_key, jax.tree.leaves(params)))
    # a mask that all rows share shows in nothing else
    if has_keys and differ(alone, run(rows, jax.tree.map(_other_key, params))):
        raise _refused("logits change with the random keys among the params", EVALUATION)
    if differ(alone, run(rows)):
        raise _refused("the same row gives other logits each time", EVALUATION)
    if differ(alone[0], alone[3]) or differ(alone[[0, 3]], crowded[[0, 3]]):
        raise _refused(
            "equal rows of a batch get different logits, or a row's logits change with the other "
            "rows",
            f"{EVALUATION}; let a mixture of experts with a capacity limit take every token",
        )
    if differ(alone[0, :half], alone[1, :half]):
        remedy = (
            ": attend under visibility.mask() or with visibility.attend" if model.hidden else ""
        )
        raise _refused(
            "a token's logits change with the tokens behind it", f"it is no causal model{remedy}"
        )
    if model.hidden is not None:
        _check_forest(partial(program, model, params), rows, alone, differ)
    if model.step is not None:
        _check_steps(model, params, rows, alone, differ)
    return alone, bound


def _other_key(leaf: Tree) -> Tree:
    """A leaf as it is, or other keys of the same kind."""
    if not is_key(leaf):
        return leaf
    return jax.random.wrap_key_data(jax.random.key_data(leaf) ^ 1, impl=jax.random.key_impl(leaf))


def compile_probe(model: OwnModel, params: Tree) -> jax.stages.Compiled:
    """The program of the probe's rows, for devices that only compile."""
    rows = np.zeros((4, min(PROBE_LENGTH, model.num_positions or PROBE_LENGTH)), np.int32)
    return jax.jit(_logprobs, static_argnums=0).lower(model, params, rows, rows, rows).compile()


def _check_forest(
    program: Callable[..., jax.Array],
    rows: np.ndarray,
    alone: np.ndarray,
    differ: Callable[..., bool],
) -> None:
    """Test that two branches of one row give the same log-probabilities as the rows 0 and 1, whose
    first half is common.

    index        0 .. h-1   h .. n-1   n .. n+h-1        of n = 2h
    token        common     branch 1   branch 2, to which branch 1 is hidden
    position     0 .. h-1   h .. n-1   h .. n-1
    subtree_end  n+h        n          n+h
    """
    length = rows.shape[1] // 2 * 2
    half = length // 2
    total = length + half

    def forest(first_branch: np.ndarray) -> np.ndarray:
        tokens = np.concatenate([rows[0, :half], first_branch, rows[1, half:length]])[None]
        position = np.concatenate([np.arange(length), np.arange(half, length)]).astype(np.int32)[
            None
        ]
        subtree_end = np.full((1, total), total, np.int32)
        subtree_end[0, half:length] = length
        return np.asarray(program(tokens.astype(np.int32), position, subtree_end))[0, length:]

    second_branch = forest(rows[0, half:length])
    if differ(second_branch, forest(rows[2, half:length])):
        raise _refused(
            "a token's hidden state changes with tokens that `visibility` hides from it",
            "attend with visibility.attend(q, k, v, scale=...) or under visibility.mask()",
        )
    if differ(second_branch, alone[1, half:length]):
        raise _refused(
            "a token's hidden state depends on its place in the row",
            "take positions from `positions`, not from arange: in a row with branches they are not "
            "the same",
        )


def _check_steps(
    model: OwnModel, params: Tree, rows: np.ndarray, alone: np.ndarray, differ: Callable[..., bool]
) -> None:
    """Test that `step` gives these log-probabilities of the rows, taken whole and in chunks, from
    shared states too."""
    program = _program(_logprobs_by_steps, params)
    by_steps = np.asarray(program(model, params, rows))
    if differ(by_steps, alone):
        name = "hidden" if model.hidden else "logits"
        raise _refused(
            f"step gives other logits than {name}",
            "let both compute the same model, from the same params",
        )
    # Rows 0 and 1 as branches of their first half, and row 2 beside them; a state has room for
    # more.
    length = rows.shape[1]
    half = length // 2
    room = min(4 * length, model.num_positions or 4 * length)
    sizes = tuple(size for size in PROBE_SIZES if size.tokens <= room)
    both = np.concatenate([rows[0], rows[1, half:]])
    position = np.concatenate([np.arange(length), np.arange(half, length)])
    subtree_end = np.full(len(both), len(both))
    subtree_end[half:length] = length
    segments = segments_of(
        [(0, position, subtree_end), (len(both), position[:length], np.full(length, length))]
    )
    token_ids = np.concatenate([both, rows[2]]).astype(np.int32)
    shape = WalkShape(sizes, len(token_ids), states_for(segments.depth, sizes), 0, room)
    arrays = [np.zeros(size, np.int32) for size in shape.array_shapes]
    write_walk(schedule(segments, sizes, shape.num_states), arrays)
    program = _program(_logprobs_of_walk, params, (0, 4))
    in_parts = np.asarray(
        program(model, params, token_ids, WalkArrays(*map(jnp.asarray, arrays)), shape)
    )
    expected = np.concatenate([by_steps[0], by_steps[1, half:], by_steps[2]])
    if differ(in_parts, expected):
        raise _refused(
            "step gives other logits if it takes a text in several parts",
            "let the state hold all that a text leaves behind, its length too, and take nothing "
            "else from the tokens before",
        )


def _refused(reason: str, remedy: str) -> InputError:
    return InputError(f"--model: {reason}, so no score could be trusted: {remedy}")


def _logprobs(
    model: OwnModel,
    params: Tree,
    token_ids_BT: jax.Array,
    position_BT: jax.Array,
    subtree_end_BT: jax.Array,
) -> jax.Array:
    """Log-probabilities of all tokens at every position, float32 [B, T, V]."""
    bound = BoundNetwork(model, params)
    visibility = Visibility.of_batch(subtree_end_BT, position_BT, model.layer_windows)
    return _log_softmax(bound, bound(token_ids_BT, position_BT, visibility))


def _logprobs_by_steps(model: OwnModel, params: Tree, token_ids_BT: jax.Array) -> jax.Array:
    """The same by one step of each row."""
    bound = BoundNetwork(model, params)
    return _log_softmax(bound, bound.by_steps(token_ids_BT))


def _logprobs_of_walk(
    model: OwnModel, params: Tree, token_ids_S: jax.Array, arrays: WalkArrays, shape: WalkShape
) -> jax.Array:
    """Log-probabilities of all tokens after every slot, float32 [S, V]."""
    bound = BoundNetwork(model, params)
    return _log_softmax(bound, walk_rows(bound, token_ids_S, arrays, shape)[0][None])[0]


def _log_softmax(bound: BoundNetwork, hidden_BTD: jax.Array) -> jax.Array:
    b, t, d = hidden_BTD.shape
    head = bound.head()
    if head.weight_VD is not None and head.weight_VD.shape[1] != d:
        raise InputError(
            f"--model: hidden states have {d} numbers and the head's weight "
            f"{head.weight_VD.shape[1]} a token, expected as many; mend one of the two"
        )
    logits = head.logits(hidden_BTD.reshape(b * t, d))
    return jax.nn.log_softmax(logits).reshape(b, t, -1)
