"""The compiled programs of generation: prefill, let in, and steps of several tokens.

Arrives: a decoder, prompts as a batch of rows, what slots hold.  Leaves: keys and values, drawn tokens.  It deliberately
does not know requests, texts or when a prompt gets its slot.

A step feeds every slot `width` tokens: the one that it drew last, and guesses of what follows.  The model answers all of
them at once, and those answers count whose guesses were what it would have drawn anyway: every token is the one that
single steps draw, but where float rounding decides between two.  The guess is prompt lookup: what followed the last place
that ended in the same tokens.  Long greedy texts of small models repeat themselves so much that a step of four draws more
than two.

    B slots, S places of a slot, P places of a prefilled batch, T tokens a slot takes in, V vocabulary, N steps of a call
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from miron_jax.kernels.draw_token import Draw, draw_token
from miron_jax.kernels.forest_attention import Name
from miron_jax.model.cache import Cache
from miron_jax.model.decoder import Decoder, KeyValues
from miron_jax.model.own import bind
from miron_jax.model.visibility import Continuation, Visibility

STEPS = 32  # steps that a call takes at most before the host looks
NOTHING, NOT_A_NUMBER = -1, -2  # in place of a drawn token: nothing was drawn; the model answered NaN
LOOKUP = 3  # tokens whose last common occurrence is looked for; fewer where these have none


def decoder_of(graphdef: Any, state: Any) -> Decoder:
    decoder = bind(graphdef, state)
    assert isinstance(decoder, Decoder), "a user's own model takes plain steps"
    return decoder


def prefill(graphdef: Any, state: Any, batch_3BT: jax.Array, places: int, attention: Name = "xla") -> KeyValues:
    """Keys and values of a batch's rows (token ids, position, subtree_end), end to end in `places` places: [L, P, K, H]."""
    decoder = decoder_of(graphdef, state)
    token_ids_BT, position_BT, subtree_end_BT = batch_3BT
    windows = decoder.config.layer_windows
    visibility = Visibility.of_batch(subtree_end_BT, position_BT, windows, traced=True, attention=attention)
    _, kept = decoder.keeping(token_ids_BT, position_BT, visibility)
    more = places - token_ids_BT.size
    return KeyValues(
        *(jnp.pad(x.reshape(x.shape[0], -1, *x.shape[3:]), ((0, 0), (0, more), (0, 0), (0, 0))) for x in kept)
    )


def let_in(cache: Cache, kept: KeyValues, slot_B: jax.Array, place_BS: jax.Array, count: jax.Array) -> Cache:
    """The first `count` of slots `slot_B` get the keys and values at `place_BS` of a prefilled batch."""
    return jax.lax.fori_loop(0, count, lambda i, own: own.with_slot(*kept, place_BS[i], slot_B[i]), cache)


class _Steps(NamedTuple):
    """What a step hands to the next."""

    index: jax.Array
    cache: Cache
    tokens_BS: jax.Array
    position_B: jax.Array
    left_B: jax.Array
    drawn_NBT: jax.Array
    halted: jax.Array


def take_steps(
    graphdef: Any,
    state: Any,
    halts_V: jax.Array,
    cache: Cache,
    tokens_BS: jax.Array,
    position_B: jax.Array,
    left_B: jax.Array,
    draw: Draw | None,
    *,
    width: int,
) -> tuple[Cache, jax.Array, jax.Array]:
    """Steps until a slot halts or has none left: (cache, drawn int32 [N, B, T], steps taken).

    cache: keys and values of each slot's first `position` places.  tokens_BS: int32, a slot's tokens up to the one at
    `position`, which goes in next.  left_B: tokens that a slot may still draw, 0 where it is idle.  halts_V: tokens that
    the host wants to see.  draw: None where all are greedy; with it, width is 1.  width: tokens a step takes in.
    """
    assert draw is None or width == 1
    decoder = decoder_of(graphdef, state)
    num_slots, size = tokens_BS.shape
    slot_B1 = jnp.arange(num_slots, dtype=jnp.int32)[:, None]
    ahead_1T = jnp.arange(width, dtype=jnp.int32)[None]

    def going(steps: _Steps) -> jax.Array:
        return (steps.index < STEPS) & ~steps.halted

    def step(steps: _Steps) -> _Steps:
        fed_BT = with_guesses(steps.tokens_BS, steps.position_B, width)
        place_BT = steps.position_B[:, None] + ahead_1T
        visibility = Continuation(steps.position_B)
        hidden_BTD, own = decoder.keeping(fed_BT, place_BT, visibility, past=steps.cache)
        head = decoder.head()
        hidden_RD = hidden_BTD.reshape(num_slots * width, -1)
        logits_RV = head.logits(hidden_RD)
        token_BT = draw_token(logits_RV, draw, steps.index).reshape(num_slots, width)
        wrong_BT = jnp.isnan(logits_RV).any(axis=1).reshape(num_slots, width)
        ends_BT = halts_V[token_BT] | wrong_BT | (ahead_1T + 1 >= steps.left_B[:, None])
        # A drawn token counts where all that was fed up to it is what would have been drawn, and nothing has ended.
        follows_BT = (fed_BT[:, 1:] == token_BT[:, :-1]) & ~ends_BT[:, :-1]
        first_B1 = (steps.left_B > 0)[:, None]
        counts_BT = jnp.cumprod(jnp.concatenate([first_B1, follows_BT], axis=1).astype(jnp.int32), axis=1) > 0
        kept_BT = jnp.where(counts_BT, place_BT, size)  # what does not count is dropped
        step_B = counts_BT.sum(axis=1, dtype=jnp.int32)
        shown_BT = jnp.where(wrong_BT, NOT_A_NUMBER, token_BT)
        return _Steps(
            steps.index + 1,
            steps.cache.with_tokens(own.key_LBTKH, own.value_LBTKH, kept_BT),
            steps.tokens_BS.at[slot_B1, kept_BT + 1].set(token_BT, mode="drop"),
            steps.position_B + step_B,
            steps.left_B - step_B,
            steps.drawn_NBT.at[steps.index].set(jnp.where(counts_BT, shown_BT, NOTHING)),
            (counts_BT & ends_BT).any(),
        )

    drawn_NBT = jnp.full((STEPS, num_slots, width), NOTHING, jnp.int32)
    start = _Steps(jnp.int32(0), cache, tokens_BS, position_B, left_B, drawn_NBT, jnp.asarray(False))
    end = jax.lax.while_loop(going, step, start)
    return end.cache, end.drawn_NBT, end.index


class _PlainSteps(NamedTuple):
    """What a step hands to the next, of a model that keeps no keys and values."""

    index: jax.Array
    tokens_BS: jax.Array
    position_B: jax.Array
    left_B: jax.Array
    drawn_NB: jax.Array
    halted: jax.Array


def take_plain_steps(
    network: Any,
    state: Any,
    halts_V: jax.Array,
    tokens_BS: jax.Array,
    position_B: jax.Array,
    left_B: jax.Array,
    draw: Draw | None,
) -> tuple[jax.Array, jax.Array]:
    """As `take_steps`, for a model that keeps nothing: each step runs every slot's whole row again, and draws one token."""
    model = bind(network, state)
    num_slots, size = tokens_BS.shape
    places = min(size, model.config.num_positions or size)  # no request needs more
    slot_B = jnp.arange(num_slots, dtype=jnp.int32)
    place_BS = jnp.broadcast_to(jnp.arange(places, dtype=jnp.int32)[None], (num_slots, places))
    visibility = Visibility.of_batch(jnp.full_like(place_BS, places), place_BS, model.config.layer_windows)
    head = model.head()

    def going(steps: _PlainSteps) -> jax.Array:
        return (steps.index < STEPS) & ~steps.halted

    def step(steps: _PlainSteps) -> _PlainSteps:
        hidden_BD = model(steps.tokens_BS[:, :places], place_BS, visibility)[slot_B, steps.position_B]
        logits_BV = head.logits(hidden_BD)
        token_B = draw_token(logits_BV, draw, steps.index)
        wrong_B, busy_B = jnp.isnan(logits_BV).any(axis=1), steps.left_B > 0
        ends_B = halts_V[token_B] | wrong_B | (steps.left_B <= 1)
        place_B = jnp.where(busy_B, steps.position_B + 1, size)
        return _PlainSteps(
            steps.index + 1,
            steps.tokens_BS.at[slot_B, place_B].set(token_B, mode="drop"),
            steps.position_B + busy_B,
            steps.left_B - busy_B,
            steps.drawn_NB.at[steps.index].set(jnp.where(busy_B, jnp.where(wrong_B, NOT_A_NUMBER, token_B), NOTHING)),
            (busy_B & ends_B).any(),
        )

    drawn_NB = jnp.full((STEPS, num_slots), NOTHING, jnp.int32)
    start = _PlainSteps(jnp.int32(0), tokens_BS, position_B, left_B, drawn_NB, jnp.asarray(False))
    end = jax.lax.while_loop(going, step, start)
    return end.drawn_NB[:, :, None], end.index


def with_guesses(tokens_BS: jax.Array, position_B: jax.Array, width: int) -> jax.Array:
    """int32 [B, T]: each slot's token at `position`, and what followed where the tokens up to it were met before.

    The longest match wins, of LOOKUP tokens at most, and the last among equals; a guess that reaches `position` goes on
    from the match again, as a repetition would.  Without a match the token itself is guessed again.
    """
    place_1S = jnp.arange(tokens_BS.shape[1], dtype=jnp.int32)[None]
    position_B1 = position_B[:, None]
    last_B1 = jnp.take_along_axis(tokens_BS, position_B1, axis=1)
    if width == 1:
        return last_B1
    same_BS, length_BS = place_1S < position_B1, jnp.zeros_like(tokens_BS)
    for back in range(LOOKUP):
        wanted_B1 = jnp.take_along_axis(tokens_BS, jnp.maximum(position_B1 - back, 0), axis=1)
        same_BS &= (jnp.roll(tokens_BS, back, axis=1) == wanted_B1) & (place_1S >= back)
        length_BS += same_BS.astype(jnp.int32)
    rank_BS = jnp.where(length_BS > 0, length_BS * tokens_BS.shape[1] + place_1S, -1)
    best_B1 = rank_BS.max(axis=1, keepdims=True)
    match_B1 = jnp.where(best_B1 < 0, position_B1 - 1, best_B1 % tokens_BS.shape[1])
    ahead_1T = jnp.arange(width - 1, dtype=jnp.int32)[None]
    source_BT = match_B1 + 1 + ahead_1T % (position_B1 - match_B1)
    return jnp.concatenate([last_B1, jnp.take_along_axis(tokens_BS, source_BT, axis=1)], axis=1)
