"""miron-gen's Facts: the tables satisfy the contract of items; drafts equal a toy table by hand."""

import re

import pytest

from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.miron_gen.draft import Draft
from miron_jax.tasks.generators.miron_gen.facts import (
    NUM_DISTRACTORS,
    FactTable,
    FactTables,
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


def _drafts(facts: FactTables, num_drafts: int) -> list[Draft]:
    drafts = (draft(Stream("test", facts.lang, i), facts) for i in range(num_drafts))
    return [item for item in drafts if item is not None]


@pytest.mark.parametrize("facts", LANGUAGES)
def test_no_prefix_holds_its_answer_and_no_training_text_holds_a_prefix(facts: FactTables) -> None:
    every, pool, training = list(clozes(facts)), entity_pool(facts), "\n".join(training_sentences(facts)).casefold()
    for cloze in every:
        assert not gives_away(cloze.prefix, cloze.answer), cloze
        assert cloze.prefix.casefold() not in training, cloze
        assert cloze.prefix.count(cloze.entity) == 1, cloze
        assert cloze.entity in pool
        assert cloze.answer.isalpha(), cloze  # one word, no digit, hyphen or space
    assert len({cloze.prefix.casefold() for cloze in every}) == len(every) >= 2000
    assert not re.search(r"[{}]|  ", training)


def test_long_answers_are_found_inside_words_and_short_ones_on_their_own() -> None:
    assert gives_away("The capital of Panama is", "Panama")
    assert gives_away("Ein Stern über MEXICOS Karte:", "Mexico")
    assert gives_away("The symbol H stands for", "H")
    assert not gives_away("The chemical symbol for hydrogen is", "H")
    assert not gives_away("The opposite of yes is", "no")


@pytest.mark.parametrize("facts", LANGUAGES)
def test_tables_agree_with_themselves(facts: FactTables) -> None:
    for table in facts.tables:
        for form_idx in range(len(table.form_names)):  # no form belongs to two entities
            assert len({row.forms[form_idx].casefold() for row in table.rows}) == len(table.rows), table.name
        entities, right = {row.forms[0] for row in table.rows}, {(row.forms[0], row.answer) for row in table.rows}
        answers = {row.answer for row in table.rows} | {*table.more_answers}
        assert {entity for entity, _ in table.arguable} <= entities, table.name
        assert {answer for _, answer in table.arguable} <= answers, table.name
        assert right.isdisjoint(table.arguable), table.name


@pytest.mark.parametrize("facts", LANGUAGES)
def test_drafts_are_sound(facts: FactTables) -> None:
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
    table = FactTable(
        "color",
        ("thing",),
        colors,
        ("{Thing}:",),
        ("{Answer} {thing}.",),
        more_answers=("gray",),
        arguable=(("rose", "pink"),),
    )
    toy = FactTables("en", (table,))
    drafts = {item.prefix: item for item in _drafts(toy, 50)}
    assert drafts["Rose:"][:2] == ("Rose:", " red")
    assert {*drafts["Rose:"].distractors} == {" blue", " green", " gray"}
    assert drafts["Rose:"][3:] == ("color/0", (("entity", "Rose"), ("table", "color")))
    assert {training_sentence(Stream("toy", i), toy) for i in range(50)} == {
        "Red rose.", "Blue sky.", "Blue sea.", "Pink pig.", "Green pea."
    }  # fmt: skip
    # A prefix that holds its answer is no draft.
    cities = rows(("Panama", "Panama"), ("Peru", "Lima"), ("Cuba", "Havana"), ("Mali", "Bamako"), ("Iraq", "Baghdad"))
    toy = FactTables(
        "en", (FactTable("capital", ("country",), cities, ("The capital of {country} is",), ("{answer}",)),)
    )
    candidates = [draft(Stream("toy", i), toy) for i in range(60)]
    assert None in candidates
    assert {item.target for item in candidates if item} == {" Lima", " Havana", " Bamako", " Baghdad"}
