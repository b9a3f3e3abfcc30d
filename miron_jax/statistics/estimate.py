"""Numbers of examples -> task means with their uncertainty; composites with theirs.

Arrives: one value an example and metric; composites and their tasks' estimates.  Leaves: `Estimate`s, float64; an
`Outcome` holds all that a run has scored.  It deliberately does not know what a metric means.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from miron_jax.evaluation.records import AnswerScores, AnyScores, ClozeScores, Outcome, ProgramScores, TaskScores
from miron_jax.metrics.choices import PROPORTIONS, ExampleScore
from miron_jax.metrics.cloze import CLOZE_PROPORTIONS, NOT_AVERAGED
from miron_jax.metrics.mera import OVER_ALL
from miron_jax.task_kinds.records import (
    AnyTask,
    Composite,
    Measured,
    Suite,
)

BOOTSTRAP = 1000  # resamples
_Z = 1.96  # standard errors to either side of a 95 % interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and how far to trust it.  NaN stands where a number is not defined."""

    value: float
    stderr: float
    ci95: tuple[float, float]
    num_examples: int  # examples the mean is over
    num_undefined: int  # examples left out of it: their value is NaN


def estimate(values: Sequence[float] | np.ndarray, proportion: bool) -> Estimate:
    """Mean of the values that are defined; the others are counted, so that nobody takes them for zeros."""
    every = np.asarray(values, np.float64)
    defined = every[~np.isnan(every)]
    n, num_undefined = len(defined), len(every) - len(defined)
    if n == 0:
        return Estimate(math.nan, math.nan, (math.nan, math.nan), 0, num_undefined)
    value = float(defined.mean())
    if proportion:
        return Estimate(value, math.sqrt(value * (1 - value) / n), wilson(value, n), n, num_undefined)
    stderr = float(defined.std(ddof=1) / math.sqrt(n)) if n > 1 and math.isfinite(value) else math.nan
    return Estimate(value, stderr, _symmetric(value, stderr), n, num_undefined)


def wilson(p: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)."""
    scale = 1 + _Z**2 / n
    center = (p + _Z**2 / (2 * n)) / scale
    half = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2)) / scale
    # The interval lies within [0, 1] and holds p, touching it at p = 0 and p = 1; rounding must not undo that.
    return min(max(center - half, 0.0), p), max(min(center + half, 1.0), p)


def estimates(examples: Sequence[ExampleScore]) -> dict[str, Estimate]:
    """Every metric over the examples that have it."""
    names = dict.fromkeys(name for example in examples for name in example.metrics)
    values = {name: [example.metrics[name] for example in examples if name in example.metrics] for name in names}
    return {name: estimate(own, _is_proportion(name, own)) for name, own in values.items() if name not in NOT_AVERAGED}


def _is_proportion(name: str, values: Sequence[float]) -> bool:
    """0 or 1 an example; of several programs drawn for one problem, a share of them may pass."""
    known = name in PROPORTIONS or name in CLOZE_PROPORTIONS
    return known and all(value in (0, 1) or math.isnan(value) for value in values)


@dataclass(frozen=True, slots=True)
class TaskEstimates:
    """A task's metrics; where its categories count apart, the macro means over them, and each one's own."""

    metrics: dict[str, Estimate]
    categories: dict[str, dict[str, Estimate]]  # empty: the task has none
    sizes: dict[str, int]  # scored examples of each category


def task_estimates(task: TaskScores | AnswerScores | ProgramScores) -> TaskEstimates:
    """Every metric of a task by its own rule: over all examples, or category by category and then their plain mean."""
    if isinstance(task, ProgramScores) or task.source.task.profile.categories == "pooled":
        return TaskEstimates({**estimates(task.examples), **over_all(task)}, {}, {})
    members: dict[str, list[ExampleScore]] = {}
    for prompt, example in zip(task.prompts, task.examples, strict=True):
        members.setdefault(prompt.category or "", []).append(example)
    categories = {name: estimates(own) for name, own in members.items()}
    if task.source.task.profile.categories == "reported":
        told = {name: own for name, own in categories.items() if name}
        sizes = {name: sum(not is_unscored(example) for example in members[name]) for name in told}
        return TaskEstimates({**estimates(task.examples), **over_all(task)}, told, sizes)
    names = dict.fromkeys(name for found in categories.values() for name in found)
    metrics = {name: macro([found[name] for found in categories.values() if name in found]) for name in names}
    sizes = {name: sum(example.correct is not None for example in own) for name, own in members.items()}
    return TaskEstimates(metrics, categories, sizes)


def macro(groups: Sequence[Estimate]) -> Estimate:
    """Mean of groups that count alike, their errors independent: sqrt(sum of stderr²) / groups."""
    with np.errstate(invalid="ignore"):  # infinite groups of both signs have no mean
        value = float(np.mean([group.value for group in groups])) if groups else math.nan
    stderr = math.hypot(*(group.stderr for group in groups)) / len(groups) if groups else math.nan
    counted = sum(group.num_examples for group in groups), sum(group.num_undefined for group in groups)
    return Estimate(value, stderr, _symmetric(value, stderr), *counted)


def over_all(task: TaskScores | AnswerScores | ProgramScores) -> dict[str, Estimate]:
    """Numbers over all examples together.  Their standard error is that of BOOTSTRAP resamples of the examples, drawn with
    seed 0; ci95 are the resamples' percentiles 2.5 and 97.5."""
    if isinstance(task, ProgramScores) or not task.source.task.profile.over_all or task.source.task.answered is None:
        return {}
    of_row = {example.row: example for example in task.source.examples}
    answers = answers_of(task)
    columns = zip(task.prompts, task.examples, answers, strict=True)
    found = [
        task.source.task.answered(of_row[prompt.row], answer)
        for prompt, example, answer in columns
        if not is_unscored(example) and answer is not None and (of_row[prompt.row].published or {}).get("outputs")
    ]
    rule, undefined = OVER_ALL[task.source.task.profile.over_all], len(answers) - len(found)
    values = rule(found, np.ones(len(found)))
    if not found:
        return {name: Estimate(math.nan, math.nan, (math.nan, math.nan), 0, undefined) for name in values}
    draws = np.random.default_rng(0).multinomial(len(found), np.full(len(found), 1 / len(found)), BOOTSTRAP)
    drawn = [rule(found, weights.astype(np.float64)) for weights in draws]
    estimates = {}
    for name, value in values.items():
        own = np.asarray([numbers.get(name, math.nan) for numbers in drawn])
        low, high = np.nanpercentile(own, (2.5, 97.5)).tolist()
        interval = (min(low, value), max(high, value))
        estimates[name] = Estimate(value, float(np.nanstd(own, ddof=1)), interval, len(found), undefined)
    return estimates


def answers_of(task: TaskScores | AnswerScores) -> list[str | None]:
    """What was answered to each example: the chosen option or the text, without white space at its ends; None: nothing."""
    if isinstance(task, AnswerScores):
        return [
            None if ended == "nan" else text.strip() for text, ended in zip(task.generated, task.ended, strict=True)
        ]
    pairs = zip(task.prompts, task.examples, strict=True)
    return [None if own.prediction is None else prompt.continuations[own.prediction].strip() for prompt, own in pairs]


def is_unscored(example: ExampleScore) -> bool:
    """Nothing of it counts: the model answered NaN, or the right answer is not published."""
    return example.correct is None and all(map(math.isnan, example.metrics.values()))


def skipped(task: AnyScores) -> int:
    """Examples that have no score: a model that answers NaN, a tokenizer that cannot spell them."""
    if isinstance(task, ClozeScores):
        return len(task.examples) - len(task.scored)
    return sum(is_unscored(example) for example in task.examples)


def unanswered(task: AnyScores) -> list[int]:
    """Examples, by their id, that have no score because the model answered NaN."""
    match task:
        case TaskScores():
            pairs = zip(task.prompts, task.options, strict=True)
            return [prompt.id for prompt, own in pairs if any(np.isnan(option.logprob).any() for option in own)]
        case AnswerScores():
            return [prompt.id for prompt, ended in zip(task.prompts, task.ended, strict=True) if ended == "nan"]
        case ProgramScores():
            return [i for i, own in enumerate(task.verdicts) if any(verdict.ended == "nan" for verdict in own)]
        case _:
            columns = zip(task.examples, task.generated, strict=True)
            scored = [(i, own, text) for i, (own, text) in enumerate(columns) if own is not None]
            return [i for i, own, text in scored if text is None or math.isnan(own.metrics["logprob"])]


def suite_composites(suite: Suite[AnyTask], outcome: Outcome) -> dict[str, tuple[Composite, Estimate | None]]:
    """A suite's composites.  A task with skipped examples or changed data counts as missing: no name without the data."""
    measured: dict[str, Measured] = {}
    stderr: dict[str, float] = {}
    for task in outcome.tasks:
        if isinstance(task, ClozeScores):
            continue
        found = task_estimates(task).metrics.get(task.source.task.main)
        if found is None:
            continue
        rows = task.source.task.file.rows
        whole = task.source.data.state == "as published" or rows in (None, len(task.source.examples))
        sound = not skipped(task) and whole and task.source.data.state != "changed"
        value = found.value if sound and not math.isnan(found.value) else None
        measured[task.source.task.name] = Measured(value, len(task.examples))
        stderr[task.source.task.name] = found.stderr
    return {
        name: (composite, estimate_composite(composite, stderr))
        for name, composite in suite.composites(measured).items()
    }


def estimate_composite(composite: Composite, stderrs: Mapping[str, float]) -> Estimate | None:
    """sqrt(sum of (weight * stderr)²), tasks taken as independent; None while the composite has no value.

    Two tasks over one file (CORE's two hellaswags) are not independent: the error is then somewhat too small.
    """
    if composite.value is None:
        return None
    stderr = math.hypot(*(weight * stderrs[name] for name, weight in composite.weights.items()))
    return Estimate(composite.value, stderr, _symmetric(composite.value, stderr), len(composite.weights), 0)


def _symmetric(value: float, stderr: float) -> tuple[float, float]:
    return value - _Z * stderr, value + _Z * stderr
