"""LOW and WIS: the letter of a word, or the word of a sentence, at a numbered position.

Arrives: words, sentences, the number of rows.  Leaves: rows.  It deliberately does not know tokens.

Answers are drawn among the distinct letters (words), so that none is right more often than chance,
and then one position of the answer.  The last position is named by its number or as the last, each
half the time.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.draw import Stream
from tools.eval_uation_gen.numerals import LAST
from tools.eval_uation_gen.rows import (
    VERSION,
    Template,
    numbered,
    numeral,
    row,
)
from tools.eval_uation_gen.words import Word, sentences, words

PER_WORD = 4
LETTERS = (
    Template("Яка {n} літера слова «{it}»?", type="ordinal", form=("f", "nom")),
    Template("Назви {n} літеру слова «{it}».", type="ordinal", form=("f", "acc")),
    Template("Яка літера стоїть на {n} місці в слові «{it}»?", type="ordinal", form=("n", "loc")),
    Template("Яку літеру слова «{it}» пишуть {n}?", type="ordinal", form=("f", "ins")),
    Template(
        "Літери слова «{it}» пронумерували зліва направо. Яка з них має номер {n}?", type="numeral"
    ),
    Template(
        "Літери слова «{it}» роздали гравцям по черзі, по одній кожному. Яка дісталася {n} "
        "гравцеві?",
        type="ordinal",
        form=("m", "dat"),
    ),
)
WORDS = (
    Template("Яке {n} слово речення «{it}»?", type="ordinal", form=("n", "nom")),
    Template("Випиши {n} слово з речення «{it}».", type="ordinal", form=("n", "acc")),
    Template("Яке слово йде {n} у реченні «{it}»?", type="ordinal", form=("n", "ins")),
    Template(
        "Дійди в реченні «{it}» до {n} слова. Що це за слово?", type="ordinal", form=("n", "gen")
    ),
    Template(
        "Слова речення «{it}» пронумерували зліва направо. Яке з них має номер {n}?", type="numeral"
    ),
    Template(
        "Речення «{it}» читають уголос по черзі, кожен по одному слову. Яке слово дістанеться {n} "
        "читачеві?",
        type="ordinal",
        form=("m", "dat"),
    ),
)
_MARKS = ",.!?:;"


def letters(split: str, count: int) -> list[JsonObject]:
    """LOW, at most PER_WORD rows a word; words of every length and part of speech evenly, rows in a
    drawn order."""
    rows = chain.from_iterable(_of_word(split, i, word) for i, word in enumerate(words(split)))
    draw = Stream("eval-ua-tion-gen", VERSION, "low", split, "order")
    return numbered("low", split, draw.shuffled(list(islice(rows, count))))


def _of_word(split: str, i: int, word: Word) -> Iterator[JsonObject]:
    draw = Stream("eval-ua-tion-gen", VERSION, "low", split, i)
    distinct = list(dict.fromkeys(word.text))
    for letter in draw.sample(distinct, min(PER_WORD, len(distinct))):
        position = draw.choice([i for i, other in enumerate(word.text, 1) if other == letter])
        n, template = _numeral_and_template(draw, position, len(word.text), LETTERS)
        meta = {
            "needle": n,
            "from_end": len(word.text) - position,
            "word_length": word.size,
            "pos": word.pos,
            "len": len(word.text),
            "n_distinct": len(distinct),
            "n_occurrences_of_gold": word.text.count(letter),
            "word_raw": word.text,
        }
        yield row(
            template, LETTERS[template], _question(LETTERS[template], n, word.text), letter, meta
        )


def sentence_words(split: str, count: int) -> list[JsonObject]:
    """WIS: equally many rows of every sentence, give or take one; no question twice, rows in a
    drawn order."""
    num_each, num_longer = divmod(count, len(sentences(split)))
    rows: list[JsonObject] = []
    for i, sentence in enumerate(sentences(split)):
        rows += islice(_of_sentence(split, i, sentence), num_each + (i < num_longer))
    draw = Stream("eval-ua-tion-gen", VERSION, "wis", split, "order")
    return numbered("wis", split, draw.shuffled(rows))


def _of_sentence(split: str, i: int, sentence: str) -> Iterator[JsonObject]:
    """One row for every word and template, in rounds over all words; no question twice."""
    tokens = [token.rstrip(_MARKS) for token in sentence.split(" ")]
    used = set[tuple[int, int]]()
    draw = Stream("eval-ua-tion-gen", VERSION, "wis", split, i)
    for _ in WORDS:
        for position in draw.shuffled(range(1, len(tokens) + 1)):
            n, template = _numeral_and_template(draw, position, len(tokens), WORDS)
            while (n, template) in used:
                n, template = _numeral_and_template(draw, position, len(tokens), WORDS)
            used.add((n, template))
            meta = {
                "needle": n,
                "from_end": len(tokens) - position,
                "len_haystack": len(tokens),
                "sentence": i,
            }
            yield row(
                template,
                WORDS[template],
                _question(WORDS[template], n, sentence),
                tokens[position - 1],
                meta,
            )


def _numeral_and_template(
    draw: Stream, position: int, length: int, templates: Sequence[Template]
) -> tuple[int, int]:
    """The number that names a position (LAST at random for the last one), and the index of a
    template that can say it."""
    n = LAST if position == length and draw.below(2) else position
    return n, draw.choice(
        [i for i, template in enumerate(templates) if numeral(template, n) is not None]
    )


def _question(template: Template, n: int, it: str) -> str:
    return template.text.format(n=numeral(template, n), it=it)
