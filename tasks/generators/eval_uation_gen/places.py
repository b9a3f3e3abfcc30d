"""LOW and WIS: the letter of a word, the word of a sentence, that stands in a named place.

Arrives: words, sentences, how many rows.  Leaves: rows.  It deliberately does not know tokens.

What is asked for is drawn among the different letters (words), so that none is right more often than chance; where it
stands twice, one of its places is drawn.  The last place is named by its number or as the last, each half the time.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.eval_uation_gen.numerals import LAST
from miron_jax.tasks.generators.eval_uation_gen.rows import VERSION, Template, numbered, numeral, row
from miron_jax.tasks.generators.eval_uation_gen.words import Word, sentences, words

PER_WORD = 4
LETTERS = (
    Template("Яка {n} літера слова «{it}»?", type="ordinal", form=("f", "nom")),
    Template("Назви {n} літеру слова «{it}».", type="ordinal", form=("f", "acc")),
    Template("Яка літера стоїть на {n} місці в слові «{it}»?", type="ordinal", form=("n", "loc")),
    Template("Яку літеру слова «{it}» пишуть {n}?", type="ordinal", form=("f", "ins")),
    Template("Літери слова «{it}» пронумерували зліва направо. Яка з них має номер {n}?", type="numeral"),
    Template(
        "Літери слова «{it}» роздали гравцям по черзі, по одній кожному. Яка дісталася {n} гравцеві?",
        type="ordinal",
        form=("m", "dat"),
    ),
)
WORDS = (
    Template("Яке {n} слово речення «{it}»?", type="ordinal", form=("n", "nom")),
    Template("Випиши {n} слово з речення «{it}».", type="ordinal", form=("n", "acc")),
    Template("Яке слово йде {n} у реченні «{it}»?", type="ordinal", form=("n", "ins")),
    Template("Дійди в реченні «{it}» до {n} слова. Що це за слово?", type="ordinal", form=("n", "gen")),
    Template("Слова речення «{it}» пронумерували зліва направо. Яке з них має номер {n}?", type="numeral"),
    Template(
        "Речення «{it}» читають уголос по черзі, кожен по одному слову. Яке слово дістанеться {n} читачеві?",
        type="ordinal",
        form=("m", "dat"),
    ),
)
_MARKS = ",.!?:;"


def letters(split: str, count: int) -> list[dict[str, Any]]:
    """LOW, at most PER_WORD rows a word; words of every length and part of speech evenly, rows in a drawn order."""
    rows = list(islice((own for i, word in enumerate(words(split)) for own in _of_word(split, i, word)), count))
    return numbered("low", split, Draw("eval-ua-tion-gen", VERSION, "low", split, "order").shuffled(rows))


def _of_word(split: str, i: int, word: Word) -> Iterator[dict[str, Any]]:
    draw = Draw("eval-ua-tion-gen", VERSION, "low", split, i)
    distinct = list(dict.fromkeys(word.text))
    for letter in draw.sample(distinct, min(PER_WORD, len(distinct))):
        at = draw.choice([place for place, own in enumerate(word.text, 1) if own == letter])
        n, template = _asked(draw, at, len(word.text), LETTERS)
        meta = {
            "needle": n,
            "from_end": len(word.text) - at,
            "word_length": word.size,
            "pos": word.pos,
            "len": len(word.text),
            "n_distinct": len(distinct),
            "n_occurrences_of_gold": word.text.count(letter),
            "word_raw": word.text,
        }
        yield row(template, LETTERS[template], _question(LETTERS[template], n, word.text), letter, meta)


def sentence_words(split: str, count: int) -> list[dict[str, Any]]:
    """WIS: as many rows of every sentence as come out even, no question twice, rows in a drawn order."""
    found = sentences(split)
    rows = [
        own
        for i, sentence in enumerate(found)
        for own in islice(_of_sentence(split, i, sentence), count // len(found) + (i < count % len(found)))
    ]
    return numbered("wis", split, Draw("eval-ua-tion-gen", VERSION, "wis", split, "order").shuffled(rows))


def _of_sentence(split: str, i: int, sentence: str) -> Iterator[dict[str, Any]]:
    """Every word is asked for equally often, each time otherwise."""
    tokens = [token.rstrip(_MARKS) for token in sentence.split(" ")]
    asked = set[tuple[int, int]]()
    draw = Draw("eval-ua-tion-gen", VERSION, "wis", split, i)
    for _ in WORDS:
        for at in draw.shuffled(range(1, len(tokens) + 1)):
            n, template = _asked(draw, at, len(tokens), WORDS)
            while (n, template) in asked:
                n, template = _asked(draw, at, len(tokens), WORDS)
            asked.add((n, template))
            meta = {"needle": n, "from_end": len(tokens) - at, "len_haystack": len(tokens), "sentence": i}
            yield row(template, WORDS[template], _question(WORDS[template], n, sentence), tokens[at - 1], meta)


def _asked(draw: Draw, at: int, length: int, templates: Sequence[Template]) -> tuple[int, int]:
    """By which number a place is named, and in which template."""
    n = LAST if at == length and draw.below(2) else at
    possible = [place for place, template in enumerate(templates) if numeral(template, n) is not None]
    return n, draw.choice(possible)


def _question(template: Template, n: int, it: str) -> str:
    return template.text.format(n=numeral(template, n), it=it)
