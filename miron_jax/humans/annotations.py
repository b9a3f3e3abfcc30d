"""Annotation files -> answers: who said what of which item, and what was known to be right.

Arrives: TSV or CSV files, one answer a line, and the names of their columns.  Leaves: `Answer`s, all of it text: no value is
guessed to be a number, and "NA" or "null" are answers like others.  It deliberately does not know what is done with them.

Columns are by default Toloka's: INPUT:x (the item), OUTPUT:x (the answer), GOLDEN:x (the right answer of a control task,
empty elsewhere), ASSIGNMENT:worker_id, ASSIGNMENT:started and :submitted.  Some of MERA's projects have files of other
shapes: `Project`.
"""

import ast
import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError

DELIMITERS = "\t;,|"
_WHOLE = re.compile(r"([+-]?\d+)\.0+")


STARTED, SUBMITTED = "ASSIGNMENT:started", "ASSIGNMENT:submitted"


class Answer(NamedTuple):
    item: tuple[str, ...]  # the raw INPUT fields
    worker: str
    answer: str  # as `canonical`
    right: str | None  # of a control task; None: nobody knows here
    when: str = ""  # as text that sorts by time; "": the file does not say


class Project(NamedTuple):
    """How the people of a project were asked, and which of their answers count (spec: MERA, section B)."""

    lists: bool = False  # a line's answer is a list [{"question": ..., "answer": ...}, ...], each an item of its own
    texts_a_row: int = 1  # a line has so many items, their columns numbered at the end: INPUT:text_1, OUTPUT:answer_1
    controls_vote: bool = False  # control tasks are items too; of each, an annotator's first answer counts
    plurality: bool = False  # procedure A labels by strict plurality, not by equal votes
    is_filtered: bool = True  # annotators are rejected by their control tasks; elsewhere the platform has done that
    answer: str = ""  # its column of answers, where several begin with OUTPUT:
    when: str = STARTED  # its column that says which of an annotator's answers was the first


PROJECTS = {
    "plain": Project(),
    "ruhhh": Project(controls_vote=True, plurality=True, when=SUBMITTED),
    "rutie": Project(lists=True, is_filtered=False, answer="OUTPUT:result"),
    "ruethics": Project(texts_a_row=3, is_filtered=False),
}


class Columns(NamedTuple):
    """Names in the header; an empty one is found by its Toloka prefix."""

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
    """All pools end to end.  Raises InputError for a missing column, a ragged line, or bytes that are not UTF-8."""
    answers: list[Answer] = []
    num_dropped, inputs = 0, None
    for path in paths:
        header, lines = read_table(path)
        if not columns.answer and project.answer in header:
            columns = columns._replace(answer=project.answer)
        if project.texts_a_row > 1:
            header, lines = _one_text_a_row(header, lines, project.texts_a_row, path)
        if project.lists:
            header, lines = _one_question_a_row(header, lines, columns, path)
        found = _resolve(columns, header, path)
        if inputs is not None and found.inputs != inputs:
            raise InputError(
                f"{path}: an item is {', '.join(found.inputs)} here and {', '.join(inputs)} in {paths[0]}: give files of "
                "one task, or name the columns with --input_columns"
            )
        inputs = found.inputs
        for line in lines:
            item, worker = tuple(line[name] for name in found.inputs), line[found.worker].strip()
            unanswered = project.texts_a_row > 1 and not line[found.answer].strip()  # one of a line's texts
            if unanswered or not worker or not any(field.strip() for field in item):
                num_dropped += 1
                continue
            right = canonical(line[found.right]) if found.right else ""
            answers.append(
                Answer(item, worker, canonical(line[found.answer]), right or None, line.get(project.when, ""))
            )
    assert inputs is not None, "at least one file"
    return Annotations(inputs, answers, num_dropped)


def _one_text_a_row(
    header: list[str], lines: list[dict[str, str]], count: int, path: Path
) -> tuple[list[str], list[dict[str, str]]]:
    """INPUT:text_1, INPUT:text_2, ... -> INPUT:text, a line each; columns without a number at their end go to all."""
    ends = [f"_{i + 1}" for i in range(count)]
    numbered = [name for name in header if name.endswith(ends[0])]
    if not numbered:
        raise InputError(f"{path}: no column ends with {ends[0]}, it has {', '.join(header)}: name another --project")
    bare = [name.removesuffix(ends[0]) for name in numbered]
    if absent := [f"{name}{end}" for name in bare for end in ends if f"{name}{end}" not in header]:
        raise InputError(f"{path}: no column {absent[0]}, expected {count} texts a line")
    shared = [name for name in header if not name.endswith(tuple(ends))]
    parted = [
        {**{name: line[name] for name in shared}, **{name: line[f"{name}{end}"] for name in bare}}
        for line in lines
        for end in ends
    ]
    return [*shared, *bare], parted


def _one_question_a_row(
    header: list[str], lines: list[dict[str, str]], columns: Columns, path: Path
) -> tuple[list[str], list[dict[str, str]]]:
    """A list of questions with their answers -> a line each; the place in the list tells equal questions apart."""
    answer = columns.answer or _only("OUTPUT:", "--answer_column", header, path)
    others = [name for name in header if not name.startswith("INPUT:")]
    parted = []
    for number, line in enumerate(lines, start=2):
        try:
            listed = ast.literal_eval(line[answer])
            pairs = [(str(own["question"]), str(own["answer"])) for own in listed]
        except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):  # the last of deep nesting
            raise InputError(
                f"{path}, line {number}: {answer} is {line[answer]!r:.40}, expected a list of "
                '{"question": ..., "answer": ...}'
            ) from None
        parted += [
            {**{name: line[name] for name in others}, "INPUT:place": str(i), "INPUT:question": question, answer: text}
            for i, (question, text) in enumerate(pairs)
        ]
    return ["INPUT:place", "INPUT:question", *others], parted


def read_skills(path: Path) -> dict[str, float]:
    """worker_id -> skill_value.  Raises InputError."""
    header, lines = read_table(path)
    if missing := {"worker_id", "skill_value"} - set(header):
        raise InputError(f"{path}: no column {', '.join(sorted(missing))}, it has {', '.join(header)}")
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


def canonical(value: str) -> str:
    """One spelling of an answer: files write 0 as 0.0 and true as True where a column has gaps."""
    value = value.strip()
    if value.lower() in ("true", "false"):
        return value.lower()
    whole = _WHOLE.fullmatch(value)
    return whole[1] if whole else value


def normalized(item: Sequence[str]) -> tuple[str, ...]:
    """Items as they are compared with gold: whitespace of any kind is one blank."""
    return tuple(" ".join(field.split()) for field in item)


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """(header, lines by column).  The delimiter is the one that parts the header most."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {number}: byte 0x{data[error.start]:02x} is not UTF-8, expected one encoding throughout: "
            "convert the file, such as by iconv -f cp1251 -t utf-8"
        ) from None
    first = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise InputError(f"{path} is empty, expected a header line and one answer a line")
        if twice := [name for name in header if header.count(name) > 1]:
            raise InputError(f"{path}: the header names {twice[0]} twice, expected every column once")
        lines = []
        for fields in reader:
            if not fields:
                continue
            if len(fields) != len(header):
                raise InputError(
                    f"{path}, line {reader.line_num}: {len(fields)} fields, the header has {len(header)}: quote fields "
                    "that hold the delimiter or a line break"
                )
            lines.append(dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: {error}; expected fields in balanced double quotes"
        ) from None
    return header, lines


def _resolve(columns: Columns, header: Sequence[str], path: Path) -> Columns:
    """The columns of this file by name; an optional one that it lacks is empty."""
    inputs = columns.inputs or tuple(name for name in header if name.startswith("INPUT:"))
    answer = columns.answer or _only("OUTPUT:", "--answer_column", header, path)
    beside = answer.replace("OUTPUT:", "GOLDEN:", 1)
    found = columns._replace(inputs=inputs, answer=answer, right=columns.right or (beside if beside != answer else ""))
    wanted = {"--input_columns": inputs, "--answer_column": (answer,), "--worker_column": (found.worker,)}
    if columns.right:
        wanted["--control_column"] = (columns.right,)
    if not inputs:
        raise InputError(
            f"{path}: no column begins with INPUT:, it has {', '.join(header)}: name those of an item with --input_columns"
        )
    for flag, names in wanted.items():
        for name in names:
            if name not in header:
                raise InputError(f"{path}: no column {name}, it has {', '.join(header)}: name it with {flag}")
    return found._replace(right=found.right if found.right in header else "")


def _only(prefix: str, flag: str, header: Sequence[str], path: Path) -> str:
    found = [name for name in header if name.startswith(prefix)]
    if len(found) != 1:
        told = (
            f"several columns begin with {prefix} ({', '.join(found)})" if found else f"no column begins with {prefix}"
        )
        raise InputError(f"{path}: {told}, of {', '.join(header)}: name the one with answers with {flag}")
    return found[0]
