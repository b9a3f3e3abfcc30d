"""MERA's records -> examples with their prompts.

Arrives: one JSON object {"instruction", "inputs", "outputs", "meta"}; the records that few-shot examples come from.  Leaves:
examples in the order in which their version asks them, with their few-shot examples.  It deliberately does not know models.

A record's instruction is a `str.format` template of its own.  With few-shot examples, only the first of them shows its
instruction; the others and the question itself are worded without one:

    {instruction of shot 1, filled in} {answer 1}

    {shot 2 without instruction} {answer 2}

    {question without instruction}                       -> " A", " B", ...

One random stream serves all records of a data set, in the order in which they are asked: another order would draw other
few-shot examples.  v1: random.Random(42) shuffles the test records, then samples for each; v1.2: random.Random(1234) samples
in file order.
"""

import ast
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Formatter
from typing import Any

from miron_jax.definitions.records import Example, Problem, Question
from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.metrics.answers import WORDS
from miron_jax.prompting.draws import FILE_ORDER, SHUFFLE_42, STREAM_42_RECORDS, STREAM_1234_RECORDS
from miron_jax.tasks.mera.metrics import ETHICS, EXAM, MCC, QUESTIONS
from miron_jax.tasks.mera.scoring import accepted, group_of
from miron_jax.tasks.mera.submission import key_of
from miron_jax.tasks.mera.table import DataSet, Rules, Version

SEPARATOR = "\n\n"
EMPTY_BRACES = "{}"
_ONE_TEXT = ("bps", "lcs", "simplear", "rumodar", "rumultiar", "rudetox")
_EXAM = {  # USE without its instruction, by the type of its task
    "text": "Задание: {task}\n{text}\nОтвет:",
    "multiple_choice_options_within_text": "Задание: {task}\n{text}\nОтвет:",
    "matching": "Задание: {task}\nТекст: {text}\nРецензии: {additional_text}\nСписок терминов:\n{choices}\nОтвет:",
    "multiple_choice_based_on_text": "Задание: {task}\nТекст: {text}\nВарианты ответа:\n{choices}\nОтвет:",
    "multiple_choice_independent_options": "Задание: {task}\nВарианты ответа:\n{choices}\nОтвет:",
}


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a data file, its two wordings filled in."""

    row: int
    full: str  # with its instruction
    short: str  # without; "" where the version never shows it so
    fields: dict[str, Any]  # the line itself


def parser(own: DataSet, rules: Rules, version: Version) -> Callable[[dict[str, Any], int], Any]:
    """Of test records: an Example or a Question whose one context is still to be chosen by `arranger`."""

    def parse(fields: dict[str, Any], row: int) -> Example | Question:
        record = _record(fields, row, own, rules, version)
        outputs = fields["outputs"]
        category = group_of(own, fields) if own.group else None
        context = record.short if rules.num_fewshot else record.full
        if own.kind == "text":
            right = tuple(accepted(outputs)) if own.match is WORDS and outputs else ((str(outputs),) if outputs else ())
            return Question(row, (context,), ("",), None, category, published=fields, accepted=right, room_for=())
        gold = own.choices.index(outputs) if outputs and own.over_all is not MCC else None
        return Example(row, (context,), tuple(f" {own}" for own in own.choices), gold, category, published=fields)

    return parse


def problem_parser(own: DataSet, rules: Rules, version: Version) -> Callable[[dict[str, Any], int], Problem]:
    """Of records whose answer is a program: the model sees the instruction, the function's beginning alone is run."""

    def parse(fields: dict[str, Any], row: int) -> Problem:
        record = _record(fields, row, own, rules, version)
        inputs, meta, outputs = fields["inputs"], fields["meta"], fields["outputs"] or []
        if not isinstance(inputs, dict) or not all(isinstance(inputs.get(key), str) for key in ("function", "tests")):
            raise ValueError(f"field 'inputs' is {inputs!r:.40}, expected the texts function and tests")
        if not isinstance(meta.get("entry_point"), str):
            raise ValueError(f"field 'meta' has the entry_point {meta.get('entry_point')!r:.40}, expected a name")
        tests = _tests(inputs["tests"])
        if not all(isinstance(own, str) for own in outputs) or (outputs and len(outputs) != len(tests)):
            raise ValueError(f"field 'outputs' is {outputs!r:.40}, expected {len(tests)} texts, one for each test")
        code, solution = inputs["function"], str(meta.get("canonical_solution") or "")
        name = f"{own.config} {meta['id']}"
        return Problem(
            row, name, record.full, meta["entry_point"], "python", tests, tuple(outputs), solution, code, fields
        )

    return parse


def _tests(text: str) -> tuple[str, ...]:
    """A list of named arguments, as a Python literal, one text a test."""
    try:
        tests = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        tests = None
    if not isinstance(tests, list) or not tests or not all(isinstance(own, dict) for own in tests):
        raise ValueError(f"its tests are {text!r:.40}, expected a list of objects with the function's arguments")
    return tuple(repr(own) for own in tests)


ORDER = {"v1": SHUFFLE_42, "v1.2": FILE_ORDER}
DRAW = {"v1": STREAM_42_RECORDS, "v1.2": STREAM_1234_RECORDS}


def arranger(own: DataSet, rules: Rules, version: Version) -> Callable[[list[Any], Path], list[Any]]:
    """Puts a version's order and few-shot examples to the test records of a folder."""

    def arrange(examples: list[Any], folder: Path) -> list[Any]:
        check_keys(own, [example.published for example in examples])
        pool = _pool(own, rules, version, folder) if rules.num_fewshot else []
        tests = [example.published for example in examples]
        return [replace(examples[i], shots=worded(shots)) for i, shots in draw(own, rules, version, tests, pool)]

    return arrange


def check_keys(own: DataSet, records: Sequence[Mapping[str, Any]]) -> None:
    """Raises InputError where two records have one id: a submission would hold one of them."""
    met: dict[Any, int] = {}
    for row, record in enumerate(records):
        key = key_of(own, record["meta"])
        if key in met:
            raise InputError(
                f"MERA's {own.name}: {own.config}/test.jsonl, line {row + 1}: it has the id {key} of line {met[key] + 1}, "
                "expected each once: fetch the file again"
            )
        met[key] = row


def draw(
    own: DataSet, rules: Rules, version: Version, tests: Sequence[Mapping[str, Any]], pool: Sequence[Record]
) -> list[tuple[int, list[Record]]]:
    """Places of the test records in the order in which they are asked, each with its few-shot examples."""
    order, stream = ORDER[version].call(len(tests)), DRAW[version].call(len(tests))
    by_key: dict[Any, list[Record]] = {}
    for record in pool:
        by_key.setdefault(_pool_key(own, record.fields), []).append(record)
    return [(i, _sample(stream, by_key, own, rules, tests[i])) for i in order]


def worded(shots: Sequence[Record]) -> tuple[str, ...]:
    """Worked examples, each with its answer and a blank line behind it."""
    texts = [shot.full if place == 0 else shot.short for place, shot in enumerate(shots)]
    return tuple(f"{text} {shot.fields['outputs']}{SEPARATOR}" for text, shot in zip(texts, shots, strict=True))


def _sample(
    stream: random.Random, by_key: Mapping[Any, list[Record]], own: DataSet, rules: Rules, test: Mapping[str, Any]
) -> list[Record]:
    if not rules.num_fewshot:
        return []
    found = by_key.get(_pool_key(own, test), [])
    if len(found) < rules.num_fewshot:
        shared = f" with {own.pool} {_pool_key(own, test)!r}" if own.pool else ""
        where = f"{own.config}/{rules.shots_file or 'test'}.jsonl"
        raise InputError(
            f"MERA's {own.name}: {where} has {len(found)} records{shared}, expected at least {rules.num_fewshot} for "
            "few-shot examples: fetch the file again"
        )
    drawn = stream.sample(found, rules.num_fewshot)
    # Where the test records serve as few-shot examples, the one that is asked shows none.
    return [shot for shot in drawn if rules.shots_file or shot.fields["meta"] != test["meta"]]


def _pool_key(own: DataSet, fields: Mapping[str, Any]) -> Any:
    return fields["meta"].get(own.pool) if own.pool else None


def _pool(own: DataSet, rules: Rules, version: Version, folder: Path) -> list[Record]:
    """The records of the split that few-shot examples come from; older copies call v1's public_test train."""
    names = (rules.shots_file, "train") if rules.shots_file else ("test",)
    paths = [folder / own.config / f"{name}.jsonl" for name in dict.fromkeys(names)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise InputError(
            f"MERA's {own.name}: {paths[0]} is missing, where its few-shot examples come from: fetch it beside test.jsonl"
        )
    records = []
    for row, line in enumerate(path.read_bytes().splitlines()):
        try:
            fields = parse_json(line)
            record = _record(fields, row, own, rules, version)
            if not isinstance(fields["outputs"], str) or not fields["outputs"]:
                raise ValueError("field 'outputs' is empty, expected the right answer of a few-shot example")
        except ValueError as error:
            raise InputError(
                f"MERA's {own.name}: {path}, line {row + 1}: {error}; mend the line or fetch the file again"
            ) from None
        records.append(record)
    return records


def _record(fields: Any, row: int, own: DataSet, rules: Rules, version: Version) -> Record:
    """Raises ValueError for what a record lacks."""
    check_record(fields, own)
    return Record(row, _full(fields, own, rules, version), _short(fields, own, rules), fields)


def check_record(fields: Any, own: DataSet) -> None:
    """Raises ValueError for what a record lacks."""
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
        key_of(own, fields["meta"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"field 'meta' has no id that is a whole number ({error})") from None
    _check_fields(fields["inputs"], fields["meta"], own)
    _check_outputs(fields["outputs"], own)


def _check_fields(inputs: Any, meta: Mapping[str, Any], own: DataSet) -> None:
    """What a data set's draws, groups and points read beside the texts."""
    if own.config in _ONE_TEXT and not isinstance(inputs, str):
        raise ValueError(f"field 'inputs' is {inputs!r:.40}, expected one text")
    wanted = {own.pool: str} if own.pool else {}
    if own.over_all is MCC:
        wanted["question"] = str
    if own.match is EXAM:
        wanted |= {"type": str, "variant": int, "score": int}
    for key, kind in wanted.items():
        if not isinstance(meta.get(key), kind):
            expected = "a text" if kind is str else "a whole number"
            raise ValueError(f"field 'meta' has the {key} {meta.get(key)!r:.40}, expected {expected}")
    if own.over_all is MCC and meta["question"] not in QUESTIONS:
        raise ValueError(
            f"field 'meta' has the question {meta['question']!r:.40}, expected one of {', '.join(QUESTIONS)}"
        )
    group = meta.get(own.group) or (inputs.get(own.group) if isinstance(inputs, dict) else None)
    if own.group and not isinstance(group, str):
        raise ValueError(f"its {own.group} is {group!r:.40}, expected a text")


def _check_outputs(outputs: Any, own: DataSet) -> None:
    if not outputs:
        return
    if own.over_all is MCC:
        right = isinstance(outputs, dict) and all(outputs.get(key) in ("0", "1") for key in ETHICS)
        expected = f"a label 0 or 1 for each of {', '.join(ETHICS)}"
    elif own.choices:
        right, expected = isinstance(outputs, str) and outputs in own.choices, f"one of {', '.join(own.choices)}"
    else:
        listed = isinstance(outputs, list) and (
            own.kind == "program" or (own.config == "multiq" and all(map(_is_span, outputs)))
        )
        right = isinstance(outputs, str) or listed
        expected = "a text"
    if not right:
        raise ValueError(f"field 'outputs' is {outputs!r:.40}, expected {expected}")


def _is_span(span: Any) -> bool:
    return isinstance(span, dict) and isinstance(span.get("segment"), str)


def _full(fields: Mapping[str, Any], own: DataSet, rules: Rules, version: Version) -> str:
    instruction, inputs = fields["instruction"], fields["inputs"]
    if own.config == "bps":
        # Its instructions speak of braces and write some: of all that looks like a field only one is.
        return _braces(instruction, inputs, version)
    text = filled(instruction, inputs if isinstance(inputs, dict) else {own.field: inputs})
    return (text.strip() if rules.instruction_strip else text) + rules.ending


def _braces(instruction: str, inputs: str, version: Version) -> str:
    if version == "v1":
        return instruction.replace("{inputs}", inputs)
    return filled(
        instruction.replace(f"фигурные {EMPTY_BRACES}", "фигурные {empty}"), {"inputs": inputs, "empty": EMPTY_BRACES}
    )


def _short(fields: Mapping[str, Any], own: DataSet, rules: Rules) -> str:
    template, inputs = rules.short, fields["inputs"]
    if own.match is EXAM and template:
        kind = fields["meta"].get("type")
        if not isinstance(kind, str) or kind not in _EXAM:
            raise ValueError(f"its type is {kind!r:.40}, expected one of {', '.join(_EXAM)}")
        template = _EXAM[kind]
    text = filled(template, inputs if isinstance(inputs, dict) else {"inputs": inputs})
    return {"both": text.strip(), "left": text.lstrip()}.get(rules.short_strip, text)


def filled(template: str, fields: Mapping[str, Any]) -> str:
    try:
        parts = list(Formatter().parse(template))
        for _, name, spec, conversion in parts:
            if name is not None and (spec or conversion or name not in fields):
                raise ValueError(f"{{{name}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}}}")
        return "".join(text + ("" if name is None else str(fields[name])) for text, name, _, _ in parts)
    except ValueError as error:
        raise ValueError(
            f"its instruction {template!r:.60} cannot be filled in ({error!s:.60}), expected fields among "
            f"{', '.join(fields)}"
        ) from None
