"""WordAlpha and WordLength: which of two words comes first, which has more letters.

Arrives: words, the number of rows.  Leaves: rows, two of every pair, one for each order.  It
deliberately does not know models.

Pairs come from strata in turn, and each pair's template is drawn at random, so that neither the
longer word nor the first one is right more often.  No word of a pair is a prefix of the other,
since their order would be debatable.
"""

from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from os.path import commonprefix

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.draw import Stream
from tools.eval_uation_gen.rows import VERSION, Template, numbered, row
from tools.eval_uation_gen.words import ALPHABET, Word, alphabet_key, words

ALPHABETICAL = (
    Template(
        "Слова «{a}» та «{b}» розставили за абеткою. Яке з них буде першим?", "less", "ordinal"
    ),
    Template("Яке слово трапиться в словнику раніше: «{a}» чи «{b}»?", "less", "further"),
    Template("Яке слово за абеткою ближче до початку: «{a}» чи «{b}»?", "less", "closer_to_side"),
    Template(
        "Яке слово стоїть в абетковому списку ближче до літери «а»: «{a}» чи «{b}»?",
        "less",
        "closer_to_letter",
    ),
    Template(
        "Слова «{a}» та «{b}» розставили за абеткою. Яке з них буде другим?", "more", "ordinal"
    ),
    Template("Яке слово трапиться в словнику пізніше: «{a}» чи «{b}»?", "more", "further"),
    Template("Яке слово за абеткою ближче до кінця: «{a}» чи «{b}»?", "more", "closer_to_side"),
    Template(
        "Яке слово стоїть в абетковому списку ближче до літери «я»: «{a}» чи «{b}»?",
        "more",
        "closer_to_letter",
    ),
)
LENGTH = (
    Template("Яке слово на письмі коротше: «{a}» чи «{b}»?", "less"),
    Template("У якому слові менше літер: «{a}» чи «{b}»?", "less"),
    Template("Одне зі слів «{a}» та «{b}» має менше літер. Яке?", "less"),
    Template("Яке слово на письмі довше: «{a}» чи «{b}»?", "more"),
    Template("У якому слові більше літер: «{a}» чи «{b}»?", "more"),
    Template("Одне зі слів «{a}» та «{b}» має більше літер. Яке?", "more"),
)
_SHARED = ("shared_0", "shared_1", "shared_2", "shared_3+")
ORDER_STRATA = (*_SHARED, "і ї є ґ")  # the last: Python's order of characters would be wrong
LENGTH_STRATA = ("difference_1", "difference_2", "difference_3+", "fewer_tokens")


def num_shared(a: str, b: str) -> int:
    """The length of the common prefix, in letters."""
    return len(commonprefix((a, b)))  # noqa: RUF071 - letter by letter is what is meant


def alphabetical(split: str, count: int) -> list[JsonObject]:
    """WordAlpha: common prefixes of 0, 1, 2, 3 or more letters, and pairs whose order і ї є ґ
    decide."""

    def stratum(a: Word, b: Word) -> str | None:
        if (a.text < b.text) != (alphabet_key(a.text) < alphabet_key(b.text)):
            return ORDER_STRATA[-1]
        return _SHARED[min(num_shared(a.text, b.text), 3)]

    return _rows(
        "wordalpha",
        split,
        count,
        ALPHABETICAL,
        ORDER_STRATA,
        stratum,
        lambda word: alphabet_key(word.text),
    )


def by_length(split: str, count: int) -> list[JsonObject]:
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

    return _rows(
        "wordlength", split, count, LENGTH, LENGTH_STRATA, stratum, lambda word: (len(word.text),)
    )


def _rows(
    task: str,
    split: str,
    count: int,
    templates: tuple[Template, ...],
    strata: tuple[str, ...],
    stratum: Callable[[Word, Word], str | None],
    rank: Callable[[Word], tuple[int, ...]],
) -> list[JsonObject]:
    pools = defaultdict[str, list[tuple[Word, Word]]](list)
    for a, b in combinations(words(split), 2):
        name = stratum(a, b)
        if name is not None and not a.text.startswith(b.text) and not b.text.startswith(a.text):
            pools[name].append((a, b))
    rows: list[JsonObject] = []
    for i in range(count // 2):
        draw = Stream("eval-ua-tion-gen", VERSION, task, split, i)
        name = strata[i % len(strata)]
        pool = pools[name]
        a, b = pool.pop(draw.below(len(pool)))
        template_idx = draw.below(len(templates))
        while _is_within_its_letter(templates[template_idx], a, b):
            template_idx = draw.below(len(templates))
        template = templates[template_idx]
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
            question = template.text.format(a=pair[0].text, b=pair[1].text)
            rows.append(row(template_idx, template, question, right.text, meta))
    return numbered(task, split, rows)


def _of_word(prefix: str, word: Word) -> JsonObject:
    return {
        f"{prefix}word_length": word.size,
        f"{prefix}pos": word.pos,
        f"{prefix}len": len(word.text),
    }


def _is_within_its_letter(template: Template, a: Word, b: Word) -> bool:
    """Whether both words begin with the last letter: which is closer to it depends on whether its
    start or end is meant."""
    return (
        template.type == "closer_to_letter"
        and template.kind == "more"
        and a.text[0] == b.text[0] == ALPHABET[-1]
    )
