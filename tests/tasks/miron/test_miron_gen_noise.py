"""Noise: every operator on a few words, the text that must not change, and the guarantees over many drawn items."""

import re
import unicodedata
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.miron_gen import logic, noise
from miron_jax.tasks.generators.miron_gen.draft import Draft
from miron_jax.tasks.generators.miron_gen.noise import MAX_EDITS, NoiseRules, Noisy, Operator, Turn, perturb

WORDS = {language: logic.words_of(language) for language in ("en", "ru")}
RULES = {"en": noise.ENGLISH, "ru": noise.RUSSIAN}
POOLS = {language: logic.pool(words) for language, words in WORDS.items()}


def fact(prefix: str, target: str = " 0", entity: str | None = None) -> Draft:
    return Draft(prefix, target, (" 1", " 2", " 3"), "fact/0", (("entity", entity),) if entity else ())


def reached(
    rules: NoiseRules, clean: Draft, operator: Operator, num_edits: int = 1, pool: tuple[str, ...] = ()
) -> set[str]:
    """The prefixes of 400 draws, which are all possible ones for these short texts."""
    turn = Turn(operator, num_edits)
    drawn = (perturb(Stream("reached", i), clean, rules, pool, turn) for i in range(400))
    return {noisy.prefix for noisy in drawn if noisy is not None}


@pytest.mark.parametrize(
    ("language", "operator", "prefix", "expected"),
    [
        ("en", "swap", "bell is", {"ebll is", "blel is"}),  # not the equal letters
        ("en", "drop", "cat is", {"at is", "ct is", "ca is"}),
        ("en", "double", "Cat is", {"Ccat is", "Caat is", "Catt is"}),
        ("en", "keyboard", "Sum is", None),
        ("en", "homoglyph", "Dog is", {"Dоg is"}),
        ("en", "case", "Sun is", {"sun is", "SUn is", "SuN is"}),
        ("en", "extra_space", "a bird is", {"a bird  is", "a bi rd is"}),
        ("en", "missing_space", "the big cat is", {"thebig cat is", "the bigcat is", "the big catis"}),
        ("en", "punctuation", "Yes, look: it is", {"Yes look: it is", "Yes, look it is"}),
        ("en", "missing_space", "take 2 plums now", {"take 2 plumsnow"}),  # no word grows together with a frozen one
        ("en", "missing_space", "he is not here now", {"heis not here now", "he is not herenow"}),
        ("ru", "swap", "дом тут", {"одм тут", "дмо тут"}),
        ("ru", "homoglyph", "Мох тут", {"Mох тут", "Мoх тут", "Моx тут"}),
        ("ru", "yo", "Ёж пьёт тут", {"Ёж пьет тут"}),  # "Ёж" is too short a word
        ("ru", "yo", "Ёжик тут", {"Ежик тут"}),
        ("ru", "tsya", "Он учится петь", {"Он учиться петь"}),
        ("ru", "tsya", "Он хочет учиться тут", {"Он хочет учится тут"}),
        ("ru", "tsya", "Он поёт тут", set()),
    ],
)
def test_operators_by_hand(language: str, operator: Operator, prefix: str, expected: set[str] | None):
    if expected is None:  # s: w e a d z x; u: y i j h; m: n j k
        expected = {f"{key}um is" for key in "WEADZX"} | {f"S{key}m is" for key in "yihj"}
        expected |= {f"Su{key} is" for key in "njk"}
    assert reached(RULES[language], fact(prefix), operator) == expected


@pytest.mark.parametrize(
    ("language", "prefix"),
    [
        ("en", "2, 5, 8, 11,"),  # "2,5" or "2 5" would be other numbers
        ("en", "IV, VI, VIII, X,"),
        ("en", "twenty, five, ten,"),  # "twenty five"
        ("en", "a, c, e, g,"),
        ("en", "not of"),
        ("ru", "не до"),
        ("ru", "трёх, двух,"),
    ],
)
def test_frozen_words_and_what_is_between_them(language: str, prefix: str):
    assert not any(reached(RULES[language], fact(prefix), operator) for operator in RULES[language].operators)


def test_edits_come_together_and_stay_apart():
    # two doubled letters of "abcd" with one between them: a and c, a and d, b and d
    assert reached(noise.ENGLISH, fact("abcd x"), "double", 2) == {"aabccd x", "aabcdd x", "abbcdd x"}
    assert reached(noise.ENGLISH, fact("abcd x"), "double", 3) == set()
    keys = {letter: set(noise.neighbours(letter, RULES["ru"].keyboard)) for letter in "аЙё"}
    assert keys == {"а": {*"кевпсм"}, "Й": {*"ЦФ"}, "ё": set()}
    with pytest.raises(AssertionError, match="as the prefix has it"):
        reached(noise.ENGLISH, fact("It has", entity="Peru"), "drop")


def test_ends_of_the_entity_stay_from_two_edits_on():
    clean = fact("Peru has", entity="Peru")
    assert reached(noise.ENGLISH, clean, "drop") == {"eru has", "Pru has", "Peu has", "Per has"}
    assert reached(noise.ENGLISH, clean, "drop", 2) == set()  # e and r touch
    assert reached(noise.ENGLISH, fact("Chile has", entity="Chile"), "drop", 2) == {"Cie has"}  # not h, i nor i, l


def test_an_entity_that_could_be_another_is_not_left_so():
    # "Nigr" is one letter from Niger and three from Nigeria; "Iran" and "Iraq" differ only in their last letter
    clean = fact("Iran has", entity="Iran")
    assert reached(noise.ENGLISH, clean, "drop", pool=("Iran", "Iraq")) == {"ran has", "Ian has", "Irn has"}
    clean = fact("Niger has", entity="Niger")
    assert "Nigr has" in reached(noise.ENGLISH, clean, "drop", pool=("Niger", "Nigeria"))
    clean = fact("Austria has", entity="Austria")
    both = reached(noise.ENGLISH, clean, "drop", 3, ("Austria", "Australia"))
    assert all(OSA.distance(text.split()[0], "Australia") > 3 for text in both)


def test_no_edit_makes_a_pool_word_a_negation_or_the_answer():
    assert "not is" not in reached(noise.ENGLISH, fact("hot is"), "keyboard")
    assert "form is" not in reached(noise.ENGLISH, fact("from is"), "swap", pool=("form",))
    assert "nothing" not in " ".join(reached(noise.ENGLISH, fact("notthing is"), "drop"))
    assert reached(noise.ENGLISH, fact("cart is", " car"), "drop") == {"art is", "crt is", "cat is"}
    assert reached(noise.ENGLISH, fact("cat is", " caat"), "double") == {"ccat is", "catt is"}


def test_what_an_exact_copy_would_repeat_stays():
    clean = fact("Copy: lamp, kite. Copy: lamp,", " kite")
    for operator in noise.ENGLISH.operators:
        assert all("kite" in prefix for prefix in reached(noise.ENGLISH, clean, operator))
    assert reached(noise.RUSSIAN, fact("Семён выше Фёдора. Ниже всех", " Фёдор"), "yo") == set()


def drawn(language: str, key: int) -> Noisy:
    draws = (Stream("noise tests", language, key, attempt) for attempt in range(300))
    cleans = ((draw, logic.draft(draw, WORDS[language])) for draw in draws)
    noisy = (perturb(draw, clean, RULES[language], POOLS[language], None) for draw, clean in cleans if clean)
    return next(item for item in noisy if item)


@settings(max_examples=100, derandomize=True)
@given(language=st.sampled_from(["en", "ru"]), key=st.integers(0, 10**9))
def test_guarantees_of_every_drawn_item(language: str, key: int):
    check_noisy(drawn(language, key), RULES[language], POOLS[language])


def check_noisy(item: Noisy, rules: NoiseRules, pool: tuple[str, ...]):
    clean, noisy = item.clean.prefix, item.prefix
    assert noisy != clean
    assert noisy == noisy.rstrip()
    assert noisy.split(" ")[-1].endswith(clean.split(" ")[-1])
    assert unicodedata.is_normalized("NFC", noisy)
    assert re.findall(r"\d+", noisy) == re.findall(r"\d+", clean)
    # one edit is one step of OSA distance, a flipped or replaced letter too
    assert OSA.distance(noisy, clean) == item.num_edits
    assert 1 <= item.num_edits <= MAX_EDITS
    answer = item.clean.target.strip().casefold()
    assert noisy.casefold().count(answer) <= clean.casefold().count(answer)
    before, after = (Counter(re.findall(r"\w+", text)) for text in (clean, noisy))
    assert all(after[word] <= before[word] for word in pool)
    frozen_before, frozen_after = (
        sorted(w for word in words.elements() if (w := word.casefold()) in rules.frozen) for words in (before, after)
    )
    assert frozen_before == frozen_after
    if "space" not in item.operator and item.operator != "punctuation":  # words can be compared in pairs
        for word, spoilt in zip(re.findall(r"\w+", clean), re.findall(r"\w+", noisy), strict=True):
            if word in pool and word != spoilt:  # what was a word of the pool is nearest to it still
                first, second = sorted((OSA.distance(spoilt, other), other) for other in pool)[:2]
                assert first[1] == word
                assert first[0] < second[0]
