"""LOW and WIS: the letter of a word, or the word of a sentence, at a numbered position.

Arrives: a language, the number of rows.  Leaves: rows.  It deliberately does not know tokens.

Answers are drawn among the distinct letters (words), so that none is right more often than chance,
and then one position of the answer.  The last position is named by its number or as the last, each
half the time.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen.language import (
    LAST,
    Language,
    Template,
    Word,
    tokens_of,
)
from miron_jax.tasks.generators.eval_uation_gen.rows import numbered, row
from miron_jax.tasks.generators.eval_uation_gen.table import NAME, VERSION

PER_WORD = 4
THE_LAST = -1  # the position, where it is named as the last


def letters(language: Language, split: str, count: int) -> list[JsonObject]:
    """LOW, at most PER_WORD rows a word; words of every length and part of speech evenly, rows in a
    drawn order."""
    templates = language.templates("LOWTask", ("WORD",), counts=True)
    words = enumerate(language.words(split))
    rows = chain.from_iterable(_of_word(language, templates, split, *word) for word in words)
    draw = Stream(NAME, VERSION, "low", split, "order")
    return numbered("low", split, draw.shuffled(list(islice(rows, count))))


def _of_word(
    language: Language, templates: Sequence[Template], split: str, i: int, word: Word
) -> Iterator[JsonObject]:
    draw = Stream(NAME, VERSION, "low", split, i)
    distinct = list(dict.fromkeys(word.text))
    for letter in draw.sample(distinct, min(PER_WORD, len(distinct))):
        position = draw.choice([i for i, other in enumerate(word.text, 1) if other == letter])
        n, template = _named(draw, language, position, len(word.text), templates)
        meta = {
            "needle": n,
            "from_end": len(word.text) - position,
            "word_length": word.size,
            "pos": word.pos or None,
            "len": len(word.text),
            "n_distinct": len(distinct),
            "n_occurrences_of_gold": word.text.count(letter),
            "word_raw": word.text,
        }
        question = template.text.format(n=_numeral(language, template, n), WORD=word.text)
        yield row(template, question, letter, meta)


def sentence_words(language: Language, split: str, count: int) -> list[JsonObject]:
    """WIS: equally many rows of every sentence, give or take one; no question twice, rows in a
    drawn order."""
    templates = language.templates("WISTask", ("SENT",), counts=True)
    sentences = language.sentences[split]
    num_each, num_longer = divmod(count, max(1, len(sentences)))
    rows: list[JsonObject] = []
    for i, sentence in enumerate(sentences):
        of_sentence = _of_sentence(language, templates, split, i, sentence)
        rows += islice(of_sentence, num_each + (i < num_longer))
    draw = Stream(NAME, VERSION, "wis", split, "order")
    return numbered("wis", split, draw.shuffled(rows))


def _of_sentence(
    language: Language, templates: Sequence[Template], split: str, i: int, sentence: str
) -> Iterator[JsonObject]:
    """One row for every word and template, in rounds over all words; no question twice."""
    tokens = tokens_of(sentence)
    used = set[tuple[int, int]]()
    draw = Stream(NAME, VERSION, "wis", split, i)
    for _ in templates:
        for position in draw.shuffled(range(1, len(tokens) + 1)):
            n, template = _named(draw, language, position, len(tokens), templates)
            while (n, template.number) in used:
                n, template = _named(draw, language, position, len(tokens), templates)
            used.add((n, template.number))
            meta = {
                "needle": n,
                "from_end": len(tokens) - position,
                "len_haystack": len(tokens),
                "sentence": i,
            }
            question = template.text.format(n=_numeral(language, template, n), SENT=sentence)
            yield row(template, question, tokens[position - 1], meta)


def _named(
    draw: Stream, language: Language, position: int, length: int, templates: Sequence[Template]
) -> tuple[int, Template]:
    """The number that names a position (THE_LAST at random for the last one), and a template that
    can say it."""
    of_last = [each for each in templates if _numeral(language, each, THE_LAST)]
    if position == length and draw.below(2) and of_last:
        return THE_LAST, draw.choice(of_last)
    _numeral(language, templates[0], length)  # is within the numerals
    return position, draw.choice(templates)


def _numeral(language: Language, template: Template, n: int) -> str:
    return language.numeral(template, LAST if n == THE_LAST else str(n))
