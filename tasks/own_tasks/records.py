"""A record of a user's data -> an example, by what the task's file takes from it.

Arrives: functions from a record to a value, all records of a file.  Leaves: an `Example`,
`Question` or `Problem`; ValueError for a record that does not fit.  It deliberately does not know
files.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from miron_jax.definitions.records import AnyExample, Bias, Cloze, Example, Problem, Question
from miron_jax.files.readers import Json, JsonObject, are_texts, shown
from miron_jax.metrics.answers import Normalize
from miron_jax.tasks.icl_rows import answer_text, checked_text
from miron_jax.tasks.own_tasks.gold import LABELS, as_written, labelled, reading_of, readings_of
from miron_jax.tasks.own_tasks.templates import Value

Takes = Mapping[str, Any]  # key -> a Value, or a list of them
Parse = Callable[[JsonObject, int], AnyExample]
BIAS = ("biased", "unknown", "ambiguous")  # what a question on social bias takes
_AMBIGUOUS = {"true": True, "false": False, "ambig": True, "disambig": False}  # as BBQ's file has
LANGUAGES = ("python", "c++", "javascript")
_EXPECTED = {  # reading of the right choice -> what it is
    "": "one of the choices, its letter, or its place from 0 to {last}",
    "text": "one of the choices",
    "letter": "the letter of a choice",
    "place": "a place from 0 to {last}",
    "truth": "true or false, and two choices, true or yes and false or no",
}


def parser(
    parse: Callable[[Takes, JsonObject, int], AnyExample],
    takes: Takes,
    gold_is: str,
    strips_fields: bool,
    records: Sequence[JsonObject],
    place_of: Callable[[int], str],
) -> Parse:
    """What parses each record of a file with these records.

    `gold_is`: of the task's file, "" where it does not say; `place_of`: a record's place in words.
    Raises ValueError where the file as a whole has two meanings.
    """
    strip = _stripped if strips_fields else dict
    names = set(chain.from_iterable(records))
    takes = {key: _among(key, value, names) for key, value in takes.items()}
    if "gold" in takes:
        golds = [_gold_of(takes, strip(record)) for record in records] if not gold_is else []
        takes = {**takes, "reading": gold_is or reading_of(golds, place_of)}
    return lambda record, row: _related(parse, takes, strip(record), row)


def _related(
    parse: Callable[[Takes, JsonObject, int], AnyExample],
    takes: Takes,
    record: JsonObject,
    row: int,
) -> AnyExample:
    """The example with its cluster, the question that it asks in another order, and its traits."""
    example = parse(takes, record, row)
    shared = {}
    for key in ("cluster", "swapped"):
        if key in takes:
            shared[key] = checked_text(_trait(takes[key](record)), key)
            if not shared[key].strip():
                raise ValueError(f"{key} is empty, expected a text in each record")
    traits = list[tuple[str, str]]()
    for name, value in takes.get("traits", {}).items():
        text = _trait(value(record))
        # a blank cell is "" in a .csv, null or, in a column of numbers, NaN in a .parquet
        if text not in (None, "") and text == text:
            traits.append((name, checked_text(text, f"trait {name}")))
    if not shared and "traits" not in takes:
        return example
    return replace(example, **{"cluster": f"record {row}", "traits": tuple(traits), **shared})


def _trait(value: Json) -> Json:
    if isinstance(value, bool) or value in ("True", "False"):  # a template writes the latter
        return str(value).lower()
    return as_written(value)


def _among(key: str, value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):  # traits
        return {name: each.among(names) for name, each in value.items()}
    if not isinstance(value, list):
        return value.among(names)
    try:
        return [each.beside(names) for each in value]
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _stripped(record: JsonObject) -> JsonObject:
    """As composer does: texts of the record lose white space at both ends, those in lists do
    not."""
    return {
        key: value.strip() if isinstance(value, str) else value for key, value in record.items()
    }


def _gold_of(takes: Takes, record: JsonObject) -> tuple[Json, tuple[str, ...]] | None:
    """The right answer as the record has it, with its choices; None: it has none, which `choice`
    says."""
    try:
        return takes["gold"](record), _options(takes, record)
    except ValueError:
        return None


def choice(takes: Takes, record: JsonObject, row: int) -> Example:
    texts = _options(takes, record)
    question = _question(takes, record)
    if takes["reading"] == LABELS:
        gold, *others = labelled(takes["gold"](record), texts)
        category = _category(takes, record)
        return Example(row, (question,), texts, gold, category, also_right=tuple(others))
    gold = _gold(takes, record, texts)
    bias = _bias(takes, record, texts, gold)
    return Example(row, (question,), texts, gold, _category(takes, record), bias=bias)


def _bias(takes: Takes, record: JsonObject, texts: tuple[str, ...], gold: int) -> Bias | None:
    if "ambiguous" not in takes:
        return None
    biased = _gold(takes, record, texts, "biased")
    unknown = _gold(takes, record, texts, "unknown")
    value = takes["ambiguous"](record)
    is_ambiguous = _AMBIGUOUS.get(str(value).strip().lower())
    if is_ambiguous is None:
        raise ValueError(f"ambiguous is {shown(value)}, expected one of {', '.join(_AMBIGUOUS)}")
    if biased == unknown:
        raise ValueError(
            f"biased and unknown are both {shown(texts[biased])}, expected two choices"
        )
    if is_ambiguous != (gold == unknown):
        what = "an ambiguous record, expected the unknown choice"
        if not is_ambiguous:
            what = "a record that is not ambiguous, expected another choice than the unknown one"
        raise ValueError(f"gold is {shown(texts[gold])} in {what}")
    return Bias(biased, unknown, is_ambiguous)


def schema(takes: Takes, record: JsonObject, row: int) -> Example:
    texts = _options(takes, record)
    answer = answer_text(as_written(takes["answer"](record)), "answer")
    gold = _gold(takes, record, texts)
    return Example(row, texts, (answer,), gold, _category(takes, record))


def joined(
    parse: Callable[[Takes, JsonObject, int], Example],
    delimiter: str,
    takes: Takes,
    record: JsonObject,
    row: int,
) -> Example:
    """An example each of whose continuations begins with the delimiter, which is scored with it."""
    example = parse(takes, record, row)
    return replace(example, continuations=tuple(delimiter + text for text in example.continuations))


def _gold(takes: Takes, record: JsonObject, texts: tuple[str, ...], key: str = "gold") -> int:
    """The place of the choice that `key` names, in the reading of the right ones."""
    value = takes[key](record)
    reading = takes["reading"]
    readings = readings_of(value, texts)
    gold = readings.get(reading or next(iter(readings), ""))
    if gold is None:
        expected = _EXPECTED[reading].format(last=len(texts) - 1)
        raise ValueError(f"{key} is {shown(value)}, expected {expected}")
    return gold


def _options(takes: Takes, record: JsonObject) -> tuple[str, ...]:
    """The choices, or the contexts of a schema."""
    name = "contexts" if "contexts" in takes else "choices"
    options = takes[name]
    given = [each(record) for each in options] if isinstance(options, list) else options(record)
    if isinstance(given, dict):  # BIG-bench's target_scores: choices and their labels
        given = list(given)
    if not isinstance(given, list) or len(given) < 2:
        raise ValueError(f"{name} are {shown(given)}, expected a list of at least two texts")
    one = name.removesuffix("s")
    return tuple(answer_text(as_written(text), f"{one} {i + 1}") for i, text in enumerate(given))


def continuation(takes: Takes, record: JsonObject, row: int) -> Example:
    text = answer_text(as_written(takes["answer"](record)), "answer")
    return Example(row, (_question(takes, record),), (text,), 0, _category(takes, record))


def question(compared: Normalize, takes: Takes, record: JsonObject, row: int) -> Question:
    """`compared`: an answer as completions are compared with it."""
    given = takes["answer"](record)
    texts = given if isinstance(given, list) else [given]
    answers = tuple(answer_text(as_written(text), "answer") for text in texts)
    if not answers:
        raise ValueError("answer is an empty list, expected at least one text")
    if nothing := next((text for text in answers if not compared(text)), None):
        raise ValueError(f"answer {shown(nothing)} is empty once normalized, expected some text")
    return Question(
        row,
        (_question(takes, record),),
        answers[:1],
        0,
        _category(takes, record),
        accepted=tuple(dict.fromkeys(answers)),
        room_for=answers,
    )


def cloze(takes: Takes, record: JsonObject, row: int) -> Cloze:
    """An item of MIRON's kind; fields that are null are those of an item without noise."""
    taken = {}
    for key in ("name", "clean_prefix", "operator"):
        value = _trait(takes[key](record)) if key in takes else None
        taken[key] = value and checked_text(value, key)
    target = answer_text(takes["target"](record), "target")
    distractors = takes["distractors"](record) if "distractors" in takes else None
    if distractors and not (are_texts(distractors) and all(distractors)):
        raise ValueError(f"distractors is {shown(distractors)}, expected a list of texts")
    if target in (distractors or ()):
        raise ValueError(
            f"distractors holds the target {shown(target)}, expected wrong continuations only"
        )
    edits = takes["num_edits"](record) if "num_edits" in takes else None
    if type(edits or 0) is not int:
        raise ValueError(f"num_edits is {shown(edits)}, expected a whole number")
    return Cloze(
        row=row,
        name=taken["name"] or str(row),
        prefix=checked_text(takes["prefix"](record), "prefix"),
        target=target,
        category=checked_text(as_written(takes["category"](record)), "category"),
        distractors=tuple(distractors or ()),
        clean_prefix=taken["clean_prefix"],
        operator=taken["operator"],
        num_edits=edits or 0,
    )


def problem(takes: Takes, record: JsonObject, row: int) -> Problem:
    language = takes["language"](record) if "language" in takes else "python"
    if language not in LANGUAGES:
        raise ValueError(f"language is {shown(language)}, expected one of {', '.join(LANGUAGES)}")
    inputs = _tests(takes, record, "inputs")
    outputs = _tests(takes, record, "outputs")
    if len(inputs) != len(outputs):
        raise ValueError(
            f"{len(inputs)} inputs and {len(outputs)} outputs, expected as many of both"
        )
    if language == "python":
        inputs = tuple(map(_arguments, inputs))
    return Problem(
        row,
        checked_text(takes["name"](record), "name") if "name" in takes else f"problem {row}",
        checked_text(takes["prompt"](record), "prompt"),
        checked_text(takes["entry_point"](record), "entry_point"),
        language,
        inputs,
        outputs,
        checked_text(takes["solution"](record), "solution"),
    )


def _arguments(text: str) -> str:
    """The tuple of arguments that a Python call holds between its parentheses.

    7 -> (7,)    [7] -> ([7],)    1, 2 -> (1, 2)    nothing -> ()
    """
    try:
        match ast.parse(f"f({text}\n)", mode="eval").body:
            case ast.Call(func=ast.Name(), args=arguments, keywords=[]) if not any(
                isinstance(argument, ast.GeneratorExp) for argument in arguments
            ):
                return ast.unparse(ast.Tuple(arguments, ast.Load()))
            case _:
                pass
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    raise ValueError(
        f"inputs hold {shown(text)}, expected what a call holds between its parentheses, without "
        "names: 7, [7], 'ab' or 1, 2"
    )


def _tests(takes: Takes, record: JsonObject, key: str) -> tuple[str, ...]:
    tests = takes[key](record)
    if not isinstance(tests, list) or not tests or not all(isinstance(text, str) for text in tests):
        raise ValueError(f"{key} are {shown(tests)}, expected a list of texts")
    return tuple(tests)


def _question(takes: Takes, record: JsonObject) -> str:
    return checked_text(as_written(takes["question"](record)), "question")


def _category(takes: Takes, record: JsonObject) -> str | None:
    if "category" not in takes:
        return None
    value: Value = takes["category"]
    return checked_text(as_written(value(record)), "category")
