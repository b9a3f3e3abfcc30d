"""Facts: cloze items over hand-made tables, where each row has one short answer that nobody
disputes.

Arrives: a draw; the tables of one language, facts_en.json or facts_ru.json.  Leaves: drafts,
training sentences with the same facts in other words, and every entity in the forms that drafts
show.  It deliberately does not know grammar: the tables hold every form that a template needs.

The tables deliberately omit entities and answers with a second name or spelling (Kyiv, gray,
sulfur; Беларусь, Таллинн, пилот and лётчик), renamed or disputed ones (Astana), entities that share
a name with their answer (Tunisia), and numerals that would have to agree (один, and two of a
feminine noun).  Autumn is an entity but no answer, as some call it fall.  English: every answer
after "a" begins with a consonant.  Russian: the forms nom, gen, acc name cases; an answer is a
nominative that agrees with nothing in its template, but a genitive in the table of raw materials,
where every wording ends in "из"; words with ё are written with it, and no answer has one, because
many write е instead.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.miron_gen.draft import Draft

NUM_DISTRACTORS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One fact."""

    forms: tuple[str, ...]  # the entity, one form for each of the table's form names
    answer: str  # in the form that fits every template of the table


@dataclass(frozen=True, slots=True)
class Table:
    """Facts of one sort with their wordings."""

    name: str
    form_names: tuple[str, ...]  # {gen} in a template is the form "gen", {Gen} the same capitalized
    rows: tuple[Row, ...]
    templates: tuple[str, ...]  # of the benchmark: with one form; the answer follows
    # whole sentences with an {answer}, none of them a benchmark wording
    training_templates: tuple[str, ...]
    more_answers: tuple[str, ...] = ()  # of the same sort but in no row: distractors only
    # (first form, answer): too nearly right to be its distractor
    arguable: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All tables of one language."""

    lang: str
    tables: tuple[Table, ...]


class Cloze(NamedTuple):
    """A template filled with one row."""

    prefix: str
    entity: str  # in the form that the prefix has
    answer: str
    template: str  # table and index among its templates: "capital/2"


def rows(*lines: Sequence[str]) -> tuple[Row, ...]:
    """Rows from lines of forms and the answer."""
    return tuple(Row(tuple(line[:-1]), line[-1]) for line in lines)


@cache
def tables_of(lang: str) -> Facts:
    """The tables of "en" or "ru"."""
    tables = json.loads(Path(__file__).with_name(f"facts_{lang}.json").read_text(encoding="utf-8"))
    return Facts(
        lang,
        tuple(
            Table(
                name=name,
                form_names=tuple(table["forms"]),
                rows=rows(*table["rows"]),
                templates=tuple(table["templates"]),
                training_templates=tuple(table["training_templates"]),
                more_answers=tuple(table.get("more_answers", ())),
                arguable=tuple((entity, answer) for entity, answer in table.get("arguable", ())),
            )
            for name, table in tables.items()
        ),
    )


def draft(draw: Draw, facts: Facts) -> Draft | None:
    """One candidate; None if its prefix contains the answer."""
    # uniform over all tables, so 500 items cover small ones too
    table, row = draw.choice(_rows_of(facts))
    cloze = _cloze(table, row, draw.below(len(table.templates)))
    if gives_away(cloze.prefix, cloze.answer):
        return None
    wrong = draw.sample(_wrong_answers(table, row), NUM_DISTRACTORS)
    return Draft(
        prefix=cloze.prefix,
        target=f" {cloze.answer}",
        distractors=tuple(f" {answer}" for answer in wrong),
        template=cloze.template,
        meta=(("entity", cloze.entity), ("table", table.name)),
    )


def training_sentence(draw: Draw, facts: Facts) -> str:
    table, row = draw.choice(_rows_of(facts))
    return _sentence(table, row, draw.choice(table.training_templates))


def clozes(facts: Facts) -> Iterator[Cloze]:
    """Every row in every benchmark wording: all possible items."""
    return (
        _cloze(table, row, i) for table, row in _rows_of(facts) for i in range(len(table.templates))
    )


def training_sentences(facts: Facts) -> Iterator[str]:
    return (
        _sentence(table, row, text)
        for table, row in _rows_of(facts)
        for text in table.training_templates
    )


def entity_pool(facts: Facts) -> tuple[str, ...]:
    """All forms of entities that prefixes show, without repetition, in table order."""
    return tuple(dict.fromkeys(cloze.entity for cloze in clozes(facts)))


def gives_away(prefix: str, answer: str) -> bool:
    """Whether the prefix contains the answer: one of 1 or 2 letters as a word ("no" is part of
    many), others anywhere."""
    pattern = re.escape(answer.casefold())
    return (
        re.search(pattern if len(answer) > 2 else rf"\b{pattern}\b", prefix.casefold()) is not None
    )


def _rows_of(facts: Facts) -> list[tuple[Table, Row]]:
    return [(table, row) for table in facts.tables for row in table.rows]


def _cloze(table: Table, row: Row, template_idx: int) -> Cloze:
    template = table.templates[template_idx]
    forms = _by_name(table.form_names, row.forms)
    (entity,) = (form for name, form in forms.items() if f"{{{name}}}" in template)
    return Cloze(template.format_map(forms), entity, row.answer, f"{table.name}/{template_idx}")


def _sentence(table: Table, row: Row, template: str) -> str:
    return template.format_map(_by_name((*table.form_names, "answer"), (*row.forms, row.answer)))


def _by_name(names: tuple[str, ...], forms: tuple[str, ...]) -> dict[str, str]:
    """gen -> Франции, Gen -> Франции; step -> day after Monday, Step -> Day after Monday."""
    plain = dict(zip(names, forms, strict=True))
    return plain | {_capital(name): _capital(form) for name, form in plain.items()}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _wrong_answers(table: Table, row: Row) -> list[str]:
    """The table's answers without repetition, except the right one and those arguable for this
    row."""
    arguable = {answer for entity, answer in table.arguable if entity == row.forms[0]}
    answers = dict.fromkeys((*(other.answer for other in table.rows), *table.more_answers))
    return [answer for answer in answers if answer != row.answer and answer not in arguable]
