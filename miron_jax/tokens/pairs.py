"""Puts BOS and other special tokens before a text: token ids of context and continuation as one
text, and of the context alone.

Arrives: pairs of texts.  Leaves: `TextPair`s, special tokens included.  It deliberately does not
know prompts or spans.

lm-evaluation-harness 0.4.13 (TemplateLM._encode_pair, HFLM._loglikelihood_tokens) moves white space
at the end of a context to its continuation.  It tokenizes the two as one text (`whole`), and the
context alone.  The model reads the context's own tokens, then those that the whole has behind as
many (`context_kept`), which are scored.  What it reads is not the whole where a token crosses the
border of the two:

    context  |print|(|     whole  |print|("|Hello|"|     read  |print|(|Hello|"|     scored: Hello "
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from miron_jax.tokens.tokenizers import (
    BosRule,
    Encode,
    Tokenizer,
    encoder,
    first_tokens,
    reads_names_as_text,
)

TEXTS_AT_ONCE = 4096  # that the tokenizer gets


class TextPair(NamedTuple):
    """Token ids, int32, behind the special tokens that stand before a text."""

    whole: np.ndarray  # of context and continuation as one text
    context: np.ndarray  # of the context alone


def context_kept(pair: TextPair) -> np.ndarray:
    """The context's tokens and those that the whole has behind as many.

    The whole itself where it has no more tokens than the context: there lm-eval fails.
    """
    whole, context = pair
    if len(whole) <= len(context):
        return whole
    return np.concatenate([context, whole[len(context) :]])


@dataclass(frozen=True, slots=True)
class TextTokens:
    """Tokenizes texts with the special tokens that a rule puts there."""

    encode: Encode
    first: tuple[int, ...] = ()  # stand before a text
    special: bool = False  # a text has those that the tokenizer puts around it, behind `first`
    # a text that begins with it gets no special token; None: every text gets them
    bos: str | None = None
    prefix: int | None = None  # stands in place of an empty context; None: nothing does

    def of(self, texts: Iterable[str]) -> dict[str, np.ndarray]:
        """Token ids of each distinct text."""
        plain = list[str]()
        others = list[str]()
        for text in dict.fromkeys(texts):
            has_bos = self.bos is not None and text.startswith(self.bos)
            (plain if has_bos else others).append(text)
        return self.alone(plain) | self._encoded(others, self.first, self.special)

    def alone(self, texts: Iterable[str]) -> dict[str, np.ndarray]:
        """The same without special tokens."""
        return self._encoded(list(dict.fromkeys(texts)), (), False)

    def _encoded(
        self, texts: Sequence[str], first: tuple[int, ...], special: bool
    ) -> dict[str, np.ndarray]:
        ids = dict[str, np.ndarray]()
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            some = list(texts[start : start + TEXTS_AT_ONCE])
            for text, each in zip(some, self.encode(some, special), strict=True):
                ids[text] = np.asarray([*first, *each], np.int32)
        return ids

    def pairs(
        self, texts: Sequence[tuple[str, str]], strip: Callable[[str], str] = str.rstrip
    ) -> list[TextPair]:
        """`strip`: a context -> the text that is tokenized alone.

        The prefix stands for an empty context, and a continuation may begin with it itself.
        """
        stripped = [(strip(context), context + continuation) for context, continuation in texts]
        without_context = list[str]()
        others = list[str]()
        for context, whole in stripped:
            if context or self.prefix is None:
                others += (context, whole)
            else:
                without_context.append(whole)
        alone = self.alone(without_context)
        behind = self.of(others)
        pairs = list[TextPair]()
        for context, whole in stripped:
            if context or self.prefix is None:
                pairs.append(self._pair(behind[whole], behind[context]))
            else:
                pairs.append(self._behind_prefix(alone[whole]))
        return pairs

    def _pair(self, whole: np.ndarray, context: np.ndarray) -> TextPair:
        """Nothing of a context stands before a token that takes in all of it, as "the" does of "t"
        and "he"."""
        is_taken_in = 0 < len(whole) <= len(context) and whole[0] != context[0]
        if is_taken_in and self.prefix is not None:
            return self._behind_prefix(whole)
        return TextPair(whole, context)

    def _behind_prefix(self, ids: np.ndarray) -> TextPair:
        prefix = np.asarray([self.prefix], np.int32)
        if ids[:1].tolist() != [self.prefix]:
            ids = np.concatenate([prefix, ids])
        return TextPair(ids, prefix)


def text_tokens(bos: BosRule, tokenizer: Tokenizer) -> TextTokens:
    """The special tokens of a profile's rule, before a text that is tokenized as one."""
    if bos != "as_tokenizer_or_prefix":
        return TextTokens(encoder(tokenizer), first_tokens(bos, tokenizer))
    known = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    prefix = next((token for token in known if token is not None), None)
    is_name = prefix is not None and not reads_names_as_text(tokenizer)
    text = tokenizer.decode(prefix) if is_name else None
    return TextTokens(encoder(tokenizer), special=True, bos=text, prefix=prefix)
