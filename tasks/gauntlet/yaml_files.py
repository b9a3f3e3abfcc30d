"""llm-foundry's yaml files -> a suite of the user's own.

Arrives: the file that lists tasks (`icl_tasks`) and, if there is one, the file that averages them (`eval_gauntlet`).
Leaves: a `Suite` under the rules of Gauntlet v0.1.0.  It deliberately does not know what is published.

Files are looked for below --data_dir under the `dataset_uri`, or under what stands behind its `local_data/`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from miron_jax.definitions.records import Suite, Task
from miron_jax.errors import InputError, printable
from miron_jax.files.readers import parse_yaml, shown
from miron_jax.tasks.gauntlet.averages import WEIGHTINGS, Averages
from miron_jax.tasks.gauntlet.icl_task import IclTask, task_of

NAME = "own-gauntlet"
_KINDS = {
    "multiple_choice": "multiple_choice",
    "schema": "schema",
    "language_modeling": "language_modeling",
    "question_answering": "generation",  # its name in v0.4.0
    "generation_task_with_answers": "generation",  # and later
}
_TEXTS = {  # yaml key -> field
    "continuation_delimiter": "delimiter",
    "example_delimiter": "shot_separator",
    "question_prelimiter": "prelimiter",
    "prompt_string": "prompt_string",
    "cot_delimiter": "answer_after",
}
_OF_TEXTS = ("cot_delimiter", "early_stopping_criteria")
_MOST_LABEL_BYTES = 200  # a file system takes 255, with what is put behind it
_GAUNTLET_KEYS = ("weighting", "subtract_random_baseline", "rescale_accuracy", "averages", "categories")
_OTHER_KEYS = (
    "label", "dataset_uri", "num_fewshot", "icl_task_type", "has_categories", "early_stopping_criteria",
    "batch_size", "metric_names",
)  # fmt: skip


def read_suite(tasks_file: Path, gauntlet_file: Path | None) -> Suite[Task[Any]]:
    """Raises InputError for what cannot be honoured to the letter."""
    entries = [
        entry
        for i, fields in enumerate(_listed(tasks_file, "icl_tasks"))
        for entry in _entries(fields, f"{tasks_file}, task {i + 1}")
    ]
    names = _names([entry for entry, _ in entries], tasks_file)
    averages = _averages(gauntlet_file, names) if gauntlet_file else None
    baselines = _baselines(averages)
    tasks = []
    for (entry, stop), name in zip(entries, names.values(), strict=True):
        section, baseline = baselines.get(name, (None, None))
        tasks.append(task_of(replace(entry, baseline=baseline), name, section, stop))
    return Suite(NAME, tuple(tasks), averages.composites if averages else lambda measured: {}, _locate)


def _locate(data_dir: Path | None, fetch: bool = True) -> Path:
    folder = data_dir or Path()
    return next((folder / inner for inner in ("eval/local_data", "eval_data") if (folder / inner).is_dir()), folder)


def _load(path: Path) -> Any:
    remedy = "name a file as llm-foundry's eval/yamls/tasks.yaml or eval_gauntlet.yaml"
    try:
        return parse_yaml(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {remedy}") from None
    except ValueError as error:
        raise InputError(f"{path} is no yaml ({error!s:.120}): {remedy}") from None


def _listed(path: Path, key: str) -> Sequence[Any]:
    content = _load(path)
    found = content.get(key) if isinstance(content, Mapping) else content
    if not isinstance(found, list) or not found:
        raise InputError(f"{path}: no list of tasks under {key!r}, expected one as in llm-foundry's tasks.yaml")
    return found


def _entries(fields: Any, where: str) -> list[tuple[IclTask, tuple[str, ...]]]:
    """One entry for each number of few-shot examples, and the strings that end its texts."""
    if not isinstance(fields, Mapping):
        raise InputError(f"{where}: found {shown(fields)}, expected keys such as label, dataset_uri, icl_task_type")
    label = _text(fields, "label", where)
    where = f"{where} ({printable(label, 60)})"
    _known(fields, (*_OTHER_KEYS, *_TEXTS), where)
    if label.startswith("/") or ".." in label.split("/") or not label.isprintable():
        raise InputError(f"{where}: label is {shown(label)}, expected a name that can be part of a file's path")
    if len(label.encode()) > _MOST_LABEL_BYTES:
        raise InputError(
            f"{where}: label has {len(label.encode())} bytes, a file's name takes {_MOST_LABEL_BYTES}: cut it"
        )
    kind = _text(fields, "icl_task_type", where)
    if kind not in _KINDS:
        raise InputError(
            f"{where}: icl_task_type is {shown(kind)}, expected one of {', '.join(_KINDS)}: mend or remove the task"
        )
    _check_metrics(fields.get("metric_names", []), where)
    stop = fields.get("early_stopping_criteria", [])
    if not (isinstance(stop, list) and all(isinstance(own, str) and own for own in stop)):
        raise InputError(f"{where}: early_stopping_criteria is {shown(stop)}, expected a list of texts")
    if unused := [key for key in _OF_TEXTS if key in fields and _KINDS[kind] != "generation"]:
        raise InputError(f"{where}: key {unused[0]!r} is of tasks that generate, not of {kind}: remove it")
    texts = {field: _text(fields, key, where) for key, field in _TEXTS.items() if key in fields}
    uri = _text(fields, "dataset_uri", where)
    return [
        (
            IclTask(
                label,
                _KINDS[kind],  # pyright: ignore[reportArgumentType]
                shots,
                None,
                uri.partition("local_data/")[2] or uri,
                has_categories=_bool(fields, "has_categories", False, where),
                **texts,
            ),
            tuple(stop),
        )
        for shots in _shots(fields, where)
    ]


def _text(fields: Mapping[Any, Any], key: str, where: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or "${" in value:
        raise InputError(f"{where}: {key} is {shown(value)}, expected a text without ${{...}}")
    return value


def _bool(fields: Mapping[Any, Any], key: str, default: bool, where: str) -> bool:
    value = fields.get(key, default)
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key} is {shown(value)}, expected true or false")
    return value


def _known(fields: Any, keys: Sequence[str], where: str) -> None:
    """Refuse what would change a score in the reference and is not read here, misspelt keys among it."""
    unknown = [str(key) for key in fields if key not in keys] if isinstance(fields, Mapping) else []
    if unknown:
        raise InputError(f"{where}: key {unknown[0]!r} is not known here, expected one of {', '.join(keys)}: remove it")


def _shots(fields: Mapping[Any, Any], where: str) -> list[int]:
    value = fields.get("num_fewshot", [0])
    shots = value if isinstance(value, list) else [value]
    if not shots or not all(isinstance(own, int) and not isinstance(own, bool) and own >= 0 for own in shots):
        raise InputError(f"{where}: num_fewshot is {shown(value)}, expected whole numbers from 0, such as [10]")
    return shots


def _check_metrics(names: Any, where: str) -> None:
    """Accuracy is what is scored, always; another metric is asked for in vain."""
    wrong = [str(name) for name in names if "Accuracy" not in str(name)] if isinstance(names, list) else [repr(names)]
    if wrong:
        raise InputError(f"{where}: metric_names asks for {wrong[0]:.60}, expected names of accuracies: remove it")


def _names(entries: Sequence[IclTask], path: Path) -> dict[tuple[str, int], str]:
    """(label, few-shot examples) -> task name; the number stands in it where a label has several."""
    labels = [entry.label for entry in entries]
    names: dict[tuple[str, int], str] = {}
    for entry in entries:
        key = (entry.label, entry.num_fewshot)
        if key in names:
            raise InputError(f"{path}: task {entry.label!r} with {entry.num_fewshot} shots is listed twice: keep one")
        several = labels.count(entry.label) > 1
        names[key] = f"{NAME}/{entry.label}{f'/{entry.num_fewshot}-shot' if several else ''}"
    if len(set(names.values())) < len(names):
        raise InputError(f"{path}: two tasks would both be called {_twice(names.values())}: give one another label")
    return names


def _twice(names: Iterable[str]) -> str:
    met: Counter[str] = Counter(names)
    return met.most_common(1)[0][0]


def _averages(path: Path, names: Mapping[tuple[str, int], str]) -> Averages:
    content = _load(path)
    fields = content.get("eval_gauntlet", content) if isinstance(content, Mapping) else None
    listed = fields.get("categories") if isinstance(fields, Mapping) else None
    if not isinstance(fields, Mapping) or not isinstance(listed, list):
        raise InputError(f"{path}: no categories under 'eval_gauntlet', expected them as llm-foundry's file has them")
    _known(fields, _GAUNTLET_KEYS, str(path))
    weighting = fields.get("weighting", "EQUAL")
    if not isinstance(weighting, str) or weighting not in WEIGHTINGS:
        raise InputError(f"{path}: weighting is {shown(weighting)}, expected one of {', '.join(WEIGHTINGS)}")
    subtract = _bool(fields, "subtract_random_baseline", True, str(path))
    rescale = _bool(fields, "rescale_accuracy", True, str(path))
    if rescale and not subtract:
        raise InputError(f"{path}: rescale_accuracy needs subtract_random_baseline: set both, or neither")
    categories = _categories(listed, names, path)
    averages = fields.get("averages") or {"default_average": list(categories)}
    if not isinstance(averages, Mapping) or not all(
        isinstance(name, str) and isinstance(members, list) and all(isinstance(own, str) for own in members)
        for name, members in averages.items()
    ):
        raise InputError(f"{path}: averages are {shown(averages)}, expected a name and a list of categories each")
    for name, members in averages.items():
        if absent := [member for member in members if member not in categories]:
            raise InputError(
                f"{path}: average {name!r} names the category {absent[0]!r}, which is not listed: mend the name"
            )
    if both := sorted(averages.keys() & categories.keys()):
        raise InputError(f"{path}: {both[0]!r} names an average and a category: give one of them another name")
    return Averages(categories, {name: tuple(own) for name, own in averages.items()}, weighting, subtract, rescale)


def _categories(listed: Sequence[Any], names: Mapping[tuple[str, int], str], path: Path) -> dict[str, dict[str, float]]:
    categories: dict[str, dict[str, float]] = {}
    for category in listed:
        _known(category, ("name", "benchmarks"), f"{path}, category {shown(category)}")
        try:
            name = _text(category, "name", f"{path}, category {shown(category)}")
            for benchmark in category["benchmarks"]:
                _known(benchmark, ("name", "num_fewshot", "random_baseline"), f"{path}, benchmark {shown(benchmark)}")
            own = {
                names.get(key := (b["name"], b["num_fewshot"]), f"{NAME}/{key[0]}/{key[1]}-shot"): float(
                    b["random_baseline"]
                )
                for b in category["benchmarks"]
            }
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(
                f"{path}: category {shown(category)} cannot be read ({type(error).__name__}: {error}), expected a name and "
                "benchmarks with name, num_fewshot and random_baseline each"
            ) from None
        if wrong := [task for task, b in own.items() if not 0 <= b < 1]:
            raise InputError(f"{path}: random_baseline of {wrong[0]} is {own[wrong[0]]}, expected 0 or more, below 1")
        if len(own) < max(1, len(category["benchmarks"])):
            raise InputError(f"{path}: category {name!r} lists no benchmark, or one twice: list each once")
        if name in categories:
            raise InputError(f"{path}: category {name!r} is listed twice: keep one")
        categories[name] = own
    return categories


def _baselines(averages: Averages | None) -> dict[str, tuple[str, float]]:
    """Task name -> its category and baseline."""
    if averages is None:
        return {}
    return {task: (name, b) for name, own in averages.categories.items() for task, b in own.items()}
