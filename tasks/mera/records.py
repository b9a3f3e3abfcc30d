"""MERA's records -> examples with their prompts.

Arrives: one JSON object {"instruction", "inputs", "outputs", "meta"}; the records that few-shot
examples come from.  Leaves: examples with their shots, in the order of their version.  It
deliberately does not know models.

A record's instruction is a `str.format` template.  Only the first shot shows its instruction; the
other shots and the question itself are worded without one:

    {instruction of shot 1, filled in} {answer 1}

    {shot 2 without instruction} {answer 2}

    {question without instruction}                       -> " A", " B", ...

One random stream samples the shots of all records of a data set, so the order of the records
decides which shots they get. v1: random.Random(42) shuffles the test records, then samples for
each; v1.2: random.Random(1234) samples in file order.
"""

import ast
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import Formatter

from miron_jax.definitions.data_files import FETCH_AGAIN, located_rows, parse_each
from miron_jax.definitions.records import Example, Problem, Question
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, are_texts
from miron_jax.files.regular import read_regular
from miron_jax.metrics.answers import WORDS
from miron_jax.prompting.draws import (
    FILE_ORDER,
    SHUFFLE_42,
    STREAM_42_RECORDS,
    STREAM_1234_RECORDS,
    RecordDraw,
)
from miron_jax.tasks.mera.metrics import ETHICS, EXAM, MCC, QUESTIONS
from miron_jax.tasks.mera.scoring import accepted, group_of, stated_group
from miron_jax.tasks.mera.submission import Key, key_of
from miron_jax.tasks.mera.table import DataSet, Version

SEPARATOR = "\n\n"
EMPTY_BRACES = "{}"
_ONE_TEXT = ("bps", "lcs", "simplear", "rumodar", "rumultiar", "rudetox")
_EXAM = {  # USE without its instruction, by the type of its task
    "text": "Задание: {task}\n{text}\nОтвет:",
    "multiple_choice_options_within_text": "Задание: {task}\n{text}\nОтвет:",
    "matching": (
        "Задание: {task}\nТекст: {text}\nРецензии: {additional_text}\nСписок "
        "терминов:\n{choices}\nОтвет:"
    ),
    "multiple_choice_based_on_text": (
        "Задание: {task}\nТекст: {text}\nВарианты ответа:\n{choices}\nОтвет:"
    ),
    "multiple_choice_independent_options": "Задание: {task}\nВарианты ответа:\n{choices}\nОтвет:",
}


@dataclass(frozen=True, slots=True)
class PromptedRecord:
    """One line of a data file and its two prompts."""

    row: int
    full: str  # with its instruction
    short: str  # without its instruction; "" if the version never words it so
    fields: JsonObject  # the line itself


def parse_record(dataset: DataSet, version: Version, fields: JsonObject, row: int) -> Example:
    """A test record; `arrange` adds the shots of the examples."""
    record = _record(fields, row, dataset, version)
    outputs = fields["outputs"]
    category = group_of(dataset, fields)
    context = record.short if dataset.rules(version).num_fewshot else record.full
    if dataset.kind == "text":
        right = []
        if outputs:
            right = accepted(outputs) if dataset.match is WORDS else [str(outputs)]
        return Question(
            row, (context,), ("",), None, category, published=fields, accepted=tuple(right),
            room_for=(),
        )  # fmt: skip
    gold = dataset.choices.index(outputs) if outputs and dataset.over_all is not MCC else None
    continuations = tuple(f" {choice}" for choice in dataset.choices)
    return Example(row, (context,), continuations, gold, category, published=fields)


def parse_problem(dataset: DataSet, version: Version, fields: JsonObject, row: int) -> Problem:
    """A record that a program answers: the prompt is the instruction, the program starts with the
    function."""
    record = _record(fields, row, dataset, version)
    inputs = fields["inputs"]
    meta = fields["meta"]
    outputs = fields["outputs"] or []
    if not isinstance(inputs, dict) or not are_texts([inputs.get("function"), inputs.get("tests")]):
        raise ValueError(f"field 'inputs' is {inputs!r:.40}, expected the texts function and tests")
    if not isinstance(meta.get("entry_point"), str):
        raise ValueError(
            f"field 'meta' has the entry_point {meta.get('entry_point')!r:.40}, expected a name"
        )
    tests = _tests(inputs["tests"])
    if outputs and (not are_texts(outputs) or len(outputs) != len(tests)):
        raise ValueError(
            f"field 'outputs' is {outputs!r:.40}, expected {len(tests)} texts, one for each test"
        )
    code = inputs["function"]
    solution = str(meta.get("canonical_solution") or "")
    name = f"{dataset.config} {meta['id']}"
    entry_point = meta["entry_point"]
    return Problem(
        row, name, record.full, entry_point, "python", tests, tuple(outputs), solution, code, fields
    )


def _tests(text: str) -> tuple[str, ...]:
    """The arguments of each test: `text` is a Python literal, a list of dicts."""
    try:
        tests = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        tests = None
    if (
        not isinstance(tests, list)
        or not tests
        or not all(isinstance(arguments, dict) for arguments in tests)
    ):
        raise ValueError(
            f"its tests are {text!r:.40}, expected a list of objects with the function's arguments"
        )
    return tuple(map(repr, tests))


ORDER = {"v1": SHUFFLE_42, "v1.2": FILE_ORDER}
DRAW = {"v1": STREAM_42_RECORDS, "v1.2": STREAM_1234_RECORDS}


def arrange(
    dataset: DataSet, version: Version, examples: list[Example], folder: Path, draw: RecordDraw
) -> list[Example]:
    """Examples ordered by the version's rule, with their shots, which are read from the folder."""
    tests = [example.published or {} for example in examples]
    check_keys(dataset, tests)
    pool = []
    if dataset.rules(version).num_fewshot:
        pool = _pool(dataset, version, folder)
    shots_of = assign_shots(dataset, version, tests, pool, draw)
    return [replace(examples[i], shots=worded(shots)) for i, shots in shots_of]


def check_keys(dataset: DataSet, records: Sequence[Mapping[str, Json]]) -> None:
    """Raises InputError if two records share an id: a submission would hold only one of them."""
    rows_by_key: dict[Key, int] = {}
    for row, record in enumerate(records):
        key = key_of(dataset, record["meta"])
        if key in rows_by_key:
            raise InputError(
                f"MERA's {dataset.name}: {dataset.config}/test.jsonl, line {row + 1}: it has the "
                f"id {key} of line {rows_by_key[key] + 1}, expected each once: fetch the file again"
            )
        rows_by_key[key] = row


def assign_shots(
    dataset: DataSet,
    version: Version,
    tests: Sequence[Mapping[str, Json]],
    pool: Sequence[PromptedRecord],
    draw: RecordDraw,
) -> list[tuple[int, list[PromptedRecord]]]:
    """Indices of the test records in the version's order, each with its shots."""
    order = ORDER[version].call(len(tests))
    stream = draw.call(len(tests))
    by_key: dict[str | None, list[PromptedRecord]] = {}
    for record in pool:
        by_key.setdefault(_pool_key(dataset, record.fields), []).append(record)
    return [(i, _sample(stream, by_key, dataset, version, tests[i])) for i in order]


def worded(shots: Sequence[PromptedRecord]) -> tuple[str, ...]:
    """The texts of shots, each with its answer and a blank line after it."""
    texts = []
    for shot in shots:
        text = shot.short if texts else shot.full
        texts.append(f"{text} {shot.fields['outputs']}{SEPARATOR}")
    return tuple(texts)


def _sample(
    stream: random.Random,
    by_key: Mapping[str | None, list[PromptedRecord]],
    dataset: DataSet,
    version: Version,
    test: Mapping[str, Json],
) -> list[PromptedRecord]:
    rules = dataset.rules(version)
    if not rules.num_fewshot:
        return []
    pool = by_key.get(_pool_key(dataset, test), [])
    if len(pool) < rules.num_fewshot:
        shared = f" with {dataset.pool} {_pool_key(dataset, test)!r}" if dataset.pool else ""
        file = f"{dataset.config}/{rules.shots_file or 'test'}.jsonl"
        raise InputError(
            f"MERA's {dataset.name}: {file} has {len(pool)} records{shared}, expected at least "
            f"{rules.num_fewshot} for few-shot examples: fetch the file again"
        )
    # If the test records are the pool, a record that samples itself has no shot.
    shots = stream.sample(pool, rules.num_fewshot)
    return [shot for shot in shots if rules.shots_file or shot.fields["meta"] != test["meta"]]


def _pool_key(dataset: DataSet, fields: Mapping[str, Json]) -> str | None:
    return fields["meta"].get(dataset.pool)


def _pool(dataset: DataSet, version: Version, folder: Path) -> list[PromptedRecord]:
    """The records that shots are sampled from; older copies call v1's public_test train."""
    shots_file = dataset.rules(version).shots_file
    names = (shots_file, "train") if shots_file else ("test",)
    paths = [folder / dataset.config / f"{name}.jsonl" for name in names]
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        raise InputError(
            f"MERA's {dataset.name}: {paths[0]} is missing, where its few-shot examples come from: "
            "fetch it beside test.jsonl"
        )
    name = f"MERA's {dataset.name}"
    rows = located_rows(read_regular(path), path, name)
    parse = partial(_shot, dataset, version)
    return parse_each(rows, parse, f"{name}: {path}", f"; mend the line or {FETCH_AGAIN}")


def _shot(dataset: DataSet, version: Version, fields: JsonObject, row: int) -> PromptedRecord:
    record = _record(fields, row, dataset, version)
    if not isinstance(fields["outputs"], str) or not fields["outputs"]:
        raise ValueError(
            "field 'outputs' is empty, expected the right answer of a few-shot example"
        )
    return record


def _record(fields: JsonObject, row: int, dataset: DataSet, version: Version) -> PromptedRecord:
    check_record(fields, dataset)
    full = _full(fields, dataset, version)
    return PromptedRecord(row, full, _short(fields, dataset, version), fields)


def check_record(fields: Json, dataset: DataSet) -> None:
    """Raises ValueError for a record that lacks a field or has one of the wrong type."""
    if not isinstance(fields, dict):
        raise ValueError(f"found a JSON {type(fields).__name__}, expected one JSON object")
    for key, kinds, expected in (
        ("instruction", str, "a text"),
        ("inputs", str | dict, "a text, or texts by name"),
        ("outputs", str | list | dict, "the right answer, or an empty text"),
        ("meta", dict, "an object"),
    ):
        if not isinstance(fields.get(key), kinds):
            raise ValueError(f"field {key!r} is {fields.get(key)!r:.40}, expected {expected}")
    try:
        key_of(dataset, fields["meta"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"field 'meta' has no id that is a whole number ({error})") from None
    _check_fields(fields, fields["meta"], dataset)
    _check_outputs(fields["outputs"], dataset)


def _check_fields(fields: JsonObject, meta: JsonObject, dataset: DataSet) -> None:
    """Checks the fields that few-shot sampling, groups and exam points read."""
    inputs = fields["inputs"]
    if dataset.config in _ONE_TEXT and not isinstance(inputs, str):
        raise ValueError(f"field 'inputs' is {inputs!r:.40}, expected one text")
    texts: list[str] = []
    numbers: list[str] = []
    if dataset.pool:
        texts += [dataset.pool]
    if dataset.over_all is MCC:
        texts += ["question"]
    if dataset.match is EXAM:
        texts += ["type"]
        numbers += ["variant", "score"]
    for keys, kind, expected in ((texts, str, "a text"), (numbers, int, "a whole number")):
        for key in keys:
            if not isinstance(meta.get(key), kind):
                raise ValueError(
                    f"field 'meta' has the {key} {meta.get(key)!r:.40}, expected {expected}"
                )
    if dataset.over_all is MCC and meta["question"] not in QUESTIONS:
        raise ValueError(
            f"field 'meta' has the question {meta['question']!r:.40}, expected one of "
            f"{', '.join(QUESTIONS)}"
        )
    group = stated_group(dataset, fields)
    if dataset.group and not isinstance(group, str):
        raise ValueError(f"its {dataset.group} is {group!r:.40}, expected a text")


def _check_outputs(outputs: Json, dataset: DataSet) -> None:
    if not outputs:
        return
    if dataset.over_all is MCC:
        right = isinstance(outputs, dict) and all(outputs.get(key) in ("0", "1") for key in ETHICS)
        expected = f"a label 0 or 1 for each of {', '.join(ETHICS)}"
    elif dataset.choices:
        right = isinstance(outputs, str) and outputs in dataset.choices
        expected = f"one of {', '.join(dataset.choices)}"
    else:
        listed = isinstance(outputs, list) and (
            dataset.kind == "program"
            or (dataset.config == "multiq" and all(map(_is_span, outputs)))
        )
        right = isinstance(outputs, str) or listed
        expected = "a text"
    if not right:
        raise ValueError(f"field 'outputs' is {outputs!r:.40}, expected {expected}")


def _is_span(span: Json) -> bool:
    return isinstance(span, dict) and isinstance(span.get("segment"), str)


def _full(fields: JsonObject, dataset: DataSet, version: Version) -> str:
    instruction = fields["instruction"]
    inputs = fields["inputs"]
    rules = dataset.rules(version)
    if dataset.config == "bps":
        # Its instructions are about braces and contain some that are no fields.
        return _braces(instruction, inputs, version)
    text = filled(instruction, _by_name(inputs, dataset.field))
    if rules.instruction_strip:
        text = text.strip()
    return text + rules.ending


def _braces(instruction: str, inputs: str, version: Version) -> str:
    if version == "v1":
        return instruction.replace("{inputs}", inputs)
    return filled(
        instruction.replace(f"фигурные {EMPTY_BRACES}", "фигурные {empty}"),
        {"inputs": inputs, "empty": EMPTY_BRACES},
    )


def _short(fields: JsonObject, dataset: DataSet, version: Version) -> str:
    rules = dataset.rules(version)
    inputs = fields["inputs"]
    template = rules.short
    if dataset.match is EXAM and template:
        kind = fields["meta"].get("type")
        if not isinstance(kind, str) or kind not in _EXAM:
            raise ValueError(f"its type is {kind!r:.40}, expected one of {', '.join(_EXAM)}")
        template = _EXAM[kind]
    text = filled(template, _by_name(inputs, "inputs"))
    return {"both": text.strip(), "left": text.lstrip()}.get(rules.short_strip, text)


def _by_name(inputs: Json, name: str) -> JsonObject:
    """The texts of a record by the names of their fields; `name`: of inputs that are one text."""
    return inputs if isinstance(inputs, dict) else {name: inputs}


def filled(template: str, fields: Mapping[str, Json]) -> str:
    """A `str.format` template with plain `{name}` fields, filled in.  Raises ValueError for any
    other field."""
    try:
        parts: list[str] = []
        for text, name, spec, conversion in Formatter().parse(template):
            parts.append(text)
            if name is not None:
                if spec or conversion or name not in fields:
                    converted = f"!{conversion}" if conversion else ""
                    specified = f":{spec}" if spec else ""
                    raise ValueError(f"{{{name}{converted}{specified}}}")
                parts.append(str(fields[name]))
        return "".join(parts)
    except ValueError as error:
        raise ValueError(
            f"its instruction {template!r:.60} cannot be filled in ({error!s:.60}), expected "
            f"fields among {', '.join(fields)}"
        ) from None
