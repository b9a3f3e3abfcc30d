"""This project's own words, sentences and categories, and the order of the Ukrainian alphabet.

Arrives: the text files beside this one.  Leaves: records.  It deliberately does not know what is asked about them.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

ALPHABET = "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя"
_PLACE = {letter: place for place, letter in enumerate(ALPHABET)}
SHORT, MID = 5, 8  # letters of the longest short and the longest middling word
NUM_SHOTS_WORDS = 60  # words that few-shot examples are made of, and no question
NUM_SHOTS_SENTENCES = 8
SHOTS_MEMBERS = 3  # of each category: one in so many


class Word(NamedTuple):
    text: str
    pos: str
    num_tokens: int  # of Gemma 3's tokenizer, behind a space

    @property
    def size(self) -> str:
        length = len(self.text)
        return "short" if length <= SHORT else "mid" if length <= MID else "long"


class Category(NamedTuple):
    name: str
    words: tuple[str, ...]


def alphabet_key(word: str) -> tuple[int, ...]:
    """By place in the Ukrainian alphabet; Python's own order puts ґ, є, і and ї last.  An apostrophe does not count."""
    return tuple(_PLACE[letter] for letter in word.lower() if letter in _PLACE)


def lines(name: str) -> list[str]:
    return (files(__package__) / name).read_text(encoding="utf-8").splitlines()


@cache
def words(split: str) -> tuple[Word, ...]:
    """Those of one split, in an order that brings parts of speech and lengths in turn."""
    cells: dict[tuple[str, str], list[Word]] = {}
    for line in lines("words_uk.txt"):
        text, pos, tokens = line.split("\t")
        word = Word(text, pos, int(tokens))
        cells.setdefault((pos, word.size), []).append(word)
    dealt = [word for row in zip(*cells.values(), strict=True) for word in row]
    return tuple(_of(split, dealt, NUM_SHOTS_WORDS))


@cache
def sentences(split: str) -> tuple[str, ...]:
    found = lines("sentences_uk.txt")
    step = len(found) // NUM_SHOTS_SENTENCES  # of every length
    shots = found[::step]
    return tuple(shots) if split == "fewshot" else tuple(own for own in found if own not in shots)


@cache
def categories(split: str) -> tuple[Category, ...]:
    """All of them in both splits, with other words."""
    found = []
    for line in lines("categories_uk.txt"):
        name, _, members = line.partition(": ")
        by_length = sorted(members.split(", "), key=lambda word: (len(word), alphabet_key(word)))
        shots = by_length[1::SHOTS_MEMBERS]
        own = shots if split == "fewshot" else [word for word in by_length if word not in shots]
        found.append(Category(name, tuple(own)))
    return tuple(found)


def _of(split: str, found: Sequence, num_shots: int) -> Sequence:
    return found[:num_shots] if split == "fewshot" else found[num_shots:]
