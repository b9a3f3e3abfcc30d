"""miron-gen's Facts: the tables satisfy the contract of items; drafts equal a toy table by hand."""

import re
import unicodedata
from collections import Counter
from string import Formatter

import pytest

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.miron_gen.draft import Draft
from miron_jax.tasks.generators.miron_gen.facts import (
    NUM_DISTRACTORS,
    Facts,
    Table,
    clozes,
    draft,
    entity_pool,
    gives_away,
    rows,
    tables_of,
    training_sentence,
    training_sentences,
)

LANGUAGES = [pytest.param(tables_of(lang), id=lang) for lang in ("en", "ru")]
SCRIPT = {"en": "LATIN", "ru": "CYRILLIC"}


def _drafts(facts: Facts, num_drafts: int) -> list[Draft]:
    drafts = (draft(Draw("test", facts.lang, i), facts) for i in range(num_drafts))
    return [item for item in drafts if item is not None]


def _scripts(text: str) -> set[str]:
    return {unicodedata.name(letter).split()[0] for letter in text if letter.isalpha()}


def _fields(template: str) -> list[str]:
    return [field for _, field, _, _ in Formatter().parse(template) if field is not None]


@pytest.mark.parametrize("facts", LANGUAGES)
def test_every_row_reads_well_in_every_template(facts: Facts) -> None:
    texts = [cloze.prefix for cloze in clozes(facts)] + list(training_sentences(facts))
    for text in texts:
        assert not re.search(r"[{}]|\s\s|[^\S ]|^\s|\s$", text), text
        assert unicodedata.is_normalized("NFC", text), text
        assert text[0].isupper() or not text[0].isalpha(), text
        assert all(len(_scripts(word)) < 2 for word in re.findall(r"\w+", text)), f"a word of two scripts: {text}"
    assert all(sentence.endswith(".") for sentence in training_sentences(facts))


@pytest.mark.parametrize("facts", LANGUAGES)
def test_answers_are_plain_words_of_the_language(facts: Facts) -> None:
    answers = {answer for table in facts.tables for answer in table.more_answers}
    answers |= {cloze.answer for cloze in clozes(facts)}
    for answer in answers:
        assert answer.isalpha(), answer  # one word, no digit, hyphen or space
        assert _scripts(answer) == {SCRIPT[facts.lang]}, answer
        assert unicodedata.is_normalized("NFC", answer), answer
        assert "ё" not in answer.casefold(), f"{answer}: many write е there"


@pytest.mark.parametrize("facts", LANGUAGES)
def test_no_prefix_holds_its_answer_and_all_prefixes_differ(facts: Facts) -> None:
    every = list(clozes(facts))
    assert [cloze for cloze in every if gives_away(cloze.prefix, cloze.answer)] == []
    assert [prefix for prefix, count in Counter(cloze.prefix.casefold() for cloze in every).items() if count > 1] == []


def test_long_answers_are_found_inside_words_and_short_ones_on_their_own() -> None:
    assert gives_away("The capital of Panama is", "Panama")
    assert gives_away("Ein Stern über MEXICOS Karte:", "Mexico")
    assert gives_away("The symbol H stands for", "H")
    assert not gives_away("The chemical symbol for hydrogen is", "H")
    assert not gives_away("The opposite of yes is", "no")


@pytest.mark.parametrize("facts", LANGUAGES)
def test_an_entity_stands_once_in_its_prefix_and_in_the_pool(facts: Facts) -> None:
    pool = entity_pool(facts)
    assert len(set(pool)) == len(pool)
    for cloze in clozes(facts):
        assert cloze.prefix.count(cloze.entity) == 1, cloze
        assert cloze.entity in pool


@pytest.mark.parametrize("facts", LANGUAGES)
def test_tables_agree_with_themselves(facts: Facts) -> None:
    assert len({table.name for table in facts.tables}) == len(facts.tables)
    for table in facts.tables:
        for form_idx in range(len(table.form_names)):  # no form belongs to two entities
            assert len({row.forms[form_idx].casefold() for row in table.rows}) == len(table.rows), table.name
        entities, right = {row.forms[0] for row in table.rows}, {(row.forms[0], row.answer) for row in table.rows}
        answers = {row.answer for row in table.rows} | {*table.more_answers}
        assert {entity for entity, _ in table.arguable} <= entities, table.name
        assert {answer for _, answer in table.arguable} <= answers, table.name
        assert right.isdisjoint(table.arguable), table.name
        assert len(set(table.arguable)) == len(table.arguable), table.name
        assert {row.answer for row in table.rows}.isdisjoint(table.more_answers), table.name


@pytest.mark.parametrize("facts", LANGUAGES)
def test_wordings_have_one_form_and_those_of_training_the_answer(facts: Facts) -> None:
    for table in facts.tables:
        names = {*table.form_names, *(name.capitalize() for name in table.form_names)}
        assert len(table.templates) >= 4, table.name
        assert len(table.training_templates) >= 3, table.name
        assert len({*table.templates, *table.training_templates}) == len(table.templates + table.training_templates)
        for template in table.templates:
            assert len(_fields(template)) == 1, template
            assert set(_fields(template)) <= names, template
        for template in table.training_templates:
            answer_fields = {*_fields(template)} & {"answer", "Answer"}
            assert len(answer_fields) == 1, template
            assert {*_fields(template)} - answer_fields <= names, template
            assert {*_fields(template)} - answer_fields, template


@pytest.mark.parametrize("facts", LANGUAGES)
def test_training_never_shows_a_benchmark_prefix(facts: Facts) -> None:
    """Stronger than "prefix and answer": no training text contains a prefix."""
    text = "\n".join(training_sentences(facts)).casefold()
    assert [cloze.prefix for cloze in clozes(facts) if cloze.prefix.casefold() in text] == []


@pytest.mark.parametrize("facts", LANGUAGES)
def test_capacity(facts: Facts) -> None:
    capacity = Counter(cloze.template.partition("/")[0] for cloze in clozes(facts))
    assert capacity.total() >= 2000
    assert max(capacity.values()) <= capacity.total() / 8  # no table is most of the category


@pytest.mark.parametrize("facts", LANGUAGES)
def test_500_distinct_prefixes_spread_over_the_tables(facts: Facts) -> None:
    drafts = {item.prefix: item for item in _drafts(facts, 600)}
    first = Counter(dict(item.meta)["table"] for item in list(drafts.values())[:500])
    assert first.total() == 500  # 600 draws do: few prefixes come twice
    assert {*first} == {table.name for table in facts.tables}
    assert min(first.values()) >= 3
    assert max(first.values()) <= 75


@pytest.mark.parametrize("facts", LANGUAGES)
def test_drafts_are_sound(facts: Facts) -> None:
    tables = {table.name: table for table in facts.tables}
    known = {(cloze.prefix, cloze.answer): cloze for cloze in clozes(facts)}
    for item in _drafts(facts, 600):
        meta = dict(item.meta)
        cloze, table = known[item.prefix, item.target[1:]], tables[meta["table"]]
        assert item.target == f" {cloze.answer}"
        assert item.template == cloze.template
        assert meta["entity"] == cloze.entity
        options = (item.target, *item.distractors)
        assert len({text.casefold() for text in options}) == len(options) == NUM_DISTRACTORS + 1
        assert {text[1:] for text in options} <= {row.answer for row in table.rows} | {*table.more_answers}
        (row,) = (row for row in table.rows if meta["entity"].casefold() in map(str.casefold, row.forms))
        assert {(row.forms[0], text[1:]) for text in item.distractors}.isdisjoint(table.arguable)


def test_a_toy_table_by_hand() -> None:
    """Of red, blue, blue, pink, green and gray, three are distractors of a rose: not red, not pink, one blue."""
    colors = rows(("rose", "red"), ("sky", "blue"), ("sea", "blue"), ("pig", "pink"), ("pea", "green"))
    table = Table(
        "color",
        ("thing",),
        colors,
        ("{Thing}:",),
        ("{Answer} {thing}.",),
        more_answers=("gray",),
        arguable=(("rose", "pink"),),
    )
    toy = Facts("en", (table,))
    drafts = {item.prefix: item for item in _drafts(toy, 50)}
    assert drafts["Rose:"][:2] == ("Rose:", " red")
    assert {*drafts["Rose:"].distractors} == {" blue", " green", " gray"}
    assert drafts["Rose:"][3:] == ("color/0", (("entity", "Rose"), ("table", "color")))
    assert {training_sentence(Draw("toy", i), toy) for i in range(50)} == {
        "Red rose.", "Blue sky.", "Blue sea.", "Pink pig.", "Green pea."
    }  # fmt: skip


def test_a_prefix_that_holds_its_answer_is_no_draft() -> None:
    cities = rows(("Panama", "Panama"), ("Peru", "Lima"), ("Cuba", "Havana"), ("Mali", "Bamako"), ("Iraq", "Baghdad"))
    toy = Facts("en", (Table("capital", ("country",), cities, ("The capital of {country} is",), ("{answer}",)),))
    drafts = [draft(Draw("toy", i), toy) for i in range(60)]
    assert None in drafts
    assert {item.target for item in drafts if item is not None} == {" Lima", " Havana", " Bamako", " Baghdad"}
