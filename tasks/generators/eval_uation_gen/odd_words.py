"""CATS-MC and CATS-BIN: which word is not of the others' category, and whether there is one.

Arrives: a language, the number of rows.  Leaves: rows.  It deliberately does not know models.

Every ordered pair of categories comes equally often; words are drawn without replacement; positions
of the odd word are uniform.
"""

from itertools import permutations

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen.language import NUM_WORDS, Category, Language
from miron_jax.tasks.generators.eval_uation_gen.rows import numbered, row
from miron_jax.tasks.generators.eval_uation_gen.table import NAME, VERSION

_TRIES = 20  # lists that all came before: the categories have few other ones


def odd_word(language: Language, split: str, count: int) -> list[JsonObject]:
    """CATS-MC; at least `count` rows, equally many of every ordered pair of categories, if the
    words allow as many."""
    templates = language.templates("WhichWordWrongCatTask", ("words_list",))
    rows: list[JsonObject] = []
    used = set[str]()
    sample = _even_in_length if split == "train" else _sample
    for number, (main, other, turn) in enumerate(_pairs(language, split, count)):
        draw = Stream(NAME, VERSION, "catsmc", split, number)
        members, odd = sample(draw, main, other)
        options = draw.shuffled([*members, odd])
        template = templates[turn % len(templates)]
        question = template.text.format(words_list=", ".join(options))
        if question in used:
            continue  # of few words
        used.add(question)
        meta = _meta(main, members, options, (other.name, odd)) | {"label": options.index(odd)}
        rows.append(row(template, question, odd, meta))
    return numbered("catsmc", split, rows)


def all_words(language: Language, split: str, count: int) -> list[JsonObject]:
    """CATS-BIN; the answer is "так" half the time, for lists with and without an odd word and for
    both kinds of question."""
    templates = language.templates("DoAllWordsBelongToCatTask", ("words_list", "cat_name"))
    rows: list[JsonObject] = []
    used: set[frozenset[str]] = set()
    for number, (main, other, turn) in enumerate(_pairs(language, split, count)):
        draw = Stream(NAME, VERSION, "catsbin", split, number)
        template = templates[turn % len(templates)]
        is_whole = bool(turn // len(templates) % 2)
        for _ in range(_TRIES):
            listed, members, odd = _list(draw, main, other, is_whole)
            if frozenset(listed) not in used:
                break
        else:
            continue
        used.add(frozenset(listed))
        question = template.text.format(cat_name=main.name, words_list=", ".join(listed))
        meta = _meta(main, members, listed, (None, None) if is_whole else (other.name, odd))
        rows.append(row(template, question, is_whole != template.asks_odd, meta))
    return numbered("catsbin", split, rows)


def _even_in_length(draw: Stream, main: Category, other: Category) -> tuple[list[str], str]:
    """Four members and an odd word whose lengths reveal nothing: of five members, all as long as
    some word of the other category, one is replaced by a word of the other that is as long, with
    the same last letter if possible.  Where too few are as long, any words."""
    lengths = set(map(len, other.words))
    as_long = [word for word in main.words if len(word) in lengths]
    if len(as_long) < NUM_WORDS:
        return _sample(draw, main, other)
    members = draw.sample(as_long, NUM_WORDS)
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


def _pairs(language: Language, split: str, count: int) -> list[tuple[Category, Category, int]]:
    """Ordered pairs of categories, in rounds of a drawn order, each with its place in its round and
    the number of the round together: by turns of templates and answers."""
    pairs = list(permutations(language.categories(split), 2))
    rounds = -(-count // len(pairs))
    if split == "fewshot":
        rounds = 1
    pairs_and_turns = []
    for times in range(rounds):
        draw = Stream(NAME, VERSION, "pairs", split, times)
        for i, (main, other) in enumerate(draw.shuffled(pairs)):
            pairs_and_turns.append((main, other, i + times))
    if split == "fewshot":
        return pairs_and_turns[:count]
    return pairs_and_turns


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
