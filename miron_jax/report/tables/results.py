"""The results of a run on screen.

Arrives: a `RunResult`.  Leaves: lines on a rich console.  It deliberately does not know the engine.
"""

import math
from collections.abc import Mapping

from rich.console import Console

from miron_jax.errors import some_of
from miron_jax.metrics.choices import SOFT
from miron_jax.metrics.token_stats import TOKEN_STATS
from miron_jax.report.numbers import shown
from miron_jax.report.tables.cloze import cloze_of, cloze_table
from miron_jax.report.tables.console import NumberTable, table_of
from miron_jax.report.tables.controls import controls_lines, controls_table
from miron_jax.report.tables.draws import LEGEND, draws_table
from miron_jax.report.tables.notes import MODEL_ONLY, above_chance, notes_of
from miron_jax.results.records import (
    UNKNOWN,
    CompositeResult,
    Rescaled,
    RunResult,
    SuiteResult,
    TaskResult,
)
from miron_jax.statistics.estimate import Estimate

MOST_OTHERS = 4
LEAST_SECONDS = 0.05  # of an activity that is shown
BAR = 40  # columns of a bar that takes all the time
_SOFT = (*(metric.name for metric in SOFT), *TOKEN_STATS)
_OF_CHOICES = ("accuracy_sum", "accuracy_bytes", "bits_per_byte", "answered", *_SOFT)
_COLUMNS = {"accuracy_sum": "by sum", "accuracy_bytes": "by bytes", "bits_per_byte": "bits/byte"}
PARTIAL_COMPOSITE = "partial_"

TaskResults = Mapping[str, TaskResult]
Composites = Mapping[str, CompositeResult]


def print_results(console: Console, run: RunResult) -> None:
    """Print composites, then tasks with their main metric and its 95 % interval, then notes."""
    if run.step is not None:
        console.print(f"step {run.step}:", soft_wrap=True)
    for line in above_chance(run):
        console.print(line, soft_wrap=True)
    for suite in run.suites.values():
        _print_composites(console, suite, run)
    cloze = cloze_of(run)
    if cloze:
        console.print(cloze_table(cloze))
    for suite in run.suites:
        tasks = run.tasks_of(suite)
        if tasks and not tasks.keys() <= cloze.keys():
            console.print(_table_of(tasks))
        if reported := {
            name: task for name, task in tasks.items() if task.categories == "reported"
        }:
            console.print(categories_table(reported))
    if any(task.controls for task in run.tasks.values()):
        if any(task.controls and task.controls.by for task in run.tasks.values()):
            console.print(controls_table(run.tasks))
        for line in controls_lines(run.tasks):
            console.print(line, soft_wrap=True)
    if any(task.draws for task in run.tasks.values()):
        console.print(draws_table(run))
        console.print(LEGEND, soft_wrap=True)
    for line in notes_of(run):
        console.print(line, soft_wrap=True)


def _print_composites(console: Console, suite: SuiteResult, run: RunResult) -> None:
    composites = {
        name: each for name, each in suite.composites.items() if _is_asked_for(name, suite, run)
    }
    if any(name.startswith(PARTIAL_COMPOSITE) for name in composites):
        console.print(partials_table(composites))
        console.print(_left_out(composites), soft_wrap=True)
        return
    for name, composite in composites.items():
        console.print(_composite(name, composite), soft_wrap=True)


def _is_asked_for(name: str, suite: SuiteResult, run: RunResult) -> bool:
    """Whether a composite, or the partial one that stands in its row, has a value, or tasks of
    --tasks have left it without."""
    whole = name.removeprefix(PARTIAL_COMPOSITE)
    of_row = map(suite.composites.get, (whole, PARTIAL_COMPOSITE + whole))
    return any(
        not math.isnan(each.value) or not each.missing or run.not_scored(each)
        for each in filter(None, of_row)
    )


def _table_of(tasks: TaskResults) -> NumberTable:
    if any(task.section for task in tasks.values()):
        return sections_table(tasks)
    for task in tasks.values():
        if task.main not in ("", "accuracy") or task.human or task.robustness:
            return mains_table(tasks)
    return _choices_table(tasks)


def mains_table(tasks: TaskResults) -> NumberTable:
    """A table of tasks with different main metrics, and further numbers of each."""
    numbers = ("n", "metric", "value", "95 % interval", "chance", "human", "human gap")
    table = table_of(
        ("task",), numbers, ("also",), gives_way=("also", "chance", "human", "human gap")
    )
    for name, task in tasks.items():
        value, interval = _with_interval(task.metric(task.main))
        if not value and not task.n:
            value = "none"
        chance = _number(task.baselines.get("random")) if task.main == "accuracy" else ""
        table.add_row(
            name, str(task.n), task.main, value, interval, chance, *_human(task), _others(task)
        )
    return table


def categories_table(tasks: TaskResults) -> NumberTable:
    """A table of the categories that tasks report beside their numbers over all examples."""
    table = table_of(
        ("task", "category"), ("n", "metric", "value", "95 % interval"), gives_way=("metric",)
    )
    for name, task in tasks.items():
        for category, group in task.groups.items():
            numbers = _with_interval(group.metrics.get(task.main, UNKNOWN))
            table.add_row(name, category, str(group.n), task.main, *numbers)
    return table


def _human(task: TaskResult) -> tuple[str, str]:
    """The human baseline, of the main metric if there is one, and the human gap."""
    if not task.human:
        return "", ""
    gap = next((gap for gap in task.human if gap.metric == task.main), task.human[0])
    baseline = _number(gap.human.value)
    if gap.metric != task.main:
        baseline += f" {gap.metric}"
    if gap.value is None:
        return baseline, "none"
    if gap.ci95 is None:
        return baseline, f"{gap.value:+.3f}"
    low, high = gap.ci95
    mark = MODEL_ONLY if gap.is_model_only else ""
    return baseline, f"{gap.value:+.3f} ({low:+.3f} to {high:+.3f}){mark}"


def _others(task: TaskResult) -> str:
    """Up to MOST_OTHERS further numbers of a task."""
    others = []
    for name, metric in task.metrics.items():
        if name not in (task.main, *_OF_CHOICES) and math.isfinite(metric.value):
            others.append(f"{name} {_number(metric.value)}")
    return some_of(others, MOST_OTHERS)


def sections_table(tasks: TaskResults) -> NumberTable:
    """A table of tasks by section, with rescaled accuracies: (accuracy - baseline) / (1 -
    baseline)."""
    numbers = ("n", "accuracy", "stderr", "baseline", "rescaled", "stderr", "bits/byte")
    table = table_of(("task",), numbers, gives_way=("bits/byte", "baseline"))
    for section in dict.fromkeys(task.section for task in tasks.values()):
        table.add_section()
        table.add_row(section or "in no section", style="bold")
        for name, task in tasks.items():
            if task.section == section:
                table.add_row(*_section_row(name, task))
    return table


def _section_row(name: str, task: TaskResult) -> tuple[str, ...]:
    accuracy = task.metric("accuracy")
    rescaled = task.rescaled or Rescaled(math.nan, math.nan)
    return (
        f"  {name.partition('/')[2]}",
        str(task.n),
        _number(accuracy.value),
        _number(accuracy.stderr),
        _number(task.baselines.get("random")),
        _number(rescaled.value),
        _number(rescaled.stderr),
        _number(task.metric("bits_per_byte").value),
    )


def _choices_table(tasks: TaskResults) -> NumberTable:
    known = ("accuracy", *_COLUMNS, *_SOFT)
    metrics = dict[str, Estimate]()
    for task in tasks.values():
        metrics |= task.metrics
    more = [name for name in metrics if name not in known][:MOST_OTHERS]
    others = (*_COLUMNS.values(), *more)
    gives_way = (*reversed(more), "by bytes", "by sum", "bits/byte", "baseline")
    table = table_of(
        ("task",), ("n", "accuracy", "95 % interval", "baseline", *others), gives_way=gives_way
    )
    for name, task in tasks.items():
        accuracy = task.metric("accuracy")
        table.add_row(
            name,
            str(task.n),
            _number(accuracy.value),
            _interval(accuracy.ci95),
            _number(task.baselines.get("random")),
            *(_number(task.metric(other).value) for other in (*_COLUMNS, *more)),
        )
    return table


def _number(value: float | None) -> str:
    return shown(value, ".3f")


def _with_interval(estimate: Estimate) -> tuple[str, str]:
    """Value and interval; empty without a value."""
    if math.isnan(estimate.value):
        return "", ""
    return _number(estimate.value), _interval(estimate.ci95)


def _interval(bounds: tuple[float, float]) -> str:
    return f"{_number(bounds[0])} - {_number(bounds[1])}"


def _composite(name: str, composite: CompositeResult) -> str:
    if math.isnan(composite.value):
        missing = composite.missing
        if not missing:
            return f"{name}: none, its number is not defined for one of its tasks"
        names = f"{', '.join(missing[:4])}{' ...' if missing[4:] else ''}"
        return f"{name}: none, {len(missing)} tasks have no score on published data: {names}"
    if math.isnan(composite.stderr):
        return (
            f"{name}: {composite.value:.4f} (one example of a task has no deviation, so there is "
            "no standard error)"
        )
    low, high = composite.ci95 or (math.nan, math.nan)
    error = f"standard error {composite.stderr:.4f}"
    return f"{name}: {composite.value:.4f}, {error} (95 % interval {low:.4f} to {high:.4f})"


def partials_table(composites: Composites) -> NumberTable:
    """A table of composites; incomplete ones have a partial value over the scored tasks."""
    missing = "tasks without a score"
    table = table_of(
        ("composite",), ("value", "stderr", "partial", "stderr", missing), gives_way=(missing,)
    )
    for name, composite in composites.items():
        if not name.startswith(PARTIAL_COMPOSITE):
            partial = composites.get(PARTIAL_COMPOSITE + name, CompositeResult())
            numbers = (composite.value, composite.stderr, partial.value, partial.stderr)
            table.add_row(name, *map(_number, numbers), str(len(composite.missing)))
    return table


def _left_out(composites: Composites) -> str:
    names = dict.fromkeys(task for composite in composites.values() for task in composite.missing)
    return (
        "a composite that lacks a task has no value; a partial one compares only with runs over "
        f"the same tasks; without a score on published data: {', '.join(names)}"
    )


def timeline_lines(run: RunResult) -> list[str]:
    """A line for each activity that took time, with its seconds, its share and a bar; [] of older
    results."""
    speed = run.speed
    spent = {name: seconds for name, seconds in speed.timeline.items() if seconds >= LEAST_SECONDS}
    if not spent:
        return []
    lines = [f"where these {speed.wall_seconds:.1f} s went:"]
    for name, seconds in spent.items():
        share = seconds / speed.wall_seconds
        bar = "█" * round(BAR * share)
        lines.append(f"  {activity(name):13} {seconds:7.1f} s {share:5.0%}  {bar}".rstrip())
    beside = [
        f"{activity(name)} {seconds:.1f} s"
        for name, seconds in speed.in_threads.items()
        if seconds >= LEAST_SECONDS
    ]
    if beside:
        lines.append(f"threads worked meanwhile: {', '.join(beside)}")
    return lines


def activity(name: str) -> str:
    """An activity of a timeline in words."""
    return name.replace("_", " ")


def speed_line(run: RunResult) -> str:
    """Counts and times of a run, in a sentence."""
    speed = run.speed
    check = run.self_check
    padding = 0.0
    if speed.computed_tokens:
        padding = 100 * (speed.padded_tokens / speed.computed_tokens - 1)
    rate = shown(speed.tokens_per_second, ".0f", "0")
    return (
        f"{speed.requests} requests, {speed.plain_tokens} tokens one row each, "
        f"{speed.unique_tokens} unique, {padding:.1f} % padding; {rate} unique tokens/s on the "
        f"device; {speed.wall_seconds:.1f} s in all, of them {speed.device_seconds:.1f} device, "
        f"{speed.compile_seconds:.1f} compiling {speed.programs} programs, "
        f"{speed.load_seconds:.1f} loading, {check.seconds:.1f} self-check (largest difference "
        f"{check.largest:.1e} nats over {check.tokens} tokens, allowed {check.tolerance:g})"
    )
