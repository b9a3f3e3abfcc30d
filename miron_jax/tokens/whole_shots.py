"""Prompts + tokenizer + length limit -> prompts whose shots fit.

Arrives: Prompts with their shots.  Leaves: the same Prompts, without the first shots of those that
were too long, and without a leak that the length cuts away.  It deliberately does not know models.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice

from miron_jax.definitions.records import Wording
from miron_jax.prompting.prompts import Prompt, without_first_shot
from miron_jax.tokens.pieces import PieceEncoder, Text, piece_encoder
from miron_jax.tokens.tokenizers import Tokenizer, first_tokens


def fitting(
    prompts: Sequence[Prompt], profile: Wording, tokenizer: Tokenizer, max_length: int | None
) -> list[Prompt]:
    """Drop whole shots of each prompt, the first one first, until all its requests have at most
    `max_length` tokens.

    A prompt that is still too long without shots stays too long; it is truncated by tokens later,
    as all are by other rules.
    """
    kept = list(prompts)
    if max_length is None:
        return kept
    encode = piece_encoder(tokenizer)
    if profile.truncation == "whole_shots":
        _drop_shots(kept, encode, max_length - len(first_tokens(profile.bos, tokenizer)))
    for i, prompt in enumerate(kept):
        if prompt.leak:
            seen = _texts(replace(prompt, shots=prompt.shots[-prompt.leak :]))
            if min(map(len, encode(seen))) > max_length:
                kept[i] = replace(prompt, leak=0)
    return kept


def _drop_shots(kept: list[Prompt], encode: PieceEncoder, room: int) -> None:
    waiting = [i for i, prompt in enumerate(kept) if prompt.num_shots]
    while waiting:
        texts = {i: _texts(kept[i]) for i in waiting}
        encoded = iter(encode([*chain(*texts.values())]))
        waiting = []
        for i, of_prompt in texts.items():
            longest = max(map(len, islice(encoded, len(of_prompt))))
            if longest > room:
                kept[i] = without_first_shot(kept[i])
                if kept[i].num_shots:
                    waiting.append(i)


def _texts(prompt: Prompt) -> list[Text]:
    pairs = zip(prompt.contexts, prompt.continuations, strict=True)
    return [(*prompt.shots, context, continuation) for context, continuation in pairs]
