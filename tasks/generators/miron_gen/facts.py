"""Facts: cloze items over hand-made tables, where each row has one short answer that nobody
disputes.

Arrives: a draw; the tables of one language, its facts.json.  Leaves: drafts,
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

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import shown
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen.language import check_fields
from miron_jax.tasks.generators.miron_gen.draft import (
    Draft,
    package_folder,
    read_file,
    rows_of,
    texts_of,
)

NUM_DISTRACTORS = 3


@dataclass(frozen=True, slots=True)
class Fact:
    forms: tuple[str, ...]  # the entity, one form for each of the table's form names
    answer: str  # in the form that fits every template of the table


@dataclass(frozen=True, slots=True)
class FactTable:
    """Facts of one sort with their wordings."""

    name: str
    form_names: tuple[str, ...]  # {gen} in a template is the form "gen", {Gen} the same capitalized
    rows: tuple[Fact, ...]
    templates: tuple[str, ...]  # of the benchmark: with one form; the answer follows
    # whole sentences with an {answer}, none of them a benchmark wording
    training_templates: tuple[str, ...]
    more_answers: tuple[str, ...] = ()  # of the same sort but in no row: distractors only
    # (first form, answer): too nearly right to be its distractor
    arguable: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class FactTables:
    """All tables of one language."""

    lang: str
    tables: tuple[FactTable, ...]


class FilledTemplate(NamedTuple):
    prefix: str
    entity: str  # in the form that the prefix has
    answer: str
    template: str  # table and index among its templates: "capital/2"


def rows(*lines: Sequence[str]) -> tuple[Fact, ...]:
    """Rows from lines of forms and the answer."""
    return tuple(Fact(tuple(line[:-1]), line[-1]) for line in lines)


@cache
def tables_of(lang: str) -> FactTables:
    """The tables of "en" or "ru"."""
    return read_tables(package_folder(lang))


def read_tables(folder: Path) -> FactTables:
    """The tables of a language.  Raises InputError."""
    path = folder / "facts.json"
    tables = []
    for name, fields in read_file(path).items():
        if not isinstance(fields, dict):
            raise InputError(f"{path}: {name} is {shown(fields)}, expected a table: mend it")
        form_names = texts_of(path, f"forms of {name}", fields.get("forms"))
        given = rows_of(path, name, fields.get("rows"), (*form_names, "the answer"), 1)
        training = fields.get("training_templates", [])
        more = fields.get("more_answers", [])
        arguable = fields.get("arguable", [])
        table = FactTable(
            name=name,
            form_names=form_names,
            rows=rows(*given),
            templates=texts_of(path, f"templates of {name}", fields.get("templates")),
            training_templates=texts_of(path, f"training_templates of {name}", training, 0),
            more_answers=texts_of(path, f"more_answers of {name}", more, 0),
            arguable=rows_of(path, f"arguable of {name}", arguable, ("entity", "answer")),
        )
        _check(table, path)
        tables.append(table)
    if not tables:
        raise InputError(f"{path}: it has no table, expected one or more: add them")
    return FactTables(folder.name, tuple(tables))


def _check(table: FactTable, path: Path) -> None:
    """Raises InputError for a template that names other than one form, and for too few answers."""
    fields = [*table.form_names, *map(_capital, table.form_names)]
    for i, template in enumerate(table.templates):
        at = f"{path}: template {i} of {table.name}"
        check_fields(template, fields, at)
        if len(re.findall("{", template)) != 1:
            raise InputError(f"{at} is {template!r:.60}, expected one form of the entity: mend it")
    for row in table.rows:
        if len(_wrong_answers(table, row)) < NUM_DISTRACTORS:
            raise InputError(
                f"{path}: {table.name} has {len(_wrong_answers(table, row))} wrong answers for "
                f"{row.forms[0]!r}, expected {NUM_DISTRACTORS}: add rows, or more_answers"
            )


def draft(draw: Stream, facts: FactTables) -> Draft | None:
    """One candidate; None if its prefix contains the answer."""
    # uniform over all tables, so 500 items cover small ones too
    table, row = draw.choice(_rows_of(facts))
    cloze = _filled(table, row, draw.below(len(table.templates)))
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


def training_sentence(draw: Stream, facts: FactTables) -> str:
    table, row = draw.choice(_rows_of(facts))
    return _sentence(table, row, draw.choice(table.training_templates))


def clozes(facts: FactTables) -> Iterator[FilledTemplate]:
    """Every row in every benchmark wording: all possible items."""
    for table, row in _rows_of(facts):
        for i in range(len(table.templates)):
            yield _filled(table, row, i)


def training_sentences(facts: FactTables) -> Iterator[str]:
    for table, row in _rows_of(facts):
        for text in table.training_templates:
            yield _sentence(table, row, text)


def entity_pool(facts: FactTables) -> tuple[str, ...]:
    """All forms of entities that prefixes show, without repetition, in table order."""
    return tuple(dict.fromkeys(map(attrgetter("entity"), clozes(facts))))


def gives_away(prefix: str, answer: str) -> bool:
    """Whether the prefix contains the answer: one of 1 or 2 letters as a word ("no" is part of
    many), others anywhere."""
    pattern = re.escape(answer.casefold())
    if len(answer) <= 2:
        pattern = rf"\b{pattern}\b"
    return re.search(pattern, prefix.casefold()) is not None


def _rows_of(facts: FactTables) -> list[tuple[FactTable, Fact]]:
    return [(table, row) for table in facts.tables for row in table.rows]


def _filled(table: FactTable, row: Fact, template_idx: int) -> FilledTemplate:
    template = table.templates[template_idx]
    forms = _by_name(table.form_names, row.forms)
    (entity,) = (form for name, form in forms.items() if f"{{{name}}}" in template)
    prefix = template.format_map(forms)
    return FilledTemplate(prefix, entity, row.answer, f"{table.name}/{template_idx}")


def _sentence(table: FactTable, row: Fact, template: str) -> str:
    return template.format_map(_by_name((*table.form_names, "answer"), (*row.forms, row.answer)))


def _by_name(names: tuple[str, ...], forms: tuple[str, ...]) -> dict[str, str]:
    """gen -> Франции, Gen -> Франции; step -> day after Monday, Step -> Day after Monday."""
    plain = dict(zip(names, forms, strict=True))
    return plain | {_capital(name): _capital(form) for name, form in plain.items()}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _wrong_answers(table: FactTable, row: Fact) -> list[str]:
    """The table's answers without repetition, except the right one and those arguable for this
    row."""
    answers = dict.fromkeys((*map(attrgetter("answer"), table.rows), *table.more_answers))
    for entity, answer in ((row.forms[0], row.answer), *table.arguable):
        if entity == row.forms[0]:
            answers.pop(answer, None)
    return list(answers)
