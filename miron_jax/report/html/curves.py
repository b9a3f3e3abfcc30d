"""Steps of training -> the numbers of the page's curves, which the page draws on the axis that its
reader chooses.

Arrives: `Run`s, with the results of their steps.  Leaves: a JSON object.  It deliberately does not
know what a checkpoint was trained on: results do not say how many tokens, so the reader does.
"""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from miron_jax.errors import printable
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.properties import LOWER_IS_BETTER
from miron_jax.report.compare.table import LOWER
from miron_jax.report.figures.all import Trained
from miron_jax.report.figures.curves import Line, lines_of
from miron_jax.report.html.head import name_of_composite
from miron_jax.report.tables.curves import LABELS
from miron_jax.results.run_folder import Run

DIGITS = 7  # significant, of a number that is drawn


def panels_of(runs: Sequence[Run], trained: Trained) -> JsonObject | None:
    """A panel a task and metric, and of each run where its steps lie; None without a value."""
    panels = [*_composites(trained)]
    for (name, metric), lines in lines_of(trained).items():
        task = next(run.tasks[name] for run in runs if name in run.tasks)
        label = LABELS.get(metric, metric)
        if metric in LOWER_IS_BETTER:
            label += f" {LOWER}"
        panels.append(
            {
                "title": printable(f"{name}: {label}"),
                "task": printable(name),
                "chance": task.chance(metric),
                "people": task.people(metric),
                "lines": [*map(_line, lines)],
            }
        )
    shown = [run for run in runs if run.label in trained]
    labels = {run.folder: printable(run.label) for run in runs}
    return {"runs": [_run(run, labels) for run in shown], "panels": panels} if panels else None


def _composites(trained: Trained) -> Iterator[JsonObject]:
    """A panel a composite that has a value."""
    panels = dict[str, list[JsonObject]]()
    for i, steps in enumerate(trained.values()):
        last = steps[max(steps)]
        for suite, of_suite in last.suites.items():
            for name, composite in of_suite.composites.items():
                of_steps = [(step, steps[step].composite(suite, name)) for step in sorted(steps)]
                if any(math.isfinite(each.value) for _, each in of_steps):
                    title = name_of_composite(suite, name, last.metric_of(composite))
                    points = [_point(step, each.value, each.ci95) for step, each in of_steps]
                    line = {"run": i, "name": "", "points": points}
                    panels.setdefault(title, []).append(line)
    for title, lines in panels.items():
        yield {"title": title, "task": None, "chance": None, "people": None, "lines": lines}


def _run(run: Run, labels: Mapping[str, str]) -> JsonObject:
    """`labels`: of the page's runs, by their folders.  `here`: the run by which the page has the
    examples of a step."""
    folders = dict[str, str]()
    here = {str(run.result.step): printable(run.label)}
    for step, file in run.result.steps.items():
        folder = f"{run.folder}/{PurePosixPath(file).parent}"
        folders[step] = shlex.quote(printable(folder))  # a part of a command
        if folder in labels:
            here[step] = labels[folder]
    return {"label": printable(run.label), "folders": folders, "here": here}


def _line(line: Line) -> JsonObject:
    """A category has no interval."""
    points = list[list[float]]()
    for step, estimate in zip(line.steps, line.curve.estimates, strict=True):
        ends = None if line.curve.category else estimate.ci95
        points.append(_point(step, estimate.value, ends))
    return {"run": line.run, "name": printable(line.curve.category), "points": points}


def _point(step: int, value: float, ends: tuple[float, float] | None) -> list[float]:
    """Its step, its value if there is one, the ends of its interval if it has one."""
    numbers = list[float]()
    if math.isfinite(value):
        numbers = [value]
        if ends and all(map(math.isfinite, ends)):
            numbers += ends
    return [step, *(float(f"{each:.{DIGITS}g}") for each in numbers)]
