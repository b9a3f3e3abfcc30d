"""CATS-MC and CATS-BIN: the word that belongs to no group, and whether there is one.

Arrives: categories, how many rows.  Leaves: rows.  It deliberately does not know models.

Every ordered pair of categories comes equally often; words are drawn without replacement; the odd word stands anywhere.
"""

from itertools import permutations
from typing import Any

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.eval_uation_gen.rows import VERSION, Template, numbered, row
from miron_jax.tasks.generators.eval_uation_gen.words import Category, categories

NUM_WORDS = 5
ODD = (
    Template("Яке слово зайве серед цих: {words}?"),
    Template("Чотири з п'яти слів належать до однієї групи. Яке не належить: {words}?"),
    Template("Знайди слово, яке не пасує до решти: {words}."),
    Template("Усі слова, крім одного, об'єднує спільна назва. Яке слово є винятком: {words}?"),
)
ALL = (
    Template("Чи всі ці слова належать до групи «{name}»: {words}?", "direct"),
    Template("Ось перелік: {words}. Чи пасує назва «{name}» до всіх слів у ньому?", "direct"),
    Template("Чи є серед цих слів таке, що не належить до групи «{name}»: {words}?", "reversed"),
    Template("Ось перелік: {words}. Чи трапилося в ньому слово не з групи «{name}»?", "reversed"),
)


def odd_word(split: str, count: int) -> list[dict[str, Any]]:
    """CATS-MC; at least `count` rows, as many of every ordered pair of categories."""
    found: list[dict[str, Any]] = []
    for number, (main, other, times) in enumerate(_pairs(split, count)):
        draw = Draw("eval-ua-tion-gen", VERSION, "catsmc", split, number)
        members, odd = _even_in_length(draw, main, other) if split == "train" else _drawn(draw, main, other)
        shown = draw.shuffled([*members, odd])
        place = (number + times) % len(ODD)
        question = ODD[place].text.format(words=", ".join(shown))
        meta = _meta(main, members, shown, other, odd) | {"label": shown.index(odd)}
        found.append(row(place, ODD[place], question, odd, meta))
    return numbered("catsmc", split, found)


def all_words(split: str, count: int) -> list[dict[str, Any]]:
    """CATS-BIN; "так" half the time, whether the list is whole or the question turned round."""
    found: list[dict[str, Any]] = []
    asked: set[frozenset[str]] = set()
    for number, (main, other, times) in enumerate(_pairs(split, count)):
        draw = Draw("eval-ua-tion-gen", VERSION, "catsbin", split, number)
        place, is_whole = (number + times) % len(ALL), bool((number + times) // len(ALL) % 2)
        shown, members, odd = _list(draw, main, other, is_whole)
        while frozenset(shown) in asked:
            shown, members, odd = _list(draw, main, other, is_whole)
        asked.add(frozenset(shown))
        question = ALL[place].text.format(name=main.name, words=", ".join(shown))
        meta = _meta(main, members, shown, *((None, None) if is_whole else (other, odd)))
        answer = is_whole == (ALL[place].kind == "direct")
        found.append(row(place, ALL[place], question, answer, meta))
    return numbered("catsbin", split, found)


def _even_in_length(draw: Draw, main: Category, other: Category) -> tuple[list[str], str]:
    """Words of both categories whose lengths tell nothing: five of the main one are drawn, of lengths both have, and any
    of them gives way to a word of the other that is as long, and ends alike where there is one."""
    lengths = {len(word) for word in other.words}
    members = draw.sample([word for word in main.words if len(word) in lengths], NUM_WORDS)
    gone = members.pop(draw.below(NUM_WORDS))
    as_long = [word for word in other.words if len(word) == len(gone)]
    return members, draw.choice([word for word in as_long if word[-1] == gone[-1]] or as_long)


def _drawn(draw: Draw, main: Category, other: Category) -> tuple[list[str], str]:
    return draw.sample(main.words, NUM_WORDS - 1), draw.choice(other.words)


def _list(draw: Draw, main: Category, other: Category, is_whole: bool) -> tuple[list[str], list[str], str]:
    """The words as shown, those of the main category, and one of the other, which is shown unless the list is whole."""
    members, odd = draw.sample(main.words, NUM_WORDS if is_whole else NUM_WORDS - 1), draw.choice(other.words)
    return draw.shuffled(members if is_whole else [*members, odd]), members, odd


def _pairs(split: str, count: int) -> list[tuple[Category, Category, int]]:
    """Ordered pairs of categories, each with how often it came before; in a drawn order."""
    pairs = list(permutations(categories(split), 2))
    rounds = -(-count // len(pairs)) if split != "fewshot" else 1
    drawn = [
        (main, other, times)
        for times in range(rounds)
        for main, other in Draw("eval-ua-tion-gen", VERSION, "pairs", split, times).shuffled(pairs)
    ]
    return drawn if split != "fewshot" else drawn[:count]


def _meta(
    main: Category, members: list[str], shown: list[str], other: Category | None, odd: str | None
) -> dict[str, Any]:
    return {
        "all_options": shown,
        "main_cat_words": members,
        "cat_name_main": main.name,
        "cat_name_other": None if other is None else other.name,
        "other_word": odd,
    }
