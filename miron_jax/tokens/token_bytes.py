"""Tokenizer -> the bytes behind every token: where tokens meet characters, which tokens begin alike, how else to cut a text.

Arrives: a tokenizer.  Leaves: `TokenBytes`.  It deliberately does not know models, and it never trusts an offset: the
bytes of a text's tokens, end to end, are the text's own bytes or the text is said not to be representable.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

import numpy as np

from miron_jax.tokens.tokenizers import Tokenizer

_WORD_MARK = "\u2581"  # SentencePiece's space


class TokenBytes:
    """Bytes of each token id, None where it stands for none (special tokens, unknown, ids that the model lacks)."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int | None = None):
        size = min(len(tokenizer), vocab_size or len(tokenizer))
        pieces = tokenizer.convert_ids_to_tokens(list(range(size)))
        byte_level = "ByteLevel" in _decoder(tokenizer)
        special, added = set(tokenizer.all_special_ids), set(tokenizer.get_added_vocab().values())
        self.of = [
            None
            if i in special or piece is None
            else piece.encode()
            if byte_level and i in added
            else _bytes_of(piece, byte_level)
            for i, piece in enumerate(pieces)
        ]
        self.id_sets: list[np.ndarray] = []  # grows: token ids of every set asked for so far
        self._set_of: dict[bytes, int] = {}
        self._ids: dict[bytes, int] = {}
        for i in sorted(range(size), key=lambda i: _is_byte(pieces[i] or "")):  # byte tokens last: a piece goes before
            if own := self.of[i]:
                self._ids.setdefault(own, i)
        self._longest = max(map(len, self._ids), default=0)
        self._sorted = sorted((own, i) for i, own in enumerate(self.of) if own)

    def ends(self, ids: Sequence[int], text: str) -> np.ndarray | None:
        """Byte of the text at which each token ends, int64 [T]; None where the tokens do not spell the text.

        A tokenizer may put a space before a text that has none; it belongs to the first token, which then begins at -1.
        """
        own = [self.of[i] if i < len(self.of) else None for i in ids]
        if any(piece is None for piece in own):
            return None
        spelled, wanted = b"".join(piece for piece in own if piece is not None), text.encode()
        ends = np.cumsum([len(piece) for piece in own if piece is not None], dtype=np.int64)
        if spelled == wanted:
            return ends
        return ends - 1 if spelled == b" " + wanted else None

    def id_set(self, beginning: bytes) -> int:
        """Index in `id_sets` of the tokens that may stand where a text goes on with `beginning`.

        Those that begin with it, and those it begins with: log of their summed probability is an upper bound of the
        text's, exact but for beginnings that several tokens make up.
        """
        if beginning not in self._set_of:
            members = [i for n in range(1, len(beginning)) for i in self._starting(beginning[:n], exactly=True)]
            self._set_of[beginning] = len(self.id_sets)
            self.id_sets.append(np.asarray(sorted([*members, *self._starting(beginning)]), np.int32))
        return self._set_of[beginning]

    def _starting(self, beginning: bytes, exactly: bool = False) -> list[int]:
        """Ids of the tokens whose bytes begin with these, or are these."""
        found, at = [], bisect_left(self._sorted, (beginning, -1))
        while at < len(self._sorted) and self._sorted[at][0].startswith(beginning):
            if exactly and self._sorted[at][0] != beginning:
                break
            found.append(self._sorted[at][1])
            at += 1
        return found

    def segmentations(self, text: bytes, most: int) -> list[list[int]]:
        """At most `most` ways to spell the text, those of fewest tokens first, then by token ids."""

        @cache
        def ways(start: int) -> list[list[int]]:
            if start == len(text):
                return [[]]
            found = []
            for stop in range(start + 1, min(len(text), start + self._longest) + 1):
                token = self._ids.get(text[start:stop])
                if token is not None:
                    found += [[token, *rest] for rest in ways(stop)]
            return sorted(found, key=lambda ids: (len(ids), ids))[:most]

        return ways(0)


def _decoder(tokenizer: Tokenizer) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return "" if backend is None else str(backend.decoder)


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
    """The printable characters that byte-level tokenizers write for bytes: the byte itself where it prints, else 256 up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}
