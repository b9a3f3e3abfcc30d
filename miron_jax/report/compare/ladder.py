"""A ladder: runs of several sizes, the laws of each task over them, what a larger run would score.

Arrives: `Run`s, what the user states of them.  Leaves: a `Ladder`.  It deliberately does not know
how a law is fitted.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.metrics.properties import LOWER_IS_BETTER, PROPORTIONS
from miron_jax.report.compare.runs import BY_TOKENS, same_tokenizer
from miron_jax.report.compare.training_noise import is_alike
from miron_jax.results.records import TaskResult
from miron_jax.results.run_folder import Run
from miron_jax.statistics.scaling import (
    LEAST_RUNS,
    LEAST_SIZES,
    Fit,
    Forecast,
    PowerLaw,
    Sigmoid,
    fit_accuracies,
    fit_losses,
    forecast,
)

AXES = ("parameters", "tokens", "flops")
LOSSES = ("bits_per_byte", "bits_per_char", "bits_per_token", "token_surprise")  # the first it has
NO_RISE = "that it rises above chance as the loss falls is not told from noise"
FLOPS_A_TOKEN = 6  # of a parameter: forward and backward pass, attention left out


class Tokens(NamedTuple):
    """What a run was trained on."""

    count: float
    is_per_step: bool  # each checkpoint is a run of its own then


class Rung(NamedTuple):
    """A run, or a checkpoint of one, that laws are fitted to."""

    run: Run
    size: float  # on the axis
    parameters: float | None  # None: the axis does not want them
    tokens: float | None


@dataclass(frozen=True, slots=True)
class TaskLadder:
    """A task's laws."""

    task: str
    metric: str  # the loss
    losses: tuple[float, ...]  # of each rung
    law: Fit[PowerLaw]
    accuracy: str  # the metric; "": none
    accuracies: tuple[float, ...]
    sigmoid: Fit[Sigmoid] | None
    forecasts: tuple[Forecast, ...]


@dataclass(frozen=True, slots=True)
class Ladder:
    axis: str
    rungs: tuple[Rung, ...]  # the smallest first
    tasks: list[TaskLadder] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # task -> why it has no law


def rungs_of(
    runs: Sequence[Run],
    axis: str,
    parameters: Mapping[str, float],
    tokens: Mapping[str, Tokens],
) -> tuple[Rung, ...]:
    """The smallest first.  `parameters`, `tokens`: by label, as the user states them; parameters
    that are not stated are those that results count.

    Raises InputError for a run that nobody says the size of, and for too few runs or sizes."""
    rungs = list[Rung]()
    for run in runs:
        stated = parameters.get(run.label)
        for checkpoint, trained in _points(run, tokens.get(run.label)):
            rungs.append(_rung(run.label, checkpoint, axis, stated, trained))
    rungs.sort(key=lambda rung: rung.size)
    sizes = {rung.size for rung in rungs}
    if len(rungs) < LEAST_RUNS or len(sizes) < LEAST_SIZES:
        of_sizes = f"of {len(sizes)} sizes"
        if len(sizes) == 1:
            of_sizes = f"of one size, {rungs[0].size:.4g} {axis}"
        raise InputError(
            f"a ladder wants {LEAST_RUNS} runs or more, of {LEAST_SIZES} sizes or more, and has "
            f"{len(rungs)} {of_sizes}: name more runs, or another --axis of {', '.join(AXES)}"
        )
    return tuple(rungs)


def _points(run: Run, tokens: Tokens | None) -> Iterator[tuple[Run, float | None]]:
    """The run and its tokens, or each of its checkpoints where the tokens of a step are stated."""
    if tokens is None or not tokens.is_per_step:
        yield run, tokens and tokens.count
        return
    for step, checkpoint in (run.steps() or {run.result.step: run}).items():
        if step is None:
            raise InputError(
                f"--tokens states those of a step of {run.label}, whose results have no step: "
                f"state all, --tokens={run.label}=1e9"
            )
        if step:  # the weights before the first step have no place on the axis
            yield checkpoint, tokens.count * step


def _rung(label: str, run: Run, axis: str, parameters: float | None, tokens: float | None) -> Rung:
    if axis == "tokens":
        parameters = None
    elif parameters is None:
        parameters = float(run.result.checkpoint.num_parameters) or None
    if axis == "parameters":
        tokens = None
    elif tokens is None:
        tokens = run.result.checkpoint.training_tokens
    sizes = {"parameters": parameters, "tokens": tokens}
    wanted = [axis] if axis in sizes else list(sizes)
    size = float(FLOPS_A_TOKEN) if axis == "flops" else 1.0
    for name in wanted:
        number = sizes[name]
        if number is None:
            more = "" if name == "parameters" else f", or {label}=2e6/step for each checkpoint"
            raise InputError(
                f"the results of {label} do not say its {name}: state them, "
                f"--{name}={label}=1e9{more}"
            )
        size *= number
    return Rung(run, size, parameters, tokens)


def ladder_of(
    axis: str, rungs: Sequence[Rung], metric: str | None, sizes: Sequence[float]
) -> Ladder:
    """`metric`: the loss; None: the first of LOSSES that a task has.  `sizes`: on the axis, of
    forecasts.  Raises InputError where no task has a law."""
    runs = [rung.run for rung in rungs]
    ladder = Ladder(axis, tuple(rungs))
    for name in dict.fromkeys(name for run in runs for name in run.tasks):
        task = next(run.tasks[name] for run in runs if name in run.tasks)
        loss = metric or next((each for each in LOSSES if each in task.metrics), "")
        if reason := _refusal(name, task, loss, runs):
            ladder.refused[name] = reason
        else:
            ladder.tasks.append(_task_ladder(name, task, loss, rungs, sizes))
            if not ladder.tasks[-1].accuracy and task.main_metric in PROPORTIONS:
                ladder.refused[f"{name} {task.main_metric}"] = NO_RISE
    if not ladder.tasks:
        name, reason = next(iter(ladder.refused.items()), ("the first run", "it has no task"))
        raise InputError(f"no task has a law: {name}: {reason}")
    return ladder


def _refusal(name: str, task: TaskResult, metric: str, runs: Sequence[Run]) -> str:
    """Why a task has no law of this metric; ""."""
    if not metric or metric not in task.metrics:
        return f"it has no {metric or 'loss'}; its metrics are {', '.join(task.metrics)}"
    if metric not in LOWER_IS_BETTER:
        return f"{metric} is no loss: a power law is of numbers of which less is better"
    if not is_alike(task, name, runs):
        return "not all runs have it with the same data, rules and examples"
    is_by_tokens = metric in BY_TOKENS or metric.startswith("token_")
    if is_by_tokens and not all(same_tokenizer(runs[0], run) for run in runs[1:]):
        return f"{metric} counts tokens, and the tokenizers differ: take bits_per_byte"
    for run in runs:
        if not run.result.metric(name, metric).value > 0:
            return f"its {metric} in {run.label} is no number above 0"
    return ""


def _task_ladder(
    name: str, task: TaskResult, metric: str, rungs: Sequence[Rung], sizes: Sequence[float]
) -> TaskLadder:
    losses = _values(name, metric, rungs)
    law = fit_losses([rung.size for rung in rungs], losses)
    accuracy = task.main_metric
    accuracies = _values(name, accuracy, rungs)
    sigmoid = None
    varies = len({*losses}) > 1 and len({*accuracies}) > 1
    if accuracy in PROPORTIONS and varies and all(map(math.isfinite, accuracies)):
        sigmoid = fit_accuracies(losses, accuracies, task.chance(accuracy) or 0.0)
    if sigmoid is None or sigmoid.field("steepness").ci95[0] <= 0:
        sigmoid = None
        accuracy = ""
        accuracies = ()
    forecasts = tuple(forecast(size, law, sigmoid) for size in sizes)
    return TaskLadder(name, metric, losses, law, accuracy, accuracies, sigmoid, forecasts)


def _values(task: str, metric: str, rungs: Sequence[Rung]) -> tuple[float, ...]:
    return tuple(rung.run.result.metric(task, metric).value for rung in rungs)
