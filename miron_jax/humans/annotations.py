"""Annotation files -> answers: who labelled which item how, and the right answers of control tasks.

Arrives: TSV or CSV files, one answer a line, and the names of their columns.  Leaves: `Answer`s,
all fields as text: no value is read as a number, and "NA" and "null" are plain answers.  It
deliberately does not know how answers become labels.

Columns are by default Toloka's: INPUT:x (the item), OUTPUT:x (the answer), GOLDEN:x (the right
answer of a control task, else empty), ASSIGNMENT:worker_id, ASSIGNMENT:started and :submitted.
`Project` describes MERA's files of other forms.
"""

import ast
import math
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.humans.tables import PAGE, read_table
from miron_jax.metrics.answers import exact_match, normalize_squad

_WHOLE = re.compile(r"\A([+-]?\d+)\.0+\Z")


STARTED, SUBMITTED = "ASSIGNMENT:started", "ASSIGNMENT:submitted"


class Answer(NamedTuple):
    item: tuple[str, ...]  # the raw INPUT fields
    worker: str
    answer: str  # as `canonical`; a text as `normalize_squad`
    right: str | None  # of a control task; None: not a control task
    time: str = ""  # text that sorts by time; "": the file has none


class Project(NamedTuple):
    """The form of a project's annotation files, and which answers count (spec: MERA, section B)."""

    # a line's answer is a list [{"question": ..., "answer": ...}, ...] of items
    lists: bool = False
    texts_a_row: int = 1  # items of a line, in numbered columns: INPUT:text_1, OUTPUT:answer_1
    controls_vote: bool = False  # control tasks are items too
    one_vote: bool = False  # of an annotator's answers to an item the first in time counts
    needed: int | None = 3  # equal votes for a label of procedure A; None: more than half
    plurality: bool = False  # procedure A labels by strict plurality, whatever `needed`
    # annotators are rejected by their control tasks; else the platform has done that
    is_filtered: bool = True
    # answers are texts of an annotator's choice, of which several may be right, with ; between them
    are_texts: bool = False
    as_written: bool = False  # an answer keeps its spelling; only control tasks are compared
    answer_column: str = ""  # if several columns begin with OUTPUT:
    time_column: str = STARTED  # orders an annotator's answers

    def spelled(self, value: str) -> str:
        return value.strip() if self.are_texts or self.as_written else canonical(value)

    def is_right(self, answer: str, right: str) -> bool:
        if self.are_texts:
            return exact_match(answer, accepted(right)) == 1
        return canonical(answer) == canonical(right)


PROJECTS = {
    "plain": Project(one_vote=True, needed=None),
    "mera": Project(),
    "ruhhh": Project(controls_vote=True, one_vote=True, plurality=True, time_column=SUBMITTED),
    "rutie": Project(lists=True, is_filtered=False, answer_column="OUTPUT:result"),
    "ruethics": Project(texts_a_row=3, is_filtered=False),
    "texts": Project(are_texts=True),
}


class Columns(NamedTuple):
    """Column names of a header; an empty one is looked up by its Toloka prefix."""

    inputs: tuple[str, ...] = ()
    answer: str = ""
    right: str = ""
    worker: str = "ASSIGNMENT:worker_id"


class Annotations(NamedTuple):
    inputs: tuple[str, ...]  # columns of an item
    answers: list[Answer]  # in file order
    num_dropped: int  # lines without an item or a worker


def read_annotations(
    paths: Sequence[Path],
    columns: Columns = Columns(),  # noqa: B008 - immutable
    project: Project = PROJECTS["plain"],
) -> Annotations:
    """The answers of all pools, end to end.  Raises InputError for a missing column, a ragged line,
    not UTF-8, or an answer that a page exported twice, perhaps before it was corrected."""
    answers: list[Answer] = []
    num_dropped = 0
    inputs = None
    pages: dict[str, Path] = {}
    exported: dict[tuple[str, ...], Path] = {}
    for path in paths:
        header, lines = read_table(path)
        if lines and PAGE in header:
            pages.setdefault(lines[0][PAGE], path)
        if len(pages) > 1:
            raise InputError(
                f"{' and '.join(map(str, pages.values()))} are the work of two pages, which ask "
                "other rows, expected one page's: give each page's files to a call"
            )
        if not columns.answer and project.answer_column in header:
            columns = columns._replace(answer=project.answer_column)
        if project.texts_a_row > 1:
            header, lines = _one_text_a_row(header, lines, project.texts_a_row, path)
        if project.lists:
            header, lines = _one_question_a_row(header, lines, columns, path)
        names = _resolve(columns, header, path)
        if inputs is not None and names.inputs != inputs:
            raise InputError(
                f"{path}: an item is {', '.join(names.inputs)} here and {', '.join(inputs)} in "
                f"{paths[0]}: give files of one task, or name the columns with --input_columns"
            )
        inputs = names.inputs
        for line in lines:
            item = tuple(line[name] for name in names.inputs)
            worker = line[names.worker].strip()
            # one of a line's texts
            unanswered = project.texts_a_row > 1 and not line[names.answer].strip()
            if unanswered or not worker or not any(map(str.strip, item)):
                num_dropped += 1
                continue
            if PAGE in line and line.get(STARTED):
                key = (worker, line[STARTED], *item)
                if key in exported:
                    raise InputError(
                        f"{path}: annotator {worker:.40} answers {item[0]!r:.40} as begun at "
                        f"{line[STARTED]:.40}, which {exported[key]} has too, so these are two "
                        "exports of one person's work: give the last one alone"
                    )
                exported[key] = path
            right = project.spelled(line[names.right]) or None if names.right else None
            answer = project.spelled(line[names.answer])
            if project.are_texts:
                answer = normalize_squad(answer)
            time = line.get(project.time_column, "")
            answers.append(Answer(item, worker, answer, right, time))
    assert inputs is not None, "at least one file"
    return Annotations(inputs, answers, num_dropped)


def _one_text_a_row(
    header: list[str], lines: list[dict[str, str]], count: int, path: Path
) -> tuple[list[str], list[dict[str, str]]]:
    """INPUT:text_1, INPUT:text_2, ... -> INPUT:text, a line each; every line keeps the columns
    without a number."""
    ends = [f"_{i + 1}" for i in range(count)]
    bare = [name.removesuffix(ends[0]) for name in header if name.endswith(ends[0])]
    if not bare:
        raise InputError(
            f"{path}: no column ends with {ends[0]}, it has {', '.join(header)}: name another "
            "--project"
        )
    for name, end in product(bare, ends):
        if f"{name}{end}" not in header:
            raise InputError(f"{path}: no column {name}{end}, expected {count} texts a line")
    shared = [name for name in header if not name.endswith(tuple(ends))]
    split = list[dict[str, str]]()
    for line, end in product(lines, ends):
        item = {name: line[f"{name}{end}"] for name in bare}
        split.append({name: line[name] for name in shared} | item)
    return [*shared, *bare], split


def _one_question_a_row(
    header: list[str], lines: list[dict[str, str]], columns: Columns, path: Path
) -> tuple[list[str], list[dict[str, str]]]:
    """A list of questions with their answers -> a line each; its index in the list distinguishes
    equal questions."""
    answer = columns.answer or _only("OUTPUT:", "--answer_column", header, path)
    others = [name for name in header if not name.startswith("INPUT:")]
    split = []
    for number, line in enumerate(lines, start=2):
        try:
            listed = ast.literal_eval(line[answer])
            pairs = [(str(entry["question"]), str(entry["answer"])) for entry in listed]
        # MemoryError: deep nesting
        except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
            raise InputError(
                f"{path}, line {number}: {answer} is {line[answer]!r:.40}, expected a list of "
                '{"question": ..., "answer": ...}'
            ) from None
        for i, (question, text) in enumerate(pairs):
            item = {"INPUT:place": str(i), "INPUT:question": question, answer: text}
            split.append({name: line[name] for name in others} | item)
    return ["INPUT:place", "INPUT:question", *others], split


def read_skills(path: Path) -> dict[str, float]:
    """worker_id -> skill_value.  Raises InputError."""
    header, lines = read_table(path)
    if missing := {"worker_id", "skill_value"} - set(header):
        raise InputError(
            f"{path}: no column {', '.join(sorted(missing))}, it has {', '.join(header)}"
        )
    skills = {}
    for number, line in enumerate(lines, start=2):
        try:
            skills[line["worker_id"].strip()] = skill = float(line["skill_value"])
            if not math.isfinite(skill):
                raise ValueError
        except ValueError:
            raise InputError(
                f"{path}, line {number}: skill_value is {line['skill_value']!r}, expected a number"
            ) from None
    return skills


def accepted(right: str) -> list[str]:
    """The right texts of an item; an empty one only where there is no other."""
    texts = right.split(";")
    return [*filter(str.strip, texts)] or texts


def canonical(value: str) -> str:
    """One spelling of an answer: files with gaps in a column write 0 as 0.0 and true as True."""
    value = value.strip()
    if value.lower() in ("true", "false"):
        return value.lower()
    return _WHOLE.sub(r"\1", value)


def normalized(item: Sequence[str]) -> tuple[str, ...]:
    """An item as it is compared with gold: any run of whitespace is one blank."""
    return tuple(" ".join(field.split()) for field in item)


def _resolve(columns: Columns, header: Sequence[str], path: Path) -> Columns:
    """The column names of this file; an optional column that it lacks is ""."""
    inputs = columns.inputs or tuple(name for name in header if name.startswith("INPUT:"))
    answer = columns.answer or _only("OUTPUT:", "--answer_column", header, path)
    right = columns.right
    if not right and "OUTPUT:" in answer:
        right = answer.replace("OUTPUT:", "GOLDEN:", 1)
    resolved = columns._replace(inputs=inputs, answer=answer, right=right)
    required = {
        "--input_columns": inputs,
        "--answer_column": (answer,),
        "--worker_column": (resolved.worker,),
    }
    if columns.right:
        required["--control_column"] = (columns.right,)
    if not inputs:
        raise InputError(
            f"{path}: no column begins with INPUT:, it has {', '.join(header)}: name those of an "
            "item with --input_columns"
        )
    for flag, names in required.items():
        for name in names:
            if name not in header:
                raise InputError(
                    f"{path}: no column {name}, it has {', '.join(header)}: name it with {flag}"
                )
    if right not in header:
        return resolved._replace(right="")
    return resolved


def _only(prefix: str, flag: str, header: Sequence[str], path: Path) -> str:
    matches = [name for name in header if name.startswith(prefix)]
    if len(matches) != 1:
        named = f"no column begins with {prefix}"
        if matches:
            named = f"several columns begin with {prefix} ({', '.join(matches)})"
        raise InputError(
            f"{path}: {named}, of {', '.join(header)}: name the one with answers with {flag}"
        )
    return matches[0]
