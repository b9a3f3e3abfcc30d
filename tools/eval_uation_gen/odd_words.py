"""CATS-MC and CATS-BIN: which word is not of the others' category, and whether there is one.

Arrives: categories, the number of rows.  Leaves: rows.  It deliberately does not know models.

Every ordered pair of categories comes equally often; words are drawn without replacement; positions
of the odd word are uniform.
"""

from itertools import permutations

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.draw import Stream
from tools.eval_uation_gen.rows import VERSION, Template, numbered, row
from tools.eval_uation_gen.words import Category, categories

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


def odd_word(split: str, count: int) -> list[JsonObject]:
    """CATS-MC; at least `count` rows, equally many of every ordered pair of categories."""
    rows: list[JsonObject] = []
    sample = _even_in_length if split == "train" else _sample
    for number, (main, other, times) in enumerate(_pairs(split, count)):
        draw = Stream("eval-ua-tion-gen", VERSION, "catsmc", split, number)
        members, odd = sample(draw, main, other)
        options = draw.shuffled([*members, odd])
        template_idx = (number + times) % len(ODD)
        question = ODD[template_idx].text.format(words=", ".join(options))
        meta = _meta(main, members, options, (other.name, odd)) | {"label": options.index(odd)}
        rows.append(row(template_idx, ODD[template_idx], question, odd, meta))
    return numbered("catsmc", split, rows)


def all_words(split: str, count: int) -> list[JsonObject]:
    """CATS-BIN; the answer is "так" half the time, for lists with and without an odd word and for
    both kinds of question."""
    rows: list[JsonObject] = []
    used: set[frozenset[str]] = set()
    for number, (main, other, times) in enumerate(_pairs(split, count)):
        draw = Stream("eval-ua-tion-gen", VERSION, "catsbin", split, number)
        template_idx = (number + times) % len(ALL)
        is_whole = bool((number + times) // len(ALL) % 2)
        listed, members, odd = _list(draw, main, other, is_whole)
        while frozenset(listed) in used:
            listed, members, odd = _list(draw, main, other, is_whole)
        used.add(frozenset(listed))
        question = ALL[template_idx].text.format(name=main.name, words=", ".join(listed))
        meta = _meta(main, members, listed, (None, None) if is_whole else (other.name, odd))
        answer = is_whole == (ALL[template_idx].kind == "direct")
        rows.append(row(template_idx, ALL[template_idx], question, answer, meta))
    return numbered("catsbin", split, rows)


def _even_in_length(draw: Stream, main: Category, other: Category) -> tuple[list[str], str]:
    """Four members and an odd word whose lengths reveal nothing: of five members, all as long as
    some word of the other category, one is replaced by a word of the other that is as long, with
    the same last letter if possible."""
    lengths = set(map(len, other.words))
    members = draw.sample([word for word in main.words if len(word) in lengths], NUM_WORDS)
    replaced = members.pop(draw.below(NUM_WORDS))
    as_long = [word for word in other.words if len(word) == len(replaced)]
    return members, draw.choice([word for word in as_long if word[-1] == replaced[-1]] or as_long)


def _sample(draw: Stream, main: Category, other: Category) -> tuple[list[str], str]:
    return draw.sample(main.words, NUM_WORDS - 1), draw.choice(other.words)


def _list(
    draw: Stream, main: Category, other: Category, is_whole: bool
) -> tuple[list[str], list[str], str]:
    """The list, its words of the main category, and a word of the other, which is in the list
    unless the list is whole."""
    members = draw.sample(main.words, NUM_WORDS - (not is_whole))
    odd = draw.choice(other.words)
    return draw.shuffled(members if is_whole else [*members, odd]), members, odd


def _pairs(split: str, count: int) -> list[tuple[Category, Category, int]]:
    """Ordered pairs of categories in a drawn order, each with the number of times that it came
    before."""
    pairs = list(permutations(categories(split), 2))
    rounds = -(-count // len(pairs))
    if split == "fewshot":
        rounds = 1
    pairs_and_times = []
    for times in range(rounds):
        draw = Stream("eval-ua-tion-gen", VERSION, "pairs", split, times)
        pairs_and_times += [(main, other, times) for main, other in draw.shuffled(pairs)]
    if split == "fewshot":
        return pairs_and_times[:count]
    return pairs_and_times


def _meta(
    main: Category, members: list[str], options: list[str], odd: tuple[str | None, str | None]
) -> JsonObject:
    """`odd`: the name of the other category and its word, if the list has one."""
    return {
        "all_options": options,
        "main_cat_words": members,
        "cat_name_main": main.name,
        "cat_name_other": odd[0],
        "other_word": odd[1],
    }
