"""The words, sentences and categories of the generated sets, and the order of the Ukrainian
alphabet.

Arrives: the text files in this folder.  Leaves: records.  It deliberately does not know the
questions.
"""

from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

ALPHABET = "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя"
_RANK = {letter: rank for rank, letter in enumerate(ALPHABET)}
SHORT, MID = 5, 8  # letters of the longest short and the longest middling word
NUM_SHOTS_WORDS = 60  # words of few-shot examples, which no question uses
NUM_SHOTS_SENTENCES = 8
SHOTS_MEMBERS = 3  # of each category: every third word


class Word(NamedTuple):
    text: str
    pos: str
    num_tokens: int  # of Gemma 3's tokenizer, after a space

    @property
    def size(self) -> str:
        if len(self.text) <= SHORT:
            return "short"
        return "mid" if len(self.text) <= MID else "long"


class Category(NamedTuple):
    name: str
    words: tuple[str, ...]


def alphabet_key(word: str) -> tuple[int, ...]:
    """Sort key of the Ukrainian alphabet; Python's order puts ґ, є, і and ї last.  An apostrophe
    does not count."""
    return tuple(_RANK[letter] for letter in word.lower() if letter in _RANK)


def lines(name: str) -> list[str]:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()


def table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in lines(name)]


@cache
def words(split: str) -> tuple[Word, ...]:
    """The words of one split; parts of speech and lengths take turns."""
    cells: dict[tuple[str, str], list[Word]] = {}
    for text, pos, tokens in table("words_uk.txt"):
        word = Word(text, pos, int(tokens))
        cells.setdefault((pos, word.size), []).append(word)
    in_turn = tuple(chain.from_iterable(zip(*cells.values(), strict=True)))
    return in_turn[:NUM_SHOTS_WORDS] if split == "fewshot" else in_turn[NUM_SHOTS_WORDS:]


@cache
def sentences(split: str) -> tuple[str, ...]:
    by_length = lines("sentences_uk.txt")
    shots = by_length[:: len(by_length) // NUM_SHOTS_SENTENCES]  # of every length
    return _of_split(split, by_length, shots)


def _of_split(split: str, every: list[str], shots: list[str]) -> tuple[str, ...]:
    if split == "fewshot":
        return tuple(shots)
    return tuple(text for text in every if text not in shots)


@cache
def categories(split: str) -> tuple[Category, ...]:
    """All categories; each split has other words of them."""
    split_categories = []
    for line in lines("categories_uk.txt"):
        name, _, members = line.partition(": ")
        by_length = sorted(members.split(", "), key=lambda word: (len(word), alphabet_key(word)))
        shots = by_length[1::SHOTS_MEMBERS]
        split_categories.append(Category(name, _of_split(split, by_length, shots)))
    return tuple(split_categories)
