"""What prompts and requests lose that are longer than the length limit: shots, then their first
tokens.

Arrives: the limit's sources, prompts with their shots, numbers of tokens.  Leaves: prompts without
the shots that do not fit, and without a leak that the length cuts away; how many first tokens go.
It deliberately does not know models.

Requests lose their first tokens, BOS among them, and keep their last ones; cloze items likewise.
Prompts to answer lose so many that the longest answer has room behind them (answer_requests.py).
Programs are not cut: a task whose prompts leave no room is refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple, TypeVar

import numpy as np

from miron_jax.definitions.records import ClozeProfile, ProgramProfile, TextProfile, Wording
from miron_jax.prompting.prompts import Prompt
from miron_jax.tokens.pieces import PieceEncoder, Text, piece_encoder
from miron_jax.tokens.tokenizers import Tokenizer, first_tokens

Number = TypeVar("Number", int, np.ndarray)


class LengthLimit(NamedTuple):
    """The sources of the limit on a request's tokens, BOS included."""

    requested: int | None  # --max_length, instead of a suite's own rule
    learned: int | None  # learned positions of the model; a hard limit
    # tokens that the model was trained at, which some rules of truncation keep to
    trained: int | None = None

    def of(self, profile: Wording | ProgramProfile | ClozeProfile | TextProfile) -> int | None:
        """The limit under a task's profile; None: no limit."""
        chosen = self.requested or profile.max_length
        keeps_to_trained = False
        if isinstance(profile, TextProfile):
            keeps_to_trained = not self.requested
        elif isinstance(profile, Wording) and profile.truncation != "keep_last":
            keeps_to_trained = not chosen
        trained = self.trained if keeps_to_trained else None
        return min(filter(None, (chosen, self.learned, trained)), default=None)


def num_cut(length: Number, max_length: int | None) -> Number:
    """How many first tokens a text of this length loses, or each of many; None: no limit."""
    over = length * 0 if max_length is None else length - max_length
    return over * (over > 0)


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
                kept[i] = _without_first_shot(kept[i])
                if kept[i].num_shots:
                    waiting.append(i)


def _without_first_shot(prompt: Prompt) -> Prompt:
    """The prompt with one shot fewer; it must have at least one."""
    assert prompt.num_shots, "no shot is left"
    first = len(prompt.shots) - prompt.num_shots  # a chat has a text before them
    shots = (*prompt.shots[:first], *prompt.shots[first + 1 :])
    num_shots = prompt.num_shots - 1
    leak = 0 if prompt.leak > num_shots else prompt.leak
    return replace(prompt, shots=shots, num_shots=num_shots, leak=leak)


def _texts(prompt: Prompt) -> list[Text]:
    pairs = zip(prompt.contexts, prompt.continuations, strict=True)
    return [(*prompt.shots, context, continuation) for context, continuation in pairs]
