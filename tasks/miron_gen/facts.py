"""Facts: cloze items over hand-made tables, where each row has one short answer that nobody disputes.

Arrives: a draw and the tables of one language.  Leaves: drafts, training sentences that tell the same facts in other
words, and every entity as the drafts can show it.  It deliberately does not know grammar: whatever case, number or
agreement a template asks for is written out in the tables.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.miron_gen.draft import Draft

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


def rows(*lines: tuple[str, ...]) -> tuple[Row, ...]:
    """Lines as the tables write them: the forms, then the answer."""
    return tuple(Row(line[:-1], line[-1]) for line in lines)


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
