"""Prompts + tokenizer + length -> prompts whose few-shot examples fit.

Arrives: Prompts that say where each of their few-shot examples begins.  Leaves: the same Prompts; those that were too
long have lost their first few-shot examples.  It deliberately does not know models.
"""

from collections.abc import Sequence

from miron_jax.definitions.records import Wording
from miron_jax.prompting.prompts import Prompt, without_first_shot
from miron_jax.tokens.tokenizers import Tokenizer, encoder, first_tokens


def fitting(prompts: Sequence[Prompt], profile: Wording, tokenizer: Tokenizer, max_length: int | None) -> list[Prompt]:
    """Worked examples leave a prompt whole, the first one first, until each of its texts has `max_length` tokens or none is
    left.  A prompt that is too long even so stays too long: what is cut of it then is cut by the token."""
    if profile.truncation != "whole_shots" or max_length is None:
        return list(prompts)
    kept, encode = list(prompts), encoder(tokenizer)
    room = max_length - len(first_tokens(profile.bos, tokenizer))
    waiting = [i for i, prompt in enumerate(kept) if prompt.shot_starts]
    while waiting:
        texts = [_texts(kept[i]) for i in waiting]
        lengths = iter(encode([text for own in texts for text in own]))
        too_long = [max(len(next(lengths)) for _ in own) > room for own in texts]
        waiting = [i for i, over in zip(waiting, too_long, strict=True) if over]
        for i in waiting:
            kept[i] = without_first_shot(kept[i])
        waiting = [i for i in waiting if kept[i].shot_starts]
    return kept


def _texts(prompt: Prompt) -> list[str]:
    pairs = zip(prompt.contexts, prompt.continuations, strict=True)
    return [prompt.preamble + context + continuation for context, continuation in pairs]
