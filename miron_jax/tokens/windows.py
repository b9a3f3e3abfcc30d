"""Documents -> windows of tokens; and the bytes of a text that each of its tokens stands for.

Arrives: token ids, texts.  Leaves: windows, ends of tokens in bytes, losses of bytes.  It
deliberately does not know scores.

A document of 7 tokens behind BOS, windows of 4 tokens that score 2 (`|`: where the scored span
begins):

    B | a b c d         the first window scores all that it holds
        b c d | e f     the next ones score 2 tokens each, behind as many as there is room for
          c d e f | g
"""

from collections.abc import Sequence

import numpy as np

from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import Tokenizer


def windows(
    ids: np.ndarray, first: np.ndarray, length: int, stride: int
) -> list[tuple[np.ndarray, int]]:
    """(token ids, first scored one) of every window; each token of `ids` is scored once.

    `first`: tokens before the document, from one to `length`, not scored.  `length`: tokens of a
    window beside its last one, which is only predicted.  `stride`: tokens that a window scores
    after the first one, at most `length`.  As lm-eval 0.4.13's `get_rolling_token_windows`, whose
    context_len is length - stride + 1.
    """
    if not len(ids):
        return []
    whole = np.concatenate([first, ids])
    start = len(first)
    end = min(length + 1, len(whole))
    cut = [(whole[:end], start)]
    while end < len(whole):
        start = end
        end = min(end + stride, len(whole))
        before = max(0, end - length - 1)
        cut.append((whole[before:end], start - before))
    return cut


def byte_ends(tokenizer: Tokenizer, table: TokenBytes, text: str, ids: Sequence[int]) -> np.ndarray:
    """Byte of the text at which each token ends, int64 [T]: never falling, the last one is the
    text's length.

    By the bytes of the tokens where they spell the text; else by the tokenizer's own offsets (in
    characters: a token that ends within one ends after it); else all of the text belongs to the
    last token.
    """
    num_bytes = len(text.encode())
    ends = table.ends(ids, text)
    if ends is None:
        ends = _by_offsets(tokenizer, text, ids)
    if ends is None:
        ends = np.zeros(len(ids), np.int64)
    ends = np.maximum.accumulate(np.clip(ends, 0, num_bytes))
    ends[-1:] = num_bytes
    return ends


def _by_offsets(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> np.ndarray | None:
    if not getattr(tokenizer, "is_fast", False):
        return None
    encoding = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    if encoding.ids != list(ids):
        return None
    bytes_before = np.cumsum([0, *(len(character.encode()) for character in text)])
    if not len(ids):
        return None
    return bytes_before[[end for _, end in encoding.offsets]]


def spread(nll: np.ndarray, ends: np.ndarray, num_bytes: int) -> np.ndarray:
    """The loss of each byte, float64 [num_bytes]: a token's loss in equal parts over the bytes it
    stands for.

    Tokens without a byte of their own join the next one that has some, or the last one.  The sum
    stays: it is 0 over the bytes of a document without a token, as WordPiece makes of " ".
    """
    owned = np.flatnonzero(np.diff(ends, prepend=0) > 0)  # tokens with bytes
    if not len(owned):
        return np.zeros(num_bytes)
    owner = np.minimum(np.searchsorted(owned, np.arange(len(ends))), len(owned) - 1)
    total = np.bincount(owner, weights=nll, minlength=len(owned))
    size = np.diff(ends[owned], prepend=0)
    assert size.sum() == num_bytes
    return np.repeat(total / size, size)
