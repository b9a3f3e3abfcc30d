"""Logic items: each series has one continuation, a second solver agrees, and training shares none with the benchmark."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import permutations

import pytest

from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.miron_gen import logic
from miron_jax.tasks.generators.miron_gen.draft import Draft

# fmt: off
ROMAN = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X",
         "XI", "XII", "XIII", "XIV", "XV", "XVI", "XVII", "XVIII", "XIX", "XX"]
# fmt: on
WORDS = {language: logic.words_of(language) for language in ("en", "ru")}


@cache
def candidate(language: str, i: int, training: bool) -> Draft | None:
    return logic.draft(Stream("logic tests", language, i), WORDS[language], training)


@cache
def drafts(language: str, count: int, training: bool = False) -> tuple[Draft, ...]:
    return tuple(item for i in range(count) if (item := candidate(language, i, training)) is not None)


def family_of(item: Draft) -> str:
    return item.template.split("/")[0]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ((3, 10, 17, 24), {"arithmetic": 31, "second difference": 31}),
        ((90, 80, 70, 60), {"arithmetic": 50, "second difference": 50}),
        ((3, 6, 12, 24), {"geometric": 48}),
        ((16, 25, 36, 49), {"second difference": 64}),  # steps 9, 11, 13 and then 15
        ((1, 2, 4), {"geometric": 8, "second difference": 7}),  # steps 1, 2 and then 3
        ((2, 4, 6), {"arithmetic": 8, "second difference": 8, "fibonacci": 10}),
        ((3, 4, 7, 11), {"fibonacci": 18}),
        ((5, 9, 5, 9), {"period 2": 5}),
        ((5, 9, 5), {"period 2": 9, "second difference": -7}),  # steps 4, -4 and then -12
        ((1, 2, 4, 1), {"period 3": 2}),
        ((7, 1, 2, 7, 1), {"period 3": 2}),
        ((1, 50, 2, 40, 3, 30), {"interleaved arithmetic": 4}),
        ((1, 50, 2, 40, 3, 30, 4), {"interleaved arithmetic": 20}),
        ((1, 50, 2, 40, 3), {}),  # five terms are too few to read two series into them
        ((1, 81, 2, 27, 4, 9), {"interleaved geometric": 8}),
        ((2, 3, 11, 5), {}),
        ((24, 12, 6, 3), {"geometric": 1.5}),  # no whole number
    ],
)
def test_rules_by_hand(terms: tuple[int, ...], expected: dict[str, int]):
    assert logic.continuations(terms) == expected
    values = set(expected.values()) - {1.5}
    assert logic.only_next(terms) == (values.pop() if len(values) == 1 else None)


def test_months_of_31_days_are_a_rival_cycle():
    long_months = WORDS["en"].rivals[0]
    assert logic.round_next(("March", "May", "July"), long_months) == "August"  # every second month says September
    assert logic.round_next(("October", "December"), long_months) == "January"  # over the end of the year
    assert logic.round_next(("March", "April"), long_months) is None
    assert logic.round_next(("January", "March", "August"), long_months) is None  # steps 1 and 3
    prefixes = [item.prefix for item in drafts("en", 3000) if family_of(item) == "months"]
    assert not any(prefix.endswith("January, March, May, July,") for prefix in prefixes)
    assert any("January, March, May, July, September," in prefix for prefix in prefixes)


# Solvers that share no code with the generator; "family/0" is the bare series in every family of series.


def _along(listed: Sequence[str]) -> Callable[[list[str]], str]:
    def solve(terms: list[str]) -> str:
        a, b = (listed.index(term) for term in terms[-2:])
        return listed[(2 * b - a) % len(listed)]

    return solve


def _next_number_word(language: str) -> Callable[[list[str]], str]:
    words = WORDS[language]
    values = {word: i for i, word in enumerate(words.numbers, 1)}
    values |= {word: 10 * i for i, word in enumerate(words.tens, 1)}
    names = {value: word for word, value in values.items()}
    return lambda terms: names[2 * values[terms[-1]] - values[terms[-2]]]


def solvers(language: str) -> dict[str, Callable[[list[str]], str]]:
    words = WORDS[language]
    return {
        "arithmetic": lambda terms: str(2 * int(terms[-1]) - int(terms[-2])),
        "doubling": lambda terms: str(int(terms[-1]) ** 2 // int(terms[-2])),
        "squares": lambda terms: str((2 * math.isqrt(int(terms[-1])) - math.isqrt(int(terms[-2]))) ** 2),
        # Unicode has both alphabets in order, ё apart.
        "letters": lambda terms: chr(2 * ord(terms[-1]) - ord(terms[-2])),
        "weekdays": _along(words.weekdays),
        "months": _along(words.months),
        "repetition": lambda terms: terms[len(terms) - len(set(terms))],
        "ordinals": _along(words.ordinals),
        "number_words": _next_number_word(language),
        "roman": _along(ROMAN),
    }


@pytest.mark.parametrize("language", ["en", "ru"])
def test_every_series_goes_on_as_a_second_solver_says(language: str):
    solve, seen = solvers(language), Counter[str]()
    nouns = "|".join(WORDS[language].nouns)
    listed = re.compile(rf"((?:{nouns})(?:, (?:{nouns}))*)")
    for item in (*drafts(language, 3000), *drafts(language, 1000, True)):
        family = family_of(item)
        if family in solve and item.template.endswith("/0") and item.prefix.endswith(","):
            terms = item.prefix.split(": ")[-1].removesuffix(",").split(", ")
            assert item.target == " " + solve[family](terms), item
            seen[family] += 1
        elif family in ("copy", "reverse"):
            whole, begun = (part.split(", ") for part in listed.findall(item.prefix))
            copy = whole if family == "copy" else whole[::-1]
            assert copy[: len(begun)] == begun
            assert item.target == " " + copy[len(begun)]
            seen[family] += 1
    assert set(seen) == {family.name for family in WORDS[language].families} - {"comparison"}
    assert min(seen.values()) > 10


@pytest.mark.parametrize("language", ["en", "ru"])
def test_comparisons_have_one_order(language: str):
    words = WORDS[language]
    subject = {form: person.subject for person in words.people for form in person}
    for item in drafts(language, 2000):
        if family_of(item) != "comparison":
            continue
        question = item.prefix.split(". ")[-1].lower()
        scale = next(s for s in words.scales if s.more in item.prefix or s.less in item.prefix)
        pairs = []
        for fact in item.prefix.split(". ")[:-1]:
            first, *_, second = fact.split()
            above, below = (first, second) if scale.more in fact else (second, first)
            pairs.append((subject[above], subject[below]))
        people = sorted({name for pair in pairs for name in pair})
        orders = [o for o in permutations(people) if all(o.index(a) < o.index(b) for a, b in pairs)]
        assert len(orders) == 1
        assert item.target.strip() == orders[0][0 if re.search(rf"\b{scale.most}\b", question) else -1]


def _bare_runs(text: str) -> set[tuple[str, ...]]:
    parts = re.split(r"[^\w,]+|,", text.casefold())
    terms = [part for part in parts if part]
    return {tuple(terms[i : i + logic.RUN_LEN]) for i in range(len(terms) - logic.RUN_LEN + 1)}


def test_no_series_of_the_benchmark_is_a_piece_of_training():
    training = [item for language in WORDS for item in drafts(language, 3000, True)]
    benchmark = [item for language in WORDS for item in drafts(language, 3000)]
    training_runs = set().union(*(_bare_runs(item.prefix + item.target) for item in training))
    series = [item for item in benchmark if item.template.endswith("/0") and family_of(item) != "comparison"]
    benchmark_runs = set().union(*(_bare_runs(item.prefix + item.target) for item in series))
    assert len(benchmark_runs) > 1000
    assert not benchmark_runs & training_runs
    assert not {item.prefix for item in benchmark} & {item.prefix for item in training}
    assert not {item.template for item in benchmark} & {item.template for item in training}


def test_one_run_in_three_is_training_whatever_its_case():
    runs = [tuple(str(i + 3 * j) for j in range(logic.RUN_LEN)) for i in range(3000)]
    assert sum(map(logic.is_training, runs)) == pytest.approx(1000, abs=130)  # 5 standard deviations of 26
    assert all(logic.is_training(("A", letter)) == logic.is_training(("a", letter.lower())) for letter in "BCDEFGH")
