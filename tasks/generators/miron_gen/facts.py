"""Facts: cloze items over hand-made tables, where each row has one short answer that nobody disputes.

Arrives: a draw; the tables of one language, facts_en.json or facts_ru.json.  Leaves: drafts, training sentences that
tell the same facts in other words, and every entity as the drafts can show it.  It deliberately does not know grammar:
whatever case, number or agreement a template asks for is written out in the tables.

What the tables leave out on purpose: what has a second name or spelling (Kyiv, gray, sulfur; Беларусь, Таллинн, пилот
and лётчик), what was renamed or is disputed (Astana), what shares its name with its answer (Tunisia), numerals that
would have to agree (один, and two of a feminine noun).  Autumn may be asked about but is no answer: some call it
fall.  English: every answer after "a" begins with a consonant.  Russian: the forms nom, gen, acc name cases; an answer is
a nominative that agrees with nothing in its template, but a genitive in the table of raw materials, where every wording
ends in "из"; words with ё are written with it, and no answer has one, because many write е there.
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
    answer: str  # as every template of the table wants it


@dataclass(frozen=True, slots=True)
class Table:
    """Facts of one sort, and the wordings they come in."""

    name: str
    form_names: tuple[str, ...]  # {gen} in a template shows the form "gen", {Gen} the same with a capital
    rows: tuple[Row, ...]
    templates: tuple[str, ...]  # of the benchmark: show one form, stop where the answer goes on
    training_templates: tuple[str, ...]  # whole sentences with an {answer}, none of them a benchmark wording
    more_answers: tuple[str, ...] = ()  # of the same sort but no row's answer: distractors only
    arguable: tuple[tuple[str, str], ...] = ()  # (first form, answer): too nearly right to be a distractor there


@dataclass(frozen=True, slots=True)
class Facts:
    """All tables of one language."""

    lang: str
    tables: tuple[Table, ...]


class Cloze(NamedTuple):
    """A template with one row in it."""

    prefix: str
    entity: str  # as it stands in the prefix
    answer: str
    template: str  # table and place among its templates, from 0: "capital/2"


def rows(*lines: Sequence[str]) -> tuple[Row, ...]:
    """Lines as the tables write them: the forms, then the answer."""
    return tuple(Row(tuple(line[:-1]), line[-1]) for line in lines)


@cache
def tables_of(lang: str) -> Facts:
    """The tables of "en" or "ru"."""
    found = json.loads(Path(__file__).with_name(f"facts_{lang}.json").read_text(encoding="utf-8"))
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
            for name, table in found.items()
        ),
    )


def draft(draw: Draw, facts: Facts) -> Draft | None:
    """One candidate; None where the wording gives its answer away."""
    table, row = _table_and_row(draw, facts)
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
    table, row = _table_and_row(draw, facts)
    return _told(table, row, draw.choice(table.training_templates))


def clozes(facts: Facts) -> Iterator[Cloze]:
    """Every row in every benchmark wording: the whole capacity."""
    for table in facts.tables:
        for row in table.rows:
            for place in range(len(table.templates)):
                yield _cloze(table, row, place)


def training_sentences(facts: Facts) -> Iterator[str]:
    for table in facts.tables:
        for row in table.rows:
            for template in table.training_templates:
                yield _told(table, row, template)


def entity_pool(facts: Facts) -> tuple[str, ...]:
    """Every entity as some prefix shows it, once each, in table order."""
    return tuple(dict.fromkeys(cloze.entity for cloze in clozes(facts)))


def gives_away(prefix: str, answer: str) -> bool:
    """Whether the answer can be read in the prefix: a long one even inside a word, one of 1 or 2 letters on its own.

    "Au" and "no" hide in too many words to mean anything there.
    """
    wanted = re.escape(answer.casefold())
    return re.search(wanted if len(answer) > 2 else rf"\b{wanted}\b", prefix.casefold()) is not None


def _table_and_row(draw: Draw, facts: Facts) -> tuple[Table, Row]:
    """A table weighs as much as it has rows, so 500 items leave none of the small ones empty."""
    return draw.choice([(table, row) for table in facts.tables for row in table.rows])


def _cloze(table: Table, row: Row, place: int) -> Cloze:
    template, forms = table.templates[place], _by_name(table.form_names, row.forms)
    (entity,) = (form for name, form in forms.items() if f"{{{name}}}" in template)
    return Cloze(template.format_map(forms), entity, row.answer, f"{table.name}/{place}")


def _told(table: Table, row: Row, template: str) -> str:
    return template.format_map(_by_name((*table.form_names, "answer"), (*row.forms, row.answer)))


def _by_name(names: tuple[str, ...], forms: tuple[str, ...]) -> dict[str, str]:
    """gen -> Франции, Gen -> Франции; step -> day after Monday, Step -> Day after Monday."""
    plain = dict(zip(names, forms, strict=True))
    return plain | {_capital(name): _capital(form) for name, form in plain.items()}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _wrong_answers(table: Table, row: Row) -> list[str]:
    """The table's answers, each once, less the right one and those one could defend for this row."""
    arguable = {answer for entity, answer in table.arguable if entity == row.forms[0]}
    answers = dict.fromkeys((*(other.answer for other in table.rows), *table.more_answers))
    return [answer for answer in answers if answer != row.answer and answer not in arguable]
