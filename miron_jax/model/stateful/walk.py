"""Rows with branches through a model that carries a state, inside a compiled program.

Arrives: a network with `state` and `step`, the tokens of some rows, a `Walk` (planning/walks.py) as
arrays.  Leaves: hidden states of all tokens, and the states that are kept.  It deliberately does
not know what is scored.

    Q chunks in G groups, S slots of all rows end to end, M states, R lanes of a group, C tokens of
    a chunk
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.model.network import BoundNetwork, Network
from miron_jax.planning.walks import GroupSize, Walk
from miron_jax.runtime.devices import Tree

# As many tokens as fill a matmul: an idle lane costs as much as a busy one.
CPU_SIZES = (GroupSize(1, 32), GroupSize(4, 16), GroupSize(16, 4), GroupSize(64, 1))
ACCELERATOR_SIZES = (
    GroupSize(1, 256),
    GroupSize(4, 256),
    GroupSize(16, 64),
    GroupSize(64, 16),
    GroupSize(256, 4),
)
STATES_SHARE = 0.25  # of the free memory, for the states of a walk
# states of a program for each lane of its widest group: two are kept, three are read or written
COPIES = 5


def group_sizes(
    model: Network, params: Tree, num_tokens: int, on_cpu: bool, free_bytes: float
) -> tuple[GroupSize, ...]:
    """The groups for states with room for so many tokens: no longer chunks, and fewer lanes where
    the states would not fit the memory."""
    most = states_that_fit(model, params, num_tokens, free_bytes / COPIES)
    sizes = CPU_SIZES if on_cpu else ACCELERATOR_SIZES
    return tuple(
        size._replace(lanes=min(size.lanes, most)) for size in sizes if size.tokens <= num_tokens
    )


def states_that_fit(model: Network, params: Tree, num_tokens: int, free_bytes: float) -> int:
    """States with room for so many tokens that STATES_SHARE of the memory holds: a power of two, at
    least 1."""
    states = jax.eval_shape(
        lambda params: BoundNetwork(model, params).empty_states(1, num_tokens), params
    )
    state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(states))
    count = max(1, int(STATES_SHARE * free_bytes / max(1, state_bytes)))
    return 1 << (count.bit_length() - 1)


class WalkShape(NamedTuple):
    """The static sizes of a walk."""

    sizes: tuple[GroupSize, ...]
    slots: int  # S
    num_states: int  # that are used again and again, the empty one first
    num_kept: int  # states that follow these and are kept
    num_tokens: int  # of the longest text
    has_hidden: bool = True  # whether hidden states are wanted

    @property
    def array_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of `Walk`'s arrays with room for the longest walk, and of the number of groups."""
        return (*((self.slots,),) * 3, (self.slots + 1,), (self.slots,), (1,))


class WalkArrays(NamedTuple):
    """A `Walk` on the device, padded."""

    chunk_slot_Q: jax.Array
    chunk_from_Q: jax.Array
    chunk_to_Q: jax.Array
    group_first_G: jax.Array
    group_size_G: jax.Array
    num_groups_1: jax.Array


def write_walk(walk: Walk, arrays: Sequence[np.ndarray]) -> None:
    """Write a walk into zeros of `WalkShape.array_shapes`."""
    for array, column in zip(arrays, walk, strict=False):
        array[: len(column)] = column
    arrays[-1][0] = len(walk.group_size)


def states_for(depth: int, sizes: Sequence[GroupSize]) -> int:
    """States of a program for rows whose longest path has so many segments: as many and the empty
    one, in sixteens, and enough for the widest group."""
    return -(-(depth + 1) // 16) * 16 + 2 * max(size.lanes for size in sizes)


class _WalkProgress(NamedTuple):
    group: jax.Array
    hidden_SD: jax.Array
    states_M: Tree


def walk_rows(
    model: BoundNetwork, token_ids_S: jax.Array, arrays: WalkArrays, shape: WalkShape
) -> tuple[jax.Array, Tree]:
    """(float32 hidden states [S, D], or logits; the kept states, with a leading axis).  Slots that
    no chunk has are 0; if none are wanted S is 0."""
    num_groups = arrays.num_groups_1[0]
    slots = shape.slots if shape.has_hidden else 0
    num_states = shape.num_states + shape.num_kept
    states_M = model.empty_states(num_states, shape.num_tokens)
    one = jax.tree.map(lambda leaf: leaf[:1], states_M)
    width = jax.eval_shape(model.advance, one, jnp.zeros((1, 1), jnp.int32))[0].shape[-1]

    def read_group(size: GroupSize, progress: _WalkProgress) -> _WalkProgress:
        first = arrays.group_first_G[progress.group]
        end = arrays.group_first_G[progress.group + 1]
        chunk_R = first + jnp.arange(size.lanes, dtype=jnp.int32)
        is_chunk_R = chunk_R < end
        # lanes without a chunk read the first one, and drop it
        chunk_R = jnp.where(is_chunk_R, chunk_R, first)
        ahead_1C = jnp.arange(size.tokens, dtype=jnp.int32)[None]
        slot_RC = arrays.chunk_slot_Q[chunk_R][:, None] + ahead_1C
        tokens_RC = token_ids_S[slot_RC]
        states_R = jax.tree.map(lambda leaf: leaf[arrays.chunk_from_Q[chunk_R]], progress.states_M)
        hidden_RCD, states_R = model.advance(states_R, tokens_RC)
        to_R = arrays.chunk_to_Q[chunk_R]
        to_R = jnp.where(is_chunk_R & (to_R >= 0), to_R, num_states)
        return _WalkProgress(
            progress.group + 1,
            progress.hidden_SD.at[jnp.where(is_chunk_R[:, None], slot_RC, shape.slots)].set(
                hidden_RCD, mode="drop"
            ),
            jax.tree.map(
                lambda all_M, new_R: all_M.at[to_R].set(new_R, mode="drop"),
                progress.states_M,
                states_R,
            ),
        )

    def read_groups(progress: _WalkProgress) -> _WalkProgress:
        # A loop for each size, and no branch between them, which would copy all states.
        for s, size in enumerate(shape.sizes):

            def goes_on(progress: _WalkProgress, s: int = s) -> jax.Array:
                return (progress.group < num_groups) & (arrays.group_size_G[progress.group] == s)

            progress = jax.lax.while_loop(goes_on, partial(read_group, size), progress)
        return progress

    start = _WalkProgress(jnp.int32(0), jnp.zeros((slots, width), jnp.float32), states_M)
    end = jax.lax.while_loop(lambda progress: progress.group < num_groups, read_groups, start)
    return end.hidden_SD, jax.tree.map(lambda leaf: leaf[shape.num_states :], end.states_M)
