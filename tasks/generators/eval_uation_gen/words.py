"""The words, sentences and categories of the generated sets, and the order of the Ukrainian
alphabet.

Arrives: the text files in this folder.  Leaves: records.  It deliberately does not know the
questions.
"""

from functools import cache
from importlib.resources import files
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
        length = len(self.text)
        return "short" if length <= SHORT else "mid" if length <= MID else "long"


class Category(NamedTuple):
    name: str
    words: tuple[str, ...]


def alphabet_key(word: str) -> tuple[int, ...]:
    """Sort key of the Ukrainian alphabet; Python's order puts ґ, є, і and ї last.  An apostrophe
    does not count."""
    return tuple(_RANK[letter] for letter in word.lower() if letter in _RANK)


def lines(name: str) -> list[str]:
    return (
        (files("miron_jax.tasks.generators.eval_uation_gen") / name)
        .read_text(encoding="utf-8")
        .splitlines()
    )


def table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in lines(name)]


@cache
def words(split: str) -> tuple[Word, ...]:
    """The words of one split; parts of speech and lengths take turns."""
    cells: dict[tuple[str, str], list[Word]] = {}
    for text, pos, tokens in table("words_uk.txt"):
        word = Word(text, pos, int(tokens))
        cells.setdefault((pos, word.size), []).append(word)
    in_turn = [word for row in zip(*cells.values(), strict=True) for word in row]
    return tuple(in_turn[:NUM_SHOTS_WORDS] if split == "fewshot" else in_turn[NUM_SHOTS_WORDS:])


@cache
def sentences(split: str) -> tuple[str, ...]:
    by_length = lines("sentences_uk.txt")
    shots = by_length[:: len(by_length) // NUM_SHOTS_SENTENCES]  # of every length
    return tuple(shots) if split == "fewshot" else tuple(s for s in by_length if s not in shots)


@cache
def categories(split: str) -> tuple[Category, ...]:
    """All categories; each split has other words of them."""
    split_categories = []
    for line in lines("categories_uk.txt"):
        name, _, members = line.partition(": ")
        by_length = sorted(members.split(", "), key=lambda word: (len(word), alphabet_key(word)))
        shots = by_length[1::SHOTS_MEMBERS]
        split_words = (
            shots if split == "fewshot" else [word for word in by_length if word not in shots]
        )
        split_categories.append(Category(name, tuple(split_words)))
    return tuple(split_categories)
