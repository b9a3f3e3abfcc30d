"""Tokenizer -> the bytes of every token: token boundaries in characters, tokens with equal
prefixes, other tokenizations.

Arrives: a tokenizer.  Leaves: `TokenBytes`.  It deliberately does not know models, and it never
trusts a tokenizer's offsets: either the bytes of a text's tokens, end to end, are the bytes of the
text, or the text counts as not spelled.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, cached_property

import numpy as np

from miron_jax.tokens.tokenizers import Tokenizer

_WORD_MARK = "\u2581"  # SentencePiece's space


class TokenBytes:
    """Bytes of each token id; None for tokens without bytes (special tokens, unknown, ids that the
    model lacks)."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int | None = None):
        size = min(len(tokenizer), vocab_size or len(tokenizer))
        pieces = tokenizer.convert_ids_to_tokens(list(range(size)))
        byte_level = "ByteLevel" in _decoder(tokenizer)
        special = set(tokenizer.all_special_ids)
        added = set(tokenizer.get_added_vocab().values())
        self.of = list[bytes | None]()
        for i, piece in enumerate(pieces):
            if i in special or piece is None:
                self.of.append(None)
            elif byte_level and i in added:
                self.of.append(piece.encode())
            else:
                self.of.append(_bytes_of(piece, byte_level))
        self.id_sets: list[np.ndarray] = []  # token ids of every set so far; grows with `id_set`
        self._set_idx: dict[bytes, int] = {}
        self._ids: dict[bytes, int] = {}
        self._sorted: list[tuple[bytes, int]] = []
        # a piece has priority over a byte token
        for i in sorted(range(size), key=lambda i: _is_byte(pieces[i] or "")):
            if token_bytes := self.of[i]:
                self._ids.setdefault(token_bytes, i)
                self._sorted.append((token_bytes, i))
        self._longest = max(map(len, self._ids), default=0)
        self._sorted.sort()

    @cached_property
    def num_bytes(self) -> np.ndarray:
        """Of each token id, uint16 [V]; 0 of tokens without bytes."""
        return np.asarray([len(piece or b"") for piece in self.of], np.uint16)

    def ends(self, ids: Sequence[int], text: str) -> np.ndarray | None:
        """Byte of the text at which each token ends, int64 [T]; None: the tokens do not spell the
        text.

        A tokenizer may put a space before a text that has none; it belongs to the first token,
        which then begins at -1.
        """
        pieces = [piece for i in ids if i < len(self.of) and (piece := self.of[i]) is not None]
        if len(pieces) < len(ids):
            return None
        spelled = b"".join(pieces)
        text_bytes = text.encode()
        ends = np.cumsum([*map(len, pieces)], dtype=np.int64)
        if spelled == text_bytes:
            return ends
        return ends - 1 if spelled == b" " + text_bytes else None

    def id_set(self, prefix: bytes) -> int:
        """Index in `id_sets` of the tokens that may come next in a text that continues with
        `prefix`.

        These are the tokens that begin with `prefix`, and the tokens that are a prefix of it.
        Their summed probability is an upper bound of the probability of `prefix`, and exact if no
        prefix takes several tokens.
        """
        if prefix not in self._set_idx:
            members = self._starting(prefix)
            for n in range(1, len(prefix)):
                members += self._starting(prefix[:n], exactly=True)
            self._set_idx[prefix] = len(self.id_sets)
            self.id_sets.append(np.asarray(sorted(members), np.int32))
        return self._set_idx[prefix]

    def _starting(self, prefix: bytes, exactly: bool = False) -> list[int]:
        """Ids of the tokens whose bytes begin with `prefix`; `exactly`: whose bytes are
        `prefix`."""
        ids = []
        for at in range(bisect_left(self._sorted, (prefix, -1)), len(self._sorted)):
            token_bytes, i = self._sorted[at]
            if not token_bytes.startswith(prefix) or (exactly and token_bytes != prefix):
                break
            ids.append(i)
        return ids

    def segmentations(self, text: bytes, most: int) -> list[list[int]]:
        """At most `most` ways to spell the text, those of fewest tokens first, then by token
        ids."""

        @cache
        def ways(start: int) -> list[list[int]]:
            if start == len(text):
                return [[]]
            spellings = []
            for stop in range(start + 1, min(len(text), start + self._longest) + 1):
                token = self._ids.get(text[start:stop])
                if token is not None:
                    spellings += [[token, *rest] for rest in ways(stop)]
            return sorted(spellings, key=lambda ids: (len(ids), ids))[:most]

        return ways(0)


def _decoder(tokenizer: Tokenizer) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return str(getattr(backend, "decoder", ""))


def _bytes_of(piece: str, byte_level: bool) -> bytes:
    if byte_level:
        table = _byte_of_character()
        if all(character in table for character in piece):
            return bytes(table[character] for character in piece)
        return piece.encode()  # a token added as plain text
    if _is_byte(piece):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(_WORD_MARK, " ").encode()


def _is_byte(piece: str) -> bool:
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


@cache
def _byte_of_character() -> dict[str, int]:
    """Byte-level tokenizers write a byte as one printable character: itself if it is printable,
    else one from 256 up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}
