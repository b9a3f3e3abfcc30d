"""The compiled programs of generation: prefill, admit, and steps of several tokens.

Arrives: a decoder, prompts as a batch of rows, the tokens of each slot.  Leaves: keys and values,
drawn tokens.  It deliberately does not know requests, texts or when a prompt is admitted.

A step feeds every slot `width` tokens: the last one drawn, and guesses of the next ones.  One
forward pass checks all guesses, and the step keeps the tokens up to the first wrong guess, so the
result equals single steps except where float rounding decides between two tokens.  The guesses come
from prompt lookup: the tokens that followed the last occurrence of the same ending.  Long greedy
texts of small models repeat themselves so much that a step of width four draws more than two.

    B slots, S tokens a slot has room for, P nodes of a prefilled batch, T tokens a slot takes in, V
    vocabulary, N steps
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from miron_jax.engine.model import Graph
from miron_jax.kernels.draw_token import RowDraws, draw_token
from miron_jax.model.decoder.cache import Cache
from miron_jax.model.decoder.decoder import Decoder, KeyValues
from miron_jax.model.network import BoundNetwork, bind
from miron_jax.model.stateful.walk import WalkArrays, WalkShape, walk_rows
from miron_jax.model.visibility import Continuation, Visibility
from miron_jax.runtime.devices import Tree

STEPS = 32  # most steps of one call before the host looks
NOTHING, NOT_A_NUMBER = -1, -2  # instead of a drawn token: nothing was drawn; the logits are NaN
LOOKUP = 3  # prompt lookup matches the last three tokens, else the last two, else the last


class RowSplit(NamedTuple):
    """How the devices of weights that a user has placed share the slots, or rows, of a program."""

    mesh: Mesh | None = None
    axes: tuple[str, ...] = ()  # of the mesh; none: each device computes all

    @property
    def size(self) -> int:
        sizes: Mapping[str, int] = {}
        if self.mesh is not None:
            sizes = self.mesh.shape
        return math.prod(map(sizes.__getitem__, self.axes))

    def over(self, x: jax.Array, axis: int = 0) -> jax.Array:
        """x with this axis split over the devices, if it divides."""
        if x.shape[axis] % self.size:
            return x
        return self._as(x, PartitionSpec(*[None] * axis, self.axes))

    def whole(self, x: jax.Array) -> jax.Array:
        """x on every device."""
        return self._as(x, PartitionSpec())

    def _as(self, x: jax.Array, spec: PartitionSpec) -> jax.Array:
        if self.mesh is None or not self.axes:
            return x
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))


ONE = RowSplit()


def decoder_of(network: Graph, state: Tree) -> Decoder:
    """The decoder with its weights, inside a traced function."""
    decoder = bind(network, state)
    assert isinstance(decoder, Decoder), "a user's own model takes plain steps"
    return decoder


def prefill(
    network: Graph,
    state: Tree,
    batch_3BT: jax.Array,
    num_nodes: int,
    attention: str = "xla",
    split: RowSplit = ONE,
) -> KeyValues:
    """Keys and values of a batch's rows (token ids, position, subtree end), end to end: [L, P, K,
    H].

    P is `num_nodes`, the rest is padding.
    """
    decoder = decoder_of(network, state)
    token_ids_BT, position_BT, subtree_end_BT = split.over(batch_3BT, axis=1)
    windows = decoder.config.layer_windows
    visibility = Visibility.of_batch(
        subtree_end_BT, position_BT, windows, traced=True, attention=attention
    )
    _, kept = decoder.keeping(token_ids_BT, position_BT, visibility)
    padding = ((0, 0), (0, num_nodes - token_ids_BT.size), (0, 0), (0, 0))
    return KeyValues(*(jnp.pad(x.reshape(x.shape[0], -1, *x.shape[3:]), padding) for x in kept))


@jax.named_scope("admit")
def admit(
    cache: Cache, kept: KeyValues, slot_B: jax.Array, node_BS: jax.Array, count: jax.Array
) -> Cache:
    """Copy the keys and values of nodes `node_BS` of a prefilled batch into slots `slot_B`, the
    first `count` of them."""
    return jax.lax.fori_loop(
        0, count, lambda i, filled: filled.with_slot(*kept, node_BS[i], slot_B[i]), cache
    )


def prefill_states(
    network: Graph, state: Tree, token_ids_S: jax.Array, walk: WalkArrays, shape: WalkShape
) -> Tree:
    """States of a `Network`: the empty one, and those that the walk keeps."""
    model = bind(network, state)
    assert isinstance(model, BoundNetwork)
    _, kept = walk_rows(model, token_ids_S, walk, shape)
    empty = model.empty_states(1, shape.num_tokens)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first, rest]), empty, kept)


def empty_states(
    network: Graph, state: Tree, shard: jax.Array | None = None, *, count: int, size: int
) -> Tree:
    """States of slots of this size before any token; `shard` only says that each shard has its
    own."""
    model = bind(network, state)
    assert isinstance(model, BoundNetwork)
    return model.empty_states(count, size)


@jax.named_scope("admit")
def admit_states(
    states_B: Tree, kept: Tree, slot_B: jax.Array, index_B: jax.Array, count: jax.Array
) -> Tree:
    """Copy the kept states `index_B` into slots `slot_B`, the first `count` of them."""

    def one(i: jax.Array, filled: Tree) -> Tree:
        new = jax.tree.map(
            lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index_B[i], keepdims=False), kept
        )
        return jax.tree.map(
            lambda all_B, x: jax.lax.dynamic_update_index_in_dim(all_B, x, slot_B[i], 0),
            filled,
            new,
        )

    return jax.lax.fori_loop(0, count, one, states_B)


class _Steps(NamedTuple):
    """The state between two steps."""

    index: jax.Array
    cache: Cache
    tokens_BS: jax.Array
    position_B: jax.Array
    left_B: jax.Array
    drawn_NBT: jax.Array
    halted: jax.Array


def take_steps(
    network: Graph,
    state: Tree,
    halts_V: jax.Array,
    cache: Cache,
    tokens_BS: jax.Array,
    position_B: jax.Array,
    left_B: jax.Array,
    draw: RowDraws | None,
    *,
    width: int,
    split: RowSplit = ONE,
) -> tuple[Cache, jax.Array, jax.Array]:
    """Take steps until some slot halts or may draw no more: (cache, drawn int32 [N, B, T], number
    of steps), none if all slots are idle.

    cache: keys and values of each slot's first `position` tokens.  tokens_BS: int32, a slot's
    tokens up to the one at `position`, which goes in next.  left_B: tokens that a slot may still
    draw; 0: the slot is idle.  halts_V: tokens at which a slot halts.  draw: None: all slots are
    greedy; otherwise width is 1.  width: tokens that a step takes in.
    """
    assert draw is None or width == 1
    decoder = decoder_of(network, state)
    num_slots, size = tokens_BS.shape
    slot_B1 = jnp.arange(num_slots, dtype=jnp.int32)[:, None]
    ahead_1T = jnp.arange(width, dtype=jnp.int32)[None]

    def step(steps: _Steps) -> _Steps:
        fed_BT = split.over(with_guesses(steps.tokens_BS, steps.position_B, width))
        position_BT = steps.position_B[:, None] + ahead_1T
        visibility = Continuation(steps.position_B)
        # every device has the whole cache, and computes the new tokens of its slots
        hidden_BTD, new = decoder.keeping(
            fed_BT, split.over(position_BT), visibility, past=steps.cache
        )
        new = KeyValues(*map(split.whole, new))
        head = decoder.head()
        hidden_RD = hidden_BTD.reshape(num_slots * width, -1)
        logits_RV = head.logits(hidden_RD)
        token_R = split.whole(draw_token(logits_RV, draw, steps.index))
        token_BT = token_R.reshape(num_slots, width)
        nan_BT = split.whole(jnp.isnan(logits_RV).any(axis=1)).reshape(num_slots, width)
        ends_BT = halts_V[token_BT] | nan_BT | (ahead_1T + 1 >= steps.left_B[:, None])
        # A drawn token counts if every guess before it is right and the slot has not ended.
        follows_BT = (fed_BT[:, 1:] == token_BT[:, :-1]) & ~ends_BT[:, :-1]
        first_B1 = (steps.left_B > 0)[:, None]
        counts_BT = (
            jnp.cumprod(jnp.concatenate([first_B1, follows_BT], axis=1).astype(jnp.int32), axis=1)
            > 0
        )
        # other tokens get a position that is dropped
        kept_BT = jnp.where(counts_BT, position_BT, size)
        step_B = counts_BT.sum(axis=1, dtype=jnp.int32)
        drawn_BT = jnp.where(nan_BT, NOT_A_NUMBER, token_BT)
        return _Steps(
            steps.index + 1,
            steps.cache.with_tokens(new.key_LBTKH, new.value_LBTKH, kept_BT),
            steps.tokens_BS.at[slot_B1, kept_BT + 1].set(token_BT, mode="drop"),
            steps.position_B + step_B,
            steps.left_B - step_B,
            steps.drawn_NBT.at[steps.index].set(jnp.where(counts_BT, drawn_BT, NOTHING)),
            (counts_BT & ends_BT).any(),
        )

    drawn_NBT = jnp.full((STEPS, num_slots, width), NOTHING, jnp.int32)
    is_idle = (left_B <= 0).all()
    start = _Steps(jnp.int32(0), cache, tokens_BS, position_B, left_B, drawn_NBT, is_idle)
    end = jax.lax.while_loop(_goes_on, step, start)
    return end.cache, end.drawn_NBT, end.index


class _PlainSteps(NamedTuple):
    """The state between two steps of a user's own model."""

    index: jax.Array
    states: Tree  # of the slots; None: the model carries none
    tokens_BS: jax.Array
    position_B: jax.Array
    left_B: jax.Array
    drawn_NB: jax.Array
    halted: jax.Array


def _goes_on(steps: _Steps | _PlainSteps) -> jax.Array:
    return (steps.index < STEPS) & ~steps.halted


def take_plain_steps(
    network: Graph,
    state: Tree,
    halts_V: jax.Array,
    states: Tree,
    tokens_BS: jax.Array,
    position_B: jax.Array,
    left_B: jax.Array,
    draw: RowDraws | None,
    *,
    split: RowSplit = ONE,
) -> tuple[Tree, jax.Array, jax.Array]:
    """`take_steps` for a `Network`, which draws one token a step.

    states: of each slot after its first `position` tokens; None: the model carries none, and each
    step runs whole rows.
    """
    model = bind(network, state)
    assert isinstance(model, BoundNetwork)
    num_slots, size = tokens_BS.shape
    length = min(size, model.config.num_positions or size)  # no request needs more
    slot_B = jnp.arange(num_slots, dtype=jnp.int32)
    position_BS = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32)[None], (num_slots, length))
    visibility = Visibility.of_batch(
        jnp.full_like(position_BS, length), position_BS, model.config.layer_windows
    )
    head = model.head()
    states = jax.tree.map(split.over, states)

    def step(steps: _PlainSteps) -> _PlainSteps:
        if steps.states is None:
            states = None
            rows_BS = split.over(steps.tokens_BS[:, :length])
            hidden_BTD = model(rows_BS, position_BS, visibility)
            hidden_BD = split.over(hidden_BTD[slot_B, steps.position_B])
        else:
            hidden_B1D, states = model.advance(
                steps.states, steps.tokens_BS[slot_B, steps.position_B][:, None]
            )
            hidden_BD = hidden_B1D[:, 0]
        logits_BV = head.logits(hidden_BD)
        token_B = split.whole(draw_token(logits_BV, draw, steps.index))
        nan_B = split.whole(jnp.isnan(logits_BV).any(axis=1))
        busy_B = steps.left_B > 0
        one_B = busy_B.astype(jnp.int32)
        ends_B = halts_V[token_B] | nan_B | (steps.left_B <= 1)
        next_B = jnp.where(busy_B, steps.position_B + 1, size)
        return _PlainSteps(
            steps.index + 1,
            states,
            steps.tokens_BS.at[slot_B, next_B].set(token_B, mode="drop"),
            steps.position_B + one_B,
            steps.left_B - one_B,
            steps.drawn_NB.at[steps.index].set(
                jnp.where(busy_B, jnp.where(nan_B, NOT_A_NUMBER, token_B), NOTHING)
            ),
            (busy_B & ends_B).any(),
        )

    drawn_NB = jnp.full((STEPS, num_slots), NOTHING, jnp.int32)
    is_idle = (left_B <= 0).all()
    start = _PlainSteps(jnp.int32(0), states, tokens_BS, position_B, left_B, drawn_NB, is_idle)
    end = jax.lax.while_loop(_goes_on, step, start)
    return end.states, end.drawn_NB[:, :, None], end.index


def with_guesses(tokens_BS: jax.Array, position_B: jax.Array, width: int) -> jax.Array:
    """Prompt lookup, int32 [B, T]: each slot's token at `position`, then the tokens that followed
    its last occurrence.

    The longest match of at most LOOKUP tokens wins, and the last one among equals.  A guess that
    reaches `position` continues at the match again, as a repetition would.  Without a match the
    guess repeats the token at `position`.
    """
    index_1S = jnp.arange(tokens_BS.shape[1], dtype=jnp.int32)[None]
    position_B1 = position_B[:, None]
    last_B1 = jnp.take_along_axis(tokens_BS, position_B1, axis=1)
    if width == 1:
        return last_B1
    same_BS = index_1S < position_B1
    length_BS = jnp.zeros_like(tokens_BS)
    for back in range(LOOKUP):
        token_B1 = jnp.take_along_axis(tokens_BS, jnp.maximum(position_B1 - back, 0), axis=1)
        same_BS &= (jnp.roll(tokens_BS, back, axis=1) == token_B1) & (index_1S >= back)
        length_BS += same_BS.astype(jnp.int32)
    rank_BS = jnp.where(length_BS > 0, length_BS * tokens_BS.shape[1] + index_1S, -1)
    best_B1 = rank_BS.max(axis=1, keepdims=True)
    match_B1 = jnp.where(best_B1 < 0, position_B1 - 1, best_B1 % tokens_BS.shape[1])
    ahead_1T = jnp.arange(width - 1, dtype=jnp.int32)[None]
    guess_BT = match_B1 + 1 + ahead_1T % (position_B1 - match_B1)
    return jnp.concatenate([last_B1, jnp.take_along_axis(tokens_BS, guess_BT, axis=1)], axis=1)
