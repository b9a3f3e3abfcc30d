"""Prompts + tokenizer + length limit -> prompts whose shots fit.

Arrives: Prompts with the start of each shot.  Leaves: the same Prompts, without the first shots of
those that were too long.  It deliberately does not know models.
"""

from collections.abc import Sequence

from miron_jax.definitions.records import Wording
from miron_jax.prompting.prompts import Prompt, without_first_shot
from miron_jax.tokens.tokenizers import Tokenizer, encoder, first_tokens


def fitting(
    prompts: Sequence[Prompt], profile: Wording, tokenizer: Tokenizer, max_length: int | None
) -> list[Prompt]:
    """Drop whole shots of each prompt, the first one first, until all its requests have at most
    `max_length` tokens.

    A prompt that is still too long without shots stays too long; it is truncated by tokens later.
    """
    if profile.truncation != "whole_shots" or max_length is None:
        return list(prompts)
    kept = list(prompts)
    encode = encoder(tokenizer)
    room = max_length - len(first_tokens(profile.bos, tokenizer))
    waiting = [i for i, prompt in enumerate(kept) if prompt.shot_starts]
    while waiting:
        texts = [_texts(kept[i]) for i in waiting]
        encoded = iter(encode([text for of_prompt in texts for text in of_prompt]))
        too_long = [max(len(next(encoded)) for _ in of_prompt) > room for of_prompt in texts]
        waiting = [i for i, over in zip(waiting, too_long, strict=True) if over]
        for i in waiting:
            kept[i] = without_first_shot(kept[i])
        waiting = [i for i in waiting if kept[i].shot_starts]
    return kept


def _texts(prompt: Prompt) -> list[str]:
    pairs = zip(prompt.contexts, prompt.continuations, strict=True)
    return [prompt.preamble + context + continuation for context, continuation in pairs]
