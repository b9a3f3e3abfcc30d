"""Which tasks decide most under a budget of tokens.

Arrives: training runs.  Leaves: a `Subset`, its file's content.  It deliberately does not know how
tasks are named on a command line.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.properties import LOWER_IS_BETTER
from miron_jax.report.compare.training_noise import is_alike
from miron_jax.results.run_folder import Run
from miron_jax.statistics.noise import noise, signal_to_noise

Curves = list[dict[int, float]]  # of each run, by step


class Chosen(NamedTuple):
    task: str
    metric: str
    tokens: int
    signal_to_noise: float
    together: float  # of the mean of this task and those chosen before


class Subset(NamedTuple):
    runs: tuple[str, ...]
    budget: float  # unique tokens
    tokens: int  # of those chosen
    chosen: tuple[Chosen, ...]  # the best first
    left_out: Mapping[str, str]  # task -> why
    all_together: float  # signal to noise of the mean of all tasks that have one

    def json(self) -> JsonObject:
        """What --tasks=@FILE reads: `tasks`; the rest says where they come from."""
        chosen = {}
        for each in self.chosen:
            chosen[each.task] = each._asdict()
        about = {"budget": self.budget, "tokens": self.tokens, "runs": self.runs}
        return {"tasks": [*chosen], **about, "chosen": chosen, "left_out": dict(self.left_out)}


def subset(runs: Sequence[Run], budget: float, last: int) -> Subset:
    """Tasks by their signal to noise, the best first, each that has room in what is left of the
    budget.  Raises InputError where none can be chosen."""
    checkpoints = [run.steps() or {run.result.step or 0: run} for run in runs]
    left_out = dict[str, str]()
    ratios = dict[str, float]()
    shares = dict[str, Curves]()
    for name in dict.fromkeys(name for run in runs for name in run.tasks):
        task = next(run.tasks[name] for run in runs if name in run.tasks)
        if not is_alike(task, name, runs):
            left_out[name] = "not all runs have it with the same data, rules and examples"
            continue
        metric = task.main_metric
        curves = Curves()
        for of_run in checkpoints:
            curves.append(
                {step: run.result.metric(name, metric).value for step, run in of_run.items()}
            )
        ratio = _ratio(curves, last)
        if math.isfinite(ratio):
            ratios[name] = ratio
            shares[name] = _shares(curves, metric in LOWER_IS_BETTER, last)
        else:
            left_out[name] = "its signal to noise is not known"
    chosen = list[Chosen]()
    together = list[Curves]()
    spent = 0
    for name in sorted(ratios, key=lambda name: -ratios[name]):
        cost = runs[0].result.speed.tokens_by_task.get(name)
        if cost is None:
            left_out[name] = f"the results of {runs[0].label} do not say its tokens"
        elif spent + cost > budget:
            left_out[name] = f"its {cost:,} tokens do not fit"
        else:
            spent += cost
            together.append(shares[name])
            ratio = _ratio(_means(together), last)
            metric = runs[0].tasks[name].main_metric
            chosen.append(Chosen(name, metric, cost, ratios[name], ratio))
    if not chosen:
        name, why = next(reversed(left_out.items()), ("the first run", "it has no task"))
        raise InputError(
            f"--subset finds no task for --budget={budget:g}: {name}: {why}; it wants two training "
            "runs or more, of three checkpoints or more, that this version scored"
        )
    everything = _ratio(_means([*shares.values()]), last)
    folders = tuple(run.folder for run in runs)
    return Subset(folders, budget, spent, tuple(chosen), left_out, everything)


def _ratio(curves: Curves, last: int) -> float:
    return signal_to_noise([noise(curve, last) for curve in curves])


def _shares(curves: Curves, is_lower_better: bool, last: int) -> Curves:
    """Values around 1 of which more is better, so that accuracies and bits may be averaged: by the
    mean of all runs, and of bits mirrored at 1."""
    middle = sum(noise(curve, last).mean for curve in curves) / len(curves)
    sign = -1.0 if is_lower_better else 1.0
    shares = Curves()
    for curve in curves:
        shares.append({step: 1 + sign * (value / middle - 1) for step, value in curve.items()})
    return shares


def _means(tasks: Sequence[Curves]) -> Curves:
    """The mean of several tasks, of each run and step."""
    means = Curves()
    for of_run in zip(*tasks, strict=True):
        of_tasks = zip(*(curve.values() for curve in of_run), strict=True)
        means.append(dict(zip(of_run[0], map(np.mean, of_tasks), strict=True)))
    return means
