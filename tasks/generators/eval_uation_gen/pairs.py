"""WordAlpha and WordLength: which of two words comes first, which has more letters.

Arrives: a language, the number of rows.  Leaves: rows, two of every pair, one for each order.  It
deliberately does not know models.

Pairs come from strata in turn, and each pair's template is drawn at random, so that neither the
longer word nor the first one is right more often.  No word of a pair is a prefix of the other,
since their order would be debatable.
"""

from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from os.path import commonprefix
from typing import NamedTuple

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen.language import Language, Template, Word
from miron_jax.tasks.generators.eval_uation_gen.rows import numbered, row
from miron_jax.tasks.generators.eval_uation_gen.table import NAME, VERSION

_SHARED = ("shared_0", "shared_1", "shared_2", "shared_3+")
LENGTH_STRATA = ("difference_1", "difference_2", "difference_3+", "fewer_tokens")


def num_shared(a: str, b: str) -> int:
    """The length of the common prefix, in letters."""
    return len(commonprefix((a, b)))  # noqa: RUF071 - letter by letter is what is meant


def alphabetical(language: Language, split: str, count: int) -> list[JsonObject]:
    """WordAlpha: common prefixes of 0, 1, 2, 3 or more letters, and pairs which Python's order of
    characters would have the other way round."""
    key = language.alphabet_key
    out_of_order = language.settings["out_of_order"]

    def stratum(a: Word, b: Word) -> str | None:
        if (a.text < b.text) != (key(a.text) < key(b.text)):
            return out_of_order
        return _SHARED[min(num_shared(a.text, b.text), 3)]

    sample = Pairs(language, "wordalpha", "WordsAlphabetOrder", (*_SHARED, out_of_order))
    return _rows(sample, split, count, stratum, lambda word: key(word.text))


def by_length(language: Language, split: str, count: int) -> list[JsonObject]:
    """WordLength: lengths that differ by 1, 2, 3 or more, and pairs whose longer word has fewer
    tokens."""

    def stratum(a: Word, b: Word) -> str | None:
        shorter, longer = sorted((a, b), key=lambda word: len(word.text))
        difference = len(longer.text) - len(shorter.text)
        if not difference:
            return None
        if longer.num_tokens < shorter.num_tokens:
            return LENGTH_STRATA[-1]
        return LENGTH_STRATA[min(difference, 3) - 1]

    sample = Pairs(language, "wordlength", "WordLengthComparison", LENGTH_STRATA)
    return _rows(sample, split, count, stratum, lambda word: (len(word.text),))


class Pairs(NamedTuple):
    """What pairs are sampled of."""

    language: Language
    task: str
    file: str  # of its templates
    strata: tuple[str, ...]


def _rows(
    of: Pairs,
    split: str,
    count: int,
    stratum: Callable[[Word, Word], str | None],
    rank: Callable[[Word], tuple[int, ...]],
) -> list[JsonObject]:
    templates = of.language.templates(of.file, ("t1", "t2"), ("less", "more"))
    last = of.language.settings["alphabet"][-1]
    pools = defaultdict[str, list[tuple[Word, Word]]](list)
    for a, b in combinations(of.language.words(split), 2):
        name = stratum(a, b)
        if name is not None and not a.text.startswith(b.text) and not b.text.startswith(a.text):
            pools[name].append((a, b))
    rows: list[JsonObject] = []
    for i in range(count // 2):
        draw = Stream(NAME, VERSION, of.task, split, i)
        name = of.strata[i % len(of.strata)]
        pool = pools[name]
        if not pool:
            continue  # of few words
        a, b = pool.pop(draw.below(len(pool)))
        if all(_is_within_its_letter(template, a, b, last) for template in templates):
            continue
        template = draw.choice(templates)
        while _is_within_its_letter(template, a, b, last):
            template = draw.choice(templates)
        right = (min if template.kind == "less" else max)((a, b), key=rank)
        order = draw.choice(((b, a), (a, b)))
        for is_reversed, pair in ((False, order), (True, order[::-1])):
            meta = {
                "option_0": pair[0].text,
                "option_1": pair[1].text,
                "label": pair.index(right),
                "reversed": is_reversed,
                "num_shared_characters": num_shared(a.text, b.text),
                "len_difference": abs(len(a.text) - len(b.text)),
                "stratum": name,
                **_of_word("t1_meta_", pair[0]),
                **_of_word("t2_meta_", pair[1]),
            }
            question = template.text.format(t1=pair[0].text, t2=pair[1].text)
            rows.append(row(template, question, right.text, meta))
    return numbered(of.task, split, rows)


def _of_word(prefix: str, word: Word) -> JsonObject:
    return {
        f"{prefix}word_length": word.size,
        f"{prefix}pos": word.pos or None,
        f"{prefix}len": len(word.text),
    }


def _is_within_its_letter(template: Template, a: Word, b: Word, last: str) -> bool:
    """Whether both words begin with the last letter: which is closer to it depends on whether its
    start or end is meant."""
    return (
        template.type == "closer_to_letter"
        and template.kind == "more"
        and a.text[0] == b.text[0] == last
    )
