"""Two runs, example by example: differences of tasks and composites, or why there is none.

Arrives: two `Run`s.  Leaves: a `Comparison`.  It deliberately does not know how a score is made.

Examples are paired by their row in the data file.  Before that, everything that a score depends on
beside the model must be equal: the data's hash, the rules of the profile, the texts of the prompts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from miron_jax.errors import InputError, some_of
from miron_jax.evaluation.earlier import earlier_of
from miron_jax.evaluation.sampling import moments, order_of
from miron_jax.results.records import CompositeResult, SuiteResult, TaskResult
from miron_jax.results.run_folder import Run
from miron_jax.results.samples import AskedDocument, AskedPrompt, ExampleResult
from miron_jax.statistics.paired import Difference, combined, difference, holm, mean
from miron_jax.statistics.sequential import winner

BESIDE = "bits_per_byte"  # compared beside each task's main metric
# They count tokens: two tokenizers give other units.
BY_TOKENS = frozenset(
    {"bits_per_token", "target_tokens", "target_confidence", "first_token_rank", "marginal_gap"}
)
# What follows from the model and its tokenizer, not from the task.
_OF_MODEL = frozenset({"bos_token", "max_length", "empty_prefix_token"})


@dataclass(frozen=True, slots=True)
class TaskDifference:
    """One metric of one task in two runs."""

    task: str
    metric: str
    first: float
    second: float
    difference: Difference
    # p-value by Holm's method over the tasks' main metrics, or over this metric of all tasks
    adjusted: float
    only_first: tuple[int, ...]  # rows of the data file that are right in the first run only
    only_second: tuple[int, ...]
    is_main: bool
    num_alone: int  # examples of one run only


@dataclass(frozen=True, slots=True)
class CompositeDifference:
    name: str  # "core: CORE"
    first: float
    second: float
    paired: Difference
    unpaired_stderr: float  # as if the runs had other examples
    shares: Mapping[str, float]  # task -> of the paired variance


@dataclass(frozen=True, slots=True)
class Comparison:
    first: Run
    second: Run
    tasks: tuple[TaskDifference, ...]
    composites: tuple[CompositeDifference, ...]
    refused: Mapping[str, str]  # task, or "task metric" -> why it cannot be compared
    notes: tuple[str, ...]


class _Pairs(NamedTuple):
    """The examples of a task that both runs have."""

    first: list[ExampleResult]
    second: list[ExampleResult]
    num_alone: int  # examples of one run only


def compare(first: Run, second: Run, metrics: Sequence[str] = ()) -> Comparison:
    """`metrics`: of each task that has them; absent: its main one and bits per byte.

    Raises InputError if nothing can be compared.
    """
    common = [name for name in first.tasks if name in second.tasks]
    if not common:
        raise InputError(
            f"{first.label} and {second.label} have no task in common: the first has "
            f"{_some(first.tasks)}, the second {_some(second.tasks)}: name runs of the same tasks"
        )
    _check_names(metrics, [run.tasks[name] for run in (first, second) for name in common])
    refused: dict[str, str] = {}
    unchecked: list[str] = []
    tasks: list[TaskDifference] = []
    for name in common:
        if why := _why_not(first.tasks[name], second.tasks[name]):
            refused[name] = why
            continue
        pairs = _pairs_of(first, second, name)
        if why := _other_prompts(pairs):
            refused[name] = why
            continue
        if not _has_digests(pairs):
            unchecked.append(
                f"{name}: its prompts cannot be compared, as a run of an older version has no "
                "digests of them"
            )
        for metric in metrics or _metrics_of(first.tasks[name]):
            difference_of_task = _task_difference(name, metric, pairs, first, second)
            if isinstance(difference_of_task, str):
                refused[f"{name} {metric}"] = difference_of_task
            else:
                tasks.append(difference_of_task)
    if not tasks:
        task, why = next(iter(refused.items()))
        more = f" (and {len(refused) - 1} more)" if refused.keys() - {task} else ""
        raise InputError(
            f"{first.label} and {second.label} cannot be compared: {task}{more}: {why}"
        )
    tasks = _adjusted(tasks)
    composites = tuple(_composites(first, second, tasks, refused))
    notes = [*_notes(first, second, common), *unchecked]
    return Comparison(first, second, tuple(tasks), composites, refused, tuple(notes))


def _check_names(metrics: Sequence[str], tasks: Sequence[TaskResult]) -> None:
    """Raises InputError for a metric that no task has."""
    known = dict.fromkeys(metric for task in tasks for metric in task.metrics)
    for metric in metrics:
        if metric not in known:
            raise InputError(
                f"--metric: no task has {metric!r}, expected one of {', '.join(known)}"
            )


def _adjusted(tasks: Sequence[TaskDifference]) -> list[TaskDifference]:
    """With p-values by Holm's method: over the main metrics of all tasks, and over each other
    metric."""
    groups: dict[str, list[int]] = {}
    for i, task in enumerate(tasks):
        groups.setdefault("" if task.is_main else task.metric, []).append(i)
    adjusted = list(tasks)
    for members in groups.values():
        for i, p_value in zip(
            members, holm([tasks[i].difference.p_value for i in members]), strict=True
        ):
            adjusted[i] = replace(tasks[i], adjusted=p_value)
    return adjusted


def _why_not(first: TaskResult, second: TaskResult) -> str:
    """The field by which a task differs in two runs; ""."""
    hashes = (first.data.git_blob_sha1, second.data.git_blob_sha1)
    if hashes[0] != hashes[1]:
        return f"its data differ: {hashes[0]} and {hashes[1]} (hashes of {first.data.file})"
    for name in sorted({*first.profile, *second.profile} - _OF_MODEL):
        rules = (first.profile.get(name), second.profile.get(name))
        if rules[0] != rules[1]:
            return f"its rule {name} differs: {rules[0]!r} and {rules[1]!r}"
    return ""


def _pairs_of(first: Run, second: Run, task: str) -> _Pairs:
    """Examples of the same row; of rows that occur more than once, the first with the first and so
    on."""
    by_key = [_keyed(run.examples(task)) for run in (first, second)]
    common = [key for key in by_key[0] if key in by_key[1]]
    alone = len(by_key[0]) + len(by_key[1]) - 2 * len(common)
    return _Pairs([by_key[0][key] for key in common], [by_key[1][key] for key in common], alone)


def _keyed(examples: Iterable[ExampleResult]) -> dict[tuple[int, int], ExampleResult]:
    seen = Counter[int]()
    keyed = {}
    for example in examples:
        row = example.row
        keyed[row, seen[row]] = replace(example, options=())  # they take most of the memory
        seen[row] += 1
    return keyed


def _other_prompts(pairs: _Pairs) -> str:
    """Why the pairs are not the same questions; "" if they are.  Shots that one tokenizer had no
    room for may differ."""
    if not pairs.first:
        return "the runs have no example of it in common: give both the same --limit"
    both = list(zip(pairs.first, pairs.second, strict=True))
    both = [(a, b) for a, b in both if _num_shots(a) == _num_shots(b)]
    other_prompts = [a for a, b in both if a.digest and b.digest and a.digest != b.digest]
    other_golds = [a for a, b in both if a.gold != b.gold]
    for what, examples in (("prompts", other_prompts), ("right answers", other_golds)):
        if examples:
            return (
                f"its {what} differ in {len(examples)} of {len(pairs.first)} examples (row "
                f"{examples[0].row}): run both with the same --limit, shots and version"
            )
    return ""


def _num_shots(example: ExampleResult) -> int | None:
    return example.asked.num_shots if isinstance(example.asked, AskedPrompt) else None


def _has_digests(pairs: _Pairs) -> bool:
    return bool(pairs.first[0].digest and pairs.second[0].digest)


def _metrics_of(task: TaskResult) -> list[str]:
    beside = [BESIDE] if BESIDE in task.metrics else []
    return list(dict.fromkeys([task.main_metric, *beside]))


def _task_difference(
    name: str, metric: str, pairs: _Pairs, first: Run, second: Run
) -> TaskDifference | str:
    """The difference, or why there is none."""
    results = (first.tasks[name], second.tasks[name])
    if any(metric not in result.metrics for result in results):
        return f"no metric of that name, expected one of {', '.join(results[0].metrics)}"
    if metric in BY_TOKENS and not same_tokenizer(first, second):
        return "it counts tokens, and the tokenizers differ: compare bits_per_byte"
    values = [
        np.asarray([example.metrics.get(metric, math.nan) for example in examples])
        for examples in (pairs.first, pairs.second)
    ]
    strata = None
    if results[0].profile.get("categories") == "macro":
        strata = _column(pairs.first, "category")
    clusters = _column(pairs.first, "cluster")
    sizes = None
    # nats of all documents over bytes or tokens of all
    if isinstance(pairs.first[0].asked, AskedDocument):
        sizes = np.asarray([_size(example, metric) for example in pairs.first], np.float64)
        values = [value * sizes for value in values]
    for result, value in zip(results, values, strict=True):
        published = result.metrics[metric].value
        is_whole = not pairs.num_alone and np.isfinite(value).all()
        if (
            is_whole
            and not math.isnan(published)
            and not math.isclose(mean(value, strata, sizes), published, rel_tol=1e-6, abs_tol=1e-9)
        ):
            return (
                "it is a number over all examples, not a mean of theirs: no difference by example "
                "explains it"
            )
    a, b = values
    paired = difference(a, b, strata, clusters, sizes)
    if any(map(_stopped, results)):
        paired = replace(paired, p_value=math.nan)
    both = np.isfinite(a) & np.isfinite(b)
    means = (mean(np.where(both, side, math.nan), strata, sizes) for side in (a, b))
    rows = [example.row for example in pairs.first]
    only_first, only_second = (
        tuple(sorted(rows[i] for i in np.flatnonzero(side)))
        for side in ((a == 1) & (b == 0), (a == 0) & (b == 1))
    )
    first_mean, second_mean = means
    is_main = metric == results[0].main_metric
    return TaskDifference(
        name, metric, first_mean, second_mean, paired, math.nan, only_first, only_second, is_main,
        pairs.num_alone,
    )  # fmt: skip


def decided_after(comparison: Comparison, task: str, seed: int) -> tuple[int, int, int]:
    """When `eval --until=decided` would have ended a task of right and wrong: after how many
    examples, of how many, and who is better then: 1 the second, -1 the first, 0 neither."""
    first = comparison.first
    second = comparison.second
    values = [
        earlier[task].values
        for earlier in (earlier_of(first, (task,)), earlier_of(second, (task,)))
    ]
    common = values[0].keys() & values[1].keys()
    order = order_of(common, task, seed)
    differences = np.nan_to_num(np.asarray([values[1][i] - values[0][i] for i in order.tolist()]))
    for at in moments(len(order)):
        if better := winner(differences[:at], len(order)):
            return at, len(order), better
    return len(order), len(order), 0


def _column(examples: Sequence[ExampleResult], name: str) -> list[str] | None:
    """A trait of each prompt; None if no prompt has it."""
    values = [getattr(example.asked, name, None) for example in examples]
    return None if all(value is None for value in values) else [str(value) for value in values]


def _size(document: ExampleResult, metric: str) -> int:
    """What a document's nats are divided by."""
    asked = document.asked
    assert isinstance(asked, AskedDocument)
    return asked.scored_tokens if metric == "bits_per_token" else asked.num_bytes


def _composites(
    first: Run, second: Run, tasks: Sequence[TaskDifference], refused: dict[str, str]
) -> Iterator[CompositeDifference]:
    """Composites that have a value in both runs; why one cannot be compared is added to
    `refused`."""
    by_name = {(task.task, task.metric): task for task in tasks}
    for suite, result in first.result.suites.items():
        others = second.result.suites.get(suite, SuiteResult({})).composites
        for name, composite in result.composites.items():
            other = others.get(name, CompositeResult())
            if math.isnan(composite.value) or math.isnan(other.value) or not composite.weights:
                continue
            difference_or_why = _composite(f"{suite}: {name}", composite, other, first, by_name)
            if isinstance(difference_or_why, str):
                refused[f"{suite}: {name}"] = difference_or_why
            else:
                yield difference_or_why


def _composite(
    name: str,
    composite: CompositeResult,
    other: CompositeResult,
    first: Run,
    by_name: Mapping[tuple[str, str], TaskDifference],
) -> CompositeDifference | str:
    """The difference, or why there is none.  Its value is that of the common examples."""
    weights = composite.weights
    others = other.weights
    same = weights.keys() == others.keys() and all(
        math.isclose(weights[task], others[task]) for task in weights
    )
    if not same or composite.metric != other.metric:
        return "it averages other tasks, or weighs them otherwise, in the two runs"
    if lacking := [task for task in weights if task not in first.tasks]:
        return f"{first.label} has no {_some(lacking)}"
    metrics = {task: composite.metric or first.tasks[task].main_metric for task in weights}
    if absent := [task for task, metric in metrics.items() if (task, metric) not in by_name]:
        return (
            f"{metrics[absent[0]]} of {_some(absent)} is not compared: "
            f"--metric={metrics[absent[0]]} does so"
        )
    parts = {task: by_name[task, metric] for task, metric in metrics.items()}
    if other_examples := [
        task for task, part in parts.items() if part.num_alone or part.difference.num_undefined
    ]:
        return f"{_some(other_examples)}: not every example has a value in both runs"
    if alone := [task for task, part in parts.items() if math.isnan(part.difference.ci95[0])]:
        return f"{_some(alone)}: one example, or one cluster, has no deviation"
    value = sum(weights[task] * part.difference.value for task, part in parts.items())
    paired = combined(value, [(weights[task], part.difference) for task, part in parts.items()])
    both = math.hypot(composite.stderr or math.nan, other.stderr or math.nan)
    widths = {
        task: weights[task] * (part.difference.ci95[1] - part.difference.ci95[0])
        for task, part in parts.items()
    }
    total = sum(width**2 for width in widths.values())
    shares = {task: width**2 / total if total else 0.0 for task, width in widths.items()}
    return CompositeDifference(name, composite.value, other.value, paired, both, shares)


def _stopped(task: TaskResult) -> bool:
    """Whether its scores decided how many examples ran: such a number has no p-value of a fixed
    number of examples."""
    sampled = task.sampled
    return sampled is not None and sampled.how.startswith("--until") and not sampled.is_whole


def same_tokenizer(first: Run, second: Run) -> bool:
    """Whether both runs say that they have the same tokenizer."""
    names = [run.result.checkpoint.tokenizer for run in (first, second)]
    return names[0] is not None and names[0] == names[1]


def _notes(first: Run, second: Run, common: Sequence[str]) -> list[str]:
    notes = [run.unfinished for run in (first, second) if run.unfinished]
    for run, other in ((first, second), (second, first)):
        if alone := [name for name in run.tasks if name not in other.tasks]:
            notes.append(f"only in {run.label}: {_some(alone)}")
    for run in (first, second):
        if stopped := [name for name in common if _stopped(run.tasks[name])]:
            notes.append(
                f"{run.label} stopped when it knew enough (--until), so there are no p-values: "
                f"{_some(stopped)}"
            )
    for key in ("bos_token", "max_length"):
        values = [
            {str(run.tasks[name].profile.get(key)) for name in common} for run in (first, second)
        ]
        if values[0] != values[1]:
            shown = " and ".join(_some(sorted(of_run)) for of_run in values)
            notes.append(
                f"{key} is {shown}, as the models and tokenizers have it: compared all the same"
            )
    for key in ("dtype", "limit"):
        values = [run.result.config.get(key) for run in (first, second)]
        if values[0] != values[1]:
            notes.append(f"--{key} differs: {values[0]} and {values[1]}")
    return notes


def _some(names: Sequence[str] | Mapping[str, object]) -> str:
    names = list(names)
    return some_of(names, 4)
