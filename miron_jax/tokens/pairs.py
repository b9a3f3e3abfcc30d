"""Context and continuation -> token ids of the two as one text, and of the context alone, special
tokens included; tokenizers.first_tokens decides which stand before a text.

Arrives: pairs of texts.  Leaves: `TextPair`s.  It deliberately does not
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

from miron_jax.tokens.pieces import Text, piece_encoder
from miron_jax.tokens.tokenizers import (
    BosRule,
    Tokenizer,
    bos_or_eos,
    first_tokens,
    reads_names_as_text,
)


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

    # texts, whether with special tokens -> token ids of each
    encode: Callable[[Sequence[Text], bool], list[np.ndarray]]
    first: tuple[int, ...] = ()  # stand before a text
    special: bool = False  # a text has those that the tokenizer puts around it, behind `first`
    # a text that begins with it gets no special token; None: every text gets them
    bos: str | None = None
    prefix: int | None = None  # stands in place of an empty context; None: nothing does

    def of(self, texts: Iterable[Text]) -> dict[Text, np.ndarray]:
        """Token ids of each distinct text."""
        plain = list[Text]()
        others = list[Text]()
        for text in dict.fromkeys(texts):
            has_bos = self.bos is not None and "".join(text).startswith(self.bos)
            (plain if has_bos else others).append(text)
        encoded = dict(zip(others, self.encode(others, self.special), strict=True))
        if self.first:
            first = np.asarray(self.first, np.int32)
            encoded = {text: np.concatenate([first, ids]) for text, ids in encoded.items()}
        return self.alone(plain) | encoded

    def alone(self, texts: Iterable[Text]) -> dict[Text, np.ndarray]:
        """The same without special tokens."""
        unique = list(dict.fromkeys(texts))
        return dict(zip(unique, self.encode(unique, False), strict=True))

    def pairs(
        self,
        texts: Sequence[tuple[tuple[str, ...], str]],
        strip: Callable[[str], str] = str.rstrip,
    ) -> list[TextPair]:
        """`texts`: the parts of each context, and its continuation.  `strip`: str.rstrip,
        str.strip or str (nothing), before a context is tokenized alone.

        The prefix stands for an empty context, and a continuation may begin with it itself.
        """
        stripped = [(_stripped(parts, strip), (*parts, behind)) for parts, behind in texts]
        without_context = list[Text]()
        others = list[Text]()
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


def _stripped(parts: tuple[str, ...], strip: Callable[[str], str]) -> tuple[str, ...]:
    """The parts of a text without white space at its end, or at both ends; () if nothing is
    left."""
    if strip is str:
        return parts
    kept = [*parts]
    while kept and not kept[-1].strip():
        kept.pop()
    if kept:
        kept[-1] = kept[-1].rstrip()
    if strip is str.strip:
        while kept and not kept[0].strip():
            del kept[0]
        if kept:
            kept[0] = kept[0].lstrip()
    return tuple(kept)


def text_tokens(bos: BosRule, tokenizer: Tokenizer) -> TextTokens:
    """The special tokens of a profile's rule, before a text that is tokenized as one."""
    if bos != "as_tokenizer_or_prefix":
        return TextTokens(piece_encoder(tokenizer), first_tokens(bos, tokenizer))
    prefix = bos_or_eos(tokenizer)
    is_name = prefix is not None and not reads_names_as_text(tokenizer)
    text = tokenizer.decode(prefix) if is_name else None
    return TextTokens(piece_encoder(tokenizer), special=True, bos=text, prefix=prefix)
