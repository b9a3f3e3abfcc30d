"""A user's gauntlet: llm-foundry's yaml files -> a suite.

Arrives: the file that lists tasks (`icl_tasks`) and, optionally, the file that averages them
(`eval_gauntlet`).  Leaves: a `Suite` under the rules of Gauntlet v0.1.0.  It deliberately does not
know what is published.

The path of a data file below --data_dir is its `dataset_uri`, or the part of it after
`local_data/`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from miron_jax.definitions.records import PromptedTask, Suite
from miron_jax.errors import InputError, printable
from miron_jax.files.readers import Json, JsonObject, are_texts, parse_yaml, shown
from miron_jax.files.regular import read_regular
from miron_jax.tasks.gauntlet.averages import WEIGHTINGS, Averages
from miron_jax.tasks.gauntlet.icl_task import IclTask, task_of
from miron_jax.tasks.icl_rows import PARSE, IclKind

NAME = "own-gauntlet"
_KINDS: dict[str, IclKind | Literal["generation"]] = {
    **{kind: kind for kind in PARSE},
    "question_answering": "generation",  # its name in v0.4.0
    "generation_task_with_answers": "generation",  # its name in later versions
}
_TEXTS = {  # yaml key -> field
    "continuation_delimiter": "delimiter",
    "example_delimiter": "shot_separator",
    "question_prelimiter": "prelimiter",
    "prompt_string": "prompt_string",
    "cot_delimiter": "answer_after",
}
_GENERATION_KEYS = ("cot_delimiter", "early_stopping_criteria")
_MOST_LABEL_BYTES = 200  # file systems allow 255, which includes suffixes
_GAUNTLET_KEYS = (
    "weighting",
    "subtract_random_baseline",
    "rescale_accuracy",
    "averages",
    "categories",
)
_BENCHMARK_KEYS = ("name", "num_fewshot", "random_baseline")
_OTHER_KEYS = (
    "label", "dataset_uri", "num_fewshot", "icl_task_type", "has_categories",
    "early_stopping_criteria",
    "batch_size", "metric_names",
)  # fmt: skip


def read_suite(tasks_file: Path, gauntlet_file: Path | None) -> Suite[PromptedTask]:
    """The suite that the files describe.  Raises InputError for every key that this program cannot
    follow exactly."""
    entries: list[tuple[IclTask, tuple[str, ...]]] = []
    for number, fields in enumerate(_task_list(tasks_file), start=1):
        entries += _entries(fields, f"{tasks_file}, task {number}")
    names = _names([entry for entry, _ in entries], tasks_file)
    averages = _averages(gauntlet_file, names) if gauntlet_file else Averages({}, {})
    sections = {}
    for section, members in averages.categories.items():
        sections |= {task: (section, baseline) for task, baseline in members.items()}
    tasks = []
    for (entry, stop), name in zip(entries, names.values(), strict=True):
        section, baseline = sections.get(name, (None, None))
        tasks.append(task_of(replace(entry, baseline=baseline), name, section, stop))
    return Suite(NAME, tuple(tasks), averages.composites, _locate)


def _locate(data_dir: Path | None, fetch: bool = True) -> Path:
    folder = data_dir or Path()
    for inner in ("eval/local_data", "eval_data"):
        if (folder / inner).is_dir():
            return folder / inner
    return folder


def _load(path: Path) -> Json:
    remedy = "name a file as llm-foundry's eval/yamls/tasks.yaml or eval_gauntlet.yaml"
    try:
        return parse_yaml(read_regular(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {remedy}") from None
    except ValueError as error:
        raise InputError(f"{path} is no yaml ({error!s:.120}): {remedy}") from None


def _task_list(path: Path) -> Sequence[Json]:
    tasks = _load(path)
    if isinstance(tasks, dict):
        tasks = tasks.get("icl_tasks")
    if not isinstance(tasks, list) or not tasks:
        raise InputError(
            f"{path}: no list of tasks under 'icl_tasks', expected one as in llm-foundry's "
            "tasks.yaml"
        )
    return tasks


def _entries(fields: Json, at: str) -> list[tuple[IclTask, tuple[str, ...]]]:
    """One entry for each number of shots, with its stop strings."""
    if not isinstance(fields, dict):
        raise InputError(
            f"{at}: found {shown(fields)}, expected keys such as label, dataset_uri, icl_task_type"
        )
    label = _text(fields, "label", at)
    at = f"{at} ({printable(label, 60)})"
    _check_keys(fields, (*_OTHER_KEYS, *_TEXTS), at)
    if label.startswith("/") or ".." in label.split("/") or not label.isprintable():
        raise InputError(
            f"{at}: label is {shown(label)}, expected a name that can be part of a file's path"
        )
    if len(label.encode()) > _MOST_LABEL_BYTES:
        raise InputError(
            f"{at}: label has {len(label.encode())} bytes, a file's name takes "
            f"{_MOST_LABEL_BYTES}: cut it"
        )
    kind = _text(fields, "icl_task_type", at)
    if kind not in _KINDS:
        raise InputError(
            f"{at}: icl_task_type is {shown(kind)}, expected one of {', '.join(_KINDS)}: mend or "
            "remove the task"
        )
    _check_metrics(fields.get("metric_names", []), at)
    stop = fields.get("early_stopping_criteria", [])
    if stop != [] and not (are_texts(stop) and all(stop)):
        raise InputError(
            f"{at}: early_stopping_criteria is {shown(stop)}, expected a list of texts"
        )
    for key in _GENERATION_KEYS:
        if key in fields and _KINDS[kind] != "generation":
            raise InputError(
                f"{at}: key {key!r} is of tasks that generate, not of {kind}: remove it"
            )
    texts = {field: _text(fields, key, at) for key, field in _TEXTS.items() if key in fields}
    uri = _text(fields, "dataset_uri", at)
    file = uri.partition("local_data/")[2] or uri
    has_categories = _bool(fields, "has_categories", False, at)
    entry = IclTask(label, _KINDS[kind], 0, None, file, has_categories=has_categories)
    entry = replace(entry, **texts)
    return [(replace(entry, num_fewshot=shots), tuple(stop)) for shots in _shots(fields, at)]


def _text(fields: JsonObject, key: str, at: str) -> str:
    text = fields.get(key)
    if not isinstance(text, str) or "${" in text:
        raise InputError(f"{at}: {key} is {shown(text)}, expected a text without ${{...}}")
    return text


def _bool(fields: JsonObject, key: str, default: bool, at: str) -> bool:
    flag = fields.get(key, default)
    if not isinstance(flag, bool):
        raise InputError(f"{at}: {key} is {shown(flag)}, expected true or false")
    return flag


def _check_keys(fields: Json, keys: Sequence[str], at: str) -> None:
    """Raises InputError for keys that are not read here, misspelt ones included: the reference may
    use them."""
    if not isinstance(fields, dict):
        return
    for key in fields:
        if key not in keys:
            raise InputError(
                f"{at}: key {str(key)!r} is not known here, expected one of {', '.join(keys)}: "
                "remove it"
            )


def _shots(fields: JsonObject, at: str) -> list[int]:
    num_fewshot = fields.get("num_fewshot", [0])
    counts = num_fewshot if isinstance(num_fewshot, list) else [num_fewshot]
    if not counts or not all(
        isinstance(num, int) and not isinstance(num, bool) and num >= 0 for num in counts
    ):
        raise InputError(
            f"{at}: num_fewshot is {shown(num_fewshot)}, expected whole numbers from 0, such as "
            "[10]"
        )
    return counts


def _check_metrics(names: Json, at: str) -> None:
    """Raises InputError for metrics other than accuracies, which are the only ones computed."""
    wrong = repr(names)
    if isinstance(names, list):
        wrong = next((str(name) for name in names if "Accuracy" not in str(name)), None)
    if wrong is not None:
        raise InputError(
            f"{at}: metric_names asks for {wrong:.60}, expected names of accuracies: remove it"
        )


def _names(entries: Sequence[IclTask], path: Path) -> dict[tuple[str, int], str]:
    """(label, number of shots) -> task name, which contains the number if the label has several."""
    labels = [entry.label for entry in entries]
    names: dict[tuple[str, int], str] = {}
    for entry in entries:
        key = (entry.label, entry.num_fewshot)
        if key in names:
            raise InputError(
                f"{path}: task {entry.label!r} with {entry.num_fewshot} shots is listed twice: "
                "keep one"
            )
        names[key] = f"{NAME}/{entry.label}"
        if labels.count(entry.label) > 1:
            names[key] += f"/{entry.num_fewshot}-shot"
    if len(set(names.values())) < len(names):
        [(duplicate, _)] = Counter(names.values()).most_common(1)
        raise InputError(
            f"{path}: two tasks would both be called {duplicate}: give one another label"
        )
    return names


def _averages(path: Path, names: Mapping[tuple[str, int], str]) -> Averages:
    fields = _load(path)
    if isinstance(fields, dict):
        fields = fields.get("eval_gauntlet", fields)
    if not isinstance(fields, dict) or not isinstance(fields.get("categories"), list):
        raise InputError(
            f"{path}: no categories under 'eval_gauntlet', expected them as llm-foundry's file has "
            "them"
        )
    _check_keys(fields, _GAUNTLET_KEYS, str(path))
    weighting = fields.get("weighting", "EQUAL")
    if not isinstance(weighting, str) or weighting not in WEIGHTINGS:
        raise InputError(
            f"{path}: weighting is {shown(weighting)}, expected one of {', '.join(WEIGHTINGS)}"
        )
    subtract = _bool(fields, "subtract_random_baseline", True, str(path))
    rescale = _bool(fields, "rescale_accuracy", True, str(path))
    if rescale and not subtract:
        raise InputError(
            f"{path}: rescale_accuracy needs subtract_random_baseline: set both, or neither"
        )
    categories = _categories(fields["categories"], names, path)
    averages = fields.get("averages") or {"default_average": list(categories)}
    if not isinstance(averages, dict) or not all(
        isinstance(name, str) and (members == [] or are_texts(members))
        for name, members in averages.items()
    ):
        raise InputError(
            f"{path}: averages are {shown(averages)}, expected a name and a list of categories each"
        )
    for name, members in averages.items():
        for member in members:
            if member not in categories:
                raise InputError(
                    f"{path}: average {name!r} names the category {member!r}, which is not "
                    "listed: mend the name"
                )
    if both := sorted(averages.keys() & categories.keys()):
        raise InputError(
            f"{path}: {both[0]!r} names an average and a category: give one of them another name"
        )
    members_of = {name: tuple(members) for name, members in averages.items()}
    return Averages(categories, members_of, weighting, subtract, rescale)


def _categories(
    entries: Sequence[Json], names: Mapping[tuple[str, int], str], path: Path
) -> dict[str, dict[str, float]]:
    categories: dict[str, dict[str, float]] = {}
    for category in entries:
        _check_keys(category, ("name", "benchmarks"), f"{path}, category {shown(category)}")
        try:
            name = _text(category, "name", f"{path}, category {shown(category)}")
            baselines = {}
            for benchmark in category["benchmarks"]:
                _check_keys(benchmark, _BENCHMARK_KEYS, f"{path}, benchmark {shown(benchmark)}")
                label, shots = key = benchmark["name"], benchmark["num_fewshot"]
                baselines[names.get(key, f"{NAME}/{label}/{shots}-shot")] = float(
                    benchmark["random_baseline"]
                )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(
                f"{path}: category {shown(category)} cannot be read ({type(error).__name__}: "
                f"{error}), expected a name and benchmarks with name, num_fewshot and "
                "random_baseline each"
            ) from None
        for task, baseline in baselines.items():
            if not 0 <= baseline < 1:
                raise InputError(
                    f"{path}: random_baseline of {task} is {baseline}, expected 0 or more, below 1"
                )
        if len(baselines) < max(1, len(category["benchmarks"])):
            raise InputError(
                f"{path}: category {name!r} lists no benchmark, or one twice: list each once"
            )
        if name in categories:
            raise InputError(f"{path}: category {name!r} is listed twice: keep one")
        categories[name] = baselines
    return categories
