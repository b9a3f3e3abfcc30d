"""People's answers to the examples of one task -> one label an example.

Arrives: a folder of annotation files, a task's examples, a rule that says which answers are equal.
Leaves: `TaskLabels`; files of other rows, or of an annotator twice, are one sentence.  It
deliberately does not know right answers or models.

    own/capitals.tsv    of the task own/capitals, in the columns of `humans`:
        INPUT:row       the line of the task's data file, from 0, as samples have it
        OUTPUT:choice   the place of the chosen choice, from 0; or
        OUTPUT:answer   its text, or the text that answers
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.config import BaselineProcedure
from miron_jax.definitions.records import AnyExample
from miron_jax.errors import InputError, some_of
from miron_jax.humans.annotations import (
    PROJECTS,
    Annotations,
    Answer,
    Columns,
    canonical,
    read_annotations,
)
from miron_jax.humans.baseline import Baseline, baseline
from miron_jax.humans.tables import read_table

FORMATS = (".tsv", ".csv")
ROW = "INPUT:row"
CHOICE = "OUTPUT:choice"
ANSWER = "OUTPUT:answer"
_PROJECT = PROJECTS["plain"]._replace(as_written=True)

# (example, an answer, whether it is a choice's place) -> a text that equal answers share;
# ValueError for what is no answer to it
LabelOf = Callable[[AnyExample, str, bool], str]


class TaskLabels(NamedTuple):
    file: Path
    of_row: Mapping[int, str]  # as `LabelOf` gives it
    procedure: BaselineProcedure
    people: Baseline  # annotators, votes and agreement; no right answers


def check_folder(folder: Path, tasks: Mapping[str, bool]) -> None:
    """Raises InputError for a folder without labels of a task of the run, and for labels of a task
    that its suite lacks.  `tasks`: all of the run's suites -> whether the run has it."""
    example = next(filter(tasks.get, tasks)) + FORMATS[0]
    if not folder.is_dir():
        raise InputError(
            f"--human_labels={folder} is no folder, expected one with a file a task, such as "
            f"{example}: name it"
        )
    names = list[str]()
    for file in sorted(folder.rglob("*")):
        if file.suffix in FORMATS:
            names.append(file.relative_to(folder).with_suffix("").as_posix())
    for name in names:
        suite = name.partition("/")[0]
        of_suite = [each for each in tasks if each.startswith(f"{suite}/")]
        if of_suite and name not in of_suite:
            raise InputError(
                f"--human_labels={folder}: {suite} has no task {name}, expected one of "
                f"{some_of(of_suite, 4)}: rename the file"
            )
    if not any(map(tasks.get, names)):
        raise InputError(
            f"--human_labels={folder} has labels of {some_of(names, 4) or 'no task'}, expected "
            f"those of a task of this run, such as {example}: add the file, or leave the flag out"
        )


def file_of(folder: Path, task_name: str) -> Path | None:
    """The file of a task's labels; None: there is none.  Raises InputError for two."""
    tsv, csv = (Path(folder, f"{task_name}{suffix}") for suffix in FORMATS)
    if tsv.is_file() and csv.is_file():
        raise InputError(
            f"{tsv} and {csv.name} are both there, expected one file: remove the other"
        )
    return next(filter(Path.is_file, (tsv, csv)), None)


def read_labels(
    file: Path,
    task_name: str,
    examples: Sequence[AnyExample],
    label_of: LabelOf,
    procedure: BaselineProcedure,
) -> TaskLabels:
    """One label an example, by procedure A or B of `humans`; B leaves an even split without.

    Raises InputError.
    """
    answer_column = _answer_column(file)
    annotations = read_annotations([file], Columns((ROW,), answer_column), _PROJECT)
    by_row = {example.row: example for example in examples}
    answers = list[Answer]()
    rows = set[tuple[str, int]]()
    for answer in annotations.answers:
        if answer.right is not None:  # a control task, whose row is no line of the data file
            answers.append(answer)
            continue
        at = f"{file}: annotator {answer.worker}, row {answer.item[0]:.20}"
        row = _row(answer.item[0], by_row, f"{at}: {task_name} has no such row")
        if (answer.worker, row) in rows:
            raise InputError(f"{at}: answered twice, expected once: leave one of the answers out")
        rows.add((answer.worker, row))
        try:
            label = label_of(by_row[row], answer.answer, answer_column == CHOICE)
        except ValueError as error:
            raise InputError(f"{at}: {error}: mend the answer") from None
        answers.append(answer._replace(item=(str(row),), answer=label))
    if not rows:
        raise InputError(
            f"{file} has no answer to an example, expected lines with {ROW}, an answer and "
            f"{Columns().worker}: add them"
        )
    people, labels, decided = baseline(
        Annotations((ROW,), answers, annotations.num_dropped), None, {}, _PROJECT
    )
    if procedure == "B":
        labels = {}
        for item, label in decided.items():
            if label.origin != "undecided":
                labels[item] = label.answer
    if not labels:
        raise InputError(
            f"{file}: no row of {people.items} has a label by procedure {procedure}, as "
            f"{len(people.rejected)} of {people.workers} annotators fail their control tasks and "
            f"{people.even} rows are even: expected an answer that wins; ask more people"
        )
    of_row = {int(row): label for (row,), label in labels.items()}
    return TaskLabels(file, of_row, procedure, people)


def label_of_choice(choices: Sequence[str], delimiter: str, answer: str, is_place: bool) -> str:
    """The place of a choice, from 0, by its place or its text.  `delimiter`: what each choice
    begins with, and people do not see.  Raises ValueError."""
    if is_place:
        place = _whole(answer)
        if place is not None and place < len(choices):
            return str(place)
        raise ValueError(f"{CHOICE} is {answer!r:.40}, expected 0 to {len(choices) - 1}")
    texts = list[str]()
    for choice in choices:
        texts.append(canonical(label_of_text(choice.removeprefix(delimiter))))
    text = canonical(label_of_text(answer))
    if texts.count(text) > 1:
        raise ValueError(f"several choices are {answer!r:.40}, expected {CHOICE}, a place")
    if text not in texts:
        raise ValueError(f"{ANSWER} is {answer!r:.40}, expected one of {some_of(texts, 6)}")
    return str(texts.index(text))


def label_of_text(answer: str, is_place: bool = False) -> str:
    """The words, with one blank between them.  Raises ValueError for a place."""
    if is_place:
        raise ValueError(f"the task has no choices, expected the column {ANSWER}, a text")
    return " ".join(answer.split())


def _answer_column(file: Path) -> str:
    header, _ = read_table(file)
    outputs = [name for name in header if name.startswith("OUTPUT:")]
    worker = Columns().worker
    if outputs not in ([CHOICE], [ANSWER]) or not {ROW, worker} <= set(header):
        raise InputError(
            f"{file} has the columns {', '.join(header)}, expected {ROW}, {worker} and one of "
            f"{CHOICE} and {ANSWER}: rename those that hold them"
        )
    return outputs[0]


def _whole(text: str) -> int | None:
    """A place or a row, of at most 9 digits; None: the text is none."""
    digits = canonical(text)
    if digits.isascii() and digits.isdecimal() and len(digits) <= 9:
        return int(digits)
    return None


def _row(text: str, by_row: Collection[int], at: str) -> int:
    row = _whole(text)
    if row is not None and row in by_row:
        return row
    raise InputError(
        f"{at}, expected lines of its data file, {min(by_row)} to {max(by_row)}: give the labels "
        "of these data"
    )
