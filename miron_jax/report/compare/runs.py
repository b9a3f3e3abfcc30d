"""Two runs, example by example: differences of tasks and composites, or why there is none.

Arrives: two `Run`s.  Leaves: a `Comparison`.  It deliberately does not know how a score is made.

Examples are paired by their row in the data file.  Before that, everything that a score depends on
beside the model must be equal: the data's hash, the rules of the profile, the texts of the prompts.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from miron_jax.errors import InputError, some_of
from miron_jax.results.records import CompositeResult, TaskResult
from miron_jax.results.run_folder import Run
from miron_jax.results.same_rules import other_rule
from miron_jax.results.samples import AskedDocument, ExampleResult
from miron_jax.statistics.draws import spread
from miron_jax.statistics.estimate import Estimate
from miron_jax.statistics.paired import Difference, combined, difference, holm, mean
from miron_jax.statistics.sequential import moments, order_of, winner

BESIDE = "bits_per_byte"  # compared beside each task's main metric
# They count tokens: two tokenizers give other units.
BY_TOKENS = frozenset(
    {"bits_per_token", "target_tokens", "target_confidence", "first_token_rank", "marginal_gap"}
)


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
    # standard deviation of the difference from one draw of shots to another; NaN: not known
    over_draws: float = math.nan

    @property
    def has_flips(self) -> bool:
        """Whether examples are right in one run only."""
        return bool(self.only_first or self.only_second)


@dataclass(frozen=True, slots=True)
class CompositeDifference:
    name: str  # "core: CORE"
    first: float
    second: float
    paired: Difference
    unpaired_stderr: float  # as if the runs had other examples
    shares: Mapping[str, float]  # task -> of the paired variance
    over_draws: float = math.nan  # as `TaskDifference` has it


@dataclass(frozen=True, slots=True)
class Comparison:
    first: Run
    second: Run
    tasks: tuple[TaskDifference, ...]
    composites: tuple[CompositeDifference, ...]
    refused: Mapping[str, str]  # task, or "task metric" -> why it cannot be compared
    notes: tuple[str, ...]


def turned(comparison: Comparison) -> Comparison:
    """The same runs compared the other way round: p-values stay."""
    first, second = comparison.second, comparison.first
    refused = {
        name: (name in first.tasks and _other_rule(name, first, second)) or why
        for name, why in comparison.refused.items()
    }
    tasks = tuple(
        replace(
            task,
            first=task.second,
            second=task.first,
            difference=_negative(task.difference),
            only_first=task.only_second,
            only_second=task.only_first,
        )
        for task in comparison.tasks
    )
    composites = tuple(
        replace(each, first=each.second, second=each.first, paired=_negative(each.paired))
        for each in comparison.composites
    )
    return replace(
        comparison,
        first=first,
        second=second,
        tasks=tasks,
        composites=composites,
        refused=refused,
    )


def _negative(paired: Difference) -> Difference:
    low, high = paired.ci95
    return replace(
        paired,
        value=0.0 - paired.value,  # not -0.0
        ci95=(0.0 - high, 0.0 - low),
        only_first=paired.only_second,
        only_second=paired.only_first,
    )


class _Pairs(NamedTuple):
    """The examples of a task that both runs have."""

    first: list[ExampleResult]
    second: list[ExampleResult]
    num_alone: int  # examples of one run only


Keyed = Mapping[tuple[int, int], ExampleResult]  # by row, and its place among those of the row


def keyed_examples(run: Run, task: str) -> Keyed:
    """Without their texts.  Raises InputError."""
    seen = Counter[int]()
    keyed = {}
    for example in run.examples(task, with_texts=False):
        row = example.row
        keyed[row, seen[row]] = example
        seen[row] += 1
    return keyed


def compare(
    first: Run,
    second: Run,
    metrics: Sequence[str] = (),
    confidence: float = 0.95,
    read: Callable[[Run, str], Keyed] = keyed_examples,
) -> Comparison:
    """`metrics`: of each task that has them; absent: its main one and bits per byte.
    `confidence`: of the intervals.  `read`: the examples of a task.

    Raises InputError if nothing can be compared.
    """
    common = [name for name in first.tasks if name in second.tasks]
    if not common:
        raise InputError(
            f"{first.label} and {second.label} have no task in common: {first.label} "
            f"has {_some(first.tasks)}, {second.label} has {_some(second.tasks)}: name runs of the "
            "same tasks"
        )
    _check_names(metrics, first, second, common)
    refused: dict[str, str] = {}
    unchecked: list[str] = []
    tasks: list[TaskDifference] = []
    for name in common:
        if why := _other_rule(name, first, second):
            refused[name] = why
            continue
        pairs = _pairs_of(read(first, name), read(second, name))
        if why := _other_prompts(pairs):
            refused[name] = why
            continue
        if not (pairs.first[0].digest and pairs.second[0].digest):
            unchecked.append(
                f"{name}: its prompts cannot be compared, as a run of an older version has no "
                "digests of them"
            )
        for metric in metrics or _metrics_of(first.tasks[name]):
            difference_of_task = _task_difference(name, metric, pairs, first, second, confidence)
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
    composites = tuple(_composites(first, second, tasks, refused, confidence))
    notes = [*_notes(first, second, common), *unchecked]
    return Comparison(first, second, tuple(tasks), composites, refused, tuple(notes))


def _check_names(metrics: Sequence[str], first: Run, second: Run, common: Sequence[str]) -> None:
    """Raises InputError for a metric that no task of both runs has."""
    known = dict[str, Estimate]()
    for run in (first, second):
        for name in common:
            known |= run.tasks[name].metrics
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
        p_values = holm([tasks[i].difference.p_value for i in members])
        for i, p_value in zip(members, p_values, strict=True):
            adjusted[i] = replace(tasks[i], adjusted=p_value)
    return adjusted


def _other_rule(name: str, first: Run, second: Run) -> str:
    other = second.tasks[name]
    return other_rule(first.tasks[name], other.data.git_blob_sha1, other.profile)


def _pairs_of(ours: Keyed, theirs: Keyed) -> _Pairs:
    """Examples of the same row; of rows that occur more than once, the first with the first and so
    on."""
    pairs = _Pairs([], [], len(ours.keys() ^ theirs.keys()))
    for key, example in ours.items():
        if key in theirs:
            pairs.first.append(example)
            pairs.second.append(theirs[key])
    return pairs


def _other_prompts(pairs: _Pairs) -> str:
    """Why the pairs are not the same questions; "" if they are.  Shots that one tokenizer had no
    room for may differ."""
    if not pairs.first:
        return "the runs have no example of it in common: give both the same --limit"
    other_prompts = list[int]()  # rows
    other_golds = list[int]()
    for a, b in zip(pairs.first, pairs.second, strict=True):
        if getattr(a.asked, "num_shots", None) != getattr(b.asked, "num_shots", None):
            continue
        if a.digest and b.digest and a.digest != b.digest:
            other_prompts.append(a.row)
        if a.gold != b.gold:
            other_golds.append(a.row)
    for what, rows in (("prompts", other_prompts), ("right answers", other_golds)):
        if rows:
            return (
                f"its {what} differ in {len(rows)} of {len(pairs.first)} examples (row "
                f"{rows[0]}): run both with the same --limit, shots and version"
            )
    return ""


def _metrics_of(task: TaskResult) -> list[str]:
    if BESIDE in task.metrics and task.main_metric != BESIDE:
        return [task.main_metric, BESIDE]
    return [task.main_metric]


def _task_difference(
    name: str, metric: str, pairs: _Pairs, first: Run, second: Run, confidence: float
) -> TaskDifference | str:
    """The difference, or why there is none."""
    results = (first.tasks[name], second.tasks[name])
    if any(metric not in result.metrics for result in results):
        return f"no metric of that name, expected one of {', '.join(results[0].metrics)}"
    if metric in BY_TOKENS and not same_tokenizer(first, second):
        return "it counts tokens, and the tokenizers differ: compare bits_per_byte"
    a = _values(pairs.first, metric)
    b = _values(pairs.second, metric)
    strata = None
    if results[0].categories == "macro":
        strata = _column(pairs.first, "category")
    clusters = _column(pairs.first, "cluster")
    sizes = None
    # nats of all documents over bytes or tokens of all
    if isinstance(pairs.first[0].asked, AskedDocument):
        sizes = np.asarray([_size(example, metric) for example in pairs.first], np.float64)
        a = a * sizes
        b = b * sizes
    for result, value in zip(results, (a, b), strict=True):
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
    paired = difference(a, b, strata, clusters, sizes, confidence)
    if any(map(has_stopped, results)):
        paired = replace(paired, p_value=math.nan)
    both = np.isfinite(a) & np.isfinite(b)
    is_main = metric == results[0].main_metric == results[1].main_metric
    rows = np.asarray([example.row for example in pairs.first])
    return TaskDifference(
        task=name,
        metric=metric,
        first=mean(np.where(both, a, math.nan), strata, sizes),
        second=mean(np.where(both, b, math.nan), strata, sizes),
        difference=paired,
        adjusted=math.nan,
        only_first=tuple(np.sort(rows[(a == 1) & (b == 0)]).tolist()),
        only_second=tuple(np.sort(rows[(a == 0) & (b == 1)]).tolist()),
        is_main=is_main,
        num_alone=pairs.num_alone,
        over_draws=_over_draws(pairs, results, strata) if is_main else math.nan,
    )


def _over_draws(
    pairs: _Pairs, results: Sequence[TaskResult], strata: Sequence[str] | None
) -> float:
    """The spread of the difference over the draws that both runs have, which are the same."""
    if any(result.draws is None for result in results):
        return math.nan
    first = [example.by_draw for example in pairs.first]
    second = [example.by_draw for example in pairs.second]
    num_draws = min(map(len, (*first, *second)))
    if not num_draws:
        return 0.0  # scored once, as its shots are no draw
    differences = [
        np.subtract(b[:num_draws], a[:num_draws]) for a, b in zip(first, second, strict=True)
    ]
    return spread(np.asarray(differences, np.float64), strata)


def _values(examples: Sequence[ExampleResult], metric: str) -> np.ndarray:
    return np.asarray([example.metrics.get(metric, math.nan) for example in examples])


def decided_after(comparison: Comparison, task: str, seed: int) -> tuple[int, int, int]:
    """When `eval --until=decided` would have ended a task of right and wrong: after how many
    examples, of how many, and who is better then: 1 the second, -1 the first, 0 neither."""
    first = comparison.first.earlier((task,))[task].values
    second = comparison.second.earlier((task,))[task].values
    order = order_of(first.keys() & second.keys(), task, seed)
    differences = np.nan_to_num(np.asarray([second[i] - first[i] for i in order.tolist()]))
    for at in moments(len(order)):
        if better := winner(differences[:at], len(order)):
            return at, len(order), better
    return len(order), len(order), 0


def _column(examples: Sequence[ExampleResult], name: str) -> list[str] | None:
    """A trait of each prompt; None if no prompt has it."""
    values = [getattr(example.asked, name, None) for example in examples]
    if set(values) <= {None}:
        return None
    return [*map(str, values)]


def _size(document: ExampleResult, metric: str) -> int:
    """What a document's nats are divided by."""
    asked = document.asked
    assert isinstance(asked, AskedDocument)
    if metric == "bits_per_token":
        return asked.scored_tokens
    return asked.num_bytes


def _composites(
    first: Run,
    second: Run,
    tasks: Sequence[TaskDifference],
    refused: dict[str, str],
    confidence: float,
) -> Iterator[CompositeDifference]:
    """Composites that have a value in both runs; why one cannot be compared is added to
    `refused`."""
    by_name = {(task.task, task.metric): task for task in tasks}
    for suite, result in first.result.suites.items():
        for name, composite in result.composites.items():
            other = second.result.composite(suite, name)
            if math.isnan(composite.value) or math.isnan(other.value) or not composite.weights:
                continue
            difference_or_why = _composite(
                f"{suite}: {name}", composite, other, first, by_name, confidence
            )
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
    confidence: float,
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
    parts = [by_name[task, metric] for task, metric in metrics.items()]
    if not composite.metric and (mixed := [part.task for part in parts if not part.is_main]):
        return f"the main metric of {_some(mixed)} differs in the two runs"
    if other_examples := [
        part.task for part in parts if part.num_alone or part.difference.num_undefined
    ]:
        return f"{_some(other_examples)}: not every example has a value in both runs"
    if alone := [part.task for part in parts if math.isnan(part.difference.ci95[0])]:
        return f"{_some(alone)}: one example, or one cluster, has no deviation"
    value = sum(weights[part.task] * part.difference.value for part in parts)
    squares = {}
    for part in parts:
        low, high = part.difference.ci95
        squares[part.task] = (weights[part.task] * (high - low)) ** 2
    weighted = [(weights[part.task], part.difference) for part in parts]
    paired = combined(value, weighted, confidence)
    both = math.hypot(composite.stderr or math.nan, other.stderr or math.nan)
    total = sum(squares.values()) or 1.0  # where no task's difference has a width
    shares = {task: square / total for task, square in squares.items()}
    over_draws = math.nan
    if not composite.metric:
        over_draws = math.hypot(*(weights[part.task] * part.over_draws for part in parts))
    return CompositeDifference(name, composite.value, other.value, paired, both, shares, over_draws)


def has_stopped(task: TaskResult) -> bool:
    """Whether its scores decided how many examples ran: such a number has no p-value of a fixed
    number of examples."""
    sampled = task.sampled
    return sampled is not None and sampled.how.startswith("--until") and not sampled.is_whole


def same_tokenizer(first: Run, second: Run) -> bool:
    """Whether both runs say that they have the same tokenizer."""
    tokenizer = first.result.checkpoint.tokenizer
    return tokenizer is not None and tokenizer == second.result.checkpoint.tokenizer


def _notes(first: Run, second: Run, common: Sequence[str]) -> list[str]:
    notes = [*filter(None, (first.unfinished, second.unfinished))]
    for run, other in ((first, second), (second, first)):
        if alone := [name for name in run.tasks if name not in other.tasks]:
            notes.append(f"only in {run.label}: {_some(alone)}")
    for run in (first, second):
        if stopped := [name for name in common if has_stopped(run.tasks[name])]:
            notes.append(
                f"{run.label} stopped when it knew enough (--until), so there are no p-values: "
                f"{_some(stopped)}"
            )
    for key in ("bos_token", "max_length"):
        ours = {str(first.tasks[name].profile.get(key)) for name in common}
        theirs = {str(second.tasks[name].profile.get(key)) for name in common}
        if ours != theirs:
            notes.append(
                f"{key} is {_some(sorted(ours))} in {first.label} and {_some(sorted(theirs))} in "
                f"{second.label}, as the models and tokenizers have it: compared all the same"
            )
    for key in ("dtype", "limit", "fewshot_draws"):
        one = first.result.config.get(key)
        other = second.result.config.get(key)
        if one != other:
            notes.append(f"--{key} differs: {one} in {first.label} and {other} in {second.label}")
    return notes


def _some(names: Sequence[str] | Mapping[str, object]) -> str:
    return some_of([*names], 4)
