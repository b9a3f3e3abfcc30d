"""eval-ua-tion-gen: the event log agrees with all answers about stories; titles equal a brute-force twin."""

import math
import random
import re
from functools import cache

import pytest

from miron_jax.files.readers import JsonObject
from miron_jax.tasks.generators.eval_uation_gen.language import UKRAINIAN, Language
from miron_jax.tasks.generators.eval_uation_gen.titles import Article, mask_digits, masked_row, title_rows
from tests.support.tolerances import FLOAT64
from tests.support.uation_gen_rows import ROWS
from tools.eval_uation_gen.lexicon import STORY_CASES, nouns, verbs
from tools.eval_uation_gen.numerals import GENDERS, table_of

# ----------------------------------------------------------------------------------------------------------------- stories


@cache
def lemma_of(form: str) -> set[str]:
    every = [noun for kind in ("animal", "thing") for gender in GENDERS for noun in nouns(kind, gender)]
    nouns_of_form = {noun.lemma for noun in every if form.lower() in noun.forms}
    return nouns_of_form | {verb.lemma for verb in verbs() if form.lower() in verb.past}


def facts(row: JsonObject) -> set[str]:
    """The lemmas that the event log has for the gap, given the other words of its sentence."""
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
        assert row["question"].count(" ______ ") == row["question"].count(row["md_gap_sentence"]) == 1
        every_word = re.findall(r"[\w']+", f"{row['context']} {row['question']}")
        counts = [sum(bool(of_option & lemma_of(word)) for word in every_word) for of_option in lemmas]
        assert row["md_mentions"] == counts
        assert row["md_opts_baseline_most_frequent"] == [row["options"][counts.index(max(counts))]]
        assert [bool(of_option & true) for of_option in lemmas] == [
            option == row["answer"] for option in row["options"]
        ], row
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
        for of_option in lemmas:
            assert sum(bool(of_option & lemma_of(word)) for word in words_before) >= 2


# ------------------------------------------------------------------------------------------------------------------ titles


def test_titles_are_the_most_similar_by_brute_force() -> None:
    stream = random.Random(3)
    tags = ["місто", "село", "спорт", "школа", "вода", "рада"]
    toy = [Article(f"Назва {'я' * (i % 31)}", f"Текст {i}", tuple(stream.sample(tags, 3))) for i in range(37)]
    toy.append(Article("Без міток", "Текст", ()))
    for article_idx, row in enumerate(title_rows(toy, "articles")):
        assert row["similar_idx"][row["label"]] == article_idx
        i = row["similar_to_idx"]
        assert i in row["similar_idx"]
        assert [toy[j].title for j in row["similar_idx"]] == row["similar_titles"]
        neighbours = [j for j in row["similar_idx"] if j != i]
        assert len(set(neighbours)) == 9

        def cosine(j: int, i: int = i) -> float:
            a, b = set(toy[i].tags), set(toy[j].tags)
            return len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0

        left = [cosine(j) for j in range(len(toy)) if j not in row["similar_idx"]]
        # Only a title that equals another one once masked may be missing though it is more similar.
        keys = {mask_digits(toy[j].title) for j in row["similar_idx"]}
        better = [
            j
            for j in range(len(toy))
            if j not in row["similar_idx"] and cosine(j) > min(map(cosine, neighbours)) + FLOAT64
        ]
        assert all(mask_digits(toy[j].title) in keys for j in better)
        assert left


def test_masks() -> None:
    assert mask_digits("У 2024 році 12,5 %") == "У XXXX році XX,X %"
    assert mask_digits("²٣ п'ять") == "²٣ п'ять"  # ASCII digits only, as published
    assert (UKRAINIAN / "numerals.csv").read_text(encoding="utf-8") == table_of(), "python -m tools.freeze_rows"
    words = Language().number_words
    assert mask_digits("П'ять із двадцяти третьої о 7", words) == "X із двадцяти X о X"
    for apostrophe in "’ʼ‘`´＇":  # the slides of the paper print U+02BC
        assert mask_digits(f"П{apostrophe}ять", words) == "X"
    row = ROWS["up_masked"]["train"][0]
    assert not re.search("[0-9]", row["masked_text"] + "".join(row["similar_titles"]))
    unmasked = ROWS["up_unmasked"]["train"][0]
    assert masked_row(unmasked) == row
    assert re.search("[0-9]", "".join(unmasked["similar_titles"]))


def test_one_title_is_true_of_an_article_and_none_is_copied_from_its_text() -> None:
    for masked, row in zip(ROWS["up_masked"]["train"], ROWS["up_unmasked"]["train"], strict=True):
        for each, gold in ((masked, masked["masked_title"]), (row, row["ukr_title"])):
            assert len({*each["similar_titles"]}) == 10
            assert each["similar_titles"][each["label"]] == gold
        assert row["ukr_title"].lower() not in row["ukr_text"].lower()
        assert len({re.findall("X+", title)[0] for title in masked["similar_titles"]}) == 1
