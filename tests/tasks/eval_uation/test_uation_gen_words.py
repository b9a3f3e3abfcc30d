"""eval-ua-tion-gen: second solvers agree with numerals and with all answers about letters, words and categories."""

import math
import random
import re
from collections import Counter
from itertools import combinations, pairwise, permutations

import pytest

from miron_jax.tasks.generators.eval_uation_gen import odd_words, pairs, places
from miron_jax.tasks.generators.eval_uation_gen.numerals import CASES, GENDERS, LAST, cardinal, ordinal
from miron_jax.tasks.generators.eval_uation_gen.words import ALPHABET, alphabet_key, categories, sentences, words
from tests.support.uation_gen_rows import ROWS, items, meta

# ---------------------------------------------------------------------------------------------------- words and numerals


def test_words() -> None:
    assert ALPHABET == "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя"
    every = [*words("train"), *words("fewshot")]
    assert len(every) == len({word.text for word in every}) == 600
    assert all(re.fullmatch(f"[{ALPHABET}]{{3,}}", word.text) for word in every)
    cells = Counter((word.pos, word.size) for word in every)
    assert len(cells) == 12
    assert set(cells.values()) == {50}
    for letter in "ґєії":
        assert sum(letter in word.text for word in every) >= 12


def test_sentences_and_categories() -> None:
    every = [*sentences("train"), *sentences("fewshot")]
    assert len(every) == len(set(every)) == 80
    for sentence in every:
        tokens = sentence.split(" ")
        assert 5 <= len(tokens) <= 25
        assert all(re.fullmatch(f"[{ALPHABET}{ALPHABET.upper()}]+[,.!?:;]?", token) for token in tokens), sentence
        bare = [token.rstrip(",.!?:;").casefold() for token in tokens]
        assert len(set(bare)) == len(bare), sentence
    groups = [{*a.words, *b.words} for a, b in zip(categories("train"), categories("fewshot"), strict=True)]
    assert len(groups) >= 16
    assert all(len(group) >= 20 for group in groups)
    assert not any(a & b for a, b in combinations(groups, 2))
    assert all(re.fullmatch(f"[{ALPHABET}]{{3,}}", word) for group in groups for word in group)


# The specification's table: nominative of all genders, then the other cases of the feminine and the neuter.
BY_HAND = {
    1: ("перший", "перша", "перше", "першої", "першій", "першу", "першою", "першому"),
    2: ("другий", "друга", "друге", "другої", "другій", "другу", "другою", "другому"),
    3: ("третій", "третя", "третє", "третьої", "третій", "третю", "третьою", "третьому"),
    4: ("четвертий", "четверта", "четверте", "четвертої", "четвертій", "четверту", "четвертою", "четвертому"),
    5: ("п'ятий", "п'ята", "п'яте", "п'ятої", "п'ятій", "п'яту", "п'ятою", "п'ятому"),
    7: ("сьомий", "сьома", "сьоме", "сьомої", "сьомій", "сьому", "сьомою", "сьомому"),
    8: ("восьмий", "восьма", "восьме", "восьмої", "восьмій", "восьму", "восьмою", "восьмому"),
    11: (
        "одинадцятий", "одинадцята", "одинадцяте", "одинадцятої", "одинадцятій", "одинадцяту", "одинадцятою",
        "одинадцятому",
    ),
    23: (
        "двадцять третій", "двадцять третя", "двадцять третє", "двадцять третьої", "двадцять третій", "двадцять третю",
        "двадцять третьою", "двадцять третьому",
    ),
    40: ("сороковий", "сорокова", "сорокове", "сорокової", "сороковій", "сорокову", "сороковою", "сороковому"),
    90: (
        "дев'яностий", "дев'яноста", "дев'яносте", "дев'яностої", "дев'яностій", "дев'яносту", "дев'яностою",
        "дев'яностому",
    ),
    LAST: ("останній", "остання", "останнє", "останньої", "останній", "останню", "останньою", "останньому"),
}  # fmt: skip
SHAPES = (
    ("m", "nom"),
    ("f", "nom"),
    ("n", "nom"),
    ("f", "gen"),
    ("f", "dat"),
    ("f", "acc"),
    ("f", "ins"),
    ("n", "loc"),
)


def test_numerals_by_hand() -> None:
    for n, expected in BY_HAND.items():
        assert tuple(ordinal(n, gender, case) for gender, case in SHAPES) == expected  # pyright: ignore[reportArgumentType]
    assert [ordinal(3, "m", case) for case in CASES] == [
        "третій",
        "третього",
        "третьому",
        "третій",
        "третім",
        "третьому",
    ]
    assert [ordinal(5, "n", case) for case in CASES] == ["п'яте", "п'ятого", "п'ятому", "п'яте", "п'ятим", "п'ятому"]
    teens = (
        "одинадцять дванадцять тринадцять чотирнадцять п'ятнадцять шістнадцять сімнадцять вісімнадцять дев'ятнадцять"
    )
    units = "один два три чотири п'ять шість сім вісім дев'ять десять"
    assert [cardinal(n) for n in range(1, 20)] == [*units.split(), *teens.split()]
    assert [cardinal(n) for n in (20, 21, 42, 55, 90, 99)] == [
        "двадцять", "двадцять один", "сорок два", "п'ятдесят п'ять", "дев'яносто", "дев'яносто дев'ять",
    ]  # fmt: skip


MASCULINE = (
    "перший", "другий", "третій", "четвертий", "п'ятий", "шостий", "сьомий", "восьмий", "дев'ятий", "десятий",
    "одинадцятий", "дванадцятий", "тринадцятий", "чотирнадцятий", "п'ятнадцятий", "шістнадцятий", "сімнадцятий",
    "вісімнадцятий", "дев'ятнадцятий", "двадцятий", "тридцятий", "сороковий", "п'ятдесятий", "шістдесятий",
    "сімдесятий", "вісімдесятий", "дев'яностий", "останній",
)  # fmt: skip
NUMBERS = (*range(1, 21), *range(30, 100, 10), LAST)
COUNTED = ["двадцять", "тридцять", "сорок", "п'ятдесят", "шістдесят", "сімдесят", "вісімдесят", "дев'яносто"]


def declined(nominative: str, gender: str, case: str) -> str:
    """The declension of a grammar: -ий like новий, -ій like синій."""
    stem, soft = nominative[:-2], nominative.endswith("ій")
    one = {
        ("m", "nom"): "ий", ("m", "acc"): "ий", ("m", "gen"): "ого", ("m", "dat"): "ому", ("m", "ins"): "им",
        ("m", "loc"): "ому", ("f", "nom"): "а", ("f", "acc"): "у", ("f", "gen"): "ої", ("f", "dat"): "ій",
        ("f", "ins"): "ою", ("f", "loc"): "ій", ("n", "nom"): "е", ("n", "acc"): "е",
    }  # fmt: skip
    ending = one.get((gender, case)) or one["m", case]
    softened = {"и": "і", "о": "ьо", "а": "я", "у": "ю", "е": "є"}
    return stem + (softened.get(ending[0], ending[0]) + ending[1:] if soft else ending)


def test_every_numeral_equals_its_declension() -> None:
    names = dict(zip(NUMBERS, MASCULINE, strict=True))
    for n in (*range(1, 100), LAST):
        counted = f"{COUNTED[n // 10 - 2]} " if n > 20 and n % 10 else ""
        for gender in GENDERS:
            for case in CASES:
                assert ordinal(n, gender, case) == counted + declined(names[n % 10 if counted else n], gender, case)


def test_numerals_are_one_for_each_number() -> None:
    for gender in GENDERS:
        for case in CASES:
            forms = [ordinal(n, gender, case) for n in (*range(1, 100), LAST)]
            assert len(set(forms)) == 100
            # Only the last word of a compound is inflected.
            assert all(forms[n - 1].split()[0] == cardinal(n).split()[0] for n in range(21, 100) if n % 10)
    assert len({cardinal(n) for n in range(1, 100)}) == 99
    for n in (0, 100, -2):
        with pytest.raises(ValueError, match="no numeral"):
            ordinal(n, "f", "nom")
    with pytest.raises(ValueError, match="no numeral"):
        cardinal(LAST)


def test_every_gender_and_case_is_used() -> None:
    forms = [template.form for template in (*places.LETTERS, *places.WORDS) if template.form]
    assert {gender for gender, _ in forms} == set(GENDERS)
    assert {case for _, case in forms} == set(CASES)
    for templates in (places.LETTERS, places.WORDS, pairs.ALPHABETICAL, pairs.LENGTH, odd_words.ODD, odd_words.ALL):
        assert 4 <= len(templates) <= 8


# ------------------------------------------------------------------------------------------------------------ LOW and WIS


NUMBER_OF = {
    form: n
    for n in (*range(1, 100), LAST)
    for form in ({ordinal(n, g, c) for g in GENDERS for c in CASES} | ({cardinal(n)} if n > 0 else set()))
}


def by_numeral(text: str) -> int:
    """The position that a question names: its one numeral, of two words or of one."""
    single = re.findall(r"[\w']+", text)
    two = [" ".join(pair) for pair in pairwise(single)]
    [n] = [NUMBER_OF[w] for w in two if w in NUMBER_OF] or [NUMBER_OF[w] for w in single if w in NUMBER_OF]
    return n


@pytest.mark.parametrize("name", ["lmes_low", "lmes_wis"])
def test_answers_are_at_the_named_position(name: str) -> None:
    for fields in ROWS[name]["train"]:
        before, it, after = re.fullmatch("(.*)«(.*)»(.*)", fields["question"]).groups()  # pyright: ignore[reportOptionalMemberAccess]
        units = list(it) if name == "lmes_low" else [token.strip(",.!?:;") for token in it.split()]
        n = by_numeral(f"{before} {after}".lower())
        assert n == meta(fields, "needle")
        assert units[n - 1 if n > 0 else -1] == fields["correctAnswer"], fields["question"]
        length = meta(fields, "len") or meta(fields, "len_haystack")
        assert length == len(units)  # B.7: a stress mark was counted
        assert meta(fields, "from_end") == (0 if n == LAST else length - n)
        if name == "lmes_low":
            assert meta(fields, "n_distinct") == len(set(it))
            assert meta(fields, "n_occurrences_of_gold") == it.count(fields["correctAnswer"])


def test_every_position_is_asked_for() -> None:
    """B.7: even positions never occurred, nor the last one by its number; 95 words and 45 sentences in all."""
    for name, size in (("lmes_low", "len"), ("lmes_wis", "len_haystack")):
        rows = ROWS[name]["train"]
        positions: dict[int, list[int]] = {}
        for row in rows:
            positions.setdefault(meta(row, size), []).append(meta(row, size) - meta(row, "from_end"))
        for length, of_length in positions.items():
            assert len(of_length) <= 100 or set(of_length) == set(range(1, length + 1))
        by_name = Counter(meta(row, "needle") == LAST for row in rows if not meta(row, "from_end"))
        assert abs(by_name[True] - by_name[False]) < 4 * math.sqrt(by_name.total())
    a_word = Counter(meta(row, "word_raw") for row in ROWS["lmes_low"]["train"])
    assert len(a_word) >= 500
    assert max(a_word.values()) <= 4
    a_sentence = Counter(item.cluster for item in items("lmes_wis"))
    assert len(a_sentence) >= 60
    assert max(a_sentence.values()) <= 2000 / 60
    cells = Counter((meta(row, "word_length"), meta(row, "pos")) for row in ROWS["lmes_low"]["train"])
    assert max(cells.values()) - min(cells.values()) <= 10


# ------------------------------------------------------------------------------------------------------------------ pairs


def before_in_alphabet(a: str, b: str) -> bool:
    """By hand: the first letters that differ, looked up."""
    for x, y in zip(a, b, strict=False):
        if x != y:
            return ALPHABET.index(x) < ALPHABET.index(y)
    return len(a) < len(b)


TO_LATIN_ORDER = str.maketrans({letter: chr(0x4E00 + place) for place, letter in enumerate(ALPHABET)})


def test_alphabetical_order_on_10000_pairs() -> None:
    every = [word.text for word in (*words("train"), *words("fewshot"))]
    stream = random.Random(0)
    for _ in range(10_000):
        a, b = stream.sample(every, 2)
        expected = before_in_alphabet(a, b)
        assert (alphabet_key(a) < alphabet_key(b)) is expected
        assert (a.translate(TO_LATIN_ORDER) < b.translate(TO_LATIN_ORDER)) is expected
    # Python's order, and collations that take ї for an і with an accent, are wrong about these.
    assert sorted(["їжак", "іспит", "ґанок", "гуска", "єнот", "жито"], key=alphabet_key) == [
        "гуска", "ґанок", "єнот", "жито", "іспит", "їжак",
    ]  # fmt: skip
    assert alphabet_key("п'ята") == alphabet_key("пята")  # an apostrophe does not count


def test_which_word_is_first_or_longer() -> None:
    for fields in ROWS["lmes_wordalpha"]["train"]:
        a, b = meta(fields, "option_0"), meta(fields, "option_1")
        right = a if before_in_alphabet(a, b) is (meta(fields, "kind") == "less") else b
        assert fields["correctAnswer"] == right
        assert not a.startswith(b)
        assert not b.startswith(a)
        assert meta(fields, "num_shared_characters") == next(i for i in range(99) if a[i] != b[i])
    for fields in ROWS["lmes_wordlength"]["train"]:
        a, b = sorted((meta(fields, "option_0"), meta(fields, "option_1")), key=len)
        assert len(a) < len(b)
        assert fields["correctAnswer"] == (a if meta(fields, "kind") == "less" else b)
        assert meta(fields, "len_difference") == len(b) - len(a)


@pytest.mark.parametrize(
    ("name", "strata"), [("lmes_wordalpha", pairs.ORDER_STRATA), ("lmes_wordlength", pairs.LENGTH_STRATA)]
)
def test_words_of_a_pair_are_described_under_the_published_names(name: str, strata: tuple[str, ...]) -> None:
    of = {word.text: word for word in words("train")}
    for row in ROWS[name]["train"]:
        for option, prefix in ((0, "t1_meta_"), (1, "t2_meta_")):
            word = of[meta(row, f"option_{option}")]
            described = tuple(meta(row, prefix + field) for field in ("word_length", "pos", "len"))
            assert described == (word.size, word.pos, len(word.text))
    assert dict(items(name)[0].traits).keys() >= {"t1_meta_pos", "t2_meta_pos", "t1_meta_word_length"}


def test_no_two_words_of_the_last_letter_are_asked_which_is_closer_to_it() -> None:
    """The answer would depend on whether the start or the end of the letter is meant."""
    words_of_last = [word for word in words("train") if word.text[0] == ALPHABET[-1]]
    [template] = [t for t in pairs.ALPHABETICAL if (t.type, t.kind) == ("closer_to_letter", "more")]
    assert pairs._is_within_its_letter(template, *words_of_last[:2])
    rows = [
        row
        for row in ROWS["lmes_wordalpha"]["train"]
        if (meta(row, "type"), meta(row, "kind")) == (template.type, template.kind)
    ]
    assert rows
    assert not [row for row in rows if meta(row, "option_0")[0] == meta(row, "option_1")[0] == ALPHABET[-1]]


def test_every_published_type_of_question_is_asked() -> None:
    """The types that the data set's card names, each from both ends."""
    types_and_kinds = {(meta(row, "type"), meta(row, "kind")) for row in ROWS["lmes_wordalpha"]["train"]}
    types = ("ordinal", "further", "closer_to_side", "closer_to_letter")
    assert types_and_kinds == {(name, kind) for name in types for kind in ("less", "more")}


@pytest.mark.parametrize(
    ("name", "strata"), [("lmes_wordalpha", pairs.ORDER_STRATA), ("lmes_wordlength", pairs.LENGTH_STRATA)]
)
def test_strata_are_even_and_what_they_say(name: str, strata: tuple[str, ...]) -> None:
    rows, tokens = ROWS[name]["train"], {word.text: word.num_tokens for word in words("train")}
    assert Counter(meta(row, "stratum") for row in rows) == dict.fromkeys(strata, 2000 // len(strata))
    for row in rows:
        a, b = sorted((meta(row, "option_0"), meta(row, "option_1")), key=len)
        match meta(row, "stratum"):
            case "і ї є ґ":
                assert (a < b) != before_in_alphabet(a, b)
            case "fewer_tokens":
                assert tokens[b] < tokens[a]
            case stratum:
                number = meta(row, "num_shared_characters") if name == "lmes_wordalpha" else meta(row, "len_difference")
                assert stratum.endswith(f"_{number}") or (stratum.endswith("3+") and number >= 3)


@pytest.mark.parametrize("name", ["lmes_wordalpha", "lmes_wordlength"])
def test_every_pair_is_asked_in_both_orders_once(name: str) -> None:
    train = items(name)
    assert set(Counter(item.swapped for item in train).values()) == {2}
    assert len({item.cluster for item in train}) == 1000
    for a, b in zip(train[::2], train[1::2], strict=True):
        assert a.options == b.options[::-1]
        assert a.answer == b.answer
    assert Counter(item.gold for item in train) == {0: 1000, 1: 1000}
    for row, item in zip(ROWS[name]["train"], train, strict=True):
        assert (meta(row, "label"), meta(row, "reversed")) == (item.gold, bool(item.row % 2))


# -------------------------------------------------------------------------------------------------------------- categories


def test_every_pair_of_categories_comes_equally_often() -> None:
    """B.7: the cut at a round number dropped the last category as the main one."""
    names = [category.name for category in categories("train")]
    odd = Counter((meta(row, "cat_name_main"), meta(row, "cat_name_other")) for row in ROWS["lmes_catsmc"]["train"])
    assert odd == dict.fromkeys(permutations(names, 2), 9)
    whole = Counter(meta(row, "cat_name_main") for row in ROWS["lmes_catsbin"]["train"])
    assert set(whole) == set(names)
    assert len(set(whole.values())) == 1


def test_positions_of_the_odd_word_are_uniform() -> None:
    """B.7: it was always the last one."""
    of = {word: category.name for category in categories("train") for word in category.words}
    odd_words_of: Counter[tuple[str, str | None]] = Counter()
    for name in ("lmes_catsmc", "lmes_catsbin"):
        positions: Counter[int] = Counter()
        for row in ROWS[name]["train"]:
            listed, main, odd = meta(row, "all_options"), meta(row, "cat_name_main"), meta(row, "other_word")
            strangers = [i for i, word in enumerate(listed) if of[word] != main]
            assert len(listed) == len(set(listed)) == 5
            assert [listed[i] for i in strangers] == ([] if odd is None else [odd])
            positions.update(strangers)
            assert name == "lmes_catsbin" or meta(row, "label") == strangers[0]
            odd_words_of[name, odd] += 1
            assert ", ".join(listed) in row["question"]
        even = sum(positions.values()) / 5
        assert all(abs(count - even) < 4 * math.sqrt(even) for count in positions.values())
        assert len(positions) == 5
        assert len([word for task, word in odd_words_of if task == name and word]) > 0.95 * len(of)


def test_whether_all_belong() -> None:
    rows = ROWS["lmes_catsbin"]["train"]
    for row in rows:
        assert row["correctAnswer"] is ((meta(row, "other_word") is None) == (meta(row, "kind") == "direct"))
        assert f"«{meta(row, 'cat_name_main')}»" in row["question"]
    assert abs(sum(row["correctAnswer"] for row in rows) - len(rows) / 2) <= 5
    by_template = Counter((meta(row, "template_n"), row["correctAnswer"]) for row in rows)
    assert max(by_template.values()) - min(by_template.values()) <= 4
    lists = [frozenset(meta(row, "all_options")) for row in rows]
    assert len(set(lists)) == len(lists)  # B.7: 40 different lists for 200 rows
