"""Two models' losses of the bytes of the same texts: where they differ, by kind of text and by
span.

Arrives: texts, the loss of each byte (nats) of each model.  Leaves: `KindGap`s, `SpanGap`s.  It
deliberately does not know tokens: losses are compared byte by byte, whatever the tokenizers are.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

_SCRIPTS = ("Latin", "Cyrillic", "Greek", "Cjk", "Arabic", "Hebrew")
_SPAN = re.compile(r"\s*\S+|\s+")  # a word with the white space before it
MOST_BYTES = 400  # of a span: text without white space is cut


class BytePair(NamedTuple):
    """A document as both models scored it."""

    doc_id: str
    text: str
    first: np.ndarray  # float [bytes], nats
    second: np.ndarray


class KindGap(NamedTuple):
    """All bytes of one kind."""

    kind: str
    num_bytes: int
    first: float  # bits a byte
    second: float
    share: float  # of the whole difference; kinds of both signs may exceed 1


class SpanGap(NamedTuple):
    """One word."""

    doc_id: str
    start: int  # byte in the document
    text: str
    difference: float  # bits, second less first


def gaps_by_kind(pairs: Iterable[BytePair]) -> list[KindGap]:
    """Largest difference first."""
    sums: dict[str, np.ndarray] = {}
    for pair in pairs:
        kinds, numbers = np.unique(_kinds_of(pair.text), return_inverse=True)
        for i, kind in enumerate(kinds.tolist()):
            of_kind = numbers == i
            sum_3 = np.asarray(
                [of_kind.sum(), pair.first[of_kind].sum(), pair.second[of_kind].sum()], np.float64
            )
            sums[kind] = sums.get(kind, np.zeros(3)) + sum_3
    whole = sum((each[2] - each[1] for each in sums.values()), 0.0)
    gaps = list[KindGap]()
    for kind, (n, a, b) in sums.items():
        share = (b - a) / whole if whole else 0.0
        gaps.append(KindGap(kind, int(n), a / n / math.log(2), b / n / math.log(2), share))
    return sorted(gaps, key=lambda gap: -abs(gap.second - gap.first) * gap.num_bytes)


def worst_spans(pairs: Iterable[BytePair], most: int) -> tuple[list[SpanGap], list[SpanGap]]:
    """The words that the second model finds less probable by the most bits, and those that it finds
    more probable."""
    gaps: list[SpanGap] = []
    for pair in pairs:
        bits = np.concatenate([[0.0], np.cumsum((pair.second - pair.first) / math.log(2))])
        start = 0
        for text in _spans(pair.text):
            stop = start + len(text.encode("utf-8", "surrogatepass"))
            gaps.append(SpanGap(pair.doc_id, start, text, float(bits[stop] - bits[start])))
            start = stop
        gaps = [*_extremes(gaps, most), *_extremes(gaps, most, -1)]
        gaps = list(dict.fromkeys(gaps))
    worse = [gap for gap in _extremes(gaps, most) if gap.difference > 0]
    better = [gap for gap in _extremes(gaps, most, -1) if gap.difference < 0]
    return worse, better


def _extremes(spans: Sequence[SpanGap], most: int, sign: int = 1) -> list[SpanGap]:
    return sorted(spans, key=lambda span: -sign * span.difference)[:most]


def _spans(text: str) -> Iterable[str]:
    for match in _SPAN.finditer(text):
        word = match[0]
        for i in range(0, len(word), MOST_BYTES):
            yield word[i : i + MOST_BYTES]


def _kinds_of(text: str) -> np.ndarray:
    """The kind of each byte's character."""
    return np.asarray([*chain.from_iterable(map(_kind_of_bytes, text))])


@lru_cache(1 << 16)
def _kind_of_bytes(char: str) -> tuple[str, ...]:
    return (_kind(char),) * len(char.encode("utf-8", "surrogatepass"))


def _kind(char: str) -> str:
    if char.isspace():
        return "white space"
    category = unicodedata.category(char)
    if category.startswith("N"):
        return "digits"
    if category.startswith(("L", "M")):
        script = unicodedata.name(char, "OTHER").split(" ")[0].capitalize()
        return f"letters, {script if script in _SCRIPTS else 'other'}"
    return "punctuation and symbols"
