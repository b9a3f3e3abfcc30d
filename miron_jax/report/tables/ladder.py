"""A ladder on screen and as JSON.

Arrives: a `Ladder`.  Leaves: rich tables, sentences, a JSON object.  It deliberately computes
nothing.
"""

from rich.console import Console

from miron_jax.files.readers import JsonObject
from miron_jax.report.compare.ladder import Ladder, TaskLadder
from miron_jax.report.numbers import shown, with_interval
from miron_jax.report.tables.console import table_of
from miron_jax.results.document import plain
from miron_jax.statistics.scaling import Fit, PowerLaw, Sigmoid

LEFT_OUT = "leave-one-out error"
LARGEST = "of the largest run"


def print_ladder(console: Console, ladder: Ladder) -> None:
    sizes = [rung.size for rung in ladder.rungs]
    console.print(
        f"{len(sizes)} runs from {sizes[0]:.4g} to {sizes[-1]:.4g} {ladder.axis}; loss = "
        "irreducible + scale * size^-exponent, with 95 % intervals by bootstrap",
        soft_wrap=True,
    )
    _print_laws(console, ladder)
    _print_sigmoids(console, ladder)
    _print_forecasts(console, ladder)
    console.print(
        f"{LEFT_OUT}: what the law of the other runs says of each, mean absolute difference from "
        f"what it scored; {LARGEST}: that law's prediction less its score, beyond the sizes that "
        "it knows",
        soft_wrap=True,
    )
    for name, why in ladder.refused.items():
        console.print(f"{name} has no law: {why}", soft_wrap=True)


def _print_laws(console: Console, ladder: Ladder) -> None:
    table = table_of(("task", "loss"), ("irreducible", "exponent", LEFT_OUT, LARGEST))
    for task in ladder.tasks:
        ends = [with_interval(task.law.field(name)) for name in ("irreducible", "exponent")]
        table.add_row(task.task, task.metric, *ends, *_left_out(ladder, task.law))
    console.print(table)


def _print_sigmoids(console: Console, ladder: Ladder) -> None:
    table = table_of(("task", "accuracy"), ("floor", "steepness", LEFT_OUT, LARGEST))
    for task in ladder.tasks:
        if task.sigmoid is not None:
            steepness = with_interval(task.sigmoid.field("steepness"))
            floor = shown(task.sigmoid.law.floor)
            table.add_row(
                task.task, task.accuracy, floor, steepness, *_left_out(ladder, task.sigmoid)
            )
    if table.rows:
        console.print("accuracy = floor + (1 - floor) sigmoid of the loss", soft_wrap=True)
        console.print(table)


def _print_forecasts(console: Console, ladder: Ladder) -> None:
    table = table_of(("task",), (ladder.axis, "times the largest", "loss", "accuracy"))
    largest = ladder.rungs[-1].size
    for task in ladder.tasks:
        for each in task.forecasts:
            accuracy = ""
            if each.accuracy is not None:
                accuracy = with_interval(each.accuracy)
            times = f"{each.size / largest:.3g}"
            table.add_row(task.task, f"{each.size:.4g}", times, with_interval(each.loss), accuracy)
    if table.rows:
        console.print(
            "what one more run of such a size would score, if the laws hold there", soft_wrap=True
        )
        console.print(table)


def _left_out(ladder: Ladder, fit: Fit[PowerLaw] | Fit[Sigmoid]) -> tuple[str, str]:
    """Of two largest runs the law of the others knows the size."""
    *_, before, last = (rung.size for rung in ladder.rungs)
    largest = "-"
    if before < last:
        largest = shown(fit.left_out[-1], "+.4f")
    return shown(fit.left_out_error), largest


def ladder_json(ladder: Ladder) -> JsonObject:
    runs = []
    for run, size, parameters, tokens in ladder.rungs:
        entry = {"run": run.folder, "step": run.result.step, "size": size}
        runs.append(entry | {"parameters": parameters, "tokens": tokens})
    tasks = {task.task: _task_json(task) for task in ladder.tasks}
    return plain({"axis": ladder.axis, "runs": runs, "tasks": tasks, "refused": ladder.refused})


def _task_json(task: TaskLadder) -> JsonObject:
    law = _law_json(task.law, ("irreducible", "scale", "exponent"))
    document: JsonObject = {"metric": task.metric, "losses": task.losses, "law": law}
    if task.sigmoid is not None:
        sigmoid = _law_json(task.sigmoid, ("level", "steepness"))
        sigmoid |= {"floor": task.sigmoid.law.floor}
        document |= {"accuracy": task.accuracy, "accuracies": task.accuracies, "sigmoid": sigmoid}
    return document | {"forecasts": [each._asdict() for each in task.forecasts]}


def _law_json(fit: Fit[PowerLaw] | Fit[Sigmoid], names: tuple[str, ...]) -> JsonObject:
    """Parameters with intervals, and errors."""
    document: JsonObject = {name: fit.field(name) for name in names}
    errors = {"mean": fit.left_out_error, "of_runs": fit.left_out}
    document |= {"middle": fit.law.middle, "deviation": fit.deviation}
    return document | {"leave_one_out": errors}
