"""Records <-> JSON, schema 1: results.json, and the lines of samples files.

Arrives: a `RunResult` or an `ExampleResult`; or their JSON.  Leaves: the other of the two.  It
deliberately does not know files.  JSON is strict: a number that is not finite is null.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache, partial
from operator import eq
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import orjson

from miron_jax.config import SETTINGS, RunConfig
from miron_jax.definitions.if_any import fields_if_any
from miron_jax.files.places import place, public
from miron_jax.files.readers import Json, JsonObject
from miron_jax.results.details import (
    ChoiceDetails,
    ClozeDetails,
    Drift,
    GenerationDetails,
    ProgramDetails,
    TextDetails,
)
from miron_jax.results.records import (
    Details,
    RunResult,
    TaskResult,
)
from miron_jax.results.samples import (
    Asked,
    AskedDocument,
    AskedItem,
    AskedProblem,
    AskedPrompt,
    Completion,
    ExampleResult,
    ModelOutput,
    Programs,
)
from miron_jax.runtime.answers import Answers
from miron_jax.statistics.estimate import Estimate

if TYPE_CHECKING:
    from cattrs import Converter

SCHEMA = 1
NO_VALUE = "no example has a defined value"
OF_TASK = -1  # examples of an estimate that stand in its task's entry alone
# A key that only tasks with these details have.
DETAILS: Mapping[str, type[Details]] = {
    "macro": ClozeDetails,
    "windows": TextDetails,
    "sandboxed": ProgramDetails,
    "always_right_rows": GenerationDetails,
    "tied": ChoiceDetails,
}
# The keys of a task's entry, in their order; a kind has some of them.
TASK_KEYS = (
    "n", "metrics", "groups", "macro", "fragmentation", "drift", "baselines", "human", "rescaled",
    "profile", "kind", "main",
    "section", "rows_by_category", "published_rows_a_category", "skipped", "unspelled", "bos_added",
    "targets_with_newline",
    "tied", "rounded_to_a_tie", "first_option_accuracy", "empty_span", "inexact_prefix",
    "crossed_pairs", "dialogue",
    "max_new_tokens", "ended", "always_right_rows", "answer_holds_stop_rows", "never_right_rows",
    "alike", "prompts_end_in_space", "classifiers", "sandboxed", "no_sandbox", "bounded_by",
    "no_cgroup",
    "ceiling", "not_judged", "tokens",
    "bytes", "windows", "empty_documents", "truncated", "beyond_trained_length", "leaked_prompts",
    "prefixes_end_in_space",
    "targets_begin_with_space", "control_tokens", "tokens_without_text", "num_shots", "robustness",
    "data", "citation",
    "reference", "licence", "controls", "draws",
    "sampled", "limit",
)  # fmt: skip
NOT_OF_CLOZE = frozenset({"human", "rescaled", "section"})
# left out where absent, as in files of older versions
LATER_SETTINGS = frozenset(
    [
        "average",
        "chat_template",
        "comet",
        "controls",
        "fewshot_draws",
        "generated",
        "human_labels",
        "keep_up",
        "mlflow",
        "newest_first",
        "rows",
        "special_tokens",
        "token_stats",
        "trackio",
    ]
)

AnyRecord = TypeVar("AnyRecord")
_LEAVES = frozenset({str, int, bool, type(None)})
_SEQUENCES = (list, tuple)  # a union of both would be made anew at each value
_EMPTY = (None, "", (), {})
# orjson writes numbers that are not finite as null; records within records are `_stated`
_OF_SAMPLES = (
    orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_SERIALIZE_NUMPY
)


# Records -> JSON


def run_json(run: RunResult) -> JsonObject:
    """The document results.json."""
    return {
        "schema": SCHEMA,
        **_fields(run),
        "tasks": {name: task_json(task) for name, task in run.tasks.items()},
    }


def task_json(task: TaskResult) -> JsonObject:
    """A task's entry of results.json."""
    entry = _fields(task)
    del entry["details"]
    details = task.details
    entry |= _fields(details)
    # some numbers exist for some items only: each has its own n
    if isinstance(details, ClozeDetails):
        entry |= {"metrics": _counted(task.metrics), "macro": _counted(details.macro)}
        entry["groups"] = {
            name: {"n": group.n, "metrics": _counted(group.metrics)}
            for name, group in task.groups.items()
        }
        entry["fragmentation"] = _fragmentation(details)
        entry["drift"] = {name: _drift(drift) for name, drift in details.drift.items()}
        entry = {key: value for key, value in entry.items() if key not in NOT_OF_CLOZE}
    return {key: entry[key] for key in TASK_KEYS if key in entry}


def example_line(example: ExampleResult) -> bytes:
    """A line of a samples file, with its line break."""
    line: dict[str, object] = {}
    for key, value in _stated(example).items():
        if key in ("asked", "answered"):
            line |= _stated(value)
        else:
            line[key] = value
    try:
        return orjson.dumps(line, default=_stated, option=_OF_SAMPLES)
    except TypeError:  # what a program answered: more than 64 bits, or nested more than 254 deep
        return f"{strict_json(plain(line))}\n".encode()


def plain(value: Any) -> Json:
    """A value of records, mappings and lists as JSON.  NaN and infinity are null, NumPy's numbers
    Python's."""
    if type(value) in _LEAVES:  # most values of samples
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, _SEQUENCES):
        return [*map(plain, value)]
    if isinstance(value, Estimate):
        return _estimate(value)
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def config_json(config: RunConfig) -> JsonObject:
    """The configuration, without credentials or home folders in its paths."""
    document = json.loads(json.dumps(asdict(config)))
    for key in LATER_SETTINGS:
        if not document[key] or document[key] == SETTINGS[key].default:
            del document[key]
    return each_leaf(document, lambda leaf: public(leaf) if isinstance(leaf, str) else leaf)


def each_leaf(value: Json, change: Callable[[Json], Json]) -> Json:
    """A JSON value whose objects and lists hold what `change` returns for each of their leaves."""
    if isinstance(value, Mapping):
        return {key: each_leaf(entry, change) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [each_leaf(entry, change) for entry in value]
    return change(value)


def strict_json(value: Json, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)


def _fields(record: Any) -> JsonObject:
    return {name: plain(value) for name, value in _stated(record).items()}


def _stated(record: Any) -> dict[str, object]:
    """A record's fields as they are, without those `IfAny` that say nothing."""
    if_any = fields_if_any(type(record))
    if isinstance(record, AskedPrompt) and record.cluster is None:
        if_any |= {"swapped", "traits"}
    entry: dict[str, object] = {}
    for name in _names_of(type(record)):
        value = getattr(record, name)
        if name not in if_any or value not in _EMPTY:
            entry[name] = value
    return entry


@cache
def _names_of(record: type) -> tuple[str, ...]:
    """Names of a dataclass's fields."""
    return tuple(field.name for field in fields(record))


def _estimate(estimate: Estimate) -> JsonObject:
    entry: JsonObject = {
        "value": plain(estimate.value),
        "stderr": plain(estimate.stderr),
        "ci95": plain(estimate.ci95),
    }
    if estimate.num_undefined:
        entry |= {"n": estimate.num_examples, "undefined": estimate.num_undefined}
    if reason := _why_undefined(estimate):
        entry["reason"] = reason
    return entry


def _why_undefined(estimate: Estimate) -> str:
    if not estimate.num_examples:
        return NO_VALUE
    if not math.isfinite(estimate.value):
        return "an example is infinite"
    return "" if math.isfinite(estimate.stderr) else "one example has no deviation"


def _counted(estimates: Mapping[str, Estimate]) -> JsonObject:
    return {name: {**_estimate(each), "n": each.num_examples} for name, each in estimates.items()}


def _fragmentation(details: ClozeDetails) -> JsonObject:
    fragmentation = details.fragmentation
    spearman = fragmentation.spearman_tokens_bits_per_char
    entry: JsonObject = {"spearman_tokens_bits_per_char": plain(spearman)}
    if math.isnan(spearman):
        entry["reason"] = "tokens or bits are the same for all items"
    entry["by_target_tokens"] = {
        name: _counted(means) for name, means in fragmentation.by_target_tokens.items()
    }
    entry["segmentation_tokens"] = fragmentation.segmentation_tokens
    return entry


def _drift(drift: Drift) -> JsonObject:
    entry: JsonObject = {
        "median_percent": plain(drift.median_percent),
        "ci95": plain(drift.ci95),
        "n": drift.n,
    }
    if not drift.n:
        entry["reason"] = "no pair has a defined value"
    return entry | _counted(drift.metrics)


# JSON -> records


def run_of(document: Json) -> RunResult:
    """Raises ValueError for a document that is none of this schema."""
    return _structured(document, RunResult)


def config_of(entry: Json) -> RunConfig:
    """The configuration that results.json holds, its paths as the user of today has them.  Raises
    ValueError for what is none."""
    return _structured(each_leaf(entry, _at_home), RunConfig)


def example_of(line: Json) -> ExampleResult:
    """Raises ValueError for a line that is no sample."""
    return _structured(line, ExampleResult)


def _at_home(leaf: Json) -> Json:
    is_below = isinstance(leaf, str) and leaf.startswith("~/")
    return place(leaf) if is_below else leaf


def writer_of(document: JsonObject) -> str:
    """The version of miron-jax that wrote a results.json, of whatever schema."""
    try:
        return str(document["environment"]["packages"]["miron-jax"])
    except (KeyError, TypeError):
        return "unknown"


def _structured(document: Json, record: type[AnyRecord]) -> AnyRecord:
    if not isinstance(document, dict):
        raise ValueError(f"{type(document).__name__}, expected an object")
    try:
        return _converter(False).structure(document, record)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        pass  # said with its place below
    from cattrs import BaseValidationError, transform_error

    try:
        return _converter(True).structure(document, record)
    except BaseValidationError as error:
        raise ValueError("; ".join(transform_error(error))) from None


@cache
def _converter(says_where: bool) -> "Converter":
    """Reads JSON as records.  `says_where`: an error has the place of every fault, which costs
    twice the time."""
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, override

    converter = Converter(detailed_validation=says_where)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly)
    converter.register_structure_hook(float, _float_of)
    converter.register_structure_hook_func(lambda kind: kind == Sequence[float], _floats_of)
    if not says_where:
        for of in (int, str):
            of_kind = partial(eq, tuple[of, ...])
            converter.register_structure_hook_func(of_kind, partial(_all_of, of))
    converter.register_structure_hook_func(
        lambda kind: kind == Asked, lambda line, _: converter.structure(line, _asked_by(line))
    )
    converter.register_structure_hook_func(
        lambda kind: kind == ModelOutput, lambda line, _: _answered_of(line, converter)
    )
    converter.register_structure_hook(Answers, lambda value, _: Answers.of_json(value))
    converter.register_structure_hook(Estimate, lambda entry, _: _estimate_of(entry, converter))
    plain_drift = make_dict_structure_fn(Drift, converter)

    plain_task = make_dict_structure_fn(TaskResult, converter, details=override(omit=True))
    plain_example = make_dict_structure_fn(ExampleResult, converter)

    def drift_of(entry: Json, _: type) -> Drift:
        metrics = {name: each for name, each in entry.items() if isinstance(each, dict)}
        return plain_drift({**entry, "metrics": metrics}, Drift)

    def task_of(entry: Json, _: type) -> TaskResult:
        task = plain_task(entry, TaskResult)
        of_kind = next((details for key, details in DETAILS.items() if key in entry), Details)
        details = converter.structure(entry, of_kind)
        return replace(task, details=details, metrics=_of_all(task.metrics, task.n))

    def example_of(line: Json, _: type) -> ExampleResult:
        return plain_example({**line, "asked": line, "answered": line}, ExampleResult)

    converter.register_structure_hook(Drift, drift_of)
    converter.register_structure_hook(TaskResult, task_of)
    converter.register_structure_hook(ExampleResult, example_of)
    return converter


def _exactly(value: Json, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.40}, expected {kind.__name__}")
    return value


def _all_of(kind: type, values: Json, _: type) -> tuple[Json, ...]:
    if not set(map(type, values)) <= {kind}:
        raise ValueError  # which the other converter says with its place
    return tuple(values)


def _float_of(value: Json, _: type) -> float:
    if value is None:
        return math.nan
    if type(value) not in (int, float):
        raise ValueError(f"{value!r:.40}, expected a number or null")
    return float(value)


def _floats_of(values: Json, _: type) -> list[float]:
    if set(map(type, values)) <= {float}:  # nearly always
        return list(values)
    return [_float_of(value, float) for value in values]


def _estimate_of(entry: Json, converter: "Converter") -> Estimate:
    ci95 = entry.get("ci95") or (None, None)
    low, high = (converter.structure(end, float) for end in ci95)
    return Estimate(
        converter.structure(entry["value"], float),
        converter.structure(entry.get("stderr"), float),
        (low, high),
        converter.structure(entry.get("n", 0 if entry.get("reason") == NO_VALUE else OF_TASK), int),
        converter.structure(entry.get("undefined", 0), int),
    )


def _of_all(metrics: Mapping[str, Estimate], n: int) -> Mapping[str, Estimate]:
    """Estimates with the task's own n where they have none."""
    whole = dict(metrics)
    for name, each in metrics.items():
        if each.num_examples == OF_TASK:
            whole[name] = replace(each, num_examples=n)
    return whole


def _answered_of(line: JsonObject, converter: "Converter") -> ModelOutput:
    if "programs" in line:
        return converter.structure(line, Programs)
    if "ended" in line:
        return converter.structure(line, Completion)
    return None


def _asked_by(line: JsonObject) -> type:
    if "prefix" in line:
        return AskedItem
    if "doc_id" in line:
        return AskedDocument
    return AskedProblem if "name" in line else AskedPrompt
