"""Rows of a data file -> the texts that a model would know if it had read the file: question and
right answer.

Arrives: a task and its examples.  Leaves: a `RowText` for each row of the file, in its order.  It
deliberately does not know tokens.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from miron_jax.definitions.records import (
    AnyExample,
    AnyTask,
    Cloze,
    Document,
    Problem,
    Question,
    Wording,
)
from miron_jax.prompting.prompts import shot_parts


class RowText(NamedTuple):
    """A row as one text."""

    row: int  # place in the data file, from 0
    name: str  # as its file names it; else the row
    text: str
    group: str  # rows of one group are made alike: the category, or ""
    cluster: str  # rows of one cluster are not independent


class RowsAndTwins(NamedTuple):
    """The rows of a task."""

    rows: list[RowText]
    twins: list[RowText | None] | None  # of each row; None: there are none
    git_blob_sha1: str | None  # of the data file


def row_texts(task: AnyTask, examples: Sequence[AnyExample]) -> list[RowText]:
    """One a row, of the first example that a row has; of a row whose right answer is not published
    the question alone."""
    by_row = dict[int, RowText]()
    for example in examples:
        if example.row not in by_row:
            by_row[example.row] = _row_text(task, example)
    return [by_row[row] for row in sorted(by_row)]


def _row_text(task: AnyTask, example: AnyExample) -> RowText:
    name = str(example.row)
    group = ""
    cluster = name
    if isinstance(example, Document):
        name = example.doc_id
        text = example.text
    elif isinstance(example, Problem):
        name = example.name
        text = example.prompt + example.solution
    elif isinstance(example, Cloze):
        name = example.name
        text = example.prefix + example.target
        group = example.category
        cluster = example.clean_prefix or example.prefix or name
    else:
        published = example.published or {}
        name = str(published.get("id", name))
        group = example.category or ""
        if example.cluster is not None:
            cluster = f"cluster {example.cluster}"
        text = example.contexts[0]
        space = ""
        if isinstance(example, Question) and example.gold is None and example.accepted:
            example = replace(example, gold=0, continuations=example.accepted[:1])
            space = " "
        if example.gold is not None and isinstance(task.profile, Wording):
            context, answer = shot_parts(example, task.profile)
            if context[-1:].isspace() or answer[:1].isspace():
                space = ""
            text = context + space + answer
    return RowText(example.row, name, text, group, cluster)
