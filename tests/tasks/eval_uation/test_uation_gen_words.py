"""eval-ua-tion-gen: second solvers agree with numerals and with all answers about letters, words and categories."""

import math
import re
from collections import Counter
from itertools import pairwise

import pytest

from miron_jax.tasks.generators.eval_uation_gen.language import Language
from tests.support.uation_gen_rows import ROWS, meta
from tools.eval_uation_gen.numerals import CASES, GENDERS, LAST, cardinal, ordinal

# ---------------------------------------------------------------------------------------------------- ----------- numerals


UK = Language()
ALPHABET = UK.settings["alphabet"]

# The specification's table: nominative of all genders, then the other cases of the feminine and the neuter.


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
    teens = "один два три чотири п'ять шість сім вісім дев'ять десять одинадцять дванадцять тринадцять чотирнадцять"
    assert (
        " ".join(map(cardinal, range(1, 20)))
        == f"{teens} п'ятнадцять шістнадцять сімнадцять вісімнадцять дев'ятнадцять"
    )
    assert [cardinal(n) for n in (20, 42, 55, 99)] == ["двадцять", "сорок два", "п'ятдесят п'ять", "дев'яносто дев'ять"]
    assert ordinal(23, "f", "ins") == "двадцять третьою"
    names = dict(zip(NUMBERS, MASCULINE, strict=True))
    for n in (*range(1, 100), LAST):
        counted = f"{COUNTED[n // 10 - 2]} " if n > 20 and n % 10 else ""
        for gender in GENDERS:
            for case in CASES:
                assert ordinal(n, gender, case) == counted + declined(names[n % 10 if counted else n], gender, case)
    for number in (0, 100, -2):
        with pytest.raises(ValueError, match="no numeral"):
            ordinal(number, "f", "nom")
    with pytest.raises(ValueError, match="no numeral"):
        cardinal(LAST)


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


# ------------------------------------------------------------------------------------------------------------------ pairs


def before_in_alphabet(a: str, b: str) -> bool:
    """By hand: the first letters that differ, looked up."""
    for x, y in zip(a, b, strict=False):
        if x != y:
            return ALPHABET.index(x) < ALPHABET.index(y)
    return len(a) < len(b)


def test_which_word_is_first_or_longer() -> None:
    assert ALPHABET == "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя"
    # Python's order, and collations that take ї for an і with an accent, are wrong about these.
    in_order = ["гуска", "ґанок", "єнот", "жито", "іспит", "їжак"]
    assert sorted(in_order, key=UK.alphabet_key) == in_order
    assert UK.alphabet_key("п'ята") == UK.alphabet_key("пята")  # an apostrophe does not count
    for fields in ROWS["lmes_wordalpha"]["train"]:
        a, b = meta(fields, "option_0"), meta(fields, "option_1")
        right = a if before_in_alphabet(a, b) is (meta(fields, "kind") == "less") else b
        assert fields["correctAnswer"] == right
        # Whether the start or the end of the last letter is meant would decide between two of its words.
        assert {a[0], b[0], meta(fields, "type")} != {ALPHABET[-1], "closer_to_letter"} or meta(
            fields, "kind"
        ) == "less"
        assert meta(fields, "num_shared_characters") == next(i for i in range(99) if a[i] != b[i])
    for fields in ROWS["lmes_wordlength"]["train"]:
        a, b = sorted((meta(fields, "option_0"), meta(fields, "option_1")), key=len)
        assert len(a) < len(b)
        assert fields["correctAnswer"] == (a if meta(fields, "kind") == "less" else b)
        assert meta(fields, "len_difference") == len(b) - len(a)


# -------------------------------------------------------------------------------------------------------------- categories


@pytest.mark.parametrize("name", ["lmes_catsmc", "lmes_catsbin"])
def test_the_odd_word_is_of_another_category_and_stands_everywhere(name: str) -> None:
    """B.7: it was always the last one, and 200 rows had 40 different lists."""
    of = {word: category.name for category in UK.categories("train") for word in category.words}
    positions, lists = Counter[int](), set()
    for row in ROWS[name]["train"]:
        listed, main, odd = meta(row, "all_options"), meta(row, "cat_name_main"), meta(row, "other_word")
        strangers = [i for i, word in enumerate(listed) if of[word] != main]
        assert len(listed) == len(set(listed)) == 5
        assert [listed[i] for i in strangers] == ([] if odd is None else [odd])
        assert ", ".join(listed) in row["question"]
        if name == "lmes_catsmc":
            assert (meta(row, "label"), row["correctAnswer"]) == (strangers[0], odd)
        else:
            assert row["correctAnswer"] is ((odd is None) == (meta(row, "kind") == "direct"))
            assert f"«{main}»" in row["question"]
        positions.update(strangers)
        lists.add(frozenset(listed))
    even = positions.total() / 5
    assert all(abs(positions[i] - even) < 4 * math.sqrt(even) for i in range(5))
    assert name == "lmes_catsmc" or len(lists) == len(ROWS[name]["train"])
