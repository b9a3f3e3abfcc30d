"""A user's YAML files -> the suite `own`.

Arrives: files, or folders of them.  Leaves: a `Suite`; every wrong key is one sentence.  It deliberately does not know how
examples are scored.

A file names data beside it, and what it takes from each record:

    task: capitals
    data: capitals.jsonl
    question: "Question: {{question}}"
    choices: options
    gold: answer
    delimiter: "\\nAnswer: "
    num_fewshot: 5
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rapidfuzz import process

from miron_jax.definitions.data_files import FORMATS
from miron_jax.definitions.records import DataFile, Example, Question, Suite, Task
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, parse_yaml, shown
from miron_jax.tasks.icl_rows import answer_text, checked_text
from miron_jax.tasks.own_tasks.rules import RULES, profile_of
from miron_jax.tasks.own_tasks.templates import Value, text_of, value_of

NAME = "own"
_TAKES = {  # kind -> what it takes from each record, and what that must be
    "choice": {"question": "a text", "choices": "a list of texts", "gold": "the right choice"},
    "continuation": {"question": "a text", "answer": "a text"},
    "generation": {"question": "a text", "answer": "a text, or a list of texts that are all right"},
}
_KIND = {"choice": "multiple_choice", "continuation": "language_modeling", "generation": "generation"}
_TEXTS = {  # key -> field of the wording
    "delimiter": "delimiter", "shot_separator": "shot_separator", "before_shots": "prompt_string",
    "before_question": "prelimiter",
}  # fmt: skip
_GENERATION = ("stop", "extra_tokens")
_KEYS = (
    "task", "kind", "data", "question", "choices", "gold", "answer", "rules", "num_fewshot", *_TEXTS, "max_length",
    "baseline", "citation", *_GENERATION,
)  # fmt: skip
_TASK_NAME = re.compile(r"[\w+-][\w.+-]{0,99}(/[\w+-][\w.+-]{0,99}){0,3}")


def read_suite(paths: Sequence[str]) -> Suite[Task[Any]]:
    """The tasks of these files, and of the .yaml files in these folders.  Raises InputError."""
    file_of: dict[str, Path] = {}
    tasks = []
    for path in (file for name in paths for file in _files(Path(name))):
        task = _task(path)
        if task.name in file_of:
            raise InputError(f"{path}: {file_of[task.name]} has a task {task.name} too: give one another name")
        file_of[task.name] = path
        tasks.append(task)
    return Suite(NAME, tuple(tasks), lambda measured: {}, lambda data_dir, fetch: Path())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml"))
    if not found:
        raise InputError(f"--task_path={path}: the folder has no .yaml file, expected one for each task")
    return found


def _task(path: Path) -> Task[Any]:
    fields = _fields(path)
    name = _text(fields, "task", path)
    if not _TASK_NAME.fullmatch(name):
        raise InputError(f"{path}: task is {shown(name)}, expected letters, digits, and . + - _ with / between parts")
    kind, rules = _one_of(fields, "kind", _TAKES, "choice", path), _one_of(fields, "rules", RULES, "core", path)
    takes = _values(fields, kind, path)
    said: dict[str, Any] = {field: _text(fields, key, path) for key, field in _TEXTS.items() if key in fields}
    said["num_fewshot"] = _number(fields, "num_fewshot", 0, path)
    said.setdefault("delimiter", " ")
    if "max_length" in fields:
        said["max_length"] = _number(fields, "max_length", 2, path)
    stop = fields.get("stop", ["\n"])
    if not (isinstance(stop, list) and all(isinstance(each, str) and each for each in stop)):
        raise InputError(f"{path}: stop is {shown(stop)}, expected a list of texts")
    profile = profile_of(rules, kind, said, tuple(stop), _number(fields, "extra_tokens", 0, path))
    parse = partial({"choice": _choice, "continuation": _continuation, "generation": _question}[kind], takes)
    citation = _text(fields, "citation", path) if "citation" in fields else ""
    baselines = {"random": _baseline(fields, path), "human": None}
    return Task(f"{NAME}/{name}", _KIND[kind], profile, _data(fields, path), baselines, parse, citation)


def _fields(path: Path) -> JsonObject:
    remedy = "expected keys such as task, data, question (docs/own_tasks.md)"
    try:
        fields = parse_yaml(path.read_bytes())
    except OSError as error:
        raise InputError(f"--task_path={path} cannot be read ({error.strerror}): {remedy}") from None
    except ValueError as error:
        raise InputError(f"{path} is no yaml ({error!s:.160}): {remedy}") from None
    if not isinstance(fields, dict):
        raise InputError(f"{path}: found {shown(fields)}, {remedy}")
    for key in fields:
        if key not in _KEYS:
            nearest = process.extractOne(str(key), _KEYS)[0]
            raise InputError(f"{path}: key {key!r} is not known, did you mean {nearest!r}? expected {', '.join(_KEYS)}")
    return fields


def _values(fields: JsonObject, kind: str, path: Path) -> dict[str, Any]:
    """What the kind takes from a record: functions of it; a list of them where `choices` lists templates."""
    takes, values = _TAKES[kind], dict[str, Any]()
    others = {key for each in _TAKES.values() for key in each} | set(_GENERATION if kind != "generation" else ())
    if unused := sorted(key for key in fields if key in others - takes.keys()):
        raise InputError(f"{path}: key {unused[0]!r} is not of a task of kind {kind}, which takes {', '.join(takes)}")
    for key, what in takes.items():
        given = fields.get(key)
        several = key == "choices" and isinstance(given, list) and len(given) > 1
        texts = given if several else [given]
        if not all(isinstance(text, str) and text for text in texts):
            more = " or a list of at least two" if key == "choices" else ""
            raise InputError(f"{path}: {key} is {shown(given)}, expected a field's name or a template{more}: {what}")
        try:
            found = [text_of(text) if several else value_of(text) for text in texts]
        except ValueError as error:
            raise InputError(f"{path}: {key}: {error}") from None
        values[key] = found if several else found[0]
    return values


def _data(fields: JsonObject, path: Path) -> DataFile:
    name = _text(fields, "data", path)
    if Path(name).suffix not in FORMATS:
        raise InputError(f"{path}: data is {shown(name)}, expected a file that ends in {', '.join(FORMATS)}")
    file = (path.parent / name).resolve()
    if not file.is_file():
        raise InputError(f"{path}: data names {file}, and there is no such file")
    return DataFile(str(file), None, None)


def _text(fields: JsonObject, key: str, path: Path) -> str:
    text = fields.get(key)
    if not isinstance(text, str):
        raise InputError(f"{path}: {key} is {shown(text)}, expected a text")
    return text


def _one_of(fields: JsonObject, key: str, known: Mapping[str, Any] | Sequence[str], default: str, path: Path) -> str:
    chosen = fields.get(key, default)
    if not isinstance(chosen, str) or chosen not in known:
        raise InputError(f"{path}: {key} is {shown(chosen)}, expected one of {', '.join(known)}")
    return chosen


def _number(fields: JsonObject, key: str, low: int, path: Path) -> int:
    number = fields.get(key, low)
    if not isinstance(number, int) or isinstance(number, bool) or number < low:
        raise InputError(f"{path}: {key} is {shown(number)}, expected a whole number, {low} or more")
    return number


def _baseline(fields: JsonObject, path: Path) -> float | None:
    baseline = fields.get("baseline")
    is_number = isinstance(baseline, int | float) and not isinstance(baseline, bool)
    if baseline is not None and not (is_number and 0 <= baseline < 1):
        raise InputError(f"{path}: baseline is {shown(baseline)}, expected the accuracy of chance, 0 or more, below 1")
    return baseline


# Records


def _choice(takes: Mapping[str, Any], record: JsonObject, row: int) -> Example:
    choices = takes["choices"]
    found = [each(record) for each in choices] if isinstance(choices, list) else choices(record)
    if not isinstance(found, list) or len(found) < 2:
        raise ValueError(f"choices are {shown(found)}, expected a list of at least two texts")
    texts = tuple(answer_text(text, f"choice {i + 1}") for i, text in enumerate(found))
    return Example(row, (_question_text(takes, record),), texts, _gold(takes["gold"](record), texts))


def _gold(value: Json, choices: tuple[str, ...]) -> int:
    """The right choice: its place from 0, its text, or its letter (A is the first)."""
    place: int | None = None
    if isinstance(value, str):
        text = value.strip()
        if value in choices or text in choices:
            place = choices.index(value if value in choices else text)
        elif text.isdecimal():
            place = int(text)
        elif len(text) == 1 and "A" <= text <= "Z":
            place = ord(text) - ord("A")
    elif isinstance(value, int) and not isinstance(value, bool):
        place = value
    if place is None or not 0 <= place < len(choices):
        raise ValueError(
            f"gold is {shown(value)}, expected one of the choices, its letter, or its place from 0 to {len(choices) - 1}"
        )
    return place


def _continuation(takes: Mapping[str, Value], record: JsonObject, row: int) -> Example:
    return Example(row, (_question_text(takes, record),), (answer_text(takes["answer"](record), "answer"),), 0)


def _question(takes: Mapping[str, Value], record: JsonObject, row: int) -> Question:
    found = takes["answer"](record)
    answers = tuple(answer_text(text, "answer") for text in (found if isinstance(found, list) else [found]))
    if not answers:
        raise ValueError("answer is an empty list, expected at least one text")
    context = _question_text(takes, record)
    return Question(row, (context,), answers[:1], 0, accepted=tuple(dict.fromkeys(answers)), room_for=answers)


def _question_text(takes: Mapping[str, Value], record: JsonObject) -> str:
    return checked_text(takes["question"](record), "question")
