"""eval-ua-tion-gen: what is known to be wrong with the published sets is not wrong here; answers checked by other means."""

import hashlib
import json
import math
import os
import random
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from miron_jax.definitions.data_files import data_state, git_blob_sha1, read_examples
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import render
from miron_jax.tasks.eval_uation.records import Item, reader
from miron_jax.tasks.eval_uation_gen import gaps, odd_words, pairs, places, sets, stories, suite
from miron_jax.tasks.eval_uation_gen.articles import articles
from miron_jax.tasks.eval_uation_gen.gaps import gap_rows, read_stories
from miron_jax.tasks.eval_uation_gen.lexicon import STORY_CASES, nouns, verbs
from miron_jax.tasks.eval_uation_gen.numerals import CASES, GENDERS, LAST, cardinal, ordinal
from miron_jax.tasks.eval_uation_gen.titles import Article, mask_digits, masked_row, read_articles, title_rows
from miron_jax.tasks.eval_uation_gen.words import ALPHABET, alphabet_key, categories, sentences, words
from miron_jax.tasks.registry import export
from tests.conftest import REPOSITORY

META = "additionalMetadata_"
LMES = ("lmes_low", "lmes_wis", "lmes_catsbin", "lmes_catsmc", "lmes_wordalpha", "lmes_wordlength")
ROWS = {own.name: own.files() for own in sets.GENERATED}
BY_NAME = {own.name: own for own in sets.GENERATED}
SPLITS = [(name, split) for name, files in ROWS.items() for split in files]


def items(name: str, split: str = "train") -> list[Item]:
    read = reader(BY_NAME[name].data_set)
    return [read(fields, row) for row, fields in enumerate(ROWS[name][split])]


def meta(fields: dict[str, Any], name: str) -> Any:
    return fields.get(META + name)


# ------------------------------------------------------------------------------------------- what every set promises


def test_sizes() -> None:
    for name in LMES:
        assert len(ROWS[name]["train"]) >= 2000
        assert len(ROWS[name]["fewshot"]) == 100
    assert {name: len(files["train"]) for name, files in ROWS.items() if name not in LMES} == {
        "ua_cbt": 1020, "up_masked": 1000, "up_unmasked": 1000,
    }  # fmt: skip
    assert len(ROWS["ua_cbt"]["fewshot"]) == 30


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_same_bytes_under_any_hash_seed(seed: str) -> None:
    code = (
        "from miron_jax.tasks.eval_uation_gen import sets\n"
        "import hashlib\n"
        "print({own.name: {s: hashlib.sha256(sets.jsonl(r)).hexdigest() for s, r in own.files().items()} "
        "for own in sets.GENERATED})"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=REPOSITORY
    )
    here = {n: {s: hashlib.sha256(sets.jsonl(r)).hexdigest() for s, r in files.items()} for n, files in ROWS.items()}
    assert run.stdout.strip() == str(here)


@pytest.mark.parametrize("name", ROWS)
def test_the_bytes_are_those_of_every_other_machine(name: str) -> None:
    """The hash in the code is that of the Python it was written with; CI runs this on another version too."""
    assert git_blob_sha1(sets.jsonl(ROWS[name]["train"])) == BY_NAME[name].file.git_blob_sha1


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_gold_is_one_of_the_options_and_no_two_are_alike(name: str, split: str) -> None:
    for item, fields in zip(items(name, split), ROWS[name][split], strict=True):
        folded = [option.casefold() for option in item.options]
        assert len(set(folded)) == len(folded) >= 2
        shown = fields.get("options") or fields.get("similar_titles") or item.options
        assert len({text.casefold() for text in shown}) == len(shown)
        if name in LMES and name != "lmes_catsbin":
            assert item.answer == fields["correctAnswer"]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_no_question_comes_twice(name: str, split: str) -> None:
    """B.7: 160 of 400 rows of CATS-BIN and 34 of 200 of CATS-MC came more than once."""
    asked = [item.ask for item in items(name, split)]
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_one_script_and_one_form_of_unicode(name: str, split: str) -> None:
    """B.7: a Latin y and a Latin A stood in Cyrillic templates."""
    for fields in ROWS[name][split]:
        texts = [value for value in fields.values() if isinstance(value, str)]
        assert all(unicodedata.is_normalized("NFC", text) for text in texts)
        prose = [str(fields.get(key, "")) for key in ("question", "context", "ukr_text", "ukr_title")]
        assert not re.search("[A-Za-z]", " ".join(prose)), prose


def test_shots_share_nothing_with_questions() -> None:
    shared = {
        "lmes_low": {meta(row, "word_raw") for row in ROWS["lmes_low"]["train"]},
        "lmes_wordalpha": {meta(row, f"option_{i}") for row in ROWS["lmes_wordalpha"]["train"] for i in (0, 1)},
        "lmes_catsmc": {word for row in ROWS["lmes_catsmc"]["train"] for word in meta(row, "all_options")},
    }
    assert not shared["lmes_low"] & {meta(row, "word_raw") for row in ROWS["lmes_low"]["fewshot"]}
    assert not shared["lmes_wordalpha"] & {
        meta(r, f"option_{i}") for r in ROWS["lmes_wordalpha"]["fewshot"] for i in (0, 1)
    }
    assert not shared["lmes_catsmc"] & {
        word for row in ROWS["lmes_catsmc"]["fewshot"] for word in meta(row, "all_options")
    }
    assert not {item.cluster for item in items("lmes_wis")} & {item.cluster for item in items("lmes_wis", "fewshot")}
    for name in ("lmes_catsbin", "lmes_wordlength"):
        words_of = [{word for item in items(name, split) for word in item.cluster.split(": ")[-1].split()} for split in
                    ("train", "fewshot")]  # fmt: skip
        assert not words_of[0] & words_of[1]
    told = [{row["context"] for row in ROWS["ua_cbt"][split]} for split in ("train", "fewshot")]
    assert len(told[0]) == 170
    assert not told[0] & told[1]


# --------------------------------------------------------------------------------------------------- trivial baselines


def first(item: Item, fields: dict[str, Any]) -> int:
    return 0


def last(item: Item, fields: dict[str, Any]) -> int:
    return len(item.options) - 1


def texts_of(item: Item, fields: dict[str, Any]) -> Sequence[str]:
    return fields.get("options") or fields.get("similar_titles") or item.options


def longest(item: Item, fields: dict[str, Any]) -> int:
    return max(range(len(item.options)), key=lambda i: len(texts_of(item, fields)[i]))


def shortest(item: Item, fields: dict[str, Any]) -> int:
    return min(range(len(item.options)), key=lambda i: len(texts_of(item, fields)[i]))


def most_frequent(item: Item, fields: dict[str, Any]) -> int:
    """The option that the question (story) holds most often; in LOW the letter that its word has most often."""
    text = meta(fields, "word_raw") or item.before or item.ask
    return max(range(len(item.options)), key=lambda i: text.count(texts_of(item, fields)[i]))


def copied(item: Item, fields: dict[str, Any]) -> int:
    """The option that stands last in the question (story)."""
    text = meta(fields, "word_raw") or item.before or item.ask
    return max(range(len(item.options)), key=lambda i: text.rfind(texts_of(item, fields)[i]))


def alphabetical(item: Item, fields: dict[str, Any]) -> int:
    return min(range(len(item.options)), key=lambda i: alphabet_key(texts_of(item, fields)[i]))


def of_common_length(item: Item, fields: dict[str, Any]) -> int:
    """The first option whose length most options share."""
    lengths = [len(text) for text in texts_of(item, fields)]
    return max(range(len(lengths)), key=lambda i: lengths.count(lengths[i]))


def central(item: Item, fields: dict[str, Any]) -> int:
    """The option that shares most words (letters, where options are words) with the others."""
    shown = texts_of(item, fields)
    parts = [set(text.lower().split() if " " in text else text) for text in shown]
    return max(range(len(shown)), key=lambda i: sum(len(parts[i] & own) for own in parts))


TRIVIAL: tuple[Callable[[Item, dict[str, Any]], int], ...] = (
    first,
    last,
    longest,
    shortest,
    most_frequent,
    copied,
    alphabetical,
    of_common_length,
    central,
)


@pytest.mark.parametrize("guess", TRIVIAL, ids=lambda guess: guess.__name__)
@pytest.mark.parametrize("name", ROWS)
def test_trivial_guesses_stay_at_chance(name: str, guess: Callable[[Item, dict[str, Any]], int]) -> None:
    found = items(name)
    right = [guess(item, fields) == item.gold for item, fields in zip(found, ROWS[name]["train"], strict=True)]
    chance = [1 / len(item.options) for item in found]
    error = math.sqrt(sum(p * (1 - p) for p in chance)) / len(chance)
    # 72 looks at chance: 3.7 standard errors either way are passed by one of them once in 60 sets.
    assert abs(sum(right) / len(right) - sum(chance) / len(chance)) <= 3.7 * error


# ---------------------------------------------------------------------------------------------------- words and numerals


def test_words() -> None:
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
    """As a grammar has it: -ий like новий, -ій like синій."""
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
    """The place that a question names: its one numeral, of two words or of one."""
    found = re.findall(r"[\w']+", text)
    two = [" ".join(pair) for pair in pairwise(found)]
    [n] = [NUMBER_OF[own] for own in two if own in NUMBER_OF] or [NUMBER_OF[own] for own in found if own in NUMBER_OF]
    return n


@pytest.mark.parametrize("name", ["lmes_low", "lmes_wis"])
def test_answers_are_what_stands_in_the_named_place(name: str) -> None:
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


def test_every_place_is_asked_for() -> None:
    """B.7: even places were never asked for, and the last one never by its number; 95 words and 45 sentences in all."""
    for name, size in (("lmes_low", "len"), ("lmes_wis", "len_haystack")):
        rows = ROWS[name]["train"]
        asked = Counter((meta(row, size), meta(row, size) - meta(row, "from_end")) for row in rows)
        for length in {length for length, _ in asked}:
            if sum(count for (own, _), count in asked.items() if own == length) > 100:
                assert {place for own, place in asked if own == length} == set(range(1, length + 1))
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
def test_words_of_a_pair_are_told_by_the_published_names(name: str, strata: tuple[str, ...]) -> None:
    of = {word.text: word for word in words("train")}
    for row in ROWS[name]["train"]:
        for option, prefix in ((0, "t1_meta_"), (1, "t2_meta_")):
            word = of[meta(row, f"option_{option}")]
            told = tuple(meta(row, prefix + field) for field in ("word_length", "pos", "len"))
            assert told == (word.size, word.pos, len(word.text))
    assert dict(items(name)[0].traits).keys() >= {"t1_meta_pos", "t2_meta_pos", "t1_meta_word_length"}


def test_no_two_words_of_the_last_letter_are_asked_which_is_closer_to_it() -> None:
    """Whether its beginning or its end is meant would decide."""
    words_of_last = [word for word in words("train") if word.text[0] == ALPHABET[-1]]
    [template] = [own for own in pairs.ALPHABETICAL if (own.type, own.kind) == ("closer_to_letter", "more")]
    assert pairs._is_within_its_letter(template, *words_of_last[:2])
    asked = [
        row
        for row in ROWS["lmes_wordalpha"]["train"]
        if meta(row, "type") == "closer_to_letter" and meta(row, "kind") == "more"
    ]
    assert asked
    assert not [row for row in asked if meta(row, "option_0")[0] == meta(row, "option_1")[0] == ALPHABET[-1]]


def test_every_published_type_of_question_is_asked() -> None:
    """As the data set's card names them, each from both ends."""
    asked = {(meta(row, "type"), meta(row, "kind")) for row in ROWS["lmes_wordalpha"]["train"]}
    types = ("ordinal", "further", "closer_to_side", "closer_to_letter")
    assert asked == {(own, kind) for own in types for kind in ("less", "more")}


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
    found = items(name)
    assert set(Counter(item.swapped for item in found).values()) == {2}
    assert len({item.cluster for item in found}) == 1000
    for a, b in zip(found[::2], found[1::2], strict=True):
        assert a.options == b.options[::-1]
        assert a.answer == b.answer
    assert Counter(item.gold for item in found) == {0: 1000, 1: 1000}
    for row, item in zip(ROWS[name]["train"], found, strict=True):
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


def test_the_odd_word_stands_anywhere() -> None:
    """B.7: it always stood last."""
    of = {word: category.name for category in categories("train") for word in category.words}
    odd_words_of: Counter[tuple[str, str | None]] = Counter()
    for name in ("lmes_catsmc", "lmes_catsbin"):
        where: Counter[int] = Counter()
        for row in ROWS[name]["train"]:
            shown, main, odd = meta(row, "all_options"), meta(row, "cat_name_main"), meta(row, "other_word")
            strangers = [i for i, word in enumerate(shown) if of[word] != main]
            assert len(shown) == len(set(shown)) == 5
            assert [shown[i] for i in strangers] == ([] if odd is None else [odd])
            where.update(strangers)
            assert name == "lmes_catsbin" or meta(row, "label") == strangers[0]
            odd_words_of[name, odd] += 1
            assert ", ".join(shown) in row["question"]
        even = sum(where.values()) / 5
        assert all(abs(count - even) < 4 * math.sqrt(even) for count in where.values())
        assert len(where) == 5
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


# ----------------------------------------------------------------------------------------------------------------- stories


def lemma_of(form: str) -> set[str]:
    every = [noun for kind in ("animal", "thing") for gender in GENDERS for noun in nouns(kind, gender)]
    found = {noun.lemma for noun in every if form.lower() in noun.forms}
    return found | {verb.lemma for verb in verbs() if form.lower() in verb.past}


def facts(row: dict[str, Any]) -> set[str]:
    """What the event log says of all that the gap's sentence names: the one lemma that is missing from it."""
    named = set().union(*(lemma_of(word) for word in re.findall(r"\w+", row["md_gap_sentence"])))
    if "хатці" in row["md_gap_sentence"]:
        return {taker for _, thing, taker in row["md_gifts"] if thing in named}
    place = {"NAMED_ENTITY": 0, "VERB": 1, "COMMON_NOUN": 2}[row["taskType"]]
    return {event[place] for event in row["md_events"] if set(event[:place] + event[place + 1 :]) <= named}


@pytest.mark.parametrize("split", ["train", "fewshot"])
def test_exactly_one_option_is_true_and_all_fit_grammatically(split: str) -> None:
    for row in ROWS["ua_cbt"][split]:
        assert len(row["options"]) == 6
        lemmas = [lemma_of(option) for option in row["options"]]
        true = facts(row)
        assert len(true) == 1
        assert [bool(own & true) for own in lemmas] == [option == row["answer"] for option in row["options"]], row
        if row["taskType"] == "VERB":
            genders = [
                {g for v in verbs() for g, form in zip("mfn", v.past, strict=True) if form == o} for o in row["options"]
            ]
            assert len(set.intersection(*genders)) == 1
            continue
        place = STORY_CASES.index(row["md_form"])
        kind = "animal" if row["taskType"] == "NAMED_ENTITY" else "thing"
        fits = [{g for g in GENDERS for noun in nouns(kind, g) if noun.forms[place] == o} for o in row["options"]]
        assert len(set.intersection(*fits)) == 1
        # Every option is named at least twice before its gap.
        words_before = re.findall(r"\w+", row["context"])
        for own in lemmas:
            assert sum(bool(own & lemma_of(word)) for word in words_before) >= 2


def test_the_gap_lies_in_the_last_third_between_spaces() -> None:
    for row in ROWS["ua_cbt"]["train"]:
        assert row["question"].count(" ______ ") == 1
        assert row["md_gap_sentence"] in row["question"]
        sentences_in = [len(re.findall(r"[.!?](?: |$)", row[part])) for part in ("context", "question")]
        assert sentences_in == [row["md_num_context_sents"], row["md_num_question_sents"]]
        assert sentences_in[1] == round(0.35 * sum(sentences_in))


def test_mentions_are_counted() -> None:
    lemma_of = {
        form: own.lemma for kind in ("animal", "thing") for g in GENDERS for own in nouns(kind, g) for form in own.forms
    }
    lemma_of |= {form: own.lemma for own in verbs() for form in own.past}
    for row in ROWS["ua_cbt"]["train"]:
        text = f"{row['context']} {row['question']}".lower()
        mentioned = Counter(lemma_of[word] for word in re.findall(r"[\w']+", text) if word in lemma_of)
        counts = [mentioned[lemma_of[option]] for option in row["options"]]
        assert row["md_mentions"] == counts
        assert row["md_opts_baseline_most_frequent"] == [row["options"][counts.index(max(counts))]]


def test_what_was_given_away_is_not_stood_by() -> None:
    stood_by = 0
    for row in ROWS["ua_cbt"]["train"]:
        if row["taskType"] == "COMMON_NOUN" and row["md_form"] in ("gen", "dat", "ins"):
            lemma_of = {own.form(row["md_form"]): own.lemma for gender in GENDERS for own in nouns("thing", gender)}
            assert lemma_of[row["answer"]] not in {thing for _, thing, _ in row["md_gifts"]}
            stood_by += 1
    assert stood_by > 50


def test_stories_use_cases_types_and_genders() -> None:
    rows = ROWS["ua_cbt"]["train"]
    assert Counter(row["taskType"] for row in rows) == dict.fromkeys(stories.TASK_TYPES, 340)
    forms = {(row["taskType"], row["md_form"]) for row in rows}
    assert forms == {
        *(("NAMED_ENTITY", case) for case in ("nom", "gen", "dat", "acc", "ins")),
        *(("COMMON_NOUN", case) for case in ("gen", "dat", "acc", "ins")),
        ("VERB", "past"),
    }
    assert sum("хатці" in row["md_gap_sentence"] for row in rows) > 10
    assert len({row["storyId"] for row in rows}) == 170


def test_paradigms() -> None:
    every = [noun for kind in ("animal", "thing") for gender in GENDERS for noun in nouns(kind, gender)]
    assert len(every) == 70
    for noun in every:
        assert all(re.fullmatch(f"[{ALPHABET}]+", form) for form in noun.forms)
        assert noun.form("nom") == noun.lemma
        animate = noun.kind == "animal"
        if noun.gender == "m":
            assert noun.form("acc") == noun.form("gen" if animate else "nom")
        if noun.gender == "n":
            assert noun.form("acc") == noun.form("nom")
    owners = Counter(form for noun in every for form in set(noun.forms))
    assert max(owners.values()) == 1
    assert len({form for verb in verbs() for form in verb.past}) == 3 * len(verbs())


# ------------------------------------------------------------------------------------------------------------------ titles


def test_titles_are_the_most_alike_by_brute_force() -> None:
    stream = random.Random(3)
    tags = ["місто", "село", "спорт", "школа", "вода", "рада"]
    own = [Article(f"Назва {'я' * (i % 31)}", f"Текст {i}", tuple(stream.sample(tags, 3))) for i in range(37)]
    own.append(Article("Без міток", "Текст", ()))
    for place, row in enumerate(title_rows(own)):
        assert row["similar_idx"][row["label"]] == place
        i = row["similar_to_idx"]
        assert i in row["similar_idx"]
        assert [own[j].title for j in row["similar_idx"]] == row["similar_titles"]
        shown = [j for j in row["similar_idx"] if j != i]
        assert len(set(shown)) == 9

        def cosine(j: int, i: int = i) -> float:
            a, b = set(own[i].tags), set(own[j].tags)
            return len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0

        left = [cosine(j) for j in range(len(own)) if j not in row["similar_idx"]]
        # Titles that read the same once masked stand once: only such may be left out though they are more alike.
        keys = {mask_digits(own[j].title) for j in row["similar_idx"]}
        better = [
            j for j in range(len(own)) if j not in row["similar_idx"] and cosine(j) > min(map(cosine, shown)) + 1e-9
        ]
        assert all(mask_digits(own[j].title) in keys for j in better)
        assert left


def test_masks() -> None:
    assert mask_digits("У 2024 році 12,5 %") == "У XXXX році XX,X %"
    assert mask_digits("²٣ п'ять") == "²٣ п'ять"  # ASCII digits only, as published
    assert mask_digits("П'ять із двадцяти третьої о 7", spelled=True) == "X із двадцяти X о X"
    for apostrophe in "’ʼ‘`´＇":  # the slides of the paper print U+02BC
        assert mask_digits(f"П{apostrophe}ять", spelled=True) == "X"
    row = ROWS["up_masked"]["train"][0]
    assert not re.search("[0-9]", row["masked_text"] + "".join(row["similar_titles"]))
    unmasked = ROWS["up_unmasked"]["train"][0]
    assert masked_row(unmasked) == row
    assert re.search("[0-9]", "".join(unmasked["similar_titles"]))


def test_no_other_title_is_true_of_an_article() -> None:
    assert len({mask_digits(article.title) for article in articles(1000)}) == 1000
    for name in ("up_masked", "up_unmasked"):
        places_of_gold = Counter(row["label"] for row in ROWS[name]["train"])
        assert len(places_of_gold) == 10
        for row in ROWS[name]["train"]:
            assert len(set(row["similar_titles"])) == 10
            assert row["similar_titles"][row["label"]] == row["masked_title" if name == "up_masked" else "ukr_title"]


def test_no_title_is_told_by_its_number_or_copied_from_its_text() -> None:
    alone = 0
    for masked, row in zip(ROWS["up_masked"]["train"], ROWS["up_unmasked"]["train"], strict=True):
        assert row["ukr_title"].lower() not in row["ukr_text"].lower()
        assert len({re.findall("X+", title)[0] for title in masked["similar_titles"]}) == 1
        [number] = re.findall("[0-9]+", row["ukr_title"])
        alone += sum(number in title for title in row["similar_titles"]) == 1
    assert alone < 150  # of 1,000; one number in four is each one's


def test_articles_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "news.jsonl"
    rows = [
        {"title": f"Подія {'я' * i}", "text": f"Двадцять {i}.", "tags": "місто, вода" if i % 2 else ["село"]}
        for i in range(12)
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    paths = export(tmp_path / "out", 1, path)
    assert [str(own.relative_to(tmp_path / "out")) for own in paths] == [
        "up_masked/train.jsonl", "up_masked/train.parquet", "up_unmasked/train.jsonl", "up_unmasked/train.parquet",
    ]  # fmt: skip
    found = parquet.read_table(paths[1]).to_pylist()
    assert [row["masked_text"] for row in found] == [f"Двадцять {'X' * len(str(i))}." for i in range(12)]
    spelled = parquet.read_table(export(tmp_path / "words", 1, path, spelled=True)[1]).to_pylist()
    assert [row["masked_text"] for row in spelled] == [f"X {'X' * len(str(i))}." for i in range(12)]
    assert read_articles(path)[1].tags == ("місто", " вода")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"title": "а", "text": "б"}', "record 1: tags is None"),
        ('{"title": "а", "tags": []}', "record 1: expected the texts title and text"),
        ('{"title": "а", "text": "б", "tags": [1]}', r"record 1: tags is \[1\]"),
        ('{"title": "а", "text": "б", "tags": []}', "1 titles differ.*expected at least 10"),
        ("nonsense", "line 1: found no valid JSON"),
        ("", "is empty"),
    ],
)
def test_bad_articles(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "news.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        export(tmp_path / "out", 1, path)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="cannot be read"):
        read_articles(tmp_path / "none")


# ---------------------------------------------------------------------------------------------------- stories of one's own


def of_animal(stem: str, **changed: Any) -> dict[str, Any]:
    """Declined like слон."""
    endings = {"nom": "", "gen": "а", "dat": "у", "acc": "а", "ins": "ом", "loc": "ові"}
    forms = {case: stem + ending for case, ending in endings.items()}
    return {"lemma": stem, "type": "NAMED_ENTITY", "gender": "m", "forms": forms, **changed}


def of_doing(stem: str) -> dict[str, Any]:
    return {"lemma": f"{stem}ти", "type": "VERB", "forms": {"m": f"{stem}в", "f": f"{stem}ла", "n": f"{stem}ло"}}


ANIMALS = ("слон", "кит", "тигр", "крокодил", "бегемот")
TALE = (
    "Жили собі слон, кит, тигр, крокодил та бегемот. Слон співав. Кит читав. Тигр малював. Крокодил співала казку. "
    "Слон знайшов мед. Кит покликав слона. Тигр пішов до кита. Крокодил засміявся! Бегемот покликав тигра. "
    "Усі дивились на слона. Потім слон віддав мед. Слона похвалили. Кит задрімав."
)


def story_file(folder: Path, *records: Any) -> Path:
    path = folder / "stories.jsonl"
    path.write_text("".join(json.dumps(own, ensure_ascii=False) + "\n" for own in records), encoding="utf-8")
    return path


def test_gaps_in_stories_of_ones_own(tmp_path: Path) -> None:
    doings = [of_doing(stem) for stem in ("співа", "чита", "малюва")]
    path = story_file(tmp_path, {"id": "звірі", "text": TALE, "words": [*map(of_animal, ANIMALS), *doings]})
    paths = export(tmp_path / "out", 1, own_stories=path)
    assert [str(own.relative_to(tmp_path / "out")) for own in paths] == ["ua_cbt/train.jsonl", "ua_cbt/train.parquet"]
    rows = parquet.read_table(paths[1]).to_pylist()
    # слона may be a genitive or an accusative: all five animals have one form for both. No doing is in the last third.
    assert [(row["answer"], row["md_form"]) for row in rows] == [
        ("тигра", "gen/acc"), ("слона", "gen/acc"), ("слон", "nom"), ("Слона", "gen/acc"), ("Кит", "nom"),
    ]  # fmt: skip
    assert [row["md_gap_sentence"] for row in rows] == [
        "Бегемот покликав ______ .", "Усі дивились на ______ .",
        "Потім ______ віддав мед.", "______ похвалили.", "______ задрімав.",
    ]  # fmt: skip
    assert sorted(rows[1]["options"]) == ["бегемота", "кита", "крокодила", "слона", "тигра"]
    assert sorted(rows[3]["options"]) == ["Бегемота", "Кита", "Крокодила", "Слона", "Тигра"]
    assert {row["md_num_question_sents"] for row in rows} == {5}
    before = "Бегемот покликав тигра. Усі дивились на ______ . Потім слон віддав мед. Слона похвалили. Кит задрімав."
    assert rows[1]["question"] == before
    named = dict(zip(rows[1]["options"], rows[1]["md_mentions"], strict=True))
    assert named == {"слона": 7, "кита": 5, "тигра": 4, "крокодила": 3, "бегемота": 2}
    assert rows[1]["md_opts_baseline_most_frequent"] == ["слона"]
    assert [row["md_global_number"] for row in rows] == [0, 1, 2, 3, 4]
    read = [reader(BY_NAME["ua_cbt"].data_set)(row, i) for i, row in enumerate(rows)]
    assert {item.cluster for item in read} == {"звірі"}
    assert read[2].fills[rows[2]["options"].index("тигр")].startswith(" тигр віддав мед.")


def test_what_makes_no_gap(tmp_path: Path) -> None:
    """A form of two words, words with two forms where the gap's may be either, a thing named too rarely, too few others."""

    def answers(*words: Any) -> list[str]:
        path = story_file(tmp_path, {"text": TALE, "words": words})
        return [row["answer"] for story in read_stories(path) for row in gap_rows(story)]

    animals = [of_animal(stem) for stem in ANIMALS]
    assert answers(*animals) == ["тигра", "слона", "слон", "Слона", "Кит"]
    assert answers(*animals, of_animal("слонище", forms={"nom": "слон"})) == ["тигра", "Кит"]  # "слон" is nobody's
    inanimate = [of_animal(s, forms={**of_animal(s)["forms"], "acc": s}) for s in ("тигр", "крокодил", "бегемот")]
    assert answers(*animals[:2], *inanimate) == ["тигра", "слон", "Кит"]
    assert answers(*animals[:4]) == ["тигра", "слона", "слон", "Слона", "Кит"]
    assert answers(*animals[:3]) == []
    things = [of_animal(stem, type="COMMON_NOUN") for stem in ANIMALS]
    assert answers(*things) == ["слона", "слон", "Слона", "Кит"]  # the tiger is named three times before
    assert answers(*(of_animal(stem, gender="n" if stem == "тигр" else "m") for stem in ANIMALS[:4])) == []


def gaps_behind(sentence: str, *more: Any, words: Any = None) -> list[dict[str, Any]]:
    """Of a story whose last third is this and a sentence without words that are asked for."""
    own = words or [of_animal(stem) for stem in ANIMALS]
    context = "Слон, кит, тигр, крокодил та бегемот співали. " * 4
    fields = {"text": f"{context}{sentence} Усе.", "words": [*own, *more]}
    return list(gap_rows(gaps._story(fields, 1)))


def test_no_capital_and_no_preposition_tells_the_answer() -> None:
    name = of_animal("Іван")
    assert gaps_behind("Тоді СЛОН закричав.") == []
    assert gaps_behind("Потім Іван заплакав. Іван. Іван.", name) == []  # named too rarely before
    named = [*map(of_animal, ANIMALS), name]
    [row] = gaps_behind("Потім слон заплакав.", name)
    assert {own[0].isupper() for own in row["options"]} == {False}
    assert gaps_behind("Потім слон заплакав.", words=[of_animal(stem.capitalize()) for stem in ANIMALS]) == []
    assert len(named) == 6
    [row] = gaps_behind("«Слон!» — гукнули всі.")
    assert {own[0].isupper() for own in row["options"]} == {True}
    assert gaps_behind("Усі гралися зі слоном.") == []
    assert len(gaps_behind("Усі гралися з китом.")) == 1


def test_words_are_whole_and_plain() -> None:
    assert gaps_behind("Потім слон-велетень утік.") == []
    assert gaps_behind("Потім с`слон утік.") == []
    [row] = gaps_behind("Потім слона\u0301 прогнали.")
    assert row["md_gap_sentence"] == "Потім ______ прогнали."
    assert gaps_behind("Потім кит\u0301ом гралися.")[0]["md_form"] == "ins"
    assert gaps_behind("Потім сл\u00adон утік.")[0]["answer"] == "слон"
    kite = {"lemma": "змій", "type": "NAMED_ENTITY", "gender": "m", "forms": {"nom": "змій"}}
    decomposed = unicodedata.normalize("NFD", "Змій, змій. Потім змій утік.")
    assert gaps_behind(decomposed, kite)[0]["md_mentions"]
    padded = [of_animal(stem, forms={n: f" {f} " for n, f in of_animal(stem)["forms"].items()}) for stem in ANIMALS]
    [row] = gaps_behind("Потім слон утік.", words=padded)
    assert all(own == own.strip() for own in row["options"])


def test_sentences_end_where_a_reader_ends_them() -> None:
    ended = gaps._SENTENCE_END.split(
        "Він народився 1990 р. Слон мав ім. Шевченка. «Хто там?» — спитав кит. «Я!» Тигр утік… Усе"
    )
    assert ended == [
        "Він народився 1990 р. Слон мав ім. Шевченка.",
        "«Хто там?» — спитав кит.",
        "«Я!»",
        "Тигр утік…",
        "Усе",
    ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"words": [of_animal("слон")]}, "record 1: text is no text; expected text, and words"),
        ({"text": "Слон а_б. Кит."}, "text has a low line _, which rows keep for the gap"),
        ({"text": "Одне речення."}, "text has one sentence"),
        ({"text": TALE}, "words is no list of words"),
        ({"text": TALE, "words": [of_animal("слон"), of_animal("слон")]}, "words has the lemma 'слон' twice"),
        ({"text": TALE, "words": ["слон"]}, "the word 'слон' has no lemma"),
        (
            {"text": TALE, "words": [of_animal("слон", type="ANIMAL")]},
            "the type of 'слон' is 'ANIMAL', not one of NAMED",
        ),
        ({"text": TALE, "words": [of_animal("слон", gender="х")]}, "the gender of 'слон' is 'х', not m, f or n"),
        ({"text": TALE, "words": [of_animal("слон", forms=["слон"])]}, "the forms of 'слон' are"),
        (
            {"text": TALE, "words": [of_animal("слон", forms={"nom": "слон сірий"})]},
            "the form 'слон сірий' of 'слон' is no",
        ),
        (
            {"text": TALE, "words": [of_animal("слон", forms={"nom": "---"})]},
            "the form '---' of 'слон' is no single word",
        ),
        (
            {"text": TALE, "words": [of_animal("слон"), of_animal("слон", lemma="слон ")]},
            "words has the lemma 'слон' twice",
        ),
        ({"text": TALE, "words": [of_animal("слон")]}, "none of 1 stories allows a gap"),
    ],
)
def test_bad_stories(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    path = story_file(tmp_path, record)
    with pytest.raises(InputError, match=re.escape(message)):
        export(tmp_path / "out", 1, own_stories=path)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="two records have one id"):
        read_stories(story_file(tmp_path, *({"id": 1, "text": TALE, "words": [of_animal("слон")]} for _ in "ab")))
    with pytest.raises(InputError, match="cannot be read"):
        read_stories(tmp_path / "none")


# ------------------------------------------------------------------------------------------------------ files and suites


def test_files_are_written_once_and_read_like_published_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path))
    folder = sets.locate(None)
    assert folder == tmp_path / "eval-ua-tion-gen" / sets.VERSION
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")}
    assert len(before) == 16
    assert sets.locate(None, False) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")} == before
    for task in (*suite.GEN.tasks, *suite.GEN_TEXT.tasks):
        assert data_state(task, folder).state == "as published"
        examples = read_examples(task, folder)
        assert len(examples) == task.file.rows
        prompts = render(task, examples, 5)
        shots = 0 if task.name.endswith("_cloze") else 3
        assert [prompt.num_shots for prompt in prompts] == [shots] * 5
        assert not task.human
        assert task.chance is not None
        assert task.chance(examples).keys() <= {"random", "most_frequent"}
    (folder / "lmes_low/train.jsonl").write_text("{}\n")
    low = next(task for task in suite.GEN.tasks if task.name.endswith("lmes_low"))
    with pytest.raises(InputError, match="is not the published file"):
        read_examples(low, folder)
    (folder / "lmes_wis/fewshot.jsonl").write_text("{}\n")
    wis = next(task for task in suite.GEN.tasks if task.name.endswith("lmes_wis"))
    with pytest.raises(InputError, match=r"is not what this program writes.*remove the folder"):
        read_examples(wis, folder)
    # What an earlier version left in the cache is made anew, and nothing else.
    assert sets.locate(None) == folder
    assert len(read_examples(low, folder)) == len(read_examples(wis, folder)) == 2000
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")}
    assert {path.parent.name for path in after if after[path] != before[path]} == {"lmes_low", "lmes_wis"}
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_export_has_every_set_twice(tmp_path: Path) -> None:
    paths = sets.export(tmp_path)
    assert len(paths) == 32
    assert {path.suffix for path in paths} == {".jsonl", ".parquet"}
    for lines, table in zip(paths[::2], paths[1::2], strict=True):
        rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
        found = parquet.read_table(table).to_pylist()
        assert [{k: v for k, v in row.items() if v is not None} for row in found] == rows
    assert sets.locate(tmp_path / "eval-ua-tion-gen") == tmp_path / "eval-ua-tion-gen"


def test_chance_of_letters_and_words_is_named_by_its_formula() -> None:
    """The mean over rows of 1 / (different letters), not 1 / (mean letters)."""
    found = items("lmes_low")
    task = next(task for task in suite.GEN.tasks if task.name.endswith("lmes_low"))
    assert task.chance is not None
    examples = [task.parse(row, i) for i, row in enumerate(ROWS["lmes_low"]["train"])]
    assert task.chance(examples)["random"] == pytest.approx(np.mean([1 / len(item.options) for item in found]))
