"""Logic items: each series has one continuation, a second solver agrees, and training shares none with the benchmark."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise, permutations

import pytest

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.miron_gen import english_logic, logic, russian_logic
from miron_jax.tasks.generators.miron_gen.draft import Draft

WORDS = {"en": english_logic.WORDS, "ru": russian_logic.WORDS}


@cache
def candidate(language: str, i: int, training: bool) -> Draft | None:
    return logic.draft(Draw("logic tests", language, i), WORDS[language], training)


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
    ],
)
def test_rules_by_hand(terms: tuple[int, ...], expected: dict[str, int]):
    assert logic.continuations(terms) == expected
    values = set(expected.values())
    assert logic.only_next(terms) == (values.pop() if len(values) == 1 else None)


def test_halving_an_odd_number_has_no_whole_continuation():
    assert logic.continuations((24, 12, 6, 3)) == {"geometric": 1.5}
    assert logic.only_next((24, 12, 6, 3)) is None


def test_months_of_31_days_are_a_rival_cycle():
    long_months = english_logic.WORDS.rivals[0]
    assert logic.round_next(("March", "May", "July"), long_months) == "August"  # every second month says September
    assert logic.round_next(("October", "December"), long_months) == "January"  # over the end of the year
    assert logic.round_next(("March", "April"), long_months) is None
    assert logic.round_next(("January", "March", "August"), long_months) is None  # steps 1 and 3
    prefixes = [item.prefix for item in drafts("en", 3000) if family_of(item) == "months"]
    assert not any(prefix.endswith("January, March, May, July,") for prefix in prefixes)
    assert any("January, March, May, July, September," in prefix for prefix in prefixes)


@pytest.mark.parametrize(("number", "numeral"), [(1, "I"), (4, "IV"), (9, "IX"), (14, "XIV"), (19, "XIX"), (20, "XX")])
def test_roman_numerals(number: int, numeral: str):
    assert logic.roman_numeral(number) == numeral


# Solvers that share no code with the generator; "family/0" is the bare series in every family of series.


def _along(listed: Sequence[str]) -> Callable[[list[str]], str]:
    def solve(terms: list[str]) -> str:
        a, b = (listed.index(term) for term in terms[-2:])
        return listed[(2 * b - a) % len(listed)]

    return solve


def _next_square(terms: list[str]) -> str:
    a, b = (math.isqrt(int(term)) for term in terms[-2:])
    return str((2 * b - a) ** 2)


def _next_repeat(terms: list[str]) -> str:
    return terms[len(terms) - len(set(terms))]


def _next_letter(terms: list[str]) -> str:
    return chr(2 * ord(terms[-1]) - ord(terms[-2]))  # Unicode has both alphabets in order, ё apart


def _next_number_word(language: str) -> Callable[[list[str]], str]:
    words = WORDS[language]
    values = {word: i for i, word in enumerate(words.numbers, 1)}
    values |= {word: 10 * i for i, word in enumerate(words.tens, 1)}
    names = {value: word for word, value in values.items()}
    return lambda terms: names[2 * values[terms[-1]] - values[terms[-2]]]


def _next_numeral(terms: list[str]) -> str:
    ones = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X"]
    return _along([*ones, *("X" + numeral for numeral in ones)])(terms)


def solvers(language: str) -> dict[str, Callable[[list[str]], str]]:
    words = WORDS[language]
    return {
        "arithmetic": lambda terms: str(2 * int(terms[-1]) - int(terms[-2])),
        "doubling": lambda terms: str(int(terms[-1]) ** 2 // int(terms[-2])),
        "squares": _next_square,
        "letters": _next_letter,
        "weekdays": _along(words.weekdays),
        "months": _along(words.months),
        "repetition": _next_repeat,
        "ordinals": _along(words.ordinals),
        "number_words": _next_number_word(language),
        "roman": _next_numeral,
    }


@pytest.mark.parametrize("language", ["en", "ru"])
def test_every_series_goes_on_as_a_second_solver_says(language: str):
    solve, seen = solvers(language), Counter[str]()
    for item in (*drafts(language, 3000), *drafts(language, 1000, True)):
        family = family_of(item)
        if family in solve and item.template.endswith("/0") and item.prefix.endswith(","):
            terms = item.prefix.split(": ")[-1].removesuffix(",").split(", ")
            assert item.target == " " + solve[family](terms), item
            seen[family] += 1
    assert set(seen) == {family.name for family in WORDS[language].families} - {"copy", "reverse", "comparison"}
    assert min(seen.values()) > 10


@pytest.mark.parametrize("language", ["en", "ru"])
def test_copies_and_reverses_take_up_the_list(language: str):
    nouns = "|".join(WORDS[language].nouns)
    listed = re.compile(rf"((?:{nouns})(?:, (?:{nouns}))*)")
    for item in drafts(language, 2000):
        if family_of(item) in ("copy", "reverse"):
            whole, begun = (part.split(", ") for part in listed.findall(item.prefix))
            copy = whole if family_of(item) == "copy" else whole[::-1]
            assert copy[: len(begun)] == begun
            assert item.target == " " + copy[len(begun)]


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


@pytest.mark.parametrize(
    ("language", "terms", "answer"),
    [
        ("en", "109, 102, 95, 88", "81"),  # 7 less each time
        ("en", "448, 224, 112, 56", "28"),
        ("en", "100, 121, 144, 169, 196", "225"),  # 10 to 14 squared, and 15
        ("en", "Z, U, P, K, F", "A"),  # five letters back: F E D C B A
        ("en", "Thursday, Tuesday, Sunday, Friday", "Wednesday"),
        ("en", "September, July, May, March", "January"),
        ("en", "sixteenth, thirteenth, tenth, seventh", "fourth"),
        ("en", "forty, fifty, sixty, seventy", "eighty"),
        ("en", "IV, VIII, XII, XVI", "XX"),
        ("ru", "59, 48, 37, 26, 15", "4"),  # 11 less each time
        ("ru", "256, 128, 64, 32", "16"),
        ("ru", "324, 361, 400, 441", "484"),  # 18 to 21 squared, and 22
        ("ru", "К, Н, Р, У, Ц", "Щ"),  # К лм Н оп Р ст У фх Ц чш Щ
        ("ru", "воскресенье, пятница, среда, понедельник", "суббота"),
        ("ru", "ноябрь, январь, март, май", "июль"),
        ("ru", "пятнадцатый, двенадцатый, девятый, шестой", "третий"),
        ("ru", "два, шесть, десять, четырнадцать", "восемнадцать"),
    ],
)
def test_items_by_hand(language: str, terms: str, answer: str):
    bare = {re.split(r"[:?] ", item.prefix.removesuffix(","))[-1]: item.target for item in drafts(language, 9000)}
    assert bare[terms] == " " + answer


@pytest.mark.parametrize("language", ["en", "ru"])
@pytest.mark.parametrize("training", [False, True])
def test_form_of_every_item(language: str, training: bool):
    script = "LATIN" if language == "en" else "CYRILLIC"
    for item in drafts(language, 1000, training):
        options = (item.target, *item.distractors)
        assert len(set(options)) == 1 + logic.NUM_DISTRACTORS
        for option in options:
            assert option[0] == " "
            assert option[1:] == option.strip() != ""
        answer = item.target.strip()
        assert not any(wrong.strip().startswith(answer) or answer.startswith(wrong.strip()) for wrong in options[1:])
        assert item.prefix == item.prefix.strip()
        text = item.prefix + "".join(options)
        assert "{" not in text
        assert unicodedata.is_normalized("NFC", text)
        assert all(unicodedata.name(letter).startswith(script) for letter in text if letter.isalpha())
        assert dict(item.meta) == {"family": family_of(item)}


def test_a_russian_answer_shows_its_yo_in_the_prefix():
    answers = [item for item in drafts("ru", 3000) if "ё" in item.target]
    assert len(answers) > 50
    assert all("ё" in item.prefix for item in answers)


@pytest.mark.parametrize("language", ["en", "ru"])
def test_families_are_even_and_prefixes_many(language: str):
    items = drafts(language, 9000)
    counts = Counter(family_of(item) for item in items)
    share = len(items) / len(counts)
    assert set(counts) == {family.name for family in WORDS[language].families}
    assert all(abs(count - share) < 5 * math.sqrt(share) for count in counts.values())
    prefixes = {item.prefix: family_of(item) for item in items}
    assert len(prefixes) > 4500
    # 500 items are about 40 of each family
    assert min(Counter(prefixes.values()).values()) > 150


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


def test_frames_of_training_are_no_frames_of_the_benchmark():
    for words in WORDS.values():
        benchmark = {frame for family in words.families for frame in family.frames}
        training = {frame for family in words.families for frame in family.training}
        assert not benchmark & training
        assert not any(frame.endswith(" ") for frame in benchmark | training)


def test_one_run_in_three_is_training_whatever_its_case():
    runs = [tuple(str(i + 3 * j) for j in range(logic.RUN_LEN)) for i in range(3000)]
    assert sum(map(logic.is_training, runs)) == pytest.approx(1000, abs=130)  # 5 standard deviations of 26
    assert all(logic.is_training(("A", letter)) == logic.is_training(("a", letter.lower())) for letter in "BCDEFGH")


def test_no_word_is_a_prefix_of_another():
    for words in WORDS.values():
        pool = logic.pool(words)
        assert len(set(pool)) == len(pool)
        assert len(words.numbers) == len(words.ordinals) == 20
        assert (len(words.weekdays), len(words.months)) == (7, 12)
        assert not any(b.startswith(a) for a, b in pairwise(sorted(words.nouns)))
